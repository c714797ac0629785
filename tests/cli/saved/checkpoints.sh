#!/usr/bin/env bash
# Checkpoints fit any world size: saved by one strategy and continued by another on a different
# number of ranks, they give the bits of a run that never stopped. And choir checkpoint, which
# lists, checks and converts them.
. "$(dirname "$0")/../lib.sh"
export CHOIR_CPU_DEVICES=8

make_text text 300
one=(--batch-size 24 --microbatches 12 --eval-batches 1)

job() {
    local file=$1
    shift
    good train --json "${one[@]}" --model "$gpt,dropout=0.1" "$@" text && mv out "$file"
}

# relay "STRATEGY RANKS"...: each entry runs four steps of one job.
relay() {
    local steps=0 leg strategy ranks resume=()
    rm -rf saved
    job whole --steps $((4 * $#)) --clip 1 || return
    for leg in "$@"; do
        read -r strategy ranks <<<"$leg"
        steps=$((steps + 4))
        job rest --steps $steps --strategy "$strategy" --nproc "$ranks" --clip 1 --save saved \
            --save-every 3 "${resume[@]}" || return
        resume=(--resume saved)
    done
    same_run whole rest $((steps - 3))
    good checkpoint verify saved
    local records='job.json|metrics.jsonl|events.jsonl|stderr.log'
    [ "$(ls -A saved | grep -cvxE "$records")" -le 3 ] || fail "left in saved: $(ls -A saved)"
}

# Each rank writes its files, with an index; an existing step is replaced.
sharded() {
    rm -rf saved
    job run --steps 3 --strategy fsdp --nproc 3 --save saved
    [ "$(ls saved/latest | tr '\n' ' ')" = "choir_tokenizer.json config.json job.json \
model-00001-of-00003.safetensors \
model-00002-of-00003.safetensors model-00003-of-00003.safetensors model.safetensors.index.json \
optimizer-00001-of-00003.safetensors optimizer-00002-of-00003.safetensors \
optimizer-00003-of-00003.safetensors optimizer.safetensors.index.json \
state.json " ] || fail "files: $(ls saved/latest)"
    cp -a saved sharded
    good eval --json sharded text
    [ "$(field loss out)" != '' ] || fail "eval of a sharded checkpoint: $(cat out)"
    good generate sharded --tokens 5
}

inspects() {
    good checkpoint inspect sharded
    grep -q 'saved by  *fsdp on 3 ranks' out || fail "$(cat out)"
    grep -q 'wte.weight .*in 3 parts' out || fail "$(cat out)"
    good checkpoint inspect --json sharded/latest
    has out '"event":"checkpoint".*"step":3,.*"strategy":"fsdp","world":3'
    local file sum
    file=$(sed -n 's/.*"event":"file","name":"\(model-00002[^"]*\)".*/\1/p' out)
    sum=$(sed -n "s/.*\"name\":\"$file\".*\"sha256\":\"\([0-9a-f]*\)\".*/\1/p" out)
    [ "$(sha256sum <"sharded/latest/$file")" = "$sum  -" ] || fail "$sum is not that of $file"
}

# converts: to one file, to several, and back; loading any of them gives the same values.
converts() {
    rm -rf one two again weights.safetensors
    good checkpoint convert sharded one
    good checkpoint convert --shards 2 sharded two
    good checkpoint convert two/ again
    good checkpoint convert two weights.safetensors
    [ -f one/model.safetensors ] && [ -f two/model-00002-of-00002.safetensors ] ||
        fail "files: $(ls one two)"
    cmp one/model.safetensors again/model.safetensors &&
        cmp one/optimizer.safetensors again/optimizer.safetensors &&
        cmp one/model.safetensors weights.safetensors || fail "other bytes by another way"
    for form in one two again; do
        good checkpoint verify $form
        job "$form.run" --steps 5 --resume $form
        same_run one.run $form.run 4
    done
    job sharded.run --steps 5 --resume sharded/step-* --strategy pipeline --nproc 2
    same_run one.run sharded.run 4
    bad 1 'one is there already' checkpoint convert two one
    bad 1 'name a folder' checkpoint convert --shards 2 two two.safetensors
    [ "$(ls -A | grep -c new)" -eq 0 ] || fail "left over: $(ls -A)"
}

# Weights take half the bytes and keep nearly the same values; the optimizer's state is
# unchanged.
converts_types() {
    rm -rf half
    good checkpoint convert --dtype bf16 sharded half
    cmp half/optimizer.safetensors one/optimizer.safetensors || fail "other moments"
    good checkpoint inspect --json half
    [ "$(grep -c '"of":"model".*"dtype":"bf16"' out)" -gt 10 ] || fail "$(cat out)"
    grep -q '"torch_dtype": "bfloat16"' half/config.json || fail "$(cat half/config.json)"
    good eval --json half text
    bad 2 'f32, bf16, f16' checkpoint convert --dtype f64 sharded other
    bad 2 '1 to 99999' checkpoint convert --shards 0 sharded other
    bad 2 "verify takes no option '--shards'" checkpoint verify --shards 2 sharded
    bad 2 'missing CHECKPOINT' checkpoint inspect
    bad 2 "unknown action 'look'" checkpoint look sharded
    bad 2 "unknown action 'inspct' \(did you mean 'inspect'\?\)" checkpoint inspct sharded
    bad 2 "unknown value 'fp61' \(did you mean 'fp16'\?\)" checkpoint convert --dtype fp61 sharded x
}

# damaged PATTERN: every command that reads `broken` refuses it, and names the file.
damaged() {
    bad 1 "$1" checkpoint convert broken other
    bad 1 "$1" eval broken text
    bad 1 "$1" train --json "${one[@]}" --steps 9 --resume broken text
    bad 1 "$1" train --json "${one[@]}" --steps 9 --resume broken --strategy ddp --nproc 3 text
    choir checkpoint verify broken >out 2>err && fail "verify of $1"
    grep -q "$1" err || fail "verify says: $(cat err)"
    [ ! -e other ] || fail "something was made of a broken checkpoint"
}

# damage NAME COMMAND: runs the command on a copy of a good checkpoint, where $f is the file.
damage() {
    rm -rf broken
    cp -a sharded broken
    f=broken/latest/$1
    eval "$2"
    damaged "$1"
}

damaged_shards() {
    local kind
    for kind in model optimizer; do
        damage $kind-00002-of-00003.safetensors 'rm $f'
        damage $kind-00002-of-00003.safetensors 'truncate -s -4 $f'
        damage $kind-00003-of-00003.safetensors \
            'printf "\\xff" | dd of=$f bs=1 seek=3000 conv=notrunc status=none'
        damage $kind-00002-of-00003.safetensors 'cp ${f/00002/00001} $f'
    done
    # A part from another step of the same run has the right size; all checksums are right but
    # its own.
    rm -rf saved
    job run --steps 4 --strategy fsdp --nproc 3 --save saved
    damage model-00003-of-00003.safetensors 'cp saved/latest/$1 $f'
}

# Training starts from parts of tensors as from whole ones; a part that is missing is an error.
parts_are_joined() {
    good checkpoint convert sharded joined.safetensors
    good train --json "${one[@]}" --steps 2 --weights sharded/latest --model "$gpt" text &&
        mv out of_parts
    good train --json "${one[@]}" --steps 2 --weights joined.safetensors --model "$gpt" \
        --tokenizer sharded/latest text && mv out of_whole
    same_run of_whole of_parts
    mkdir lacking && cp sharded/latest/model* sharded/latest/config.json lacking
    rm "$(ls lacking/model-*.safetensors | tail -n 1)"
    bad 1 'lacking' train --json "${one[@]}" --model lacking text
}

# Weights from other programs: whole tensors in several files, with an index.
published() {
    rm -rf plain
    mkdir plain
    cp two/model-* two/model.safetensors.index.json two/config.json plain
    good checkpoint inspect plain
    good checkpoint convert plain plain.safetensors
    cmp plain.safetensors weights.safetensors || fail "other bytes"
    rm plain/model-00002-of-00002.safetensors
    bad 1 'plain' checkpoint convert plain/nothing other
}

check relay 'ddp 3' 'single 1' 'pipeline 2'
check relay 'fsdp 4' 'single 1' 'ddp 3'
check relay 'pipeline 3' 'fsdp:stage=1 2' 'fsdp:stage=2 4' 'fsdp 3'
check sharded
check inspects
check converts
check converts_types
check damaged_shards
check parts_are_joined
check published
finish
