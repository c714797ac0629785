#!/bin/bash
# A small ResNet on 10,000 images of CIFAR-10, tested on 2,000: accuracy, seconds (CIFAR10=FOLDER).
set -uo pipefail
source bench/lib.inc
machine
data=${CIFAR10:-../shared/data/cifar10}
[ -d "$data" ] || { echo "skipped: there is no $data; name a folder with CIFAR10=FOLDER"; exit 0; }
ranks=$((cores < 2 ? 1 : 2))
begin=$(date +%s.%N)
summary=$(choir train --model resnet18:small=1,width=32,stages=3,blocks=1 --strategy ddp \
    --nproc $ranks --microbatches 2 --batch-size 64 --epochs "${EPOCHS:-20}" \
    --optimizer sgd:momentum=0.9,nesterov=1 --lr 0.1 --weight-decay 5e-4 \
    --schedule cosine:warmup=300 --json --log-every 1000000 "$data" | tail -1)
printf 'accuracy %.2f %%   loss %.3f   %.0f s on %d ranks\n' \
    "$(calc "100 * $(field eval_accuracy <<<"$summary")")" "$(field eval_loss <<<"$summary")" \
    "$(calc "$(date +%s.%N) - $begin")" $ranks
