#!/usr/bin/env bash
# choir run with nodes that fail, die, are cut off, join and leave: all ranks of all nodes start
# again as the new membership has them; a failure costs a restart of the job, a change of nodes
# none. The nodes are agents on one machine, and two network namespaces.
. "$(dirname "$0")/agents.sh"

# Each start of a rank writes a line into starts, and works until `go` is there.
work='echo "$RANK of $WORLD_SIZE on node $GROUP_RANK of $GROUP_WORLD_SIZE, restart \
$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS, $LOCAL_RANK of $LOCAL_WORLD_SIZE, \
port $MASTER_PORT job $CHOIR_JOB" >>starts; until [ -e go ]; do sleep 0.05; done'

# A failure on another node than the first restarts the ranks of all nodes, with new secrets, and
# costs one restart of the job.
failure_anywhere() {
    fresh
    local fails='[ $RANK = 2 ] && [ ! -e failed ] && touch failed && echo so be it >&2 && exit 5'
    for name in a b; do
        node $name --nnodes 2 --max-restarts 3 --nproc-per-node 2 sh -c "$fails; $work"
    done
    awaits 20 ' of 4 on node . of 2, restart 1 of 3' 4
    touch go
    over 20
    for name in a b; do
        ended_with $name 0
        has $name.err 'rank 2 of 4 exited with status 5' '\| so be it' \
            'starting all again: restart 1 of 3'
        [ "$(grep -c 'starting all again' $name.err)" -eq 1 ] || fail "$(cat $name.err)"
    done
    [ "$(sed -n 's/.* job //p' starts | sort -u | wc -l)" -eq 2 ] ||
        fail "one secret: $(cat starts)"
}

# The restarts are those of the job, not of each node; in the end stand the last failure and the
# first.
restarts_are_counted_once() {
    fresh
    local fails='touch "failed$TORCHELASTIC_RESTART_COUNT"
        [ $RANK = $((TORCHELASTIC_RESTART_COUNT % 2)) ] || exec sleep '$mark'
        sleep 0.2; exit $((30 + TORCHELASTIC_RESTART_COUNT))'
    node a --nnodes 2 --max-restarts 2 sh -c "$fails"
    node b --nnodes 2 --max-restarts 2 sh -c "$fails"
    over 30
    [ "$(echo failed*)" = 'failed0 failed1 failed2' ] || fail "$(echo failed*)"
    for name in a b; do
        ended_with $name 32
        has $name.err 'restart 1 of 2' 'restart 2 of 2' 'rank 0 of 2 exited with status 32' \
            'before 2 restarts; first: .*rank 0 of 2 exited with status 30'
    done
    gone 5
}

# The agent of a node is killed, so are its ranks; the others go on without it, for free.
agent_killed() {
    fresh
    for name in a b c; do
        node $name --nnodes 2:3 --rdzv-conf last_call_timeout=0.1 sh -c "$work; exec sleep $mark"
        [ $name != a ] || await 10 listens
    done
    awaits 20 ' of 3 on node' 3
    local two=' of 2 on node . of 2, restart 0 of 0' before
    before=$(grep -c "$two" starts) # c may have come later than the last call
    agent_of c
    kill -KILL $agent
    awaits 10 "$two" $((before + 2))
    for name in a b; do
        has $name.err "node [12] is gone: .*pid $agent.* died or was cut off; 2 nodes are left"
    done
    kill -INT "$pid_a" # a script's & ignores it, and choir run too
    kill -TERM "$pid_a"
    over 20
    ended_with b 143
    ended_with c 137
    has b.err 'interrupted by SIGTERM on node 0'
    gone 5
}

# A node joins a running job, and leaves it again.
late_joiner() {
    fresh
    node a --nnodes 1:2 --rdzv-conf last_call_timeout=0.1 sh -c "$work"
    awaits 20 '^0 of 1 on node 0 of 1' 1
    node b --nnodes 1:2 --nproc-per-node 2 sh -c "$work"
    awaits 20 ' of 3 on node . of 2, restart 0' 3
    has a.err 'node 1 \(.*\) joins; all ranks start again on 2 nodes'
    kill -TERM "$pid_b"
    awaits 20 '^0 of 1 on node 0 of 1' 2
    has a.err 'interrupted by SIGTERM on node 1 .*; 1 node is left; all ranks start again'
    touch go
    over 20
    ended_with a 0
    ended_with b 143
}

