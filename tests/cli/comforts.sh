#!/bin/bash
# What a trainer leans on: which checkpoints stay, the best one by a measure, training that ends by
# itself, the rate that falls on a plateau; and that a resumed job decides as one without a break.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/lib.sh"

make_text text 300
model=mlp:in=20,hidden=9,classes=5

hash_of() { # of the summary in FILE
    sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1"
}

steps_in() { # DIR
    (cd "$1" && echo step-*)
}

checkpoints_stay() {
    good train --quiet --model "$model" --steps 10 --save-every 2 --save kept --save-keep 3 \
        --no-eval random || return
    [ "$(steps_in kept)" = "step-00000006 step-00000008 step-00000010" ] ||
        fail "kept: $(steps_in kept)"
    good train --quiet --model "$model" --steps 10 --save-every 2 --save one --no-eval random ||
        return
    [ "$(steps_in one)" = step-00000010 ] || fail "kept without --save-keep: $(steps_in one)"
    # A run that goes back takes another way: the steps after it are gone, the older ones stay.
    good train --quiet --model "$model" --steps 10 --save-every 3 --resume kept/step-00000006 \
        --save kept --save-keep 2 --no-eval random || return
    [ "$(steps_in kept)" = "step-00000009 step-00000010" ] ||
        fail "after going back: $(steps_in kept)"
}

# The best by accuracy is not the best by loss; the largest loss is the worst.
the_best_by_a_measure() {
    local of=(train --json --model "$model" --batch-size 16 --steps 40 --eval-every 4 --lr 3e-2
        --no-eval) measure
    for measure in loss loss:max accuracy accuracy:min; do
        good "${of[@]}" --save "best-$measure" --best "$measure" random || return
        python3 - "$measure" out "best-$measure/best" <<'END' ||
import json, os, sys
metric, _, way = sys.argv[1].partition(":")
events = [json.loads(line) for line in open(sys.argv[2])]
scores = [(e[metric], e["step"]) for e in events if e["event"] == "eval"]
better = max if (way or ("max" if metric == "accuracy" else "min")) == "max" else min
best = better(s for s, _ in scores)
first = min(step for s, step in scores if s == best)
sys.exit(os.readlink(sys.argv[3]) != "step-%08d" % first)
END
            fail "$measure: $(readlink "best-$measure/best")"
    done
    bad 2 "unknown metric of --best 'speed': choose one of loss, accuracy" train --best speed random
    bad 2 "expected 'min' or 'max' behind the colon, got 'up'" train --best loss:up random
    bad 1 "no accuracy" train --best accuracy --model toy:in=2,hidden=3,out=1 random
}

# A metric of one's own: a command reads each sample's prediction once, on one rank and on three,
# and its number is in the events and decides about the best. A resumed job is told it again.
metrics_by_a_command() {
    cat >right.py <<'END'
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert [l["sample"] for l in lines] == list(range(len(lines))), lines[:3]
for l in lines:
    assert max(l["scores"]) == l["scores"][l["class"]] and len(l["scores"]) == 5
print(sum(l["class"] == l["target"] for l in lines) / len(lines))
END
    local of=(train --json --model "$model" --batch-size 18 --microbatches 3 --steps 12
        --eval-every 4 --lr 3e-2 --metric 'right=python3 right.py' --best right) way
    for way in single 'ddp --nproc 3'; do
        # shellcheck disable=SC2086
        good "${of[@]}" --strategy $way --save "own-${way%% *}" --log "csv:${way%% *}.csv" random ||
            return
        python3 - out "own-${way%% *}/best" <<'END' || fail "$way: $(grep '"eval"' out)"
import json, os, sys
events = [json.loads(line) for line in open(sys.argv[1])]
evals = [e for e in events if e["event"] == "eval"]
assert len(evals) == 2 and all(e["metric_name"] == "right" for e in evals), evals
assert all(abs(e["metric"] - e["accuracy"]) < 1e-9 for e in evals), evals
last = events[-1]
assert abs(last["eval_metric"] - last["eval_accuracy"]) < 1e-9, last
best = max([(e["metric"], -e["step"]) for e in evals + [dict(metric=last["eval_metric"], step=12)]])
assert os.readlink(sys.argv[2]) == "step-%08d" % -best[1], best
END
        grep -q '"metric":' "own-${way%% *}/events.jsonl" || fail "$way: not recorded"
        head -n 1 "${way%% *}.csv" | grep -qE ',eval/right(,|$)' || fail "$way: its name in a log"
    done
    bad 2 "give --metric right=COMMAND again" train --resume own-single --steps 14
    good train --resume own-single --steps 14 --metric 'right=echo 0.5' || return
    has out 'right 0.5'
    good train --model toy:in=2,hidden=3,out=1 --steps 2 --metric 'seen=head -n 1 >first; echo 1' \
        random
    grep -qE '^\{"sample":0,"target":\[[-0-9.e]+\],"output":\[[-0-9.e]+\]\}$' first ||
        fail "numbers: $(cat first)"
    good train --model "$gpt" --steps 2 --metric 'last=tail -n 1 >last; echo 1' text
    grep -qE '^\{"sample":[0-9]+,"targets":\[[0-9,]+\],"classes":\[[0-9,]+\]\}$' last ||
        fail "tokens: $(cat last)"
}

