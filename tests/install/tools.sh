#!/bin/bash
# Tools that users run their programs under have nothing to say of Choir: valgrind of a program that
# closes its run, and of choir train, and the thread sanitizer with the installed suppressions.
#   tools.sh PREFIX WORK-FOLDER BUILD-FOLDER
set -eu
prefix=$1 work=$2 build=$3
here=$(dirname "$0")
rm -rf "$work" && mkdir -p "$work"
libdir=$(dirname "$(find "$prefix" -name libchoir.so)")
compile() { # NAME FLAG...
    "${CC:-cc}" -g "${@:2}" -I"$prefix/include" -o "$work/$1" \
        "$here/../../examples/linear_fit.c" -L"$libdir" -lchoir -lm -Wl,-rpath,"$libdir"
}

compile raced -fsanitize=thread
TSAN_OPTIONS=suppressions=$prefix/share/choir/tsan.supp:exitcode=9 setarch -R "$work/raced" \
    >"$work/log" 2>&1 || { head -40 "$work/log"; exit 1; }

command -v valgrind >/dev/null || { echo "skipped: no valgrind (install valgrind)"; exit 77; }
compile plain
look() { # COMMAND...
    valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,possible \
        --show-leak-kinds=definite,possible --error-exitcode=9 "$@" >"$work/log" 2>&1 ||
        { tail -60 "$work/log"; exit 1; }
}
look "$work/plain"
look "$build/choir" train --model toy --steps 2 random
# The cost of a step, which a child sends through a pipe.
look "$build/choir" train --model lenet --batch-size 2 --steps 1 random
if grep -B2 -A9 'uninitialised byte' "$work/log"; then exit 1; fi