# A node beyond the most is a spare, which takes the place of one that is killed.
spare_node() {
    fresh
    for name in a b c; do
        node $name --nnodes 2 --max-restarts 1 sh -c "$work"
        case $name in
        a) await 10 listens ;;
        b) awaits 20 ' of 2 on node' 2 ;;
        esac
    done
    await 10 grep -q 'is a spare: all nodes are there' a.err || fail "no spare: $(cat a.err)"
    agent_of b
    kill -KILL $agent
    awaits 20 ' of 2 on node . of 2, restart 0' 4
    touch go
    over 20
    ended_with a 0
    ended_with b 137
    ended_with c 0
}

# A stopped agent does no harm while ranks work; when all are to start again it is left behind,
# and comes back as soon as it continues.
agent_stopped() {
    fresh
    local fails='echo $RANK of $WORLD_SIZE >>starts
        until [ -e fail ]; do [ ! -e go ] || exit 0; sleep 0.05; done
        [ $RANK != 0 ] || { rm fail; exit 3; }; exec sleep '$mark
    for name in a b; do
        node $name --nnodes 1:2 --max-restarts 2 sh -c "$fails"
        await 10 listens
    done
    awaits 20 ' of 2' 2
    agent_of b
    kill -STOP $agent
    touch fail
    awaits 20 '0 of 1' 1
    has a.err "node 1 fell silent: its agent, .*pid $agent.* no sign for [0-9]+ s: was it stopped"
    kill -CONT $agent
    awaits 20 ' of 2' 4
    touch go
    over 20
    ended_with a 0
    ended_with b 0
    gone 5
}

# Too few nodes: the others wait for some time, and end with the reason for which it came to that.
too_few_left() {
    fresh
    node a --nnodes 2 --max-restarts 1 --rdzv-conf join_timeout=5 sh -c "$work"
    await 10 listens
    node b --nnodes 2 --max-restarts 1 --rdzv-conf join_timeout=5 sh -c "$work"
    awaits 20 ' of 2 on node' 2
    agent_of b
    kill -KILL $agent
    over 20
    ended_with a 1
    has a.err 'node 1 is gone.*1 node is left, waiting for 1 more' \
        '^choir run: node 1 is gone: its agent, .* died or was cut off$' \
        '1 node was left, of at least 2, and no other came within 5 s'
}

# A node whose ranks fail again and again is left out, and does not come back.
left_out() {
    fresh
    local fails="[ \$GROUP_RANK = 0 ] || [ \$WORLD_SIZE = 1 ] || { sleep 0.2; exit 6; }; $work"
    node a --nnodes 1:2 --node-rank 0 --max-restarts 9 --node-failures 2 sh -c "$fails"
    await 10 listens
    node b --nnodes 1:2 --node-rank 1 --max-restarts 9 --node-failures 2 sh -c "$fails"
    awaits 30 '^0 of 1 on node 0 of 1, restart 2 of 9' 1
    await 10 is_gone "$pid_b"
    has a.err 'node 1 .* is left out: it has failed 2 times .--node-failures 2'
    has b.err 'this node, .*, is left out: it has failed 2 times'
    node again --nnodes 1:2 --node-rank 1 --max-restarts 9 --node-failures 2 true
    await 10 is_gone "$pid_again"
    touch go
    over 20
    ended_with a 0
    ended_with b 1
    ended_with again 1
    has again.err 'is left out'
}

# A rank that fails because it has lost a peer is not the cause, also where its agent could tell
# first: the agent of the killed rank is stopped for a moment.
blames_the_cause() {
    local kind=$1 rank
    shift
    begin
    rm -f started-*
    local train="echo \$\$ >started-\$RANK; exec '$CHOIR' train --json --quiet --strategy ddp \
        --steps 1000000 --model mlp:hidden=8 random"
    for name in a b; do
        node $name --nnodes 2 --node-rank $([ $name = a ]; echo $?) "$@" sh -c "$train"
    done
    await 20 [ -s started-1 ] || fail "no rank: $(cat ./*.err)"
    sleep 1 # it trains
    agent_of b
    rank=$(cat started-1)
    kill -STOP "$agent"
    kill -KILL "$rank"
    sleep 0.8
    kill -CONT "$agent"
    if [ "$kind" = once ]; then
        over 20
        has a.err '^choir run: rank 1 of 2 was killed by SIGKILL'
    else
        await 20 grep -q 'starting all again' a.err || fail "$(cat a.err)"
        has a.err 'rank 1 of 2 was killed by SIGKILL'
        kill -TERM "$pid_a"
        over 20
    fi
    ! grep -q 'rank 0 of 2 exited' a.err || fail "the survivor is blamed: $(cat a.err)"
}

