#!/bin/bash
# Training steps of mlp, lstm, resnet50, bert and gpt2 beside PyTorch's: time, memory, two ranks.
# Rounds alternate between the programs, and medians are printed, because shared machines drift.
# FLOPs are those that choir's own profile counts (--trace): 2 M N K a product.
#   MODELS="mlp lstm" ROUNDS=5 TWO=no script/bench models
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-3}
machine
one="taskset -c 0"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# with_rss FILE COMMAND...: runs it, and appends its peak resident MiB to FILE
with_rss() {
    python3 - "$@" <<'PYTHON'
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:], stderr=subprocess.DEVNULL).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(peak, file=open(sys.argv[1], "a"))
sys.exit(status)
PYTHON
}

# choir_step NAME BATCH STEPS RSS_FILE [OPTION...]: the summary, on one core
choir_step() {
    local name=$1 batch=$2 steps=$3 rss=$4
    shift 4
    with_rss "$rss" $one choir train --json --log-every 1000000 --eval-batches 1 --model "$name" \
        --batch-size "$batch" --steps "$steps" "$@" random | tail -1
}

torch_step() { # NAME RSS_FILE [OPTION...]: with a limit, as compilation may not end
    local name=$1 rss=$2
    shift 2
    OMP_NUM_THREADS=1 with_rss "$rss" \
        timeout 600 $one "$python" "$peers/torch_train.py" "$name" "$@"
}

# gflop MODEL BATCH: of one step, as the profile counts it
gflop() {
    $one choir train --json --log-every 1000000 --model "$1" --batch-size "$2" --steps 2 \
        --trace "$out/trace" random | python3 -c '
import json, sys
for line in sys.stdin:
    event = json.loads(line)
    if event["event"] == "profile":
        print(sum(kernel["gflop"] for kernel in event["kernels"]) / event["steps"])'
}

ranks() { # NAME MODEL BATCH STEPS: two ranks, the batch a rank unchanged
    local name=$1 model=$2 batch=$3 steps=$4
    for _ in $(seq "$rounds"); do
        train --model "$model" --batch-size $((2 * batch)) --steps "$steps" --strategy ddp \
            --nproc 2 random | field step_ms_median >>"$out/choir2"
        have_torch && torch "$name" --world 2 | field step_ms >>"$out/torch2"
    done
}

# model NAME MODEL BATCH STEPS
model() {
    local name=$1 model=$2 batch=$3 steps=$4 work ours rate eager compiled best
    case " ${MODELS:-mlp lstm resnet50 bert gpt2} " in *" $name "*) ;; *) return ;; esac
    rm -f "$out"/*
    for _ in $(seq "$rounds"); do
        $one build/choir_bench_matmul_rate >>"$out/rate"
        choir_step "$model" "$batch" "$steps" "$out/choir_rss" | field step_ms_median >>"$out/choir"
        have_torch && torch_step "$name" "$out/torch_rss" | field step_ms >>"$out/eager"
    done
    have_torch && torch_step "$name" "$out/compiled_rss" --compile | field step_ms >>"$out/compiled"
    [ "${TWO:-yes}" = yes ] && ranks "$name" "$model" "$batch" "$steps"
    work=$(gflop "$model" "$batch")
    ours=$(median <"$out/choir") rate=$(median <"$out/rate")
    printf '%-9s choir %8.2f ms  %7.2f GFLOP  %3.0f %% of %.0f GFLOP/s' "$name" "$ours" "$work" \
        "$(calc "100 * $work / ($ours / 1000) / $rate")" "$rate"
    if [ -s "$out/eager" ]; then
        eager=$(median <"$out/eager") compiled=$(median <"$out/compiled" 2>/dev/null)
        best=$(printf '%s\n' "$eager" "${compiled:-$eager}" | sort -g | head -1)
        printf '  PyTorch %.2f, compiled %s  ratio %.2f  MiB %d of %d (%.2f)' "$eager" \
            "${compiled:--}" "$(calc "$best / $ours")" "$(median <"$out/choir_rss")" \
            "$(median <"$out/torch_rss")" \
            "$(calc "$(median <"$out/choir_rss") / $(median <"$out/torch_rss")")"
        calc "log($best / $ours)" >>"$logs"
        echo >>"$logs"
    fi
    [ -s "$out/choir2" ] && printf '  two ranks %.2f ms' "$(median <"$out/choir2")"
    [ -s "$out/torch2" ] && printf ', PyTorch %.2f (%.2f)' "$(median <"$out/torch2")" \
        "$(calc "$(median <"$out/torch2") / $(median <"$out/choir2")")"
    printf '\n'
}

logs=$(mktemp)
trap 'rm -rf "$out" "$logs"' EXIT
digits=4
model mlp mlp 128 60
model lstm lstm 32 12
model resnet50 resnet50 8 6
model bert bert:context=128 4 8
model gpt2 gpt2:context=64 4 8
[ -s "$logs" ] && printf 'geometric mean of the ratios: %.2f\n' \
    "$(awk '{s += $1; n++} END {print exp(s / n)}' "$logs")"
