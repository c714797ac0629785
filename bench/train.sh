#!/bin/bash
# Training steps of toy, nano and gpt2 beside PyTorch's, and against the matrix-multiply rate.
# Rounds alternate between the programs, and medians are printed, because shared machines drift.
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-3}
machine

nano="gpt2:layers=4,heads=4,width=128,context=64,vocab=65"
one="taskset -c 0"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# workload NAME MODEL BATCH STEPS GFLOP: one core, beside PyTorch eager and compiled
workload() {
    local name=$1 model=$2 batch=$3 steps=$4 gflop=$5
    rm -f "$out"/*
    for _ in $(seq "$rounds"); do
        $one build/choir_bench_matmul_rate >>"$out/rate"
        $one choir train --json --log-every 1000000 --model "$model" --batch-size "$batch" \
            --steps "$steps" random | tail -1 | field step_ms_median >>"$out/choir"
        if have_torch; then
            OMP_NUM_THREADS=1 $one "$python" "$peers/torch_train.py" "$name" 2>/dev/null |
                field step_ms >>"$out/eager"
        fi
    done
    if have_torch; then
        OMP_NUM_THREADS=1 $one "$python" "$peers/torch_train.py" "$name" --compile 2>/dev/null |
            field step_ms >>"$out/compiled"
    fi
    local ours rate eager compiled best
    ours=$(median <"$out/choir") rate=$(median <"$out/rate")
    printf '%-6s choir %9.4f ms   matmul rate %.0f GFLOP/s' "$name" "$ours" "$rate"
    [ "$gflop" = 0 ] || printf '   %.0f %% of it' "$(calc "100 * $gflop / ($ours / 1000) / $rate")"
    if [ -s "$out/eager" ]; then
        eager=$(median <"$out/eager") compiled=$(median <"$out/compiled" 2>/dev/null)
        best=$(printf '%s\n' "$eager" "${compiled:-$eager}" | sort -g | head -1)
        printf '   PyTorch eager %.3f compiled %s ms   ratio %.2f' "$eager" "${compiled:--}" \
            "$(calc "$best / $ours")"
    fi
    printf '\n'
}

# 6 x parameters x tokens, and attention's two products forward and four backward
workload nano "$nano" 12 200 3.96
workload gpt2 gpt2:context=64 4 12 190.5
workload toy toy 20 20000 0

# Two ranks on two cores, the batch a rank unchanged
for _ in $(seq "$rounds"); do
    $one choir train --json --log-every 1000000 --model "$nano" --batch-size 12 --steps 200 \
        random | tail -1 | field items_per_s >>"$out/single"
    train --model "$nano" --batch-size 24 --steps 200 --strategy ddp --nproc 2 random |
        field items_per_s >>"$out/two"
done
one_rank=$(median <"$out/single") two_ranks=$(median <"$out/two")
printf 'nano   two ranks: %.2f times one\n' "$(calc "$two_ranks / $one_rank")"

# From process start to the end of the first step
for _ in $(seq 5); do
    train --model toy --batch-size 20 --steps 10 --strategy ddp --nproc 2 random |
        field first_step_s >>"$out/first"
done
printf 'toy    two ranks, process start to the end of the first step: %.1f ms\n' \
    "$(calc "1000 * $(median <"$out/first")")"
if have_torch; then
    theirs=$(torch toy --world 2 | field first_step_s)
    printf '       PyTorch: %.0f ms\n' "$(calc "1000 * $theirs")"
fi