# A machine that comes with another training, or with that of another job, is refused by name; the
# options of a machine's own may differ.
another_training() {
    fresh
    local train=("$CHOIR" train --strategy ddp --steps 100000000 --batch-size 8 --model toy)
    local args=(--nnodes 1:2 --rdzv-conf last_call_timeout=0.1)
    node a "${args[@]}" "${train[@]}" --json --log-every 1000 random
    await 20 test -s a.out || fail "no step: $(cat a.err)"
    node b "${args[@]}" "${train[@]}" --seed 2 random
    await 10 is_gone "$pid_b"
    has b.err 'nodes disagree: .* runs .choir train --strategy .*--seed 2 random .*, node 0 runs' \
        'is that another job at this endpoint'
    node c "${args[@]}" true
    await 10 is_gone "$pid_c"
    has c.err "runs 'another program', node 0 runs 'choir train --strategy ddp --steps 100000000"
    node d "${args[@]}" "${train[@]}" --threads 1 --log-every=7 --quiet --save-keep 2 random
    await 10 grep -q 'joins; all ranks start again on 2 nodes' a.err || fail "$(cat a.err d.err)"
    kill -TERM "$pid_d"
    await 10 is_gone "$pid_d"
    kill -TERM "$pid_a"
    over 20
    ended_with a 143
    ended_with b 1
    ended_with c 1
}

# The machine's clock jumps by an hour, forth and back: nothing happens, and what happens later is
# noticed as ever.
clock_jumps() {
    fresh
    local library name
    library=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null) ||
        { echo 'a clock that jumps is left out (install faketime)'; return; }
    echo +0 >clock
    for name in a b; do
        LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=$PWD/clock FAKETIME_NO_CACHE=1 \
            FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 node $name --nnodes 1:2 \
            --max-restarts 1 --rdzv-conf last_call_timeout=0.1 sh -c "$work"
        [ $name = b ] || awaits 20 '^0 of 1' 1
    done
    awaits 20 ' of 2 on node' 2
    for name in +3601 -3601; do
        echo $name >clock
        await 2 jumped $name || fail "the clock does not jump to $name"
        sleep 1.2 # longer than from one sign of life to the next
        [ "$(wc -l <starts)" -eq 3 ] || fail "ranks start again: $(cat starts a.err b.err)"
    done
    agent_of b
    kill -KILL $agent
    awaits 10 '^0 of 1 on node 0 of 1, restart 0' 2
    touch go
    over 20
    ended_with a 0
    ended_with b 137
}
# What a process sees that has the clock of this check.
jumped() {
    local seen
    seen=$(LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=$PWD/clock FAKETIME_NO_CACHE=1 date +%s)
    [ $(((seen - EPOCHSECONDS) / 1800)) -eq $(($1 / 1800)) ]
}

# Programs read each change as JSON on standard output: a node joins, a rank fails, the node leaves.
tells_programs() {
    fresh
    local fails='echo "$RANK of $WORLD_SIZE, generation $CHOIR_GENERATION" >>starts
        until [ -e go ]; do
            if [ $RANK$WORLD_SIZE = 13 ] && [ -e fail ]; then rm fail; exit 5; fi
            sleep 0.05
        done'
    local args=(--nnodes 1:2 --max-restarts 3 --rdzv-conf last_call_timeout=0.1)
    node a --json "${args[@]}" sh -c "$fails"
    awaits 20 '^0 of 1, generation 1' 1
    node b "${args[@]}" --nproc-per-node 2 sh -c "$fails"
    awaits 20 ' of 3, generation 2' 3
    touch fail
    awaits 20 ' of 3, generation 3' 3
    kill -TERM "$pid_b"
    awaits 20 '^0 of 1, generation 4' 1
    touch go
    over 20
    ended_with a 0
    local host='"host":"[^"]+"' times='"detected_s":[0-9.e-]+,"resumed_s":[0-9.e-]+}$'
    local left='"left":\[' joined='"joined":\['
    has a.out "^{\"event\":\"membership\",\"generation\":2,\"step\":null,\"world\":3,\"nodes\":2," \
        "\"restarts\":0,$left\],$joined{\"rank\":1,$host},{\"rank\":2,$host}\],$times" \
        "\"generation\":3,.*\"restarts\":1,$left{\"rank\":1,$host,\"why\":\"rank 1 of 3 exited" \
        "with status 5.*$joined{\"rank\":1,$host}\]," \
        "\"generation\":4,.*\"world\":1,.*$left{\"rank\":1,.*interrupted by SIGTERM.*{\"rank\":2,"
    [ "$(grep -c '^{"event"' a.out)" -eq 3 ] || fail "events: $(cat a.out)"
    [ ! -s b.out ] || fail "events without --json: $(cat b.out)"
    choir run --json -n 2 --max-restarts 1 sh -c \
        'echo $RANK in $CHOIR_GENERATION; [ $RANK$CHOIR_GENERATION != 11 ] || exit 7' >out 2>err
    has out '"generation":2,"step":null,"world":2,"nodes":1,"restarts":1,' \
        "$left{\"rank\":1,$host,\"why\":\"rank 1 of 2 exited with status 7" '1 in 2$'
}

