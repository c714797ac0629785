#!/usr/bin/env bash
# choir top: shows running and stopped ranks, in a table, as JSON, on a terminal.
. "$(dirname "$0")/../lib.sh"
limit_s=$((20 * patience))

# job [ARG...]: starts two ranks in the background and waits for some steps; `ranks` holds their
# pids.
job() {
    rm -f out err
    start train --steps 100000000 --json --log-every 20 --batch-size 8 --model toy \
        --strategy ddp --nproc 2 "$@" random
    await 20 test -s out || fail "no steps: $(cat err)"
    mapfile -t ranks < <(children)
    [ ${#ranks[@]} -eq 2 ] || fail "${#ranks[@]} ranks"
}

no_more_job() {
    kill -CONT "${ranks[@]}" 2>/dev/null
    kill -KILL -- "-$started_pid"
    ended 5 2>/dev/null
}

# top ARG...: writes to $work/seen, and nothing to standard error.
top() {
    timeout $limit_s "$CHOIR" top "$@" >seen 2>top.err || fail "status $? of top $*: $(cat top.err)"
    [ ! -s top.err ] || fail "standard error of top $*: $(cat top.err)"
}

table() {
    job --mem-cap 300M
    local busy
    top --once
    head -n 1 seen | grep -qE '^ rank +pid +device +now +peak +limit +busy +queue +collective$' ||
        fail "head: $(cat seen)"
    grep -qE "^job [0-9a-f]{8}, 2 ranks, up [0-9.]+ s: .*choir train --steps 100000000" seen ||
        fail "job: $(cat seen)"
    for r in 0 1; do
        grep -qE "^ +$r +${ranks[$r]}  cpu:$r +[0-9]+[KM] +[0-9]+[KM] +300M +[0-9]+% +[0-9]+  .*" \
            seen || fail "rank $r: $(cat seen)"
        grep "^ *$r *${ranks[$r]} " seen | grep -qE 'tree_reduce|all_reduce|all_gather|broadcast' ||
            fail "collective of rank $r: $(cat seen)"
    done
    top --json "${ranks[@]}"
    [ "$(wc -l <seen)" -eq 2 ] || fail "$(wc -l <seen) lines: $(cat seen)"
    for key in job pid rank world host command stopped age_s devices groups bytes_now bytes_peak \
        bytes_limit bytes_weights bytes_gradients bytes_optimizer queue_depth busy name backend \
        begun ended last; do
        [ "$(grep -c "\"$key\":" seen)" -eq 2 ] || fail "no $key in $(cat seen)"
    done
    if command -v jq >/dev/null; then
        jq -es 'length == 2 and .[0].rank == 0 and .[1].rank == 1 and .[0].job == .[1].job and
            (.[0].devices[0] | .busy_s > 0 and .busy <= 1 and .bytes_limit == 314572800)' \
            seen >/dev/null || fail "JSON: $(cat seen)"
    fi
    busy=$(grep -o '"busy":[0-9.]*' seen | head -n 1)
    [ -n "$busy" ] || fail "busy: $(cat seen)"
    no_more_job
}

stopped() {
    job
    kill -STOP "${ranks[1]}"
    await 20 waits_for_seconds || fail "the last: $(tail -n 1 seen)"
    top --once
    grep -qE "^ +1 +${ranks[1]} .*  stopped \(SIGSTOP\), " seen || fail "rank 1: $(cat seen)"
    grep -qE "^ +0 +${ranks[0]} .* for [0-9.]+ s$" seen || fail "rank 0: $(cat seen)"
    top --json "${ranks[1]}"
    grep -q '"stopped":true' seen || fail "JSON: $(cat seen)"
    top --dump "${ranks[0]}"
    grep -qE "^rank 0 of 2, pid ${ranks[0]} on .*, up [0-9.]+ s: .*choir train" seen ||
        fail "dump: $(head -n 3 seen)"
    [ "$(grep -c ', running$' seen)" -eq 1 ] || fail "what runs: $(cat seen)"
    [ "$(grep -cE '^ +[0-9]+ +[0-9.]+ [mu]*s' seen)" -eq 64 ] || fail "collectives: $(cat seen)"
    top --dump --json "${ranks[0]}"
    [ "$(wc -l <seen)" -eq 64 ] || fail "$(wc -l <seen) collectives"
    [ "$(grep -c '"running":true' seen)" -eq 1 ] || fail "what runs: $(cat seen)"
    no_more_job
}
waits_for_seconds() {
    top --dump --json "${ranks[0]}"
    tail -n 1 seen | grep -qE '"call":"[a-z_]+","number":[0-9]+,.*"running":true,"took_s":[1-9]'
}

refreshed() { [ -e typescript ] && [ "$(grep -c 'rank *pid' typescript)" -gt 3 ]; }

on_a_terminal() {
    command -v script >/dev/null || { echo 'no script(1): no terminal'; return; }
    job
    rm -f typescript
    (await 15 refreshed; printf q) | timeout $limit_s script -qefc "$CHOIR top --interval 0.1" \
        typescript >/dev/null 2>&1 || fail "status $? on a terminal"
    refreshed || fail "not refreshed: $(cat -v typescript)"
    grep -q "${ranks[0]}" typescript || fail "no rank 0: $(cat -v typescript)"
    tail -n 3 typescript | grep -q $'\033\\[?25h' || fail 'the cursor stays hidden'
    no_more_job
}

# A narrow terminal wraps no line, and shows the collective, which is what top is for.
narrow() {
    command -v script >/dev/null || { echo 'no script(1): no terminal'; return; }
    local columns
    job
    for columns in 40 70; do
        rm -f typescript
        (await 15 refreshed; printf q) | timeout $limit_s script -qefc \
            "stty cols $columns; $CHOIR top --interval 0.1" typescript >/dev/null 2>&1
        tr -d '\r' <typescript | sed 's/\x1b\[[?0-9]*[A-Za-z]//g' | grep -v '^Script' >rows
        awk -v most=$columns 'length($0) > most { exit 1 }' rows || fail "wide: $(cat rows)"
        grep -qE "^ *1 +${ranks[1]} .*%  .*(_reduce|_gather|broadcast|idle|barrier)" rows ||
            fail "no collective at $columns columns: $(cat rows)"
    done
    no_more_job
}

# A rank that is replaced makes a new generation, which the table names. It is the third if the
# other rank has gone on alone until the new one was there.
generations() {
    job --max-restarts 1
    top --json "${ranks[@]}"
    [ "$(grep -c '"generation":1' seen)" -eq 2 ] || fail "at first: $(cat seen)"
    top --once "${ranks[@]}"
    ! grep -q generation seen || fail "the first generation is named: $(cat seen)"
    kill -KILL "${ranks[1]}"
    await 20 later_generation || fail "not generation 2 or 3: $(cat seen)"
    top --once "${ranks[@]}"
    grep -qE '^job [0-9a-f]{8}, 2 ranks, generation [23], up ' seen || fail "$(cat seen)"
    no_more_job
}
later_generation() {
    mapfile -t ranks < <(children -r D,R,S)
    timeout 20 "$CHOIR" top --json "${ranks[@]}" >seen 2>top.err # one may be gone again
    [ "$(grep -c '"world":2,"generation":[23],' seen)" -eq 2 ]
}

# A rank that works a third of the time only, the others wait for: it is named, and nothing happens
# to it.
slow() {
    make_text text 200
    rm -f out err
    start train --steps 100000000 --json --batch-size 32 --strategy ddp --nproc 2 --slow-after 1 \
        --model gpt2:layers=2,heads=2,width=64,context=32 text
    await 20 test -s out || fail "no steps: $(cat err)"
    mapfile -t ranks < <(children)
    # Where other processes take the cores' time, either rank may be the one that waits. This one
    # then also gets less of that time.
    renice -n 10 -p "${ranks[1]}" >/dev/null
    (while kill -STOP "${ranks[1]}" && sleep 0.06 && kill -CONT "${ranks[1]}" && sleep 0.02; do
        :
    done) 2>/dev/null &
    local striker=$!
    await 60 grep -qE \
        '^choir train: rank 1 is slow: the others wait [0-9.e-]+ s of [0-9.e-]+ s per' err ||
        fail "not named: $(cat err)"
    await 20 grep -qE '"event":"straggler","step":[0-9]+,"rank":1,"cost_s":[0-9.e-]+,' out ||
        fail 'no event'
    await 20 named || fail "top: $(cat seen)"
    kill "$striker"
    wait "$striker" 2>/dev/null
    no_more_job
}
named() {
    top --once "${ranks[@]}"
    grep -qE '^rank 1 is slow: the others wait for it [0-9]+ % of the time' seen
}

# In a separate PID namespace no other processes exist.
none() {
    unshare -rpf --mount-proc true 2>/dev/null || { echo 'no namespaces here'; return; }
    unshare -rpf --mount-proc "$CHOIR" top >seen 2>&1 || fail "status $?"
    [ "$(cat seen)" = 'No process of yours uses Choir now.' ] || fail "$(cat seen)"
    unshare -rpf --mount-proc "$CHOIR" top --json >seen 2>&1 || fail "status $?"
    [ ! -s seen ] || fail "$(cat seen)"
}

check table
check stopped
check slow
check on_a_terminal
check narrow
check generations
check none
check bad 2 "unknown option '--often'" top --often
check bad 2 "expected the number of a process, got 'x7'" top x7
check bad 2 "interval: .*got '0'" top --interval 0
check bad 1 "process $$ shows nothing" top --dump $$
finish
