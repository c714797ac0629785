#!/bin/bash
# Checkpoints: saves and loads beside the disk's own rates, and steps beside an asynchronous save.
#
#   FOLDER=.   RANKS="1 2"   MODEL=gpt2:layers=12,vocab=8192   ROUNDS=5
set -euo pipefail
source bench/lib.inc
machine
folder=$(mktemp -d "${FOLDER:-.}/choir-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
for ranks in ${RANKS:-1 2}; do
    choir_bench_checkpoint "$folder" "$ranks" "${MODEL:-gpt2:layers=12,vocab=8192}" "${ROUNDS:-5}"
done
