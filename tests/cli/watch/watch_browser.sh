#!/usr/bin/env bash
# The live page in a real browser: what its script draws from runs, ranks and a search, while they
# go on; its light and dark colours, a narrow window, and its use by the keyboard alone.
root=$(cd "$(dirname "$0")/../../.." && pwd)
. "$root/tests/cli/lib.sh"
. "$root/tests/page.sh"
export PYTHONPATH=$root/tests PYTHONDONTWRITEBYTECODE=1
python3 -c 'import browser, sys; sys.exit(not browser.program())' || skip 'there is no Chromium'

make_text text 200
lm=(--batch-size 12 --microbatches 2 --model "$gpt")

# browse: runs the Python program on standard input with the page open in `b`. The page may write
# nothing to the console, and ask nothing of other servers.
browse() {
    {
        cat <<'PROGRAM'
import sys, time
from browser import Browser

url = sys.argv[1]
texts = lambda what: b.ask(f"[...document.querySelectorAll('{what}')].map((e) => e.textContent)")
count = lambda what: b.ask(f"document.querySelectorAll('{what}').length")
with Browser() as b:
    b.look(1280)
    b.open(url)
PROGRAM
        sed 's/^/    /'
        cat <<'PROGRAM'
    assert not b.complaints, b.complaints
    strange = [address for address in b.asked_for if not address.startswith((url, "data:"))]
    assert url in b.asked_for and not strange, b.asked_for
PROGRAM
    } >browse.py
    timeout -k 2 $((60 * patience)) python3 browse.py "$url" 2>browse.err ||
        fail "$(tail -n 8 browse.err)"
}

# A run of two ranks and a search go on while the page is open.
follows_what_goes_on() {
    rm -rf runs
    mkdir runs
    watch runs
    set -m
    "$CHOIR" train --run runs/now --quiet "${lm[@]}" --steps 1000000 --strategy ddp --nproc 2 \
        --eval-every 50 --metric 'mine=echo 0.5' text >train.out 2>train.err </dev/null &
    local job=$!
    set +m
    (
        choir tune --quiet --dir runs/search --space 'x=uniform(0,1)' --seed 1 --trials 5 \
            --metric y -- sh -c 'sleep 0.3; echo "{\"y\":{x}}"' >tune.out 2>tune.err
    ) &
    local search=$!
    browse <<'END'
b.until("document.querySelectorAll('#curves .curve').length >= 5")
# Other tests' ranks are on the page, too.
jobs = "[...document.querySelectorAll('#ranks .job')]"
job = f"{jobs}.find((e) => e.textContent.includes('runs/now'))"
b.until(f"{job}?.querySelectorAll('.rank').length == 2")
b.until(f"{job}?.querySelectorAll('.call').length > 4")
b.until("document.querySelectorAll('#devices .device').length == 2")
b.until("document.querySelectorAll('#studies tbody tr').length == 5")
titles = texts("#curves h3")
assert titles[0] == "Loss" and "Gradient norm" in titles and "Learning rate" in titles, titles
assert texts("#runs .name") == ["now"] and texts("#runs .state") == ["running"]
step = "Number(/step (\\d+)/.exec(document.querySelector('#runs .figures').textContent)[1])"
first = b.ask(step)
b.until(f"{step} > {first} + 20")
assert count("#curves .mark") > 0, "no validation is drawn"
assert "tokens/s" in texts("#runs .figures")[0], texts("#runs .figures")
assert b.ask(f"{job}.querySelectorAll('h3 .part').length") > 4
for name in "accuracy", "mine":
    b.until(f"document.querySelector('#curves').textContent.includes('Validation {name}')")
b.until("document.querySelectorAll('#events li').length == 30")
b.ask("document.querySelector('#all-events').click()")
b.until("document.querySelectorAll('#events li').length > 30")
assert texts("#events .text")[-1].startswith("begins: ddp"), texts("#events .text")[-1]
assert b.ask("document.title") == "now – Choir"
assert texts("#studies tbody tr")[0].startswith(texts("#studies tr.best")[0])
assert b.ask("document.querySelector('#link').textContent") == "live"
END
    kill -TERM "$job"
    wait "$job" "$search"
    stop_watching
}

