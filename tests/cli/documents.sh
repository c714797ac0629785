#!/usr/bin/env bash
# Language models on documents: JSONL and CSV, pairs and chats, several sources, packed samples; the
# same bits on any number of ranks, and after a pause; and what is said about wrong ones.
golden=$(cd "$(dirname "$0")/../golden/tokenizers" && pwd)
. "$(dirname "$0")/lib.sh"

documents() {
    local i
    for i in $(seq 40); do
        case $((i % 3)) in
        0) echo '{"text": "A text, number '"$i"', with \"quotes\"."}' ;;
        1) echo '{"prompt": "Say '"$i"': ", "completion": "it is '"$i"'"}' ;;
        2) echo '{"messages": [{"role": "user", "content": "And '"$i"'?"},' \
                '{"role": "assistant", "content": "Yes, '"$i"'."}]}' ;;
        esac
    done >docs.jsonl
    echo 'id,text' >rows.csv
    for i in $(seq 60); do echo "$i,\"row $i, in \"\"quotes\"\"\""; done >>rows.csv
}
documents
model=(--model gpt2:layers=1,heads=2,width=16,context=32 --batch-size 4 --microbatches 2 --json)

# all_alike ARGUMENTS...: two ranks, and a run that was interrupted, have the bits of one.
all_alike() {
    good train "${model[@]}" "$@" --steps 8
    mv out one
    good train "${model[@]}" "$@" --steps 8 --strategy ddp --nproc 2 --workers 2
    same_run one out
    rm -rf half
    good train "${model[@]}" "$@" --steps 4 --save half
    good train --json --resume half --steps 8
    same_run one out 5
}

joined() { all_alike docs.jsonl; }
packed() { all_alike --pack docs.jsonl; }
packed_llama() {
    all_alike --pack docs.jsonl --model llama:layers=1,heads=2,width=16,hidden=24,context=32
}
several() { all_alike --bytes docs.jsonl:weight=0.7+rows.csv:weight=0.3,every=2; }

# A run's job names its data so that they are found from any folder.
from_other_folders() {
    mkdir -p other
    rm -rf run
    good train "${model[@]}" --bytes --steps 2 --run run docs.jsonl:first=30+rows.csv
    mv out first
    (cd other && "$CHOIR" train --json ../run/job.json) >out 2>err || fail "$(cat err)"
    same_run first out
    good train "${model[@]}" --bytes --steps 1 --save moved docs.jsonl
    rm -rf run
    good train "${model[@]}" --weights moved/latest --tokenizer moved/latest --steps 2 --run run \
        docs.jsonl
    mv out first
    (cd other && "$CHOIR" train --json ../run/job.json) >out 2>err || fail "$(cat err)"
    same_run first out
    good train --print-job --batch-size 4 --model moved/latest docs.jsonl
    has out '"model": "/.*/moved/step-00000001"'
}

# JSON has no name that is not UTF-8, and a job must not be another one without a word.
not_utf8() {
    cp docs.jsonl $'d\xe9.jsonl'
    good train "${model[@]}" --steps 1 $'d\xe9.jsonl'
    bad 1 "the path of the data 'd.*.jsonl' is not UTF-8" \
        train "${model[@]}" --steps 1 --save saved $'d\xe9.jsonl'
    bad 1 "the path of the data 'd.*.jsonl' is not UTF-8" \
        train "${model[@]}" --steps 1 --print-job $'d\xe9.jsonl'
    bad 1 "trace 't.*' is not UTF-8" \
        train "${model[@]}" --steps 1 --run run2 --trace $'t\xe9' docs.jsonl
}

# A tokenizer that begins texts: prompts begin so, too, once.
begun() {
    local token='"single":[{"SpecialToken":{"id":"<|endoftext|>"}},{"Sequence":{"id":"A"}}]'
    sed "s/\"post_processor\":null/\"post_processor\":{\"type\":\"TemplateProcessing\",$token}/" \
        "$golden/llama3.json" >begins.json
    good train "${model[@]}" --tokenizer begins.json --steps 2 --save begun rows.csv
    good generate begun --temperature 0 --tokens 9 --json --prompt row
    mv out one
    good generate begun --temperature 0 --tokens 9 --json --prompt '<|endoftext|>row'
    cmp -s one out || fail "$(cat one out)"
}

evaluated() {
    good train "${model[@]}" --pack --steps 3 --save kept docs.jsonl
    good eval --json --batch-size 2 kept docs.jsonl
    [ -n "$(field loss out)" ] || fail "$(cat out)"
}

