#!/usr/bin/env bash
# Every option in the command's tables is also in --help, in the man page and in the shell's
# completion, and none of these has an option that is not in the tables.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/lib.sh"
commands=$(choir __complete '' | grep -v '^--')

# options_of COMMAND: its options in the table, one per line.
options_of() { choir __complete "$1" -- | sort; }

# difference NAME: entries that only one of the lists `table` and `found` has.
difference() {
    local missing extra
    missing=$(comm -23 table found | tr '\n' ' ')
    extra=$(comm -13 table found | tr '\n' ' ')
    [ -z "$missing" ] || fail "$1 lacks $missing"
    [ -z "$extra" ] || fail "$1 has $extra"
}

help_has_all() {
    for command in $commands; do
        options_of "$command" >table
        good "$command" --help
        grep -E '^ {2,6}-' out | sed -E 's/^( *(-[a-z], )?--[a-z-]+) .*/\1/' |
            grep -oE -e '--[a-z][a-z-]+' | sort -u >found
        difference "choir $command --help"
    done
}

# The options of a page are the items of its lists.
man_has_all() {
    for command in $commands; do
        local page=$root/docs/man/choir-$command.1
        options_of "$command" >table
        grep -E '^\.It Fl ' "$page" | grep -oE -e 'Fl -[a-z-]+' | sed 's/Fl -/--/' |
            sort -u >found
        difference "${page##*/}"
    done
}

# An option's default in --help, where it is a value, is also in the option's item of the page.
man_has_defaults() {
    local name value
    for command in $commands; do
        good "$command" --help
        awk 'function told() {
                 if (name && match(text, /\(default [^ ,;:)]+[,;:)]/))
                     print name, substr(text, RSTART + 9, RLENGTH - 10)
                 name = text = ""
             }
             /^$/ { told() }
             /^  (    )?-/ {
                 told()
                 if (match($0, /--[a-z][a-z-]+/)) name = substr($0, RSTART, RLENGTH)
             }
             { sub(/^ +/, " "); text = text $0 }
             END { told() }' out >defaults
        awk 'function told() { for (n in names) print n, text; split("", names); text = "" }
             /^\.(It Fl|Sh|Ss)/ { told() }
             /^\.It Fl/ {
                 for (rest = $0; match(rest, /Fl -[a-z][a-z-]+/);
                      rest = substr(rest, RSTART + RLENGTH))
                     names["--" substr(rest, RSTART + 4, RLENGTH - 4)]
             }
             { text = text " " $0 }' "$root/docs/man/choir-$command.1" >items
        while read -r name value; do
            grep -e "^$name " items | grep -i default | grep -qF -e "$value" ||
                fail "choir-$command.1, $name: there is no default $value"
        done <defaults
        [ "$command" != train ] || [ "$(wc -l <defaults)" -gt 10 ] || fail 'defaults are not seen'
    done
}

commands_are_in_man() {
    for command in $commands; do
        grep -q "^\.It Cm $command\$" "$root/docs/man/choir.1" || fail "choir.1 lacks $command"
        grep -q "^\.Xr choir-$command 1" "$root/docs/man/choir.1" || fail "choir.1: $command"
    done
}

# completed WORD...: the shell's suggestions for the last word.
completed() {
    COMP_WORDS=("$CHOIR" "$@") COMP_CWORD=$# COMPREPLY=()
    _choir "$CHOIR" "${@: -1}" 2>/dev/null
    printf '%s\n' "${COMPREPLY[@]}" | sort
}

completion_has_all() {
    # shellcheck source=/dev/null
    . "$root/completions/choir.bash"
    for command in $commands; do
        options_of "$command" >table
        completed "$command" -- >found
        difference "the completion of choir $command"
    done
    [ "$(completed tra)" = train ] || fail "tra: $(completed tra)"
    completed train --strategy dd | grep -qx ddp || fail 'no ddp for --strategy dd'
    completed train --amp '' | grep -qx bf16 || fail 'no bf16 for --amp'
    completed train --offload '' | grep -qx table || fail 'no files for --offload'
    completed bench all_r | grep -qx all_reduce || fail 'no all_reduce for bench all_r'
    completed checkpoint v | grep -qx verify || fail 'no verify for checkpoint v'
}

check help_has_all
check man_has_all
check man_has_defaults
check commands_are_in_man
check completion_has_all
finish
