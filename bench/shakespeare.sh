#!/bin/bash
# The small GPT on a text for 2,000 steps: the validation loss over the whole split (TEXT=FILE).
set -uo pipefail
source bench/lib.inc
machine
text=${TEXT:-../shared/data/text/tinyshakespeare.txt}
[ -f "$text" ] || { echo "skipped: there is no $text; name one with TEXT=FILE"; exit 0; }
for strategy in "single" "ddp --nproc 2"; do
    # shellcheck disable=SC2086
    choir train --model gpt2:layers=4,heads=4,width=128,context=64 --batch-size 12 \
        --microbatches 2 --steps 2000 --optimizer adamw:beta2=0.99 --lr 1e-3 \
        --schedule cosine:warmup=100,min_lr=1e-4 \
        --strategy $strategy --json --log-every 1000000 "$text" | tail -1 >/tmp/choir-shakespeare.$$
    printf '%-14s validation loss %.4f   %.2f ms a step   weights %.16s\n' "$strategy" \
        "$(field eval_loss </tmp/choir-shakespeare.$$)" \
        "$(field step_ms_median </tmp/choir-shakespeare.$$)" \
        "$(sed 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/' /tmp/choir-shakespeare.$$)"
    rm -f /tmp/choir-shakespeare.$$
done
