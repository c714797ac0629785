#!/usr/bin/env bash
# choir plan: the bytes of each device are those that choir train prints, whatever the model, the
# strategy and the options; they do not depend on how busy the machine is; what does not fit is
# named, and the advised command runs.
. "$(dirname "$0")/../lib.sh"
export CHOIR_CPU_DEVICES=8 HOME=$work # without a calibration of this machine

# peaks FILE: the peak of each device, on one line.
peaks() { grep -oE '"device":"[^"]*","peak_bytes":[0-9]+' "$1" | tr '\n' ' '; }

# equal ARG...: plan and train agree on each device, or both refuse the job.
equal() {
    choir plan --json "$@" >out 2>err
    local planned=$?
    grep '"event":"plan"' out >planned
    choir train --json --no-eval "$@" >out 2>err
    local status=$? found expected
    if [ $status != 0 ]; then
        [ $planned != 0 ] || fail "train refuses it, and plan does not: $* ($(cat err))"
        return
    fi
    grep '"event":"summary"' out >trained
    found=$(peaks planned)
    expected=$(peaks trained)
    rows=$((rows + 1))
    [ -n "$expected" ] && [ "$found" = "$expected" ] ||
        fail "$*: planned '$found', held '$expected'"
}

donut=donut:height=64,image_width=64,embed=16,depths=2-2,heads=2-4,window=4,layers=2
donut+=,decoder_heads=4,width=32,hidden=64,context=24,vocab=60
models=(toy mlp:in=40,hidden=64,layers=8,classes=7 cnn:width=8 lenet
    resnet18:image=32,classes=5,width=8 resnet50:image=32,classes=5,width=8
    alexnet:image=64,classes=5,width=8,hidden=64
    gpt2:layers=8,heads=4,width=64,context=32,vocab=100,dropout=0.1
    llama:layers=8,heads=4,width=64,context=32,vocab=96
    mistral:layers=8,heads=4,width=64,context=32,vocab=96,window=8
    lstm:layers=4,hidden=32,in=16,out=8,context=16
    bert:layers=8,heads=4,width=64,context=32,vocab=90
    bert:layers=8,heads=4,width=64,context=32,vocab=90,classes=3
    $donut)
places=("single" "dp --devices cpu:0-2" "dp-balanced --devices cpu:0-1" "mp --devices cpu:0-3"
    "pipeline --devices cpu:0-1" "pipeline:schedule=gpipe --devices cpu:0-3"
    "pipeline:schedule=1f1b --devices cpu:0-2" "pipeline:schedule=interleaved --devices cpu:0-1"
    "ddp --nproc 2" "ddp --nproc 3" "ddp:sync_bn=1 --nproc 4" "ddp:bucket_cap_mb=0.01 --nproc 8"
    "ddp:sync_bn=1,groups=3 --nproc 5"
    "fsdp --nproc 2" "fsdp:stage=1 --nproc 3" "fsdp:stage=2 --nproc 4" "fsdp --nproc 8"
    "tp --nproc 2" "cp --nproc 2" "mp --nproc 4" "pipeline --nproc 3"
    "pipeline:schedule=1f1b --nproc 4" "hogwild --nproc 2" "diloco:every=3 --nproc 4"
    "local-sgd --nproc 2" "ddp+pipeline --mesh 2x2" "ddp+pipeline --mesh 2x4"
    "fsdp+pipeline --mesh 2x4" "fsdp+tp --mesh 2x2" "ddp+tp+pipeline --mesh 2x2x2"
    "ddp+cp --mesh 2x2" "fsdp+cp --mesh 2x2" "tp+pipeline --mesh 2x2")
options=("" "--recompute" "--amp bf16" "--amp fp16" "--offload params" "--offload ." "--lora r=4"
    "--clip 1" "--ema 0.9" "--eval-every 2" "--recompute --amp bf16" "--optimizer lamb"
    "--optimizer muon" "--optimizer sgd:momentum=0.9" "--amp O2" "--lora r=4 --base q8_0")