# Each way in which such a command fails is told in a sentence, and the step is saved.
metrics_that_fail() {
    local of=(train --quiet --model "$model" --batch-size 16 --steps 2 --eval-every 1)
    failing() { # PATTERN COMMAND [RANK]
        rm -rf broken
        choir "${of[@]}" --save broken --metric "own=$2" random >out 2>err </dev/null && fail "$2"
        grep -qF "validation after step 1: ${3-}--metric own=$2: $1; the step is saved to broken" \
            err || fail "$2: $(cat err)"
        [ -e broken/step-00000001 ] || fail "$2: not saved"
    }
    failing "the command's exit status is 3" 'exit 3'
    # shellcheck disable=SC2016
    failing 'the command was ended by signal 9' 'kill -9 $$'
    rm -f runs
    failing "the command's exit status is 3" 'echo >>runs; exit 3'
    [ "$(wc -l <runs)" -eq 1 ] || fail "the command was run $(wc -l <runs) times"
    failing 'expected a number, got no output' true
    failing "expected a number, got 'good'" 'echo good'
    of+=(--timeout 2)
    failing 'the command has not ended after 1 s, half of --timeout' 'sleep 1000'
    of+=(--strategy ddp --nproc 2 --timeout 60)
    failing "the command's exit status is 3" 'exit 3' 'rank 0: '
    bad 2 'expected NAME=COMMAND' train --metric f1 random
    bad 2 'expected NAME=COMMAND' train --metric 'a b=true' random
    bad 2 "expected a command that the shell finds, got 'no-such-f1'" \
        train --metric f1='no-such-f1 -x | tail' random
    # Only rank 0 of a training runs it.
    good train --metric f1=no-such-f1 --print-job random
    good plan --metric f1=no-such-f1 --strategy single random
    bad 2 'each validation has its loss already' train --metric loss=true random
    bad 2 'each validation has its eval_s already' train --metric eval_s=true random
    local known='choose one of loss, accuracy, f1'
    bad 2 "unknown metric of --best 'f2' [(]did you mean 'f1'[?][)]: $known" \
        train --metric f1=true --best f2 random
}

# kinds_of COMMAND...: the kinds of the events that it prints.
kinds_of() { "$@" | sed -nE 's/^\{"event":"([a-z]+)".*/\1/p' | paste -sd' '; }

# Options under the names that other trainers have; a warm-up as a share of the steps, rounded up;
# a model's name on a hub.
names_of_others() {
    local other own
    while read -r other own; do
        bad 2 "unknown option '--$other'; did you mean '--$own'\?" train "--$other" 1 random
    done <<'END'
learning_rate lr
learning-rate lr
warmup_ratio schedule NAME:warmup=0.1
per_device_train_batch_size batch-size
fp16 amp fp16
max_steps steps
metric_for_best_model best
eval_strategy eval-epochs
lora_rank lora r=N
adam_beta2 optimizer adamw:beta2=X
max_seq_length model NAME:context=N
block-size model NAME:context=N
per_device_eval_batch_size batch-size
run_name run
gpus devices
load_in_4bit base q4_0
END
    bad 2 "unknown option '--train_file'; DATA is written without an option" \
        train --train_file text
    bad 2 "unknown option '--dataset-name=x'; DATA is written" compare --dataset-name=x
    bad 2 "unknown option '--max_new_tokens'; did you mean '--tokens'\?" \
        generate --max_new_tokens 4 x
    bad 2 "unknown option '--stop_strings'; did you mean '--stop'\?" chat --stop_strings . x
    bad 2 "unknown option '--n_trials'; did you mean '--trials'\?" tune --n_trials 4
    local of=(train --json --model "$model" --no-eval random)
    good "${of[@]}" --steps 25 --schedule cosine:warmup=0.1 && steps_of out >share
    good "${of[@]}" --steps 25 --schedule cosine:warmup=3 && steps_of out | cmp -s share - ||
        fail 'a share of 0.1 of 25 steps is not 3 steps'
    bad 2 'warmup=1.5: expected a whole number of steps, or a share of all steps below 1' \
        train --schedule cosine:warmup=1.5 random
}

