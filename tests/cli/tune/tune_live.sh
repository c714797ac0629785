#!/usr/bin/env bash
# choir tune on a terminal: lines below the table, none of which wraps at 40 columns, and which are
# gone at the end, however the search ends. On a pipe there are none.
. "$(dirname "$0")/../lib.sh"
command -v script >/dev/null || skip "there is no terminal for tests (install util-linux)"

cat >curve <<'CURVE'
#!/bin/bash
echo "{\"step\":1,\"eval_loss\":$1}"
while [ -e "hold.$2" ]; do read -rt 0.02 <> <(:); done
[ "$2" != 2 ] || { echo 'a fault' >&2; exit 1; }
for step in 2 3; do echo "{\"step\":$step,\"eval_loss\":$1}"; done
CURVE
chmod +x curve
search=("$CHOIR" tune --trials 4 --parallel 2 --window 2 --space 'learning_rate=log(1e-5,1)'
    --space 'a_rather_long_name=uniform(0,1)' -- ./curve {learning_rate} {trial}
    {a_rather_long_name})

# on_terminal COMMAND...: runs it on a terminal of $columns and $rows; its output is in ./typed.
columns=40
rows=24
on_terminal() {
    printf 'stty cols %d rows %d; echo $$ >pid; exec' $columns $rows >run
    printf ' %q' "$@" >>run
    TERM=xterm timeout $((20 * patience)) script -qefc 'bash run' /dev/null >typed </dev/null
}

# screen: what a terminal of 40 columns shows after ./typed; lines that wrapped are marked.
screen() {
    tr -d '\r' <typed | awk '
        { rest = $0
          while (match(rest, /\033\[[0-9]+A/)) {
              row -= substr(rest, RSTART + 2, RLENGTH - 3)
              rest = substr(rest, RSTART + RLENGTH)
              if (sub(/^\033\[J/, "", rest)) for (r = row; r <= last; r++) delete line[r]
          }
          line[row] = rest (length(rest) > 40 ? " WRAPPED" : "")
          last = row > last ? row : last
          row++ }
        END { for (r = 0; r <= last; r++) if (r in line) print line[r] }'
}

terminal() {
    touch hold.1
    rm -f pid
    : >typed
    on_terminal "${search[@]}" &
    local job=$!
    await 20 grep -q 'trial 1, step 1: ' typed || fail "none runs: $(head -c 500 typed)"
    await 20 grep -q '2 of 4, 1 failed' typed || fail "no failure: $(head -c 500 typed)"
    screen >shown
    has shown '^    0  COMPLETE' '^2 of 4, 1 failed, ' '^best 0: eval_loss .*' '^running 1$' \
        '^  trial 1, step 1: '
    rm hold.1
    wait $job || fail "status $?"
    screen >shown
    ! grep -q WRAPPED <(head -5 shown) || fail "$(cat shown)"
    has shown '^    3  COMPLETE' '^    2  FAIL' '^       exited with status 1: a fault$' \
        '^best: trial [013], eval_loss'
    ! grep -q '^running\|left$' shown || fail "lines are left: $(cat shown)"
    has typed '[234] of 4, 1 failed, '
    ! grep -q $'\033\[?' typed || fail 'a mode of the terminal was changed'
}

# The reason of a failed trial has lines of its own, cut at words, also where the table is wide.
reasons() {
    local wide=() i
    local why='a rather long reason, of which one line has no room, but the next ones have'
    for i in 1 2 3 4 5 6; do wide+=(--space "parameter_$i=0.5"); done
    for columns in 14 40 80; do
        on_terminal "$CHOIR" tune --trials 1 "${wide[@]}" -- \
            sh -c "echo '$why' >&2; exit 7" sh {parameter_{1..6}}
        tr -d '\r' <typed | sed '1,/FAIL/d; /no trial has/,$d; s/…/./' >shown
        [ -s shown ] && ! grep -qvE '^.{1,'$columns'}$' shown ||
            fail "$columns columns: $(cat shown)"
        [ $columns = 14 ] || [ "$(tr -s ' \n' ' ' <shown)" = " exited with status 7: $why " ] ||
            fail "$columns columns: $(cat shown)"
        [ $columns != 14 ] || has typed '…'
    done
    columns=40
}

# The lines are fewer than the terminal's rows, beyond which they could not be removed.
few_rows() {
    for rows in 8 3; do
        touch hold.3
        on_terminal "$CHOIR" tune --trials 12 --parallel 12 --space 'x=uniform(0,1)' -- \
            ./curve {x} 3 &
        local job=$!
        await 20 grep -q $'\033\[[0-9]*A' typed || fail "none runs: $(head -c 500 typed)"
        rm hold.3
        wait $job || fail "status $?"
        grep -o $'\033\[[0-9]*A' typed | tr -dc '0-9\n' | sort -n | tail -1 >most
        [ "$(cat most)" = $((rows - 1)) ] || fail "$rows rows, $(cat most) lines"
    done
    rows=24
}

# Lines that the search has drawn are removed after a signal, too.
interrupted() {
    touch hold.1
    rm -f pid
    : >typed
    on_terminal "${search[@]}" &
    local job=$!
    await 20 grep -q 'trial 1, step 1: ' typed || fail "none runs: $(head -c 500 typed)"
    kill -INT "$(cat pid)"
    wait $job
    [ $? = 130 ] || fail "status after SIGINT"
    rm hold.1
    screen >shown
    ! grep -q '^running' shown || fail "lines are left: $(cat shown)"
}

pipe() {
    good tune --trials 3 --space 'x=uniform(0,1)' -- ./curve {x} 0
    ! grep -q $'\033\|^running' out || fail "$(cat out)"
    [ "$(wc -l <out)" = 6 ] || fail "$(cat out)"
    TERM=dumb script -qec "$CHOIR tune --trials 1 --space x=0.5 -- ./curve {x} 0" /dev/null \
        >typed </dev/null
    ! grep -q $'\033\|^running' typed || fail "$(cat typed)"
}

check terminal
check reasons
check few_rows
check interrupted
check pipe
finish
