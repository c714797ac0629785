#!/bin/sh
# A program given different numbers of devices or ranks prints the same line.
#
#   check_counts.sh LINE-BEGINS PROGRAM COUNT...
begins=$1 program=$2
shift 2
for count; do
    "$program" "$count" 2>/dev/null | grep "$begins" || echo "with $count: no such line"
done | sort | uniq -c | {
    read -r times line
    echo "$times times: $line"
    [ "$times" -eq $# ]
}
