#!/bin/bash
# Steps' times foretold by choir plan beside those of choir train, strategy by strategy.
#
# The machine is calibrated on one device with the models themselves; strategies of several devices
# are foretold from that. Measurements alternate over the rows, and each is the lower quartile of a
# run's steps. A row counts if its measurements lie within 3 %.
#
#   RUNS=3   STEPS=30   STRATEGIES="single ddp fsdp pipeline:schedule=1f1b"   MODELS=...
set -euo pipefail
source bench/lib.inc
machine
runs=${RUNS:-3} steps=${STEPS:-30}
pipelines="pipeline:schedule=gpipe pipeline:schedule=1f1b"
gpt=gpt2:layers=4,width=128,heads=4,context=128,vocab=512
read -ra strategies <<<"${STRATEGIES:-single dp ddp fsdp tp $pipelines}"
read -ra models <<<"${MODELS:-$gpt mlp:hidden=1024 cnn:width=32}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CHOIR_COSTS=$work/costs.json
job=(--batch-size "${BATCH:-16}" --microbatches "${MICRO:-8}" --no-eval)

# number KEY FILE: the value of a key in lines of JSON.
number() { grep -o "\"$1\":[0-9.e+-]*" "$2" | cut -d: -f2; }

for model in "${models[@]}"; do
    choir plan --calibrate --model "$model" --devices cpu:0 "${job[@]}" random >"$work/said"
    for ((run = 0; run < runs; run++)); do
        for strategy in "${strategies[@]}"; do
            choir train --json --model "$model" --strategy "$strategy" --devices cpu:0-1 \
                "${job[@]}" --log-every 1 --steps "$steps" random >"$work/out" 2>"$work/err" ||
                continue
            number items_per_s "$work/out" | tail -n +5 | sort -gr |
                awk '{ s[NR] = $1 } END { print s[int((NR + 3) / 4)] }' >>"$work/$strategy"
        done
    done
    for strategy in "${strategies[@]}"; do
        [ -s "$work/$strategy" ] || continue
        choir plan --json --strategies "$strategy" --model "$model" --devices cpu:0-1 "${job[@]}" \
            random >"$work/plan"
        sort -gr "$work/$strategy" | awk -v name="$model $strategy" \
            -v told="$(number step_ms "$work/plan" | head -n 1)" \
            -v rate="$(number items_per_s "$work/plan" | head -n 1)" '
            { m[NR] = told * rate / $1 }
            END {
                half = m[int((NR + 1) / 2)]
                printf "%-70s foretold %8.2f ms, measured %8.2f (%.2f to %.2f), %+.0f %%%s\n",
                    name, told, half, m[1], m[NR], 100 * (told / half - 1),
                    (m[NR] > 1.03 * m[1] ? ", noisy" : "")
            }'
        rm "$work/$strategy"
    done
done
