#!/bin/bash
# Attention forward and backward on one core, GFLOP/s, beside PyTorch's and the rate of a product.
set -uo pipefail
source bench/lib.inc
machine
one="taskset -c 0"
echo "the matrix rate: $($one choir_bench_matmul_rate) GFLOP/s"
echo "heads tokens D mask   Choir forward, backward   PyTorch forward, backward"
shapes="4,64,32 12,64,64 4,256,64 12,256,64 12,1024,64 64,1024,64 4,4096,64 16,1024,128"
for shape in ${SHAPES:-$shapes}; do
    ours=$($one choir_bench_attention ${shape//,/ })
    if "$python" -c 'import torch' 2>/dev/null; then
        $one "$python" bench/peers/torch_attention.py <<<"$ours"
    else
        echo "$ours"
    fi
done