# Each model under each strategy, and each option with most of both; a few rows unless all are
# asked for. Trainings, whose micro-batches cost the most, take four fifths of the time: most rows
# have 12 of two samples, of which five and eight ranks get unequal numbers.
bytes_equal_those_of_train() {
    local i j at=0 rows=0 steps cut
    for ((i = 0; i < ${#models[@]}; i++)); do
        for ((j = 0; j < ${#places[@]}; j++)); do
            at=$((i * 4 + j + j / 15))
            steps=$((1 + (i + j) % 9))
            cut=$(((i + j) % 4 ? 12 : 24))
            sampled 40 || continue
            # shellcheck disable=SC2086
            equal --model "${models[i]}" --strategy ${places[j]} \
                ${options[at % ${#options[@]}]} --batch-size 24 --microbatches "$cut" \
                --steps "$steps" random
        done
    done
    echo "$rows rows are equal to the byte"
}

# Frozen weights in few bits, which processors multiply in place.
held_bases_count_as_in_train() {
    local row rows=0 count=0 wide=llama:layers=2,heads=4,width=256,context=16,vocab=96
    for row in "single --lora r=4 --base q8_0" "fsdp --nproc 2 --lora r=4 --base q4_K" \
        "pipeline --nproc 2 --recompute --lora r=4 --base q4_0" \
        "ddp --nproc 2 --lora r=4 --base q8_0 --amp bf16"; do
        sampled 2 || continue
        count=$((count + 1))
        # shellcheck disable=SC2086
        equal --model $wide --strategy $row --batch-size 8 --microbatches 8 --steps 3 random
    done
    [ $rows = $count ] || fail "only $rows of $count rows were planned"
}

# Ranks that meet in groups of their own, of which no two ranks have the same.
uneven_groups_count_as_in_train() {
    local rows=0
    equal --model cnn:width=4,image=12 --strategy ddp:sync_bn=1,groups=2 --nproc 4 \
        --batch-size 12 --microbatches 6 --steps 3 random
    [ $rows = 1 ] || fail 'the job was not planned'
    bad 2 'groups = 8 do not divide 4 micro-batches' plan --model cnn:width=4,image=12 \
        --strategy ddp:sync_bn=1,groups=8 --nproc 2 --batch-size 8 --microbatches 4 random
}

# A job's bytes are one number in ten runs, two at a time, which disturb each other: cuts follow
# from the program, and memory is free when the program frees it.
bytes_do_not_depend_on_time() {
    local place pair run runs model=gpt2:layers=3,heads=2,width=32,context=16,vocab=50
    for place in "pipeline --devices cpu:0-1" "pipeline --nproc 2" "fsdp --nproc 2"; do
        sampled 2 || continue
        : >all
        for pair in 1 2 3 4 5; do
            runs=()
            for run in 1 2; do
                # shellcheck disable=SC2086
                choir train --json --no-eval --model $model --strategy $place --batch-size 8 \
                    --microbatches 4 --steps 6 random >out.$run 2>err.$run &
                runs+=($!)
            done
            for run in 1 2; do
                wait "${runs[run - 1]}" || fail "$place: $(cat err.$run)"
                peaks out.$run >>all
                echo >>all
            done
        done
        [ "$(sort -u all | wc -l)" = 1 ] || fail "$place: $(sort all | uniq -c)"
    done
}

small=(--model mlp:in=40,hidden=64,classes=7 --batch-size 16 --devices cpu:0-3)

json_has_a_line_per_strategy_and_advice() {
    good plan --json "${small[@]}" random
    has out '^\{"event":"plan","strategy":"single","mesh":null,"world":1,"microbatches":16,' \
        '^\{"event":"plan","strategy":"ddp",.*"fits":true,"step_ms":' \
        '"strategy":"fsdp\+pipeline","mesh":"2x2","world":4,' \
        '"devices":\[\{"device":"cpu:0","peak_bytes":[0-9]+,.*\{"device":"cpu:3",'
    tail -n 1 out >last
    has last '^\{"event":"advice","strategy":"[^"]+","command":"choir train --strategy=' \
        '"left_out":\[.*\{"strategy":"pipeline:schedule=interleaved","mesh":null,"why":"[^"]+"\}'
    local command
    command=$(sed 's/.*"command":"\([^"]*\)".*/\1/' last)
    read -ra words <<<"${command#choir } --steps=2 --quiet"
    good "${words[@]}"
}

the_table_names_what_is_left_out() {
    good plan "${small[@]}" random
    has out '^strategy +mesh +on +fits +peak MiB' '^single +- +1 +yes ' '^ddp +- +4 +yes ' \
        '^Left out: pipeline:schedule=interleaved \(' '^Take ' '^  choir train --strategy='
}

# What holds the memory is named, with a machine's memory and with the limit of each device.
what_does_not_fit_is_named() {
    # What needs a run's folder or a log is left out with it, without a word.
    good plan --json --memory 100K "${small[@]}" --strategies single --save none --save-every 2 \
        --on-spike 5 --log tensorboard:none --log-histograms 2 random --audit && mv out out.saves
    good plan --json --memory 100K "${small[@]}" --strategies single random
    diff <(grep -v time_ out) <(grep -v time_ out.saves) >diff || fail "$(head -c 300 diff)"
    [ ! -e none ] || fail 'a plan wrote'
    good plan --json --memory 100K "${small[@]}" --strategies single,ddp random
    has out '"strategy":"single",.*"fits":false,.*"lacks":"its devices need [0-9.]+ KiB and ' \
        'the machine has 100 KiB: most of it is ' \
        '"event":"advice","strategy":null,"command":null,"why":"No strategy fits'
    good plan --memory 400M --model gpt2:layers=4,width=256,heads=4,vocab=500,context=512 \
        --strategies single --batch-size 16 --microbatches 1 random
    has out '^No strategy fits\. single would fit with --recompute.* or with .*--microbatches='
    has out '^ *[0-9.]+ MiB +[0-9]+ %  activations +transformer\.h\.\*\.' \
        '^  choir train --strategy=single .* --recompute '
    good plan --json --memory 5M --model llama:layers=2,width=128,heads=4,vocab=500,context=32 \
        --strategies ddp --batch-size 16 --devices cpu:0-1 random
    python3 - out <<'PYTHON' || fail "the JSON is wrong: $(cat out)"
import json, sys
plan, advice = [json.loads(line) for line in open(sys.argv[1])]
assert sum(part["bytes"] for part in plan["held"]) == max(d["peak_bytes"] for d in plan["devices"])
assert {"kind": "parameters", "name": "model.layers.0.mlp.up_proj.weight"}.items() <= \
    next(p for p in plan["held"] if p["name"] and "0.mlp.up_proj" in p["name"]).items()
device = plan["devices"][0]
assert device["other_bytes"] == sum(
    device[k] for k in ("activations_bytes", "workspace_bytes", "messages_bytes"))
changes = [r["change"] for r in advice["remedies"]]
assert changes and all(r["memory_bytes"] <= 5 << 20 for r in advice["remedies"]), changes
assert all(c.startswith("choir ") for c in (r["command"] for r in advice["remedies"]))
open("remedy", "w").write(advice["remedies"][0]["command"])
PYTHON
    # A remedy's command runs, and takes the bytes that it names.
    local command
    read -r command <remedy
    read -ra words <<<"${command#choir } --steps=2 --no-eval --quiet"
    good "${words[@]}"
    good plan --json --mem-cap 60K "${small[@]}" --strategies single random
    has out '"fits":false,.*"lacks":"out of memory on cpu:0'
    ! grep -q 'dry:' out || fail "a dry device is named: $(cat out)"
}

# Models that fit on no machine are planned within 300 MB of addresses.
large_models_take_no_memory() {
    [ "$(getconf LONG_BIT)" = 64 ] || return 0
    (
        ulimit -v 300000
        "$CHOIR" plan --json --model llama:size=8b --strategies single,fsdp,pipeline \
            --devices cpu:0-3 --batch-size 4 random >out 2>err
    ) || fail "$(cat err)"
    [ "$(grep -c '"event":"plan"' out)" = 3 ] || fail "$(cat out err)"
    # Nor does what they would have outside their devices, and without a number of micro-batches
    # the search for more machines ends, too.
    local large=(plan --model llama:size=8b --strategy fsdp --devices cpu:0-3 --batch-size 4)
    good "${large[@]}" --memory 16G --offload params random
    has out '^No strategy fits'
    mkdir -p state
    good "${large[@]}" --memory 16G --offload ./state random
    [ "$(du -s state | cut -f1)" -lt 64 ] || fail "a plan has written: $(du -a state)"
}

# Where a batch has too few samples for the machines that would hold a model, the remedy names one
# that has enough; a device's memory is not shared among machines.
the_smallest_cluster_is_named() {
    local large=(plan --json --model "llama:size=8b,context=256" --strategies fsdp)
    good "${large[@]}" --devices cpu:0-3 --batch-size 4 --memory 40G random
    has out '"change":"--recompute --batch-size=[0-9]+, as fsdp, on [0-9]+ machines like this one'
    python3 - out <<'PYTHON' || fail "the remedy is wrong: $(tail -n 1 out)"
import json, re, sys
last = json.loads(open(sys.argv[1]).readlines()[-1])["remedies"][-1]
found = re.search(r"on (\d+) machines like this one \((\d+) ranks", last["change"])
machines, ranks = map(int, found.groups())
assert ranks == 4 * machines and last["memory_bytes"] <= 40 << 30, last
assert last["command"].endswith(f"--batch-size={ranks}"), last
# One machine less would not hold it: its share of the model's 16 bytes per parameter.
assert last["memory_bytes"] * machines / (machines - 1) > 40 << 30, last
PYTHON
    printf '{"device": "H100", "nodes": 1, "devices_per_node": 1}' >one.json
    good "${large[@]}" --cluster one.json --batch-size 1 random
    python3 - out <<'PYTHON' || fail "the remedy is wrong: $(tail -n 1 out)"
import json, sys
last = json.loads(open(sys.argv[1]).readlines()[-1])["remedies"][-1]
assert "as fsdp, on 2 machines like this one (2 ranks)" in last["change"], last
assert 7e9 * 16 / 2 < last["memory_bytes"] <= 80e9, last
PYTHON
}

# The CPU devices of a cluster's node share its memory, and no other node's.
a_node_has_its_own_memory() {
    printf '{"device": {"kind": "cpu", "memory_bytes": 20000}, "nodes": 3, %s}' \
        '"devices_per_node": 2' >nodes.json
    local job=(--model mlp:in=40,hidden=64,classes=7 --batch-size 12 --cluster nodes.json)
    good plan --json "${job[@]}" --strategies ddp,fsdp random
    has out '"lacks":"the devices of its fullest node need [0-9.]+ KiB and a node has 39.1 KiB: '
    python3 - out <<'PYTHON' || fail "the bytes of a node are wrong: $(cat out)"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
for plan in lines[:-1]:
    peaks = [d["peak_bytes"] for d in plan["devices"]]
    assert len(peaks) == 6 and not plan["fits"], plan
    assert plan["memory_bytes"] == max(sum(peaks[i:i + 2]) for i in (0, 2, 4)), plan
PYTHON
    good plan "${job[@]}" --strategies ddp --memory 1M random
    has out '^Each node has 1.0 MiB' '^ddp +- +6 +yes '
}

# Stages and slices of many devices divide a node, so that the search of all strategies ends.
many_devices_are_planned() {
    printf '{"device": "H100", "nodes": 32, "devices_per_node": 8}' >many.json
    (
        ulimit -v 2097152
        "$CHOIR" plan --json --cluster many.json --batch-size 256 \
            --model llama:layers=2,heads=8,width=64,context=64,vocab=500 random >out 2>err
    ) || fail "$(cat err)"
    has out '"strategy":"fsdp\+tp","mesh":"32x8","world":256' \
        '"strategy":"ddp\+pipeline","mesh":"128x2"' '"advice","strategy":"[^"]+"'
    ! grep -q '"mesh":"16x16"' out || fail "a replica leaves its node: $(grep 16x16 out)"
}

# The fullest device of many ranks holds no more than one of few: tables' gradients are sums.
memory_does_not_grow_with_ranks() {
    local place nodes few peak
    for place in ddp fsdp "ddp+tp --mesh"; do
        for nodes in 8 128; do
            printf '{"device": "H100", "nodes": %d, "devices_per_node": 8}' $nodes >many.json
            [ "$place" = "${place% *}" ] || place="ddp+tp --mesh $((nodes * 4))x2"
            # shellcheck disable=SC2086
            good plan --json --cluster many.json --strategies $place \
                --model llama:layers=2,heads=4,width=64,context=256,vocab=500 \
                --batch-size $((nodes * 8)) --microbatches $((nodes * 8)) random
            peak=$(grep -m1 -oE '"memory_bytes":[0-9]+' out | cut -d: -f2)
            [ $nodes = 128 ] || few=$peak
        done
        [ "$peak" -le "$few" ] || fail "$place: $few bytes on 64 ranks, $peak on 1024"
    done
}

# Times: by presets, by a cluster's file, by this machine's calibration; one of another machine is
# refused.
times_have_a_source() {
    export CHOIR_COSTS=$PWD/costs.json
    printf '{"device": "H100", "nodes": 1, "devices_per_node": 4}' >cluster.json
    good plan "${small[@]}" random
    has out "^Times: by the preset 'cpu' \\(estimates\\); choir plan --calibrate measures"
    good plan --cluster cluster.json "${small[@]}" random
    has out '^Times: by cluster.json, devices of kind H100 \(data sheet\)\.'
    good plan --json "${small[@]}" random
    cp out before
    good plan --json "${small[@]}" random
    cmp -s out before && has out '"strategy":"ddp",.*"step_ms":[0-9.]+,"step_ms_low":[0-9.]+,' ||
        fail "$(cat out)"
    printf '{"device": "H100", "nodes": 1, "devices_per_node": 2}' >cluster.json
    choir plan --cluster cluster.json "${small[@]}" --strategies ddp random >out 2>err
    has err 'has 2 devices \(1 nodes of 2\), expected at least one for each of the 4 ranks'
    printf '{"key": "cpu: another", "kernels": []}' >costs.json
    bad 1 "was measured on another machine or build: it has 'cpu: another', expected" \
        plan "${small[@]}" random
    rm costs.json
    if sampled 3; then
        good plan --calibrate
        has out 'costs.json: [0-9]+ kinds of kernels'
        good plan "${small[@]}" random
        has out "^Times: by this machine's calibration \\(measured\\)"
    fi
    unset CHOIR_COSTS
}

# A plan is for machines that are not here.
devices_need_not_be_here() {
    export CHOIR_CPU_DEVICES=2
    good plan --json --model toy --batch-size 64 --strategies ddp --devices cpu:0-15 random
    has out '"strategy":"ddp","mesh":null,"world":16,' '"device":"cpu:15"'
    good plan --json --model toy --batch-size 64 --strategies ddp --nproc 32 random
    has out '"strategy":"ddp","mesh":null,"world":32,'
    good plan --json --model toy --batch-size 64 --strategies fsdp --devices cuda:0-7 random
    has out '"strategy":"fsdp","mesh":null,"world":8,' '"device":"cuda:7"'
    export CHOIR_CPU_DEVICES=8
}

# Ranks of some strategies share a sample: batches smaller than the devices are planned for them,
# and cut in the same way when strategies are compared.
fewer_samples_than_devices_are_planned() {
    local one=(--model "llama:layers=4,width=64,heads=4,vocab=90,context=32" --devices cpu:0-3)
    good plan "${one[@]}" --batch-size 1 random
    has out '^tp +- +4 +yes ' '^mp +- +4 +yes ' \
        '^Left out: ddp \(a batch of 1 is smaller than 4 ranks; each needs a sample\)'
    good plan --json "${one[@]}" --batch-size 1 --chunks 8 --strategies cp random
    has out '"strategy":"cp","mesh":null,"world":4,"microbatches":1,"fits":true'
    good plan --json "${one[@]}" --batch-size 3 --strategies ddp+pipeline --mesh 2x2 random
    has out '"strategy":"ddp\+pipeline","mesh":"2x2","world":4,"microbatches":3,"fits":true'
    bad 2 'a batch of 3 is smaller than 4 ranks' plan "${one[@]}" --batch-size 3 \
        --strategies ddp,fsdp random
    good compare "${one[@]}" --batch-size 1 --chunks 8 --strategies single,cp --steps 2 \
        --repeats 1 random
    has out '^single .* yes' '^cp .* yes'
}

# What no strategy can mend is one sentence.
faults_of_the_job_are_told_once() {
    bad 2 "there is no model 'gtp2'|unknown model 'gtp2'" plan --model gtp2 random
    bad 2 "" plan --json --model mlp --devices cpu:0-1 nothing-here
}

wrong_input_is_one_sentence() {
    bad 2 "unexpected argument 'b'" plan a b
    bad 2 "unknown strategy 'dpp'" plan "${small[@]}" --strategies dpp random
    bad 2 '--memory' plan "${small[@]}" --memory=-5 random
    bad 2 "expected a list, got ''" plan "${small[@]}" --strategies= random
    bad 2 '--nproc 2 with 4 --devices' plan "${small[@]}" --strategies ddp --nproc 2 random
    bad 2 '--mesh 3x2 with --devices cpu:0-3: .* got 4' plan "${small[@]}" \
        --strategies ddp+pipeline --mesh 3x2 --microbatches 6 random
    bad 2 '--devices cuda:0,cpu:0: a plan has devices of one kind' plan "${small[@]:0:4}" \
        --strategies ddp --devices cuda:0,cpu:0 random
    bad 2 '--calibrate measures this machine, and --cluster vast.json' plan --calibrate \
        --cluster vast.json
    bad 2 'a batch of 37 cannot be cut into micro-batches of one size for 8 devices; 40 would' \
        plan --model toy --devices cpu:0-7 --batch-size 37 random
    printf '{"device": "H100", "nodes": 300000, "devices_per_node": 8}' >vast.json
    bad 2 'vast.json has 2400000 devices, and a plan follows at most' plan "${small[@]:0:4}" \
        --cluster vast.json random
    good plan "${small[@]:0:4}" --cluster vast.json --strategy ddp --nproc 4 random
    good plan "${small[@]:0:4}" --devices cpu:0-99 --batch-size 100 --strategies ddp random
    has out '^ddp .* 100 '
    choir plan "${small[@]}" --strategies single,cp random >out 2>err
    [ $? = 1 ] && is_one_line 'strategy cp: ' || fail "cp: $(cat err)"
    has out '^single ' '^Take single'
    choir plan --json "${small[@]}" --strategies single,cp random >out 2>err
    has out '"left_out":\[\{"strategy":"cp","mesh":null,"why":"'
}

# resident FILE EVENT: the resident memory of the job's processes.
resident() { grep "\"event\":\"$2\"" "$1" | grep -oE '"resident_bytes":[0-9]+' | cut -d: -f2; }

# Blocks at their size, shared memory once, samples that wait, and the program itself, which
# differs from one machine to the other by some MiB.
resident_memory_is_within_3_percent() {
    local model place planned held off
    nm -D "$CHOIR" | grep -qE '__[at]san_init' && return # sanitizers take memory of their own
    for model in gpt2:layers=3,heads=3,width=48,context=64 lstm; do
        for place in "single --devices cpu:0" "ddp --nproc 2" "fsdp --nproc 2"; do
            sampled 3 || continue
            # shellcheck disable=SC2086
            set -- --model $model --strategy $place --batch-size 8 --microbatches 2 --steps 8 random
            good plan --json "$@"
            planned=$(resident out plan)
            good train --json "$@"
            held=$(resident out summary)
            off=$((planned > held ? planned - held : held - planned))
            ((off <= held * 3 / 100 + (8 << 20))) ||
                fail "$*: planned $planned resident bytes, held $held"
        done
    done
}

check bytes_equal_those_of_train
check resident_memory_is_within_3_percent
check held_bases_count_as_in_train
check uneven_groups_count_as_in_train
check bytes_do_not_depend_on_time
check json_has_a_line_per_strategy_and_advice
check the_table_names_what_is_left_out
check what_does_not_fit_is_named
check large_models_take_no_memory
check the_smallest_cluster_is_named
check a_node_has_its_own_memory
check many_devices_are_planned
check memory_does_not_grow_with_ranks
check times_have_a_source
check devices_need_not_be_here
check fewer_samples_than_devices_are_planned
check faults_of_the_job_are_told_once
check wrong_input_is_one_sentence
finish
