#!/bin/bash
# Two ranks, or two devices, beside two processes apart, the batch of each unchanged.
#
# In turn, ROUNDS times over: one process on one core; two processes that know nothing of each
# other on two cores at the same time, the machine's own ceiling; each strategy on both cores. The
# slower of the two processes in each step is the ceiling of ranks that wait for each other. Then a
# run of ddp with --trace: of the time in which the group's queue was at work, the share in which
# the device was, too.
#
#   MODELS='resnet50:8 gpt2:context=64:4'   model:batch a rank   ROUNDS=3   STEPS=8
#   STRATEGIES='ddp fsdp dp dp-balanced'    (those of ranks on two ranks, the others on two devices)
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-3} steps=${STEPS:-8} strategies=${STRATEGIES:-ddp}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
machine

on_core() { # CORE MODEL BATCH
    taskset -c "$1" choir train --json --eval-batches 1 --model "$2" --batch-size "$3" \
        --steps "$steps" random
}
on_both() { # STRATEGY MODEL BATCH-A-RANK ARGUMENT...
    local strategy=$1 model=$2 batch=$3 where=(--nproc 2)
    shift 3
    case $strategy in dp | dp-balanced) where=(--devices cpu:0-1) ;; esac
    train --model "$model" --batch-size $((2 * batch)) --steps "$steps" --strategy "$strategy" \
        "${where[@]}" "$@" random
}
spread() {
    sort -g | awk '{v[NR]=$1} END {printf "%.3f (%.3f, %.3f)", v[int((NR+1)/2)], v[1], v[NR]}'
}

# hidden FILE: of the collectives' time, the share that the device worked through as well. The first
# two steps make what is made once; they do not count.
hidden() {
    python3 - "$1" <<'PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = [e for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
tracks = {e["tid"]: e["args"]["name"] for e in names}
spans = [e for e in events if e["ph"] == "X"]
host = [e for e in spans if tracks[e["tid"]] == "host"]
steps = sorted(e["ts"] for e in host if e["name"].startswith("step"))
begin = steps[2] if len(steps) > 3 else 0
def row(test):
    mine = [e for e in spans if test(tracks[e["tid"]]) and e["ts"] >= begin]
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in mine)
group = row(lambda name: name == "collectives")
device = row(lambda name: name not in ("collectives", "host"))
total = sum(b - a for a, b in group)
both = at = 0
for a, b in group: # both rows are in order and without overlaps
    while at < len(device) and device[at][1] <= a:
        at += 1
    k = at
    while k < len(device) and device[k][0] < b:
        both += min(b, device[k][1]) - max(a, device[k][0])
        k += 1
count = max(len(steps) - 2, 1)
share = 100 * both / max(total, 1e-9)
print(f"{total / count / 1e3:.1f} ms a step in collectives,",
      f"{share:.0f} % of it beside the device's work")
PYTHON
}

for job in ${MODELS:-resnet50:8 gpt2:context=64:4}; do
    model=${job%:*} batch=${job##*:}
    rm -f "$out"/*
    for _ in $(seq "$rounds"); do
        on_core 0 "$model" "$batch" | field step_ms_median >>"$out/alone"
        on_core 0 "$model" "$batch" >"$out/left" &
        on_core 1 "$model" "$batch" >"$out/right"
        wait
        left=$(field step_ms_median <"$out/left") right=$(field step_ms_median <"$out/right")
        apart=$(calc "2 / (1 / $left + 1 / $right)") slower=$(slower_ms "$out/left" "$out/right")
        echo "$apart" >>"$out/apart"
        echo "$slower" >>"$out/slower"
        for strategy in $strategies; do
            both=$(on_both "$strategy" "$model" "$batch" | field step_ms_median)
            echo "$both" >>"$out/$strategy.ms"
            echo "$(digits=4 calc "$apart / $both")" >>"$out/$strategy.apart"
            echo "$(digits=4 calc "$slower / $both")" >>"$out/$strategy.slower"
        done
    done
    printf '%s: one %.1f ms, two apart %.1f, the slower %.1f; medians (least, most)\n' "$model" \
        "$(median <"$out/alone")" "$(median <"$out/apart")" "$(median <"$out/slower")"
    for strategy in $strategies; do
        printf '  %-12s %.1f ms: %s of two apart, %.3f of the slower\n' "$strategy" \
            "$(median <"$out/$strategy.ms")" "$(spread <"$out/$strategy.apart")" \
            "$(median <"$out/$strategy.slower")"
    done
    on_both ddp "$model" "$batch" --trace "$out/trace.json" >/dev/null
    [ -s "$out/trace.json" ] && echo "  ddp, a trace: $(hidden "$out/trace.json")"
done
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
