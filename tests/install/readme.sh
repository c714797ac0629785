#!/bin/bash
# The commands of README.md's first screen print there what they print on this machine, to the last
# digit and letter: losses and texts have the same bits everywhere. Speeds and times are the
# machine's, and `...` leaves out what is. A line `step N/M` is looked up in the run's record,
# since when such lines come depends on the machine, too. The table of what is in Choir stays short,
# and each row of the tables leads into the guide, to a heading that is there.
#   readme.sh README BUILD-FOLDER FOLDER
set -euo pipefail
readme=$(realpath "$1") folder=$3
export PATH=$(realpath "$2"):$PATH
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

fail() { echo "readme.sh: $*"; exit 1; }

timeless() {
    sed -E 's/[0-9.]+ ms per (median )?step/T ms per \1step/
        s|[0-9]+ tokens/s|R tokens/s|; s/ +#.*//'
}

check() { # compares the output of the command with the lines that README.md shows
    local line step loss was
    while IFS= read -r line; do
        case $line in
        '' | ... | '--strategy auto:'*) ;; # what is the fastest differs
        'step '*)
            read -r _ step _ _ loss _ <<<"${line//\// }"
            was=$(sed -n "s/^{\"step\":$step,.*\"loss\":\([^,}]*\).*/\1/p" runs/first/metrics.jsonl)
            [ "$loss" = "$(printf '%.4f' "$was")" ] ||
                fail "after $command: expected '$line', got a loss of $was"
            ;;
        *)
            line=$(timeless <<<"$line")
            timeless <output >printed # grep -q ends at once, and sed would die by SIGPIPE
            grep -qF -- "${line#... }" printed ||
                fail "after $command: expected '$line', got $(cat output)"
            ;;
        esac
    done <expected
}

command=
: >expected
while IFS= read -r line <&3; do
    case $line in
    '$ '*)
        check
        command=${line#\$ }
        bash -c "$command" >output 2>&1 </dev/null || fail "$command: $(cat output)"
        : >expected
        ;;
    *) printf '%s\n' "$line" >>expected ;;
    esac
done 3< <(awk '/^```console$/ { on = 1; next } /^```$/ && on { exit } on' "$readme")
[ "$command" ] || fail "expected commands in $readme, found none"
check

# --- the tables ---

rows() { # FROM TO: the cells of the tables between two headings
    sed -n "/^## $1/,/^## $2/s/^| \(.* | .*\) |\$/\1/p" "$readme"
}
rows 'You came from' 'A program' | grep '^\*' >asked
rows 'What is in' 'Which strategy' >in
[ -s asked ] && [ -s in ] || fail "expected two tables in $readme"
! grep -vF '](docs/guide.md#' asked in || fail "expected a link into the guide in these rows"
long=$(awk '{ row = $0; gsub(/\]\([^)]*\)/, ""); sub(/.* \| /, "") }
    split($0, word, / +/) > 25 { print row }' in)
[ ! "$long" ] || fail "expected cells of at most 25 words, got $long"
# A heading's anchor is its words, in small letters.
sed -n 's/^##* //p' "$(dirname "$readme")/docs/guide.md" | tr '[:upper:]' '[:lower:]' |
    sed 's/[^a-z0-9 _-]//g; s/ /-/g' >anchors
lost=$(grep -o 'docs/guide\.md#[^)]*' "$readme" | sed 's/.*#//' | sort -u |
    grep -vxFf anchors) || true
[ ! "$lost" ] || fail "the guide has no heading of these links: $lost"
echo "readme: fine"
