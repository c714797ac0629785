#!/bin/bash
# FSDP over MPI, whose ranks share no memory: weights are gathered, also when some ranks have
# one micro-batch less, and equal those of one device bit for bit.
. "$(dirname "$0")/lib.sh"
train=("$CHOIR" train --json --model gpt2:layers=2,width=24,heads=2,context=16 --microbatches 4
    --batch-size 8 --steps 3 --no-eval)
sum=$("${train[@]}" random | sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p')
[ -n "$sum" ] || { echo "one device has no weights"; exit 1; }
export CHOIR_BACKEND=mpi CHOIR_CPU_DEVICES=4

fsdp() {
    local n
    for n in 2 3; do
        good "$n" "${train[@]}" --strategy fsdp random
        expect 1 "\"weights_sha256\":\"$sum\""
    done
}
each_mpi fsdp
finish
