#!/usr/bin/env bash
# Classifying texts: training on labelled texts gives equal bits for any number of ranks and form of
# the file, is evaluated and saved with its tokenizer; and wrong data.
. "$(dirname "$0")/lib.sh"

words=(good fine bad poor the film was a plot)
make_tokenizer tokenizer.json "${words[@]}"

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

# Labels that a model does not use, and a text that looks like the name of a file, are named.
probably_not_meant() {
    noted 'set.jsonl has labels, and this model fills gaps .*, such as bert:classes=2' \
        train --model ${bert%,*} --tokenizer tokenizer.json --batch-size 12 --quiet --steps 1 \
        set.jsonl
    noted 'there is no file good.txt: it is taken as a text' predict one good.txt
    good predict one 'good. film'
}

held_out() {
    good "${job[@]}" --steps 2 --val-split 0.25 --save quarter set.csv
    good eval --json quarter
    [ "$(field samples out)" = 30 ] || fail "a quarter of 120: $(cat out)"
    has out '"targets":30,"same_data":true'
    noted 'set.jsonl is not the data of the training .*held out here may have been trained on' \
        eval --json quarter set.jsonl
    has out '"samples":30,"targets":30,"same_data":false'
    good eval quarter
    has out ", on 30 samples of $PWD/set.csv: loss"
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

# Labels are mapped to the model's classes by name, also in a file that has but one of them.
keeps_names() {
    has one/latest/job.json '"classes": \[' '"down"' '"up"'
    has one/latest/config.json '"0": "down"' '"1": "up"' '"down": 0' '"up": 1'
    mkdir -p ups && cp set.csv ups/train.csv
    grep -E '^text|,up$' set.csv >ups/dev.csv
    good eval --json --per-class one ups
    [ "$(field accuracy out)" = 1 ] || fail "ups alone: $(cat out)"
    grep -q '{"class":"down","samples":0,"predictions":0,' out || fail "ups alone: $(cat out)"
    sed -i 's/,up$/,other/' ups/dev.csv
    bad 1 "dev.csv, line 2: the label 'other' is not one of the model's classes: down, up" \
        eval one ups
    sed 's/,up$/,other/' set.csv >other.csv
    bad 1 "the label 'other' is not one of the model's classes" \
        train --resume one --steps 50 other.csv
    sed 's/,up$/,1/; s/,down$/,0/' set.csv >numbers.csv
    noted 'note: labels are numbers of the model.s classes: 0 is down, 1 is up$' \
        eval --json one numbers.csv
    [ "$(field accuracy out)" = 1 ] || fail "numbers: $(cat out)"
    sed 's/,0$/,2/' numbers.csv >two.csv
    bad 1 "two.csv, line [0-9]+: the label 2 is not one of the model's 2 classes" eval one two.csv
    good train --resume one --steps 44 --json set.csv
    good train --model one/latest --steps 1 --batch-size 12 --json set.csv # the head, and its names
    noted '0 is down, 1 is up$' train --model one/latest --steps 1 --batch-size 12 numbers.csv
    bad 1 "is not one of the model's classes" train --model one/latest --batch-size 12 other.csv
    noted 'another head' train --model one/latest:classes=3 --steps 1 --batch-size 12 \
        --save three other.csv
    has three/latest/config.json '"0": "down"' '"1": "other"' '"2": "LABEL_2"'
}

wrong_data() {
    bad 1 'set.csv: labelled texts need .*tokenizer' train --model $bert set.csv
    bad 1 'set.csv has 2 classes, the model 1' "${job[@]}" --model "${bert%2}1" set.csv
    bad 1 "expected labelled texts .* got tokenizer.json" "${job[@]}" tokenizer.json
    sed 's/,up$/,1/; s/,down$/,0/' set.csv >numbers.csv
    sed '7s/,[01]$/,5/' numbers.csv >five.csv
    bad 1 'five.csv has 6 classes, the model 2: the largest label is in .*five.csv, line 7' \
        "${job[@]}" five.csv
    sed 's/,0$/,-1/' numbers.csv >signs.csv
    bad 1 'signs.csv, line [0-9]+: the label -1 is negative: expected numbers of classes' \
        "${job[@]}" signs.csv
    echo 'text,mood' >mood.csv
    echo 'good,up' >>mood.csv
    bad 1 "mood.csv, line 2: missing the column 'label'" "${job[@]}" mood.csv
    bad 2 "--whole: expected DATA, since a part of the job's own data was trained on" \
        eval --whole one
    mv set.csv gone.csv
    bad 1 'set.csv: cannot be opened: No such file' eval one
    mv gone.csv set.csv
}

# Numbers, and several classes each: learnt, evaluated and predicted by a family without types.
numbers_and_several() {
    local i small=(train --model "distilbert:layers=1,heads=2,width=16,context=12,classes=2"
        --tokenizer tokenizer.json --batch-size 12 --microbatches 3 --lr 0.01 --steps 150 --json)
    for i in $(seq 0 59); do
        set -- ${words[$((i % 2))]} ${words[$((5 + i / 2 % 2))]}
        echo "{\"text\":\"the $1 $2\",\"label\":[$((i % 2)).5,$((-(i / 2 % 2)))]}" >>numbers.jsonl
        echo "{\"text\":\"the $1 $2\",\"labels\":[\"$2\"$([ "$1" = good ] && echo ,\"good\")]}" \
            >>several.jsonl
    done
    small[2]+=,problem=regression
    good "${small[@]}" --save numbers numbers.jsonl
    mv out numbers.out
    good "${small[@]}" --strategy ddp --nproc 3 numbers.jsonl
    same_run numbers.out out
    good eval --json --batch-size 4 numbers
    has out '"accuracy":null,"perplexity":null,"samples":6,"targets":6'
    [ "$(field loss out)" = "$(field eval_loss numbers.out)" ] || fail "$(cat out)"
    good predict numbers 'the good film' 'the fine was'
    awk 'NR == 1 && $1 < 0.9 && $2 > -0.6 || NR == 2 && $1 > 1 && $2 < -0.5 { good++ }
        END { exit good != 2 }' out || fail "numbers: $(cat out)"
    good predict --json numbers 'the good film'
    has out '"text":"the good film","numbers":\[[-0-9.e]*,[-0-9.e]*\]'
    has numbers/latest/config.json '"problem_type": "regression"' '"DistilBertForSequenceClass'
    small[2]=distilbert:layers=1,heads=2,width=32,context=12,classes=3,problem=multi_label
    good "${small[@]}" --lr 0.003 --steps 600 --save several several.jsonl
    [ "$(field eval_accuracy out)" = 1 ] || fail "several: $(tail -1 out)"
    good eval --json --per-class several
    has out '"accuracy":1,"perplexity":null' '"f1":1,' '"class":"good","samples":4,"predictions":4,'
    good predict --json several 'the good was'
    has out '"labels":\[\{"label":"(was|good)".*\{"label":"(was|good)"[^{]*\]'
    good predict several 'the fine film'
    has out '^film  [01][.][0-9]{4}  the fine film$'
    has several/latest/config.json '"problem_type": "multi_label_classification"' '"1": "good"'
    bad 1 'several.jsonl, line 1.*: expected a label of 3 numbers' "${small[@]}" \
        --model "${small[2]%,*},problem=regression" several.jsonl
    echo '{"text":"the good film","labels":[0,0,1]}' >truths.jsonl # not the classes 0 and 1
    bad 1 'truths.jsonl, line 1.*: expected each class once .*, got class 0 twice; truth values' \
        "${small[@]}" truths.jsonl
}

# Columns by other names: the same bits, also in what is evaluated and predicted later.
other_columns() {
    sed '1s/.*/review,stars/' set.csv >reviews.csv
    good "${job[@]}" --columns text=review,label=stars --save reviews reviews.csv
    same_run one.out out
    good eval --json reviews
    [ "$(field loss out)" = "$(field eval_loss one.out)" ] || fail "$(cat out)"
    good predict reviews reviews.csv
    mv out reviews.out
    good predict one set.csv
    cmp out reviews.out || fail 'predictions differ'
    bad 1 "reviews.csv, line 2: missing the column 'text'" "${job[@]}" reviews.csv
    bad 1 "reviews.csv, line 2: missing the column 'score'" "${job[@]}" \
        --columns text=review,label=score reviews.csv
    bad 1 "columns: unknown option 'prompt'.*text, pair, label" "${job[@]}" \
        --columns prompt=review reviews.csv
    bad 1 'random: only .jsonl, .* files of texts have columns' "${job[@]}" \
        --columns text=review random
}

check same_bits
check probably_not_meant
check other_columns
check numbers_and_several
check held_out
check is_evaluated
check keeps_names
check wrong_data
finish
