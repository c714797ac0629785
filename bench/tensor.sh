#!/bin/bash
# Tensor parallelism on two ranks of one core each, beside DDP and one device, in turns.
#
#   MODEL=gpt2:layers=4,heads=8,width=512,context=128   BATCH=8   STEPS=12   ROUNDS=5
set -euo pipefail
source bench/lib.inc
machine
model=${MODEL:-gpt2:layers=4,heads=8,width=512,context=128} batch=${BATCH:-8} steps=${STEPS:-12}
rounds=${ROUNDS:-5}
for m in 2 1; do
    strategies=tp
    [ $m = 1 ] || strategies=ddp,tp
    echo "$model, batch $batch, $m micro-batches"
    CHOIR_CPU_DEVICES=2 choir compare --strategies "$strategies" --devices cpu:0-1 \
        --model "$model" --batch-size "$batch" --microbatches $m --steps "$steps" \
        --repeats "$rounds"
done