# A name of the Hugging Face Hub in the place of a path: every command that takes a folder says how
# it is fetched. Where OWNER is a folder, the name is a path.
fetches_a_name() {
    local get="owner/name: no such file or folder; .* 'hf download owner/name" of
    for of in 'train --model owner/name random' 'train --weights owner/name random' \
        'train --adapter owner/name random' 'train --model gpt2 --tokenizer owner/name text' \
        'eval owner/name' 'predict owner/name x.jpg' 'generate owner/name' 'chat owner/name' \
        'export owner/name new --format gguf' 'checkpoint inspect owner/name' \
        'checkpoint verify owner/name' 'checkpoint convert owner/name new'; do
        bad 1 "^choir ${of%% *}: $get --local-dir FOLDER'" $of
    done
    bad 2 "^choir plan: $get --local-dir FOLDER'" plan --model owner/name random
    bad 1 "^choir train: $get --repo-type dataset --local-dir FOLDER'" train owner/name
    bad 1 "^choir eval: Owner/Name2.5-7B: .* 'hf download Owner/Name2.5-7B" eval Owner/Name2.5-7B
    bad 1 '^choir train: owner/name.jsonl: cannot be opened: No such file' train owner/name.jsonl
    bad 1 '^choir train: nothing: no such file or folder$' train --model lenet nothing
    bad 1 '^choir train: cannot open the checkpoint owner/name: No such file or directory$' \
        train --resume owner/name
    mkdir owner
    bad 1 '^choir eval: cannot open the checkpoint owner/name: No such file or directory$' \
        eval owner/name
    bad 1 '^choir train: owner/name: cannot be opened: No such file' train owner/name
    rmdir owner
}
steps_of() { sed -n 's/"items_per_s":[^,]*,//; s/^{"event":"step",/&/p' "$1"; }

# A rate of 0 never improves: the first validation is the best, and three more are none.
patience_runs_out() {
    good train --json --model "$model" --lr 0 --steps 100 --eval-every 5 --patience 3 --save tired \
        random || return
    [ "$(field steps out)" = 20 ] || fail "ended after step $(field steps out)"
    # Why it stops is told at once, and its end behind all that is still to do.
    [ "$(kinds_of tail -n 3 out)" = "stop end summary" ] ||
        fail "other events: $(cat out)"
    has out '{"event":"stop","step":20,"by":"patience"}' '{"event":"end","step":20,"by":"patience"}'
    noted 'tired has ended by --patience 3 after step 20' train --json --resume tired random ||
        return
    [ "$(field steps out)" = 20 ] || fail "a resumed run went on to step $(field steps out)"
    [ "$(kinds_of cat out)" = "end summary" ] || fail "other events: $(cat out)"
    has out '{"event":"end","step":20,"by":"patience"}'
    # The count goes on where the checkpoint was.
    good train --json --model "$model" --lr 0 --steps 12 --eval-every 5 --patience 3 --save half \
        random || return
    choir train --json --resume half --steps 100 random >out 2>err || fail "$(cat err)"
    [ "$(field steps out)" = 20 ] || fail "counted anew: step $(field steps out)"
    bad 2 'patience 3 without --eval-every' train --patience 3 random
}

