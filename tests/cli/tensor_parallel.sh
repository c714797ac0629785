#!/usr/bin/env bash
# tp: losses near those of one device, equal bits in every run, checkpoints that any number of
# ranks can continue from; and the errors for wrong input.
. "$(dirname "$0")/lib.sh"

make_text text 300
export CHOIR_CPU_DEVICES=4

# near FILE FILE: the losses of the steps differ by less than 1e-4.
near() {
    paste <(losses "$1") <(losses "$2") | awk '{
        d = $1 - $2; if (d < 0) d = -d
        if (NF != 2 || d > 1e-4 * $1) { print "step " NR ": " $0; far = 1 } }
        END { exit far || NR == 0 }'
}

losses() {
    sed -n 's/.*"event": *"step".*"loss": *\([0-9.e-]*\).*/\1/p' "$1"
}

args=(--json --microbatches 2 --batch-size 12 --clip 1)

trains_like_one_device() {
    local model
    for model in "$gpt,dropout=0.1" "$llama,kv_heads=2" \
        bert:layers=1,heads=2,width=16,context=16; do
        good train "${args[@]}" --steps 6 --model "$model" text && mv out single
        good train "${args[@]}" --steps 6 --model "$model" --strategy tp --nproc 2 text &&
            mv out one || return
        near single one || fail "losses of $model"
        good train "${args[@]}" --steps 6 --model "$model" --strategy tp --nproc 2 text &&
            mv out two
        same_run one two || fail "two runs of $model differ"
        [ "$(field parameters single)" = "$(field parameters one)" ] ||
            fail "parameters: $(field parameters one)"
    done
    good train "${args[@]}" --steps 6 --model "$llama,kv_heads=2" text && mv out single
    good train "${args[@]}" --steps 6 --model "$llama,kv_heads=2" --strategy tp --nproc 4 text &&
        mv out one
    near single one || fail "losses of four ranks, two of them with the same heads"
    "$CHOIR" run -n 2 "$CHOIR" train "${args[@]}" --steps 4 --model "$gpt" --strategy tp text \
        >out 2>err || fail "under choir run: $(cat err)"
}

# At the same number of ranks a checkpoint continues with equal bits; other numbers, and one
# device, continue near them.
goes_on() {
    local model="$llama,kv_heads=2"
    rm -rf saved
    good train "${args[@]}" --steps 8 --model "$model" --strategy tp --nproc 2 text && mv out whole
    good train "${args[@]}" --steps 4 --model "$model" --strategy tp --nproc 2 --save saved text
    good train "${args[@]}" --steps 8 --resume saved/step-* --strategy tp --nproc 2 text &&
        mv out rest
    same_run whole rest 5
    losses whole | tail -4 >expected
    for ranks in 1 4; do
        strategy=tp
        [ $ranks = 1 ] && strategy=single
        good train "${args[@]}" --steps 8 --resume saved/step-* --strategy $strategy \
            --nproc $ranks text
        losses out >found
        paste expected found | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) exit 1 }
            END { exit NR != 4 }' || fail "resumed on $ranks: $(paste expected found)"
    done
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

told() {
    bad 1 "2 heads cannot be divided among 4 ranks" train --steps 1 --model "$gpt" \
        --batch-size 4 --strategy tp --nproc 4 text
    bad 1 "no plan for a model of class" train --steps 1 --model resnet18:image=16 \
        --batch-size 4 --strategy tp --nproc 2 random
    bad 1 "do not compose yet" train --steps 3 --model "$gpt" --batch-size 8 \
        --strategy pipeline+tp --mesh 2x2 text
    bad 2 "tp stands last .*write fsdp[+]tp" train --steps 3 --model "$gpt" --batch-size 8 \
        --strategy tp+fsdp --mesh 2x2 text
    bad 2 "tp" train --strategy tp:what=1 --nproc 2 --model toy random
}

check trains_like_one_device
check goes_on
check composes
check told
finish
