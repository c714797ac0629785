#!/usr/bin/env bash
# Classifying texts: training on labelled texts gives equal bits for any number of ranks and form of
# the file, is evaluated and saved with its tokenizer; and wrong data.
. "$(dirname "$0")/lib.sh"

words=(good fine bad poor the film was a plot)
vocab='"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3'
for i in "${!words[@]}"; do vocab+=",\"${words[$i]}\":$((i + 4))"; done
special() { echo "{\"id\":$1,\"content\":\"$2\",\"special\":true}"; }
cat >tokenizer.json <<END
{"added_tokens":[$(special 0 '[PAD]'),$(special 2 '[CLS]'),$(special 3 '[SEP]')],
 "normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",
 "max_input_chars_per_word":100,"vocab":{$vocab}}}
END

# Texts of different lengths, so that the micro-batches have different padding.
echo text,label >set.csv
for i in $(seq 0 119); do
    text=
    for j in $(seq 0 $((i * 7 % 6))); do text+="${words[$((4 + (i * 5 + j * 3) % 5))]} "; done
    label=$([ $((i / 2 % 2)) = 0 ] && echo up || echo down)
    text+=${words[$((i % 2 + i / 2 % 2 * 2))]}
    echo "\"$text\",$label" >>set.csv
    echo "{\"text\":\"$text\",\"label\":\"$label\"}" >>set.jsonl
done
bert=bert:layers=1,heads=2,width=16,context=12,classes=2
job=(train --model $bert --tokenizer tokenizer.json --batch-size 12 --microbatches 3 --lr 0.01
    --steps 40 --json)

same_bits() {
    good "${job[@]}" --save one set.csv
    mv out one.out
    good "${job[@]}" set.jsonl
    same_run one.out out
    good "${job[@]}" --strategy ddp --nproc 3 set.csv
    same_run one.out out
}

is_evaluated() {
    good eval --json --per-class --batch-size 4 one set.csv
    [ "$(field loss out)" = "$(field eval_loss one.out)" ] ||
        fail "$(cat out) after $(tail -1 one.out)"
    [ "$(field accuracy out)" = 1 ] || fail "it did not learn: $(cat out)"
    grep -q '"classes":\[{"class":"down","samples":.*,{"class":"up","samples":' out ||
        fail "classes: $(cat out)"
    [ -e one/latest/tokenizer.json ] || fail 'the checkpoint has no tokenizer'
}

wrong_data() {
    bad 1 'set.csv: labelled texts need .*tokenizer' train --model $bert set.csv
    bad 1 'set.csv has 2 classes, the model 1' "${job[@]}" --model "${bert%2}1" set.csv
    bad 1 "expected labelled texts .* got tokenizer.json" "${job[@]}" tokenizer.json
    echo 'text,mood' >mood.csv
    echo 'good,up' >>mood.csv
    bad 1 "mood.csv, line 2: missing the column 'label'" "${job[@]}" mood.csv
    bad 1 'missing DATA: .*labelled texts' eval one
}

check same_bits
check is_evaluated
check wrong_data
finish