# The decision at the last step is in the checkpoint, so that a longer job goes on with its rate.
plateau_resumes() {
    local of=(--json --model "$model" --lr 0.3 --eval-every 3 --eval-batches 2
        --schedule plateau:factor=0.5,patience=0,threshold=0.1) at whole
    good train --steps 24 "${of[@]}" random || return
    whole=$(hash_of out)
    python3 - out <<'END' || fail "the rate never fell"
import json, sys
rates = [e["lr"] for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"]
falls = [b / a for a, b in zip(rates, rates[1:])]
sys.exit(not (rates[0] == 0.3 and rates[-1] < 0.2 and
              all(f == 1 or abs(f - 0.5) < 1e-6 for f in falls)))
END
    for at in 11 12; do
        good train --steps $at "${of[@]}" --save "flat$at" random || return
        good train --steps 24 "${of[@]}" --resume "flat$at" random || return
        [ "$(hash_of out)" = "$whole" ] || fail "other weights after a break at step $at"
    done
    good train --steps 24 "${of[@]}" --strategy ddp --nproc 2 --microbatches 2 random || return
    whole=$(hash_of out)
    good train --steps 24 "${of[@]}" --strategy fsdp --nproc 2 --microbatches 2 random || return
    [ "$(hash_of out)" = "$whole" ] || fail "other weights with fsdp"
    bad 2 'plateau without --eval-every' train --schedule plateau random
}

time_ends_training() {
    good train --json --model "$model" --steps 1000000000 --max-time 0.3s --save timed random ||
        return
    grep -q '"by":"max-time"' out || fail "no event"
    grep -q '"event":"summary"' out || fail "no summary"
    local step
    step=$(field steps out)
    good train --json --steps $((step + 5)) --resume timed random || return
    [ "$(field steps out)" = $((step + 5)) ] || fail "resumed to $(field steps out)"
    local again
    again=$(hash_of out)
    good train --json --model "$model" --steps $((step + 5)) random || return
    [ "$(hash_of out)" = "$again" ] || fail "other weights than without a break"
    good train --json --model "$model" --steps 1000000000 --max-time 0.5 --strategy ddp --nproc 2 \
        random || return
    for text in 5x 1hh -3 h 0; do
        bad 2 "max-time: expected a time such as 90s" train --max-time=$text random
    done
}

epochs_have_lines() {
    good train --json --epochs 3 --model "$gpt" --batch-size 32 text || return
    [ "$(grep -c '"event":"epoch"' out)" = 3 ] || fail "$(grep -c '"event":"epoch"' out) epochs"
    grep '"event":"epoch"' out >whole
    python3 - out <<'END' || fail "the mean of an epoch's steps is another"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
losses = [e["loss"] for e in events if e["event"] == "step"]
means = [e["loss"] for e in events if e["event"] == "epoch"]
n = len(losses) // 3
sys.exit(any(abs(m - sum(losses[i * n:i * n + n]) / n) > 1e-6 for i, m in enumerate(means)))
END
    local steps
    steps=$(field steps out)
    good train --json --steps $((steps / 2)) --save epochs --model "$gpt" --batch-size 32 text ||
        return
    choir train --json --epochs 3 --resume epochs >out 2>err || fail "$(cat err)"
    grep '"event":"epoch"' out >rest
    diff <(tail -n "$(wc -l <rest)" whole) rest || fail "other lines after --resume"
}

# The disk is full; the last checkpoint must be written all the same.
failed_saves_warn() {
    local every of=(train --json --model "$model" --steps 9 --save-every 2 --no-eval)
    mkdir -p small
    mount -t tmpfs -o size=256k tmpfs small 2>/dev/null || return 0 # not allowed
    head -c 1M /dev/zero >small/filler 2>/dev/null
    choir "${of[@]}" --save small/run random >out 2>err && fail "a full disk is no error"
    [ "$(grep -c '"event":"step"' out)" = 9 ] && fail "training went on without --save-warn"
    choir "${of[@]}" --save small/run --save-warn random >out 2>err &&
        fail "the last checkpoint is missing, and the status is 0"
    [ "$(grep -c '"event":"step"' out)" = 9 ] || fail "training ended: $(cat err)"
    grep -q 'warning: .*; training continues' err || fail "no warning: $(cat err)"
    umount small
    # A save that fails beside the training costs its own checkpoint alone, not the next one,
    # nor the last one: nothing takes the place of a folder where a disk is mounted.
    mkdir -p small/step-00000020
    mount -t tmpfs -o size=64k tmpfs small/step-00000020
    for every in 20 10; do
        choir train --json --model "$model" --steps 30 --save-every $every --no-eval --save small \
            --save-warn random >out 2>err || fail "the status is $?: $(cat err)"
        [ "$(grep -c warning err)" = 1 ] && grep -q 'step 20 was not saved' err || fail "$(cat err)"
        [ "$(readlink small/latest)" = step-00000030 ] || fail "$(ls -l small)"
        [ $every = 20 ] || has small/events.jsonl '"event":"checkpoint","step":10,'
        rm -rf small/latest small/step-00000030 small/*.json*
    done
    umount small/step-00000020
}

# A run that --patience ends is validated and saved once after its last step, and says why it
# ended; evaluations on a few batches are not compared with the one on the whole split.
ends_once() {
    good train --json --model "$model" --lr 0 --steps 100 --eval-every 5 --patience 3 \
        --best loss --save once --save-every 5 random || return
    [ "$(grep -c '"event":"eval","step":20' once/events.jsonl)" = 1 ] &&
        [ "$(grep -c '"event":"checkpoint","step":20' once/events.jsonl)" = 1 ] ||
        fail "$(cat once/events.jsonl)"
    has once/events.jsonl '"event":"stop","step":20,.*"by":"patience"' \
        '"event":"end","step":20,.*"by":"patience"'
    [ "$(kinds_of tail -n 3 once/events.jsonl)" = "stop checkpoint end" ] ||
        fail "$(cat once/events.jsonl)"
    good train --json --model "$model" --lr 1e-9 --steps 30 --eval-every 10 --eval-batches 1 \
        --save few random
    has few/events.jsonl '"event":"eval","step":30,.*"best":false'
}

# Averages are evaluated and saved; a resumed run has those of a run without a break.
averages() {
    local how whole
    for how in "--ema 0.9" "--swa 4 --swa-every 2"; do
        # shellcheck disable=SC2086
        set -- --json --model "$gpt" --microbatches 4 --lr 1e-2 --eval-every 3 $how
        good train --steps 12 "$@" --save "whole$checks" text || return
        whole=$(hash_of out)
        grep '"event":"eval"' out >evals
        choir eval --json "whole$checks" text >eval || fail "eval"
        awk "BEGIN { exit !($(field loss eval) - $(field eval_loss out) < 1e-5 &&
            $(field eval_loss out) - $(field loss eval) < 1e-5) }" ||
            fail "$how: choir eval has the loss $(field loss eval), not $(field eval_loss out)"
        local way
        for way in "ddp --nproc 2" "fsdp:stage=1 --nproc 3" "fsdp --nproc 2" \
            "dp --devices cpu:0,cpu:1"; do
            # shellcheck disable=SC2086
            good train --steps 12 "$@" --strategy $way text || return
            [ "$(hash_of out)" = "$whole" ] || fail "$how: other averages with $way"
            diff <(grep '"event":"eval"' out) evals || fail "$how: other validations with $way"
        done
        for at in 2 3 7; do
            good train --steps $at "$@" --strategy fsdp --nproc 2 --save "cut$checks$at" text ||
                return
            good train --steps 12 "$@" --resume "cut$checks$at" text || return
            [ "$(hash_of out)" = "$whole" ] || fail "$how: other averages after a break at step $at"
            rm -r "cut$checks$at"
        done
        rm -r "whole$checks"
        good train --json --steps 12 --model "$gpt" --microbatches 4 --lr 1e-2 text || return
        [ "$(hash_of out)" != "$whole" ] || fail "$how: the weights are no averages"
    done
    bad 2 'choose one of them' train --ema 0.9 --swa 3 random
    bad 2 'expected f32 weights' train --ema 0.9 --amp O3 random
    bad 2 'without --swa' train --swa-every 3 random
    # A frozen parameter is its own average.
    local loss
    good train --json --nproc 1 --model toy --lr 0 --steps 5 --freeze 0.weight random || return
    loss=$(field eval_loss out)
    good train --json --nproc 1 --model toy --lr 0 --steps 5 --freeze 0.weight --ema 0.5 random
    [ "$(field eval_loss out)" = "$loss" ] || fail "frozen: $(field eval_loss out), not $loss"
    bad 2 'its ranks step apart' train --strategy hogwild --nproc 2 --max-time 1s random
    bad 2 'losses of their own' train --strategy local-sgd --nproc 2 --find-lr r.svg random
}

# Sums of the tree are those of its parts; a linear layer has 2 M N K operations.
summaries() {
    good train --json --summary --model mlp:in=20,hidden=9,classes=5 --batch-size 16 \
        --optimizer adam random || return
    python3 - out <<'END' || fail "$(cat out)"
import json, sys
*modules, model = map(json.loads, open(sys.argv[1]))
root, rest = modules[0], [m for m in modules[1:] if m["parameters"]]
assert root["parameters"] == model["parameters"] == sum(m["parameters"] for m in rest)
linear = [m for m in modules if m["class"] == "linear"]
assert linear[0]["flops"] == 2 * 16 * 20 * 9 and linear[0]["output"] == "(16, 9)", linear
assert model["flops"] == sum(m["flops"] for m in linear)
classes = {m["class"] for m in modules}
assert "relu" in classes and "function" not in classes, classes
assert model["state_bytes"] == 2 * 4 * model["parameters"]
assert model["peak_bytes"] >= 4 * 4 * model["parameters"]
END
    # The memory is that of a training, with the state that its optimizer makes.
    local of="gpt2:layers=2,heads=2,width=64,context=32" optimizer
    for optimizer in adamw sgd; do
        good train --json --summary --strategy single --model "$of" --optimizer $optimizer text
        mv out told
        good train --json --steps 3 --no-eval --strategy single --model "$of" \
            --optimizer $optimizer text
        awk "BEGIN { a = $(field peak_bytes told); b = $(field peak_bytes out)
            exit !(a >= b - 1024 && a < 1.1 * b) }" ||
            fail "$optimizer: $(field peak_bytes told) bytes are told, not $(field peak_bytes out)"
    done
    good train --summary --model "$gpt" text || return
    grep -q '^  transformer.h.0 *block *(32, 16, 16)' out &&
        grep -q 'memory of a step' out || fail "$(cat out)"
}

# A rate that is far too high: the numbers of the first layer whose products overflow are named.
debugging_names_a_module() {
    bad 1 'step 3, the first numbers that are not finite: forward, the output of 2 \(linear\): ' \
        train --quiet --debug-nan --lr 1e12 --optimizer sgd --model "$model" random
    bad 1 'backward, the gradient that leaves' \
        train --quiet --debug-nan --lr 1e12 --optimizer sgd --model toy:in=6,hidden=5,out=3 \
        --batch-size 1 random
    good train --json --debug-nan --model "$model" --steps 6 random || return
    local with
    with=$(hash_of out)
    good train --json --model "$model" --steps 6 random || return
    [ "$(hash_of out)" = "$with" ] || fail "looking changes the weights"
}

a_rate_is_found() {
    command -v gnuplot >/dev/null || return 0
    good train --json --find-lr rate.png --model "$gpt" --batch-size 16 text || return
    python3 - out <<'END' || fail "$(tail -n 2 out)"
import json, sys
*points, found = map(json.loads, open(sys.argv[1]))
assert points[0]["lr"] == 1e-7 and all(a["lr"] < b["lr"] for a, b in zip(points, points[1:]))
assert 1e-4 < found["lr"] < 1, found
END
    # Of noisy losses, the advice is much the same for every seed.
    local seed
    for seed in 1 2 3 4; do
        good train --json --find-lr rate.png --model "$gpt" --batch-size 2 --seed $seed text ||
            return
        tail -n 1 out
    done >advice
    python3 - advice <<'END' || fail "the advice depends on the seed: $(cat advice)"
import json, sys
rates = [json.loads(line)["lr"] for line in open(sys.argv[1])]
assert len(rates) == 4 and max(rates) < 3 * min(rates), rates
END
    [ "$(head -c 8 rate.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "no PNG"
    good train --find-lr rate.svg --steps 50 --model "$gpt" --strategy ddp --nproc 2 text || return
    grep -q 'halfway down at --lr' out && grep -q '<svg' rate.svg || fail "$(cat out)"
    texts_fit rate.svg
    [ "$(grep -A 1 'rotate(-90)' rate.svg | grep -c '<text>')" = 1 ] && grep -q '>loss<' rate.svg ||
        fail 'expected the name of one axis upright, and the rate level'
    bad 2 'expected a file .png or .svg' train --find-lr rate.gif random
    bad 2 'it trains no model to keep' train --find-lr rate.png --save x random
    bad 2 "find-lr rate.png with --log csv:x.csv: it trains no model to keep" \
        train --find-lr rate.png --log csv:x.csv random
}

check summaries
check debugging_names_a_module
check a_rate_is_found
check ends_once
check averages
check checkpoints_stay
check names_of_others
check fetches_a_name
check the_best_by_a_measure
check metrics_by_a_command
check metrics_that_fail
check patience_runs_out
check plateau_resumes
check time_ends_training
check epochs_have_lines
check failed_saves_warn
finish
