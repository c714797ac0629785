#!/bin/sh
# Runs a program that must succeed, and whose output must match an extended regular expression,
# in which '~' matches the end of a line.
#
#   check_output.sh EXPRESSION PROGRAM [ARGUMENT]...
expression=$1
shift
out=$("$@") || { echo "$out"; echo "$1: exit status $?"; exit 1; }
echo "$out"
echo "$out" | tr '\n' '~' | grep -Eq -- "$expression" || {
    echo "the output does not match: $expression"
    exit 1
}
