#!/usr/bin/env bash
# choir train --val-split: a part of texts, ids and documents is held out, choir eval takes the same
# part, and data with a validation split of their own keep it. images.sh and labelled.sh have other
# kinds of data.
. "$(dirname "$0")/lib.sh"

yes 'to be, or not to be' | head -c 4000 >text.txt
for i in $(seq 200); do echo "{\"text\":\"it is number $i\"}"; done >set.jsonl
mkdir parts
cp set.jsonl parts/train.jsonl
head -20 set.jsonl >parts/validation.jsonl
gpt=(train --json --model gpt2:layers=1,heads=1,width=8,context=16 --steps 2 --batch-size 2)

# held SAMPLES DATA OPTION...: choir eval has so many samples after training with these options.
held() {
    local samples=$1 data=$2
    shift 2
    rm -rf saved
    good "${gpt[@]}" --save saved "$@" "$data"
    cp out trained
    good eval --json --batch-size 2 saved "$data"
    [ "$(field samples out)" = "$samples" ] || fail "$data $*: $(cat out), not $samples samples"
    [ "$(field loss out)" = "$(field eval_loss trained)" ] || fail "$data $*: $(cat out trained)"
}

# A window of 16 tokens needs 17.
of_texts() {
    held 24 text.txt
    held 62 text.txt --val-split 0.25
    head -c 3000 text.txt >tokens.bin # as u16
    held 9 tokens.bin --val-split 0.1 --model gpt2:layers=1,heads=1,width=8,context=16,vocab=65536
    held 46 tokens.bin --val-split 0.5 --model gpt2:layers=1,heads=1,width=8,context=16,vocab=65536
    held 20 set.jsonl --pack # and not joined
    held 50 set.jsonl --val-split 0.25 --pack
    yes 'it is number 1 ' | head -200 | tr -d '\n' >windows.txt # no documents
    noted 'windows.txt is not the data of the training' eval --json saved windows.txt
}

# All of a file that was kept for tests, also where no tenth of it is held out.
whole() {
    rm -rf saved
    good "${gpt[@]}" --pack --save saved set.jsonl
    head -3 set.jsonl >tests.jsonl
    good eval --json --whole saved tests.jsonl
    [ "$(field samples out)" = 3 ] || fail "all of three documents: $(cat out)"
    good eval --json --whole saved parts
    [ "$(field samples out)" = 20 ] || fail "a split of their own: $(cat out)"
    rm -rf saved
    good "${gpt[@]}" --save saved text.txt
    good eval --json --whole saved text.txt
    [ "$(field samples out)" = 249 ] || fail "all of a text: $(cat out)"
}

# The checkpoint's part is that of a job that goes on.
resumed() {
    held 62 text.txt --val-split 0.25
    good "${gpt[@]}" --resume saved --steps 3 text.txt
    good eval --json saved text.txt
    [ "$(field samples out)" = 62 ] || fail "resumed: $(cat out)"
    bad 1 'saved was trained with --val-split 0.25: it cannot continue with 0.5' "${gpt[@]}" \
        --resume saved --steps 4 --val-split 0.5 text.txt
}

wrong() {
    local part
    for part in 0 1 -1 nan x; do
        bad 2 'val-split: expected a number from 1e-06 to 0.999999, got ' "${gpt[@]}" \
            --val-split $part text.txt
    done
    bad 1 'val-split 0.2: parts has a validation split of its own' "${gpt[@]}" --val-split 0.2 parts
    bad 1 'val-split 0.2: random has a validation split' "${gpt[@]}" --val-split 0.2 random
    bad 1 'text.txt has 4 tokens in its training split, fewer than the context' "${gpt[@]}" \
        --val-split 0.999 text.txt
    "$CHOIR" "${gpt[@]}" --val-split 0.2 - <text.txt >out 2>err
    [ $? = 2 ] || fail 'a stream'
    is_one_line 'standard input is read once, so .*--val-split' || fail "$(cat err)"
}

check of_texts
check whole
check resumed
check wrong
finish
