#!/bin/bash
# How long a launcher takes to start and end two ranks of `true`, beside torchrun if it is there.
set -uo pipefail
source bench/lib.inc
machine
torchrun=${CHOIR_TORCHRUN:-$(command -v /usr/bin/torchrun torchrun | head -1)}
export OMP_NUM_THREADS=1

# ms COUNT COMMAND...: the median in milliseconds
ms() {
    local count=$1 from
    shift
    for ((i = 0; i < count; i++)); do
        from=$(date +%s%N)
        "$@" >/dev/null 2>&1 || { echo -; return; }
        echo "$(($(date +%s%N) - from))e-6"
    done | median
}

# Two agents that meet, on this machine.
two_nodes() {
    choir run --nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:29477 true &
    choir run --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:29477 true && wait $!
}

printf '%-44s %8.1f ms\n' 'choir run -n 2 true' "$(ms 31 choir run -n 2 true)"
printf '%-44s %8.1f ms\n' 'choir run -n 64 true' "$(ms 11 choir run -n 64 true)"
printf '%-44s %8.1f ms\n' 'choir run --nnodes 2, both here' "$(ms 11 two_nodes)"
# Where torchrun looks after its ranks every 5 s, as it does by default, it takes 5 s more. -r and
# -t: with Python 3.11, Debian's torchrun 1.13 stumbles over its own defaults.
if [ -n "$torchrun" ]; then
    printf '%-44s %8s ms\n' 'torchrun --standalone --nproc_per_node 2' \
        "$(digits=1 calc "$(ms 5 "$torchrun" --standalone --nproc_per_node 2 \
            --monitor_interval 0.01 -r 1 -t 1 --no_python true)")"
fi
