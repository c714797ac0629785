#!/bin/bash
# Records and augmentation: MB/s of JSONL and CSV on a core, changes of images beside torchvision.
set -uo pipefail
source bench/lib.inc
machine
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Alternated, the best of each: other work on the machine disturbs all alike.
build/choir_bench_records "$folder" >"$folder/ours"
for _ in 1 2 3; do
    build/choir_bench_records >>"$folder/ours"
    "$python" -c 'import torchvision.transforms.v2' 2>/dev/null &&
        "$python" bench/peers/torch_augment.py >>"$folder/theirs"
done
grep MB/s "$folder/ours"
touch "$folder/theirs"
awk '$3 == "ms" { key = FILENAME ~ /ours/ ? "ours" : "theirs"
        if (!((key, $1) in best) || $2 < best[key, $1]) best[key, $1] = $2
        if (!($1 in seen)) { seen[$1] = 1; names[++n] = $1 } }
    END { for (i = 1; i <= n; i++) {
            printf "%-14s %7.3f ms", names[i], best["ours", names[i]]
            if (("theirs", names[i]) in best)
                printf "   torchvision %7.3f ms, %.1f times as long", best["theirs", names[i]],
                    best["theirs", names[i]] / best["ours", names[i]]
            printf "\n" } }' "$folder/ours" "$folder/theirs"
