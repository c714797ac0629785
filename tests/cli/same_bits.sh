#!/usr/bin/env bash
# An equal cut into micro-batches gives equal bits: on one device, on several devices of one
# process under every strategy, or on 1 to 4 ranks in lockstep.
. "$(dirname "$0")/lib.sh"

make_text text 300

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 4 --batch-size 24 --steps 6 "$@" && mv out "$file"
}

# agree ARG...: single and ddp, on 1 to 4 ranks.
agree() {
    train single --strategy single "$@" || return
    for ranks in 1 2 3 4; do
        train "ddp$ranks" --strategy ddp --nproc $ranks "$@" && same_run single "ddp$ranks"
        [ "$(field eval_loss single)" = "$(field eval_loss "ddp$ranks")" ] ||
            fail "eval_loss on $ranks ranks: $*"
        [ "$(field world "ddp$ranks")" = $ranks ] || fail "world on $ranks ranks: $*"
    done
}

threads_are_one_by_default() {
    train default --model mlp:in=20,hidden=33,classes=7 random
    train one --model mlp:in=20,hidden=33,classes=7 --threads 1 random
    same_run default one
}

small_buckets_change_nothing() {
    train single --strategy single --model "$gpt" text
    train buckets --strategy ddp:bucket_cap_mb=0.001,first_bucket_mb=0.001 --nproc 3 \
        --model "$gpt" text
    same_run single buckets
}

# --init torch draws what a model chose in a second pass, into memory that ranks may share.
torch_values_in_shared_memory() {
    local model=vit:layers=2,heads=4,width=16,patch=4,image=12,channels=1,classes=4
    train single --strategy single --model $model --init torch --steps 1 random
    for turn in 1 2 3; do
        train shared --strategy fsdp --nproc 3 --model $model --init torch --steps 1 random &&
            { same_run single shared || fail "in turn $turn"; }
    done
}

# 4 rows on 3 ranks: the last rank has none, of width 0.
empty_shards_on_threads() {
    local model=mlp:in=20,hidden=16,classes=4
    train single --strategy single --model $model --clip 0.5 random
    train shards --strategy fsdp --nproc 3 --threads 2 --model $model --clip 0.5 random &&
        same_run single shards
}

# Shards outside the device, in memory and in a file; the device's pool then has no room for all.
offload_changes_nothing() {
    local model=gpt2:layers=6,heads=2,width=128,context=16,dropout=0.1
    train single --strategy single --model $model text || return
    for ranks in 1 3; do
        train memory --strategy fsdp --nproc $ranks --offload params --mem-cap 10M \
            --model $model text && same_run single memory
    done
    train file --strategy fsdp --nproc 2 --offload params:. --mem-cap 10M --recompute \
        --model $model text && same_run single file
    train kept --strategy 'fsdp:ignored=*.bias/*wpe*' --nproc 2 --offload params \
        --model $model text && same_run single kept
    bad 1 'out of memory' train --quiet --mem-cap 10M --microbatches 4 --batch-size 24 --steps 6 \
        --model $model text
}

# workers_agree STRATEGY ARG...: four workers, on 1 to 4 ranks, and on other ranks after half of the
# steps.
workers_agree() {
    local strategy=$1 ranks
    shift
    train one --strategy "$strategy" --nproc 1 "$@" || return
    for ranks in 2 3 4; do
        train many --strategy "$strategy" --nproc $ranks "$@" && same_run one many ||
            fail "$strategy on $ranks ranks"
        [ "$(field eval_loss one)" = "$(field eval_loss many)" ] || fail "eval_loss on $ranks ranks"
        [ "$(field final_loss one)" = "$(field final_loss many)" ] || fail "final_loss on $ranks"
    done
    train half --strategy "$strategy" --nproc 2 --steps 3 --save half.saved "$@"
    good train --json --resume half.saved --nproc 3 --steps 6 && mv out rest
    same_run one rest 4 || fail "$strategy: 2 ranks, then 3"
    rm -rf half.saved
    train default --strategy "${strategy/workers=4/nesterov=1}" --nproc 4 "$@" &&
        same_run one default
}

