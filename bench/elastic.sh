#!/bin/bash
# Elastic jobs: from a death to the next finished step, a joiner's cost, and the price of it all.
# DEATHS=30 of ranks, JOINS=10 and CUTS=10 of machines, PAIRS=15 of runs; PARTS='deaths newcomers
# cuts price'. Machines are network namespaces, which need root; times are taken as lines of the
# job are read.
set -uo pipefail
source bench/lib.inc
machine
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
death_count=${DEATHS:-30} cut_count=${CUTS:-10} pairs=${PAIRS:-15}
nano="gpt2:layers=4,heads=4,width=128,context=64,vocab=65"
job=(train --json --model "$nano" --batch-size 24 --microbatches 4 --no-eval)
export OMP_NUM_THREADS=1
out=$(mktemp -d)
here=choir-bench-$$-0 there=choir-bench-$$-1
pids=()
tidy() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    ip netns del "$here" 2>/dev/null
    ip netns del "$there" 2>/dev/null
    rm -rf "$out"
}
trap tidy EXIT
trap 'exit 1' INT TERM

# stamp < LINES: the lines of steps and changes, and when each was read in us
stamp() {
    while read -r line; do
        case $line in
        *'"event":"step"'* | *'"event":"membership"'*) echo "$EPOCHREALTIME $line" ;;
        esac
    done
}

# spread WHAT < SECONDS: their number, median, 99th percentile and the most
spread() {
    sort -g | awk -v what="$1" '{v[NR] = $1} END {
        if (!NR) { printf "%-44s none\n", what; exit }
        p = int(NR * 0.99); if (p < NR * 0.99) p++
        printf "%-44s n %3d   median %7.3f   p99 %7.3f   most %7.3f s\n", what, NR,
            (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[p], v[NR] }'
}

# --- ranks ------------------------------------------------------------------------------------

# after_deaths FILE-OF-DEATHS < STAMPED: seconds from each death to the first step of a later change
after_deaths() {
    awk 'NR == FNR { died[++n] = $1; next }
        /"event":"membership"/ { changed = 1 }
        /"event":"step"/ && changed {
            while (at < n && died[at + 1] < $1) print $1 - died[++at]
            changed = 0
        }' \
        "$1" -
}

# joins < STAMPED: what the step in which a rank joins one that has gone on alone costs more than a
# step of both does, in such steps
joins() {
    awk '/"event":"step"/ { if (before && world == 2) print joining ? "join" : "step", $1 - before
            joining = 0; before = $1 }
        /"event":"membership"/ { two = /"world":2/ ? 2 : 1
            joining = two == 2 && world == 1; if (!joining) before = 0; world = two }
        BEGIN { world = 2 }' |
        sort -k1,1 -k2,2g | awk '$1 == "step" { v[++n] = $2 } $1 == "join" { j[++m] = $2 }
            END { step = v[int((n + 1) / 2)]; for (i = 1; i <= m; i++) print (j[i] - step) / step }'
}

# whole N: N ranks have been replaced, and there are two again
whole() {
    grep '"event":"membership"' "$out/lines" | awk -v n="$1" '/"joined":\[{/ { joined++ }
        { two = /"world":2/ } END { exit !(joined >= n && two) }'
}

die() { # STRATEGY
    local job_pid victims
    rm -f "$out"/died "$out"/lines
    mkfifo "$out/job"
    choir "${job[@]}" --steps 100000000 --strategy "$1" --nproc 2 \
        --max-restarts $((death_count + 1)) random >"$out/job" 2>/dev/null &
    job_pid=$!
    pids+=("$job_pid")
    : >"$out/lines"
    stamp <"$out/job" >>"$out/lines" &
    until [ "$(wc -l <"$out/lines")" -gt 20 ]; do sleep 0.1; done
    for ((i = 1; i <= death_count; i++)); do
        mapfile -t victims < <(pgrep -r R,S,D -P "$job_pid") # zombies are kept until the end
        echo "$EPOCHREALTIME" >>"$out/died"
        kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
        for ((n = 0; n < 600; n++)); do whole "$i" && break; sleep 0.1; done
        sleep "1.$((RANDOM % 1000))"
    done
    kill -KILL "$job_pid"
    wait "$job_pid" 2>/dev/null
    rm "$out/job"
    after_deaths "$out/died" <"$out/lines" | spread "$1: a rank's death to the next step"
    joins <"$out/lines" >"$out/joins"
    [ ! -s "$out/joins" ] || echo "$1: a rank that joined cost $(median <"$out/joins") steps" \
        "(median of $(wc -l <"$out/joins"))"
}

# --- machines ---------------------------------------------------------------------------------

plug() { # NAMESPACE DEVICE ADDRESS
    ip -n "$1" addr add "$3" dev "$2" && ip -n "$1" link set "$2" up && ip -n "$1" link set lo up
}
machines() {
    ip netns add "$here" && ip netns add "$there" &&
        ip link add cbe$$a index 100 netns "$here" type veth peer name cbe$$b index 200 \
            netns "$there" && plug "$here" cbe$$a 10.98.7.1/24 && plug "$there" cbe$$b 10.98.7.2/24
}

