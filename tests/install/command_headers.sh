#!/bin/sh
# The command is the library's first user. src/cli/ includes public headers, its own headers, those
# of the two floors that were made for it (line/, job/), and the internal ones that
# docs/inside.md lists with a reason and the files that use them.
#
#   command_headers.sh PROJECT
set -eu
cd "$1"
lists=$(mktemp -d "${TMPDIR:-/tmp}/choir-headers.XXXXXX")
trap 'rm -rf "$lists"' EXIT
# A row of the table: | `header` | `file` `file` ... | reason |; a folder stands for its files.
awk -F'|' '
    $2 ~ /^ *`[^`]*[.]h` *$/ {
        gsub(/[ `]/, "", $2)
        n = split($3, file, /[ `,]+/)
        for (i = 1; i <= n; i++)
            if (file[i] != "")
                print $2, file[i]
    }' docs/inside.md | sort >"$lists/listed"
grep -rE '^#include "' src/cli --include='*.[ch]' | grep -vE '#include "(cli|line|job)/' |
    sed -E 's|^src/cli/([^:]*):#include "([^"]*)".*|\2 \1|' | sort -u >"$lists/taken"
awk '
    FNR == NR { allowed[$1, $2] = 1; row[$1 " " $2] = 0; next }
    {
        n = split($2, part, "/"); folder = n > 1 ? part[1] "/" : "/"
        if (($1, "src/cli/") in allowed) row[$1 " src/cli/"]++
        else if (($1, $2) in allowed) row[$1 " " $2]++
        else if (($1, folder) in allowed) row[$1 " " folder]++
        else {
            printf "src/cli/%s includes \"%s\": the public headers should do", $2, $1
            print "; or list it in docs/inside.md, with the reason"
            bad = 1
        }
    }
    END {
        for (r in row)
            if (!row[r]) {
                print "docs/inside.md lists what is not included any more: " r
                bad = 1
            }
        exit bad
    }' "$lists/listed" "$lists/taken"
