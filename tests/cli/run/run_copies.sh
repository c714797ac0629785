#!/usr/bin/env bash
# choir run with trainings whose ranks have parts of the state that no other one has: a machine is
# killed with all its ranks, and the others, or a spare one, go on from the copies that they have
# of its ranks' state, a step before. No checkpoint is written. The machines are agents.
. "$(dirname "$0")/agents.sh"

make_text text 200
steps=800
job=(--json --microbatches 4 --batch-size 24 --steps $steps --model "$gpt")
fresh() { rm -f ./[abc].out ./[abc].err; begin; }
steps_of() { grep -ho '"event":"step","step":[0-9]*' "$@" | sed 's/.*://'; }
has_step() { [ "$(steps_of "$2" | tail -n 1)" -ge "$1" ] 2>/dev/null; }
more=() # options of choir run

# trains NAME NNODES RANKS STRATEGY ARG...: an agent whose ranks train.
trains() {
    local name=$1 nnodes=$2 ranks=$3 strategy=$4
    shift 4
    node "$name" --nnodes "$nnodes" --max-restarts 1 --nproc-per-node "$ranks" \
        --rdzv-conf last_call_timeout=1 "${more[@]}" \
        "$CHOIR" train --strategy "$strategy" "${job[@]}" "$@" text
}
calm() { # ARG...: the undisturbed job, by ranks of one command
    choir train "${job[@]}" "$@" text >calm.out 2>calm.err || fail "undisturbed: $(cat calm.err)"
}

# lose STRATEGY NAME STEP: the agent is killed with its ranks when that step is done. The others
# end with the weights of calm.out; all steps are there, and at most one twice.
lose() {
    local strategy=$1 victim=$2 name repeated last outs=(a.out)
    await 40 has_step "$3" a.out || fail "$strategy: no step $3: $(cat ./*.err)" || return
    agent_of "$victim"
    kill -KILL "$agent"
    over 60
    for name in "${names[@]}"; do
        [ "$name" = "$victim" ] || ended_with "$name" 0
    done
    last=$(grep -l '"event":"summary"' [abc].out) # of the node that has rank 0 now
    [ "$last" = a.out ] || outs+=("$last")
    has "${last%.out}.err" 'is gone: its agent' 'all ranks start again'
    [ "$(field weights_sha256 "$last")" = "$(field weights_sha256 calm.out)" ] ||
        fail "$strategy: other weights: $(tail -n 1 calm.out) $(tail -n 1 "$last") $(cat ./*.err)"
    repeated=$(steps_of "${outs[@]}" |
        awk '$1 <= last { n += last - $1 + 1 } { last = $1 } END { print n + 0 }')
    [ "$repeated" -le 1 ] || fail "$strategy: $repeated steps are repeated"
    [ "$(steps_of "${outs[@]}" | sort -nu | wc -l)" -eq $steps ] ||
        fail "$strategy: steps are missing"
}

# Of two machines one is left, and trains alone; of three two, whose ranks divide the state anew.
two_machines() {
    calm --strategy single
    for stage in 1 3; do
        sampled 3 || continue
        fresh
        trains a 1:2 2 fsdp:stage=$stage
        await 10 listens
        trains b 1:2 2 fsdp:stage=$stage
        lose fsdp:stage=$stage b 100
    done
}
three_machines() {
    calm --strategy single
    fresh
    for name in a b c; do
        trains $name 2:3 1 fsdp
        await 10 listens
    done
    lose fsdp b 60
}

# The machine at the endpoint, with rank 0, where the agents hold the job's state together.
endpoint() {
    local more=(--rdzv-backend raft)
    [ -e "$(dirname "$CHOIR")/plugins/choir_raft.so" ] || return
    calm --strategy single
    fresh
    for name in a b c; do
        trains $name 2:3 1 fsdp:stage=2
        await 10 listens
    done
    lose fsdp:stage=2 a 60
}

# with_spare STRATEGY ARG...: a and b train, and c is a spare.
with_spare() {
    local name
    fresh
    for name in a b c; do
        trains $name 2 1 "$@"
        case $name in
        a) await 10 listens ;;
        b) await 20 has_step 1 a.out || fail "no step: $(cat a.err b.err)" ;;
        c) await 20 grep -q 'is a spare: all nodes are there' a.err || fail "$(cat a.err)" ;;
        esac
    done
}

