#!/usr/bin/env bash
# The live page: its server's answers, its token, and runs that begin, go on, begin again and end.
# No browser is needed: node checks the page's script where there is one.
root=$(cd "$(dirname "$0")/../../.." && pwd)
. "$root/tests/cli/lib.sh"
. "$root/tests/page.sh"

make_text text 200
lm=(--batch-size 12 --microbatches 2 --model "$gpt")

the_page_is_whole() {
    watch runs
    [[ $url =~ ^http://127\.0\.0\.1:[0-9]+/[0-9a-f]{48}/$ ]] || fail "address: $url"
    get "$url" >page
    [ "$(head -n 1 page)" = 200 ] || fail "$(head -n 3 page)"
    has page '^Content-Type: text/html; charset=utf-8' "default-src 'none'" \
        "connect-src 'self'" '^Referrer-Policy: no-referrer' '^X-Content-Type-Options: nosniff' \
        '^Cache-Control: no-store' '<title>Choir</title>' 'new EventSource'
    ! grep -q '{{' page || fail 'a mark is left in the page'
    ! grep -E '(src|href)="?(https?:)?//|@import|url\(' page || fail 'the page needs others'
    ! grep -E 'innerHTML|outerHTML|insertAdjacent|document\.write|eval\(' \
        "$root"/src/cli/watch/p*.js || fail 'words become markup'
    # the policy's hashes are those of what is in the page
    python3 - page <<'END' || fail 'the policy forbids its own page'
import base64, hashlib, re, sys
text = open(sys.argv[1]).read()
for name, count in ("script", 2), ("style", 1):
    parts = re.findall(f"<{name}>(.*?)</{name}>", text, re.S)
    assert len(parts) == count, name
    digests = [base64.b64encode(hashlib.sha256(p.encode()).digest()).decode() for p in parts]
    assert f"{name}-src " + " ".join(f"'sha256-{d}'" for d in digests) + ";" in text, name
END
    if command -v node >/dev/null; then
        for script in page plan; do
            node --check "$root/src/cli/watch/$script.js" || fail "$script.js has an error"
        done
    fi
    stop_watching
}

strangers_stay_out() {
    watch runs
    local base=${url%/*/} token
    token=${url%/}
    token=${token##*/}
    for path in / /live /x "/${token}x/live" "/${token%?}/" "/${token^^}x/" "/$token"; do
        get "$base$path" >answer
        case $path in
        "/$token" | "/${token}x/live") expected=404 ;;
        *) expected=403 ;;
        esac
        [ "$(head -n 1 answer)" = $expected ] || fail "$path: $(head -n 1 answer)"
        ! grep -q 'EventSource' answer || fail "$path shows the page"
    done
    get "${url}../$token/etc/passwd" >answer
    [ "$(head -n 1 answer)" = 404 ] || fail "$(head -n 1 answer)"
    stop_watching
}

# The page is open before the run's folder is there, and after the run has ended.
follows_a_run() {
    rm -rf runs
    watch runs/later
    live "$url" 'board and board["runs"] == 0' >before || fail "before: $(cat before)"
    start_reading "$url" 'runs and runs["runs/later"]["steps"].get("step", [])[-1:] == [40] and
        [e["event"] for e in runs["runs/later"]["events"]][-1:] == ["end"]'
    choir train --quiet "${lm[@]}" --steps 40 --eval-every 20 --save-every 20 \
        --save runs/later text >train.out 2>train.err || fail "$(cat train.err)"
    end_reading
    python3 - <<'END' || fail "$(head -c 2000 seen)"
import json
run = json.load(open("seen"))["runs"]["runs/later"]
rows = [json.loads(line) for line in open("runs/later/metrics.jsonl")]
steps = run["steps"]
assert steps["step"] == [row["step"] for row in rows] == list(range(1, 41))
for name in ("loss", "lr", "grad_norm", "items_per_s"):
    assert all(abs(a - row[name]) <= 1e-6 * abs(a) for a, row in zip(steps[name + " mean"], rows))
assert steps["items"] == [row["items"] for row in rows]
assert run["evals"]["step"][:2] == [20, 40] and run["evals"]["loss mean"][0] > 0
kinds = [event["event"] for event in run["events"]]
assert kinds[0] == "begin" and kinds.count("checkpoint") == 2 and kinds[-1] == "end", kinds
assert run["job"]["options"]["steps"] == 40
assert "device/0/cpu:0/bytes mean" in steps and "device/0/cpu:0/bytes low" not in steps
END
    live "$url" 'runs and runs["runs/later"]["state"] == "ended"' >again || fail 'not after its end'
    stop_watching
}

