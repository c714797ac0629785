#!/usr/bin/env bash
# choir run on several nodes, which here are several agents on one machine: how they meet, how
# they number the ranks, and that a failure on one node ends all of them with the same message.
. "$(dirname "$0")/agents.sh"

late=6 # seconds that a node may come after another on a busy machine, where a third never comes

# --- meeting ----------------------------------------------------------------------------------

# Ranks are numbered by node, in any order of arrival, with different numbers of ranks per node.
given_ranks() {
    begin
    node b --nnodes 3 --node-rank 1 --nproc-per-node 3 sh -c "$say"
    node c --nnodes 3 --node-rank 2 sh -c "$say"
    sleep 0.2
    node a --nnodes 3 --node-rank 0 --nproc-per-node 2 sh -c "$say"
    over 20
    for name in a b c; do ended_with $name 0; done
    has a.out '^.rank0.: 0 of 6, 0 of 2, node 0, 127.0.0.1:' '^.rank1.: 1 of 6, 1 of 2, node 0'
    has b.out '^.rank2.: 2 of 6, 0 of 3, node 1' '^.rank4.: 4 of 6, 2 of 3, node 1'
    has c.out '^5 of 6, 0 of 1, node 2, 127.0.0.1:'
    [ "$(sed 's/.*node ., //' a.out b.out c.out | sort -u | wc -l)" -eq 1 ] ||
        fail "not one place, name and secret: $(cat a.out b.out c.out)"
}

order_of_arrival() {
    begin
    node a --nnodes 3 --rdzv-id mine sh -c "$say"
    node b --nnodes 3 sh -c "$say"
    node c --nnodes 3 sh -c "$say"
    over 20
    for name in a b c; do ended_with $name 0; done
    [ "$(cat a.out b.out c.out | cut -d, -f1,3 | sort | tr '\n' ' ')" = \
        '0 of 3, node 0 1 of 3, node 1 2 of 3, node 2 ' ] || fail "$(cat a.out b.out c.out)"
}

# An agent of another job is sent away, and the job goes on without it.
another_job() {
    begin
    node a --nnodes 2 --rdzv-id one sh -c "$say"
    await 10 listens || fail "node 0 is not there: $(cat a.err)"
    node stranger --nnodes 2 --rdzv-id two sh -c "$say"
    await 10 is_gone "$pid_stranger"
    node b --nnodes 2 --rdzv-id one sh -c "$say"
    over 20
    ended_with stranger 1
    has stranger.err "job at 127.0.0.1 port $port is 'one' .node 0: .*pid .*and this one is 'two'"
    for name in a b; do ended_with $name 0; done
}

# A stopped agent is named once other nodes are done.
agent_stopped() {
    local victim=$1 other=$2 agent
    local wait_for_go='touch ready.$RANK; until [ -e go ]; do sleep 0.05; done'
    begin
    rm -f go ready.*
    node a --nnodes 2 --node-rank 0 --timeout $late sh -c "$wait_for_go"
    node b --nnodes 2 --node-rank 1 --timeout $late sh -c "$wait_for_go"
    await 10 test -e ready.0 -a -e ready.1 || fail "not up: $(cat a.err b.err)"
    eval "agent=\$pid_$victim"
    read -r agent </proc/$agent/task/$agent/children
    kill -STOP $agent
    touch go
    eval "await 30 is_gone \$pid_$other" || fail "$other waits for a stopped agent"
    kill -CONT $agent
    over 20
    ended_with $other 1
    has $other.err "$3 fell silent: its agent, .* .pid $agent."
}

node_0_stopped() { agent_stopped a b 'node 0'; }
node_1_stopped() { agent_stopped b a 'node 1'; }

# With a range, the job starts when the maximum has come, or some time after the minimum.
range_of_nodes() {
    begin
    node a --nnodes 1:2 sh -c "$say"
    node b --nnodes 1:2 sh -c "$say"
    over 20
    ended_with a 0
    ended_with b 0
    has a.out ' of 2, 0 of 1, node'
    has b.out ' of 2, 0 of 1, node'
}

# Static rendezvous as in torchrun: nodes meet at the master's port, ranks at another.
master_alone() {
    begin
    for rank in 0 1; do
        "$CHOIR" run --nnodes 2 --node_rank $rank --master_addr localhost --master_port $port \
            sh -c 'echo $RANK $MASTER_ADDR $MASTER_PORT' >m$rank.out 2>m$rank.err &
        eval "pid_m$rank=$!"
        names+=(m$rank)
    done
    over 20
    ended_with m0 0
    ended_with m1 0
    has m0.out '^0 localhost [0-9]+$'
    [ "$(cut -d' ' -f2- m0.out)" = "$(cut -d' ' -f2- m1.out)" ] || fail "$(cat m0.out m1.out)"
    ! grep -q " $port$" m0.out || fail 'ranks got the port of the agents'
}

a_key() {
    head -c 32 /dev/urandom >key && chmod 600 key
    head -c 32 /dev/urandom >other && chmod 600 other
    begin
    node a --nnodes 2 --node-rank 0 --key-file key sh -c 'echo $CHOIR_KEY_FILE'
    node b --nnodes 2 --node-rank 1 --key-file key true
    over 20
    ended_with a 0
    ended_with b 0
    has a.out '/key$'
    begin
    node a --nnodes 2 --node-rank 0 --timeout $late --key-file key true
    node b --nnodes 2 --node-rank 1 --timeout $late --key-file other true
    over 20
    ended_with a 1
    ended_with b 1
    has b.err 'key'
    bad 1 'key' run --nnodes 2 --node-rank 0 --rdzv-endpoint 0.0.0.0:$port --timeout 2 true
}

