#!/bin/bash
# Loading photographs: CPU time an image at 224 x 224, beside torchvision (PHOTOS=FOLDER of JPEGs).
set -uo pipefail
source bench/lib.inc
machine
photos=${PHOTOS:-../shared/data/photos}
set -- "$photos"/*.JPEG
[ -f "$1" ] || { echo "skipped: no *.JPEG in $photos; name a folder with PHOTOS="; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for file; do # a class each, by the head of the name
    class=$(basename "$file") && class=${class%%_*}
    mkdir -p "$folder/train/$class"
    ln -s "$(realpath "$file")" "$folder/train/$class/"
done

# Alternated, the least of each: other work on the machine disturbs both alike.
for _ in 1 2 3; do
    build/choir_bench_images "$folder" 224 8 | sed 's/^/choir_/'
    "$python" -c 'import torchvision' 2>/dev/null &&
        OMP_NUM_THREADS=1 "$python" bench/peers/torch_images.py "$folder" 224 8 | sed 's/^/torch_/'
done | sort -k1,1 -k2,2g | awk '!($1 in least) { least[$1] = $2; names[++n] = $1 }
    END {
        for (i = 1; i <= n; i++)
            printf "%-18s %7.3f ms   %6.0f images/s\n", names[i], least[names[i]],
                1e3 / least[names[i]]
        for (i = 1; i <= n; i++)
            if (names[i] ~ /^torch_/)
                printf "choir_train is %.2f times as fast as %s\n",
                    least[names[i]] / least["choir_train"], names[i]
    }'
