#!/usr/bin/env bash
# The live page over what choir did not write: nested, huge and endless files, links, thousands of
# folders, runs that go away, and strangers.
root=$(cd "$(dirname "$0")/../../.." && pwd)
. "$root/tests/cli/lib.sh"
. "$root/tests/page.sh"

# a_run FOLDER STEP...: makes a run with these steps.
a_run() {
    local folder=$1
    shift
    mkdir -p "$folder"
    printf '{"step":%d,"time":1,"loss":1}\n' "$@" >"$folder/metrics.jsonl"
}

# Values that nest deeper than records do are left out, whatever the parser's own limit is.
nesting_is_bounded() {
    rm -rf runs
    a_run runs/deep 1
    a_run runs/plain 1
    python3 - <<'END'
deep = "[" * 2040 + "]" * 2040
open("runs/deep/events.jsonl", "w").write(
    '{"event":"e1","step":1,"x":[[1]]}\n{"event":"e2","step":2,"x":' + deep + '}\n'
    '{"event":"e3","step":3,"x":' + '{"y":' * 2040 + "1" + "}" * 2041 + "\n"
    '{"event":"e4","step":4,"x":"' + "[" * 500 + '\\"' + "[" * 500 + '"}\n')
open("runs/deep/job.json", "w").write('{"options":' + deep + "}")
open("runs/plain/job.json", "w").write('{"options":{"steps":9}}')
END
    watch runs
    live "$url" 'len(runs) == 2 and runs["runs/deep"]["events"][-1:] and
        runs["runs/deep"]["events"][-1]["event"] == "e4" and runs["runs/plain"]["job"]' >seen ||
        fail "it has died: $(cat err)"
    python3 - <<'END' || fail "$(head -c 3000 seen)"
import json
runs = json.load(open("seen"))["runs"]
assert [e["event"] for e in runs["runs/deep"]["events"]] == ["e1", "e4"]
assert runs["runs/deep"]["job"] is None and runs["runs/plain"]["job"]["options"]["steps"] == 9
END
    stop_watching
}

# Below a folder, folders of choir tune are studies, and no file is one, nor a link to a file.
files_are_no_studies() {
    rm -rf runs
    a_run runs/a 1
    local i
    for i in {1..21}; do
        echo '{"words":"of no study"}' >"runs/text$i"
        ln -s "text$i" "runs/link$i"
    done
    mkdir -p runs/odd/study.db
    watch runs
    live "$url" 'runs and runs["runs/a"]["steps"] and board' >seen || fail 'not seen' || return
    python3 -c '
import json
seen = json.load(open("seen"))
assert seen["board"]["studies"] == 0 and not seen["studies"], seen' || fail "$(cat seen)"
    stop_watching
}

# A file that is no study is known by its first lines: more than the memory has are not read.
huge_files_are_not_read() {
    rm -rf runs
    mkdir runs
    printf '{"op_code":\n' >runs/lines
    printf '{"op_code"' >runs/line
    truncate -s 8T runs/lines runs/line 2>/dev/null || truncate -s 1T runs/lines runs/line
    bad 1 'runs/lines: expected the folder of a run.* it is a file: .*line 1: expected a line' \
        watch runs/lines
    bad 1 'runs/line: expected the folder of a run.* it is a file: ' watch runs/line
}

# A run is shown once, by its own path, whatever links lead to it.
a_run_is_shown_once() {
    rm -rf runs elsewhere
    a_run runs/one 1
    a_run elsewhere/two 1 2
    ln -s one runs/latest
    ln -s . runs/again
    ln -s ../elsewhere/two runs/linked
    watch runs runs/ ./runs/one
    live "$url" 'len([r for r in runs.values() if r["steps"]]) >= 2' >seen ||
        fail 'not seen' || return
    a_run runs/three 3 # all that is there is told before what comes later
    live "$url" '"runs/three" in runs and runs["runs/three"]["steps"]' >seen ||
        fail 'not seen' || return
    python3 - <<'END' || fail "$(head -c 3000 seen)"
import json
seen = json.load(open("seen"))
assert sorted(seen["runs"]) == ["runs/linked", "runs/one", "runs/three"], list(seen["runs"])
assert seen["board"]["runs"] == 3
END
    stop_watching
}