# agent NAMESPACE NAME: one rank on a machine
agent() {
    exec ip netns exec "$1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$2" \
        choir run --nnodes 1:2 --max-restarts 1 --rdzv-endpoint 10.98.7.1:29478 \
        --nproc-per-node 1 --rdzv-conf last_call_timeout=1 --key-file "$out/key" \
        choir "${job[@]}" --steps 100000000 --strategy fsdp random
}

steps() { grep -c '"event":"step"' "$out/lines"; }
until_step() { for ((n = 0; n < 600; n++)); do [ "$(steps)" -gt "$1" ] && break; sleep 0.1; done; }

cut_once() {
    local from a b
    ip -n "$there" link set cbe$$b up
    rm -f "$out/lines"
    mkfifo "$out/job"
    agent "$here" one >"$out/job" 2>"$out/err" &
    a=$!
    : >"$out/lines"
    stamp <"$out/job" >>"$out/lines" &
    sleep 1
    agent "$there" two >/dev/null 2>&1 &
    b=$!
    pids+=("$a" "$b")
    until_step 100 # of both
    from=$EPOCHREALTIME
    ip -n "$there" link set cbe$$b down
    sleep 0.1
    until_step "$(steps)"
    until_step $(($(steps) + 2))
    awk -v from="$from" '$1 > from {
        if (before && $1 - before > most) { most = $1 - before; at = $1 }
        } { before = $1 } END { print at - from }' "$out/lines" >>"$out/cut"
    kill -TERM "$a" "$b" 2>/dev/null
    wait "$a" "$b" 2>/dev/null
    rm "$out/job"
}

cuts() {
    machines 2>"$out/err" || { echo "machines are left out: $(tail -n 1 "$out/err")"; return; }
    (umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$out/key")
    for ((i = 0; i < cut_count; i++)); do cut_once; done
    spread "fsdp: a machine cut off to the next step" <"$out/cut"
}

# --- the price --------------------------------------------------------------------------------

# taken NAME: runs it, and notes the median step in ms, and the processors' seconds of it all
taken() {
    local TIMEFORMAT='%U %S'
    { time "$1" >"$out/said" 2>/dev/null; } 2>"$out/cpu"
    tail -n 1 "$out/said" | field step_ms_median >>"$out/$1"
    awk '{print $1 + $2}' "$out/cpu" >>"$out/$1.cpu"
}

# pairs_of WHAT: `without` and `with` run in turns, and print what they took. On a machine that
# does other work, the processors' time says more than the clock.
pairs_of() {
    rm -f "$out"/with* "$out"/without*
    for ((i = 0; i < pairs; i++)); do taken without; taken with; done
    local a b unit=ms kind
    for kind in '' .cpu; do
        a=$(median <"$out/without$kind") b=$(median <"$out/with$kind")
        printf '%-44s without %8.2f %s   with %8.2f %s   median of pairs %+6.2f %%\n' "$1" "$a" \
            "$unit" "$b" "$unit" "$(paste "$out/without$kind" "$out/with$kind" |
                awk '{print 100 * ($2 / $1 - 1)}' | median)"
        unit='CPU s'
    done
}
ranks() { choir "${job[@]}" --steps 100 --nproc 2 "$@" random; }
agents() {
    choir run --nnodes 2 --max-restarts 1 --rdzv-endpoint 127.0.0.1:29479 --node-rank 1 \
        choir "${job[@]}" --steps 100 --strategy fsdp "$@" random >/dev/null &
    choir run --nnodes 2 --max-restarts 1 --rdzv-endpoint 127.0.0.1:29479 --node-rank 0 \
        choir "${job[@]}" --steps 100 --strategy fsdp "$@" random
    wait
}
price() {
    without() { ranks --strategy ddp; }
    with() { ranks --strategy ddp --max-restarts 1; }
    pairs_of 'ddp, 2 ranks'
    without() { ranks --strategy fsdp; }
    with() { ranks --strategy fsdp --max-restarts 1; }
    pairs_of 'fsdp, 2 ranks: copies in memory'
    without() { agents --no-copy; }
    with() { agents; }
    pairs_of 'fsdp, 2 agents: copies sent to the other'
}

deaths() { die ddp; die fsdp; }
# A new process prepares a model of this size while the others train, and joins apart from the
# loss. It receives the weights and two moments.
newcomers() {
    local model="gpt2:layers=12,heads=8,width=512,context=64,vocab=65" death_count=${JOINS:-10}
    local job=(train --json --model "$model" --batch-size 4 --microbatches 4 --no-eval)
    die ddp
    die fsdp
}
for part in ${PARTS:-deaths newcomers cuts price}; do "$part"; done
