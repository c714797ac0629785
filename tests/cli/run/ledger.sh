# Checks of choir run with nodes whose ledger outlives any of them: in an etcd, or held by the nodes
# together, by Raft. Sourced with the ledger's name; `member` adds a node that has it.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/agents.sh"
[ -e "$(dirname "$CHOIR")/plugins/choir_$1.so" ] || skip "$2"
ledger=(--rdzv-backend "$1" --rdzv-conf last_call_timeout=0.3)

work_on='echo "$RANK of $WORLD_SIZE on node $GROUP_RANK, restart $TORCHELASTIC_RESTART_COUNT, \
$MASTER_ADDR:$MASTER_PORT" >>starts; until [ -e go ]; do sleep 0.05; done'

three() { # COMMAND: on three nodes
    local name
    for name in a b c; do
        member $name --nnodes 2:3 --max-restarts 1 sh -c "$1"
    done
    awaits 20 ' of 3 on' 3
}

# A job from its beginning to its end, with a failure in between.
job_with_a_failure() {
    fresh
    local fails='[ $RANK != 1 ] || [ -e failed ] || { touch failed; exit 7; }; '
    member a --nnodes 2 --max-restarts 1 sh -c "$fails$work_on"
    member b --nnodes 2 --max-restarts 1 --nproc-per-node 2 sh -c "$fails$work_on"
    awaits 20 ' of 3 on node ., restart 1, 127.0.0.1:' 3
    touch go
    over 20
    for name in a b; do
        ended_with $name 0
        has $name.err 'rank 1 of 3 exited with status 7' 'starting all again: restart 1 of 1'
    done
}

# kill_one NAME NODE: one of three is killed; the two others name it, and begin anew.
kill_one() {
    local two=' of 2 on node ., restart 0' before
    before=$(grep -c "$two" starts) # the third one may have come later than the last call
    agent_of "$1"
    kill -KILL "$agent"
    awaits 20 "$two" $((before + 2))
    for name in a b c; do
        [ $name = "$1" ] && continue
        has $name.err \
            "node $2 is gone: its agent, .*pid $agent.*; 2 nodes are left; all ranks start"
        eval "kill -TERM \$pid_$name"
    done
    over 20
    gone 5
}
