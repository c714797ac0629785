#!/bin/bash
# DiLoCo and local SGD beside DDP at the same tokens: validation loss, bytes moved.
# TEXT=FILE, RANKS=2, STEPS=2000, EVERY=50 (steps between meetings), OUTER=outer_lr=1,momentum=0.5
set -uo pipefail
source bench/lib.inc
machine
text=${TEXT:-../shared/data/text/tinyshakespeare.txt} ranks=${RANKS:-2} steps=${STEPS:-2000}
every=${EVERY:-50} outer=${OUTER:-outer_lr=1,momentum=0.5}
[ -f "$text" ] || { echo "skipped: there is no $text; name one with TEXT=FILE"; exit 0; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
echo "$ranks ranks, $steps steps of 12 x 64 tokens"
for strategy in ddp "diloco:every=$every,$outer" "diloco:every=$every,$outer,wire=bf16" \
    "diloco:every=$every" "local-sgd:every=$every"; do
    choir train --model gpt2:layers=4,heads=4,width=128,context=64 --batch-size 12 \
        --microbatches "$ranks" --nproc "$ranks" --strategy "$strategy" --steps "$steps" \
        --optimizer adamw:beta2=0.99 --lr 1e-3 --schedule cosine:warmup=100,min_lr=1e-4 \
        --json --log-every 1000000 "$text" | tail -1 >"$out"
    loss=$(field eval_loss <"$out") bytes=$(field comm_bytes <"$out")
    if [ "$strategy" = ddp ]; then ddp_loss=$loss ddp_bytes=$bytes; fi
    printf '%-52s validation loss %.4f (%s of ddp), %7.1f MiB a rank (1/%s)\n' "$strategy" \
        "$loss" "$(digits=4 calc "$loss / $ddp_loss")" "$(digits=1 calc "$bytes / 1048576")" \
        "$(digits=1 calc "$ddp_bytes / $bytes")"
done
