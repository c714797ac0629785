#!/usr/bin/env bash
# A GPU and a CPU in one run. Each adds in its own order, so equal bits are not promised between
# the two kinds; strategies that cut the model alike do have equal bits.
. "$(dirname "$0")/../cli/lib.sh"

make_text text 200

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 2 --batch-size 8 --steps 3 --no-eval "$@" && mv out "$file"
}

# stages CUT DEVICES ARG...: a model over devices of both kinds. Cuts found by measuring differ
# from run to run, and so do the ops that run on the other kind, with other bits.
stages() {
    local cut=$1
    shift
    train a --strategy "mp:cuts=$cut" --devices "$@" || return
    train b --strategy "pipeline:cuts=$cut" --devices "$@" || return
    same_run a b
}
for devices in cuda:0,cpu:0 cpu:0,cuda:0; do
    check stages transformer.h.0 $devices --model "$gpt" text
    # the factor goes from one to the other
    check stages transformer.h.0 $devices --clip 0.5 --model "$gpt" text
    check stages 2+0 $devices --clip 0.5 --model toy random
    check stages transformer.h.0 $devices --optimizer lamb --clip 0.5 --model "$gpt" text
done
check stages transformer.h.0 cuda:0,cpu:0 --amp fp16 --model "$gpt" text

# Replicas read each other's memory.
replicas() {
    local devices
    for devices in cuda:0,cpu:0 cpu:0,cuda:0; do
        bad 1 "cpu:0 cannot read cuda:0's memory: take devices of one kind" \
            train --strategy dp --devices "$devices" --model "$gpt" --steps 1 text
    done
}
check replicas

# Known answers are of processors: GPUs get a hash, which equal ones share, and no verdict.
checked() {
    good check --quick --json || return
    has out '"device":"cuda:0","bits":"cuda","ok":null,"hash":"[0-9a-f]{16}"' \
        '"event":"checked",.*"faults":0[}]'
    [ "$(grep '"device":"cuda:' out | grep -o '"hash":.*' | sort -u | wc -l)" -eq 1 ] ||
        fail "equal GPUs, other hashes: $(cat out)"
}
check checked
finish
