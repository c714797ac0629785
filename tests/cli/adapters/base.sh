#!/usr/bin/env bash
# --base: frozen weights in 16, 8 and 4 bits have the bits of their values in f32, under every
# strategy, through checkpoints and exports; they take as little memory as they say; what cannot be
# is one sentence.
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=4
make_text text 300
# Rows of two slices are whole blocks, and whole words.
small=llama:layers=2,heads=4,kv_heads=2,width=128,hidden=256,context=16
lora=r=3,dropout=0.1,targets=all-linear

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 2 --batch-size 4 --steps 3 --no-eval text \
        --lora "$lora" "$@" &&
        sed -i '/"event":"note"/d' out && mv out "$file"
}

# same AS ARG...: the job has the bits of the file AS.
same() {
    local as=$1
    shift
    train other "$@" && same_run "$as" other || fail "$*"
}

# A published folder, and for each type one with the values that its bits stand for.
make_folders() {
    good train --quiet --model "$small" --steps 2 --no-eval --batch-size 4 --lr 0.02 \
        --save made text
    good export made base --format hf
    rm -rf made
    for type in q8_0 q4_0 q4_K bf16; do
        good train --quiet --model base --lora r=2 --base $type --steps 1 --lr 0 --weight-decay 0 \
            --no-eval --batch-size 4 --save made text || return
        good export made "as-$type" --format hf
        rm -rf made
    done
}

# as FILE ARG...: the job has the losses of the file. Zeros may have another sign in its weights, as
# an export adds adapters to them.
as() {
    local file=$1
    shift
    train other "$@" && [ "$(steps_of "$file" 1)" = "$(steps_of other 1)" ] ||
        fail "$*: other losses"
}

types_have_their_values() {
    for type in q8_0 q4_0 q4_K bf16; do
        train held --model base --base $type && as held --model "as-$type" --base f32
    done
    train held --model base --amp bf16 --base q8_0 && as held --model as-q8_0 --amp bf16 --base f32
    train held --model base --amp bf16 --base f16 && as held --model base --amp bf16 --base f16 \
        --bits chain
}

# Texts of weights that are held only to write them, and of their values.
writes() {
    for type in q8_0 q4_0 q4_K bf16; do
        good generate base --prompt 'the sea' --json --tokens 6 --base $type && mv out held
        good generate "as-$type" --prompt 'the sea' --json --tokens 6
        cmp -s held out || fail "--base $type writes '$(cat held)', not '$(cat out)'"
    done
    good generate saved --prompt 'the sea' --json --tokens 6 --base q4_0 && mv out held
    good generate saved --prompt 'the sea' --json --tokens 6
    cmp -s held out || fail 'another text'
    bad 1 'was trained with --base q4_0: its weights cannot be held as q8_0' generate saved \
        --base q8_0
    printf 'hello\n' | choir chat base --base q9 >out 2>err && fail 'q9'
    has err 'choose one of f32, f16, bf16, q8_0, q4_0, q4_K'
}

strategies_agree() {
    train one --model base --base q4_0 || return
    same one --model base --base q4_0 --recompute
    same one --model base --base q4_0 --strategy ddp --nproc 2
    same one --model base --base q4_0 --strategy dp --devices cpu:0,cpu:1
    for stage in 1 3; do
        same one --model base --base q4_0 --strategy "fsdp:stage=$stage" --nproc 2
    done
    same one --model base --base q4_0 --strategy fsdp:gather=1 --nproc 2
    same one --model base --base q4_0 --strategy pipeline --nproc 2
    train sliced --model base --base q4_0 --slices 2
    same sliced --model base --base q4_0 --strategy tp --nproc 2
    as sliced --model as-q4_0 --base f32 --slices 2
}

# Under --amp, what products alone read is held in its 16 bits, as it was read before.
halves_are_held() {
    train all --model base --amp bf16 --base f32 --seed 4
    train few --model base --amp bf16 --seed 4
    as all --model base --amp bf16 --seed 4
    same few --model base --amp bf16 --seed 4 --strategy fsdp --nproc 2
    same few --model base --amp bf16 --seed 4 --strategy ddp --nproc 2
}

# A validation or a checkpoint between steps exchanges weights for their averages, but none that are
# held: these were rounded like floats.
averages_leave_it() {
    local args=(--model base --lora r=2 --batch-size 4 --microbatches 2 --steps 5 --no-eval --json)
    for how in "--base q8_0 --ema 0.9" "--amp bf16 --swa 2"; do
        # shellcheck disable=SC2086 # words
        good train "${args[@]}" $how text && mv out calm
        # shellcheck disable=SC2086
        good train "${args[@]}" $how --eval-every 2 --eval-batches 1 text
        same_run calm out
        rm -rf averaged
        # shellcheck disable=SC2086
        good train "${args[@]}" $how --strategy fsdp --nproc 2 --save averaged --save-every 2 \
            --save-keep 9 text
        same_run calm out
        good train --json --resume averaged/step-00000002 --strategy single
        same_run calm out 3
    done
}

