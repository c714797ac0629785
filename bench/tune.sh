#!/bin/bash
# Samplers of choir tune: regrets on known functions and times, beside Optuna's and skopt's.
#
# SEEDS=N (default 40), TRIALS=N (200), FUNCTIONS="branin hartmann6 ones queens". The peers run in
# the same run where they are there: CHOIR_PYTHON (default python3) names a Python with Optuna, and
# CHOIR_SKOPT (default: the same) one with scikit-optimize; PEER_SEEDS=N (10) seeds of them, since
# they are slower. All have one thread. Durable trials are written below STORE (a temporary folder).
# With FUNCTIONS, nothing else is measured, for a short form:
#
#   SEEDS=5 PEER_SEEDS=5 TRIALS=100 FUNCTIONS="branin hartmann6" script/bench tune
set -uo pipefail
source bench/lib.inc
machine
seeds=${SEEDS:-40} trials=${TRIALS:-200} peer_seeds=${PEER_SEEDS:-10}
read -ra functions <<<"${FUNCTIONS:-branin hartmann6 ones queens}"
skopt=${CHOIR_SKOPT:-$python}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
has_optuna() { "$python" -c 'import optuna' 2>/dev/null; }
has_skopt() { "$skopt" -c 'import skopt' 2>/dev/null; }

# cell < JSON: the median and quartiles of a line, and the milliseconds of a trial, or a dash
cell() {
    local n=' *([-0-9.e+]+)' line
    line=$(sed -nE "s/.*regret_median\":$n,.*\[$n,$n\].*trial_ms\":$n.*/\1 \2 \3 \4/p")
    awk '{printf NF == 4 ? "%.3g (%.3g, %.3g) %.3g" : "-", $1, $2, $3, $4}' <<<"$line"
}

# row NAME FUNCTIONS... -- COMMAND...: the regrets of one sampler; "%" in the command is the
# function
row() {
    local name=$1 columns=()
    shift
    while [ "$1" != -- ]; do columns+=("$1"); shift; done
    shift
    printf '%-27s' "$name"
    local column
    for column in "${columns[@]}"; do
        printf ' %-36s' "$("${@/#%/$column}" 2>/dev/null | cell)"
    done
    echo
}

echo "regret after $trials trials: median (quartiles) over $seeds seeds, of the peers" \
    "$peer_seeds; behind it milliseconds per trial"
printf '%-27s' ''
printf ' %-36s' "${functions[@]}"
echo
for sampler in random qmc tpe tpe:rule=4 tpe:rule=4,multivariate=1 gp cmaes bohb nsga2; do
    row "$sampler" "${functions[@]}" -- \
        build/choir_bench_tune quality "$sampler" % "$seeds" "$trials"
done
if has_optuna; then
    for sampler in random tpe cmaes gp; do
        row "Optuna's $sampler" "${functions[@]}" -- \
            "$python" bench/peers/tune.py quality "$sampler" % "$peer_seeds" "$trials"
    done
fi
reals=() # functions of real numbers alone, which skopt's gp_minimize is for
for name in "${functions[@]}"; do
    case $name in branin | hartmann6) reals+=("$name") ;; esac
done
if has_skopt && [ ${#reals[@]} -gt 0 ]; then
    row "skopt's gp" "${reals[@]}" -- \
        "$skopt" bench/peers/tune.py quality skopt % "$peer_seeds" "$trials"
fi

[ -n "${FUNCTIONS-}" ] && exit
echo
echo "two objectives: dominated area that is missing, zdt1, 1000 trials"
for sampler in random nsga2; do
    row "$sampler" zdt1 -- build/choir_bench_tune quality "$sampler" % "$seeds" 1000
done
has_optuna && row "Optuna's nsga2" zdt1 -- \
    "$python" bench/peers/tune.py quality nsga2 % "$peer_seeds" 1000

# us KEY COMMAND...: microseconds at the line whose "trials" is KEY
us() {
    local key=$1
    shift
    "$@" | sed -n "s/.*\"trials\": *$key,.*\"trial_us\": *\([0-9.]*\).*/\1/p" | tail -1
}
echo
echo "8 parameters in memory"
mean=$(build/choir_bench_tune speed random 1000000 8 | field mean_us)
printf 'random, ask and tell          %10.0f a second\n' "$(calc "1e6 / $mean")"
speed=$(build/choir_bench_tune speed tpe 10000 8)
for count in 1000 10000; do
    printf 'tpe after %5d trials         %10.2f ms a suggestion\n' $count \
        "$(calc "$(us $count cat <<<"$speed") / 1000")"
done
if has_optuna; then
    mean=$("$python" bench/peers/tune.py speed random 3000 8 | field mean_us)
    printf "Optuna's random               %10.0f a second\n" "$(calc "1e6 / $mean")"
    printf "Optuna's tpe after 1000       %10.2f ms a suggestion\n" \
        "$(calc "$(us 1000 "$python" bench/peers/tune.py speed tpe 1000 8) / 1000")"
fi

# Each trial waits for the disk on which STORE is (default: a temporary folder).
store=$(mktemp -d -p "${STORE:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$store"' EXIT
echo
echo "durable trials of 8 parameters a second, three rounds"
for threads in 1 16 64; do
    for kind in sqlite journal; do
        printf '%-8s %3d at once          ' $kind $threads
        for round in 1 2 3; do
            printf ' %10s' "$(build/choir_bench_durable "$kind:$store/$kind.$threads.$round" \
                $((threads * 30 < 300 ? 300 : threads * 30)) 8 $threads | cut -d' ' -f1)"
        done
        echo
    done
done

# Milliseconds of 200 commands that print a number, as trials and one after another.
program=(/usr/bin/printf '{"eval_loss":%s}\n')
alone() { for ((i = 0; i < 200; i++)); do "${program[@]}" 0.5; done; }
searched() {
    build/choir tune --space 'x=uniform(0,1)' --sampler random --metric eval_loss --trials 200 \
        --json "$@" -- "${program[@]}" '{x}'
}
each() {
    local from=$EPOCHREALTIME
    "$@" >/dev/null 2>"$store/err" || cat "$store/err"
    echo "$(calc "(${EPOCHREALTIME/./} - ${from/./}) / 200 / 1000")"
}
rm -f "$store"/took.*
for ((round = 0; round < 5; round++)); do
    each alone >>"$store/took.alone"
    each searched >>"$store/took.memory"
    each searched --study "r$round" --storage "sqlite:///$store/trials.db" >>"$store/took.sqlite"
done
echo
echo "milliseconds of a trial whose command prints a number, medians of five"
printf 'the command alone             %10.2f\n' "$(median <"$store/took.alone")"
printf 'as a trial in memory          %10.2f\n' "$(median <"$store/took.memory")"
printf 'as a trial in SQLite          %10.2f\n' "$(median <"$store/took.sqlite")"