# Lines that are not whole are left for later, and nonsense is passed over.
takes_whole_lines() {
    rm -rf runs
    mkdir -p runs/a
    printf '{"step":1,"time":1,"loss":2}\n{"step":2,"time":2,"lo' >runs/a/metrics.jsonl
    watch runs
    live "$url" 'runs and "step" in runs["runs/a"]["steps"]' >seen || fail 'not seen' || return
    has seen '"step": \[1\]'
    start_reading "$url" 'runs and runs["runs/a"]["steps"].get("step", [])[-1:] == [5]'
    {
        printf 'ss":null}\nnonsense\n[1]\n{"step":"x"}\n{"a":{"b":1}}\n\n{"step":3,"loss":"\n'
        head -c 3000000 /dev/zero | tr '\0' x
        printf '\n{"event":"eval"}\n{"step":5,"time":5,"loss":1.5}\n'
    } >>runs/a/metrics.jsonl
    end_reading
    has seen '"step": \[1, 2, 5\]' '"loss mean": \[2, null, 1.5\]'
    stop_watching
}

# A folder's files begin anew, also to the same length.
begins_anew() {
    rm -rf runs
    mkdir -p runs/a
    printf '{"step":%d,"time":1,"loss":1}\n' 1 2 3 >runs/a/metrics.jsonl
    watch runs
    start_reading "$url" 'runs and runs["runs/a"]["generation"] == 1 and
        runs["runs/a"]["steps"].get("step") == [7, 8, 9]'
    live "$url" 'runs and runs["runs/a"]["steps"].get("step") == [1, 2, 3]' >first || fail first
    printf '{"step":%d,"time":1,"loss":1}\n' 7 8 9 >runs/a/metrics.jsonl
    end_reading
    stop_watching
}

