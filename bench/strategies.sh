#!/bin/bash
# A step of ResNet-50 on two devices of one core under every strategy of one process, beside one
# device of one core: the set-up of PyTorch's tutorial on model parallelism (batch 120, split
# into 6 of 20), at 64 x 64 pixels unless MODEL says otherwise.
#
# "bound" is the schedule simulated with the stages' times as they were measured in this run, "of
# it" the share that was reached; behind the idle shares stands the schedule's formula. Then the
# same at other splits, what DataParallel moves, and PyTorch's own pipelines on the same cores.
#
#   MODEL=resnet50:image=64,classes=1000   DEVICES=2   BATCH=120   MICROS=6   ROUNDS=5
#   SPLITS='3 12 24'
set -uo pipefail
source bench/lib.inc
machine
model=${MODEL:-resnet50:image=64,classes=1000} devices=${DEVICES:-2} batch=${BATCH:-120}
micros=${MICROS:-6} rounds=${ROUNDS:-5}

echo "$model, batch $batch, $micros micro-batches, $devices devices"
choir_bench_strategies "$model" "$devices" "$batch" "$micros" "$rounds"
for m in ${SPLITS-3 12 24}; do
    echo "$m micro-batches"
    choir_bench_strategies "$model" "$devices" "$batch" "$m" "$rounds" zero-bubble 1f1b
done

echo "DataParallel's replicate, scatter, gather and sums: a step of $devices devices"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
list=$(seq -f 'cpu:%g' -s , 0 $((devices - 1)))
choir train --model "$model" --batch-size "$batch" --microbatches "$devices" --steps 8 --no-eval \
    --strategy dp --devices "$list" --trace "$out/trace" random |
    grep -E '^(kernel|copy|add_scaled|all) '

have_torch || { echo "PyTorch: none here"; exit 0; }
size=$(sed -n 's/.*image=\([0-9]*\).*/\1/p' <<<"$model")
"$python" bench/peers/torch_pipeline.py --image "${size:-224}" --batch "$batch" \
    --micro "$micros" --rounds "$rounds" 2>/dev/null
