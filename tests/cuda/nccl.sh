#!/usr/bin/env bash
# Ranks with a GPU each, over NCCL: the command trains them to the bits of one GPU, two ranks on
# one card are refused, and collectives are measured in GPU memory. The test needs two GPUs.
# Soft ones work at once, because a rank's streams do not run side by side there.
. "$(dirname "$0")/../cli/lib.sh"

export SOFTGPU_COUNT=2 SOFTGPU=now
good info || finish
grep -qE '^backends .*[ ,]nccl' out || skip "there is no NCCL plug-in"
choir bench barrier --backend nccl >out 2>err ||
    { grep -q 'a GPU for each of' err && skip "there are no two GPUs"; }
make_text text 200

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 2 --batch-size 8 --steps 5 --no-eval "$@" && mv out "$file"
}

# agree ARG...
agree() {
    local strategy
    train single --devices cuda:0 "$@" || return
    for strategy in ddp fsdp fsdp:stage=1 fsdp:stage=2; do
        sampled 3 || continue
        train other --backend nccl --strategy "$strategy" --nproc 2 --devices cuda:0-1 "$@" ||
            return
        same_run single other
    done
}
check agree --model "$gpt,dropout=0.1" text
check agree --optimizer sgd:momentum=0.9 --model resnet18:width=4,image=16,classes=5,small=1 \
    random

# same STRATEGY...: where no single device has the same result, NCCL is compared with shared
# memory.
same() {
    local strategy backend
    for strategy in "$@"; do
        sampled 3 || continue
        for backend in shm nccl; do
            train $backend --backend $backend --strategy "$strategy" --nproc 2 \
                --devices cuda:0-1 --model "$gpt" text || return
        done
        same_run shm nccl
    done
}
check same tp pipeline diloco:every=2 local-sgd:every=2,warmup=1 \
    ddp:hook=powersgd,rank=2,start_step=1

# NCCL is the default where script/gpu has passed, which a stamp tells: then a failure of NCCL's is
# one of the job. Elsewhere a line says why it is not.
by_default() {
    local ranks=(--steps 2 --no-eval --strategy ddp --nproc 2 --devices cuda:0-1 --model "$gpt")
    local -x XDG_STATE_HOME=$PWD/state
    choir train "${ranks[@]}" text >out 2>err || fail "$(cat err)"
    is_one_line 'note: .*by way of shared memory: NCCL is the default once script.gpu has' ||
        fail "$(cat err)"
    good __gpus_tried || return
    grep -q '^choir .*, .*, .*, ' state/choir/gpus-tried.* || fail "stamp: $(cat state/choir/*)"
    good train "${ranks[@]}" text
    SOFTGPU_NCCL_FAIL=id choir train "${ranks[@]}" text >out 2>err && fail "that was not NCCL"
    SOFTGPU_NCCL_FAIL=id good train "${ranks[@]}" --backend shm text
    SOFTGPU_NCCL_FAIL=id good train "${ranks[@]}" --max-restarts 1 text # needs shared memory
    sed -i 's/^choir [0-9.]*/choir 0.0.0/' state/choir/gpus-tried.*
    SOFTGPU_NCCL_FAIL=id choir train "${ranks[@]}" text >out 2>err ||
        fail "the stamp of another version holds: $(cat err)"
    grep -q 'script/gpu' err || fail "no word of it"
}
[ -z "${CHOIR_PLUGIN_PATH-}" ] || check by_default # a real machine's stamp stays as it is

# Two ranks on one card.
one_card() {
    choir train --backend nccl --strategy ddp --nproc 2 --devices cuda:0,cuda:0 --model "$gpt" \
        --steps 1 text >out 2>err && fail "two ranks trained on one card"
    grep -q . err || fail "no word of it"
    SOFTGPU_COUNT=1 CHOIR_CUDA_DEVICES=2 choir train --backend nccl --strategy ddp --nproc 2 \
        --devices cuda:0-1 --model "$gpt" --steps 1 text >out 2>err &&
        fail "two ranks trained on one card's virtual devices"
    grep -q 'expected a GPU for each rank' err || fail "not why: $(cat err)"
}
[ -z "${CHOIR_PLUGIN_PATH-}" ] || check one_card # the number of real GPUs cannot be changed

bench() {
    local what
    for what in all_reduce all_gather reduce_scatter sendrecv barrier; do
        good bench "$what" --backend nccl --min 1K --max 16K --json || return
        grep -q '"wrong":0}' out || fail "$what: $(cat out)"
        grep -q '"wrong":[1-9]' out && fail "$what: $(cat out)"
    done
    good bench all_reduce --backend nccl --algorithm native --max 4K --json &&
        grep -q '"backend":"nccl","algorithm":"native"' out || fail "native: $(cat out)"
    bad 1 'a GPU for each of 9 ranks, got [0-8]' bench all_reduce -n 9 --backend nccl
}
check bench
finish
