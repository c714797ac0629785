#!/usr/bin/env bash
# tp: the bits of one device with as many slices, on every number of ranks that divides them, also
# from each other's checkpoints; and the errors for wrong input.
. "$(dirname "$0")/lib.sh"

make_text text 300
export CHOIR_CPU_DEVICES=4

args=(--json --microbatches 2 --batch-size 12 --clip 1)

trains_like_one_device() {
    local model ranks
    for model in "$gpt,dropout=0.1" "$llama,kv_heads=2" "$llama,kv_heads=2,tied=1" \
        bert:layers=1,heads=2,width=16,context=16; do
        good train "${args[@]}" --steps 6 --slices 2 --model "$model" text && mv out single
        good train "${args[@]}" --steps 6 --model "$model" --strategy tp --nproc 2 text &&
            mv out one || return
        same_run single one || fail "$model"
        [ "$(field eval_loss single)" = "$(field eval_loss one)" ] || fail "eval_loss of $model"
        [ "$(field parameters single)" = "$(field parameters one)" ] ||
            fail "parameters: $(field parameters one)"
    done
    good train "${args[@]}" --steps 6 --slices 4 --model "$llama,kv_heads=2" text && mv out single
    for ranks in 2 4; do # two of four have the same heads
        good train "${args[@]}" --steps 6 --slices 4 --model "$llama,kv_heads=2" --strategy tp \
            --nproc $ranks text && mv out one
        same_run single one || fail "$ranks ranks with four slices"
    done
    "$CHOIR" run -n 2 "$CHOIR" train "${args[@]}" --steps 4 --model "$gpt" --strategy tp text \
        >out 2>err || fail "under choir run: $(cat err)"
}

# Other strategies have the same slices.
under_every_strategy() {
    local how
    good train "${args[@]}" --steps 4 --slices 2 --model "$gpt,dropout=0.1" text && mv out single
    for how in "ddp --nproc 2" "fsdp --nproc 2" "dp --devices cpu:0,cpu:1" \
        "pipeline --devices cpu:0,cpu:1" "pipeline:schedule=zero-bubble --nproc 2"; do
        # shellcheck disable=SC2086
        good train "${args[@]}" --steps 4 --slices 2 --model "$gpt,dropout=0.1" \
            --strategy $how text && mv out other || return
        same_run single other || fail "$how"
    done
}

# A checkpoint continues with equal bits on any number of ranks that divides its slices, which it
# keeps; other numbers of slices need --recut.
goes_on() {
    local model="$llama,kv_heads=2" how
    rm -rf saved
    good train "${args[@]}" --steps 8 --slices 4 --model "$model" --strategy tp --nproc 2 text &&
        mv out whole
    good train "${args[@]}" --steps 4 --slices 4 --model "$model" --strategy tp --nproc 2 \
        --save saved text
    for how in "tp --nproc 2" "tp --nproc 4" "single" "fsdp+tp --mesh 2x2"; do
        # shellcheck disable=SC2086
        good train "${args[@]}" --steps 8 --resume saved/step-* --strategy $how text && mv out rest
        same_run whole rest 5 || fail "resumed with $how"
    done
    bad 1 "was trained with --slices 4: it cannot continue with 2, unless --recut" train --steps 8 \
        --resume saved/step-* --slices 2 --strategy tp --nproc 2 text
    noted "--slices 2 replaces the checkpoint's 4" train "${args[@]}" --steps 8 \
        --resume saved/step-* --slices 2 --recut text && mv out rest
    [ "$(field weights_sha256 whole)" != "$(field weights_sha256 rest)" ] || fail "recut: same"
    good eval saved text --json && mv out evaluated
    grep -q '"loss"' evaluated || fail "eval of what tp saved: $(cat evaluated)"
}

# FSDP and DDP of sharded models: the bits of tp alone, also from each other's checkpoints.
composes() {
    local own=(--steps 6 --model "$gpt,dropout=0.1" --save saved)
    rm -rf saved
    good train "${args[@]}" --strategy tp --nproc 2 "${own[@]}" text && mv out alone
    for strategy in ddp+tp fsdp+tp fsdp:stage=2+tp; do
        rm -rf saved
        good train "${args[@]}" --strategy $strategy --mesh 2x2 "${own[@]}" text && mv out both
        same_run alone both || fail "$strategy"
        [ "$(field eval_loss alone)" = "$(field eval_loss both)" ] || fail "eval_loss of $strategy"
    done
    good train "${args[@]}" --strategy tp --nproc 2 --steps 9 --model "$gpt,dropout=0.1" text &&
        mv out alone
    good train "${args[@]}" --strategy tp --nproc 2 --steps 9 --resume saved text && mv out rest
    same_run alone rest 7
}

# Slices that share heads' weights, which are frozen and held in 16 bits: no gradient of them is
# computed, which would not fit in what holds them.
frozen_shared_heads() {
    local own=(--steps 4 --model llama:layers=2,heads=4,width=64,context=16 --slices 4
        --lora r=2 --base bf16)
    good train "${args[@]}" --strategy single "${own[@]}" text && mv out alone
    good train "${args[@]}" --strategy tp --nproc 2 "${own[@]}" text && mv out both
    same_run alone both
}

# Norms of heads whose weights several slices share: chunks of a sequence on several ranks add
# up their gradients before these are rounded to 16 bits.
rounds_whole_sums() {
    local model
    for model in qwen3 gemma3; do
        local own=(--steps 3 --amp O2 --slices 4 --chunks 4
            --model $model:layers=1,heads=4,head_dim=8,width=32,context=16)
        good train "${args[@]}" --strategy single "${own[@]}" text && mv out alone
        good train "${args[@]}" --strategy cp --nproc 2 "${own[@]}" text && mv out both
        same_run alone both || fail "$model on two ranks of cp"
        good train "${args[@]}" --strategy cp+tp --mesh 2x2 "${own[@]}" text && mv out both
        same_run alone both || fail "$model on cp+tp"
    done
}

told() {
    bad 1 "2 heads cannot be divided among 4 slices: choose a number of ranks that divides them" \
        train --steps 1 --model "$gpt" --batch-size 4 --strategy tp --nproc 4 text
    bad 1 "2 heads cannot be divided among 4 slices: choose 1 or 2 slices" train --steps 1 \
        --model "$gpt" --batch-size 4 --slices 4 text
    bad 1 "no plan for a model of class" train --steps 1 --model resnet18:image=16 \
        --batch-size 4 --strategy tp --nproc 2 random
    bad 1 "2 ranks share each weight and do not divide the slices: choose --slices 4" \
        train --steps 1 --model "$gpt" --batch-size 4 --slices 3 --strategy tp --nproc 2 text
    bad 1 "no plan for a model of class" train --steps 1 --model resnet18:image=16 \
        --batch-size 4 --slices 2 random
    bad 2 "tp" train --strategy tp:what=1 --nproc 2 --model toy random
}

check trains_like_one_device
check under_every_strategy
check goes_on
check composes
check frozen_shared_heads
check rounds_whole_sums
check told
finish