# A run that comes when all places are taken gets the place of one that has gone.
places_are_used_again() {
    rm -rf runs
    local i
    for i in {1..64}; do
        a_run "runs/old$i" 1 2 3
        printf '{"options":{"steps":3}}' >"runs/old$i/job.json"
    done
    watch runs
    start_reading "$url" '"runs/new" in runs and runs["runs/new"]["steps"].get("step") == [7] and
        board["left_out"] == 0'
    live "$url" 'board["runs"] == 64 and len(runs) == 64' >first || fail 'not seen' || return
    a_run runs/new 7
    live "$url" 'board["left_out"] == 1' >first || fail 'nothing is left out'
    rm -rf runs/old40
    end_reading
    python3 - <<'END' || fail "$(head -c 3000 seen)"
import json
runs = json.load(open("seen"))["runs"]
assert len(runs) == 64 and "runs/old40" not in runs
assert runs["runs/new"]["generation"] == 1 and runs["runs/new"]["job"] is None
END
    stop_watching
}

# Thousands of folders neither hide a run beside them, nor are left out in silence.
many_folders_hide_nothing() {
    rm -rf tree other
    mkdir -p tree/data/{1..4500}
    a_run tree/runs/a 1
    a_run other/b 1
    watch tree other
    live "$url" 'board and board["runs"] == 2 and board["folders_left_out"] > 0' >seen ||
        fail 'a run is not found, or nothing is said'
    stop_watching
    rm -rf tree other
}

# However much there is, a reader gets it before the end.
last_news_are_sent() {
    rm -rf runs
    a_run runs/a 1
    a_run runs/b 1
    watch runs
    start_reading "$url" 'over'
    live "$url" 'len([r for r in runs.values() if r["steps"]]) == 2' >first || fail 'not seen'
    kill -STOP "$started_pid"
    truncate -s 96M runs/a/metrics.jsonl # no line, of which a turn reads some megabytes
    printf '\n{"step":2,"time":1,"loss":1}\n' >>runs/a/metrics.jsonl
    kill -TERM "$started_pid"
    kill -CONT "$started_pid"
    ended 10
    [ "$status" = 0 ] && [ ! -s err ] || fail "status $status: $(cat err)"
    end_reading
    has seen '"step": \[1, 2\]'
}

# A file without lines holds up neither other readers nor the end.
endless_files_hold_up_nothing() {
    rm -rf runs
    a_run runs/b 1
    mkdir runs/a
    truncate -s 8T runs/a/metrics.jsonl 2>/dev/null || truncate -s 1T runs/a/metrics.jsonl
    watch runs
    start_reading "$url" 'over'
    live "$url" '"runs/b" in runs and runs["runs/b"]["steps"]' >first || fail 'not seen'
    stop_watching
    end_reading
}

