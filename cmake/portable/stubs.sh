#!/bin/bash
# Makes stand-ins for the C library's shared objects, as old as a given version of glibc.
#
#   stubs.sh FOLDER VERSION          as in: stubs.sh build/portable/stubs 2.28
#
# A program runs where the C library knows every symbol that it was linked with, in the version
# that it was linked with. The linker takes the newest version of each, so a program linked on
# Debian 12 asks for glibc 2.34. But this machine's libc.so.6 has the old versions, too, for old
# programs. A stand-in has the names, the sizes of data, and of each symbol the newest version up
# to VERSION, as the default; the linker that sees it instead of the real library writes those
# versions. A symbol that is younger is missing in it, and the link fails unless another file
# (glibc.c beside this one) defines it.
#
# Functions of threads, dlopen and timers belong to libc.so.6 since 2.34 and to libraries of their
# own before. The dynamic linker looks a symbol up in all libraries of the program, so it finds
# them either way if the program needs those libraries: they are made here without a symbol.
set -euo pipefail
folder=$1 limit=$2
cc=${CC:-cc}
mkdir -p "$folder/source"

# Reads objdump's table of symbols, writes an assembler source and a version script.
read -r -d '' stand_in <<'AWK' || true
function number(version,    part, i, sum) { # GLIBC_2.2.5: 2002005
    sub(/^GLIBC_/, "", version)
    split(version, part, ".")
    for (i = 1; i <= 3; i++) sum = sum * 1000 + part[i]
    return sum
}
function hexadecimal(text,    i, sum) {
    for (i = 1; i <= length(text); i++)
        sum = sum * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
    return sum
}
$NF !~ /^[A-Za-z_][A-Za-z0-9_]*$/ || /\*UND\*/ { next }
{ version = $(NF - 1); gsub(/[()]/, "", version) }
version !~ /^GLIBC_[0-9.]+$/ || $NF ~ /^GLIBC_/ || number(version) > number(limit) { next }
number(version) > newest[$NF] {
    newest[$NF] = number(version)
    versions[$NF] = version
    address[$NF] = $1
    size[$NF] = hexadecimal($(NF - 2))
    data[$NF] = / D?O /
}
END {
    for (name in versions) { # names of one address stay so: environ and __environ
        members[versions[name]] = members[versions[name]] " " name ";"
        kind = data[name] ? "@object" : "@function"
        gsub(/@/, "%", kind)
        text = sprintf(".globl %s\n.type %s, %s\n.size %s, %d\n", name, name, kind, name,
            size[name])
        if (data[name]) {
            at[address[name]] = at[address[name]] text name ":\n"
            if (size[name] > room[address[name]]) room[address[name]] = size[name]
        } else
            functions = functions text name ":\n.space 4\n"
    }
    print ".text\n" functions ".bss" >source
    for (place in at) printf ".balign 64\n%s.space %d\n", at[place], room[place] >source
    print ".section .note.GNU-stack, \"\", %progbits" >source
    for (version in members) print version " {" members[version] " };" >script
}
AWK

stand_in() { # LIBRARY [EMPTY]
    local file
    file=$($cc -print-file-name="$1")
    : >"$folder/source/$1.map"
    echo '.section .note.GNU-stack, "", %progbits' >"$folder/source/$1.s"
    [ "${2-}" ] || objdump -T "$file" | awk -v limit="$limit" -v source="$folder/source/$1.s" \
        -v script="$folder/source/$1.map" "$stand_in"
    $cc -shared -nostdlib -o "$folder/$1" "$folder/source/$1.s" -Wl,-soname,"$1" \
        $([ ! -s "$folder/source/$1.map" ] || echo "-Wl,--version-script=$folder/source/$1.map")
}

linker=$(basename "$(LC_ALL=C readelf -l "$(command -v env)" |
    sed -n 's/.*interpreter: \(.*\)]/\1/p')")
for library in libc.so.6 libm.so.6 "$linker"; do stand_in "$library"; done
for library in libpthread.so.0 libdl.so.2 librt.so.1; do stand_in $library empty; done
