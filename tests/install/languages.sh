#!/bin/sh
# Every header compiles by itself, without a warning, in each standard of C and C++ that programs
# use, with each compiler that is installed; and a program in it runs. A status that is not looked
# at is a warning.
#   languages.sh INCLUDE libchoir.so
set -eu
include=$1 library=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/choir-languages.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/program.c" <<'END'
#include <choir/choir.h>
#include <stdio.h>
int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *net =
        choir_nn_sequential(run, choir_nn_linear(run, 4, 8), choir_nn_relu(run));
    choir_scope *step = choir_step_open(run, 0);
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(2, 4));
    choir_tensor *y = choir_sum(choir_forward(net, x));
    choir_check(choir_backward(y));
    printf("%d %d\n", choir_tensor_ndim(x), choir_tensor_ndim(y));
    choir_check(choir_scope_close(step));
    choir_check(choir_scope_close(run));
    return 0;
}
END
cp "$work/program.c" "$work/program.cc"
cat >"$work/ignores.c" <<'END'
#include <choir/choir.h>
void f(choir_tensor *t);
void f(choir_tensor *t) { choir_backward(t); }
END
for header in "$include"/choir/*.h; do
    echo "#include <choir/${header##*/}>"
done >"$work/each"
flags="-Wall -Wextra -pedantic-errors -Werror -I$include"
tried=0
try() { # COMPILER STANDARD SOURCE
    command -v "$1" >/dev/null || { echo "$1 is missing"; return 0; }
    # shellcheck disable=SC2086
    while read -r line; do
        [ "$2" = c11 ] || [ "$2" = c++17 ] || break # each header alone; choir.h has them all
        echo "$line" | "$1" -std="$2" $flags -fsyntax-only -x "$4" - ||
            { echo "$1 -std=$2: $line"; exit 1; }
    done <"$work/each"
    # shellcheck disable=SC2086
    "$1" -std="$2" $flags "$work/$3" -o "$work/program" "$library" -Wl,-rpath,"${library%/*}"
    [ "$("$work/program")" = "2 0" ] ||
        { echo "$1 -std=$2: the program prints other numbers"; exit 1; }
    tried=$((tried + 1))
    echo "$1 -std=$2"
}
for std in c99 c11 c17 c2x; do
    try gcc $std program.c c
    try clang $std program.c c
done
for std in c++17 c++20; do
    try g++ $std program.cc c++
    try clang++ $std program.cc c++
done
[ $tried -gt 0 ] || { echo "skipped: no compiler (install gcc)"; exit 77; }
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    # shellcheck disable=SC2086
    if $compiler -std=c11 $flags -c "$work/ignores.c" -o /dev/null 2>/dev/null; then
        echo "$compiler does not warn of a status that is not looked at"
        exit 1
    fi
done