# means FILE: whether each epoch's mean is that of its steps that have a loss.
means() {
    tr -d '{}"' <"$1" | awk -F'[:,]' '
        $2 == "step" && $6 != "null" { sum += $6; n++ }
        $2 == "epoch" { d = $8 - sum / n; wrong += d > 1e-5 || d < -1e-5; sum = n = 0; all++ }
        END { exit wrong || all != 2 }'
}

# A step of which no target counts has no loss: it is in no mean, no record and no search.
no_target() {
    local i job strategy last='s/.*"step",.*"loss":\([0-9.]*\),.*/\1/p'
    for i in $(seq 20); do printf '{"prompt":"%0100d","completion":"ok"}\n' 0; done >long.jsonl
    job=(train --model gpt2:layers=1,heads=1,width=8,context=16 --bytes --batch-size 4
        --microbatches 2 --seed 1 --no-eval)
    noted '^choir train: note: 25 of 56 steps had no target' "${job[@]}" --json --epochs 2 \
        --log csv:table.csv --save parts --save-every 10 --save-keep 9 long.jsonl
    mv out one
    [ "$(grep -c '"loss":null,"loss_bits":null' one)" = 25 ] || fail 'steps without a loss'
    means one || fail "means of epochs: $(grep epoch one)"
    [ "$(field final_loss one)" = "$(sed -n "$last" one | tail -1)" ] || fail "$(tail -1 one)"
    [ "$(field steps_without_target one)" = 25 ] || fail "$(tail -1 one)"
    [ "$(grep -c '"loss":' parts/metrics.jsonl)" = 31 ] || fail 'points of metrics.jsonl'
    [ "$(awk -F, 'NR == 1 { while ($(++i) != "loss"); next } $i != ""' table.csv |
        wc -l)" = 31 ] || fail 'points of the table'
    noted 'of 46 steps' train --json --resume parts/step-00000010 --epochs 2
    diff <(grep -E '"(epoch|end)"' one) <(grep -E '"(epoch|end)"' out) || fail 'means, resumed'
    for strategy in 'ddp --nproc 2' 'pipeline --devices cpu:0,cpu:1'; do
        # shellcheck disable=SC2086
        noted '25 of 56 steps' "${job[@]}" --json --epochs 2 --strategy $strategy long.jsonl
        same_run one out
        diff <(grep '"epoch"' one) <(grep '"epoch"' out) || fail "$strategy: means"
    done
    for strategy in hogwild local-sgd:every=3; do # a rank's steps are its own
        noted 'of 112 steps had no target' "${job[@]}" --json --epochs 2 --nproc 2 --strategy \
            $strategy long.jsonl
        means out || fail "$strategy: means of epochs"
        awk -v x="$(field final_loss out)" 'BEGIN { exit !(x > 4 && x < 6) }' ||
            fail "$strategy: $(tail -1 out)"
    done
    noted 'of 56 steps' "${job[@]}" --epochs 2 --log-every 1 long.jsonl
    has out '^step 2/56  loss -  lr ' '^epoch 1/2: mean loss 5[.]4'
    command -v gnuplot >/dev/null || return 0
    mkdir -p none
    printf '{"prompt":"%03000d","completion":"k"}' 0 >none/train.jsonl
    cp long.jsonl none/val.jsonl
    bad 1 'none of the [0-9]+ steps of an epoch has a target' "${job[@]}" --quiet \
        --find-lr lr.svg none:first=175
    good "${job[@]}" --find-lr lr.svg long.jsonl
    has out 'the loss is halfway down at --lr 0[.]0'
}

faults() {
    echo '{"text": "a"' >torn.jsonl
    bad 1 'torn.jsonl, line 1, column 13: expected a comma' train "${model[@]}" torn.jsonl
    printf 'text,id\na,1\nb\n' >ragged.csv
    bad 1 'ragged.csv, line 3: expected 2 fields, as in the first row, got 1' \
        train "${model[@]}" ragged.csv
    cp rows.csv rows.parquet
    bad 1 'rows.parquet: (Parquet|Could not open Parquet)|Parquet is a plug-in' \
        train "${model[@]}" rows.parquet
    bad 1 'several texts need a tokenizer' train "${model[@]}" docs.jsonl+rows.csv
    bad 1 'packing .* is for documents' train "${model[@]}" --pack --model \
        bert:layers=1,heads=2,width=16,context=32 docs.jsonl
    bad 1 '1 of 2 sources have a weight' train "${model[@]}" --bytes docs.jsonl:weight=1+rows.csv
    good train "${model[@]}" --steps 2 --save again docs.jsonl
    bad 1 "cannot continue with it" train --resume again --steps 4 --pack
}

check joined
check packed
check packed_llama
check several
check from_other_folders
check not_utf8
check begun
check evaluated
check no_target
check faults
finish
