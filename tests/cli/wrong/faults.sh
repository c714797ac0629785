#!/usr/bin/env bash
# Ranks and supervisors that are killed, stopped or interrupted. The other processes end soon,
# name the one that failed, and leave only a whole checkpoint behind.
. "$(dirname "$0")/../lib.sh"

make_text text 200
endless=(train --steps 100000000 --json --log-every 20 --batch-size 24 --microbatches 3)
toy=(--model toy random)
lm=(--model "$gpt" text)

# begin RANKS ARG...: starts a job of RANKS ranks in the background and waits for some steps;
# `ranks` holds their pids.
begin() {
    local world=$1
    shift
    rm -rf out
    shared=$(shared_files)
    if [ "$world" -eq 1 ]; then
        start "${endless[@]}" "$@"
    else
        start "${endless[@]}" --strategy ddp --nproc "$world" "$@"
    fi
    await 60 test -s out || fail "no steps: $(cat err)"
    mapfile -t ranks < <(children)
    [ "$world" -eq 1 ] || [ ${#ranks[@]} -eq "$world" ] || fail "${#ranks[@]} ranks, not $world"
}

# over GROUP SECONDS: soon after, the process group is gone, and no file is left in /dev/shm.
over() {
    await "$2" group_is_gone "$1" ||
        fail "processes remain: $(ps -eo pgid=,pid=,stat=,args= | awk -v g="$1" '$1 == g')"
    [ "$(shared_files)" = "$shared" ] || fail "/dev/shm has $(shared_files), it had $shared"
}

# whole FOLDER: the latest checkpoint loads, and the folder contains no partial one.
whole() {
    local left
    left=$(find "$1" -name '.*' ! -path "$1" -o -name '*.tmp*')
    [ -z "$left" ] || fail "left over: $left"
    good eval --json "$1" text
    [ "$(field step out)" -ge 1 ] || fail "evaluated: $(cat out)"
}

# --- ranks ------------------------------------------------------------------------------------

# killed_rank SIGNAL N ARG...: the signal kills the N-th rank.
killed_rank() {
    local signal=$1 n=$2 group victim
    shift 2
    begin 3 "$@"
    group=$started_pid victim=${ranks[$n]}
    kill "-$signal" "$victim"
    await 8 is_gone "$group" || fail "the others go on after SIG$signal of a rank"
    over "$group" 1
    ended 1
    [ "$status" -eq 1 ] || fail "status $status after SIG$signal of a rank"
    is_one_line "rank [0-2] \\(pid $victim\\).*SIG$signal" ||
        fail "standard error after SIG$signal of rank $n, pid $victim: $(cat err)"
}

# A stopped rank is noticed after --timeout; the supervisor then kills it.
stopped_rank() {
    local group
    begin 3 --timeout 2 "${toy[@]}"
    group=$started_pid
    kill -STOP "${ranks[1]}"
    await 15 is_gone "$group" || fail 'the others wait for ever for a stopped rank'
    over "$group" 1
    ended 1
    [ "$status" -eq 1 ] || fail "status $status after SIGSTOP of a rank"
    is_one_line 'rank 1\b' || fail "standard error after SIGSTOP of rank 1: $(cat err)"
}

# --- interruptions ----------------------------------------------------------------------------

# interrupted TO RANKS SIGNAL: TO is `one` (the first process alone) or `all` (as Ctrl-C does).
interrupted() {
    local to=$1 world=$2 signal=$3 group
    rm -rf saved
    begin "$world" --save saved --save-every 10 "${lm[@]}"
    await 60 test -e saved/latest || fail 'no checkpoint'
    group=$started_pid
    if [ "$to" = all ]; then
        kill "-$signal" -- "-$group"
    else
        kill "-$signal" "$group"
    fi
    await 5 is_gone "$group" || fail "goes on after SIG$signal"
    over "$group" 1
    ended 1
    [ "$status" -eq $((128 + $(kill -l "$signal"))) ] ||
        fail "status $status after SIG$signal to $to of $world ranks"
    is_one_line 'interrupted.*saved' || fail "standard error: $(cat err)"
    whole saved
}

# An interrupt before the first checkpoint still saves one.
interrupted_early() {
    rm -rf saved
    begin 2 --save saved "${lm[@]}"
    kill -INT "$started_pid"
    ended 5
    [ "$status" -eq 130 ] || fail "status $status"
    is_one_line 'interrupted after step [0-9]*; saved to saved$' ||
        fail "standard error: $(cat err)"
    whole saved
}

# A rank that waits for the others has nothing to save and ends at the first signal.
interrupted_meeting() {
    rm -f meet
    RANK=0 WORLD_SIZE=2 start train --strategy ddp --rendezvous "file://$PWD/meet" "${toy[@]}"
    await 20 test -s meet || fail "does not wait for ranks: $(cat err)"
    kill "-$1" "$started_pid"
    ended 5
    [ "$status" -eq $((128 + $(kill -l "$1"))) ] || fail "status $status after SIG$1"
}

# The others of a job whose rank 0 fails before it meets end soon. (It took 30 s.)
failed_before_meeting() {
    start run -n 2 sh -c "[ \$RANK = 0 ] && exit 3; exec '$CHOIR' train --strategy ddp ${toy[*]}"
    ended 5
    [ "$status" -eq 3 ] || fail "status $status: $(cat err)"
}

killed_supervisor() {
    local group
    begin 3 "${toy[@]}"
    group=$started_pid
    kill -KILL "$group"
    over "$group" 2
    ended 1
    [ "$status" -eq 137 ] || fail "status $status after SIGKILL"
}

# --- killed while saving ----------------------------------------------------------------------

# Ten trials, at different moments: `latest` always names a whole checkpoint, and steps only
# increase.
killed_while_saving() {
    local before=0 step
    rm -rf saved
    for i in 1 2 3 4 5 6 7 8 9 10; do
        local from=()
        [ "$i" -gt 1 ] && from=(--resume saved)
        rm -f out
        start "${endless[@]}" --strategy ddp --nproc $((1 + i % 2)) --save saved --save-every 1 \
            "${from[@]}" "${lm[@]}"
        await 60 new_step_or_end $before
        new_step $before || fail "no new checkpoint: $(cat err)"
        sleep "0.0$(((i * 37) % 100))"
        kill -KILL -- "-$started_pid"
        ended 5
        good eval --json saved text || { ls -la saved; return; }
        step=$(field step out)
        [ "$step" -gt "$before" ] || fail "step $step after step $before"
        before=$step
    done
    good train --json --batch-size 24 --microbatches 3 --steps $((before + 2)) --save saved \
        --resume saved "${lm[@]}"
    whole saved
}

# new_step N: the latest checkpoint is of a later step.
new_step() {
    local name
    name=$(readlink saved/latest) && [ "$((10#${name#step-}))" -gt "$1" ]
}
new_step_or_end() { new_step "$1" || is_gone "$started_pid"; }

check killed_rank KILL 0 "${toy[@]}"
check killed_rank KILL 2 "${lm[@]}"
check killed_rank ABRT 1 "${lm[@]}"
check stopped_rank
check interrupted one 1 INT
check interrupted one 3 INT
check interrupted all 3 INT
check interrupted one 2 TERM
check interrupted all 1 TERM
check interrupted_early
check interrupted_meeting INT
check interrupted_meeting TERM
check failed_before_meeting
check killed_supervisor
check killed_while_saving
finish
