#!/usr/bin/env bash
# Run folders, checkpoints, job files and studies stay readable. Those in old_runs/ were written by
# Choir 0.1.0; they are read, shown and continued, with the bits of a job that never stopped.
old=$(cd "$(dirname "$0")" && pwd)/old_runs
. "$(dirname "$0")/lib.sh"

export CHOIR_CPU_DEVICES=2
make_text text 60
cp -r "$old/." . && chmod -R u+w . || exit 1
# The command line of run/, of which its checkpoint has the options that decide the numbers.
lm=(--model gpt2:layers=1,heads=2,width=8,context=8,dropout=0.1 --batch-size 8 --microbatches 4
    --strategy ddp --nproc 2 --optimizer adamw:beta2=0.99 --lr 3e-3
    --schedule cosine:warmup=2,steps=8 --weight-decay 0.02 --clip 1 --eval-epochs 1
    --eval-batches 2 --best accuracy --patience 5 --ema 0.9 --recompute --mem-cap 500M)
of_labelled=(--model bert:layers=1,heads=2,width=8,context=8,classes=2 --tokenizer tokenizer.json
    --batch-size 8 --optimizer sgd:momentum=0.9 --strategy single --seed 7 --balance
    --freeze 'bert.embeddings.*' --init torch --val-split 0.2)

# without_run FILE: the job without what each machine and moment has of its own, and without the
# class of bits and the numbers of a build's ways, which Choir 0.1.0 did not record.
without_run() {
    python3 -c 'import json, sys
job = json.load(open(sys.argv[1]))
job.pop("run", None)
job.pop("arithmetic", None)
job.pop("documents", None)
job["options"].pop("bits", None)
print(json.dumps(job, indent=1, sort_keys=True))' "$1"
}

# The documents of a run of today are those that the old one has, but for paths of its data.
same_documents() {
    local file
    good train --json "${lm[@]}" --steps 4 --no-eval --save new --save-keep 2 --log csv:new.csv text
    for file in job.json step-00000004/job.json; do
        sed -i "s|csv:.*/new.csv|csv:run.csv|; s/\"new\"/\"run\"/" "new/$file"
        sed -i "s|\"[^\"]*/text\"|\"/tmp/old/text\"|" "new/$file"
        diff <(without_run "run/$file") <(without_run "new/$file" | sed '/"slices": 1,/d') >diff ||
            fail "$file has changed: $(cat diff)"
    done
}

# As job files, with the options that the checkpoint's record has or with all of them.
documents_run() {
    local file
    good train --json "${lm[@]}" --steps 8 --no-eval text && mv out whole
    for file in run/job.json run/step-00000004/job.json; do
        good train --json --steps 4 "$file" text && mv out again
        [ "$(steps_of again)" = "$(steps_of whole | head -n 4)" ] || fail "$file: other bits"
    done
}

# A checkpoint goes on in its folder and its log, and with the bits of the job that never stopped
# where the products are those that it was made with.
checkpoint_goes_on() {
    local products='"(products|isa)": .*'
    good checkpoint verify run/latest
    good checkpoint inspect run/latest
    good eval --json run text
    good generate run --tokens 4 --prompt the
    bad 1 'was trained with --seed 42: it cannot continue with 43' \
        train --resume run --steps 8 --seed 43 text
    noted '--lr 0.5 replaces the checkpoint.s 0.003' \
        train --resume run/step-00000004 --steps 5 --lr 0.5 --run elsewhere text
    good train --json --steps 8 --resume run text && mv out rest
    [ "$(steps_of rest | wc -l)" -eq 4 ] || fail "not 4 steps: $(cat rest)"
    [ "$(wc -l <run.csv)" -eq 9 ] || fail "the log does not go on: $(cat run.csv)"
    [ "$(grep -oE "$products" run/job.json)" != "$(grep -oE "$products" new/job.json)" ] ||
        same_run whole rest 5
}

# A classifier whose data lie elsewhere today.
classes() {
    good train --json --epochs 1 "${of_labelled[@]}" labelled.jsonl && mv out whole
    good train --json --tokenizer tokenizer.json labelled/job.json labelled.jsonl
    same_run whole out
    good train --json --steps 12 --resume labelled labelled.jsonl
    echo '{"text": "a grey gull"}' >one.jsonl
    good predict --json labelled one.jsonl
    has out '"(class|label)[a-z_]*":"(down|up)"'
    good eval --json labelled labelled.jsonl
}

# A model of images, whose convolutions a later build adds in another order; the next checkpoint is
# of that build.
images() {
    noted 'a build that adds the terms of 3x3 convolutions in another order' \
        train --resume images --steps 2 --save images_of_today random
    good train --resume images_of_today --steps 3
}

# Documents whose tokenizer begins texts, as a later build does.
texts() {
    local i
    for i in $(seq 12); do echo '{"text": "abba"}'; done >texts.jsonl
    noted 'a build that puts no <s> in front of documents' \
        train --resume texts --steps 2 --save texts_of_today texts.jsonl
    good train --resume texts_of_today --steps 3 texts.jsonl
}

# Read and printed again, a job and a study are what they were.
same_again() {
    good train --print-job printed.json
    # a log of today has its whole path
    sed -i "s|$PWD/||; /\"bits\": \"auto\",/d; /\"slices\": 1,/d" out
    diff printed.json out >diff || fail "printed.json changes: $(cat diff)"
    good tune --print-study study.json
    diff study.json out >diff || fail "study.json changes: $(cat diff)"
    good tune --json study.json
    [ "$(grep -c '"state":"COMPLETE"' out)" = 6 ] || fail "$(cat out)"
}

stored_study() {
    good tune show journal:study.journal
    good tune --json --storage journal:study.journal --space 'x=uniform(0,1)' \
        --space 'w=int(1,8)' --require 'x < 0.75' --trials 6 --window 2 --seed 3 \
        -- sh -c 'echo "{\"step\":1,\"eval_loss\":$1}"' sh '{x}' '{w}'
    [ "$(grep -c '"event":"trial"' out)" -ge 2 ] || fail "$(cat out)"
    has out '"event":"best","number":[1-5],'
}

check same_documents
check documents_run
check checkpoint_goes_on
check classes
check images
check texts
check same_again
check stored_study
finish
