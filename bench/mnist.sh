#!/bin/bash
# A CNN on MNIST's 10,000 images (9,000 to train, 1,000 to validate): accuracy, seconds
# (MNIST=FOLDER).
set -uo pipefail
source bench/lib.inc
machine
data=${MNIST:-../shared/data/mnist}
[ -d "$data" ] || { echo "skipped: there is no $data; name a folder with MNIST=FOLDER"; exit 0; }
ranks=$((cores < 2 ? 1 : 2))
for seed in 1 2 3; do
    begin=$(date +%s.%N)
    summary=$(choir train --model cnn:width=32 --strategy ddp --nproc $ranks --microbatches 2 \
        --batch-size 128 --epochs 8 --optimizer adamw --lr 3e-3 --weight-decay 0.01 \
        --schedule cosine:warmup=50 --seed $seed --json --log-every 1000000 "$data" | tail -1)
    printf 'seed %d  accuracy %.2f %%   %.1f s on %d ranks\n' $seed \
        "$(calc "100 * $(field eval_accuracy <<<"$summary")")" \
        "$(calc "$(date +%s.%N) - $begin")" $ranks
done
