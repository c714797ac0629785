#!/usr/bin/env bash
# Every error ends soon in one clear line, with the status that tells its kind: 2 for wrong
# usage, 1 for the rest.
. "$(dirname "$0")/../lib.sh"
LIMIT=20

make_text text 200
make_idx images train 40
make_idx images t10k 20
small=(--batch-size 12 --steps 4 --json)
lm=(train "${small[@]}" --model "$gpt")
toy=(train "${small[@]}" --model toy random)

# --- data -------------------------------------------------------------------------------------

texts() {
    printf 'short' >short
    : >empty
    bad 1 'can be read once.* expected a file or a folder' "${lm[@]}" <(cat text)
    bad 1 nowhere "${lm[@]}" nowhere
    bad 1 empty "${lm[@]}" empty
    bad 1 images "${lm[@]}" images
    bad 1 short "${lm[@]}" short
    bad 1 nowhere train "${small[@]}" nowhere/text
    bad 1 nowhere train "${small[@]}" --strategy ddp --nproc 2 nowhere
    bad 1 '24' train --json --batch-size 24000 --model "$gpt" text
    bad 1 'toy|random' train "${small[@]}" --model toy text
    bad 1 'random' train "${small[@]}" --model "$lstm,out=4" text
    bad 1 'vocab=5' train "${small[@]}" --model "$lstm,vocab=5" text
    bad 1 'images' train "${small[@]}" --model "$lstm" images
    bad 1 'cnn|text' train "${small[@]}" --model cnn text
}

# Files of records, and what is none: compressed bytes would be learned like letters.
records() {
    printf 'text,text\na,b\n' >twice.csv
    printf 'text,id\n' >head.csv
    echo '{"text":"a line of records, which is compressed"}' | gzip >lines.jsonl.gz
    gzip -c text >text.gz
    bad 1 "twice.csv, line 1: expected columns with different names, got 'text' twice" \
        train "${small[@]}" --bytes twice.csv
    bad 1 'head.csv: the training split is empty' train "${small[@]}" --bytes head.csv
    bad 1 "compressed by gzip: .* 'zcat lines.jsonl.gz . choir train -'" \
        train "${small[@]}" --bytes lines.jsonl.gz
    bad 1 'text.gz is compressed by gzip' "${lm[@]}" text.gz
}

# A folder of documents is no folder of images: the default model is one for texts.
documents() {
    mkdir -p of_texts
    for ((i = 0; i < 200; i++)); do echo "{\"text\":\"document number $i of them\"}"; done \
        >of_texts/train.jsonl
    head -50 of_texts/train.jsonl >of_texts/validation.jsonl
    good train --json --bytes --steps 1 of_texts
    has out '"model":"gpt2:layers=4'
}

# idx NAME CHANGE PATTERN: a copy of the images, changed in $broken, is refused.
idx() {
    broken=broken_$1
    cp -r images "$broken"
    eval "$2"
    bad 1 "$3" train "${small[@]}" --model cnn:width=2 "$broken"
    bad 1 "$3" train "${small[@]}" --model cnn:width=2 --strategy ddp --nproc 2 "$broken"
}

