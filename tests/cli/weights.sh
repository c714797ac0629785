#!/usr/bin/env bash
# Published files: config.json as --model, weights as --weights, folders of both, and the errors
# for files that do not fit.
. "$(dirname "$0")/lib.sh"
LIMIT=30

make_text text 200
small=(--batch-size 12 --steps 4 --json)
bert=bert:layers=1,heads=2,width=16,context=16

# publish MODEL FOLDER: writes a model in the published form: config.json and weights, no state.
publish() {
    good train "${small[@]}" --model "$1" --save "run_$2" text || return
    mkdir "$2" && cp "run_$2"/latest/{config.json,model.safetensors,choir_tokenizer.json} "$2"
}

first_step() { steps_of "$1" | head -n 1; }

# started_as FILE ARG...: the first step equals the one in FILE.
started_as() {
    local want=$1
    shift
    good train "${small[@]}" "$@" text && mv out got &&
        { [ "$(first_step got)" = "$(first_step "$want")" ] || fail "another start: $*"; }
}

folders_and_files() {
    publish "$1" "$2" || return
    good train "${small[@]}" --weights "$2" text && mv out with
    started_as with --model "$2"
    started_as with --model "./$2/"
    started_as with --weights "$2/model.safetensors"
    started_as with --model "$2/config.json" --weights "$2"
    started_as with --model "$1" --weights "run_$2"
    good train "${small[@]}" --model "$1" text && mv out without
    started_as without --model "$2/config.json"
    [ "$(first_step with)" != "$(first_step without)" ] || fail "weights changed nothing: $2"
    started_as with --weights "$2" --strategy ddp --nproc 1
    good train "${small[@]}" --weights "$2" --microbatches 3 text && mv out single
    good train "${small[@]}" --weights "$2" --microbatches 3 --strategy ddp --nproc 2 text &&
        mv out ddp
    same_run single ddp
    good eval --json "run_$2" text && loss=$(field loss out)
    good eval --json "$2" text
    [ "$(field loss out)" = "$loss" ] || fail "eval of $2: $(field loss out), not $loss"
}

gpt2_files() { folders_and_files "$gpt" a_gpt; }
bert_files() { folders_and_files "$bert" a_bert; }

writing() {
    good generate --tokens 5 a_gpt
    bad 1 'a_bert is bert:.*, which writes no text' generate --tokens 5 a_bert
    rm -rf mute
    cp -r a_gpt mute && rm mute/choir_tokenizer.json
    bad 1 'mute has no tokenizer' generate --tokens 5 mute
}

# A resumed run continues from its own weights.
resuming() {
    good train "${small[@]}" --model "$gpt" --save again --steps 2 text
    good train "${small[@]}" --model a_gpt/config.json --resume again --steps 4 text && mv out on
    good train "${small[@]}" --model "$gpt" --steps 4 text && mv out whole
    same_run whole on 3
    bad 1 'again was trained without --weights: it cannot continue with .*/a_gpt' \
        train "${small[@]}" --resume again --weights a_gpt text
}

# A command is repeated with --resume: what it names is the same in other words, too.
repeated() {
    local of=("${small[@]}" --model "$gpt" --init torch)
    good train "${of[@]}" --weights a_gpt --tokenizer a_gpt --save more --steps 2 text
    good train "${of[@]}" --weights ./a_gpt/ --tokenizer "$PWD/a_gpt" --steps 3 --resume more text
    mkdir -p beside
    cd beside || return
    good train --quiet --weights ../a_gpt --tokenizer ../a_gpt --steps 4 --resume ../more ../text
    cd .. || return
    bad 1 'trained with --weights .*/a_gpt: it cannot continue with .*/a_bert' \
        train "${of[@]}" --weights a_bert --resume more text
    bad 1 'trained with --init torch: it cannot continue with choir' \
        train "${small[@]}" --init choir --resume more text
}

# config JSON PATTERN: refuses a config.json.
config() {
    printf '%s' "$1" >config.json
    bad 1 "config.json.*$2" train "${small[@]}" --model config.json text
}

