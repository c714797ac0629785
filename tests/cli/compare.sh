#!/usr/bin/env bash
# choir compare: runs each strategy in a separate process, prints the table, the JSON and
# advice, and reports wrong input. compare_plot.sh tests the picture.
. "$(dirname "$0")/lib.sh"
export CHOIR_CPU_DEVICES=2

mlp=(--model mlp:in=20,hidden=33,classes=7 --batch-size 24 --steps 6)
two=(compare "${mlp[@]}" --strategies single,ddp --repeats 2)

# One row per strategy, aligned: heading and rows have one width.
table() {
    good "${two[@]}" random
    has out '^mlp:in=20.*batch 24 in 8 micro-batches of 3, cpu:0,cpu:1; 2 runs of 6 steps' \
        '^strategy +samples/s +foreseen +speed-up +efficiency +peak MiB +busy % +moved MiB +loss' \
        '^single .* 1\.00 +100 % .* yes$' \
        '^ddp .* [0-9]+ % +[0-9.]+ [0-9.]+ +[0-9.]+ [0-9.]+ .* yes$' \
        "leave out a run's first 4 steps.*; they are of runs of 10 steps\\.$"
    [ "$(grep -E '^(strategy|single|ddp) ' out | sed 's/±/+/' |
        awk '{ print length($0) }' | sort -u | wc -l)" = 1 ] || fail "not aligned: $(cat out)"
    grep -qE '^(Choose|Stay with|No advice)' out || fail "no advice: $(cat out)"
}

# The single device always runs first, because all else is measured against it.
single_is_always_there() {
    good compare "${mlp[@]}" --strategies ddp --repeats 1 --json random
    [ "$(sed -n 's/.*"event":"summary".*"strategy":"\([a-z]*\)".*/\1/p' out | tr '\n' ' ')" = \
        "single ddp " ] || fail "$(cat out)"
}

# The summaries are those of train, with the rates of all runs and the values derived from them.
json() {
    command -v python3 >/dev/null || return 0
    good "${two[@]}" --json random
    good train "${mlp[@]}" --microbatches 8 --json random && mv out train
    choir "${two[@]}" --json random >out
    python3 - out train <<'PYTHON' || fail "the JSON is wrong: $(cat out)"
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
train = [json.loads(line) for line in open(sys.argv[2])][-1]
assert [line["event"] for line in lines] == ["summary", "summary", "advice"], lines
single, ddp = lines[:2]
assert lines[2]["text"]
for line in single, ddp:
    assert set(train) <= set(line)
    assert len(line["items_per_s_runs"]) == 2 and line["items_per_s_spread"] >= 0
    close = lambda a, b: abs(a - b) <= 1e-6 * abs(b)
    assert close(line["items_per_s"], statistics.median(line["items_per_s_runs"]))
    assert close(line["speed_up"], line["items_per_s"] / single["items_per_s"])
    assert close(line["efficiency"], line["speed_up"] / line["world"])
    assert line["foreseen_step_ms"] > 0 and line["foreseen_items_per_s"] > 0
    assert line["same_bits"] is True and line["microbatches"] == 8 and line["steps"] == 6
    assert line["weights_sha256"] == train["weights_sha256"]
assert single["world"] == 1 and ddp["world"] == 2 and len(ddp["devices"]) == 2
assert sum(d["comm_bytes"] for d in ddp["devices"]) > 0
PYTHON
}

# Options of train go to all runs.
options_are_passed_on() {
    make_text text 100
    good compare --model "$gpt,dropout=0.1" --batch-size 8 --steps 4 --seed 7 --lr=0.01 \
        --optimizer sgd:momentum=0.9 --microbatches 4 --repeats 1 --strategies ddp --json text
    mv out compared
    good train --model "$gpt,dropout=0.1" --batch-size 8 --steps 4 --seed 7 --lr=0.01 \
        --optimizer sgd:momentum=0.9 --microbatches 4 --json text
    [ "$(grep -c "\"weights_sha256\":\"$(field weights_sha256 out)\"" compared)" = 2 ] ||
        fail "other weights than train's: $(cat compared)"
}

