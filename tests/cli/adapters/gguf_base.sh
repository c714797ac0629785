#!/usr/bin/env bash
# --model FILE.gguf: frozen weights stay in the blocks that the file has them in, with the bits of
# their values in f32, under every strategy, through checkpoints and exports, in as little memory; a
# file that cannot be is one sentence.
golden=$(cd "$(dirname "$0")/../../golden/tokenizers" && pwd) # before lib.sh changes the folder
here=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=4
make_text text 300
lora=r=3,dropout=0.1,targets=all-linear
types=(q8_0 q4_0 q4_K_M)

# train FILE ARG...
train() {
    local file=$1
    shift
    good train --json --microbatches 2 --batch-size 4 --steps 3 --no-eval text "$@" &&
        sed -i '/"event":"note"/d' out && mv out "$file"
}

# same AS ARG...: the job has the bits of the file AS.
same() {
    local as=$1
    shift
    train other "$@" && same_run "$as" other || fail "$*"
}

# A model whose file has rows of heads in another order than its folder; each file's values as a
# folder of f32.
make_files() {
    good train --quiet --tokenizer "$golden/gpt2" --steps 2 --no-eval --batch-size 4 --lr 0.02 \
        --model llama:layers=3,heads=4,kv_heads=2,width=256,hidden=512,context=16 --save made text
    for type in "${types[@]}" f16; do
        good export made "$type" --format gguf --dtype "$type" || return
        good checkpoint convert "$type/model.gguf" "as-$type" || return
    done
}

types_have_their_values() {
    for type in "${types[@]}" f16; do
        train held --model "$type/model.gguf" --lora "$lora"
        same held --model "as-$type" --base f32 --lora "$lora"
        same held --model "$type/model.gguf" --base f32 --lora "$lora"
    done
    train held --model q4_0/model.gguf --lora "$lora" --base q4_0
    train held --model q4_0/model.gguf --lora "$lora" --amp bf16
    train whole --model as-q4_0 --lora "$lora" --amp bf16 --base f32
    [ "$(steps_of held)" = "$(steps_of whole)" ] || fail 'other losses under --amp bf16'
    train held --model q4_K_M/model.gguf --freeze '*_proj.weight'
    same held --model as-q4_K_M --freeze '*_proj.weight'
    train held --model q4_K_M/model.gguf # all of it is trained
    same held --model as-q4_K_M
    train held --weights q4_K_M/model.gguf --lora "$lora"
    same held --model as-q4_K_M --lora "$lora"
}

strategies_agree() {
    local job=(--model q4_K_M/model.gguf --lora "$lora")
    train one "${job[@]}" || return
    same one "${job[@]}" --strategy ddp --nproc 2
    for stage in 1 3; do
        same one "${job[@]}" --strategy "fsdp:stage=$stage" --nproc 2
    done
    same one "${job[@]}" --strategy pipeline --nproc 2
    job[1]=q8_0/model.gguf
    train sliced "${job[@]}" --slices 2
    same sliced "${job[@]}" --strategy tp --nproc 2
    same sliced --model as-q8_0 --lora "$lora" --base f32 --slices 2
}

# The types are in the checkpoint: the file may be gone.
goes_on() {
    mkdir away
    cp q4_K_M/model.gguf away
    train whole --model away/model.gguf --lora "$lora" --save saved --save-every 2 --save-keep 2
    good train --json --resume saved/step-00000002 && mv out rest
    same_run whole rest 3
    rm -r away
    good eval --json saved text && cp out loss
    good checkpoint convert saved/latest fewer --shards 3
    good eval --json fewer text && cmp -s out loss || fail 'converted: other losses'
    good export saved merged --format hf
    good eval --json merged text
    [ "$(field loss out | cut -c1-7)" = "$(field loss loss | cut -c1-7)" ] ||
        fail 'merged otherwise'
    good export saved adapter --format peft
    good checkpoint verify saved
    good eval --json q4_K_M/model.gguf text && mv out loss
    good eval --json as-q4_K_M text && cmp -s out loss || fail 'eval: other losses'
    good generate saved --prompt a --tokens 2 --base f32
    bad 1 'saved was trained beside the blocks of a GGUF file: .* held as q4_0; leave out --base' \
        generate saved --prompt a --base q4_0
    # Numbers of 16 bits stay those of the file, beside products in others.
    train whole --model f16/model.gguf --lora "$lora" --amp bf16 --save halves --save-every 2 \
        --save-keep 2
    good train --json --resume halves/step-00000002 && mv out rest
    same_run whole rest 3
    good generate q4_K_M/model.gguf --prompt 'the sea' --json --tokens 6 && mv out here
    good generate as-q4_K_M --prompt 'the sea' --json --tokens 6 && cmp -s out here ||
        fail 'another text'
}

