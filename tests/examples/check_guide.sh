#!/bin/sh
# Every line of C in a guide is also in one of the examples, which are compiled and run.
#
#   check_guide.sh GUIDE.md FOLDER
awk '
    FNR == NR && /^```/ { code = /^```c$/; next }
    { line = $0; sub(/^ +/, "", line) }
    FNR == NR { if (code && line != "") wanted[line] = FNR; next }
    { delete wanted[line] }
    END {
        for (line in wanted) {
            printf "line %d is in no example: %s\n", wanted[line], line
            missing = 1
        }
        exit missing
    }' "$1" "$2"/*.c
