#!/bin/sh
# Runs a program that must succeed, removes PATTERN from each line of its output, and counts the
# distinct lines that remain.
#
#   check_same.sh EXPECTED PATTERN PROGRAM [ARGUMENT]...
expected=$1 pattern=$2
shift 2
out=$("$@") || { echo "$out"; echo "$1: exit status $?"; exit 1; }
echo "$out"
different=$(echo "$out" | sed "s/$pattern//" | sort -u | wc -l)
[ "$different" = "$expected" ] || { echo "$different different lines; expected $expected"; exit 1; }