# Recorded steps keep the bits, too, with every option of DDP.
ddp_options_change_nothing() {
    train single --strategy single --model "$gpt" text
    for option in find_unused=1 static_graph=1 delay_allreduce=1; do
        train other --strategy "ddp:$option" --nproc 3 --model "$gpt" text
        same_run single other
    done
}

# These strategies do not keep the bits of one device, but their ranks stay in lockstep, and the
# loss is near.
hooks_train() {
    train exact --strategy ddp --nproc 2 --model "$gpt" text
    for hook in bf16 f16 powersgd,rank=2,start_step=2; do
        train other --strategy "ddp:hook=$hook" --nproc 2 --model "$gpt" text
        awk "BEGIN { d = $(field final_loss exact) - $(field final_loss other)
            exit !(d < 0.05 && d > -0.05 && d != 0) }" || fail "loss with $hook"
    done
    # After a step the buckets are laid out again, and are more.
    good train --quiet --model mlp:in=10,hidden=10,classes=5 --microbatches 6 --batch-size 12 \
        --nproc 2 --steps 3 random --strategy \
        ddp:hook=powersgd,start_step=0,bucket_cap_mb=1e-4,first_bucket_mb=1e-4
}

# Algorithms by name: those that keep the tree (over ranks: with one micro-batch each), the
# engines that are built, and one that adds in another order.
algorithms_and_engines_agree() {
    train single --strategy single --model "$gpt" text
    for algorithm in exchange binomial halving hierarchical; do
        train $algorithm --strategy ddp:algorithm=$algorithm --nproc 4 --model "$gpt" text
        same_run single $algorithm
    done
    train ring --strategy ddp:algorithm=ring --nproc 4 --model "$gpt" text
    [ "$(field weights_sha256 single)" != "$(field weights_sha256 ring)" ] ||
        fail "a ring adds in another order, and gives the same weights"
    for plugin in "$(dirname "$CHOIR")"/plugins/choir_ucx.so; do
        [ -e "$plugin" ] || { echo "skipped: ucx is not built"; continue; }
        train ucx --strategy ddp --backend ucx --nproc 3 --model "$gpt" text
        same_run single ucx
    done
}

# chunks_agree CHUNKS ARG...: one device, ranks that share sequences, and meshes of both.
chunks_agree() {
    local chunks=$1
    shift
    train single --chunks "$chunks" "$@" || return
    for strategy in cp:exchange=heads cp:exchange=keys; do
        train cp --strategy $strategy --nproc 2 --chunks "$chunks" "$@" && same_run single cp
        [ "$(field eval_loss single)" = "$(field eval_loss cp)" ] || fail "eval_loss: $strategy $*"
    done
    for strategy in ddp+cp fsdp+cp; do
        train cp --strategy $strategy --mesh 2x2 --chunks "$chunks" "$@" && same_run single cp
    done
    train ddp --strategy ddp --nproc 2 --chunks "$chunks" "$@" && same_run single ddp
}

# The check can fail: other seeds and other cuts give different bits.
others_differ() {
    train first --model "$gpt" text
    train other --model "$gpt" --seed 43 text
    [ "$(steps_of first)" != "$(steps_of other)" ] || fail "another seed, the same loss_bits"
    [ "$(field weights_sha256 first)" != "$(field weights_sha256 other)" ] ||
        fail "another seed, the same weights"
}

# every_strategy STAGES ARG...: runs a model that can be cut into STAGES stages on 1 to 8
# devices, or on the numbers of devices in `counts`. There are five steps: the fourth and fifth
# are replayed. A sample tries a third of the strategies on each number of devices.
every_strategy() {
    local stages=$1 devices strategy chunks
    shift
    good train --json --microbatches 8 --batch-size 16 --steps 5 --no-eval "$@" &&
        mv out single || return
    for devices in ${counts:-1 2 3 4 8}; do
        for strategy in $strategies; do
            case $strategy in
            *interleaved) chunks=2 ;;
            mp | pipeline*) chunks=1 ;;
            *) chunks=0 ;;
            esac
            [ $((chunks * devices)) -le "$stages" ] && sampled 3 || continue
            good train --json --microbatches 8 --batch-size 16 --steps 5 --no-eval \
                --strategy "$strategy" --devices "cpu:0-$((devices - 1))" "$@" &&
                mv out many && same_run single many ||
                fail "$strategy on $devices devices: $*"
            [ "$(field world many)" = "$devices" ] ||
                fail "world of $strategy: $(field world many)"
        done
    done
}

