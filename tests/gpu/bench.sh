#!/bin/bash
# The GPU benchmark at minimal sizes: choir_bench_gpu on DEVICE, its lines, and the table that
# bench/gpu.sh makes from them beside PyTorch's (here the same lines, so all ratios are 1).
#   bench.sh CHOIR_BENCH_GPU DEVICE
set -uo pipefail
bench=$1 device=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work"/*; exit 1; }

"$bench" --tiny --seconds 0 --json "$device" gpt2 resnet50 bert toy >"$work/lines" 2>&1 ||
    fail "status $?"
[ "$(grep -c . "$work/lines")" = 5 ] || fail "wanted a line for the rate and four workloads"
grep -q '"matmul_tflops":[0-9]' "$work/lines" || fail "no matrix rate"
for workload in gpt2 resnet50 bert toy; do
    grep -qE "\"workload\":\"$workload\".*\"step_ms\":[0-9.]*[1-9]" "$work/lines" ||
        fail "no $workload"
done
# Transformers' work is counted: 6 (28,032 - 512 of positions) + 6 x 2 layers x 32 x 16 a token.
awk -F'[:,]' '/gpt2/ { rate = $8; work = $10 * 1e12
    exit !(work > 0.9 * rate * 171264 - 1e9 && work < 1.1 * rate * 171264 + 1e9) }' "$work/lines" ||
    fail "gpt2's FLOPs"
"$bench" --tiny --seconds 0 "$device" toy=20,7 >"$work/out" 2>&1
[ "$(grep -cE '^toy ' "$work/out")" = 2 ] || fail "batches"

# Counted: a step has kernels, traffic and products.
"$bench" --tiny --count --json "$device" gpt2 toy >"$work/count" 2>&1 || fail "--count: status $?"
[ "$(grep -cE '"tasks":[1-9][0-9]*,"gb":[0-9.]+,"products":[1-9]' "$work/count")" = 2 ] ||
    fail "--count's lines"
# On a GPU norms run once: of two layers and the end.
"$bench" --tiny --count "$device" gpt2 >"$work/count" 2>&1 || fail "--count of gpt2: status $?"
[[ $device != cuda:* ]] || grep -qE '^ +layer_norm +5 calls' "$work/count" || fail "norms again"
# An odd vocabulary has the launches of an even one, and its scores are no product of odd rows.
"$bench" --tiny --count "$device" gpt2-50257 >"$work/odd" 2>&1 || fail "--count of gpt2-50257"
launches() { grep -oE '[0-9]+ launches' "$1"; }
[[ $device != cuda:* ]] || [ "$(launches "$work/odd")" = "$(launches "$work/count")" ] ||
    fail "an odd vocabulary has $(launches "$work/odd"), an even one $(launches "$work/count")"
[[ $device != cuda:* ]] || ! grep -q 'odd rows' "$work/odd" || fail "products of odd rows"
"$bench" --tiny --count "$device" llama >"$work/llama" 2>&1 || fail "--count of llama"
# On the soft GPU, which then does no work, at any size: the backward of an elementwise op moves
# three numbers where the op moves two.
if [[ $device == cuda:* ]] && [ -n "${CHOIR_PLUGIN_PATH:-}" ]; then
    SOFTGPU_RUN=no "$bench" --count "$device" toy=1000000 >"$work/count" 2>&1 ||
        fail "--count of a large toy: status $?"
    awk '$1 == "unary" { forward = $4 } $1 == "unary_backward" { backward = $4 }
        END { exit !(forward > 0.1 && backward == 1.5 * forward) }' "$work/count" ||
        fail "--count's traffic"
    grep -qE '^toy, .* [1-9][0-9]* launches; ' "$work/count" || fail "--count's launches"
fi

# Problems that a library has no plan for, or refuses when it is called, are counted and listed;
# the epilogues of products can be turned off.
if [[ $device == cuda:* ]] && [ -n "${CHOIR_PLUGIN_PATH:-}" ]; then
    plans() { # VARIABLE=VALUE... WORKLOAD: a line of the benchmark, and the list of plans
        rm -f "$work/plans"
        env CHOIR_CUDA_PLANS="$work/plans" "${@:1:$#-1}" "$bench" --tiny --seconds 0 --json \
            "$device" "${!#}" >"$work/out" 2>&1 || fail "with $*"
    }
    plans X=1 gpt2
    grep -q '^cuBLASLt made .* slope of GELU' "$work/plans" || fail "no list of plans"
    grep -qE '^[^ ]+ (none|refused) ' "$work/plans" && fail "the soft GPU has no plan"
    plans CHOIR_CUDA_EPILOGUES=0 gpt2
    grep -q '"epilogues":false' "$work/out" || fail "epilogues are not off"
    grep -qE 'slope of GELU|sums of' "$work/plans" && fail "an epilogue was asked for"
    plans SOFTGPU_FAIL=blas:1+ toy
    grep -q '"products_without_library":[1-9]' "$work/out" || fail "products without a library"
    grep -q '^cuBLASLt none 1 of 20x10x10 f32' "$work/plans" || fail "no list of what has no plan"
    if grep -q '"cudnn":"9' <(SOFTGPU_DNN=91900 "$(dirname "$bench")/choir" info --json); then
        plans SOFTGPU_DNN=91900 SOFTGPU_FAIL=dnn:2 resnet50
        grep -q '^cuDNN refused conv ' "$work/plans" || fail "a refused plan is not listed"
        plans SOFTGPU_DNN=91900 SOFTGPU_FAIL=dnn:1 resnet50
        grep -q '^cuDNN refused to start' "$work/plans" || fail "a cuDNN that does not start"
        grep -q 'slower kernels: cuDNN is there' "$work/out" || fail "it is not said"
    fi
fi

"$bench" --tiny "$device" gpt9 >"$work/out" 2>&1 && fail "took an unknown workload"
grep -q "no workload 'gpt9'" "$work/out" || fail "did not name the unknown workload"
"$bench" --tiny cuda:99 >"$work/out" 2>&1 && fail "took an unknown device"
"$bench" >"$work/out" 2>&1
[ $? = 2 ] || fail "wrong usage is not status 2"

command -v python3 >/dev/null || exit 0
python3 "$root/bench/peers/gpu_table.py" "$work/lines" "$work/lines" "$work/json" >"$work/table" ||
    fail "the table"
for workload in gpt2 resnet50 bert toy; do
    grep -qE "^$workload: batch [0-9]+.* 1[.]00 x PyTorch" "$work/table" ||
        fail "no ratio of $workload"
done
grep -qE '^gpt2: .*memory 1[.]00' "$work/table" || fail "no ratio of memory"
grep -qE '^gpt2: .*loss ([0-9.]+) and PyTorch.s \1, products without a library: 0' "$work/table" ||
    fail "no losses"
# Of 64 tokens, after five steps: less than that of a guess, ln 64.
awk -F'"loss":' '/gpt2/ { exit !($2 > 1 && $2 < 4.2) }' "$work/lines" || fail "gpt2's loss"
# A second line of a batch is that without epilogues.
cat "$work/lines" <(grep gpt2 "$work/lines") >"$work/twice"
python3 "$root/bench/peers/gpu_table.py" "$work/twice" "$work/lines" >"$work/table" &&
    grep -qE '^gpt2: .*without epilogues 1[.]00 of the time' "$work/table" ||
    fail "the line without epilogues"
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["summary"]) == 4' \
    "$work/json" || fail "its JSON"