# ten_runs: folders of ten runs, one of which has 64 ranks.
ten_runs() {
    rm -rf runs
    python3 - <<'END'
import json, os

for run in range(10):
    folder = f"runs/run-{run}" + "-of-long-name" * 8 * (run == 9)
    os.makedirs(folder)
    ranks = 64 if run == 0 else 1
    with open(f"{folder}/metrics.jsonl", "w") as file:
        for step in range(1, 101):
            row = {"step": step, "time": 1.7e9 + step, "loss": 4 / (step + run), "lr": 1e-3,
                   "grad_norm": 1 / step, "items": 1000 * step, "items_per_s": 1000, "step_s": 1}
            for rank in range(ranks):
                row[f"device/{rank}/cpu:0/bytes"] = 1e6 + rank
                row[f"device/{rank}/cpu:0/peak_bytes"] = 2e6
                for kind, size in ("weights", 2e5), ("gradients", 2e5), ("optimizer", 4e5):
                    row[f"device/{rank}/cpu:0/{kind}_bytes"] = size
                row[f"device/{rank}/cpu:0/busy"] = 0.5
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    with open(f"{folder}/events.jsonl", "w") as file:
        for event in ({"event": "begin", "strategy": "ddp", "world": ranks},
                      {"event": "failure", "message": "the disk is full"}):
            file.write(json.dumps({**event, "step": 1, "time": 1.7e9}) + "\n")
END
}

# Every word has enough contrast, nothing is wider than the window, in light and dark.
is_readable() {
    ten_runs
    watch runs
    browse <<'END'
b.until("document.querySelectorAll('#runs li').length == 10")
b.until("document.querySelector('#curves svg').querySelectorAll('.curve').length == 10")
b.until("document.querySelectorAll('#devices .of-run').length == 10")
assert count("#runs .failed") == 10
contrasts = """(() => {
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const x = c[i] / 255;
    return sum + weight * (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  }, 0);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const colour = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll('main *, header *')) {
    const words = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!words || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), isSvg = e instanceof SVGElement;
    const [a, b] = [light(colour(isSvg ? style.fill : style.color)), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) poor.push([e.className.baseVal ?? e.className, e.textContent, contrast]);
  }
  return poor.slice(0, 5);
})()"""
ground = {}
for scheme in ("light", "dark"):
    for width in (1280, 400):
        b.look(width, scheme)
        time.sleep(0.5)
        assert b.ask("document.scrollingElement.scrollWidth") <= width, (scheme, width)
        poor = b.ask(contrasts)
        assert not poor, (scheme, width, poor)
    ground[scheme] = b.ask("getComputedStyle(document.body).backgroundColor")
assert ground["light"] != ground["dark"], ground
b.ask("document.querySelector('#devices summary').click()")
b.until("document.querySelectorAll('#devices .device').length == 64")
assert b.ask("document.scrollingElement.scrollWidth") <= 400
END
    stop_watching
}

# Of many runs the first ten by their numbers have curves, and 2 comes before 10.
counts_as_people_do() {
    rm -rf runs
    local i
    for i in {0..12}; do
        mkdir -p runs/$i
        printf '{"step":%d,"time":1,"loss":1}\n' 1 2 >runs/$i/metrics.jsonl
    done
    watch runs
    browse <<'END'
b.until("document.querySelectorAll('#runs li').length == 13")
off = b.ask("""[...document.querySelectorAll('#runs li')].filter((e) =>
    !e.querySelector('input').checked).map((e) => e.querySelector('.name').textContent)""")
assert texts("#runs .name") == [str(i) for i in range(13)], texts("#runs .name")
assert off == ["10", "11", "12"], off
END
    stop_watching
}

# Trials that the search stopped are grey, beside the run and in its curve.
stopped_trials_are_grey() {
    rm -rf runs
    mkdir runs
    local i
    good tune --quiet --dir runs/search --space 'x=uniform(0,1)' --seed 1 --trials 4 --window 1 \
        --scheduler median:startup=1 --metric y -- \
        sh -c 'for s in 1 2 3; do echo "{\"step\":$s,\"y\":{x}}"; sleep 0.1; done'
    for i in {0..3}; do
        printf '{"step":%d,"time":1,"loss":1}\n' 1 2 >runs/search/$i/metrics.jsonl
    done
    watch runs
    browse <<'END'
b.until("document.querySelectorAll('#runs .swatch.stopped').length == 2")
assert texts("#runs .swatch:not(.stopped) + .name")[0].startswith("trial 0"), texts("#runs .name")
assert count("#curves g.stopped .curve") == 2
END
    stop_watching
}

