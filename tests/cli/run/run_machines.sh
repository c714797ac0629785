#!/usr/bin/env bash
# choir run on two machines, which here are two network namespaces: ranks that train on them, and
# machines that are cut off.
. "$(dirname "$0")/agents.sh"
hosts 2>hosts.err && unshare --uts true 2>hosts.err ||
    skip "network namespaces are left out: $(tail -n 1 hosts.err)"

# machines ARG...: an agent on each, with the job's key.
machines() {
    local command=("$CHOIR" run --nnodes 2 --rdzv-endpoint 10.99.7.1 --key-file key --timeout 20)
    head -c 32 /dev/urandom >key && chmod 600 key
    rm -f ./*.out
    begin
    on $here node0 "${command[@]}" --node-rank 0 "$@" >a.out 2>a.err </dev/null &
    pid_a=$!
    on $there node1 "${command[@]}" --node-rank 1 "$@" >b.out 2>b.err </dev/null &
    pid_b=$! names=(a b)
}

# Four ranks on two machines give the same bits; they communicate through UCX, where it is built
# in.
machines_train() {
    local args=(train --json --microbatches 4 --batch-size 24 --steps 6 --model "$gpt" text)
    if [ ! -e "$(dirname "$CHOIR")/plugins/choir_ucx.so" ]; then
        echo 'UCX is not built in: training on two machines is left out'
        return 0
    fi
    make_text text 200
    good "${args[@]}" && mv out single
    machines --nproc-per-node 2 --local-ranks-filter 0 "$CHOIR" "${args[@]}" --strategy ddp
    over 60
    ended_with a 0
    ended_with b 0
    same_run single a.out
    [ "$(field world a.out)" = 4 ] || fail "not on 4 ranks: $(cat a.out)"
}

# cut_off SECONDS: cuts node 1 off; both agents have ended after so long. TCP itself gives up
# after 25 s, or much later.
cut_off() {
    local since=$EPOCHSECONDS
    ip -n $there link set crun$$b down
    over 60
    since=$((EPOCHSECONDS - since))
    [ $since -le "$1" ] || fail "cut off nodes ended after $since s, later than $1 s"
    ip -n $there link set crun$$b up
}

# Both sides notice when a machine is cut off, and neither leaves anything behind.
machine_cut_off() {
    machines sh -c "$say; $up"
    await 10 all_up 2 || fail "not up: $(cat ./*.err)"
    has a.out '^0 of 2,.*10\.99\.7\.1'
    has b.out '^1 of 2,.*10\.99\.7\.1'
    cut_off 24
    ended_with a 1
    ended_with b 1
    has a.err 'node 1 is gone: its agent, node1 .* died or was cut off'
    has b.err 'node 0 is gone'
    gone 2
    ip netns exec $here "$CHOIR" run --nnodes 2 --rdzv-endpoint 10.99.7.1 true 2>err
    has err '10.99.7.1.*needs a key'
}

# Ranks that train give up a rank that is cut off after --timeout, and the agents soon after.
ranks_cut_off() {
    local args=(train --strategy ddp --microbatches 2 --batch-size 4 --timeout 4 --steps 1000000)
    [ -e "$(dirname "$CHOIR")/plugins/choir_ucx.so" ] || return 0 # as machines_train says
    make_text text 200
    machines "$CHOIR" "${args[@]}" --json --log-every 1 --no-eval --model "$gpt" text
    await 20 grep -q '"step":20,' a.out || fail "does not train: $(cat ./*.err)"
    cut_off 24
    ended_with a 1
    ended_with b 1
    has a.err 'rank 1 .* did not come to|node 1 is gone'
    has b.err 'rank 0 .* did not come to|node 0 is gone'
}

# A node whose rank fails because it is cut off reports that failure soon, before TCP gives up.
failure_while_cut_off() {
    machines sh -c "echo up; until [ -e cut ] && [ \$RANK = 1 ]; do sleep 0.1; done; exit 7"
    await 10 all_up 2 || fail "not up: $(cat ./*.err)"
    ip -n $there link set crun$$b down
    touch cut
    over 60
    ended_with a 1
    ended_with b 7
    has b.err 'rank 1 of 2 exited with status 7'
    rm cut
    ip -n $there link set crun$$b up
}

check machines_train
check failure_while_cut_off
check ranks_cut_off
check machine_cut_off
finish
