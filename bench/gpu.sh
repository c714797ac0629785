#!/bin/bash
# Training steps on a GPU beside PyTorch's: time, share of the matrix rate, memory.
#
# Workload by workload, each program measures each batch size, in one call, Choir's first, as
# PyTorch compiles for long; medians; the best batch of each counts, and memory at PyTorch's best.
# Then two workloads without the epilogues of products, and gpt2 with an odd vocabulary. With two
# GPUs also Choir's exact all-reduce and NCCL's own.
#
#   DEVICE=cuda:0   SECONDS_EACH=5
#   GPT2=64,32,16   RESNET50=256   BERT=64   TOY=20    batches; -: not this one
#   GPU_JSON=FILE   all numbers;   TINY=yes   models of no size, on DEVICE=cpu:0 too
#
# --count: no times, but a step's kernels and their memory traffic, at full size and without a GPU:
# the software-emulated GPU is given all work and does none. Also of llama (LLAMA=4) and of gpt2
# with its own vocabulary.
set -uo pipefail
source bench/lib.inc
build=${CHOIR_BUILD:-build} device=${DEVICE:-cuda:0}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
options=(--seconds "${SECONDS_EACH:-5}")
[ "${TINY:-no}" = yes ] && options+=(--tiny)
torch_options=(--device "${device%:*}")
[[ $device == cuda:* ]] && torch_options=(--device cuda)
[ "${EAGER:-no}" = yes ] && torch_options+=(--eager)

if [ "${1:-}" = --count ]; then
    plugins=$build/tests/softgpu/plugins
    [ -e "$plugins/choir_cuda.so" ] ||
        { echo "skipped: no software-emulated GPU: it needs the CUDA toolkit's headers"; exit 0; }
    export SOFTGPU_RUN=no SOFTGPU_MEMORY=300G CHOIR_PLUGIN_PATH=$plugins
    exec "$build/choir_bench_gpu" --count cuda:0 "gpt2=${GPT2:-32}" "bert=${BERT:-64}" \
        "resnet50=${RESNET50:-256}" "gpt2-50257=${GPT2:-32}" "llama=${LLAMA:-4}"
fi
if ! "$build/choir_bench_gpu" --tiny --seconds 0 "$device" toy >/dev/null 2>"$out/why"; then
    echo "skipped: $(head -1 "$out/why")"
    exit 0
fi
default_of() { [ "${TINY:-no}" = yes ] && echo "$1" || echo "$2"; }
GPT2=${GPT2:-$(default_of 2 64,32,16)} RESNET50=${RESNET50:-$(default_of 2 256)}
BERT=${BERT:-$(default_of 2 64)} TOY=${TOY:-20}
status=0

# All there is as a table and as JSON; without Python the lines as they are.
table() {
    if "$python" -c '' 2>/dev/null; then
        "$python" bench/peers/gpu_table.py "$out/choir" "$out/torch" ${GPU_JSON:+"$GPU_JSON"} ||
            status=1
    else
        cat "$out/choir"
    fi
}
trap 'echo "stopped before the end:"; table; exit 1' TERM # no time is left: what was measured
works=()
for work in "gpt2=$GPT2" "bert=$BERT" "resnet50=$RESNET50" "toy=$TOY"; do
    [[ $work == *=- ]] || works+=("$work")
done
choirs() { # WORKLOAD=BATCHES
    "$build/choir_bench_gpu" "${options[@]}" --json "$device" "$1" >>"$out/choir" || status=1
}
for work in "${works[@]}"; do choirs "$work"; done
for work in "${works[@]}"; do
    [[ $device == cuda:* && $work =~ ^(gpt2|bert)= ]] &&
        CHOIR_CUDA_EPILOGUES=0 choirs "${work%%=*}=${work##*[=,]}" # the last batch
done
# Beside gpt2, it shows what a vocabulary of odd size costs.
[[ $GPT2 == - ]] || { choirs "gpt2-50257=${GPT2##*,}" && works+=("gpt2-50257=${GPT2##*,}"); }
for work in "${works[@]}"; do
    "$python" -c 'import torch' 2>/dev/null || break
    "$python" bench/peers/gpu.py "${options[@]}" "${torch_options[@]}" "$work" >>"$out/torch" \
        2>"$out/why"
    grep -v -E 'Warning|warn' "$out/why" | tail -2 >&2
done
table

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if ((gpus >= 2)) && [[ $device == cuda:* ]]; then
    for algorithm in exchange native; do
        echo "all_reduce of $gpus GPUs over NCCL, $algorithm:"
        "$build/choir" bench all_reduce -n "$gpus" --backend nccl --algorithm $algorithm \
            --min 1M --max 256M || status=1
    done
else
    echo "all_reduce over NCCL: wants two GPUs"
fi
exit $status
