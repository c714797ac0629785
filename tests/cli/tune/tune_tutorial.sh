#!/usr/bin/env bash
# Ray Tune's tutorial as one command, on a tenth of the images: ASHA over the sizes of two layers,
# the learning rate and the batch size, in epochs, a checkpoint per trial, and the best trial
# tested on images that no trial has seen. The same parts on one and on two places.
. "$(dirname "$0")/../lib.sh"
images=${CHOIR_TEST_DATA-}/cifar10
[ -d "$images/train" ] || skip "there is no folder $images (CHOIR_TEST_DATA)"

for split in train test; do
    for class in "$images/$split"/*; do
        folder=cifar10/$split/${class##*/}
        mkdir -p "$folder"
        find "$class" -name '*0.jpg' | sort | head -20 | while read -r file; do
            ln -s "$file" "$folder/"
        done
    done
done

tutorial() {
    local places
    for places in 1 2; do
        good tune --json --dir search$places --trials 4 --parallel $places --window 2 \
            --sampler random --scheduler asha:min=1,max=4,eta=2 --unit epoch \
            --metric eval_accuracy:max --space 'l1=choice(4,8,16,32)' --space 'l2=choice(4,8,16)' \
            --space 'lr=log(1e-4,1e-1)' --space 'batch-size=choice(4,8,16)' \
            --test "$CHOIR eval --json {dir}/checkpoint/latest cifar10" -- \
            "$CHOIR" train --strategy single --model 'lenet:l1={l1},l2={l2}' \
            --optimizer sgd:momentum=0.9 --epochs 4 --eval-epochs 1 cifar10/train
        sed 's/,"seconds":[0-9.]*//' out >parts$places
    done
    cmp -s parts1 parts2 || fail "other parts on two places: $(diff parts1 parts2)"
    [ "$(grep -c '"event":"trial".*"step":1,"unit":"epoch"}' parts1)" = 4 ] ||
        fail "first epochs: $(cat parts1)"
    has parts1 '"state":"PRUNED",.*"step":2,"unit":"epoch"\}' \
        '"state":"COMPLETE",.*"step":4,"unit":"epoch"\}' '"event":"best"'
    # The test has seen all images of test/, 20 per class.
    tail -1 parts1 | grep -qE '^\{"event":"eval",.*"accuracy":.*"samples":200,?' ||
        fail "no test: $(tail -1 parts1)"
}

epochs() {
    good train --json --strategy single --model lenet --batch-size 60 --epochs 2 --eval-epochs 1 \
        cifar10/train
    has out '"event":"eval","step":3,"epoch":1,' '"event":"summary",.*"steps":6,.*"epochs":2,'
    # Each epoch has a line, the last one, too: of the batches that the others are on.
    good train --json --strategy single --model lenet --batch-size 60 --epochs 2 --eval-epochs 1 \
        --save lines cifar10/train
    [ "$(sed -n 's/.*"event":"eval".*"epoch":\([0-9]*\).*/\1/p' out | tr '\n' ' ')" = '1 2 ' ] ||
        fail "$(cat out)"
    [ "$(grep '"event":"eval"' out | tail -n 1 | sed 's/.*"loss":\([^,]*\).*/\1/')" = \
        "$(field eval_loss out)" ] || fail "$(cat out)"
    [ "$(grep -c '"event":"eval"' lines/events.jsonl)" = 2 ] || fail "$(cat lines/events.jsonl)"
    good train --json --strategy single --model lenet --batch-size 60 --epochs 2 --eval-epochs 1 \
        --eval-batches 1 --save few cifar10/train
    [ "$(grep '"event":"eval"' out | sed 's/.*"loss":\([^,]*\).*/\1/' | cut -c 1-8)" = \
        "$(sed -n 's/.*"event":"eval".*"loss":\([^,]*\).*/\1/p' few/events.jsonl | cut -c 1-8)" ] ||
        fail "$(cat out few/events.jsonl)"
    bad 2 'choose one of them' train --eval-every 3 --eval-epochs 1 --model lenet cifar10/train
}

wrong() {
    local s=(tune --space x=1)
    bad 2 "the space has no parameter 'y'" "${s[@]}" --test 'echo {y}' -- echo {x}
    bad 2 "expected quotes that are closed, got 'echo .'" "${s[@]}" --test "echo '" -- echo {x}
    choir "${s[@]}" --quiet --test "sh -c 'echo tested {x}; exit 3'" -- \
        sh -c 'echo "{\"eval_loss\":1}"' {x} >out 2>err
    [ $? = 1 ] || fail 'status of a test that fails'
    has out '^tested 1$'
    is_one_line 'choir tune: --test: sh failed' || fail "$(cat err)"
}

check epochs
check tutorial
check wrong
finish
