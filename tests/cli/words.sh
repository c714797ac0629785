#!/usr/bin/env bash
# A class for each word: training gives equal bits for any number of ranks, also on random data, is
# evaluated over words, published with its names, and predicts; and wrong data.
. "$(dirname "$0")/lib.sh"

words=(anna bob lives in rome paris and)
make_tokenizer tokenizer.json "${words[@]}" '##s' # "annas" has two tokens

# Sentences of different lengths, so that the micro-batches have different padding.
for i in $(seq 0 119); do
    who=${words[$((i % 2))]} where=${words[$((4 + i / 2 % 2))]}
    [ $((i % 3)) = 0 ] && who+=s
    tokens="\"$who\",\"lives\",\"in\",\"$where\"" tags='"PER","O","O","LOC"'
    [ $((i % 4)) = 0 ] && tokens+=',"and","paris"' tags+=',"O","LOC"'
    echo "{\"tokens\":[$tokens],\"ner_tags\":[$tags]}" >>set.jsonl
done
bert=bert:layers=1,heads=2,width=16,context=10,classes=3,words=1
job=(train --model $bert --batch-size 12 --microbatches 3 --lr 0.01 --json)

same_bits() {
    good "${job[@]}" --tokenizer tokenizer.json --steps 40 --save one set.jsonl
    mv out one.out
    good "${job[@]}" --tokenizer tokenizer.json --steps 40 --strategy ddp --nproc 3 set.jsonl
    same_run one.out out
    good "${job[@]}" --steps 3 random
    mv out random.out
    good "${job[@]}" --steps 3 --strategy fsdp --nproc 2 random
    same_run random.out out
}

# Ranks that share the sentences count their own tokens; the sentences have different lengths.
chunks() {
    local shared=("${job[@]}" --tokenizer tokenizer.json --steps 20 --eval-every 8 --chunks 10)
    shared+=(--metric 'sum=sha256sum | tr -dc 0-9 | head -c 8' set.jsonl)
    good "${shared[@]}"
    mv out one_device.out
    for strategy in 'cp --nproc 2' 'cp:exchange=keys --nproc 5' 'ddp+cp --mesh 2x2'; do
        # shellcheck disable=SC2086
        good "${shared[@]}" --strategy $strategy
        [ "$(grep -c '"event":"eval".*"metric":' out)" = 2 ] || fail "$(cat out)"
        [ "$(grep '"event":"eval"' one_device.out)" = "$(grep '"event":"eval"' out)" ] ||
            fail "$strategy"
    done
}

is_evaluated() {
    good eval --json --per-class --batch-size 4 one set.jsonl
    [ "$(field loss out)" = "$(field eval_loss one.out)" ] ||
        fail "$(cat out) after $(tail -1 one.out)"
    [ "$(field accuracy out)" = 1 ] || fail "it did not learn: $(cat out)"
    local people places held
    held=$(printf '%sp;' 9 11 30 35 48 51 64 71 90 91 102 117) # see src/data/held.h
    people=$(sed -n "$held" set.jsonl | grep -o PER | wc -l)
    places=$(sed -n "$held" set.jsonl | grep -o LOC | wc -l)
    has out "\"class\":\"LOC\",\"samples\":$places,\"predictions\":$places,\"precision\":1," \
        "\"class\":\"PER\",\"samples\":$people,\"predictions\":$people,"
    has one/latest/config.json '"BertForTokenClassification"' '"1": "O"'
}

predicts() {
    good predict one 'annas lives in  rome' bob
    [ "$(cut -f1 out | tr '\n' ' ')" = 'annas lives in rome  bob  ' ] || fail "words: $(cat out)"
    [ "$(cut -f2 out | cut -c-3 | tr '\n' ' ')" = 'PER O   O   LOC  PER  ' ] || fail "$(cat out)"
    good predict --json one set.jsonl
    [ "$(grep -oE '"label":"[A-Z]*"' out | sed 's/.*:"//; s/"//')" = \
        "$(grep -oE '\[("[A-Z]*",?)*\]' set.jsonl | grep -oE '[A-Z]+')" ] || fail 'labels of set'
    noted '2 words have no label: .* 10 tokens' predict --json one \
        'anna lives in rome and anna lives in rome and'
    [ "$(grep -o '"word":"[a-z]*","label":null' out | wc -l)" = 2 ] || fail "$(cat out)"
    bad 1 'gives classes to words' predict --pair x one anna
}

# Samples may be shorter than the table of positions.
shorter() {
    good "${job[@]}" --model "$bert,length=6" --tokenizer tokenizer.json --steps 20 --save short \
        set.jsonl
    good eval short set.jsonl
    noted '2 words have no label: .* 6 tokens' predict short 'anna lives in rome and paris'
    has short/latest/config.json '"max_position_embeddings": 10'
    bad 2 'length=11: expected at most the 10 positions' "${job[@]}" --model "$bert,length=11" \
        random
}

wrong() {
    bad 2 'words=1 gives each word one of the classes: name classes=N' \
        train --model bert:words=1 random
    echo '{"text":"anna","label":"PER"}' >text.jsonl
    bad 1 "text.jsonl, line 1: missing the column 'tokens'" "${job[@]}" \
        --tokenizer tokenizer.json text.jsonl
    sed 's/LOC/ORG/g' set.jsonl >other.jsonl
    bad 1 "the label 'ORG' is not one of the model's classes: LOC, O, PER" eval one other.jsonl
}

check same_bits
check chunks
check is_evaluated
check predicts
check shorter
check wrong
finish