# Numbers that JSON does not have are none, and neither names nor events have any length.
odd_records_are_left_out() {
    rm -rf runs
    mkdir -p runs/a
    python3 - <<'END'
import json
steps = ['{"step":1,"time":1e999,"loss":1}', '{"step":2,"time":-1e999,"loss":2}',
         '{"step":1e999,"time":5,"loss":3}', '{"step":3,"time":1e300,"loss":1e999}',
         '{"step":4,"time":4,"step_s":1e999,"%s":1,"ok":4}' % ("n" * 500000)]
events = [{"event": "wide", "step": n, "time": n, "x": [["y" * 100] * 900]} for n in range(20)]
events += [{"event": "k" * 5000, "step": 20, "time": {"toString": 1}, "x": "z" * 100000}]
open("runs/a/metrics.jsonl", "w").write("\n".join(steps) + "\n")
open("runs/a/events.jsonl", "w").write("".join(json.dumps(e) + "\n" for e in events))
END
    watch runs
    live "$url" 'runs and runs["runs/a"]["steps"] and len(runs["runs/a"]["events"]) == 21' >seen ||
        fail 'not seen' || return
    python3 - <<'END' || fail "$(head -c 3000 seen)"
import json
run = json.load(open("seen"))["runs"]["runs/a"]
assert run["first_time"] == 0 and run["last_time"] == 19
assert run["steps"]["step"] == [1, 2, 3, 4] and run["steps"]["loss mean"] == [1, 2, None, None]
assert run["steps"]["ok mean"][-1] == 4 and not [n for n in run["steps"] if n[0] == "n"]
assert run["events"][3] == {"event": "wide", "step": 3, "time": 3, "too_long": True}
assert len(run["events"][20]["event"]) == 2000 and len(run["events"][20]["x"]) == 2000
END
    [ "$(stat -c %s seen)" -lt 20000 ] || fail "$(stat -c %s seen) bytes"
    stop_watching
}

# Connections of strangers, and more readers than there may be, leave the owner the page.
strangers_leave_room() {
    rm -rf runs
    a_run runs/a 1
    watch runs
    python3 - "$url" <<'END' >strangers.out 2>&1 || fail "$(tail -n 5 strangers.out)"
import socket, sys, urllib.error, urllib.parse, urllib.request
url = sys.argv[1]
place = urllib.parse.urlsplit(url)
def connect(words):
    s = socket.create_connection((place.hostname, place.port), timeout=100)
    s.sendall(words.encode())
    return s
idle = [connect("GET /") for _ in range(100)]
assert b"<title>" in urllib.request.urlopen(url, timeout=100).read()
readers = [urllib.request.urlopen(url + "live", timeout=100) for _ in range(32)]
try:
    urllib.request.urlopen(url + "live", timeout=100)
    raise AssertionError("a reader too many")
except urllib.error.HTTPError as error:
    assert error.code == 503, error
assert readers[31].readline() == b"event: board\n"
for s in idle: # they say nothing more, and are not waited for
    assert s.recv(1000) == b""
END
    stop_watching
}

# More strangers than there are places, each of whom sends a byte now and then: the owner gets in,
# and a training with few descriptors saves.
strangers_are_shown_out() {
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
    set -m
    (ulimit -Sn 64; exec "$CHOIR" train --quiet --no-eval --model toy --steps 100000000 --page \
        --log "metrics::$port" --save flooded --save-every 2000 random) >out 2>err </dev/null &
    started_pid=$!
    set +m
    await 20 grep -q 'page of the run' err || fail "no page: $(cat err)" || return
    await 20 test -e flooded/latest || fail "no checkpoint: $(cat err)" || return
    local pages
    pages=("$(grep -o 'http:.*' err)" "http://127.0.0.1:$port/metrics")
    python3 - "${pages[@]}" <<'END' >strangers.out 2>&1 || fail "$(tail -n 5 strangers.out)"
import socket, sys, urllib.parse, urllib.request
held = []
for url in sys.argv[1:]:
    place = urllib.parse.urlsplit(url)
    for _ in range(300):
        held.append(socket.create_connection((place.hostname, place.port), timeout=100))
for _ in range(5):
    for s in held:
        try: s.sendall(b"G")
        except OSError: pass # shown out
    for url in sys.argv[1:]:
        assert urllib.request.urlopen(url, timeout=100).read()
END
    local before
    before=$(readlink flooded/latest)
    await 20 another_than "$before" || fail "no more checkpoints: $(cat err)"
    kill -TERM "$started_pid"
    ended 30
    ! grep -q 'open files' err || fail "$(cat err)"
}
another_than() { [ "$(readlink flooded/latest)" != "$1" ]; }

