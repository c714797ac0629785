#!/bin/sh
# A program prints the same line with different numbers of devices or ranks.
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
