#!/usr/bin/env bash
# --lora: adapters have the same bits under every strategy, through checkpoints, a resumed job and
# the loss of a rank; eval and generate use them; what cannot be is one sentence.
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=4
make_text text 300
small=llama:layers=2,heads=4,kv_heads=2,width=16,context=16
lora=r=3,dropout=0.1,targets=all-linear

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 4 --batch-size 8 --steps 4 --no-eval --model "$small" text \
        "$@" && mv out "$file"
}

# same AS ARG...: the job has the bits of the file AS.
same() {
    local as=$1
    shift
    train other --lora "$lora" "$@" && same_run "$as" other || fail "$*"
}

strategies_agree() {
    train one --lora "$lora" || return
    same one --recompute
    same one --strategy ddp --nproc 3
    for stage in 1 2 3; do
        same one --strategy "fsdp:stage=$stage" --nproc 2
    done
    same one --strategy fsdp:gather=1 --nproc 2
    same one --strategy dp --devices cpu:0,cpu:1
    same one --strategy pipeline:schedule=zero-bubble --nproc 2
    same one --strategy fsdp+pipeline --mesh 2x2
    train sliced --lora "$lora" --slices 4
    same sliced --strategy tp --nproc 4
    same sliced --strategy ddp+tp --mesh 2x2 --slices 4
    train chunked --lora "$lora" --chunks 4
    same chunked --strategy cp --nproc 2 --chunks 4
}

# Scores in slices, and their adapter's, also in 16 bits; a matrix with parts of unequal width.
scores_agree() {
    lora=r=3,dropout=0.1,targets=lm_head/v_proj
    train one --lora "$lora"
    train sliced --lora "$lora" --slices 4
    cmp -s one sliced && fail 'the slices change nothing'
    same sliced --strategy tp --nproc 2 --slices 4
    same sliced --strategy tp:sequence_parallel=1 --nproc 4
    same sliced --strategy ddp+tp --mesh 2x2 --slices 4 --recompute
    train half --lora "$lora" --slices 2 --amp bf16 --strategy single
    train other --lora "$lora" --amp bf16 --strategy tp --nproc 2 && same_run half other
    small=phi3:layers=2,heads=8,kv_heads=4,width=32,context=16
    lora=r=3,dropout=0.1,targets=qkv_proj/o_proj/down_proj/lm_head
    train sliced --lora "$lora" --slices 4
    same sliced --strategy tp --nproc 2 --slices 4 --recompute
    same sliced --strategy tp --nproc 4
    same sliced --strategy fsdp+tp --mesh 2x2 --slices 4
    small=llama:layers=2,heads=4,kv_heads=2,width=16,context=16
    lora=r=3,dropout=0.1,targets=all-linear
}

# Some processors add a note on the time.
halves_agree() {
    local job=(train --json --microbatches 4 --batch-size 8 --steps 4 --no-eval --model "$small"
        text --lora "$lora" --amp bf16)
    choir "${job[@]}" >one 2>err
    choir "${job[@]}" --strategy fsdp --nproc 2 --recompute >two 2>err
    same_run one two
}

# Layers of the packed kind, and a stage without an adapter.
models_agree() {
    local model
    for model in gpt2 bert; do
        small=$model:layers=2,heads=2,width=16,context=16
        for lora in r=3,dropout=0.1,targets=all-linear r=2,rslora=1; do
            train one --lora "$lora" --slices 2 && same one --strategy tp --nproc 2
        done
    done
    small=gpt2:layers=4,heads=2,width=16,context=16
    lora=r=3,targets=transformer.h.3.attn.c_attn
    train one --lora "$lora" && same one --strategy pipeline --nproc 2
    same one --strategy ddp --nproc 2 --recompute
}

# The job records its adapters, under one text for one meaning.
goes_on() {
    train whole --lora "$lora" --save saved --save-every 2 --save-keep 2
    good train --json --resume saved/step-00000002 --strategy ddp --nproc 2 --lora \
        targets=all-linear,dropout=0.1,alpha=6,r=3 && mv out rest
    same_run whole rest 3
    bad 1 'was trained with --lora r=3,alpha=6,.*: it cannot continue with r=4,alpha=8,' train \
        --quiet --resume saved --steps 6 --lora r=4
    good eval --json saved text
    good generate saved --prompt 'the sea' --tokens 4
    good checkpoint verify saved
}

loses_a_rank() {
    train calm --lora "$lora" --steps 60
    start_until 10 train --json --microbatches 4 --batch-size 8 --steps 60 --no-eval \
        --model "$small" --lora "$lora" --strategy fsdp --nproc 2 --max-restarts 1 text || return
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[1]}"
    end_started || fail "status $?: $(cat err)"
    [ "$(field weights_sha256 out)" = "$(field weights_sha256 calm)" ] || fail 'other weights'
}

# Gradients and states of the frozen weights would take ten times as much.
saves_memory() {
    local all few
    peak() {
        good train --json --batch-size 4 --steps 2 --no-eval --lr 0.01 "$@" \
            --model gpt2:layers=2,heads=2,width=128,context=8,vocab=2000 random &&
            sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' out | tail -1
    }
    all=$(peak)
    few=$(peak --lora r=2)
    [ "$few" -lt $((all / 2)) ] || fail "$few bytes beside $all"
}

is_refused() {
    local job=(train --quiet --steps 1 --model "$small" text)
    bad 2 '--lora: r=0: expected a whole number from 1' "${job[@]}" --lora r=0
    bad 2 "--lora: unknown option 'rank'" "${job[@]}" --lora rank=4
    bad 2 '--lora: dropout=1: expected a number from 0 to' "${job[@]}" --lora r=2,dropout=1
    bad 1 "LoRA target 'q_prj' \(did you mean 'q_proj'\?\): choose one of q_proj, k_proj" \
        "${job[@]}" --lora r=2,targets=q_prj
    bad 1 "'embed_tokens' is a module 'embedding'" "${job[@]}" --lora targets=embed_tokens,r=2
    bad 1 "r=17 is larger than the layer 'model.layers.0.self_attn.q_proj'" "${job[@]}" --lora r=17
    bad 1 "unknown module to save 'head'" "${job[@]}" --lora r=2,modules_to_save=head
    bad 1 'all parameters are frozen' "${job[@]}" --lora r=2 --freeze '*'
    bad 1 "'lm_head' is 'model.embed_tokens.weight' once more .the model ties them" train --quiet \
        --steps 1 --model "$small,tied=1" --lora r=2,targets=lm_head text
    bad 1 'no attention whose layers were the usual targets' train --quiet --lora r=2 --steps 1 \
        --model mlp:in=4,hidden=5,classes=3 random
}

check strategies_agree
check scores_agree
check halves_agree
check models_agree
small=llama:layers=2,heads=4,kv_heads=2,width=16,context=16
lora=r=3,dropout=0.1,targets=all-linear
check goes_on
check loses_a_rank
check saves_memory
check is_refused
finish
