#!/usr/bin/env bash
# A run saved on a GPU continues elsewhere, and the other way round. Evaluation and generation
# run on CHOIR_DEVICE; comparisons and ranks get GPUs.
. "$(dirname "$0")/../cli/lib.sh"

export CHOIR_CUDA_DEVICES=2
make_text text 200
job=(train --json --microbatches 4 --batch-size 8 --no-eval --model "$gpt")

# about A B: equal to five digits, because kinds of devices differ in the last bits.
about() {
    awk -v a="$1" -v b="$2" \
        'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d < 1e-5 * a) }' ||
        fail "$1 and $2"
}

checkpoints() {
    good "${job[@]}" --steps 6 --devices cuda:0 text && mv out whole
    good "${job[@]}" --steps 3 --strategy fsdp --nproc 2 --devices cuda:0-1 --save gpu text
    good "${job[@]}" --steps 6 --devices cuda:0 --resume gpu/step-* text && mv out on_a_gpu
    same_run whole on_a_gpu 4
    good "${job[@]}" --steps 6 --devices cpu:0 --resume gpu/step-* text &&
        about "$(field final_loss whole)" "$(field final_loss out)"
    good "${job[@]}" --steps 3 --devices cpu:0 --save cpu text
    good "${job[@]}" --steps 6 --devices cuda:0 --resume cpu text &&
        about "$(field final_loss whole)" "$(field final_loss out)"
}

# on DEVICE OPTION...
on() { CHOIR_DEVICE=$1 good "${@:2}"; }

saved_models() {
    good train --quiet --no-eval --steps 300 --lr 1e-2 --devices cpu:0 --model "$gpt" \
        --save learnt text
    on cpu eval --json --eval-batches 2 learnt text && mv out cpu_eval
    on cuda eval --json --eval-batches 2 learnt text && mv out gpu_eval
    about "$(field loss cpu_eval)" "$(field loss gpu_eval)"
    on cpu generate --tokens 8 --temperature 0 --prompt the learnt && mv out said
    on cuda generate --tokens 8 --temperature 0 --prompt the learnt
    grep -q 'the.*[a-z]' said && cmp -s said out ||
        fail "generated '$(cat out)', on a CPU '$(cat said)'"
}

# Both kinds of devices give words the same labels.
predictions() {
    make_tokenizer tokenizer.json a b c d
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        echo '{"tokens":["a","b","c"],"tags":["x","y","x"]}'
        echo '{"tokens":["b","d"],"tags":["y","z"]}'
    done >words.jsonl
    good train --quiet --steps 40 --lr 1e-2 --batch-size 6 --devices cpu:0 --save tags \
        --tokenizer tokenizer.json words.jsonl \
        --model bert:layers=1,heads=2,width=16,context=8,classes=3,words=1
    good predict --device cpu:0 tags 'a b c' 'b d' && cut -c-3 out >labels
    [ "$(tr '\t\n' '=;' <labels)" = 'a=x;b=y;c=x;;b=y;d=z;;' ] || fail "on a CPU: $(cat out)"
    good predict --device cuda:0 tags 'a b c' 'b d'
    [ "$(cut -c-3 out)" = "$(cat labels)" ] || fail "on a GPU: $(cat out)"
}

comparison() {
    good compare --model "$gpt" --devices cuda:0-1 --steps 2 --repeats 1 --batch-size 8 \
        --microbatches 4 --strategies single,dp,ddp,fsdp,mp,pipeline,tp --json text
    [ "$(grep -c '"device":"cuda:0"' out)" -ge 7 ] || fail "compared: $(cat out)"
}

ranks() {
    OMP_NUM_THREADS=1 good run --nproc-per-node gpu "$CHOIR" "${job[@]}" --steps 2 \
        --strategy ddp text
    grep -q '"world":2,.*"device":"cuda:0".*"device":"cuda:1"' out || fail "ranks: $(cat out)"
}

threads() {
    bad 1 'a GPU has no number of threads to set; --devices cpu:0 takes a processor' \
        train --threads 2 --steps 1 --quiet --model toy random
}

class_of_bits() {
    bad 2 '--bits chain: GPUs compute in the class cuda' \
        train --devices cuda:0 --bits chain --steps 1 random
}

check checkpoints
check saved_models
check predictions
check comparison
check ranks
check threads
check class_of_bits
finish
