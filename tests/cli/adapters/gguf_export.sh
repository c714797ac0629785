#!/usr/bin/env bash
# choir export --format gguf: a file describes its model as llama.cpp reads it, or the export is
# refused with the name of what the file has no place for.
golden=$(cd "$(dirname "$0")/../../golden/tokenizers" && pwd) # before lib.sh changes the folder
. "$(dirname "$0")/../lib.sh"
make_text text 100
sizes=layers=2,heads=2,width=16,hidden=32,context=16
yarn=rope=yarn,factor=2,original=8,low_freq=1,high_freq=32
few=(--tokenizer "$golden/gpt2" --steps 1 --no-eval --batch-size 2)

# made MODEL: a model of the sizes and more options, saved in `made`.
made() {
    rm -rf made file back
    choir train --quiet "${few[@]}" --model "$1" --save made text >out 2>err ||
        fail "$1: $(cat err)"
}

# refused PATTERN MODEL
refused() {
    made "$2"
    bad 1 "$1" export made file --format gguf
    [ ! -e file ] || fail "a refused export leaves a file: $2"
}

# kept MODEL: the file is read back as the same model, with the same loss.
kept() {
    made "$1"
    good eval --json made text && mv out before
    good export made file --format gguf --dtype f32
    good checkpoint convert file/model.gguf back
    good eval --json back text
    [ "$(field loss out)" = "$(field loss before)" ] ||
        fail "$1: the loss is $(field loss out), not $(field loss before)"
}

keeps() {
    kept "llama:$sizes,$yarn"
    kept "gemma2:$sizes,head_dim=8,query_scale=8,theta=5000,window=4"
    kept "gemma3:$sizes,head_dim=8,query_scale=8,rope=linear,factor=8"
    kept "phi3:$sizes,partial=0.5"
    kept "mistral:$sizes,window=64"
}

refuses() {
    refused 'no place for attention_factor=0.9' \
        "llama:$sizes,$yarn,attention_factor=0.9"
    refused 'no place for high_freq=16' \
        "llama:$sizes,${yarn%32}16"
    refused 'no place for unrounded=1' "llama:$sizes,$yarn,unrounded=1"
    refused "scaled as 'llama3'" \
        "qwen2:$sizes,rope=llama3,factor=2,low_freq=1,high_freq=4,original=8"
    refused 'no place for query_scale=4' "gemma2:$sizes,head_dim=8,query_scale=4"
    refused 'no place for softcap=5' "gemma3:$sizes,head_dim=8,query_scale=8,softcap=5"
    refused 'no place for local_theta=20000' \
        "gemma3:$sizes,head_dim=8,query_scale=8,local_theta=20000"
    refused 'no place for pattern=sf' "gemma3:$sizes,head_dim=8,query_scale=8,pattern=sf"
    refused 'q_proj.bias. has no place' "qwen3:$sizes,head_dim=8,attention_bias=1"
    refused 'lm_head.weight. has no place' "gemma2:$sizes,head_dim=8,query_scale=8,tied=0"
}

# llama.cpp has no windows in these families: the file's context ends where they would begin.
windows() {
    for model in "mistral:$sizes,window=8" "qwen2:$sizes,window=8,pattern=fs"; do
        made "$model"
        noted "no window for .*: the file's context is the window, 8 tokens of 16" \
            export made file --format gguf
        good checkpoint convert file/model.gguf back
        grep -q '"max_position_embeddings": 8' back/config.json || fail "$(cat back/config.json)"
    done
}

# tokenizer CODE: changes the root of plain's tokenizer.json by a line of Python.
tokenizer() {
    python3 -c "import json, sys
path = 'plain/tokenizer.json'
root = json.load(open(path))
$1
json.dump(root, open(path, 'w'))"
    rm -rf file
}

# Steps that llama.cpp has not are refused; what it does otherwise in rare texts is noted.
tokenizers() {
    made "llama:$sizes"
    good export made plain --format hf
    cp plain/tokenizer.json before
    tokenizer 'root["normalizer"] = {"type": "NFC"}'
    noted 'composes characters .NFC.' export plain file --format gguf
    tokenizer 'root["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}'
    bad 1 'has a normalizer, for which' export plain file --format gguf
    cp before plain/tokenizer.json
    tokenizer 'root["added_tokens"][0]["rstrip"] = True'
    noted 'take the spaces beside them' export plain file --format gguf
    cp before plain/tokenizer.json
    local token='{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}'
    tokenizer "root['post_processor'] = {'type': 'TemplateProcessing', 'pair': [], \
        'single': [$token, $token, {'Sequence': {'id': 'A', 'type_id': 0}}], 'special_tokens': {
            '<|endoftext|>': {'id': '<|endoftext|>', 'ids': [0], 'tokens': ['<|endoftext|>']}}}"
    bad 1 'several tokens on one side of a text' export plain file --format gguf
    cp before plain/tokenizer.json
    tokenizer 'root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Split",
        "pattern": {"Regex": "\\\\p{N}{1,3}"}, "behavior": "Removed", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}'
    bad 1 'has a way to cut words, for which' export plain file --format gguf
}

check keeps
check refuses
check windows
check tokenizers
finish
