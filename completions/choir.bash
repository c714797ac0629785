# Bash completion for choir. The command itself says which words fit, so that an option is stated
# in one place; where none fits, names of files do.
_choir()
{
    local word=${COMP_WORDS[COMP_CWORD]} words
    words=$("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    if [[ ${#COMPREPLY[@]} -eq 0 && $word != -* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _choir choir