# What one part of the page cannot draw leaves the others as they should be. node stands for the
# browser, without its elements.
the_page_takes_anything() {
    command -v node >/dev/null || return 0
    node - "$root/src/cli/watch" <<'END' >node.out 2>&1 || fail "$(tail -n 20 node.out)"
const assert = require('assert'), vm = require('vm');
console.error = () => {};
for (const script of ['plan.js', 'page.js'])
  vm.runInThisContext(require('fs').readFileSync(`${process.argv[2]}/${script}`, 'utf8'));
vm.runInThisContext(`takes.run({ id: 0, generation: 0, path: 'a', state: 'running', first_time: 1,
  last_time: 1, job: { options: { steps: { toString: 1, valueOf: 1 } } } });
takes.steps({ id: 0, generation: 0, from: 0, left_out: 0, step: [3], seconds: [1], items: [null],
  columns: {} });
takes.events({ id: 0, generation: 0, from: 0, events: [
  { event: 'wide', step: 1, time: { toString: 1 }, too_long: true }] });`);
const run = vm.runInThisContext('runOf({ id: 0, generation: 0 })');
assert.match(vm.runInThisContext('figuresOf')(run), /^step 3\s· /);
run.job = { options: { steps: 6 } };
assert.match(vm.runInThisContext('figuresOf')(run), /^step 3 of 6\s· /);
assert.match(vm.runInThisContext('wordsOf')(run.events[0]), /^wide, /);
assert.equal(vm.runInThisContext('timeOf')(run.events[0]), 0);
// the rate is a mean over the last minute of steps, not the last one's; a step may have no loss
vm.runInThisContext(`takes.steps({ id: 0, generation: 0, from: 0, left_out: 0, step: [1, 2, 3, 4],
  seconds: [5, 100, 102, 110], items: [10, 20, 30, 40],
  columns: { loss: { mean: [4, 3, 2.5, null] }, items_per_s: { mean: [2, 0.2, 5, 1.25] } } })`);
assert.match(vm.runInThisContext('figuresOf')(run), /\s· loss 2.5\s· 0.2857\/s\s· /);
assert.deepEqual(vm.runInThisContext('rates')(run.steps), [2, 10 / 95, 5, 1.25]);
const board = { runs: 1, studies: 0, folders_left_out: 7 };
assert.match(vm.runInThisContext('waitingWords')(board), /7 of/);
// another run takes the place
vm.runInThisContext(`takes.run({ id: 0, generation: 1, path: 'b', state: 'running', first_time: 1,
  last_time: 1 })`);
assert.equal(vm.runInThisContext('runOf({ id: 0, generation: 1 }).job'), null);
// numbers whose distance is infinite have places
const huge = [{ x: [1, 2, 3], y: [-1.7e308, 1.7e308, 0], raw: [], evalX: [], evalY: [] }];
const scale = vm.runInThisContext('scalesOf')({}, huge);
const path = vm.runInThisContext('pathOf')(scale, huge[0].x, huge[0].y);
assert.match(path, /^(?:[ML][0-9.]+,[0-9.]+){3}$/);
assert.ok(scale.y(1.7e308) < scale.y(0) && scale.y(0) < scale.y(-1.7e308));
// no part can be drawn without a document; all are tried, and the title is set
globalThis.document = { title: '', getElementById() { tried++; throw new Error('no element'); } };
globalThis.tried = 0;
vm.runInThisContext('drawAll()');
assert.ok(tried >= 5 && document.title === 'b – Choir', `${tried} ${document.title}`);
// nor does a message that is no JSON keep the next from being taken
let listeners = {};
globalThis.EventSource = class { addEventListener(name, f) { listeners[name] = f; } };
globalThis.setTimeout = () => {};
vm.runInThisContext('connect()');
listeners.board({ data: '{"now":inf}' });
END
}

check nesting_is_bounded
check files_are_no_studies
check huge_files_are_not_read
check a_run_is_shown_once
check places_are_used_again
check many_folders_hide_nothing
check last_news_are_sent
check endless_files_hold_up_nothing
check odd_records_are_left_out
check strangers_leave_room
check strangers_are_shown_out
check the_page_takes_anything
finish
