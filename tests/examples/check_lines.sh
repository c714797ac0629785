#!/bin/sh
# An example is at most 40 lines of at most 96 columns.
#
#   check_lines.sh FOLDER
status=0
for file in "$1"/*.c; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 40 ] || { echo "$file: $lines lines; at most 40"; status=1; }
    awk -v file="$file" 'length > 96 { print file ":" NR ": " length " columns"; wide = 1 }
        END { exit wide }' "$file" || status=1
done
exit $status
