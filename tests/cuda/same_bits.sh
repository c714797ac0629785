#!/usr/bin/env bash
# On GPUs, too, an equal cut into micro-batches gives equal bits: on one device, on several
# virtual ones of a card under every strategy of one process, and on ranks that share it.
. "$(dirname "$0")/../cli/lib.sh"

export CHOIR_CUDA_DEVICES=4
make_text text 200

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 4 --batch-size 8 --steps 5 --no-eval "$@" && mv out "$file"
}

# agree STRATEGY... -- ARG...
agree() {
    local strategies=()
    while [ "$1" != -- ]; do strategies+=("$1"); shift; done
    shift
    train single --devices cuda:0 "$@" || return
    for strategy in "${strategies[@]}"; do
        sampled 3 || continue
        case $strategy in
        ddp* | fsdp*) train other --strategy "$strategy" --nproc 2 --devices cuda:0-1 "$@" ;;
        *) train other --strategy "$strategy" --devices cuda:0-1 "$@" ;;
        esac || return
        same_run single other
    done
}

# A pipeline with its stages as ranks, and replicas of it.
stages_are_ranks() {
    local model=gpt2:layers=2,heads=2,width=16,context=16
    train single --devices cuda:0 --model $model text || return
    train other --strategy pipeline --nproc 2 --devices cuda:0-1 --model $model text &&
        same_run single other
    train other --strategy ddp+pipeline --mesh 2x2 --devices cuda:0-3 --model $model text &&
        same_run single other
}

# Ranks on two dimensions, and options that change no bits: recomputation, hogwild's only
# worker. Tensor parallelism adds in another order, which is equal in every composition.
compositions() {
    local two=(--mesh 2x2 --devices cuda:0-3 --model "$gpt" text)
    train single --devices cuda:0 --model "$gpt" text &&
        train other --strategy fsdp:shard_ranks=2 --nproc 4 --devices cuda:0-3 \
            --model "$gpt" text && same_run single other
    train other --strategy fsdp --nproc 2 --devices cuda:0-1 --offload params \
        --model "$gpt" text && same_run single other
    train other --strategy fsdp:stage=2+pipeline "${two[@]}" && same_run single other
    train other --recompute --devices cuda:0 --model "$gpt" text && same_run single other
    train tp --strategy tp --nproc 2 --devices cuda:0-1 --model "$gpt" text || return
    train other --strategy fsdp+tp "${two[@]}" && same_run tp other
    train other --strategy ddp+tp "${two[@]}" && same_run tp other
    train other --slices 2 --devices cuda:0 --model "$gpt" text && same_run tp other
    train other --strategy tp:sequence_parallel=1 --nproc 2 --devices cuda:0-1 --model "$gpt" \
        text && same_run tp other
    train one --microbatches 1 --devices cuda:0 --model "$gpt" text &&
        train other --microbatches 1 --strategy hogwild --nproc 1 --devices cuda:0 \
            --model "$gpt" text && same_run one other
}

# In 16 bits GELU is part of the layer that reads it, wherever a pipeline is cut, and is made
# again or not.
in_16_bits() {
    local two=(--mesh 2x2 --devices cuda:0-3 --amp bf16 --model "$gpt" text)
    train single --devices cuda:0 --amp bf16 --model "$gpt" text || return
    train other --recompute --devices cuda:0 --amp bf16 --model "$gpt" text &&
        same_run single other
    for cut in transformer.h.0.mlp.c_proj transformer.h.0.mlp.c_fc; do
        train other --strategy "pipeline:cuts=$cut,schedule=zero-bubble" --devices cuda:0-1 \
            --amp bf16 --model "$gpt" text && same_run single other
    done
    train tp --strategy tp --nproc 2 --devices cuda:0-1 --amp bf16 --model "$gpt" text || return
    train other --strategy fsdp+tp "${two[@]}" && same_run tp other
    train other --strategy tp:sequence_parallel=1 --nproc 2 --devices cuda:0-1 --amp bf16 \
        --recompute --model "$gpt" text && same_run tp other
}

# Several products read a norm of llama's, and are cut apart by three stages: their gradients are
# added up in f32 as without a cut.
products_apart() {
    local llama=llama:layers=2,heads=2,width=32,context=16
    train single --devices cuda:0 --amp bf16 --model $llama text &&
        train other --strategy pipeline --devices cuda:0-2 --amp bf16 --model $llama text &&
        same_run single other &&
        train other --strategy dp --devices cuda:0-1 --amp bf16 --model $llama text &&
        same_run single other
}

pipelines=(pipeline:schedule=gpipe pipeline:schedule=1f1b pipeline:schedule=zero-bubble)
check agree dp dp-balanced mp "${pipelines[@]}" ddp fsdp fsdp:stage=1 fsdp:stage=2 -- \
    --model "$gpt,dropout=0.1" text
check agree dp mp pipeline:schedule=zero-bubble ddp fsdp -- --optimizer sgd:momentum=0.9 \
    --model resnet18:width=4,image=16,classes=5,small=1 random
check agree dp mp ddp fsdp -- --model lstm:layers=2,hidden=8,in=4,context=6,dropout=0.1 text
check agree mp ddp fsdp -- --optimizer lamb \
    --model llama:layers=1,heads=2,width=16,context=12 text
check agree dp ddp fsdp -- --model "$gpt" --amp bf16 text
check agree ddp -- --model "$gpt" --amp fp16 --microbatches 2 --batch-size 4 --steps 3 text
check stages_are_ranks
check compositions
check in_16_bits
check products_apart
check bad 1 'cannot compute with host memory' train --quiet --offload . --devices cuda:0 \
    --model "$gpt" text
finish
