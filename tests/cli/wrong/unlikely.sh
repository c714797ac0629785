#!/usr/bin/env bash
# Options that are valid and hardly meant, and words that nearly are one: the command says so.
. "$(dirname "$0")/../lib.sh"

make_text text 60
lm=(--quiet --no-eval --batch-size 4 --steps 2 --model "$gpt")
toy=(--model toy --batch-size 4 --steps 3)

notes() {
    cp text d.xml
    noted 'd.xml is trained on as plain text' train "${lm[@]}" d.xml
    good train "${lm[@]}" text
    noted 'warm-up of 100 steps and --steps 3: the rate never reaches --lr 0.001' \
        train --quiet "${toy[@]}" --schedule cosine:warmup=100 random
    good train --quiet "${toy[@]}" --schedule cosine:warmup=2 random
    good train "${toy[@]}" --strategy ddp random
    has out 'ddp on 1 rank \(--nproc N starts more\)'
    good train "${toy[@]}" --strategy ddp --nproc 1 random
    grep -q 'starts more' out && fail "a number that was asked for is explained: $(cat out)"
    good train "${toy[@]}" --threads 100 random
    has out '100 threads per device take turns on'
    noted 'the ranks on cpu:0 take turns' train --quiet "${toy[@]}" --strategy ddp \
        --devices cpu:0,cpu:0 random
    good train --quiet "${toy[@]}" --strategy ddp --devices cpu:0,cpu:1 random
}

near_words() {
    bad 2 "unknown option '--stesp'; did you mean '--steps'" train --stesp 3
    bad 2 "unknown option '--leaning'" train --leaning 3
    grep -q 'did you mean' err && fail "far-fetched: $(cat err)"
    bad 2 "unknown strategy 'fdsp' \(did you mean 'fsdp'\?\): choose one of" \
        train --strategy fdsp
    bad 2 "unknown model 'gtp2' \(did you mean 'gpt2'\?\): choose one of" train --model gtp2
    bad 2 "unknown optimizer 'adamx' \(did you mean" train --optimizer adamx
    bad 2 "unknown option 'layer' \(did you mean 'layers'\?\)" train --model gpt2:layer=2
    bad 2 "unknown command 'trian' \(did you mean 'train'\?\)" trian
    local gpt=gpt2:layers=1,heads=2,width=16,context=12,vocab=20
    bad 1 '5 does not divide the context of 12 tokens: choose 1, 2, 3, 4, 6 or 12' \
        train --chunks 5 --model $gpt random
    bad 1 '2 ranks do not divide 3 chunks: choose --chunks 4' \
        train --strategy cp --nproc 2 --chunks 3 --model $gpt random
    bad 1 '--chunks 2: expected a model that works token by token' \
        train --chunks 2 --model toy random
    bad 1 'strategy dp does not cut sequences' train --strategy dp --chunks 2 --model $gpt random
    mkdir -p loose && : >loose/a.jpg
    bad 1 'folders of their classes' train --model cnn --steps 1 loose
}

# Each type of 16 bits has two names, in either command.
two_names() {
    choir train --json "${toy[@]}" --amp f16 --save half random >out 2>err || fail "$(cat err)"
    has out '"amp":"fp16"'
    good checkpoint convert --dtype fp16 half other
    good checkpoint inspect other
    has out ' f16 '
}

# The rate of each step is in the output, and follows the schedule.
rates() {
    good train --json "${toy[@]}" --lr 0.01 --schedule linear:steps=2 random
    [ "$(sed -n 's/.*"event":"step".*"lr":\([^,}]*\).*/\1/p' out | tr '\n' ' ')" = \
        '0.01 0.005 0 ' ] || fail "rates: $(grep -o '"lr":[^,}]*' out)"
    good train "${toy[@]}" --lr 0.01 random
    has out 'loss [0-9.]*  lr 0.01 '
}

# On a narrow terminal a line stays on one row, and some lines stay when the job is over.
terminal() {
    command -v script >/dev/null || { echo 'no script(1), which makes a terminal'; return; }
    script -qec "stty cols 40; $CHOIR train ${toy[*]} --steps 60 random" /dev/null >typed </dev/null
    [ "$(tr '\r' '\n' <typed | sed 's/\x1b\[K//' | grep '^step ' | awk '{ print length($0) }' |
        sort -n | tail -n 1)" -le 40 ] || fail "wider than 40: $(cat -v typed)"
    [ "$(grep -c 'step .*loss' typed)" -ge 15 ] || fail "no history: $(cat -v typed)"
}

# Too few descriptors for two ranks, whichever of them finds out: no smaller micro-batch would help.
no_advice_on_memory() {
    for files in 9 10 11 12; do
        (ulimit -n $files && choir train "${lm[@]}" --strategy ddp --nproc 2 text) >out 2>err ||
            grep -q 'ulimit -n' err || fail "with $files files, no limit is named: $(cat err)"
        ! grep -q micro-batch err || fail "with $files files: $(cat err)"
    done
    (ulimit -n 14 && choir run -n 2 true) >out 2>err
    has err 'no pipe.*may have 14 .ulimit -n'
}

# Nor would it on a disk that is full.
full_disk() {
    mkdir -p small
    mount -t tmpfs -o size=64k none small 2>/dev/null || { echo 'cannot mount here'; return; }
    bad 1 "optimizer's state in 'small': No space left.*another disk" \
        train "${lm[@]}" --optimizer adamw --offload small text
    ! grep -q micro-batch err || fail "$(cat err)"
    bad 1 "cannot store [0-9]+ bytes for .* in 'small': No space left.*another disk" \
        train "${lm[@]}" --strategy fsdp --nproc 2 --offload params:small text
    ! grep -q micro-batch err || fail "$(cat err)"
    bad 1 "cannot store [0-9]+ bytes for .* in 'small': No space left.*another disk" \
        train "${lm[@]}" --microbatches 4 --batch-size 8 --strategy fsdp+pipeline --mesh 2x2 \
        --offload params:small text
    umount small
}

off_load() {
    bad 1 "shards cannot go to a file in 'nowhere': No such file" \
        train "${lm[@]}" --strategy fsdp --nproc 2 --offload params:nowhere text
    bad 2 'shards no parameters: choose fsdp' train --strategy ddp --offload params text
    bad 1 'off-load in stage 1.*choose stage 3' \
        train "${lm[@]}" --strategy fsdp:stage=1 --offload params text
}

check no_advice_on_memory
check full_disk
check off_load
check notes
check near_words
check two_names
check rates
check terminal
finish