# over FILE OFFSET N: overwrites four bytes of a file with N.
over() {
    printf '%b' "$(be32 "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

idx_folders() {
    idx truncated 'truncate -s 1000 $broken/train-images-idx3-ubyte' images
    idx headless 'truncate -s 9 $broken/train-images-idx3-ubyte' images
    idx empty ': >$broken/train-labels-idx1-ubyte' labels
    idx liar 'over $broken/train-images-idx3-ubyte 4 4000' images
    idx giant 'over $broken/train-images-idx3-ubyte 4 2147483647' images
    idx wide 'over $broken/train-images-idx3-ubyte 8 4294967295' images
    idx magic 'over $broken/train-images-idx3-ubyte 0 305419896' images
    idx labels 'make_idx other train 30; cp other/train-labels* $broken' '30|40'
    idx missing 'rm $broken/t*-labels-*' 'labels|IDX'
    idx packed 'gzip $broken/train-images*; truncate -s 200 $broken/*.gz' 'gz'
    mkdir nothing
    bad 1 nothing train "${small[@]}" --model cnn:width=2 nothing
    bad 1 'mlp' train "${small[@]}" --model mlp:in=100 images
}

# --- options ----------------------------------------------------------------------------------

names() {
    bad 2 'frob' frob
    bad 2 'command'
    bad 2 'frob' train --frob
    bad 2 "'-xy'" train --json -xy
    bad 2 'steps' train random --steps
    bad 2 'frob' train "${small[@]}" --strategy frob random
    bad 2 'frob' train "${small[@]}" --strategy ddp:frob=1 random
    bad 2 "unknown hook of strategy ddp 'f8': choose one of bf16, f16, powersgd" \
        train "${small[@]}" --strategy ddp:hook=f8 random
    bad 2 'rank needs hook=powersgd' train "${small[@]}" --strategy ddp:rank=2 random
    bad 2 'frob' train "${small[@]}" --strategy single:frob=1 random
    bad 2 'two' train "${small[@]}" random two
    bad 2 'frob' train "${small[@]}" --model frob random
    bad 2 'frob' train "${small[@]}" --model toy:frob=1 random
    bad 2 'hidden' train "${small[@]}" --model toy:hidden random
    bad 2 'hidden' train "${small[@]}" --model toy:hidden=many random
    bad 2 'hidden' train "${small[@]}" --model toy:hidden=0 random
    bad 2 'heads' train "${small[@]}" --model gpt2:layers=1,heads=3,width=16,context=16 text
    bad 2 'kv_heads' train "${small[@]}" --model "$llama,kv_heads=3" text
    bad 2 'even' train "${small[@]}" --model "$llama,head_dim=5" text
    bad 2 "unknown rope 'frob'" train "${small[@]}" --model "$llama,rope=frob" text
    bad 2 "cell 'frob'" train "${small[@]}" --model lstm:cell=frob random
    bad 2 'hidden=-4' train "${small[@]}" --model lstm:hidden=-4 random
    bad 2 'layers=1' train "${small[@]}" --model lstm:layers=1,dropout=0.5 random
    bad 2 'out=4.*vocab=3' train "${small[@]}" --model lstm:out=4,vocab=3 random
    bad 2 'frob' "${toy[@]}" --optimizer frob
    bad 2 'frob' "${toy[@]}" --optimizer adamw:frob=1
    bad 2 'beta1' "${toy[@]}" --optimizer adamw:beta1=2
    bad 2 'frob' "${toy[@]}" --schedule frob
    bad 2 'warmup' "${toy[@]}" --schedule cosine:warmup=-1
    bad 2 'frob' "${toy[@]}" --backend frob
    bad 2 'checkpoint|CHECKPOINT' eval
    bad 2 'frob' eval --frob nowhere
    bad 2 'batch-size' eval --batch-size=0 nowhere
    bad 2 'CHECKPOINT' generate
    bad 2 'temperature' generate --temperature hot nowhere
    bad 2 'frob' bench frob
    bad 2 'frob' info frob
}

values() {
    for option in --batch-size --microbatches --steps --epochs --save-every --log-every \
        --threads --eval-every --nproc; do
        for value in 0 -1 x 1.5 99999999999999999999 ''; do
            bad 2 "$option" "${toy[@]}" --strategy ddp $option "$value"
        done
    done
    for option in --lr --weight-decay --clip --timeout; do
        for value in -1 x nan inf 1e300 ''; do
            bad 2 "$option" "${toy[@]}" $option "$value"
        done
    done
    for value in -1 x 5Q 99999999999G ''; do
        bad 2 'mem-cap' "${toy[@]}" --mem-cap "$value"
    done
    bad 2 'seed' "${toy[@]}" --seed -1
    bad 2 '65' "${toy[@]}" --strategy ddp --nproc 65
    for value in '' cpu cpu: cpu:x cpu:3-1 cpu:0- cpu:0-9223372036854775807 averylongname:0; do
        bad 2 'devices' "${toy[@]}" --devices "$value"
    done
    bad 1 'tpu' "${toy[@]}" --devices tpu:0
    bad 1 'cpu:9999' "${toy[@]}" --devices cpu:9999
    bad 1 'threads' "${toy[@]}" --threads 1000000
}

sizes() {
    bad 2 'nproc 2.*ddp' "${toy[@]}" --nproc 2 --strategy single
    bad 1 '12.*5' "${toy[@]}" --microbatches 5
    bad 1 '12.*24' "${toy[@]}" --microbatches 24
    bad 1 '2 .*3 ranks' train --json --batch-size 2 --strategy ddp --nproc 3 random
    bad 1 '2 .*3 ranks' "${toy[@]}" --microbatches 2 --strategy ddp --nproc 3
    bad 1 'epochs' train --json --batch-size 1 --epochs 2251799813685247 random
}

# Strategies of one process on several devices.
strategies() {
    export CHOIR_CPU_DEVICES=4
    bad 2 "unknown schedule 'frob'" "${toy[@]}" --strategy pipeline:schedule=frob
    bad 2 'chunks=0' "${toy[@]}" --strategy pipeline:chunks=0
    bad 2 'frob' "${toy[@]}" --strategy mp:frob=1
    bad 2 'nproc 2.*dp.*ddp' "${toy[@]}" --strategy dp --nproc 2
    bad 2 'dim=1' "${toy[@]}" --strategy dp:dim=1
    bad 2 'cpu:77.*cpu:3' "${toy[@]}" --strategy dp:output_device=cpu:77
    bad 2 'cpu:1 is named twice' "${toy[@]}" --strategy mp --devices cpu:1,cpu:0-1
    bad 1 'cpu:77.*cpu:3' "${toy[@]}" --strategy mp --devices cpu:0,cpu:77
    bad 1 '12.*5' "${toy[@]}" --strategy pipeline --microbatches 5
    failed '4 stages .* 2 layers' "${toy[@]}" --strategy mp
    failed "'nowhere'" "${toy[@]}" --strategy mp:cuts=nowhere --devices cpu:0-1
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 \
        bad 2 'got 2 that.*ddp' "${toy[@]}" --strategy dp-balanced
    unset CHOIR_CPU_DEVICES
}

# --- while it runs ----------------------------------------------------------------------------

# failed PATTERN ARG...: like bad, but steps have been reported before, all of them finite.
failed() {
    local pattern=$1
    shift
    choir "$@" >out 2>err </dev/null
    local status=$?
    [ $status -eq 1 ] || fail "status $status, not 1, of: choir $*"
    is_one_line "$pattern" || fail "standard error of: choir $*: '$(cat err)', not '$pattern'"
    ! grep -qiE 'nan|inf[^o]|summary' out || fail "standard output of: choir $*: $(cat out)"
}

loss_of_nan() {
    local args=(--batch-size 12 --steps 200 --json --optimizer sgd --lr 1e12 --model)
    failed 'loss is .*step [0-9]+.*lr' train "${args[@]}" toy random
    failed 'loss is .*step [0-9]+.*lr' train "${args[@]}" toy --strategy ddp --nproc 3 random
}

output_that_is_lost() {
    for how in single 'ddp --nproc 2'; do
        # shellcheck disable=SC2086
        choir train "${small[@]}" --strategy $how random >/dev/full 2>err
        local status=$?
        [ $status -eq 1 ] && is_one_line 'standard output' ||
            fail "status $status of $how with a full standard output: $(cat err)"
    done
}

check texts
check records
check documents
check idx_folders
check names
check values
check sizes
check strategies
check loss_of_nan
check output_that_is_lost
finish
