#!/bin/bash
# What --audit adds to a step: every step, and every 50th, of five models in f32 and bf16.
# CPU time of one core, so that other processes change little. The modes take turns; a step's time
# is the difference of a longer and a shorter run by the number of steps between, so neither start
# nor end counts. Beside each ratio of medians stands the middle half of the rounds' own ratios.
#   MODELS='gpt2 lstm' AMPS='off bf16' ROUNDS=5 STEPS=50 script/bench audit
# With fewer than 50 steps the default of every=50 is not measured.
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-5} steps=${STEPS:-50} few=4
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
machine
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"

declare -A jobs=(
    [gpt2]='gpt2:layers=4,heads=4,width=256,context=64 --batch-size 4'
    [gpt2-large-batch]='gpt2:layers=4,heads=4,width=256,context=64 --batch-size 24'
    [resnet18]='resnet18:image=64 --batch-size 8'
    [lstm]='lstm:hidden=256 --batch-size 16'
    [bert]='bert:layers=4,heads=4,width=256,context=64 --batch-size 8'
)

# cpu_ms STEPS OPTION...: user and system time of a training on one core
cpu_ms() {
    local TIMEFORMAT='%U %S' count=$1
    shift
    rm -rf "$out/run"
    { time taskset -c 0 choir train --quiet --no-eval --threads 1 --steps "$count" \
        --run "$out/run" "$@" random >"$out/said" 2>&1 || { cat "$out/said" >&2; exit 1; }; } 2>&1 |
        awk 'NF == 2 {print 1000 * ($1 + $2)}'
}

# step_ms OPTION...: nothing if a run has failed
step_ms() {
    local long short
    long=$(cpu_ms $((few + steps)) "$@") short=$(cpu_ms "$few" "$@")
    [ -z "$long" ] || [ -z "$short" ] || { digits=3 calc "($long - $short) / $steps"; echo; }
}

# added FILE FILE: what the second one's medians are above the first one's, in %, and the quartiles
# of the rounds
added() {
    local plain audited
    [ -s "$2" ] || { printf '%8s' -; return; }
    plain=$(median <"$1") audited=$(median <"$2")
    paste "$1" "$2" | awk '{print 100 * ($2 / $1 - 1)}' | sort -g |
        awk -v all="$(calc "100 * ($audited / $plain - 1)")" '{v[NR] = $1} END {
            printf "%7.2f %% (%.1f to %.1f)", all, v[int((NR + 3) / 4)], v[int((3 * NR + 3) / 4)] }'
}

printf '%-18s %-5s %10s   %-24s %-24s\n' model '' 'step, ms' 'every=1' 'every=50'
for name in ${MODELS:-gpt2 gpt2-large-batch resnet18 lstm bert}; do
    read -ra job <<<"${jobs[$name]}"
    for amp in ${AMPS:-off bf16}; do
        rm -f "$out"/ms-*
        for _ in $(seq "$rounds"); do
            step_ms --model "${job[@]}" --amp $amp >>"$out/ms-none"
            step_ms --model "${job[@]}" --amp $amp --audit=every=1 >>"$out/ms-every"
            [ "$steps" -lt 50 ] ||
                step_ms --model "${job[@]}" --amp $amp --audit=every=50 >>"$out/ms-usual"
        done
        printf '%-18s %-5s %10.1f   %-24s %-24s\n' "$name" "${amp/off/f32}" \
            "$(median <"$out/ms-none")" "$(added "$out/ms-none" "$out/ms-every")" \
            "$(added "$out/ms-none" "$out/ms-usual")"
    done
done