# On a phone the name of a composition breaks behind its signs, a command between its words.
words_stay_whole() {
    rm -rf runs
    mkdir runs
    local name
    for name in single fsdp+tp+pipeline pipeline:schedule=zero-bubble; do
        printf '{"event":"plan","strategy":"%s","mesh":"%s","world":8,"step_ms":9,%s}\n' \
            "$name" "${name/single/}" '"fits":true,"devices":[{"device":"cpu:0","peak_bytes":1}]'
    done >runs/plan.jsonl
    printf '{"event":"advice","strategy":"single","why":"it fits","command":"choir train %s"}\n' \
        '--strategy=single --model=gpt2:layers=4,heads=4,width=128,context=64' >>runs/plan.jsonl
    watch runs
    browse <<'END'
b.look(400)
b.until("document.querySelectorAll('.plan tbody th').length == 3")
broken = b.ask("""[...document.querySelectorAll('.plan tbody th, .plan pre span')].flatMap((cell) =>
    [...cell.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE).filter((part) => {
    const range = document.createRange();
    range.selectNodeContents(part);
    return range.getClientRects().length > 1;
  }).map((part) => part.data))""")
assert not broken, broken
assert texts(".plan pre")[0] == \
    "choir train --strategy=single --model=gpt2:layers=4,heads=4,width=128,context=64"
assert count(".plan pre .part") == 14
assert texts(".plan tbody th")[1] == "fsdp+tp+pipeline, fsdp+tp+pipeline"
assert b.ask("document.querySelector('#controls').hidden")  # there are no curves
assert b.ask("document.querySelector('#runs').parentElement.hidden")
assert b.ask("document.scrollingElement.scrollWidth") <= 400
END
    stop_watching
}

# The tab key reaches every control, space and arrows work them, and what has the focus shows it.
needs_no_mouse() {
    ten_runs
    watch runs
    browse <<'END'
b.until("document.querySelector('#curves svg')?.querySelectorAll('.curve').length == 10")
b.until("document.querySelectorAll('#devices .of-run').length == 10")
focused = """(e => e.id || e.getAttribute('aria-label') || e.tagName + e.type)(
    document.activeElement)"""
reached = []
for _ in range(60):
    b.press("Tab", 9)
    reached.append(b.ask(focused))
    if reached[-1] != "BODYundefined":
        outlined = b.ask("""(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0)(
            getComputedStyle(document.activeElement))""")
        assert outlined, f"no sign of the focus on {reached[-1]}"
    if reached[-1] == "INPUTcheckbox" and "toggled" not in reached:
        b.press(" ", 32, " ")
        b.until("document.querySelector('#curves svg').querySelectorAll('.curve').length == 9")
        b.press(" ", 32, " ")
        b.until("document.querySelector('#curves svg').querySelectorAll('.curve').length == 10")
        reached.append("toggled")
    if reached[-1] == "Loss":
        before = texts("#curves .readout")[0]
        b.press("Home", 36)
        b.until("document.querySelector('#curves .cursor')")
        assert texts("#curves .readout")[0] != before
        b.press("Escape", 27)
        b.until("!document.querySelector('#curves .cursor')")
    if reached[-1] == "log" and reached.count("log") == 1:
        b.press(" ", 32, " ")
        assert b.ask("document.querySelector('#log').checked")
for wanted in ("axis", "smooth", "log", "toggled", "Loss", "Learning rate"):
    assert wanted in reached, reached
END
    stop_watching
}

# Marks of an axis have words of their own, which are where they say: of eight steps none is a half,
# and of 400 seconds none is a third of a minute.
marks_differ() {
    rm -rf runs
    mkdir -p runs/close
    local i
    for i in 1 2 3 4 5 6 7 8; do
        printf '{"step":%s,"time":%s,"loss":2.0000%s}\n' $i $((i * 57)) $i
    done >runs/close/metrics.jsonl
    watch runs
    browse <<'END'
b.until("document.querySelectorAll('#curves .curve').length == 1")
up = [float(word) for word in texts("#curves svg text") if word.startswith("2.")]
assert len(up) > 3 and len(set(up)) == len(up), up
along = [word for word in texts("#curves svg text") if not word.startswith("2.")]
assert along == ["2", "4", "6", "8"], along
b.ask("(e => { e.value = 'seconds'; e.dispatchEvent(new Event('change')); })"
      "(document.querySelector('#axis'))")
b.until("document.querySelector('#curves svg').textContent.includes(' min')")
minutes = [word for word in texts("#curves svg text") if word.endswith(" min")]
assert minutes == [f"{i} min" for i in range(0, 7, 2)], minutes
END
    stop_watching
}