# Scalers and workers look at the weights that are trained.
scaled_and_apart() {
    train one --model base --amp fp16 && same one --model base --amp fp16 --strategy fsdp --nproc 2
    for how in diloco:every=2 local-sgd:every=2; do
        train one --model base --amp bf16 --strategy "$how" --nproc 2
        as one --model base --amp bf16 --strategy "$how" --nproc 2
    done
    train one --model base --amp bf16 --strategy hogwild --nproc 2
}

goes_on() {
    train whole --model base --base q4_0 --save saved --save-every 2 --save-keep 2
    good train --json --resume saved/step-00000002 && mv out rest
    same_run whole rest 3
    good eval --json saved text && cp out loss
    good export saved merged --format hf
    good eval --json merged text
    [ "$(field loss out | cut -c1-7)" = "$(field loss loss | cut -c1-7)" ] ||
        fail 'merged otherwise'
    good export saved adapter --format peft
    good train --quiet --model base --adapter adapter --steps 1 --no-eval text
    good generate saved --prompt 'the sea' --tokens 4
    good checkpoint verify saved
}

# bytes ARG...: the most that the device held.
bytes() {
    good train --json --strategy single --batch-size 1 --steps 2 --no-eval --lora r=2 \
        --recompute "$@" \
        --model llama:layers=6,heads=4,kv_heads=4,width=512,hidden=1024,context=8,vocab=64 random &&
        sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' out | tail -1
}

# 6 layers of 2,621,440 weights: 32, 16, 8.5 and 4.5 bits each. Sizes of blocks of memory below
# 1 MiB have four steps per octave.
saves_memory() {
    local all saved
    all=$(bytes)
    rm -rf kept
    saved=$(bytes --save kept --save-every 1) # frozen weights have no state to save
    [ "$saved" = "$all" ] || fail "$saved bytes with --save, $all without"
    for pair in bf16:16 q8_0:8.5 q4_0:4.5 q4_K:4.5; do
        local few saved
        few=$(bytes --base "${pair%:*}")
        saved=$(awk "BEGIN { print int(6 * 2621440 * (32 * 0.98 - ${pair#*:} * 1.2) / 8) }")
        [ $((all - few)) -ge "$saved" ] || fail "${pair%:*}: $few bytes beside $all"
    done
}

# Where a job does not fit, the message has a base or a context with which it does, and a base that
# does not fit either is no crash.
is_advised() {
    local wide=llama:layers=2,heads=4,width=128,hidden=512,context=16 why='one sample fits: '
    local job=(train --strategy single --batch-size 1 --steps 2 --no-eval --quiet text)
    choir "${job[@]}" --model $wide --lora r=2 --mem-cap 1500K >out 2>err && fail 'it fits'
    has err "$why--base q8_0 or a larger --mem-cap would"
    good "${job[@]}" --model $wide --lora r=2 --mem-cap 1500K --base q8_0
    for cap in 100K 200K 300K 900K; do
        choir "${job[@]}" --model $wide --lora r=2 --mem-cap $cap >out 2>err && fail "$cap fits"
        has err "$why(a smaller model|--base q4_0) or a larger --mem-cap would"
    done
    wide=llama:layers=1,heads=4,width=32,context=256,hidden=64
    choir "${job[@]}" --model $wide --mem-cap 700K >out 2>err && fail 'it fits'
    has err "$why--model llama:layers=1,heads=4,width=32,context=[0-9]+,hidden=64 or a larger"
    good "${job[@]}" --mem-cap 700K --model "$(sed -n 's/.*--model \([^ ]*\) or.*/\1/p' err)"
}

is_refused() {
    local job=(train --quiet --steps 1 --model "$small" text)
    bad 2 "unknown value 'q3_K' .*: choose one of f32, f16, bf16, q8_0, q4_0, q4_K" "${job[@]}" \
        --base q3_K
    bad 1 '--base q4_0 is for frozen weights of linear layers, and the model has none' "${job[@]}" \
        --base q4_0
    bad 1 "2 slices of a row of '.*o_proj.weight', 64 values, are not whole blocks of q4_0" train \
        --quiet --steps 1 --model llama:layers=1,heads=4,width=64,context=16 text --lora r=2 \
        --base q4_0 --strategy tp --nproc 2
    bad 1 'was trained with --base q4_0: it cannot continue with q8_0' train --quiet \
        --resume saved --steps 4 --base q8_0
}

check make_folders
check types_have_their_values
check strategies_agree
check halves_are_held
check averages_leave_it
check scaled_and_apart
check goes_on
check writes
check saves_memory
check is_advised
check is_refused
finish