configs() {
    config '{"model_type": "gpt2", "n_layer": -2}' "'n_layer' is -2"
    config '{"model_type": "gpt2", "n_layer": 1, "n_embd": 10, "n_head": 3}' "'n_embd' is 10"
    config '{"model_type": "gpt2", "activation_function": "swish"}' 'swish'
    config '{"model_type": "frob"}' "'frob'|\"frob\".*gpt2"
    config '{"model_type": "gpt2",
        "n_layer": }' 'line 2, column'
    config '' 'line'
    mkdir hollow
    bad 1 'hollow/config.json' train "${small[@]}" --model hollow text
    bad 1 'nowhere/config.json' train "${small[@]}" --model nowhere/config.json text
    bad 2 'frob' train "${small[@]}" --model frob text
}

notes() {
    sed 's/"n_embd"/"frob": 1, "n_embd"/' a_gpt/config.json >noted.json
    choir train "${small[@]}" --model noted.json --strategy ddp --nproc 2 text >out 2>err ||
        fail "a key that is not known: $(cat err)"
    is_one_line 'note: noted.json: not known and ignored: frob' || fail "not noted: $(cat err)"
}

# A classifier starts from the encoder of another model, and lists the weights that are not in
# it.
other_heads() {
    choir train "${small[@]}" --model bert:layers=1,heads=2,width=16,context=16,vocab=21,classes=3 \
        --weights a_bert random >out 2>err || fail "bert as a classifier: $(cat err)"
    grep -q "note: .*'classifier.weight'.* are missing, and start with new values" err ||
        fail "$(cat err)"
    grep -q "note: .*'cls.predictions.bias'.* are unknown to this model" err || fail "$(cat err)"
}

# values FILE PATTERN: the bytes of the tensors whose names match, hashed.
values() {
    python3 - "$@" <<'PYTHON'
import hashlib, json, re, struct, sys
data = open(sys.argv[1], "rb").read()
length, = struct.unpack("<Q", data[:8])
header, data = json.loads(data[8:8 + length]), data[8 + length:]
names = sorted(n for n in header if n != "__metadata__" and re.fullmatch(sys.argv[2], n))
assert names, "no name matches"
digest = hashlib.sha256()
for name in names:
    first, end = header[name]["data_offsets"]
    digest.update(data[first:end])
print(digest.hexdigest())
PYTHON
}

# A head of other classes replaces the published one; without classes= its shape is an error.
new_heads() {
    local bert=bert:layers=1,heads=2,width=16,context=16,vocab=21
    good train "${small[@]}" --model "$bert,classes=2" --save run_two random
    mkdir two && cp run_two/latest/{config.json,model.safetensors} two
    choir train "${small[@]}" --model two:classes=5 random >out 2>err || fail "$(cat err)"
    has err "tensors 'classifier.bias', 'classifier.weight' are of another head"
    grep -q 'bert.encoder' err && fail "more than the head starts with new values: $(cat err)"
    good train --quiet --steps 1 --batch-size 4 --model two:classes=5 random
    choir train "${small[@]}" --model a_bert:classes=5,dropout=0.25 random >out 2>err ||
        fail "$(cat err)"
    grep -q '"model":"bert:.*classes=5,dropout=0.25' out || fail "$(tail -n 1 out)"
    bad 1 "unknown option 'classes'" train "${small[@]}" --model a_gpt:classes=5 text
    good train --json --batch-size 4 --steps 1 --model resnet18:width=4,stages=2,small=1,image=16 \
        --save ten random
    local three=resnet18:width=4,stages=2,small=1,image=16,classes=3
    choir train --json --batch-size 4 --steps 1 --model "$three" \
        --weights ten/latest/model.safetensors random >out 2>err || fail "$(cat err)"
    grep -q "note: .*'fc.weight' are of another head" err || fail "$(cat err)"
}

