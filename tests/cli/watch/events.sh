#!/usr/bin/env bash
# Events of a training: docs/events.md and every line agree with the table (src/record/events.def),
# and run folders that version 0.1.0 wrote are read, shown and continued.
root=$(cd "$(dirname "$0")/../../.." && pwd)
. "$root/tests/cli/lib.sh"

command -v python3 >/dev/null || skip 'there is no python3'
old=$root/tests/golden/runs

page_is_current() {
    "$root/script/events" --page | diff - "$root/docs/events.md" >/dev/null ||
        fail 'docs/events.md is old: script/events --page makes it'
    "$root/script/events" || fail 'a key of an event is not in its table alone'
}

# Every line of standard output and of a run folder has the keys of the table, and no others.
lines_have_the_keys() {
    good train --json --model toy --batch-size 64 --epochs 2 --eval-epochs 1 --patience 1 \
        --lr 1e-9 --save run --trace trace.json random
    python3 - "$root/docs/events.md" <<'END' || fail 'a line is not as docs/events.md says'
import json, re, sys
tables = {}
for line in open(sys.argv[1]):
    if head := re.match(r"##+ (?:object: )?(\w+)$", line):
        table = tables[head[1]] = {}
    elif row := re.match(r"\| `(\w+)` \| ([\w ]+) \| ([^|]*) \|", line):
        table[row[1]] = row[2], row[3]
def check(kind, found, where, extra=()):
    for key, (type, place) in tables[kind].items():
        here = place.split(",")[0] in (where, "both")
        assert key not in found or here, (kind, key)
        assert key in found or not here or "if known" in place, (kind, key)
        for item in found[key] if type.startswith("list of") and key in found else []:
            check(type[8:], item, where)
    assert not set(found) - set(tables[kind]) - set(extra), (kind, found)
seen = set()
for name, where, extra in ("out", "`--json`", ["event"]), ("run/events.jsonl", "files",
                                                           tables["line"]):
    for line in open(name):
        event = json.loads(line)
        seen.add(event["event"] + " " + where)
        check(event["event"], event, where, extra)
assert {"step `--json`", "eval `--json`", "epoch `--json`", "profile `--json`", "end files",
        "summary `--json`", "eval files", "epoch files", "checkpoint files"} <= seen, seen
for line in open("run/metrics.jsonl"):
    row = json.loads(line)
    for key in set(row) - {"step", "time"}:
        assert key.split("/")[-1] in tables["memory" if "/" in key else "step"], key
END
    ! grep -q 'eval/epoch' run/metrics.jsonl || fail 'a number of an epoch is a curve'
}

# An epoch's number is no curve: an evaluation has its measures alone.
numbers_are_measures() {
    good train --quiet --model toy --batch-size 64 --epochs 1 --eval-epochs 1 \
        --log csv:table.csv random
    has table.csv '^step,time,loss,lr,.*,eval/loss,eval/eval_s$'
}

old_runs_are_drawn() {
    good plot "$old/toy"
    has out 'loss against steps' 'toy: last .*validation'
    good plot "$old/toy" --metric items_per_s --against time
    good plot "$old/lost" "$old/toy"
    has out '^a  lost: ' '^b  toy: '
}

old_runs_go_on() {
    cp -a "$old/toy" "$old/toy.csv" .
    good train --quiet --resume toy --steps 9
    [ "$(sed -n 's/^{"step":\([0-9]*\),.*"loss":.*/\1/p' toy/metrics.jsonl | tr '\n' ' ')" = \
        '1 2 3 4 5 6 7 8 9 ' ] || fail "$(cat toy/metrics.jsonl)"
    [ "$(cut -d, -f1 toy.csv | uniq | tr '\n' ' ')" = 'step 1 2 3 4 5 6 7 8 9 ' ] ||
        fail "$(cat toy.csv)"
    [[ $(head -n 1 toy.csv) == "$(head -n 1 "$old/toy.csv"),"* ]] || fail "$(head -n 1 toy.csv)"
    diff "$old/toy/events.jsonl" toy/events.jsonl | grep '^<' && fail 'old events are gone'
    has toy/events.jsonl '"event":"begin","step":6,.*"resumed":true'
}

old_runs_are_shown() {
    ( . "$root/tests/page.sh" ) >/dev/null || return 0 # no page in this build
    . "$root/tests/page.sh"
    mkdir runs
    cp -a "$old/lost" "$old/toy" runs
    watch runs
    live "$url" 'runs and all(len(r["events"]) > 4 for r in runs.values()) and len(runs) == 2' \
        >seen || fail "$(cat seen)"
    stop_watching
    python3 - <<'END' || fail "$(head -c 2000 seen)"
import json
runs = json.load(open("seen"))["runs"]
lost, toy = runs["runs/lost"], runs["runs/toy"]
assert lost["state"] == toy["state"] == "ended"
assert lost["steps"]["step"] == list(range(1, 13)) and lost["evals"]["step"] == [4, 8, 12]
assert toy["evals"]["step"] == [3, 6]
assert [e["joined"] for e in lost["events"] if e["event"] == "membership"] == [[1]]
END
}

check page_is_current
check lines_have_the_keys
check numbers_are_measures
check old_runs_are_drawn
check old_runs_go_on
check old_runs_are_shown
finish
