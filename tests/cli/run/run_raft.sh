#!/usr/bin/env bash
# choir run with nodes that hold their ledger together, by Raft: a job of three or more outlives
# any one of them, the one at the endpoint included, and of two that lose sight of each other at
# most one goes on. The nodes are agents on one machine, and network namespaces.
. "$(dirname "$0")/ledger.sh" raft 'Raft is not built in (install libraft-dev)'

# member NAME ARG...: an agent; the first one founds the job.
member() {
    node "$1" "${ledger[@]}" "${@:2}"
    [ ${#names[@]} -gt 1 ] || await 10 listens
}

whole_job() { job_with_a_failure; }

# Any of three may be killed: the first one, where the endpoint is, or another.
killed() { # NAME
    fresh
    three "$work_on; exec sleep $mark"
    kill_one "$1" .
}
first_killed() { killed a; }
other_killed() { killed c; }

# The node at the endpoint leaves, and one by one the others: the last works on by itself.
all_but_one_leave() {
    fresh
    for name in a b c; do
        member $name --nnodes 1:3 sh -c "$work_on"
    done
    awaits 20 ' of 3 on' 3
    kill -TERM "$pid_a"
    awaits 20 ' of 2 on' 2
    await 10 is_gone "$pid_a" || fail 'a does not leave'
    kill -TERM "$pid_b"
    awaits 20 '0 of 1 on' 1
    touch go
    over 20
    ended_with a 143
    ended_with b 143
    ended_with c 0
    has c.err 'interrupted by SIGTERM on node 0 .*; 2 nodes are left' '1 node is left'
}

# Of two nodes the one with the vote goes on alone; a third one without ranks breaks the tie.
witness() {
    fresh
    member a --nnodes 1:2 sh -c "$work_on; exec sleep $mark"
    awaits 20 ' of 1 on' 1
    member b --nnodes 1:2 sh -c "$work_on"
    member w --witness --nnodes 1:2
    awaits 20 ' of 2 on' 2
    votes 3 [abw].err
    agent_of a
    kill -KILL "$agent"
    awaits 20 '0 of 1 on' 2
    touch go
    over 20
    ended_with b 0
    ended_with w 0
    has w.err 'node 0 is gone'
    gone 5
}

# votes COUNT FILE...: waits until so many agents vote, as far as these know.
votes() {
    local count=$1 file
    shift
    for file; do
        await 20 grep -q "^choir run: $count agents vote" "$file" ||
            fail "no $count agents vote: $(cat "$file")"
    done
}

# A stopped agent stops its ranks when it continues, and joins again.
agent_stopped() {
    fresh
    three "$work_on"
    local before
    before=$(grep -c ' of 2 on' starts)
    agent_of b
    kill -STOP "$agent"
    awaits 20 ' of 2 on' $((before + 2))
    kill -CONT "$agent"
    awaits 20 ' of 3 on' 6
    touch go
    over 20
    for name in a b c; do ended_with $name 0; done
}

# A rank fails while there is no majority: its node tells the others when there is one again.
failure_without_majority() {
    fresh
    local fails='echo "$RANK of $WORLD_SIZE on node $GROUP_RANK" >>starts; until [ -e go ]; do
        if [ $RANK = 2 ] && [ -e fail ]; then rm fail; exit 9; fi; sleep 0.05; done'
    local number=0 name stopped=()
    for name in a b c; do
        member $name --nnodes 3 --node-rank $((number++)) --max-restarts 1 sh -c "$fails"
    done
    awaits 20 ' of 3 on' 3
    for name in a b; do
        agent_of $name
        stopped+=("$agent")
    done
    kill -STOP "${stopped[@]}"
    touch fail
    sleep 3 # longer than the node of the failure waits for an answer
    kill -CONT "${stopped[@]}"
    awaits 20 ' of 3 on' 6
    touch go
    over 20
    for name in a b c; do ended_with $name 0; done
    has c.err 'rank 2 of 3 exited with status 9|3 nodes are left|joins'
}

# Whoever joins with other options, another key, or by another backend is refused by name, and
# the job goes on.
disagreeing() {
    fresh
    for name in 1 2; do head -c 32 /dev/urandom >key$name && chmod 600 key$name; done
    member a --nnodes 1:2 --key-file key1 sh -c "$work_on"
    awaits 20 '0 of 1 on' 1
    local args=(run --nnodes 1:2 --rdzv-endpoint "127.0.0.1:$port" --timeout 5)
    local raft='--rdzv-backend raft'
    # shellcheck disable=SC2086
    {
        bad 1 'another key than this one: all nodes of a job need the same key file' \
            "${args[@]}" $raft --key-file key2 true
        bad 1 'asks for the job.s key: name its file with --key-file' "${args[@]}" $raft true
        bad 1 'nodes disagree: .*--nnodes 1:2, --max-restarts 3, node 0 has ' \
            "${args[@]}" $raft --key-file key1 --max-restarts 3 true
        bad 1 'store' "${args[@]}" --key-file key1 true
        bad 1 "the job at .* is '.*', and this one is 'other'|nodes disagree" \
            "${args[@]}" $raft --key-file key1 --rdzv-id other --max-restarts 1 true
    }
    touch go
    over 20
    ended_with a 0
    fresh
    node a --nnodes 1:2 sh -c "$work_on"
    awaits 20 '0 of 1 on' 1
    bad 1 'what answers at .* is not an agent of --rdzv-backend raft' \
        run --nnodes 1:2 --rdzv-endpoint "127.0.0.1:$port" --rdzv-backend raft --timeout 5 true
    touch go
    over 20
    ended_with a 0
}

nobody_there() {
    bad 1 'no agent answered at 127.0.0.1:1: ' run --nnodes 2 --node-rank 1 --timeout 1 \
        --rdzv-backend raft --rdzv-endpoint 127.0.0.1:1 true
    bad 2 '--witness: expected --rdzv-backend raft' run --nnodes 2 --witness \
        --rdzv-endpoint 127.0.0.1:1
}

# --- machines -----------------------------------------------------------------------------------

# Three machines at a switch, 10.99.9.1 to 3.
switch=choir-raft-$$-s
machine() { echo "choir-raft-$$-$1"; }
machines() {
    trap 'for i in s 1 2 3; do ip netns del "$(machine $i)"; done; clean_up' EXIT
    ip netns add $switch && ip -n $switch link add br0 type bridge &&
        ip -n $switch link set br0 up || return
    for i in 1 2 3; do
        ip netns add "$(machine $i)" &&
            ip link add craft$$$i netns "$(machine $i)" type veth peer name port$i netns $switch &&
            ip -n $switch link set port$i master br0 up &&
            wire "$(machine $i)" craft$$$i 10.99.9.$i/24 || return
    done
}
# Each rank writes when it is at work, and in which generation.
at_work='echo "$RANK of $WORLD_SIZE on node $GROUP_RANK, restart 0" >>starts
exec {nothing}<> <(:)
until [ -e go ]; do echo "$EPOCHREALTIME $CHOIR_JOB" >>work.$NODE; read -rt 0.02 -u $nothing; done
exit 0'
on_machine() { # N ARG...
    local i=$1
    shift
    NODE=$i on "$(machine "$i")" node$i "$CHOIR" run --rdzv-endpoint 10.99.9.1 --key-file key1 \
        --node-rank $((i - 1)) "${ledger[@]}" "$@" >n$i.out 2>n$i.err </dev/null &
    eval "pid_n$i=$!"
    names+=("n$i")
}

# The machine at the endpoint is cut off: its ranks end before the others begin anew. Later it
# joins again.
partition() {
    fresh
    rm -f work.*
    head -c 32 /dev/urandom >key1 && chmod 600 key1
    for i in 1 2 3; do
        on_machine $i --nnodes 2:3 --max-restarts 1 bash -c "$at_work"
    done
    awaits 20 ' of 3 on' 3
    votes 3 n?.err
    cut_off 1 ' of 2 on' 2
    ip -n $switch link set port1 up
    awaits 20 ' of 3 on' 6
    touch go
    over 30
    for i in 1 2 3; do ended_with n$i 0; done
}

# Ranks that train, and wait for those of the machine at the endpoint when it is cut off, go on
# without it from their copies, and do not wait for more than a look at a silent machine takes.
training_cut() {
    local job=(train --json --microbatches 4 --batch-size 24 --steps 300 --model "$gpt"
        --strategy fsdp)
    fresh
    make_text text 200
    choir "${job[@]}" text >calm.out 2>calm.err || fail "undisturbed: $(cat calm.err)"
    head -c 32 /dev/urandom >key1 && chmod 600 key1
    for i in 1 2 3; do
        on_machine $i --nnodes 2:3 --max-restarts 1 "$CHOIR" "${job[@]}" text
    done
    await 40 grep -q '"event":"step","step":60,' n1.out || fail "no step 60: $(cat n?.err)"
    ip -n $switch link set port1 down
    await 25 grep -qs '"event":"step"' n2.out n3.out || fail "no step after the cut: $(cat n?.err)"
    await 60 grep -qs '"event":"summary"' n2.out n3.out || fail "no end: $(cat n?.err)"
    [ "$(field weights_sha256 <(cat n2.out n3.out))" = "$(field weights_sha256 calm.out)" ] ||
        fail "other weights: $(cat n?.err)"
    agent_of n1
    kill -KILL "$agent"
    over 20
    ip -n $switch link set port1 up
}

# Two machines with ranks, and a witness on the third: either of the two may be cut off, and only
# the other one goes on.
partition_with_witness() { # MACHINE
    local other=$((3 - $1))
    fresh
    rm -f work.*
    head -c 32 /dev/urandom >key1 && chmod 600 key1
    for i in 1 2; do
        on_machine $i --nnodes 1:2 bash -c "$at_work"
        [ $i = 2 ] || awaits 20 '0 of 1 on' 1
    done
    on "$(machine 3)" node3 "$CHOIR" run --rdzv-endpoint 10.99.9.1 --key-file key1 \
        "${ledger[@]}" --witness --nnodes 1:2 >n3.out 2>n3.err </dev/null &
    pid_n3=$!
    names+=(n3)
    awaits 20 ' of 2 on' 2
    votes 3 n?.err
    cut_off "$1" '^0 of 1 on' 2 "$other"
    ip -n $switch link set "port$1" up
    awaits 20 ' of 2 on' 4
    touch go
    over 30
    for i in 1 2 3; do ended_with n$i 0; done
}
endpoint_cut_from_witness() { partition_with_witness 1; }
other_cut_from_witness() { partition_with_witness 2; }

# cut_off MACHINE PATTERN COUNT [OTHER]: the other machine (default 2) begins anew, with so many
# ranks, after the ranks of the one that is cut off have ended.
cut_off() {
    local victim=work.$1 other=work.${4:-2} cut=$EPOCHREALTIME last first job
    ip -n $switch link set "port$1" down
    awaits 20 "$2" "$3"
    [ -s "$victim" ] && [ -s "$other" ] || { fail "nobody was at work: $(cat starts)"; return; }
    await 10 at_new_work "$other" || { fail 'the others do no work'; return; }
    job=$(tail -n 1 "$other" | cut -d' ' -f2)
    first=$(awk -v job="$job" '$2 == job { print $1; exit }' "$other")
    await 10 silent "$victim" || { fail 'the machine that is cut off goes on'; return; }
    last=$(tail -n 1 "$victim" | cut -d' ' -f1)
    awk -v last="$last" -v first="$first" 'BEGIN { exit !(last < first) }' ||
        fail "two sides at work: $last, $first"
    echo "cut off: the others begin anew after $(echo "$first - $cut" | bc) s"
}
# In another generation than that of the machine that was cut off.
at_new_work() {
    [ "$(tail -n 1 "$1" | cut -d' ' -f2)" != "$(tail -n 1 "$victim" | cut -d' ' -f2)" ]
}
silent() { # FILE: nothing is added to it any more
    local before
    before=$(wc -l <"$1")
    sleep 0.3
    [ "$before" -eq "$(wc -l <"$1")" ]
}

check whole_job
check first_killed
check other_killed
check all_but_one_leave
for i in 1 2 3; do check witness; done # the node or the witness may lead then
check agent_stopped
check failure_without_majority
check disagreeing
check nobody_there
if machines 2>machines.err && unshare --uts true 2>machines.err; then
    check partition
    check training_cut
    check endpoint_cut_from_witness
    check other_cut_from_witness
else
    echo "network namespaces are left out: $(tail -n 1 machines.err)"
fi
finish