# frozen ARG...: the embeddings keep their values, and the other weights do not; all strategies
# agree.
frozen() {
    good train "${small[@]}" --model "$gpt" --seed 3 --lr 0 --optimizer sgd --save start text
    local was now all
    was=$(values start/latest/model.safetensors 'transformer.wte.*')
    all=$(values start/latest/model.safetensors '.*')
    good train "${small[@]}" --model "$gpt" --seed 3 "$@" --save "ends" text && mv out alone
    now=$(values ends/latest/model.safetensors 'transformer.wte.*')
    [ "$was" = "$now" ] || fail "trained nevertheless: $*"
    [ "$all" != "$(values ends/latest/model.safetensors '.*')" ] || fail "nothing is trained: $*"
    good train "${small[@]}" --model "$gpt" --seed 3 --microbatches 2 "$@" text && mv out single
    for strategy in ddp fsdp pipeline; do
        good train "${small[@]}" --model "$gpt" --seed 3 --microbatches 2 --strategy $strategy \
            --nproc 2 "$@" text && mv out several
        same_run single several
    done
    rm -rf start ends
}

parts_of_a_model() {
    frozen --freeze 'transformer.wte.*'
    frozen --freeze 'transformer.w[pt]e.*,transformer.h.0.ln_1.*'
    frozen --lr-for 'transformer.wte.*=0' --optimizer sgd --lr 0.1
    frozen --lr-for 'transformer.*=0.01,transformer.wte.*=0' --optimizer adamw:decay=matrices
    good train "${small[@]}" --model "$gpt" --lr 0.01 text && mv out want
    good train "${small[@]}" --model "$gpt" --lr-for '*=0.01' text && mv out got
    same_run want got
    bad 1 "no parameter of the model has a name that matches 'frob'" \
        train "${small[@]}" --model "$gpt" --freeze frob text
    bad 1 "no parameter.*'frob'" train "${small[@]}" --model "$gpt" --lr-for frob=1 text
    bad 1 'all parameters are frozen' train "${small[@]}" --model "$gpt" --freeze '*' text
    bad 2 "expected PATTERN=RATE, got 'wte'" train "${small[@]}" --model "$gpt" --lr-for wte text
    bad 2 "expected PATTERN=RATE, got 'x=-1'" \
        train "${small[@]}" --model "$gpt" --lr-for 'x=-1' text
}

# weights PATTERN ARG...: refuses the files.
weights() {
    local pattern=$1
    shift
    bad 1 "$pattern" train "${small[@]}" "$@" text
    bad 1 "$pattern" train "${small[@]}" --strategy ddp --nproc 2 "$@" text
}

bad_weights() {
    local two=gpt2:layers=2,heads=2,width=16,context=16
    local wide=gpt2:layers=1,heads=2,width=32,context=16
    weights "missing tensor.*h.1.*of the model" --model "$two" --weights a_gpt
    weights "h.0.*is \(48\), but the model's is \(96\).*width=32" --model "$wide" --weights a_gpt
    weights "missing tensor.*bert:" --model "$bert" --weights a_gpt
    weights 'nowhere' --model "$gpt" --weights nowhere.safetensors
    weights 'neither model.safetensors nor' --model "$gpt" --weights hollow
    weights 'missing config.json beside it' --weights run_a_gpt/latest/../nothing.safetensors
    head -c 1000 a_gpt/model.safetensors >cut.safetensors
    weights 'cut.safetensors.*truncated' --model "$gpt" --weights cut.safetensors
    weights 'text.*no safetensors' --model "$gpt" --weights text
    mkdir sharded
    printf '{"weight_map": {"x": "1.safetensors"}}' >sharded/model.safetensors.index.json
    weights '1.safetensors' --model "$gpt" --weights sharded
}

# A folder whose weights have names that are not read is refused; a variant is read.
other_names() {
    mkdir named && cp a_gpt/{config.json,choir_tokenizer.json} named
    printf x >named/pytorch_model.bin
    weights 'named.*pytorch_model.bin is a pickled program' --model named
    good train "${small[@]}" --model named/config.json text # asks for new weights
    mv named/pytorch_model.bin named/strange
    choir train "${small[@]}" --model named text >out 2>err || fail "$(cat err)"
    local note='note: named has no weights: all parameters start from random values'
    [ "$(grep -c "$note" err)" = 1 ] || fail "it does not say that the model is new: $(cat err)"
    cp a_gpt/model.safetensors named/model.fp16.safetensors
    good train "${small[@]}" --model a_gpt text && mv out want
    started_as want --model named
}