# Node 0 keeps the store: its death ends the job, and the others say so.
node_0_killed() {
    fresh
    for name in a b; do
        node $name --nnodes 1:2 --max-restarts 5 sh -c "$work; exec sleep $mark"
        await 10 listens
    done
    awaits 20 ' of 2 on node' 2
    agent_of a
    kill -KILL $agent
    over 20
    ended_with a 137
    ended_with b 1
    has b.err "node 0 is gone: .*pid $agent., which served the job's store at 127.0.0.1"
    gone 5
}

# Whoever joins later with other options is refused alone.
joiner_disagrees() {
    fresh
    node a --nnodes 1:2 --rdzv-conf last_call_timeout=0.1 sh -c "$work"
    awaits 20 '^0 of 1' 1
    node b --nnodes 1:3 sh -c "$work"
    await 10 is_gone "$pid_b"
    has b.err '^choir run: nodes disagree: .* has version .*1:3, node 0 has version .*1:2'
    touch go
    over 20
    ended_with a 0
    ended_with b 1
}

# A training that saves as it goes ends with the bits of one that nothing has disturbed, although
# a node is killed in the middle and the other goes on alone.
training_goes_on() {
    local args="--json --microbatches 4 --batch-size 24 --steps 800 --model $gpt text"
    make_text text 200
    # shellcheck disable=SC2086
    good train $args && mv out single
    fresh
    rm -rf saved
    local train="echo start >>starts; if [ -e saved/latest ]
        then exec $CHOIR train --json --resume saved
        else exec $CHOIR train $args --strategy ddp --save saved --save-every 20; fi"
    for name in a b; do
        node $name --nnodes 1:2 sh -c "$train"
        await 10 listens
    done
    await 30 has_saved || fail "no checkpoint: $(cat ./*.err)"
    agent_of b
    kill -KILL $agent
    over 60
    ended_with a 0
    ended_with b 137
    has a.err 'node 1 is gone'
    [ "$(field weights_sha256 single)" = "$(field weights_sha256 a.out)" ] ||
        fail "other bits: $(tail -n 1 single) $(tail -n 1 a.out)"
    [ "$(field world a.out)" = 1 ] || fail "not on one rank: $(tail -n 1 a.out)"
}
has_saved() { [ -e saved/latest ]; }

wrong_range() {
    bad 2 "--nnodes 3:2: expected MIN:MAX with MIN not above MAX" run --nnodes 3:2 true
}

# A machine that is cut off is noticed within 5 s, and leaves no ranks behind.
machine_cut_off() {
    fresh
    head -c 32 /dev/urandom >key && chmod 600 key
    local command=("$CHOIR" run --nnodes 1:2 --rdzv-endpoint 10.99.7.1 --key-file key)
    on $here node0 "${command[@]}" --node-rank 0 sh -c "$work" >a.out 2>a.err </dev/null &
    pid_a=$!
    on $there node1 "${command[@]}" --node-rank 1 \
        sh -c "$work; exec sleep $mark" >b.out 2>b.err </dev/null &
    pid_b=$! names=(a b)
    awaits 20 ' of 2 on node' 2
    ip -n $there link set crun$$b down
    awaits 10 '^0 of 1 on node 0 of 1, restart 0' 1
    await 10 is_gone "$pid_b" || fail 'the machine that is cut off goes on'
    has b.err 'node 0 is gone'
    touch go
    over 20
    ended_with a 0
    ended_with b 1
    has a.err 'node 1 is gone: its agent, node1 .* died or was cut off; 1 node is left'
}

check failure_anywhere
check restarts_are_counted_once
check agent_killed
check late_joiner
check spare_node
check agent_stopped
check too_few_left
check left_out
check blames_the_cause once
check blames_the_cause again --max-restarts 3 --node-failures 1
check tells_programs
check node_0_killed
check joiner_disagrees
check another_training
check clock_jumps
check training_goes_on
check wrong_range
if hosts 2>hosts.err && unshare --uts true 2>hosts.err; then
    check machine_cut_off
else
    echo "network namespaces are left out: $(tail -n 1 hosts.err)"
fi
finish
