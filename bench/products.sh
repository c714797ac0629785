#!/bin/bash
# Products of our own beside oneDNN's and torch.mm, at the shapes of the models, on one core.
#
#   script/bench products [--isa avx2|amx] [--dtype bf16] [--filter gpt2]
#
# GFLOP/s, and the time of oneDNN and of torch.mm (f32; CHOIR_PYTHON names a Python with torch) over
# ours. The programs run in turns, ROUNDS (3) times; each number is the median of the rounds.
set -uo pipefail
source bench/lib.inc
machine
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ours=(taskset -c 0 choir_bench_products "$@")
"${ours[@]}" --list >"$work/list"
: >"$work/torch"
for ((i = 0; i < ${ROUNDS:-3}; i++)); do
    "${ours[@]}" >>"$work/ours"
    if "$python" -c 'import torch' 2>/dev/null; then
        taskset -c 0 "$python" bench/peers/torch_products.py "$@" <"$work/list" >>"$work/torch"
    fi
done
awk '
function middle(text, v, n, i, j, t) {
    n = split(text, v, " ")
    for (i = 1; i <= n; i++)
        for (j = i + 1; j <= n; j++)
            if (v[j] + 0 < v[i] + 0) { t = v[i]; v[i] = v[j]; v[j] = t }
    return n ? v[int((n + 1) / 2)] : 0
}
function over(peer, own) { return peer > 0 ? sprintf("%.2f", peer / own) : "-" }
FILENAME ~ /list$/ {
    order[++count] = $1; size[$1] = $2 " " $3 " " $4 " " $5; flops[$1] = 2e-3 * $2 * $3 * $4
}
FILENAME ~ /ours$/ { own[$1] = own[$1] " " $6; dnn[$1] = dnn[$1] " " $7 }
FILENAME ~ /torch$/ { torch[$1] = torch[$1] " " $2 }
END {
    printf "%-22s %-22s %8s %8s %8s\n", "product", "M N K layout", "GFLOP/s", "oneDNN", "torch.mm"
    for (i = 1; i <= count; i++) {
        name = order[i]; a = middle(own[name]); b = middle(dnn[name]); c = middle(torch[name])
        printf "%-22s %-22s %8.1f %8s %8s\n", name, size[name], flops[name] / a, over(b, a),
            over(c, a)
        if (b > 0) { logs_b += log(b / a); of_b++ }
        if (c > 0) { logs_c += log(c / a); of_c++ }
    }
    if (of_b) printf "geometric mean over oneDNN: %.3f\n", exp(logs_b / of_b)
    if (of_c) printf "geometric mean over torch.mm: %.3f\n", exp(logs_c / of_c)
}' "$work/list" "$work/ours" "$work/torch"