# The ids of a model's weights belong to a tokenizer: characters in its place are refused, unless
# they are asked for.
foreign_tokens() {
    rm -rf mute
    cp -r a_gpt mute && rm mute/choir_tokenizer.json
    bad 1 'text: missing the tokenizer' train "${small[@]}" --model mute text
    bad 1 'text: missing the tokenizer' train "${small[@]}" --model "$gpt" \
        --weights mute/model.safetensors text
    bad 1 'text: missing the tokenizer' eval mute text
    good train "${small[@]}" --model mute/config.json text
    good train "${small[@]}" --model a_gpt text && mv out want
    started_as want --model mute --tokenizer chars
    started_as want --model mute --tokenizer a_gpt
    good eval --json a_gpt text && loss=$(field loss out)
    for tokenizer in chars a_gpt; do
        good eval --json --tokenizer "$tokenizer" mute text
        [ "$(field loss out)" = "$loss" ] || fail "eval with $tokenizer: $(field loss out)"
    done
}

# rewrite FROM TO OLD NEW: a safetensors file with its names changed by re.sub, without the tensors
# whose new name is empty.
rewrite() {
    python3 - "$@" <<'PYTHON' || fail "rewriting $1"
import json, re, struct, sys
source, to, old, new = sys.argv[1:]
data = open(source, "rb").read()
length, = struct.unpack("<Q", data[:8])
header, data = json.loads(data[8:8 + length]), data[8 + length:]
result, body = {}, b""
for name, tensor in header.items():
    changed = re.sub(old, new, name)
    if name == "__metadata__" or not changed:
        continue
    first, end = tensor["data_offsets"]
    tensor["data_offsets"] = [len(body), len(body) + end - first]
    body += data[first:end]
    result[changed] = tensor
assert list(result) != [n for n in header if n != "__metadata__"], "no name matches"
text = json.dumps(result).encode()
open(to, "wb").write(struct.pack("<Q", len(text)) + text + body)
PYTHON
}

# image_network NAME MODEL TENSOR MISNAMED: weights under the names of torchvision. A run at
# rate 0 saves its initial weights; with --init torch these differ from the default's.
image_network() {
    local name=$1 model=$2 tensor=$3 misnamed=$4
    local run=(train --json --batch-size 4 --steps 1 --optimizer sgd --lr 0 --model "$model")
    good "${run[@]}" random && mv out plain || return
    good "${run[@]}" --init torch --save "$name" random && mv out want || return
    [ "$(first_step plain)" != "$(first_step want)" ] || fail "$name: --init torch changed nothing"
    local file=$name/latest/model.safetensors
    grep -aqF "\"$tensor\":" "$file" || fail "$name: no $tensor"
    start_is "$file"
    rewrite "$file" misnamed.safetensors "^$tensor\$" "$misnamed"
    bad 1 "missing tensor '$tensor'.*nearest.*'$misnamed'" \
        "${run[@]}" --weights misnamed.safetensors random
}

# start_is FILE: with these weights, the first step of the caller's `run` equals the one in
# want.
start_is() {
    good "${run[@]}" --weights "$1" random &&
        { [ "$(first_step out)" = "$(first_step want)" ] || fail "another start: $1"; }
}

image_networks() {
    command -v python3 >/dev/null || { echo "no python3 to rename tensors with"; return; }
    image_network alex alexnet:width=2,hidden=8,image=64,classes=10 \
        features.3.weight features.3.wieght
    image_network resnet resnet18:width=4,stages=2,small=1,image=16 \
        layer2.0.downsample.0.weight layer2.0.downsample.O.weight
    local resnet=resnet18:width=4,stages=2,small=1,image=16
    local run=(train --json --batch-size 4 --steps 1 --optimizer sgd --lr 0 --model "$resnet")
    rewrite resnet/latest/model.safetensors old.safetensors '.*num_batches_tracked$' ''
    ! grep -aq num_batches_tracked old.safetensors || fail "the counters are still there"
    start_is old.safetensors
}

check gpt2_files
check bert_files
check writing
check resuming
check repeated
check configs
check notes
check other_heads
check bad_weights
check other_names
check foreign_tokens
check new_heads
check parts_of_a_model
check image_networks
finish