# recomputation_changes_nothing ARG...: blocks computed again in backward, alone and on two devices.
recomputation_changes_nothing() {
    local strategy
    good train --json --microbatches 4 --batch-size 8 --steps 5 --no-eval "$@" && mv out single ||
        return
    for strategy in single $strategies; do
        [[ $strategy != *interleaved ]] && sampled 3 || continue
        local devices=cpu:0-1
        [ "$strategy" != single ] || devices=cpu:0
        good train --json --microbatches 4 --batch-size 8 --steps 5 --no-eval --recompute \
            --strategy "$strategy" --devices $devices "$@" &&
            mv out again && same_run single again || fail "$strategy with --recompute: $*"
        [ "$(field recompute again)" = true ] || fail "recompute: $(field recompute again)"
    done
}

# Runs the models that the command has.
strategies=$("$CHOIR" train --help | awk '/^  --strategy/ { on = 1 } /^  --nproc/ { on = 0 }
    on && /^        [a-z]/ { print $1 }' |
    grep -vxE 'single|hogwild|diloco|local-sgd|pipeline|tp|cp')
strategies+=" fsdp:stage=1 fsdp:stage=2 fsdp:gather=1 fsdp:unit_params=50"
if "$CHOIR" train --help | grep -q '^        pipeline '; then
    for schedule in gpipe 1f1b interleaved zero-bubble; do
        strategies+=" pipeline:schedule=$schedule"
    done
fi

check agree --model toy random
check agree --model mlp:in=20,hidden=33,classes=7 --optimizer sgd:momentum=0.9 --lr 0.1 random
check agree --model cnn:width=4,image=12 random
check agree --model resnet50:width=2,image=16,classes=5,stages=2 --optimizer sgd:momentum=0.9 random
check agree --model "$gpt,dropout=0.1" --clip 1 --eval-every 3 text
check agree --model "$llama,pad=3" text
check agree --model "$bert" text # micro-batches have different numbers of targets
check workers_agree diloco:every=3,workers=4 --model "$gpt,dropout=0.1" --clip 1 text
check workers_agree diloco:every=3,workers=4,wire=bf16 --model "$bert" --microbatches 8 \
    --optimizer adamw:amsgrad=1 text
check workers_agree diloco:every=3,workers=4 --model cnn:width=4,image=12 --offload . random
check agree --model "mistral:${llama#*:},window=5,tied=1,pad=3" random
check chunks_agree 4 --model "$gpt,dropout=0.1" --clip 1 --eval-every 3 text
sed 's/.*/{"text":"&"}/' text >docs.jsonl
check chunks_agree 4 --model "$llama,pad=3" --pack --bytes --amp bf16 --recompute docs.jsonl
check agree --model "$lstm,out=5,dropout=0.1" random
check agree --model "$lstm,cell=gru" text
export CHOIR_CPU_DEVICES=8
check recomputation_changes_nothing --model "$gpt,dropout=0.1" --clip 1 text
check recomputation_changes_nothing --model resnet18:width=4,image=16,classes=5,small=1 random
check every_strategy 2 --model toy random
check every_strategy 8 --model mlp:in=20,hidden=33,classes=7,layers=8 random
check every_strategy 16 --model resnet50:image=32,width=4,classes=7 \
    --optimizer sgd:momentum=0.9 random
check every_strategy 3 --model "lstm:layers=2,hidden=16,in=8,context=12,dropout=0.1" text
counts=2 check every_strategy 8 --model "llama:layers=2,${llama#*,}" text
counts=3 check every_strategy 16 --model "$bert,dropout=0.1" --clip 1 text
check every_strategy 16 --model gpt2:layers=4,heads=2,width=16,context=16,dropout=0.1 --clip 1 text
unset CHOIR_CPU_DEVICES
check threads_are_one_by_default
check small_buckets_change_nothing
check torch_values_in_shared_memory
check empty_shards_on_threads
check offload_changes_nothing
check ddp_options_change_nothing
check hooks_train
check algorithms_and_engines_agree
check others_differ
finish
