#!/usr/bin/env bash
# choir plan's times: rates, idle time, bytes by link, the time and cost of a training, another
# cut, and the picture of a step.
. "$(dirname "$0")/../lib.sh"
export CHOIR_CPU_DEVICES=4 HOME=$work # without a calibration of this machine
job=(--model gpt2:layers=4,heads=2,width=32,context=32,vocab=60 --batch-size 16 --devices cpu:0-1)

figures_are_told() {
    good plan --json "${job[@]}" --strategies single,ddp,pipeline --items 1e6 --price 2 random
    python3 - out <<'PYTHON' || fail "the JSON is wrong: $(cat out)"
import json, math, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
single, ddp, pipeline, advice = lines
for line in lines[:3]:
    steps = math.ceil(1e6 / (16 * 32))
    assert line["whole_s"] >= steps * line["step_ms"] * 1e-3 * 0.999999
    cost = line["whole_s"] / 3600 * 2 * line["world"]
    assert abs(line["cost"] - cost) < 1e-6 * cost
    assert line["measured"] == 0 and 0 <= line["idle"] < 1
assert single["idle"] < 0.01 < pipeline["idle"]
assert single["links"] == [] and [l["level"] for l in ddp["links"]] == ["core"]
assert ddp["links"][0]["bytes"] > 2 * 4 * 50000
assert advice["other_microbatches"] in (0, 2, 4, 16)
PYTHON
    good plan "${job[@]}" --strategies single,ddp --price 2 random
    has out '^strategy .* step .*tokens/s +idle +training +sent MiB +cost$' \
        '^single .* 0 % .* -  0\.'
}

# A cut that would be faster is told with its command, which declares it.
another_cut_is_told() {
    good plan --model mlp:in=16,hidden=16,classes=4 --batch-size 64 --microbatches 64 \
        --devices cpu:0-1 --strategies ddp random
    has out 'Another cut would be faster, with other numbers: 2 micro-batches of 32' \
        '^  choir train .*--microbatches=2'
}

a_step_is_drawn() {
    command -v gnuplot >/dev/null || return 0
    good plan "${job[@]}" --strategies fsdp --plot step.svg random
    grep -q 'collectives' step.svg && grep -q 'memory of rank' step.svg || fail "no words in it"
    texts_fit step.svg
    bad 2 "nowhere/step.svg" plan "${job[@]}" --plot nowhere/step.svg random
}

check figures_are_told
check another_cut_is_told
check a_step_is_drawn
finish
