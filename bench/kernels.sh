#!/bin/bash
# The rate of each kernel at the shapes of all models, in f32, bf16 and f16, into bench/seen/.
#
# Products, convolutions, attention and recurrent layers are timed in training steps of the
# registry's models (bench/shapes.c), on one core, by our own products; in f32 also by oneDNN's, in
# turns, where it is built in: the column has oneDNN's time over ours, so a number above 1 says that
# ours are faster. Below are the products alone beside oneDNN and torch.mm (script/bench products),
# and the kernels that are bound by memory. The file belongs to this kind of processor, and begins
# with what it was measured on: commit it. Takes five minutes on an idle machine, where alone it
# is worth reading.
#
#   ROUNDS=2     FILTER=gpt2: these models alone, on standard output instead of the file
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-2} filter=${FILTER:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
own=chain peer=$(onednn >/dev/null && echo onednn || echo chain)
case $(processor_key) in *-amx) half=amx ;; *) half=chain ;; esac

shapes() { # DTYPE MULTIPLIER OPTION...: the fields, DTYPE and MULTIPLIER first, to $work/all
    local dtype=$1 by=$2
    shift 2
    CHOIR_MATH=$by taskset -c 0 choir_bench_shapes --filter "$filter" --steps 2 "$@" |
        sed "s/^/$dtype $by /" >>"$work/all"
}

started=$(circumstances)
for ((i = 0; i < rounds; i++)); do
    shapes f32 $own
    [ $peer = $own ] || shapes f32 $peer
    shapes bf16 $half --amp bf16
    shapes f16 $own --amp fp16
done

# The least time of the rounds. A shape may have a comma and spaces, so fields are counted from
# the end of the line, too.
table() {
    awk '{
        shape = $5
        for (i = 6; i <= NF - 3; i++) shape = shape " " $i
        key = $3 " " $1 " " $4 " " shape
        us = $(NF - 1)
        if ($2 == "onednn") {
            if (!(key in peer) || us < peer[key]) peer[key] = us
            next
        }
        if (!(key in own)) order[++n] = key
        if (!(key in own) || us < own[key]) {
            own[key] = us; rate[key] = $NF
            line[key] = sprintf("%-9s %-5s %-21s %-34s %5d", $3, $1, $4, shape, $(NF - 2))
        }
    } END {
        printf "%-9s %-5s %-21s %-34s %5s %10s %8s %7s\n", "model", "dtype", "kernel", "shape",
            "calls", "us", "GFLOP/s", "oneDNN"
        for (i = 1; i <= n; i++) {
            k = order[i]
            printf "%s %10.1f %8.1f %7s\n", line[k], own[k], rate[k],
                k in peer ? sprintf("%.2f", peer[k] / own[k]) : "-"
            if (k in peer) { split(k, f, " "); logs[f[3]] += log(peer[k] / own[k]); of[f[3]]++ }
        }
        for (kernel in of)
            printf "geometric mean over oneDNN, f32: %-21s %.3f\n", kernel,
                exp(logs[kernel] / of[kernel])
    }' "$work/all"
}
if [ -n "$filter" ]; then
    table
    exit
fi
mkdir -p bench/seen
{ echo "$started"; table; } | put_section shapes
{ circumstances; CHOIR_MATH=$peer ROUNDS=1 bash bench/products.sh | tail -n +2; } |
    put_section products
{ circumstances; CHOIR_MATH=$own taskset -c 0 choir_bench_kernels; } | put_section kernels
echo "written: $seen"
