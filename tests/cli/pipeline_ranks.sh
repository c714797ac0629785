#!/usr/bin/env bash
# mp and pipeline over ranks: the bits of one device, in losses, evaluation and checkpoints; and
# the errors for wrong input.
. "$(dirname "$0")/lib.sh"

make_text text 300
export CHOIR_CPU_DEVICES=4

# Stages in separate processes: started by the command or by a launcher, saved in pieces.
stages_over_ranks() {
    local most=$1 ranks strategy
    shift
    local args=(--json --microbatches 4 --batch-size 24 --steps 6 "$@")
    good train "${args[@]}" && mv out single || return
    for ranks in $(seq 2 "$most"); do
        for strategy in mp pipeline:schedule=1f1b pipeline; do
            good train "${args[@]}" --strategy $strategy --nproc "$ranks" && mv out many &&
                same_run single many || fail "$strategy on $ranks ranks: $*"
            [ "$(field eval_loss single)" = "$(field eval_loss many)" ] ||
                fail "eval_loss of $strategy on $ranks ranks: $*"
            [ "$(field world many)" = "$ranks" ] || fail "world of $strategy: $(field world many)"
        done
    done
    "$CHOIR" run -n 2 "$CHOIR" train "${args[@]}" --strategy pipeline >out 2>err &&
        sed -i 's/^\[rank[0-9]*\]: //' out && mv out many && same_run single many ||
        fail "under choir run: $(cat err)"
}

# Its kernel overwrites the sums for the norm of all gradients, after the others have read them.
# Ops of a block may be in several stages of one rank, and need what another stage has released.
chunks_computed_again() {
    local again=(--json --microbatches 4 --batch-size 4 --steps 4 --no-eval --recompute text)
    again+=(--model qwen3:layers=4,heads=2,head_dim=8,width=16,hidden=24,context=16,tied=1)
    good train "${again[@]}" && mv out single
    good train "${again[@]}" --strategy pipeline:schedule=interleaved --nproc 2 && mv out many
    same_run single many
}

lamb_over_ranks() {
    stages_over_ranks 2 --model mlp:in=20,hidden=33,classes=7,layers=4 --optimizer lamb random
}

# A checkpoint of stages loads into the whole model, and the other way round.
stages_go_on() {
    local args=(--json --microbatches 4 --batch-size 24 --model "$gpt,dropout=0.1" --clip 1)
    rm -rf whole_saved many_saved joined
    good train "${args[@]}" --steps 8 text && mv out whole
    good train "${args[@]}" --steps 4 --save whole_saved text
    good train "${args[@]}" --steps 4 --strategy pipeline --nproc 2 --save many_saved text
    good checkpoint convert many_saved joined
    for part in model optimizer; do
        cmp "$(find whole_saved -name "$part.safetensors" | head -1)" \
            "$(find joined -name "$part.safetensors" | head -1)" || fail "$part differs"
    done
    good train "${args[@]}" --steps 8 --resume many_saved text && mv out rest
    same_run whole rest 5
    good train "${args[@]}" --steps 8 --strategy mp --nproc 3 --resume whole_saved text &&
        mv out rest
    same_run whole rest 5
}

# The parameters alone are more than a device may hold: they go to their stages at once, when
# they are drawn, read from a file or resumed, also around ddp.
placed_at_once() {
    local how args=(--json --microbatches 2 --batch-size 4 --steps 3 --no-eval)
    args+=(--model gpt2:layers=8,heads=2,width=128,context=8,vocab=64 random)
    local parts=(--strategy pipeline:schedule=1f1b --devices cpu:0-7 --mem-cap 5800K)
    rm -rf kept
    good train "${args[@]}" --strategy single --save kept --steps 1
    for how in "--weights $(echo kept/step-*/model.safetensors)" "--init torch" \
        "--resume $(echo kept/step-*)"; do
        # shellcheck disable=SC2086
        CHOIR_CPU_DEVICES=8 good train "${args[@]}" "${parts[@]}" $how && mv out many &&
            good train "${args[@]}" $how && mv out single && same_run single many ||
            fail "with $how"
    done
    parts=(--strategy pipeline:schedule=1f1b+ddp --mesh 8x1 --mem-cap 5800K)
    good train "${args[@]}" && mv out single && good train "${args[@]}" "${parts[@]}" &&
        mv out many && same_run single many || fail "around ddp"
}

# A file has the state of the stages' optimizer, also of parameters that moved to other stages.
state_in_a_file() {
    local how args=(--json --microbatches 4 --batch-size 8 --steps 5 --no-eval)
    args+=(--model gpt2:layers=4,heads=2,width=128,context=8,vocab=64 random)
    mkdir -p spilled
    good train "${args[@]}" && mv out single
    for how in '--devices cpu:0-1' '--nproc 2'; do
        # shellcheck disable=SC2086
        good train "${args[@]}" --strategy pipeline $how && mv out many &&
            good train "${args[@]}" --strategy pipeline $how --offload spilled && mv out few &&
            same_run single few || fail "$how"
        [ "$(field peak_bytes few)" -lt $(($(field peak_bytes many) * 85 / 100)) ] ||
            fail "$how: $(field peak_bytes few) of $(field peak_bytes many) bytes"
    done
}

told() {
    bad 2 'strategies for several ranks are .*pipeline' train --strategy single --nproc 2 \
        --model toy random
    late '3 stages for a model of 2 layers' --strategy pipeline --nproc 3
    late "unknown module 'nowhere'" --strategy pipeline:cuts=nowhere --nproc 2
}

# late PATTERN ARG...: found when the pipeline is made, or when its stages are cut.
late() {
    local pattern=$1
    shift
    choir train --microbatches 4 --steps 4 --model toy "$@" random >out 2>err
    [ $? -eq 1 ] || fail "a status of its own of: $*"
    is_one_line "$pattern" || fail "standard error of $*: '$(cat err)', not '$pattern'"
}

check stages_over_ranks 2 --model toy random
check stages_over_ranks 3 --model "$gpt,dropout=0.1" --clip 1 --eval-every 3 text
check stages_over_ranks 3 --model resnet50:width=2,image=16,classes=5,stages=2 \
    --optimizer sgd:momentum=0.9 random
check chunks_computed_again
check lamb_over_ranks
check stages_go_on
check placed_at_once
check state_in_a_file
check told
finish
