#!/usr/bin/env bash
# choir data shows the samples of a step, and where they come from, from the run's folder alone.
. "$(dirname "$0")/../lib.sh"

for i in $(seq 60); do
    echo "{\"text\": \"document $i has these words\", \"label\": \"$((i % 3))\"}"
done >docs.jsonl
small=(--quiet --batch-size 6 --microbatches 2 --no-eval)

# texts STEP ARG...: the texts of a step, sorted.
texts() {
    good data --json "$1" --step "$2" && grep -o '"text":"[^"]*"' out | sort
}

# Each document's number is on its line; windows cross documents; the list of skipped batches is
# the run's; a checkpoint and a job file are as good.
documents_and_lines() {
    local line
    good train "${small[@]}" --model "$gpt" --steps 12 --strategy ddp --nproc 2 \
        --skip-batches 4:6 --save skips docs.jsonl
    good data skips --step 4
    grep -q '^step 4 of 12: batch 6, number 6 of [0-9]* in epoch 1$' out || fail "$(head -n 1 out)"
    [ "$(grep -c '^micro-batch [01]$' out)" -eq 2 ] && [ "$(grep -c '^  sample ' out)" -eq 6 ] ||
        fail "$(cat out)"
    grep -q "^  sample [0-9]*  $PWD/docs.jsonl:[0-9]*, tokens [0-9]* to [0-9]*" out ||
        fail "no line: $(cat out)"
    mv out whole
    for line in skips/latest skips/job.json; do
        good data "$line" --step 4 && cmp -s whole out || fail "$line shows something else"
    done
    good data skips --batch 6 && cmp -s whole out || fail "the batch by its number"
    good data skips --batch 4
    grep -q '^no step, since it is left out: batch 4,' out || fail "$(head -n 1 out)"
    texts skips 4 >with
    good train "${small[@]}" --model "$gpt" --steps 12 --run plain docs.jsonl
    texts plain 6 >without
    cmp -s with without && [ "$(wc -l <with)" -eq 6 ] || fail "other samples: $(cat with without)"
    good train "${small[@]}" --model "$gpt" --steps 3 --pack --run packed docs.jsonl
    good data packed --step 3
    grep -q 'docs.jsonl:[0-9]*, tokens 0 to ' out || fail "no document from its start: $(cat out)"
}

# What a line says is what the sample has.
lines_are_right() {
    local line text
    # shellcheck disable=SC2046
    make_tokenizer words.json document has these words $(seq 60)
    good train "${small[@]}" --model "$bert,classes=3" --tokenizer words.json --steps 3 \
        --run texts docs.jsonl || return
    good data --json texts --step 2
    sed 's/{"sample"/\n&/g' out |
        sed -n 's/.*"line":\([0-9]*\).*"text":"\([^"]*\)".*/\1 \2/p' >lines
    [ "$(wc -l <lines)" -eq 6 ] || fail "$(cat out)"
    while read -r line text; do
        [[ $text == "[CLS] document $line has these words[SEP]"* ]] || fail "line $line: $text"
    done <lines
}

other_data() {
    make_text text 100
    good train "${small[@]}" --model "$gpt" --steps 3 --run plain_text text
    good data plain_text --step 2
    grep -q "  $PWD/text, tokens [0-9]* to [0-9]*" out || fail "$(cat out)"
    make_idx folder train 60
    make_idx folder t10k 20
    good train "${small[@]}" --model cnn:width=4 --steps 3 --run digits folder
    good data digits --step 3 && [ "$(grep -c '^  sample ' out)" -eq 6 ] || fail "$(cat out)"
    good train "${small[@]}" --model toy --steps 3 --run drawn random
    good data drawn --step 1 --json
}

wrong_requests() {
    bad 1 "last step is 12, on batch 14" data skips --step 400
    bad 1 "last step is 12, on batch 14" data skips --batch 15
    bad 2 'expected --step N or --batch N' data skips
    bad 2 'expected --step N or --batch N' data skips --step 2 --batch 3
    bad 1 'nowhere: No such file' data nowhere --step 1
    mkdir -p empty
    bad 1 'empty/job.json: No such file' data empty --step 1
    mv docs.jsonl away.jsonl
    bad 1 'docs.jsonl: ' data skips --step 1
    sed 's/words/other/' away.jsonl >docs.jsonl
    bad 1 'docs.jsonl' data skips --step 1
}

check documents_and_lines
check lines_are_right
check other_data
check wrong_requests
finish
