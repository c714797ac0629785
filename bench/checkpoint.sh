#!/bin/bash
# Checkpoints: the rate of a save beside the disk's own, and steps beside an asynchronous one.
#
# dd is run on the same disk before and after, for comparison with what the program measures.
#
#   FOLDER=.   RANKS="1 2"   MODEL=gpt2:layers=12,vocab=8192   ROUNDS=5
set -euo pipefail
source bench/lib.inc
machine
folder=$(mktemp -d "${FOLDER:-.}/choir-bench.XXXXXX")
trap 'rm -rf "$folder"' EXIT
disk() {
    dd if=/dev/zero of="$folder/dd" bs=16M count=64 conv=fsync 2>&1 | tail -n 1
    rm "$folder/dd"
}
disk
for ranks in ${RANKS:-1 2}; do
    choir_bench_checkpoint "$folder" "$ranks" "${MODEL:-gpt2:layers=12,vocab=8192}" "${ROUNDS:-5}"
done
disk
