#!/usr/bin/env bash
# choir predict: labels for texts, pairs, words and images, from arguments, standard input and
# files; and models and inputs that it cannot take.
corpus=$(cd "$(dirname "$0")/../fuzz/corpus" && pwd) # before lib.sh changes the folder
. "$(dirname "$0")/lib.sh"

words=(good bad film plot the was)
make_tokenizer tokenizer.json "${words[@]}"
size=layers=1,heads=2,width=16,context=12
options=(--tokenizer tokenizer.json --batch-size 12 --lr 0.01 --steps 60 --quiet)

# labels_in FILE: of all predictions, one per line.
labels_in() { grep -oE '"label":("[^"]*"|null)' "$1" | sed 's/.*://; s/"//g'; }

train_texts() {
    local i mood moods=(up down)
    echo text,label >set.csv
    for i in $(seq 0 99); do
        mood=$((i / 3 % 2))
        echo "the ${words[$((2 + i % 2))]} was ${words[$mood]},${moods[$mood]}"
    done >>set.csv
    good train "${options[@]}" --model "bert:$size,classes=2" --save texts set.csv
}

texts() {
    good predict texts 'the film was good' 'the plot was bad'
    has out '^up  [01][.][0-9]{4}  the film was good$' \
        '^down  [01][.][0-9]{4}  the plot was bad$'
    [ "$(wc -l <out)" = 2 ] || fail "lines: $(cat out)"
    good predict --json texts set.csv
    [ "$(labels_in out)" = "$(tail -n +2 set.csv | cut -d, -f2)" ] || fail 'labels of set.csv'
    has out '^\{"event":"predict","input":0,"text":"the film was good","label":"up","class":1,"prob'
    mv out all
    good predict --json --batch-size 7 --device cpu:0 --workers 2 texts set.csv
    cmp -s out all || fail 'other batches, other bits'
    tail -n +2 set.csv | cut -d, -f1 >lines
    printf 'the film was good\r\n\nthe plot was bad' | choir predict --json texts >out 2>err
    [ "$(labels_in out | tr '\n' ' ')" = 'up down ' ] || fail "standard input: $(cat out err)"
    choir predict --json texts - <lines >out
    cmp -s out all || fail 'lines of standard input, other bits'
    printf '{"sentence":"the film was good"}\n' >one.jsonl
    good predict --json --top 5 texts one.jsonl
    has out '"top":\[\{"label":"up","class":1,"probability":0[.][0-9]*\},\{"label":"down",'
    good predict --top 2 texts 'the plot was good'
    has out '^up  0[.][0-9]{4}  down  0[.][0-9]{4}  the plot was good$'
    awk '{ exit !($2 + $4 > 0.999 && $2 + $4 < 1.001) }' out || fail "probabilities: $(cat out)"
}

