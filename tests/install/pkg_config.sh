#!/bin/sh
# An outside program is compiled with what pkg-config says of the installed Choir, and runs.
#   pkg_config.sh PREFIX WORK-FOLDER
set -eu
prefix=$1 work=$2
rm -rf "$work" && mkdir -p "$work"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name choir.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir choir)
test "$(cd "$(pkg-config --variable=prefix choir)" && pwd)" = "$(cd "$prefix" && pwd)"

# shellcheck disable=SC2046,SC2086 # flags are words
${CC:-cc} ${CFLAGS:-} -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags choir) \
    -o "$work/outside" "$(dirname "$0")/outside/main.c" $(pkg-config --libs choir) \
    -Wl,-rpath,"$libdir"
"$work/outside"

# The same with the static library, whose program needs no libchoir.so.
# shellcheck disable=SC2046,SC2086
${CC:-cc} ${CFLAGS:-} -std=c11 $(pkg-config --cflags choir) -o "$work/static" \
    "$(dirname "$0")/outside/main.c" "$libdir/libchoir.a" \
    $(pkg-config --static --libs choir | sed 's/-lchoir //')
"$work/static"
if ldd "$work/static" | grep libchoir; then exit 1; fi

# So is the README's program, which without its images says what is missing.
readme=$(find "$prefix" -path "*/doc/choir/README.md")
sed -n '/^```c$/,/^```$/{/^```/!p}' "$readme" >"$work/mnist.c"
# shellcheck disable=SC2046,SC2086
${CC:-cc} ${CFLAGS:-} -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags choir) \
    -o "$work/mnist" "$work/mnist.c" $(pkg-config --libs choir) -Wl,-rpath,"$libdir"
if "$work/mnist" "$work/nowhere" 2 2>"$work/err"; then exit 1; fi
grep -q "$work/nowhere" "$work/err"

# Each header compiles on its own.
for header in "$prefix"/include/choir/*.h; do
    echo "#include <choir/$(basename "$header")>" |
        ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
            $(pkg-config --cflags choir) -x c -
done
