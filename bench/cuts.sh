#!/bin/bash
# What a declared cut costs one device, and what ranks that share its pieces gain.
#
#   script/bench cuts [--rows=PATTERN]
#
# PATTERN: the rows to run, as grep -E takes it; all by default. The two sides of a row take turns,
# ROUNDS times; a row shows the median of the ratios, and the least and the largest. Costs are times
# over times without the cut; gains are how many times faster ranks are than one device on one core,
# or, for tp, than each of two processes that train apart with half of the batch.
#
#   ROUNDS=5   STEPS=8   CAP=256 (MiB beside weights, gradients and state, for the longest sequence)
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-5} steps=${STEPS:-8} cap=${CAP:-256} rows=.
for argument; do
    case $argument in
    --rows=*) rows=${argument#*=} ;;
    *) echo "script/bench cuts: expected --rows=PATTERN, got '$argument'" >&2
        exit 2 ;;
    esac
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export CHOIR_CPU_DEVICES=4
wide=(--model gpt2:layers=2,heads=12,width=768,context=512,vocab=1024 --batch-size 1)
long() { # TOKENS
    echo "--model llama:layers=1,heads=8,width=256,hidden=688,context=$1,vocab=512 --batch-size 1" \
        "--microbatches 1"
}
run() { train random --steps "$steps" --no-eval "$@"; }
ms() { field step_ms_median; }
on_core() { # NUMBER OPTION...
    local core=$1
    shift
    taskset -c "$core" choir train --json random --steps "$steps" --no-eval "$@"
}
wanted() { grep -qE -e "$rows" <<<"$1"; }
note() { digits=5 calc "$2 / $3" >>"$out/ratio" && echo >>"$out/ratio"; }
show() { # NAME TARGET
    sort -g "$out/ratio" | awk -v name="$1" -v target="$2" '{v[NR] = $1} END {
        printf "%-62s %6.3f  (%.3f to %.3f)  %s\n", name, v[int((NR + 1) / 2)], v[1], v[NR],
            target}'
    rm -f "$out/ratio"
}
# cost NAME TARGET CUT OPTION...: a step's time with the cut over that without, on one core
cost() {
    local name=$1 target=$2 cut=$3
    shift 3
    wanted "$name" || return
    for _ in $(seq "$rounds"); do
        # shellcheck disable=SC2086
        note . "$(on_core 0 "$@" $cut | ms)" "$(on_core 0 "$@" | ms)"
    done
    show "$name" "$target"
}

machine
for amp in off bf16; do
    cost "one device, T = 4 over T = 1, width 768, ${amp/off/f32}" '<= 1.05' '--slices 4' \
        "${wide[@]}" --amp $amp
done
# shellcheck disable=SC2046
cost 'one device, S = 4 over S = 1, 4,096 tokens' '<= 1.03' '--chunks 4' $(long 4096)

name='two ranks of tp, of two processes apart'
if wanted "$name"; then
    for _ in $(seq "$rounds"); do
        on_core 0 "${wide[@]}" >"$out/left" &
        on_core 1 "${wide[@]}" >"$out/right"
        wait
        note . "$(slower_ms "$out/left" "$out/right")" \
            "$(run "${wide[@]}" --batch-size 2 --strategy tp --nproc 2 | ms)"
    done
    show "$name" '>= 0.9'
fi
for exchange in heads keys; do
    name="two ranks of cp by $exchange, S = 4, 8,192 tokens, of one device"
    wanted "$name" || continue
    for _ in $(seq "$rounds"); do
        # shellcheck disable=SC2046
        note . "$(on_core 0 $(long 8192) --chunks 4 | ms)" \
            "$(run $(long 8192) --chunks 4 --strategy cp:exchange=$exchange --nproc 2 | ms)"
    done
    show "$name" '>= 1.85'
done

# The longest sequence that ranks of cp train in pools with room for weights, gradients and state,
# by `choir plan`, and CAP MiB; by bisection.
held() { # KEY
    # shellcheck disable=SC2046
    choir plan random --json --steps 3 --no-eval $(long $grain) --chunks 16 --strategies cp \
        --devices cpu:0 | grep -o "\"$1\":[0-9]*" | cut -d: -f2 | head -1
}
fits() { # GRAINS RANKS
    # shellcheck disable=SC2046
    choir train random --quiet --steps 3 --no-eval $(long $(($1 * grain))) --chunks 16 \
        --strategy cp --nproc "$2" --mem-cap $pool >"$out/trained" 2>&1
}
longest() { # RANKS FROM
    local low=0 high=$2 middle
    while fits "$high" "$1"; do low=$high high=$((high + high / 4 + 1)); done
    while ((high - low > 1)); do
        middle=$(((low + high) / 2))
        if fits "$middle" "$1"; then low=$middle; else high=$middle; fi
    done
    echo $((low * grain))
}
name='the longest sequence of ranks of cp, of N times one rank'
if wanted "$name"; then
    grain=64 one=$((cap * 40)) # tokens
    pool=$((cap << 20))
    for kind in weights_bytes gradients_bytes optimizer_bytes; do
        pool=$((pool + $(held $kind)))
    done
    for ranks in 1 2 4; do
        tokens=$(longest $ranks $((one * ranks / grain)))
        [ $ranks = 1 ] && one=$tokens
        printf '%-62s %6.3f  (%d tokens)  %s\n' "$name: $ranks" \
            "$(digits=3 calc "$tokens / $one / $ranks")" "$tokens" '>= 0.9'
    done
fi