# --- not meeting ------------------------------------------------------------------------------

missing_node() {
    begin
    node a --nnodes 4 --node-rank 0 --timeout $late true
    node c --nnodes 4 --node-rank 2 --timeout $late true
    over 15
    ended_with a 1
    ended_with c 1
    has a.err 'nodes 1, 3 of 4 never came.*started there'
    has c.err 'nodes 1, 3 of 4 never came.*started there'
    begin
    node b --nnodes 2 --node-rank 1 --timeout 1 true
    over 15
    ended_with b 1
    has b.err "127.0.0.1.*$port"
}

disagreeing() {
    begin
    node a --nnodes 2 --node-rank 0 --timeout 20 true
    node b --nnodes 3 --node-rank 1 --timeout 20 true
    over 10
    ended_with a 1
    ended_with b 1
    for name in a b; do has $name.err 'disagree.*nnodes 3:3.*nnodes 2:2'; done
}

same_node_twice() {
    begin
    node a --nnodes 3 --node-rank 0 --timeout $late true
    node b --nnodes 3 --node-rank 1 --timeout $late true
    node c --nnodes 3 --node-rank 1 --timeout $late true
    over 15
    grep -hE 'node 1 is there already: .*pid' b.err c.err >/dev/null ||
        fail "nobody says that node 1 is there twice: $(cat b.err c.err)"
    begin
    node a --nnodes 2 --node-rank 0 --timeout $late true
    await 10 listens || fail "node 0 is not there: $(cat a.err)"
    node b --nnodes 2 --node-rank 0 --timeout $late true
    over 15
    has b.err 'in use'
}

# --- the end ----------------------------------------------------------------------------------

one_fails() {
    begin
    node a --nnodes 2 --node-rank 0 --nproc-per-node 2 sh -c "$up"
    node b --nnodes 2 --node-rank 1 --nproc-per-node 2 \
        sh -c '[ $RANK = 3 ] || exec sleep '$mark'; sleep 0.5; echo no such thing >&2; exit 9'
    over 20
    ended_with a 9
    ended_with b 9
    for name in a b; do
        has $name.err '^choir run: rank 3 of 4 exited with status 9$' 'node 1\)' '\| no such thing'
    done
    gone 2
}

# The workers of one node are done: it waits for the other nodes, and can be interrupted
# meanwhile.
one_is_done_early() {
    begin
    node a --nnodes 2 --node-rank 0 true
    node b --nnodes 2 --node-rank 1 sh -c 'sleep 1; exit 4'
    over 20
    ended_with a 4
    has a.err 'rank 1 of 2 exited with status 4'
    begin
    node a --nnodes 2 --node-rank 0 true
    node b --nnodes 2 --node-rank 1 sh -c "echo up; exec sleep $mark"
    await 10 grep -q up b.out
    sleep 0.3
    kill -INT "$pid_a" # a script's & ignores SIGINT, and choir run then does too
    kill -TERM "$pid_a"
    over 20
    ended_with a 143
    ended_with b 143
    has b.err 'interrupted by SIGTERM on node 0'
    gone 2
}

# killed WHICH: `agent` or `guard` of node 0 or 1; the other node ends, too, and gives the
# reason.
killed() {
    local other=$([ "$2" = a ] && echo b || echo a) victim
    rm -f ./*.out
    begin
    node a --nnodes 2 --node-rank 0 sh -c "$up"
    node b --nnodes 2 --node-rank 1 sh -c "$up"
    await 10 all_up 2 || fail "not up: $(cat ./*.err)"
    eval "victim=\$pid_$2"
    [ "$1" = guard ] || victim=$(pgrep -P "$victim")
    kill -KILL "$victim"
    over 20
    ended_with "$2" 137
    ended_with "$other" 1
    has $other.err 'choir run: node [01] is gone'
    gone 2
}

# --- programs that are made to be started so ----------------------------------------------------

# Ranks of different agents meet at MASTER_ADDR, and train as one process does.
train_joins() {
    local args=(train --json --microbatches 4 --batch-size 24 --steps 6 --model "$gpt" text)
    make_text text 200
    good "${args[@]}" && mv out single
    begin
    node a --nnodes 2 --node-rank 0 "$CHOIR" "${args[@]}" --strategy ddp
    node b --nnodes 2 --node-rank 1 --nproc-per-node 2 "$CHOIR" "${args[@]}" --strategy ddp
    over 60
    ended_with a 0
    ended_with b 0
    same_run single a.out
    [ "$(field world a.out)" = 3 ] || fail "not on 3 ranks: $(cat a.out)"
}

check given_ranks
check order_of_arrival
check another_job
check node_0_stopped
check node_1_stopped
check range_of_nodes
check master_alone
check a_key
check missing_node
check disagreeing
check same_node_twice
check one_fails
check one_is_done_early
check killed agent a
check killed agent b
check killed guard b
check train_joins
finish
