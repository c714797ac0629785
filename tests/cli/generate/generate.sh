#!/usr/bin/env bash
# Texts of saved models: prompts of a file in any batch, JSON, stop strings, end tokens, chats, and
# what is refused.
golden=$(cd "$(dirname "$0")/../../golden/tokenizers" && pwd) # before lib.sh changes the folder
. "$(dirname "$0")/../lib.sh"

choir train --model "$gpt" --steps 4 --batch-size 4 --no-eval --quiet --save run >out 2>err ||
    { cat err; exit 1; }

events() { grep -o '"tokens":\[[0-9,]*\],"logprobs":\[[-0-9.e,]*\]' out; }

any_batch() {
    printf 'To be\nthe sea\n\nT' >prompts
    good generate run --prompts prompts --json --tokens 9 && events >all
    [ "$(wc -l <all)" = 4 ] || fail "4 prompts gave $(wc -l <all) texts"
    for size in 1 3; do
        good generate run --prompts - --batch-size $size --json --tokens 9 <prompts && events >some
        cmp -s all some || fail "--batch-size $size writes other texts"
    done
    good generate run --prompt 'the sea' --json --tokens 9 && events >one
    [ "$(sed -n 2p all)" = "$(cat one)" ] || fail "a text depends on the others"
}

# A GGUF file writes what the folder does that it was made of, and leaves nothing behind.
from_gguf() {
    local how=(--prompt 'To be' --tokens 8 --temperature 0)
    good train --model gpt2:layers=1,heads=2,width=32,context=16 --tokenizer "$golden/gpt2" \
        --steps 2 --batch-size 4 --no-eval --quiet --save words
    good export words gguf --format gguf
    good generate words "${how[@]}"
    mv out expected
    mkdir room
    TMPDIR=$PWD/room good generate gguf/model.gguf "${how[@]}"
    cmp -s out expected || fail "'$(cat out)', not '$(cat expected)'"
    head -c 1000 gguf/model.gguf >cut.gguf
    TMPDIR=$PWD/room bad 1 'cut.gguf: the file is cut short' generate cut.gguf "${how[@]}"
    [ -z "$(ls room)" ] || fail "left behind: $(ls room)"
    TMPDIR=$PWD/nowhere bad 1 'cannot make .*/nowhere/choir-gguf-' generate gguf/model.gguf
    mkdir tight # the tokenizer has room there, and the weights, which stay where they are, do not
    if mount -t tmpfs -o size=64k tmpfs tight 2>/dev/null; then
        TMPDIR=$PWD/tight good generate gguf/model.gguf "${how[@]}"
        cmp -s out expected || fail "with little room: '$(cat out)', not '$(cat expected)'"
        [ -z "$(ls tight)" ] || fail "left behind: $(ls tight)"
        bad 1 'the disk of tight/again has .* free: --dtype bf16 takes half' \
            checkpoint convert gguf/model.gguf tight/again
        umount tight
    fi
}

# A stop string ends a text before it, inside a token's text or across two; so does the context.
ends() {
    good generate run --prompt 'the' --tokens 12 --temperature 0
    text=$(cat out) text=${text#the}
    [ ${#text} = 12 ] || fail "12 characters gave '$text'"
    stop=${text:4:2}
    good generate run --prompt 'the' --tokens 12 --temperature 0 --stop "$stop" --stop '~'
    [ "$(cat out)" = "the${text%%"$stop"*}" ] || fail "'$text' before '$stop': '$(cat out)'"
    good generate run --prompt 'the' --tokens 12 --temperature 0 --json --stop "$stop"
    has out '"event":"generated","text":"'
    has out '"stopped":"stop"'
    good generate run --prompt 'the' --tokens 12 --temperature 0 --json
    has out '"stopped":"length"'
    good generate run --prompt 'the' --tokens 99 --json
    has out '"stopped":"context"'
    noted 'context of 16 tokens is full' generate run --prompt 'the' --tokens 99
}

# Tokens that choir chat ends an answer with, and the chat itself.
chats() {
    for i in {1..9} {1..9} {1..9} {1..9}; do
        echo "{\"messages\":[{\"role\":\"user\",\"content\":\"hi $i\"}," \
            "{\"role\":\"assistant\",\"content\":\"yes\"}]}"
    done >chats.jsonl
    choir train chats.jsonl --model gpt2:layers=1,heads=2,width=32,context=96 --steps 150 \
        --lr 0.01 --batch-size 8 --no-eval --quiet --save talks >out 2>err ||
        { fail "$(cat err)"; return; }
    printf 'hi 3\n\nhi 4\n/exit\nhi 5\n' >lines
    good chat talks --json --temperature 0 <lines
    [ "$(wc -l <out)" = 2 ] || fail "2 messages gave $(wc -l <out) answers"
    has out '"text":"yes"'
    has out '"stopped":"eos"'
    good chat talks --temperature 0 <lines
    [ "$(head -1 out)" = yes ] || fail "answered '$(cat out)'"
    bad 1 'lacks ChatML.s markers' chat run <lines
}

wrong() {
    bad 1 'prompt 1 has 20 tokens, and the model.s context is 16' generate run \
        --prompt 'tttttttttttttttttttt'
    bad 1 'prompt 1: expected UTF-8, got byte 0xff' generate run --prompt $'a\xff'
    bad 2 'temperature' generate run --temperature -1
    bad 2 'top-p' generate run --top-p 1.5
    bad 2 'min-p' generate run --min-p 2
    bad 2 'repetition-penalty' generate run --repetition-penalty 0
    bad 2 'choir generate: --stop: expected a text' generate run --stop ''
    bad 2 'choir chat: --stop: expected a text' chat run --stop ''
    bad 2 'choose one of them' generate run --prompt a --prompts b
    bad 1 'nowhere' generate run --prompts nowhere
    : >empty
    bad 1 'a prompt per line' generate run --prompts empty
}

check any_batch
check from_gguf
check ends
check chats
check wrong
finish