# The class is that of the second text.
pairs() {
    local i a b
    for i in $(seq 0 119); do
        a=${words[$((i % 2))]} b=${words[$((i / 2 % 2))]}
        printf '{"premise":"%s","hypothesis":"%s","label":"is %s"}\n' "$a" "$b" "$b"
    done >pairs.jsonl
    good train "${options[@]}" --model "bert:$size,classes=2" --save pairs pairs.jsonl
    good predict --json pairs $'bad\tgood' $'good\tbad'
    [ "$(labels_in out)" = $'is good\nis bad' ] || fail "tabs: $(cat out)"
    has out '"text":"bad","pair":"good","label":"is good"'
    good predict --pair bad pairs bad good $'bad\tgood'
    has out '^is bad .*  bad.bad$' '^is bad .*  good.bad$' '^is good .*  bad.good$'
    printf 'text\ngood\n' >half.csv
    good predict --json --pair bad pairs half.csv
    has out '"text":"good","pair":"bad","label":"is bad"'
    good predict --json pairs pairs.jsonl
    [ "$(labels_in out)" = "$(sed 's/.*label":"//; s/".*//' pairs.jsonl)" ] ||
        fail 'labels of pairs'
}

images() {
    local i
    "$CHOIR" info --json | grep -q '"images":\["jpeg","png"\]' || return 0
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        mkdir -p photos/grey photos/red
        tail -c +5 "$corpus/jpeg/gray" >photos/grey/$i.jpg
        tail -c +5 "$corpus/png/rgb" >photos/red/$i.png
    done
    good train --model cnn:width=2 --batch-size 4 --steps 30 --lr 0.01 --quiet --save photo photos
    has photo/latest/job.json '"grey"' '"red"'
    good predict --json photo photos
    [ "$(labels_in out | uniq -c | tr -s ' \n' ' ')" = ' 12 grey 12 red ' ] || fail "$(cat out)"
    has out '"input":0,"file":"photos/grey/1.jpg","label":"grey"'
    good predict photo photos/red/1.png photos/grey/2.jpg
    has out '^red  .*  photos/red/1.png$' '^grey  .*  photos/grey/2.jpg$'
    bad 1 'none.png: .*No such file' predict photo none.png
    bad 1 'set.csv: expected a JPEG or PNG' predict photo set.csv
    bad 1 'missing INPUT: a JPEG or PNG' predict photo
    bad 1 'gives classes to images' predict --pair x photo photos
    mkdir -p empty && bad 1 'empty: the folder has no' predict photo empty
    mkdir -p more/val/grey more/train/red && cp photos/grey/1.jpg more/val/grey
    cp photos/red/1.png more/train/red
    good eval --json photo more # the class grey is 0, also without images to train on
    [ "$(field accuracy out)" = 1 ] || fail "grey alone: $(cat out)"
    mv more/val/grey more/val/blue
    bad 1 "more/val/blue: expected the name of one of the model's classes: grey, red" \
        eval photo more
}

# Names out of a file do not command the terminal.
hostile_names() {
    mkdir hostile && cp -r texts/latest/. hostile && rm hostile/state.json hostile/job.json
    sed -i 's/"1": "up"/"1": "\\u001b[31mup"/' hostile/config.json
    good predict hostile 'the film was good'
    has out '^[?][[]31mup  '
    good predict --json hostile 'the film was good'
    has out '"label":"\\u001b\[31mup"'
    sed -i 's/"1": ".*up"/"one": "up"/' hostile/config.json
    bad 1 "config.json: key 'id2label': expected a text for each class" predict hostile good
}

wrong() {
    bad 2 'missing MODEL' predict
    bad 1 'none' predict none good
    bad 1 'none.csv: .*No such file' predict texts none.csv
    bad 1 'missing INPUT: a text' predict texts
    bad 1 'text 1: expected UTF-8' predict --json texts good $'\xff'
    bad 1 'lines is no .jsonl, .csv, .tsv or .parquet file' predict texts lines
    bad 1 "devices? .*bogus" predict --device bogus texts good
    echo 'mood' >mood.csv && echo 'up' >>mood.csv
    bad 1 "mood.csv, line 2: missing the column 'text'" predict texts mood.csv
    cp -r texts/latest/. published && rm published/state.json published/tokenizer.json
    bad 1 'published has no tokenizer: .*--tokenizer FILE' predict published good
    good predict --tokenizer tokenizer.json published 'the plot was good'
    has out '^up '
    make_text words 300
    good train --model $gpt --steps 1 --batch-size 4 --quiet --save writer words
    bad 1 'writer is gpt2:.*choir generate' predict writer good
    good train --model $bert --steps 1 --batch-size 4 --quiet --save masked words
    bad 1 'masked is bert:.*, no classifier: .*classes=N' predict masked good
    good train --steps 1 --batch-size 4 --quiet --save numbers random
    bad 1 'numbers is toy.*, no classifier' predict numbers good
    good train --model mlp:in=4,hidden=4,classes=2 --steps 1 --quiet --save flat random
    bad 1 'flat: expected a model of texts, or of images with 1 or 3 channels' predict flat good
}

# A folder of IDX files: its validation images, which choir eval scores as well.
idx() {
    make_idx idx train 200
    make_idx idx t10k 30
    good train --model mlp:hidden=32 --batch-size 20 --steps 60 --lr 0.01 --quiet --save digits idx
    good predict digits idx
    has out '^7  [01][.][0-9]{4}  idx 7$' '^9  [01][.][0-9]{4}  idx 29$'
    [ "$(wc -l <out)" = 30 ] || fail "lines: $(cat out)"
    good predict --json digits idx
    [ "$(labels_in out | tr -d '\n')" = 012345678901234567890123456789 ] || fail "$(cat out)"
    has out '"input":12,"file":"idx","label":"2","class":2,'
    good eval --json digits idx
    has out '"accuracy":1,.*"samples":30'
    # the same images in a folder with brighter ones to train on: the same predictions
    mkdir bright && cp idx/t10k-* bright
    head -c 16 idx/train-images-idx3-ubyte >bright/train-images-idx3-ubyte
    head -c 28800 /dev/zero | tr '\0' '\377' >>bright/train-images-idx3-ubyte
    cp idx/train-labels-idx1-ubyte bright
    good predict --json digits idx
    sed 's/"file":"idx"//' out >dark
    good predict --json digits bright
    sed 's/"file":"bright"//' out | cmp -s - dark || fail 'other training images, other labels'
    bad 1 'expected one INPUT, a folder of IDX files, got 2' predict digits idx idx
    bad 1 'expected one INPUT' predict digits
}

train_texts
check texts
check pairs
check images
check idx
check hostile_names
check wrong
finish
