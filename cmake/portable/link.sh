#!/bin/bash
# Links a program or a plug-in so that it runs on any Linux with glibc 2.28 or later.
#
#   link.sh program FILE NAME... -- OBJECT...     a program with the static libraries libNAME.a
#   link.sh plugin FILE LIBRARY... -- OBJECT...   a shared object that needs these shared ones
#
# Everything but glibc is inside a program. It is linked with stand-ins for glibc 2.28 (stubs.sh)
# and with glibc.c, which has what is younger. A program that were wholly static could open no
# plug-in and no library, and musl's none at all.
#
# OPENED in the environment lists shared objects, as "libsqlite3.so.0=sqlite3:sqlite3_*": Choir
# opens them by name, and their functions of that pattern are inside, too. A pattern without a
# star names one function that is taken from the archive. CC is the compiler.
set -euo pipefail
here=$(dirname "$0") cc=${CC:-cc} glibc=2.28
kind=$1 out=$2
shift 2
libraries=()
while [ "$1" != -- ]; do libraries+=("$1"); shift; done
shift

fail() { echo "link.sh: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$(dirname "$out")"
"$here/stubs.sh" "$work/stubs" $glibc

static=() flags=() inside=
archive() { # NAME: adds libNAME.a
    local file
    file=$($cc -print-file-name="lib$1.a")
    [ -f "$file" ] || fail "expected lib$1.a, which a package for development has, found none"
    static+=("$file")
}

if [ "$kind" = program ]; then
    for name in "${libraries[@]}"; do archive "$name"; done
    for opened in ${OPENED-}; do # FILE=NAME:PATTERN,PATTERN
        inside+=" ${opened%%=*}"
        name=${opened#*=}
        IFS=, read -ra patterns <<<"${name#*:}"
        archive "${name%%:*}"
        for pattern in "${patterns[@]}"; do
            flags+=(-Wl,--export-dynamic-symbol="$pattern")
            # One object has all of the library whose pattern has a star.
            case $pattern in
            *'*') flags+=(-Wl,--whole-archive "${static[-1]}" -Wl,--no-whole-archive) ;;
            *) flags+=(-Wl,-u,"$pattern") ;;
            esac
        done
    done
else
    flags+=(-shared -Wl,--no-undefined)
    static=("${libraries[@]}")
fi
$cc -O2 -fPIC -Wall -Wextra -fvisibility=hidden -DCHOIR_INSIDE="\"${inside# }\"" -c \
    "$here/glibc.c" -o "$work/glibc.o"
[ "$kind" = program ] && flags+=(-Wl,--wrap=__libc_start_main -Wl,--wrap=dlopen)
ar rcs "$work/younger.a" "$work/glibc.o" # a plug-in takes what it needs, mostly nothing
[ "$kind" = program ] && objects=("$work/glibc.o") || objects=()

stubs=("$work"/stubs/libc.so.6 "$work"/stubs/libm.so.6 "$work"/stubs/ld-*.so.*)
nonshared=$($cc -print-file-name=libc_nonshared.a)
[ ! -f "$nonshared" ] || static+=("$nonshared")
$cc -o "$out" -nodefaultlibs -s "${flags[@]}" "${objects[@]}" "$@" \
    -Wl,--start-group "${static[@]}" "$work/younger.a" -lgcc -lgcc_eh "${stubs[@]}" \
    -Wl,--end-group \
    -Wl,--no-as-needed "$work"/stubs/lib{pthread,dl,rt}.so.*

# The archives whose code is inside, for whoever passes the program on.
[ "$kind" = plugin ] || printf '%s\n' "${static[@]}" >"$out.inside"

# The proof: the youngest version of a symbol, and the libraries that it needs.
youngest=$(objdump -T "$out" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
[ "$(printf '%s\n' "GLIBC_$glibc" "$youngest" | sort -V | tail -1)" = "GLIBC_$glibc" ] ||
    fail "$out: expected symbols of glibc $glibc at most, got $youngest"
