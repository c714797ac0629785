#!/bin/bash
# gcc and clang, without optimisation and with all of it, also with a fused multiply-add, make
# programs with the same results of src/base/math/.
#   math_compilers.sh SOURCE_FOLDER
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/main.c" <<'C'
#include "math_hash.h"
int main(void)
{
    return hash_of_math() != HASH_OF_MATH;
}
C
tried=0
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    for options in -O0 "-O3 -march=native"; do
        # shellcheck disable=SC2086 # several options
        $compiler -std=gnu11 $options -ffp-contract=off "$folder/main.c" "$root"/src/base/math/*.c \
            -I"$root/src" -I"$root/include" -I"$root/tests" -o "$folder/program" -lm
        "$folder/program" || { echo "$compiler $options: other results"; exit 1; }
        tried=$((tried + 1))
    done
done
((tried)) || { echo "skipped: neither gcc nor clang is here"; exit 77; }
