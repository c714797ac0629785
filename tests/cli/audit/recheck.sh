#!/usr/bin/env bash
# --audit=recheck=N: ranks that compute micro-batches again for each other change no number, name a
# rank that computes wrong, and go on without it. choir_struck is choir with faults (tests/chaos).
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=6
struck=${CHOIR_STRUCK:-${CHOIR%/*}/tests/choir_struck}
make_text text 200
job=(train --batch-size 12 --no-eval --json)
small=("${job[@]}" text --model "$gpt" --microbatches 3 --steps 8)

weights() { grep -o 'weights_sha256":"[0-9a-f]*' "$@"; }

# same ARG...: the job has one hash with and without --audit.
same() {
    local without
    good "${job[@]}" "$@" || return
    without=$(weights out)
    rm -rf again
    good "${job[@]}" "$@" --run again --audit="$audit" || return
    [ "$(weights out)" = "$without" ] || fail "other weights: $*"
}

no_other_numbers() {
    local strategy audit=every=1,recheck=1 dropout="$gpt,dropout=0.1"
    same text --model "$dropout" --microbatches 4 --steps 4 --strategy ddp --nproc 3 --clip 0.1
    same text --model "$dropout" --microbatches 4 --steps 4 --strategy ddp --nproc 2 \
        --max-restarts 1
    same random --model "cnn:width=2,channels=1,image=8,classes=3" --microbatches 3 --steps 4 \
        --strategy ddp --nproc 3 # batch norm's statistics
    for strategy in fsdp fsdp:stage=1 fsdp:gather=1; do # ranks keep their rows
        same text --model "$dropout" --microbatches 4 --steps 4 --strategy $strategy --nproc 3 \
            --clip 0.1
    done
    same random --model "cnn:width=2,channels=1,image=8,classes=3" --microbatches 3 --steps 4 \
        --strategy fsdp --nproc 2
    same random --model "cnn:width=2,channels=1,image=8,classes=3" --microbatches 3 --steps 4 \
        --strategy fsdp --nproc 1
    for strategy in ddp+tp fsdp+tp ddp+tp:sequence_parallel=1 ddp+cp fsdp:stage=2+cp; do
        same text --model "$dropout" --microbatches 4 --steps 4 --strategy $strategy --mesh 2x2 \
            --slices 2 --chunks 4 --clip 0.1 || fail "$strategy"
    done
    same text --model "$dropout" --microbatches 3 --steps 3 --strategy fsdp+tp --mesh 3x2 \
        --max-restarts 1
    audit=recheck=5 # between recorded steps
    same text --model "$dropout" --microbatches 4 --steps 23 --strategy ddp --nproc 3
}

# The chain has the lines of another layout.
one_chain() {
    local strategy
    rm -rf again single
    good "${small[@]}" --strategy single --run single --audit=every=2
    for strategy in ddp fsdp; do
        rm -rf again
        good "${small[@]}" --strategy $strategy --nproc 3 --run again --audit=every=2,recheck=3
        diff <(grep '^{"step"' single/audit.jsonl | sed 's/,"chain".*//') \
            <(grep '^{"step"' again/audit.jsonl | sed 's/,"chain".*//') >/dev/null ||
            fail "$strategy has other lines than a job of one rank"
    done
    good "${small[@]}" --strategy single --run dumped --steps 3 --audit=every=1,dump
    good "${small[@]}" --strategy ddp --nproc 3 --run twice --steps 3 --audit=every=1,recheck=2,dump
    for file in dumped/audit/step-????????.safetensors; do
        cmp "$file" "twice/audit/${file##*/}" || fail 'other tensors'
    done
    good audit diff dumped twice
}

refused() {
    bad 2 'expected --strategy ddp, or fsdp without shard_ranks' "${small[@]}" \
        --strategy fsdp:shard_ranks=1 --nproc 2 --run no --audit=recheck=1
    bad 2 'got fsdp.pipeline' "${small[@]}" --strategy fsdp+pipeline --mesh 1x2 --run no \
        --audit=recheck=1
    bad 2 'alone or on a mesh with tp and cp, got tp' "${small[@]}" --strategy tp --nproc 2 \
        --run no --audit=recheck=1
    bad 2 'got ddp.mp' "${small[@]}" --strategy ddp+mp --mesh 1x2 --run no --audit=recheck=1
    bad 2 'sums that do not depend on the ranks' "${small[@]}" --strategy ddp:hook=bf16+tp \
        --mesh 3x2 --run no --audit=recheck=1
    bad 2 'sums that do not depend on the ranks' "${small[@]}" --strategy ddp:hook=bf16 \
        --nproc 3 --run no --audit=recheck=1
    bad 2 'recheck' "${small[@]}" --strategy ddp --nproc 2 --run no --audit=recheck=0
}

# strike PLAN ARG...: the job under a fault; sets `status`. Of --strategy `struck_strategy`.
struck_strategy=ddp
strike() {
    rm -rf run log
    CHOIR_STRIKE=$1 CHOIR_STRIKE_LOG=log CHOIR=$struck choir "${small[@]}" \
        --strategy $struck_strategy \
        --save run --save-every 1 "${@:2}" >out 2>err
    status=$?
    grep -qE 'struck|counted' log || fail "no fault struck: $*: $(cat log err)"
}

# find_first: sets `first`, the number of the first product of step 5 on the second of two ranks.
find_first() {
    strike 5:1:0:core:products --nproc 2 --audit=every=1,recheck=1
    first=$(sed -n 's/^rank 1 step 5 calls \([0-9]*\) .*/\1/p' log)
    first=$((first + 1))
}

# tie ARG...: of two ranks one computes otherwise from the beginning of a step. Both are named, and
# nothing starts them again.
tie() {
    local first host
    host=$(hostname)
    find_first
    strike "5:1:$first:core:products" --nproc 2 --audit=every=1,recheck=1 "$@"
    [ $status -eq 1 ] || fail "status $status of a tie of $struck_strategy"
    has err "no third computation decides who is wrong: rank 0 on $host and rank 1 on $host" \
        'the training stops, and its last good state is .*run/step-00000004$'
    ! grep -qE 'continues from|"event":"membership"' out err || fail "goes on: $(cat err)"
    good checkpoint verify run
}

wrong_rank() {
    local calm host
    host=$(hostname)
    good "${small[@]}" --strategy single
    calm=$(weights out)
    strike 5:1:150:core:products --nproc 3 --max-restarts 2 --audit=every=1,recheck=1
    [ $status -eq 0 ] || fail "status $status: $(cat err)"
    [ "$(weights out)" = "$calm" ] || fail 'the weights are not those of the undisturbed job'
    has out '"event":"membership".*"left":\[{"rank":1,' \
        '"why":"[^"]*rank 1 on '"$host"' computed wrong' \
        '"why":"[^"]*in step [0-9]+: the gradient of micro-batch [0-2]'
    strike 5:1:150:core:products --nproc 3 --audit=every=1,recheck=1
    [ $status -eq 1 ] || fail "status $status"
    has err "rank 1 on $host computed wrong in step ([0-9]+): .*its last good state is .*run/step-"
    good checkpoint verify run
    tie --max-restarts 3
    # one wrong product: the rank itself computes it otherwise the next time
    strike 5:1:60:product:products --nproc 2 --max-restarts 2 --audit=every=1,recheck=1
    [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "status $status: $(cat err)"
    has out '"event":"membership".*rank 1 on '"$host"' computed wrong'
}

# Under FSDP a rank that computes otherwise is named by the micro-batches of others, and the job
# begins again from its last good state.
wrong_rank_of_fsdp() {
    local calm struck_strategy=fsdp
    good "${small[@]}" --strategy single
    calm=$(weights out)
    strike 5:1:150:core:products --nproc 3 --audit=every=1,recheck=1
    [ $status -eq 1 ] || fail "status $status"
    has err "rank 1 on $(hostname) computed wrong in step ([0-9]+): the gradient of micro-batch" \
        'its last good state is .*run/step-'
    good checkpoint verify run
    strike 5:1:150:core:products --nproc 3 --audit=every=1,recheck=1 --max-restarts 1
    [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "status $status: $(cat err)"
    has err "rank 1 on $(hostname) computed wrong"
    tie --max-restarts 3
}

# Rows of FSDP are updated by one rank alone. Bits of its gradients, weights and state that change
# before the update reads them, or behind it, do not come into the numbers or into copies of them.
rows_that_change() {
    local calm fault struck_strategy=fsdp
    good "${small[@]}" --strategy single
    calm=$(weights out)
    # the last one is a stuck bit of a table's gradients, with which both computations agree
    for fault in 594534299:0:25:bits 790876403:1:26:bit 217429210:1:136:bits \
        53054048:1:195:stuck; do
        strike $fault:pool --nproc 3 --audit=every=1,recheck=1 --max-restarts 3 --timeout 10
        [ $status -ne 0 ] || [ "$(weights out)" = "$calm" ] || fail "$fault: $(cat err)"
    done
}

# Bits that change on their way to a checkpoint's files, names and sizes among them, are in no
# checkpoint: the files are read again.
saves_that_change() {
    local fault step
    good "${small[@]}" --strategy single --save whole --save-every 1 --save-keep 99
    for fault in 1:0:70:bit 12:0:70:periodic 6:0:70:bits; do
        strike $fault:saves --nproc 3 --save-keep 99 --audit=every=1,recheck=1
        [ $status -eq 1 ] || fail "$fault: status $status"
        has err 'rank 0: .*(is not what|the file differs from) step [0-9]+'
        for step in run/step-*; do
            cmp "$step/model.safetensors" "whole/${step##*/}/model.safetensors" &&
                cmp "$step/optimizer.safetensors" "whole/${step##*/}/optimizer.safetensors" ||
                fail "$fault is in $step"
        done
    done
}

# Ranks that share micro-batches are named together if both have other gradients. Two such pairs
# decide where a result changes, three where it does not.
wrong_ranks_of_a_mesh() {
    local calm host first struck_strategy mesh=(--slices 2 --audit=every=1,recheck=1)
    host=$(hostname)
    good "${small[@]}" --strategy single --slices 2
    calm=$(weights out)
    for struck_strategy in ddp+tp fsdp+tp; do
        strike 5:1:60:product:products "${mesh[@]}" --mesh 2x2 --max-restarts 2
        [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "status $status: $(cat err)"
        has err "rank 1 on $host computed wrong in step [0-9]+: the gradient of micro-batch [0-2]"
    done
    struck_strategy=ddp+tp
    strike 5:3:150:core:products "${mesh[@]}" --mesh 3x2
    [ $status -eq 1 ] || fail "status $status"
    has err "rank 2 on $host and rank 3 on $host computed wrong in step"
    struck_strategy=ddp+cp
    mesh=(--chunks 4 --audit=every=1,recheck=1 --mesh 2x2)
    strike 5:1:150:core:products "${mesh[@]}"
    [ $status -eq 1 ] || fail "status $status"
    has err "rank 0 on $host and rank 1 on $host computed wrong in step [0-9]+: the gradient of" \
        'micro-batch [0-2], which ranks share, differs there'
    strike 5:1:0:core:products "${mesh[@]}"
    first=$(sed -n 's/^rank 1 step 5 calls \([0-9]*\) .*/\1/p' log)
    strike "5:1:$((first + 1)):core:products" "${mesh[@]}" --max-restarts 2
    [ $status -eq 0 ] || # it has begun within a computation, and the two of that pair are known
        has err 'no third computation decides who is wrong: rank 0 on .* and rank 3 on '
}

# Between the steps that are compared, others use what a rank computes wrong: all begin again.
goes_back() {
    local calm long=(--steps 24 --nproc 3 --save-keep 9 --audit=recheck=4)
    good "${small[@]}" --steps 24 --strategy single
    calm=$(weights out)
    strike 14:1:101:bit:pool "${long[@]}" --max-restarts 1 # all ranks end by one restart
    [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "status $status: $(cat err)"
    has err 'computed wrong in step 8: .*the job continues from step 4 of'
    strike 14:1:101:bit:pool "${long[@]}"
    [ $status -eq 1 ] || fail "status $status"
    has err 'its last good state is .*run/step-00000004'
    good train --resume run --json # not from the newest one, which has wrong numbers
    [ "$(weights out)" = "$calm" ] || fail 'the job goes on from a wrong state'
}

# under_agents PLAN RANKS ARG...: the job under choir run, which starts all ranks again. The first
# ones have a fault.
run_ranks=-n
under_agents() {
    rm -rf log
    cat >once <<END
#!/bin/sh
[ "\$TORCHELASTIC_RESTART_COUNT" = 0 ] || unset CHOIR_STRIKE
[ -z "\${ALONE-}" ] || unset RANK WORLD_SIZE # it starts ranks itself
exec "$struck" "\$@"
END
    chmod +x once
    # shellcheck disable=SC2086 # words
    CHOIR_STRIKE=$1 CHOIR_STRIKE_LOG=log choir run $run_ranks "$2" --max-restarts 1 ./once \
        "${small[@]}" --strategy ddp --save run --save-every 1 "${@:3}" >out 2>err
    status=$?
}

# ends_by_tie RANKS ARG...: no agent starts the ranks again.
ends_by_tie() {
    rm -rf run
    under_agents "5:1:$first:core:products" "$1" --audit=every=1,recheck=1 "${@:2}"
    [ $status -eq 1 ] || fail "status $status of a tie, $*: $(cat err)"
    has err 'no third computation decides who is wrong: .*its last good state is .*step-00000004'
    ! grep -q 'starting all again' err || fail "$*: $(cat err)"
}

agents() {
    local calm first long=(14:1:101:bit:pool 3 --steps 24 --audit=recheck=4 --save-keep)
    good "${small[@]}" --steps 24 --strategy single
    calm=$(weights out)
    rm -rf run
    under_agents "${long[@]}" 9
    [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "from a wrong state: $(cat err)"
    has err 'its last good state is .*run/step-00000004'
    rm -rf run
    under_agents "${long[@]}" 1
    [ $status -eq 0 ] && [ "$(weights out)" = "$calm" ] || fail "from a wrong state: $(cat err)"
    has err 'no checkpoint is known to be good'
    [ -d run/suspect-step-00000007 ] || fail "$(ls run)"

    # a folder that cannot be renamed is named, and nothing goes on from it
    rm -rf run && mkdir -p run/suspect-step-00000007 && touch run/suspect-step-00000007/notes
    under_agents "${long[@]}" 1
    [ $status -eq 1 ] || fail "status $status: $(cat err)"
    has err 'no checkpoint behind step 4 is known to be good, and rank 0: run/step-00000007' \
        'cannot be renamed to suspect-step-00000007: Directory not empty: do not continue from it'
    [ -d run/step-00000007 ] && [ ! -e run/latest ] || fail "$(ls run)"

    # a tie: of the agent's ranks, of those that its worker starts, and under one more agent
    find_first
    ends_by_tie 2
    ALONE=1 ends_by_tie 1 --nproc 2
    ALONE=1 ends_by_tie 1 --nproc 2 --max-restarts 1
    run_ranks="-n 1 --max-restarts 1 $CHOIR run -n" ends_by_tie 2
}

# The machine of a wrong rank is left out by agents that are asked to, and the others go on.
machine_is_left_out() {
    local calm node port=$((20000 + $$ % 10000)) agents=()
    good "${small[@]}" --microbatches 4 --strategy single
    calm=$(weights out)
    rm -rf run log
    for node in 0 1; do
        CHOIR_STRIKE=5:3:150:core:products CHOIR_STRIKE_LOG=log choir run --nnodes 1:2 \
            --node-rank $node --rdzv-endpoint 127.0.0.1:$port --nproc-per-node 2 \
            --max-restarts 1 --node-failures 1 ./once "${small[@]}" --microbatches 4 \
            --strategy ddp --save run --save-every 1 --audit=every=1,recheck=1 \
            >out$node 2>err$node </dev/null &
        agents+=($!)
    done
    wait "${agents[0]}"
    [ $? -eq 0 ] && [ "$(weights out0)" = "$calm" ] || fail "the others do not go on: $(cat err0)"
    wait "${agents[1]}"
    has err0 'rank 3 on .* computed wrong in step 5' 'node 1 .* is left out: it has failed 1 time'
}

check no_other_numbers
check one_chain
check refused
[ ! -x "$struck" ] || { check wrong_rank; check agents; check machine_is_left_out;
    check wrong_rank_of_fsdp; check goes_back; check rows_that_change; check saves_that_change;
    check wrong_ranks_of_a_mesh; }
finish
