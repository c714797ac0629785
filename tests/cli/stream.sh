#!/usr/bin/env bash
# Standard input as data: read while the model trains, the same bits on any number of ranks, a
# stream that ends, one that does not, and what is not possible.
. "$(dirname "$0")/lib.sh"

for i in $(seq 400); do echo "line $i of a text that has a few hundred of them"; done >text
for i in $(seq 300); do
    echo "{\"prompt\": \"Say $i: \", \"completion\": \"it is $i\"}"
done >docs.jsonl
model=(--model gpt2:layers=1,heads=2,width=16,context=32 --batch-size 4 --microbatches 2 --json)

# fed FILE ARGUMENTS...: choir ARGUMENTS with the file through a pipe; its output must be good.
fed() {
    local file=$1
    shift
    cat "$file" | choir "$@" >out 2>err || fail "status $?: choir $*: $(cat err)"
}

same_bits() {
    fed text train "${model[@]}" --bytes --steps 30 -
    mv out one
    fed text train "${model[@]}" --bytes --steps 30 --strategy ddp --nproc 2 --workers 2 -
    same_run one out
}

documents() {
    good train "${model[@]}" --bytes --steps 1 --save tokens docs.jsonl # a tokenizer with an end
    fed docs.jsonl train "${model[@]}" --tokenizer tokens/latest --steps 20 -
    mv out one
    fed docs.jsonl train "${model[@]}" --tokenizer tokens/latest --steps 20 --strategy ddp \
        --nproc 2 -
    same_run one out
    fed docs.jsonl train "${model[@]}" --bytes --steps 20 --save added - # gets an end of a text
    same_run one out
    good eval --json --batch-size 4 added docs.jsonl
    cat docs.jsonl | choir train "${model[@]}" --weights tokens/latest/model.safetensors \
        --bytes - >out 2>err && fail 'weights with more tokens than they have'
    has err 'has no token that ends a text'
    { head -200 docs.jsonl; echo '{"text": 3}'; } |
        choir train "${model[@]}" --tokenizer tokens/latest --strategy ddp --nproc 2 - >out 2>err &&
        fail 'a wrong record is accepted'
    has err "standard input, line 201: column 'text': expected a text"
}

# Training ends with the last whole step, is saved, and the status is good.
ends() {
    local ranks
    head -80 text >short
    for ranks in 1 2; do
        local how=()
        [ $ranks = 2 ] && how=(--strategy ddp --nproc 2)
        fed short train "${model[@]}" --bytes --steps 1000 --save "kept$ranks" "${how[@]}" -
        has err 'standard input ended after 3398 tokens: step 26 of 1000 is the last one'
        [ "$(field steps out)" = 26 ] || fail "it says $(field steps out) steps"
        mv out "out$ranks"
    done
    same_run out1 out2
    good eval --json --batch-size 4 kept1 text
    bad 2 'standard input cannot be read again' train --resume kept1
    bad 2 'standard input cannot be read again' train --resume kept1 -
    head -8 text | choir train "${model[@]}" --bytes - >out 2>err && fail 'too short'
    has err 'ended after .* tokens, before the 16 samples'
}

# A stream that goes on when training is over, and one that stays open, hold nothing up.
goes_on() {
    yes 'an endless text' | choir train "${model[@]}" --bytes --steps 5 - >out 2>err ||
        fail "status $?: $(cat err)"
    mkfifo pipe
    exec 9<>pipe
    cat text >&9 &
    choir train "${model[@]}" --bytes --steps 5 --strategy ddp --nproc 2 - <pipe >out 2>err ||
        fail "status $?: $(cat err)"
    exec 9>&-
    wait
}

refused() {
    bad 2 'so --epochs is not possible' train --bytes --epochs 2 -
    bad 1 'name --tokenizer FILE, or --bytes' train -
    bad 1 'standard input is for models that predict the next token' train --bytes --model toy -
    bad 2 'can be read only once' compare --bytes -
}

check same_bits
check documents
check ends
check goes_on
check refused
finish
