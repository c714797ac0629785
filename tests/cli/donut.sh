#!/usr/bin/env bash
# Donut on pairs of images and JSON: equal bits on two ranks, continued, evaluated, queried for
# the content of an image; and folders with errors.
corpus=$(cd "$(dirname "$0")/../fuzz/corpus" && pwd) # before lib.sh changes the folder
. "$(dirname "$0")/lib.sh"

"$CHOIR" info --json | grep -q '"images":\["jpeg","png"\]' || skip 'this build reads no images'

# Two kinds of images with different JSON.
make_documents() {
    local i split kind
    for split in train validation; do
        mkdir -p "$1/$split"
        for i in 1 2 3 4 5 6 7 8; do
            kind=gray
            [ $((i % 2)) = 0 ] && kind=cmyk
            tail -c +5 "$corpus/jpeg/$kind" >"$1/$split/$i.jpg"
            printf '{"file_name": "%d.jpg", "ground_truth": {"gt_parse": {"kind": "%s"}}}\n' \
                $i $kind >>"$1/$split/metadata.jsonl"
        done
    done
}
make_documents set
small=donut:height=32,image_width=32,window=4,embed=16,depths=2-2,heads=2-4,layers=2
job=(--model "$small,decoder_heads=2,width=32,hidden=48,context=8" --batch-size 4
    --microbatches 2 --json --lr 5e-3)

same_bits() {
    good train "${job[@]}" --steps 60 --save one set
    mv out single
    good train "${job[@]}" --steps 60 --strategy ddp --nproc 2 set
    same_run single out
}

# Values of different lengths have different numbers of targets. In a pipeline, tables of
# positions, which the model lifts into the step (choir_in), are in any stage.
same_bits_in_stages() {
    cp -r set lengths
    sed -i '1~3s/"kind": "[a-z]*"/"kind": "g"/' lengths/train/metadata.jsonl
    good train "${job[@]}" --steps 5 --no-eval lengths
    mv out single
    for strategy in "pipeline --devices cpu:0-1" "pipeline:schedule=gpipe --devices cpu:0-2" \
        "ddp+pipeline --mesh 2x2" "dp --devices cpu:0-1" "fsdp --nproc 2"; do
        CHOIR_CPU_DEVICES=4 good train "${job[@]}" --steps 5 --no-eval --strategy $strategy lengths
        same_run single out || fail "$strategy"
    done
}

resumes() {
    good train "${job[@]}" --steps 30 --save half set
    good train "${job[@]}" --steps 60 --resume half set
    same_run single out 31
}

tells() {
    good eval --json one set
    good generate one --image set/validation/1.jpg
    grep -qx '<s_kind>gray</s_kind>' out || fail "it tells: $(cat out)"
    good generate one --image set/validation/2.jpg
    grep -qx '<s_kind>cmyk</s_kind>' out || fail "it tells: $(cat out)"
    good generate one --image set/validation/2.jpg --tokens 1
    grep -qx '<s_kind>' out || fail "one token: $(cat out)"
}

is_wrong() {
    bad 1 'image' generate one
    bad 1 'nowhere' generate one --image nowhere
    bad 2 '--image and --top-k: choose one' generate one --image nowhere --top-k 1
    bad 1 'metadata' train "${job[@]}" --steps 1 "$work"
    bad 2 'window' train "${job[@]}" --model donut:window=3 --steps 1 set
    bad 2 'depths' train "${job[@]}" --model donut:depths=2-x --steps 1 set
    cp -r set broken
    printf '{"file_name": "1.jpg"}\n' >>broken/train/metadata.jsonl
    bad 1 'line 9' train "${job[@]}" --steps 1 broken
    rm broken/train/metadata.jsonl
    cp set/train/metadata.jsonl broken/train
    for i in 1 2 3 4 5 6 7 8; do head -c 100 set/train/$i.jpg >broken/train/$i.jpg; done
    bad 1 'broken/train/[1-8].jpg' train "${job[@]}" --steps 9 broken
}

check same_bits
check resumes
check same_bits_in_stages
check tells
check is_wrong
finish
