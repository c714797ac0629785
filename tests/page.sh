# Functions of the tests that read the live page, after tests/cli/lib.sh: they start the command,
# and follow what it tells as the page's script would.
# shellcheck shell=bash

command -v python3 >/dev/null || skip 'there is no python3'
timeout 60 "$CHOIR" watch --listen :1000000 >out 2>err
! grep -q 'no libmicrohttpd' err || skip "$(cat err)"

# get URL: prints the status, the headers and the document.
get() {
    python3 -c '
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.headers)
sys.stdout.write(answer.read().decode())' "$1"
}

# live URL CONDITION [FILE]: follows the page until the Python expression is true of `runs`, by
# path, as page.js would have them, with `studies`, the `troubles` of their storages, `plans`,
# `board`, `jobs` and `over`; prints one JSON object of it all. Makes FILE once it is connected.
live() {
    timeout -k 2 $((60 * patience)) python3 -c '
import json, math, sys, urllib.request
runs, storages, studies, troubles, board, jobs, over = {}, {}, {}, [], {}, [], False
plans = {}
by_id = {}
class Run(dict): pass
def run_of(m):
    r = by_id.get(m["id"])
    if not r or r["generation"] != m["generation"]:
        r = Run(generation=m["generation"], path=r and r["path"], state="", job=None, steps={},
                evals={}, events=[])
        by_id[m["id"]] = r
        runs.update({r["path"]: r} if r["path"] else {})
    return r
def take(table, m):
    for name in ("step", "seconds", "items"):
        table[name] = table.get(name, [])[:m["from"]] + m[name]
    for name, column in m["columns"].items():
        for kind, values in column.items():
            key = name + " " + kind
            table[key] = table.get(key, [])[:m["from"]] + values
    assert len({len(values) for values in table.values()}) == 1, "ragged"
stream = urllib.request.urlopen(sys.argv[1] + "live", timeout=200)
assert stream.headers["Content-Type"] == "text/event-stream"
if sys.argv[3]:
    open(sys.argv[3], "w").close()
kind = None
for line in stream:
    line = line.decode().rstrip("\n")
    if line.startswith("event: "):
        kind = line[7:]
    if not line.startswith("data: "):
        continue
    m = json.loads(line[6:])
    if kind == "board": board = m
    elif kind == "ranks": jobs = m["jobs"]
    elif kind == "study":
        storages[m["id"]] = m
        studies = {s["path"]: s for each in storages.values() for s in each["studies"]}
        troubles = [each["why"] for each in storages.values() if each["why"]]
    elif kind == "plan": plans[m["path"]] = m
    elif kind == "end": over = True
    else:
        r = run_of(m)
        if kind == "run":
            if r["path"] not in (None, m["path"]): # another run has its place now
                runs.pop(r["path"])
                r["job"] = None
            runs[m["path"]] = r
            r.update({k: m[k] for k in ("path", "state", "first_time", "last_time")})
            r["job"] = m.get("job") or r["job"]
        elif kind == "events":
            r["events"] = r["events"][:m["from"]] + m["events"]
        else:
            take(r[kind], m)
    if eval("(" + sys.argv[2] + ")"):
        break
else:
    sys.exit("the stream ended before: " + sys.argv[2])
print(json.dumps({"runs": runs, "studies": studies, "troubles": troubles, "board": board,
    "plans": plans, "jobs": jobs, "over": over}))' "$1" "$2" "${3-}"
}

# watch ARG...: starts the command, and sets url.
watch() {
    rm -f out
    start watch "$@"
    await 10 test -s out || { fail "no address: $(cat err)"; return 1; }
    url=$(cat out)
    [ "$(wc -l <out)" = 1 ] || fail "more than a line: $(cat out)"
}
stop_watching() {
    kill -TERM "$started_pid"
    ended 10
    [ "$status" = 0 ] && [ ! -s err ] || fail "status $status: $(cat err)"
}

# start_reading URL CONDITION, end_reading: `live` in the background, into the file `seen`.
start_reading() {
    rm -f connected
    live "$@" connected >seen 2>seen.err &
    reader=$!
    await 20 test -e connected
}
end_reading() {
    wait "$reader" || fail "not seen: $(tail -n 1 seen.err)"
}
