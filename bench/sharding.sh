#!/bin/bash
# Memory and time of sharded training on ranks of this machine, beside DDP.
#
# First gpt2 and bert on 2 and 4 ranks: a rank's proportional resident memory (PSS) against the
# bound 16/N bytes a parameter + the largest unit's parameters and gradients + activations, and
# throughput as a share of DDP's. Then, for each strategy, the deepest gpt2 (layers of width 768,
# 128 tokens) that trains in pools of POOL bytes a device, by bisection. A step has a sample per
# device, at least two, each a micro-batch; a job has six steps, which a pipeline measures, plans,
# and records.
#
#   MODELS='gpt2:context=128 bert:context=128'   RANKS='2 4'   ROUNDS=5   POOL=1G   LAYERS=32
#
# Off-loaded parameters fill the machine's memory, 113 MB a layer, so no job has more than LAYERS.
set -uo pipefail
source bench/lib.inc
machine
for model in ${MODELS-gpt2:context=128 bert:context=128}; do
    for ranks in ${RANKS-2 4}; do
        echo "$model, $ranks ranks, a sample each"
        choir_bench_sharding "$model" "$ranks" "$ranks" "${ROUNDS:-5}"
    done
done

pool=${POOL-1G}
[ -n "$pool" ] || exit 0
export CHOIR_CPU_DEVICES=4
fits() { # LAYERS ARGUMENTS...
    local layers=$1 samples=2
    shift
    case "$*" in *'--nproc 4'* | *cpu:0-3* | *2x2*) samples=4 ;; esac
    choir train random --model "gpt2:layers=$layers,context=128" --batch-size "$samples" \
        --microbatches "$samples" --steps 6 --no-eval --quiet --mem-cap "$pool" "$@" >/dev/null 2>&1
}
most=${LAYERS-32}
deepest() { # ARGUMENTS...: the most layers that fit, by bisection; no more than `most`
    local low=0 high=1 middle
    while ((high <= most)) && fits "$high" "$@"; do low=$high high=$((high * 2)); done
    ((high <= most)) || high=$((most + 1))
    while ((high - low > 1)); do
        middle=$(((low + high) / 2))
        if fits "$middle" "$@"; then low=$middle; else high=$middle; fi
    done
    echo "$low"
}
echo "the deepest gpt2 in pools of $pool"
printf '%-34s %8s %14s\n' strategy layers parameters
for line in single 'ddp --nproc 2' 'fsdp:stage=1 --nproc 2' 'fsdp:stage=2 --nproc 2' \
    'fsdp --nproc 2' 'fsdp --nproc 2 --recompute' 'fsdp --nproc 4' 'fsdp --nproc 4 --recompute' \
    'fsdp --nproc 2 --offload params' 'fsdp --nproc 4 --offload params' \
    'pipeline --devices cpu:0-1' 'pipeline --devices cpu:0-1 --recompute' \
    'pipeline --devices cpu:0-3' 'pipeline --devices cpu:0-3 --recompute' \
    'fsdp+pipeline --mesh 2x2'; do
    # shellcheck disable=SC2086
    layers=$(deepest --strategy $line)
    printf '%-34s %8d %14d\n' "$line" "$layers" \
        $((50257 * 768 + 128 * 768 + 1536 + layers * 7087872))
done