# Names and texts of a run are somebody else's words.
words_are_harmless() {
    rm -rf runs
    local name='<img src=x onerror=alert(1)>"&</script>'
    name=${name//\//_}
    mkdir -p "runs/$name" runs/$'bad\xff\nname'
    printf '{"step":1,"time":1,"loss":1,"<b>\\"":3}\n{"step":2,"time":1,"</script>":3}\n' |
        tee "runs/$name/metrics.jsonl" >runs/$'bad\xff\nname/metrics.jsonl'
    printf '{"event":"<i>","step":1,"time":1,"text":"\\n\\ndata: {}\\u2028"}\n' \
        >"runs/$name/events.jsonl"
    printf '{"event":"text","step":1,"time":1,"text":"%s"}\n' \
        "$(head -c 100000 /dev/zero | tr '\0' y)" >>"runs/$name/events.jsonl"
    printf '["%s"]' "$name" >"runs/$name/job.json"
    mkfifo "runs/$name/job"
    watch runs
    live "$url" 'len([r for r in runs.values() if r["steps"]]) == 2 and
        any(len(r["events"]) == 2 for r in runs.values())' >seen || fail 'not seen' || return
    python3 - "runs/$name" <<'END' || fail "$(head -c 3000 seen)"
import json, sys
seen = json.load(open("seen"))
run = seen["runs"][sys.argv[1]]
assert run["events"][0]["text"] == "\n\ndata: {}\u2028"
assert len(run["events"][1]["text"]) == 2000
assert run["job"] is None
assert run["steps"]["step"] == [2] or run["steps"]["step"] == [1, 2]
assert any("\ufffd" in path for path in seen["runs"])
END
    stop_watching
}

# A long run stays small, and its peak visible.
long_runs_are_thinned() {
    rm -rf runs
    mkdir -p runs/long
    python3 - >runs/long/metrics.jsonl <<'END'
for step in range(1, 100001):
    print('{"step":%d,"time":%d,"loss":%s,"step_s":0.5}' % (step, step,
                                                       99 if step == 77777 else 1))
END
    watch runs
    live "$url" 'runs and runs["runs/long"]["steps"].get("step", [])[-1:] == [100000]' >seen ||
        fail 'not seen' || return
    python3 - <<'END' || fail "$(head -c 300 seen)"
import json
steps = json.load(open("seen"))["runs"]["runs/long"]["steps"]
count = len(steps["step"])
assert 384 <= count <= 768, count
assert steps["step"] == sorted(set(steps["step"]))
assert max(steps["loss high"]) == 99 and min(steps["loss low"]) == 1
assert 1 < max(steps["loss mean"]) < 2
assert steps["seconds"][-1] == 50000
END
    [ "$(stat -c %s seen)" -lt 200000 ] || fail "$(stat -c %s seen) bytes"
    stop_watching
}

# Several runs, one of them below, and their ranks while they train.
shows_ranks() {
    rm -rf runs
    mkdir -p runs/deep/er
    printf '{"step":1,"time":1,"loss":1}\n' | tee runs/deep/er/metrics.jsonl >runs/metrics.none
    watch runs
    set -m
    "$CHOIR" train --run runs/now --quiet "${lm[@]}" --steps 1000000 --strategy ddp --nproc 2 \
        text >train.out 2>train.err </dev/null &
    local job=$!
    set +m
    live "$url" '"runs/deep/er" in runs and "runs/now" in runs and
        runs["runs/now"]["state"] == "running" and any(
            "runs/now" in j["command"] and sorted(r["rank"] for r in j["ranks"]) == [0, 1] and
            all(r["devices"] and r["calls"] and r["doing"] for r in j["ranks"]) for j in jobs)' \
        >seen || fail "ranks are not seen: $(cat train.err)"
    kill -TERM "$job"
    wait "$job"
    live "$url" '"runs/now" in runs and runs["runs/now"]["state"] == "interrupted"' >seen ||
        fail 'its interruption is not seen'
    stop_watching
}

# Readers get what is there before the server ends, and know that it does.
says_goodbye() {
    rm -rf runs
    mkdir -p runs/a
    printf '{"step":1,"time":1,"loss":1}\n' >runs/a/metrics.jsonl
    watch runs
    start_reading "$url" 'over'
    live "$url" '"runs/a" in runs' >first || fail 'not seen'
    printf '{"step":2,"time":1,"loss":1}\n' >>runs/a/metrics.jsonl
    stop_watching
    end_reading
    has seen '"step": \[1, 2\]'
}

# The trials of a search, while it goes on, from a file and from a folder that holds others.
follows_a_search() {
    local search=(--storage journal:found/search.journal --study s --space 'x=uniform(0,1)' --seed 1
        --metric y -- sh -c 'echo "{\"y\":{x}}"')
    rm -rf runs found
    mkdir found
    good tune --trials 2 "${search[@]}"
    watch found/search.journal
    start_reading "$url" 'studies and studies["found/search.journal"]["count"] == 5 and
        all(t["state"] == "COMPLETE" for t in studies["found/search.journal"]["trials"])'
    live "$url" 'studies and studies["found/search.journal"]["count"] == 2' >first ||
        fail 'not seen'
    good tune --trials 5 "${search[@]}"
    end_reading
    python3 - <<'END' || fail "$(cat seen)"
import json
study = json.load(open("seen"))["studies"]["found/search.journal"]
trials = study["trials"]
assert [trial["number"] for trial in trials] == list(range(5)) and study["maximizes"] == [False]
for trial in trials:
    assert abs(float(trial["params"]["x"]) - trial["values"][0]) < 1e-8, trial
assert study["best"] == min(trials, key=lambda trial: trial["values"][0])
END
    stop_watching
}

# All studies of a file, also of one that is named as a storage and comes later.
shows_all_studies() {
    local search=(--trials 2 --space 'x=uniform(0,1)' --metric y -- sh -c 'echo "{\"y\":{x}}"')
    rm -rf found
    mkdir found
    good tune --storage sqlite:found/two.db --study first "${search[@]}"
    watch found/two.db sqlite:found/later.db
    live "$url" 'studies and troubles' >first || fail 'not seen'
    has first 'found/later.db'
    good tune --storage sqlite:found/two.db --study second "${search[@]}"
    good tune --storage sqlite:found/later.db --study third "${search[@]}"
    live "$url" 'len(studies) == 3 and not troubles and
        all(study["count"] == 2 for study in studies.values())' >all || fail "$(cat all)"
    has all '"found/two.db: first"'
    has all '"found/two.db: second"'
    has all '"found/later.db"'
    stop_watching
}

# The folder of --dir, whose study is in a storage elsewhere.
finds_the_storage_of_a_folder() {
    rm -rf search away.journal
    good tune --storage journal:away.journal --dir search --trials 2 --space 'x=uniform(0,1)' \
        --metric y -- sh -c 'echo "{\"y\":{x}}"'
    good tune show search
    [ "$(grep -c COMPLETE out)" -eq 2 ] || fail "$(cat out)"
    watch search
    live "$url" 'studies and studies["search"]["count"] == 2' >first || fail 'not seen'
    stop_watching
}

train_has_a_page() {
    rm -rf runs
    start train --json --page "${lm[@]}" --steps 1000000 --strategy ddp --nproc 2 --run runs/p text
    await 30 grep -q '^page of the run: http://127' err || fail "no address: $(cat err)"
    url=$(sed -n 's/^page of the run: //p' err)
    start_reading "$url" 'over'
    live "$url" '"runs/p" in runs and len(runs["runs/p"]["steps"].get("step", [])) > 2' >first ||
        fail 'no step is seen'
    kill -TERM "$started_pid"
    ended 30
    [ "$status" = 143 ] || fail "status $status"
    end_reading
    has seen '"event": "interrupted"'
    ! grep -qv '^{' out || fail "output: $(grep -v '^{' out | head -n 3)"
    [ ! -s runs/p/stderr.log ] || ! grep -q 'page of' runs/p/stderr.log || fail 'the token is kept'
    python3 -c '
import socket, sys, urllib.parse
place = urllib.parse.urlsplit(sys.argv[1])
sys.exit(socket.socket().connect_ex((place.hostname, place.port)) == 0)' "$url" ||
        fail 'the page goes on'
    bad 2 'page shows a recorded run: name its folder with --run' train --page "${lm[@]}" text
}

# A plan is shown while it is made, and once more when it is made anew. What is no plan's line is
# left out, and of the holders the page gets the largest.
shows_a_plan() {
    rm -rf runs plans
    mkdir plans
    choir plan --json --model mlp:in=40,hidden=64,classes=7 --batch-size 16 --devices cpu:0-3 \
        random >whole || fail 'no plan'
    head -n 2 whole >plans/plan.jsonl
    watch plans
    live "$url" 'len(plans) == 1' >seen
    python3 - seen whole <<'END' || fail "$(cat seen)"
import json, sys
plan = json.load(open(sys.argv[1]))["plans"]["plans/plan.jsonl"]
whole = [json.loads(line) for line in open(sys.argv[2])]
assert plan["advice"] is None and len(plan["strategies"]) == 2, plan
for told, printed in zip(plan["strategies"], whole):
    peaks = [d["peak_bytes"] for d in printed["devices"]]
    assert told["strategy"] == printed["strategy"] and told["step_ms"] == printed["step_ms"], told
    assert told["fullest"]["peak_bytes"] == max(peaks) and told["least_bytes"] == min(peaks)
    held = [h["bytes"] for h in told["held"]]
    assert held == sorted(held, reverse=True) and 0 < sum(held) <= max(peaks), held
    assert {h["kind"] for h in told["held"]} <= {h["kind"] for h in printed["held"]}
    assert "devices" not in told
END
    tail -n +3 whole >>plans/plan.jsonl
    live "$url" 'any(p["advice"] for p in plans.values())' >seen
    has seen '"command": "choir train --strategy='
    {
        head -n 1 whole
        printf '%s\n' '{"event":"plan"' '[1]' '{"event":"plan","devices":7,"held":[{},3]}' \
            '{"event":"advice"}'
    } >plans/plan.jsonl
    live "$url" 'any(len(p["strategies"]) == 2 for p in plans.values())' >seen
    has seen '"advice": \{"event": "advice"\}'
    stop_watching
    watch whole # any file's name will do
    live "$url" 'board.get("plans") == 1 and plans' >seen
    stop_watching
}

# A key's token stays, and lets other addresses be served.
keys_and_ports() {
    head -c 32 /dev/urandom >key
    chmod 600 key
    watch --key-file key --listen 0.0.0.0:0 runs
    local first=$url port=${url#http://*:}
    port=${port%%/*}
    [[ $url == http://0.0.0.0:* ]] || fail "address: $url"
    bad 1 "port $port is taken by another program; choose another one" watch --listen ":$port" runs
    : >err
    stop_watching
    watch --key-file key runs
    [ "${first##*:*([0-9])}" = "${url##*:*([0-9])}" ] || fail "another token: $first, $url"
    stop_watching
    bad 1 "0.0.0.0:0 is not this machine's loopback address" watch --listen 0.0.0.0:0 runs
    bad 2 'listen 99999: expected :PORT or HOST:PORT, with a port from 0 to 65535' \
        watch --listen 99999 runs
    bad 2 'expected :PORT or HOST:PORT' watch --listen foo runs
    bad 2 'expected :PORT or HOST:PORT' watch --listen :70000 runs
    bad 1 "unknown host 'no.such.host.invalid'" watch --listen no.such.host.invalid:0 runs
    bad 1 'text: expected the folder of a run.* it is a file: ' watch text
    chmod 644 key
    bad 1 'key' watch --key-file key runs
}

shopt -s extglob
check the_page_is_whole
check strangers_stay_out
check follows_a_run
check takes_whole_lines
check begins_anew
check words_are_harmless
check long_runs_are_thinned
check shows_ranks
check says_goodbye
check follows_a_search
check shows_all_studies
check finds_the_storage_of_a_folder
check shows_a_plan
check train_has_a_page
check keys_and_ports
finish
