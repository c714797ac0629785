#!/usr/bin/env bash
# A published tokenizer and files of token ids: used in training, stored, resumed, evaluated,
# and used to generate text; and wrong files.
golden=$(cd "$(dirname "$0")/../golden/tokenizers" && pwd)
. "$(dirname "$0")/lib.sh"

make_text text 300

# kept FILE: training with this tokenizer stores it in the checkpoint, where all commands find
# it.
kept() {
    rm -rf saved
    good train --json --model "$gpt" --tokenizer "$golden/$1" --steps 8 text && mv out whole
    good train --json --model "$gpt" --tokenizer "$golden/$1" --steps 4 --save saved text
    good train --json --steps 8 --resume saved text && mv out rest
    same_run whole rest 5
    good generate saved --prompt "To be" --tokens 5
    good eval saved text --eval-batches 2
}

ids() {
    rm -rf saved
    head -c 4000 /dev/zero | tr '\0' '\1' >ids.bin
    good train --model "$gpt" --steps 3 --quiet --save saved ids.bin
    good eval saved ids.bin
    bad 1 "has no tokenizer" generate saved
    bad 1 "token [0-9]+ is 257, outside the vocabulary of 256" \
        train --model "$gpt" --bytes --steps 3 --quiet ids.bin
    printf x >>ids.bin
    bad 1 "odd 4001 bytes" train --model "$gpt" --steps 3 ids.bin
}

wrong_files() {
    echo '{"model":{"type":"Nope"}}' >t.json
    bad 1 'model.type is "Nope"' train --model "$gpt" --tokenizer t.json --steps 1 text
    bad 1 'nowhere' train --model "$gpt" --tokenizer nowhere --steps 1 text
    bad 2 '--bytes with --tokenizer t.json: choose one of them' \
        train --model "$gpt" --tokenizer t.json --bytes --steps 1 text
}

for file in gpt2 llama2.json spm_unigram.model; do
    check kept "$file"
done
check ids
check wrong_files
finish
