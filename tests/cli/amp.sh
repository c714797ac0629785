#!/bin/bash
# --amp: every strategy gives the same bits at every level; reports and checkpoints contain
# level and scale; the cost is printed once; gradients that stay infinite are an error.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/lib.sh"
export CHOIR_CPU_DEVICES=4

run() { # ARG...: trains as `good` does, but may print the cost of --amp in one line
    choir train --json --no-eval "$@" random >out 2>err || { fail "$*: $(cat err)"; return 1; }
    [ "$(grep -vc 'saves memory here but no time\|replaces the checkpoint' err)" = 0 ] ||
        fail "$* said: $(cat err)"
    [ "$(grep -c 'saves memory here' err)" -le 1 ] || fail "$* said it twice"
}

bits_of() { # all losses and the weights, from out
    grep -o '"loss_bits":"[^"]*"' out
    sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' out
}

same_bits() { # AMP MODEL [STRATEGY...]
    local amp=$1 model=$2 want strategy
    shift 2
    run --model "$model" --amp "$amp" --steps 5 --batch-size 8 --microbatches 4 || return
    want=$(bits_of)
    for strategy in "$@"; do
        sampled 3 || continue
        # shellcheck disable=SC2086
        run --model "$model" --amp "$amp" --steps 5 --batch-size 8 --microbatches 4 \
            --strategy $strategy || return
        [ "$(bits_of)" = "$want" ] || { fail "$amp $model: other bits under $strategy"; return 1; }
    done
}

all="dp-balanced,ddp --nproc 3,fsdp --nproc 2,pipeline:schedule=zero-bubble --devices cpu:0-1"

lists_give_the_same_bits() {
    local amp strategies
    IFS=, read -ra strategies <<<"dp --devices cpu:0-1,$all,pipeline --nproc 2"
    for amp in bf16 fp16; do
        same_bits $amp "$gpt" "${strategies[@]}" || return
    done
    same_bits bf16 cnn:width=4,image=12,classes=5 dp-balanced "ddp --nproc 3" \
        "pipeline --devices cpu:0-1" || return
    same_bits fp16 "$lstm" "ddp --nproc 2"
}

apex_gives_the_same_bits() {
    local strategies
    IFS=, read -ra strategies <<<"$all"
    same_bits O2 "$gpt" "${strategies[@]}" || return
    same_bits O3 "$gpt" dp-balanced "ddp --nproc 3" "pipeline --devices cpu:0-1" || return
    same_bits O3 cnn:width=4,image=12,classes=5 "ddp --nproc 2"
}

o1_is_fp16_and_o0_is_off() {
    local want
    run --model "$gpt" --amp fp16 --steps 4 || return
    want=$(bits_of)
    run --model "$gpt" --amp O1 --steps 4 || return
    [ "$(bits_of)" = "$want" ] || fail "O1 is not fp16"
    run --model "$gpt" --steps 4 || return
    want=$(bits_of)
    run --model "$gpt" --amp O0 --steps 4 || return
    [ "$(bits_of)" = "$want" ] || fail "O0 is not off"
    [ -s err ] && fail "off costs: $(cat err)"
    run --model "$gpt" --amp bf16 --steps 4 || return
    [ "$(bits_of)" != "$want" ] || fail "bf16 changes nothing"
}

the_report_has_it() {
    run --model "$gpt" --amp fp16 --steps 2 || return
    grep -q '"event":"step".*"loss_scale":65536' out || fail "no loss_scale in a step"
    grep -q '"event":"summary".*"amp":"fp16","loss_scale":65536,"skipped_steps":0' out ||
        fail "not in the summary"
    run --model "$gpt" --amp bf16 --steps 2 || return
    grep -q '"amp":"bf16"' out || fail "no level"
    ! grep -q loss_scale out || fail "a scale without a scaler"
}

checkpoints_carry_it() { # saved by ddp, continued by single at the stored level
    local amp want
    for amp in fp16 O3; do
        run --model "$gpt" --amp $amp --steps 6 --microbatches 2 || return
        want=$(bits_of | tail -1)
        run --model "$gpt" --amp $amp --steps 3 --microbatches 2 --strategy "ddp" --nproc 2 \
            --save "s$amp" || return
        run --steps 6 --resume "s$amp" || return
        [ "$(bits_of | tail -1)" = "$want" ] ||
            { fail "$amp: other weights after --resume"; return 1; }
        grep -q "\"amp\":\"$amp\"" out || fail "$amp: another level after --resume"
    done
    grep -q '"loss_scale": 65536' sfp16/latest/state.json || fail "no scale in state.json"
}

o3_goes_to_its_stages_at_once() { # the parameters in f32 are more than a device may hold
    local want
    local args=(--model gpt2:layers=8,heads=2,width=128,context=8,vocab=64 --amp O3 --steps 3)
    args+=(--batch-size 4 --microbatches 2)
    run "${args[@]}" || return
    want=$(bits_of)
    CHOIR_CPU_DEVICES=8 run "${args[@]}" --strategy pipeline:schedule=1f1b --devices cpu:0-7 \
        --mem-cap 5800K || return
    [ "$(bits_of)" = "$want" ] || fail "other bits"
}

infinities_for_long() {
    choir train --json --no-eval --model mlp:in=8,hidden=8,classes=3 --amp fp16 --optimizer sgd \
        --lr 1e11 --steps 100 random >out 2>err && fail "trained on NaN"
    grep -q "in a row" err || fail "said: $(cat err)"
    grep -q '"loss":null' out || fail "JSON has no NaN"
    grep -q '"loss_scale":32768' out || fail "the scale did not fall"
}

wrong_levels() {
    choir train --amp fp8 random >out 2>err
    [ $? -eq 2 ] && grep -q "off, bf16, fp16" err || fail "fp8: $(cat err)"
    choir train --amp O3 --strategy fsdp --nproc 2 random >out 2>err
    [ $? -eq 2 ] && grep -q "f32 weights" err || fail "O3 fsdp: $(cat err)"
    choir train --amp O3 --optimizer lamb --steps 2 random >out 2>err && fail "lamb of 16 bits"
    grep -q "lamb: expected f32 weights.*as f16" err || fail "O3 lamb: $(cat err)"
}

check lists_give_the_same_bits
check apex_gives_the_same_bits
check o1_is_fp16_and_o0_is_off
check the_report_has_it
check checkpoints_carry_it
check o3_goes_to_its_stages_at_once
check infinities_for_long
check wrong_levels
finish