# By default it runs every strategy that fits, and notes the others. A failure of a requested
# strategy is an error.
what_does_not_fit() {
    good compare "${mlp[@]}" --microbatches 1 --repeats 1 random
    has out '^single ' '^Left out: ddp \(1 micro-batch is fewer than 2 ranks'
    choir compare "${mlp[@]}" --microbatches 1 --repeats 1 --strategies ddp random >out 2>err
    [ $? -eq 1 ] || fail "exit status 0 though ddp failed"
    is_one_line 'ddp.*fewer than 2 ranks' || fail "$(cat err)"
    has out '^single '
}

wrong_usage() {
    bad 2 'frob' compare --strategies frob random
    bad 2 'frob' compare --strategies single,ddp:frob=1 random
    bad 2 "unknown option '--strategy'; did you mean '--strategies'" \
        compare --strategy single random
    bad 2 "repeats: .*got '0'" compare --repeats 0 random
    bad 2 "splits: .*24, got '12,7'" compare "${mlp[@]}" --splits 12,7 random
    bad 2 'a\.gif' compare --plot a.gif random
    bad 2 'save' compare --save here random
    bad 2 'frob' compare --frob random
    bad 2 'cpu:0 is named twice' compare --devices cpu:0,cpu:0 random
    bad 2 "unknown model 'frob'" compare --model frob random
    RANK=0 WORLD_SIZE=1 bad 2 'rank of a job' compare random
    good compare --help
    has out '^Usage: choir compare' 'Example'
}

wrong_input() {
    bad 1 'nowhere' compare "${mlp[@]}" nowhere
    bad 1 'cpu:77' compare --devices cpu:77 random
    bad 1 '24 does not divide into 7' compare "${mlp[@]}" --microbatches 7 random
    choir compare --strategies ddp --batch-size 1 random >out 2>err && fail 'ddp of one sample'
    has err 'strategy ddp: a batch of 1 is smaller than 2 ranks; each needs a sample'
    bad 1 'nowhere/a.png' compare --plot nowhere/a.png random
    mkdir -p empty
    PATH_BEFORE=$PATH
    PATH=$work/empty "$CHOIR" compare --plot a.png random >out 2>err
    [ $? -eq 1 ] || fail "exit status without gnuplot"
    PATH=$PATH_BEFORE
    is_one_line 'gnuplot-nox' || fail "without gnuplot: $(cat err)"
}

# On a terminal a line shows the progress, and is removed at the end.
progress() {
    command -v script >/dev/null || { echo 'no script(1): no terminal'; return; }
    timeout 60 script -qefc "$CHOIR compare ${mlp[*]} --strategies ddp --repeats 2 random" \
        typescript >/dev/null 2>&1 </dev/null || fail "status $? on a terminal"
    tr '\r' '\n' <typescript | grep -qE '3 of 6: single, run 2 of 3, about [0-9]+:[0-9]{2} left' ||
        fail "no progress: $(head -c 500 typescript)"
    grep -q $'\r\033\\[K\(single\|mlp\)' typescript || fail 'the line stays'
}

# An interrupt also ends the current run.
interrupted() {
    start compare "${mlp[@]}" --steps 1000000 random
    local group=$started_pid
    await 10 pgrep -P "$group" >/dev/null || fail "no run was started"
    kill -TERM "$group"
    ended 10
    [ "$status" = 143 ] || fail "status $status"
    is_one_line 'interrupted' || fail "$(cat err)"
    await 5 group_is_gone "$group" || fail "a run is left behind"
}

check table
check single_is_always_there
check json
check options_are_passed_on
check what_does_not_fit
check wrong_usage
check wrong_input
check progress
check interrupted
finish