# Names and texts of a run stay words.
words_are_harmless() {
    rm -rf runs
    local name='<img src=x onerror="document.title=1">'
    mkdir -p "runs/$name"
    printf '{"step":1,"time":1,"loss":1,"<b>":3}\n{"step":2,"time":2,"loss":1}\n' \
        >"runs/$name/metrics.jsonl"
    printf '{"event":"text","name":"<script>alert(1)</script>","step":1,"time":1,"text":"%s"}\n' \
        '<a href=//x.invalid/>' >"runs/$name/events.jsonl"
    printf '{"options":{"<i>":"<s>","steps":[{}]}}' >"runs/$name/job.json"
    watch runs
    browse <<'END'
b.until("document.querySelector('#runs .name')?.textContent.startsWith('<img src=x onerror')")
b.until("document.querySelectorAll('#events .text').length == 1")
assert texts("#events .text") == ["<script>alert(1)</script>: <a href=//x.invalid/>"]
assert texts("#runs dt")[0] == "<i>" and texts("#runs dd")[0] == "<s>"
assert count("img, a, s, i:not(.legend i)") == 0 and count("script") == 2
assert b.ask("document.title").endswith("Choir")
END
    stop_watching
}

# The page says when its server has gone, and comes back by itself where a key keeps the address.
finds_its_server_again() {
    rm -rf runs
    mkdir -p runs/a
    printf '{"step":%d,"time":1,"loss":1}\n' 1 2 >runs/a/metrics.jsonl
    head -c 32 /dev/urandom >key
    chmod 600 key
    watch --key-file key --listen ":$((20000 + $$ % 10000))" runs
    browse <<'END'
import os, signal, subprocess
b.until("document.querySelector('#runs .figures')?.textContent.startsWith('step 2')")
server = int(subprocess.check_output(["pgrep", "-f", f"watch --key-file key"]).split()[0])
os.kill(server, signal.SIGKILL)
b.until("document.querySelector('#link').className == 'lost'")
with open("runs/a/metrics.jsonl", "a") as file:
    file.write('{"step":3,"time":1,"loss":1}\n')
again = subprocess.Popen([os.environ["CHOIR"], "watch", "--key-file", "key", "--listen",
                          ":" + url.split(":")[2].split("/")[0], "runs"],
                         stdout=subprocess.DEVNULL)
b.until("document.querySelector('#link').textContent == 'live'")
b.until("document.querySelector('#runs .figures').textContent.startsWith('step 3')")
again.terminate()
again.wait()
b.until("document.querySelector('#link').textContent.startsWith('the server of this page')")
b.complaints.clear()  # of the connection
END
    wait "$started_pid" 2>wait.err
    started_pid=
}

export CHOIR
# Chains of hashes: a run that is equal, one that is not, one whose file was edited.
compares_audits() {
    rm -rf runs
    local name
    for name in a b edited; do
        good train --run runs/$name --audit=every=1 --quiet "${lm[@]}" --steps 6 --no-eval text
    done
    good train --run runs/c --audit=every=2 --lr 0.002 --quiet "${lm[@]}" --steps 6 --no-eval text
    sed -i '4s/"weights":\["./"weights":["-/' runs/edited/audit.jsonl
    good train --run runs/model --audit=every=1 --quiet --steps 6 --no-eval --model toy random
    cp -r runs/b runs/short # its chain is cut at the end
    sed -i '5,$d' runs/short/audit.jsonl
    watch runs/a runs/b runs/c runs/edited runs/model runs/short
    browse <<'END'
b.until("document.querySelectorAll('.chain').length == 6")
a, same, other, edited, model, short = texts(".chain")
assert "6 audited steps, 1 to 6" in a, a
assert "a and b are equal in 6 common steps, up to step 6." in same, same
assert "a and c part at step 2: a weight that the step read differs, in module" in other, other
assert "choir audit diff" in other and "runs/c" in other, other
assert "a and model have different modules" in model and "audit diff" not in model, model
assert "breaks at line 4 of audit.jsonl" in edited and "2 audited steps, 1 to 2" in edited, edited
assert "The audit ends with step 3, and the run has done 6 steps: it was cut, or" in short, short
assert not any("was cut" in text for text in (a, same, other, edited, model))
assert [count(f".chain:nth-child({n}) .link.other") for n in (1, 2, 3)] == [0, 0, 3]
# What cannot be compared is neither equal nor different.
assert [count(f".chain:nth-child({n}) .link.same") for n in (1, 2, 5)] == [0, 6, 0]
assert count(".chain:nth-child(5) .link.alone") == 6
END
    stop_watching
}

check follows_what_goes_on
check compares_audits
check is_readable
check counts_as_people_do
check stopped_trials_are_grey
check words_stay_whole
check needs_no_mouse
check marks_differ
check words_are_harmless
check finds_its_server_again
finish
