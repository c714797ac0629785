#!/bin/sh
# Runs a program that must succeed, cuts PATTERN off each line of its output, and counts the
# different lines that are left.
#
#   check_same.sh EXPECTED PATTERN PROGRAM [ARGUMENT]...
expected=$1 pattern=$2
shift 2
out=$("$@") || { echo "$out"; echo "$1: exit status $?"; exit 1; }
echo "$out"
different=$(echo "$out" | sed "s/$pattern//" | sort -u | wc -l)
[ "$different" = "$expected" ] || { echo "$different different lines; expected $expected"; exit 1; }
