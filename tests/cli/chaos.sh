#!/usr/bin/env bash
# Training is struck at random moments, from the first fork on. Whichever rank is killed, the
# job ends soon with one line that names it, and leaves nothing behind. CHOIR_CHAOS_KILLS sets
# the number of trials.
. "$(dirname "$0")/lib.sh"
seed=${CHOIR_CHAOS_SEED:-$$}
RANDOM=$seed

forked() { [ "$(pgrep -cP "$started_pid")" -ge "$1" ]; }
nothing_new() { [ "$(shared_files)" = "$shared" ]; }

# struck N SIGNAL: trial number N.
struck() {
    local world=$((2 + RANDOM % 3)) victim pid group wait
    rm -f out err
    start train --steps 100000000 --json --log-every 50 --batch-size 24 --microbatches 12 \
        --model toy --strategy ddp --nproc "$world" random
    group=$started_pid
    await 30 forked "$world" || { fail "time $1: no $world ranks: $(cat err)"; return; }
    mapfile -t ranks < <(children)
    victim=$((RANDOM % world)) pid=${ranks[$victim]}
    wait=$((RANDOM % 5 ? RANDOM % 100 : RANDOM % 800))
    sleep "0.$(printf %03d "$wait")"
    kill "-$2" "$pid"
    ended 30
    [ "$status" -eq 1 ] || fail "time $1: status $status after SIG$2 of rank $victim, pid $pid"
    is_one_line "rank $victim \\(pid $pid\\) was killed by SIG$2" ||
        fail "time $1: SIG$2 of rank $victim of $world, pid $pid, after $wait ms: $(cat err)"
    await 10 group_is_gone "$group" ||
        fail "time $1: left: $(ps -eo pgid=,pid=,stat=,args= | awk -v g="$group" '$1 == g')"
}

many_times() {
    local shared
    shared=$(shared_files)
    for ((n = 0; n < ${CHOIR_CHAOS_KILLS:-50}; n++)); do
        struck "$n" "$( ((n % 3)) && echo KILL || echo ABRT)"
    done
    await 10 nothing_new || fail "/dev/shm has $(shared_files), it had $shared"
}

echo "seed $seed"
check many_times
finish
