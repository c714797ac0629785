#!/usr/bin/env bash
# Models learn real data: MNIST and CIFAR-10 with a small convolutional network, Shakespeare
# with a small transformer.
. "$(dirname "$0")/lib.sh"

data=${CHOIR_TEST_DATA:-}
[ -d "$data/mnist" ] && [ -f "$data/text/tinyshakespeare.txt" ] ||
    skip 'no data: CHOIR_TEST_DATA names a folder with mnist/ and text/tinyshakespeare.txt'

# at_least X LOW, below X HIGH: of decimal numbers.
at_least() { awk -v x="$1" -v low="$2" 'BEGIN { exit !(x >= low) }'; }
below() { awk -v x="$1" -v high="$2" 'BEGIN { exit !(x != "" && x < high) }'; }

mnist() {
    good train --json --model cnn:width=8 --strategy ddp --nproc 2 --batch-size 64 --steps 150 \
        --lr 3e-3 --save saved "$data/mnist"
    at_least "$(field eval_accuracy out)" 0.85 || fail "accuracy $(field eval_accuracy out)"
    mv out run
    good eval --json --batch-size 32 saved "$data/mnist"
    [ "$(field loss out)" = "$(field eval_loss run)" ] ||
        fail "eval says $(field loss out), train said $(field eval_loss run)"
}

shakespeare() {
    good train --json --model gpt2:layers=2,heads=2,width=64,context=32 --strategy ddp --nproc 2 \
        --steps 60 --lr 3e-3 --save plays "$data/text/tinyshakespeare.txt"
    below "$(field eval_loss out)" 3.0 || fail "eval_loss $(field eval_loss out)"
    good generate plays --tokens 20 --prompt 'To be'
    [ "$(wc -c <out)" -ge 26 ] || fail "it writes '$(cat out)'"
}

cifar10() {
    [ -d "$data/cifar10/train" ] || return 0
    good train --json --model cnn --batch-size 64 --steps 150 --eval-batches 10 \
        --workers 2 "$data/cifar10"
    at_least "$(field eval_accuracy out)" 0.33 || fail "accuracy $(field eval_accuracy out)"
}

check mnist
check cifar10
check shakespeare
finish
