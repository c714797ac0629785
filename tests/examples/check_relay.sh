#!/bin/sh
# A program that continues from its own checkpoint: by four ranks, then one, then three, it
# prints the output of a run that never stops. The command, which cannot build the program's
# model, says so.
#
#   check_relay.sh CHOIR PROGRAM
choir=$1 program=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/choir-relay.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
for ranks in 4 1 3; do
    "$choir" run -n $ranks "$program" run >out 2>err ||
        { echo "$ranks ranks: failed"; cat err; exit 1; }
    sed 's/^\[rank0\]: //' out >>relay
done
for ranks in 1 1 1; do
    "$program" alone >>single || { echo "alone: failed"; exit 1; }
done
cat relay
[ "$(wc -l <single)" = 15 ] || { echo "not 15 steps alone:"; cat single; exit 1; }
cmp relay single || exit 1
for command in eval generate 'train --resume'; do
    # shellcheck disable=SC2086
    "$choir" $command run 2>err && { echo "choir $command of another's model"; exit 1; }
    grep -q "is of a model of a program's own, which only that program can" err ||
        { echo "choir $command:"; cat err; exit 1; }
done
