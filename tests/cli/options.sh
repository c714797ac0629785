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
check commands_are_in_man
check completion_has_all
finish