# Types that Choir reads and does not write: q4_1 with the values of q4_0, but -0.
only_read() {
    local job=(--model q4_1.gguf --lora "$lora") count
    count=$(python3 "$here/as_q4_1.py" q4_0/model.gguf q4_1.gguf)
    [ "${count:-0}" -ge 8 ] || fail "$count tensors of q4_1"
    train known --model q4_0/model.gguf --lora "$lora"
    train one "${job[@]}" --save read --save-every 2 --save-keep 2 || return
    [ "$(steps_of known)" = "$(steps_of one)" ] || fail 'q4_1: other losses'
    for strategy in ddp fsdp:stage=3 pipeline; do
        same one "${job[@]}" --strategy "$strategy" --nproc 2
    done
    train sliced "${job[@]}" --slices 2
    same sliced "${job[@]}" --strategy tp --nproc 2
    good train --json --resume read/step-00000002 && mv out rest
    same_run one rest 3
    good eval --json read text
    good generate read --prompt a --tokens 2
}

# bytes ARG...: the most that the device held.
bytes() {
    good train --json --strategy single --batch-size 1 --steps 2 --no-eval --lora r=2 \
        --recompute --tokenizer "$golden/gpt2" "$@" text &&
        sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' out | tail -1
}

# 4 layers of 2,621,440 weights each, with 32, 8.5 and 4.5 bits.
saves_memory() {
    local all few saved
    good train --quiet --tokenizer "$golden/gpt2" --steps 1 --no-eval --batch-size 1 \
        --model llama:layers=4,heads=4,kv_heads=4,width=512,hidden=1024,context=8 --save wide text
    all=$(bytes --model wide/latest)
    for pair in q8_0:8.5 q4_0:4.5; do
        good export wide "wide-${pair%:*}" --format gguf --dtype "${pair%:*}"
        few=$(bytes --model "wide-${pair%:*}/model.gguf")
        saved=$(awk "BEGIN { print int(4 * 2621440 * (32 * 0.98 - ${pair#*:} * 1.2) / 8) }")
        [ $((all - few)) -ge "$saved" ] || fail "${pair%:*}: $few bytes beside $all"
    done
}

# patched FILE FROM TO: the file with one text in place of another of that length.
patched() {
    LC_ALL=C sed "s/$2/$3/" "$1"
}

is_refused() {
    local job=(train --quiet --steps 1 --lora r=2 text --model)
    bad 1 'No such file' "${job[@]}" nowhere.gguf
    for bytes in 10 100 5000 60000; do
        head -c $bytes q8_0/model.gguf >cut.gguf
        bad 1 'cut.gguf: .*(cut short|too short)' "${job[@]}" cut.gguf
    done
    patched q8_0/model.gguf blk.1.attn_q.weight blk.1.attn_z.weight >other.gguf
    bad 1 "other.gguf: a tensor has no place in such a model: 'blk.1.attn_z.weight'" \
        "${job[@]}" other.gguf
    for layer in 0 1; do # one layer has one name
        perl -0777 -pe "s/\x16(\\0{7}blk\\.)($layer\\.attn_norm\\.weight)/\\x17\${1}0\$2/s" \
            q8_0/model.gguf >other.gguf
        bad 1 "other.gguf: a tensor has no place in such a model: 'blk.0$layer.attn_norm.weight'" \
            "${job[@]}" other.gguf
    done
    patched q8_0/model.gguf llama.block_count llama.block_kount >other.gguf
    bad 1 "other.gguf: missing key 'llama.block_count'" "${job[@]}" other.gguf
    perl -0777 -pe 's/(rope\.freq_base\x06\0{3}).{4}/$1\0\0\x80\x7f/s' q8_0/model.gguf >other.gguf
    bad 1 "other.gguf: expected a finite number under the key 'rope.freq_base'" \
        "${job[@]}" other.gguf
    patched q8_0/model.gguf tokenizer.ggml.model tokenizer.ggml.xodel >mute.gguf
    bad 1 'missing the tokenizer that the model.s weights belong to: name it by --tokenizer' \
        "${job[@]}" mute.gguf
    good train --quiet --steps 1 --lora r=2 --no-eval text --model mute.gguf \
        --tokenizer "$golden/gpt2"
    bad 1 '2 slices of a row of .* are not whole blocks of q4_K' "${job[@]}" \
        q4_K_M/model.gguf --strategy tp --nproc 2
}

# gpt2 multiplies by matrices that GGUF files have transposed.
is_said() {
    good train --quiet --tokenizer "$golden/gpt2" --steps 1 --no-eval --batch-size 1 \
        --model gpt2:layers=1,heads=2,width=32,context=8 --save turned text
    good export turned turned-gguf --format gguf --dtype q8_0
    local job=(train --steps 1 --no-eval --quiet --lora r=2 text --model turned-gguf/model.gguf)
    noted 'turned-gguf/model.gguf has matrices transposed, so frozen ones are held as f32' \
        "${job[@]}"
    choir "${job[@]}" --base q8_0 >out 2>err
    ! grep -q transposed err || fail "a note beside --base: $(cat err)"
}

check make_files
check types_have_their_values
check strategies_agree
check goes_on
check only_read
check saves_memory
check is_said
check is_refused
finish