# The place of the machine is taken by one that has no copies.
spare_machine() {
    local strategy
    while read -r strategy; do
        sampled 3 || continue
        calm --strategy "$strategy" --nproc 2
        with_spare "$strategy"
        lose "$strategy" b 60
    done <<'END'
ddp
tp
pipeline
fsdp:stage=2
END
}

# Ranks that meet now and then repeat the steps since they have met.
apart() {
    calm --strategy diloco:every=50 --nproc 2
    with_spare diloco:every=50
    await 40 has_step 75 a.out
    agent_of b
    kill -KILL "$agent"
    over 60
    ended_with a 0
    ended_with c 0
    [ "$(field weights_sha256 a.out)" = "$(field weights_sha256 calm.out)" ] ||
        fail "other weights: $(tail -n 1 calm.out) $(tail -n 1 a.out) $(cat a.err)"
}

# --no-copy: the job goes on from its last checkpoint.
no_copy() {
    calm --strategy single
    fresh
    trains a 1:2 1 fsdp --no-copy --save kept --save-every 20
    await 10 listens
    trains b 1:2 1 fsdp --no-copy --save kept --save-every 20
    await 40 has_step 60 a.out || fail "no step: $(cat a.err)"
    await 20 test -e kept/latest || fail "no save: $(cat a.err)"
    agent_of b
    kill -KILL "$agent"
    over 60
    ended_with a 0
    [ "$(steps_of a.out | grep -cx 1)" -eq 1 ] || fail 'the job began again'
    [ "$(field weights_sha256 a.out)" = "$(field weights_sha256 calm.out)" ] || fail 'other weights'
}

# --no-copy is for all ranks, also for one whose environment is lost on the way.
no_copy_unseen() {
    LIMIT=60 choir run --max-restarts 1 --nproc-per-node 2 \
        sh -c '[ $RANK = 0 ] || unset CHOIR_COPIES; exec "$0" "$@"' \
        "$CHOIR" train --strategy fsdp --microbatches 2 --batch-size 8 --steps 4 --model "$gpt" \
        --no-copy --save unseen text >out 2>err || fail "refused: $(cat err)"
    choir run --max-restarts 1 --nproc-per-node 1 "$CHOIR" train --strategy fsdp --no-copy \
        --max-restarts 1 --save unseen.more text >out 2>err && fail 'two kinds of restarts'
    has err "max-restarts is for ranks that 'choir train' starts"
}

# One machine's ranks do not get the memory of their agent: their environment is lost on the way,
# or they are in a container, where /proc shows other processes. The job goes on without copies,
# and after a loss from its checkpoint.
no_memory() {
    local way ways=('unset CHOIR_COPIES' 'CHOIR_COPIES="$$ 1 1 1 0 0 0 0"')
    local wrapped=(sh -c 'eval "$LOSE"; exec "$0" "$@"' "$CHOIR" train --strategy fsdp
        "${job[@]}" --save kept --save-every 20 text)
    local machine=(--nnodes 1:2 --max-restarts 1 --nproc-per-node 1
        --rdzv-conf last_call_timeout=1)
    calm --strategy single
    for way in "${ways[@]}"; do
        sampled 3 || continue
        fresh
        rm -rf kept
        LOSE='' node a "${machine[@]}" "${wrapped[@]}"
        await 10 listens
        LOSE=$way node b "${machine[@]}" "${wrapped[@]}"
        await 40 has_step 60 a.out || fail "$way: no step: $(cat a.err b.err)" || return
        await 20 test -e kept/latest || fail "no save: $(cat a.err)"
        agent_of b
        kill -KILL "$agent"
        over 60
        ended_with a 0
        has a.err "no copies of the ranks' state are kept: .* on this rank's machine; after a loss"
        [ "$(field weights_sha256 a.out)" = "$(field weights_sha256 calm.out)" ] ||
            fail "$way: other weights: $(cat a.err)"
    done
}

check two_machines
check three_machines
check endpoint
check spare_machine
check apart
check no_copy
check no_copy_unseen
check no_memory
finish
