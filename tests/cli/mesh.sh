#!/usr/bin/env bash
# Compositions on a mesh: the bits of one device in losses, evaluation, weights and after a
# resume; and the errors for wrong meshes.
. "$(dirname "$0")/lib.sh"

make_text text 300
export CHOIR_CPU_DEVICES=8

# on MESH STRATEGY ARG...: the run equals that of `single`. A sample makes a third of them.
on() {
    local mesh=$1 strategy=$2
    shift 2
    sampled 3 || return
    good train "${args[@]}" --strategy "$strategy" --mesh "$mesh" "$@" && mv out many &&
        same_run single many || { fail "$strategy on $mesh: ${args[*]}"; return; }
    [ "$(field eval_loss single)" = "$(field eval_loss many)" ] ||
        fail "eval_loss of $strategy on $mesh: ${args[*]}"
    [ "$(field world many)" = $((${mesh//x/*})) ] || fail "world of $mesh: $(field world many)"
}

language() {
    args=(--json --microbatches 6 --batch-size 24 --steps 6 --clip 1 --eval-every 3)
    args+=(--model gpt2:layers=2,heads=2,width=16,context=16,dropout=0.1 text)
    good train "${args[@]}" && mv out single
    on 2x2 ddp+pipeline
    on 2x2 ddp:bucket_cap_mb=0.01+pipeline:schedule=1f1b
    on 2x3 ddp+pipeline:schedule=gpipe
    on 3x2 ddp+pipeline:schedule=interleaved
    on 2x2 pipeline+ddp
    on 2x2 ddp+mp
    on 1x2 ddp+pipeline
    on 2x1 ddp+pipeline
    on 2x2 fsdp+pipeline
    on 3x2 fsdp:stage=2+pipeline:schedule=1f1b
    on 2x3 fsdp:stage=1+pipeline:schedule=gpipe
    on 2x2 fsdp+pipeline --nproc 2
    on 2x2 fsdp+pipeline --offload params
    on 2x2 fsdp+pipeline:schedule=interleaved --nproc 2 --offload params:.
    on 2x2 fsdp:gather=1+pipeline:schedule=1f1b
    on 2x2 ddp+pipeline --nproc 2
    "$CHOIR" run -n 4 "$CHOIR" train "${args[@]}" --strategy ddp+pipeline --mesh 2x2 >out 2>err &&
        sed -i 's/^\[rank[0-9]*\]: //' out && mv out many && same_run single many ||
        fail "under choir run: $(cat err)"
}

# What attention sends is not its result: that is stored in 16 bits, from which the projection and
# its adapter read.
adapted_chunks() {
    args=(--json --microbatches 2 --batch-size 4 --steps 4 --no-eval --chunks 4 --seed 2 --amp bf16)
    args+=(--model "$llama,kv_heads=2,layers=2" --lora r=8,targets=q_proj/k_proj/v_proj/o_proj text)
    good train "${args[@]}" && mv out single
    good train "${args[@]}" --strategy cp --nproc 2 && same_run single out
    good train "${args[@]}" --strategy fsdp+cp --mesh 2x2 && same_run single out
}

# Replicas with two micro-batches and with one compute the weights' gradients at other places of
# their schedules. Their memory came in the middle of them, and the ranks waited in a circle.
unlike_schedules() {
    args=(--json --microbatches 3 --batch-size 6 --steps 4 --no-eval --timeout 20)
    args+=(--model mlp:in=784,hidden=16,layers=1 random)
    good train "${args[@]}" && mv out single
    good train "${args[@]}" --strategy ddp+pipeline --mesh 2x2 && same_run single out
    good train "${args[@]}" --strategy fsdp+pipeline --mesh 2x2 && same_run single out
}

# Micro-batches have different numbers of masked words.
masked() {
    args=(--json --microbatches 6 --batch-size 24 --steps 6 --clip 1 --eval-every 3)
    args+=(--model "$bert,dropout=0.1" text)
    good train "${args[@]}" && mv out single
    on 2x2 ddp+pipeline
    on 2x2 pipeline+ddp
    on 2x2 fsdp+pipeline --nproc 2
    on 2x3 fsdp:stage=2+pipeline:schedule=1f1b
    local table=bert.embeddings.word_embeddings at=bert.encoder.layer # two stages of a rank have it
    good train "${args[@]}" --mesh 2x2 --strategy \
        "fsdp+pipeline:schedule=interleaved,cuts=$table/$at.0/$at.1" && mv out many &&
        same_run single many || fail "a table in stages 1 and 3"
}

tokens=tp:sequence_parallel=1 # the ranks share the tokens, too

# Ranks with slices of the weights, within or across the stages, and replicas of them.
sliced() {
    local model
    args=(--json --microbatches 4 --batch-size 16 --steps 5 --clip 1 --eval-every 3 --slices 4)
    for model in "$llama,kv_heads=2,tied=1" "$gpt,dropout=0.1" "$bert,dropout=0.1"; do
        args=("${args[@]:0:13}" --model "${model/heads=2/heads=4}" text)
        good train "${args[@]}" && mv out single
        on 2x2 tp+pipeline
        on 2x2 pipeline:schedule=1f1b+tp
        on 2x2 tp+pipeline --nproc 2
        on 2x4 tp+mp
        on 2x2 tp+fsdp
        on 2x2x2 ddp+tp+pipeline:schedule=interleaved
        on 2x2x2 ddp+pipeline+tp
        on 2x2x2 fsdp+tp+pipeline
        on 2x2x2 tp+fsdp:stage=2+pipeline:schedule=gpipe --nproc 4
        on 1x4x2 fsdp:stage=1+tp+pipeline
        on 2x2 "$tokens+pipeline:schedule=1f1b"
        on 2x2 "$tokens+pipeline" --nproc 2 --recompute
        on 2x4 "$tokens+mp"
        on 2x2x2 "ddp+$tokens+pipeline:schedule=zero-bubble"
        on 2x2x2 "fsdp+$tokens+pipeline:schedule=interleaved"
        on 2x4 "fsdp+$tokens"
    done
    on 2x2 'fsdp:ignored=*.bias+tp' # clips by a norm in which each parameter counts once
}

# The same of sequences in chunks, which ranks share; also beside slices, two of which share a head
# of keys.
chunked() {
    args=(--json --microbatches 4 --batch-size 16 --steps 5 --clip 1 --eval-every 3 --chunks 4)
    args+=(--slices 4 --model "$llama,kv_heads=2,layers=2,tied=1" text)
    good train "${args[@]}" && mv out single
    on 2x2 tp+cp
    on 2x2 cp+pipeline
    on 2x2 pipeline+cp:exchange=keys
    on 2x2 cp+pipeline:schedule=1f1b --nproc 2
    on 2x2x2 tp+cp+pipeline
    on 2x2x2 fsdp+cp+tp
    on 2x2x2 fsdp:stage=2+cp+pipeline
    on 2x2x2 ddp+cp+mp
    on 2x1 tp+cp # a rank alone cuts sequences once
    on 1x2 cp+pipeline
    on 2x2 "$tokens+cp"
    on 2x2x2 "$tokens+cp+pipeline:schedule=1f1b"
    on 2x2x2 "fsdp+cp+$tokens"
    bad 1 '--chunks 4: strategy tp with sequence_parallel=1 distributes the chunks over 8 ranks,' \
        train "${args[@]}" --slices 4 --strategy "$tokens+cp" --mesh 4x2
    # Chunks of a rank that are several nodes of the tree.
    args=("${args[@]/context=16/context=24}" --chunks 12)
    good train "${args[@]}" && mv out single
    on 2x2 tp+cp
    on 2x2 cp:exchange=keys+pipeline:schedule=zero-bubble
    on 2x2x2 fsdp+cp+tp
    on 2x2 "$tokens+cp"
    on 2x2x2 "fsdp+cp+$tokens"
    on 3x2 "cp+$tokens"
    args+=(--chunks 6)
    good train "${args[@]}" && mv out single
    on 3x2 "cp+$tokens" --recompute
    bad 1 '--chunks 6: strategy tp with sequence_parallel=1 distributes the chunks over 4 ranks,' \
        train "${args[@]}" --strategy "$tokens+cp" --mesh 2x2
}

# Four ranks train on four times as long a sequence, and evaluate it, in hardly more memory than
# one rank: each has its share of the activations, and exchanges use memory that the step has used
# before.
longest() {
    local model=llama:layers=1,heads=8,width=256,hidden=688,vocab=512
    args=(--quiet --steps 3 --eval-batches 2 --batch-size 1 --microbatches 1 --chunks 8 random)
    good train "${args[@]}" --strategy single --model "$model,context=320" --mem-cap 25M
    bad 1 "out of memory" train "${args[@]}" --strategy single --model "$model,context=640" \
        --mem-cap 25M
    good train "${args[@]}" --model "$model,context=1280" --strategy cp --nproc 4 --mem-cap 28M
}

# The note about unequal work is for causal models alone, and names chunks that the context has.
unequal_work() {
    local args=(--quiet --steps 1 --no-eval --batch-size 2 --microbatches 1 --strategy cp --nproc 2)
    local of='causal attention is balanced where twice the ranks divide the chunks'
    noted "10 chunks on 2 ranks: $of, as with --chunks 20\$" train "${args[@]}" --chunks 10 \
        --model "$gpt,context=40" random
    noted "$of, as with --chunks 18\$" train "${args[@]}" --chunks 9 --nproc 3 \
        --model "$gpt,context=18" random
    noted "$of, which no cut of this context allows\$" train "${args[@]}" --chunks 10 \
        --model "$gpt,context=10" random
    good train "${args[@]}" --chunks 10 --model "$bert,context=10" random
}

# Each rank reads its slices of published weights, and no device ever holds all of them. PyTorch's
# numbers and half weights come before the slices.
from_weights() {
    local how start model="gpt2:layers=1,heads=4,width=128,context=16,vocab=4000"
    local file=published/step-00000001/model.safetensors
    args=(--json --microbatches 2 --batch-size 4 --steps 1 --slices 4 --optimizer sgd)
    args+=(--model "$model" random)
    good train "${args[@]}" --strategy single --seed 5 --save published
    for start in "--weights $file" "--init torch" "--weights $file --amp O3"; do
        # shellcheck disable=SC2086
        good train "${args[@]}" --strategy single $start && mv out single
        for how in "tp --nproc 4" "fsdp+tp --mesh 2x2" "tp+pipeline --mesh 2x2"; do
            [ "$start $how" = "--weights $file --amp O3 fsdp+tp --mesh 2x2" ] && continue
            # shellcheck disable=SC2086
            good train "${args[@]}" $start --strategy $how && mv out many &&
                same_run single many || fail "$how $start"
            [ "$start $how" != "--weights $file tp --nproc 4" ] ||
                [ "$(peak many)" -lt $(($(peak single) * 35 / 100)) ] ||
                fail "peaks: $(peak single) on one device, $(peak many) on each of four"
        done
    done
}

# Prints the peak memory of a run's first device.
peak() { grep -o '"peak_bytes":[0-9]*' "$1" | head -n 1 | grep -o '[0-9]*$'; }

images() {
    args=(--json --microbatches 4 --batch-size 24 --steps 6 --optimizer sgd:momentum=0.9)
    args+=(--model resnet18:width=4,image=16,classes=5,small=1 random)
    good train "${args[@]}" && mv out single
    on 2x2 ddp+pipeline
    on 4x2 ddp+pipeline:schedule=1f1b
    on 3x2 fsdp+pipeline
    on 3x2 ddp+pipeline --nproc 3
}

# Averages of weights begin as copies on the devices of the stages.
averaged() {
    args=(--json --microbatches 4 --batch-size 16 --steps 5 --eval-every 3 --slices 2)
    args+=(--ema 0.9 --model "$gpt" text)
    good train "${args[@]}" && mv out single
    on 2x2 ddp+pipeline
    on 2x2 fsdp+pipeline
    on 2x2 tp+pipeline
}

goes_on() {
    args=(--json --microbatches 4 --batch-size 24 --model "$gpt,dropout=0.1" --clip 1 text)
    good train "${args[@]}" --steps 8 && mv out whole
    good train "${args[@]}" --steps 4 --strategy ddp+pipeline --mesh 2x2 --save saved
    good train "${args[@]}" --steps 8 --resume saved && mv out rest && same_run whole rest 5
    rm -rf saved
    good train "${args[@]}" --steps 4 --strategy fsdp+pipeline --mesh 2x2 --save saved
    good train "${args[@]}" --steps 8 --resume saved --strategy ddp --nproc 3 && mv out rest &&
        same_run whole rest 5
    rm -rf saved
    good train "${args[@]}" --steps 4 --save saved
    good train "${args[@]}" --steps 8 --resume saved/step-* --strategy fsdp+pipeline --mesh 2x2 &&
        mv out rest && same_run whole rest 5
    good train "${args[@]}" --steps 8 --resume saved/step-* --strategy ddp+pipeline --mesh 2x2 &&
        mv out rest && same_run whole rest 5
    good train "${args[@]}" --steps 8 --resume saved/step-* --strategy fsdp+pipeline --mesh 2x2 \
        --offload params && mv out rest && same_run whole rest 5
    rm -rf saved
    good train "${args[@]}" --steps 8 --slices 2 && mv out whole
    good train "${args[@]}" --steps 4 --strategy fsdp+tp+pipeline --mesh 2x2x2 --save saved
    good train "${args[@]}" --steps 8 --resume saved --strategy pipeline --nproc 2 && mv out rest &&
        same_run whole rest 5
    good train "${args[@]}" --steps 12 --slices 2 && mv out whole
    good train "${args[@]}" --steps 12 --resume saved --strategy ddp+pipeline+tp --mesh 2x2x2 &&
        mv out rest && same_run whole rest 9
}

compared() {
    good compare --strategies ddp+pipeline:schedule=1f1b,ddp --devices cpu:0-3 --repeats 1 --json \
        --steps 4 --model mlp:layers=4,in=20,hidden=16 --batch-size 16 random
    [ "$(grep -c '"same_bits":true' out)" -eq 3 ] || fail "compare: $(cat out)"
    grep -q '"strategy":"ddp+pipeline:schedule=1f1b"' out || fail "compare: $(cat out)"
    good compare --strategies cp,tp+cp --mesh 2x2 --devices cpu:0-3 --repeats 1 --json --steps 4 \
        --model "$llama" --batch-size 8 --microbatches 4 text
    [ "$(grep -c '"same_bits":true' out)" -eq 3 ] || fail "compare of cuts: $(cat out)"
    grep -q '"slices":2,"chunks":4' out || fail "cuts of compare: $(cat out)"
    bad 2 'on 3 devices: missing --mesh' compare --strategies ddp+pipeline \
        --devices cpu:0-2 --model toy --batch-size 24 random
}

told() {
    bad 2 'missing --mesh with 2 sizes, the outermost first, as in --mesh 2x2' \
        train --strategy ddp+pipeline random
    bad 2 'mesh 2x: expected sizes such as 2x4' train --strategy ddp+pipeline --mesh 2x random
    bad 2 'mesh 2x0: expected sizes such as 2x4' train --strategy ddp+pipeline --mesh 2x0 random
    bad 2 'at most 64 ranks of one machine, got 80' train --strategy ddp+pipeline --mesh 40x2 random
    bad 2 'mesh 2: got 1 dimension for 2 strategies' train --strategy ddp+pipeline --mesh 2 random
    bad 2 'mesh 2x2: got 2 dimensions for 1 strategy' train --strategy ddp --mesh 2x2 random
    bad 2 "'hogwild' takes no part in compositions: choose among ddp" \
        train --strategy ddp+hogwild --mesh 2x2 random
    bad 2 'ddp and fsdp both distribute micro-batches' train --strategy ddp+fsdp --mesh 2x2 random
    bad 2 'or fsdp[+]pipeline' train --strategy pipeline --offload params random
    bad 1 '3 micro-batches for 2 replicas .*: expected as many for each' train --batch-size 9 \
        --strategy fsdp+pipeline --mesh 2x2 --microbatches 3 --offload params random
    bad 2 "mp and pipeline are both for the 'pipeline' dimension" \
        train --strategy mp+pipeline --mesh 2x2 random
    bad 2 "unknown strategy 'none'" train --strategy ddp+none --mesh 2x2 random
    bad 2 "unknown schedule 'x'" train --strategy ddp+pipeline:schedule=x --mesh 2x2 random
    bad 2 'mesh 2x2: expected 4 ranks, got --nproc 3' \
        train --strategy ddp+pipeline --mesh 2x2 --nproc 3 random
    bad 2 'expected 9 devices per rank, got 8' \
        train --strategy ddp+pipeline --mesh 2x9 --nproc 2 random
    bad 1 '1 micro-batch is fewer than 2 replicas' \
        train --strategy ddp+pipeline --mesh 2x2 --microbatches 1 random
    RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=1 bad 2 \
        'mesh 2x2: expected 4 ranks, got 3 that were started' \
        train --strategy ddp+pipeline --mesh 2x2 random
}

check language
check adapted_chunks
check unlike_schedules
check masked
check sliced
check chunked
check longest
check unequal_work
check from_weights
check images
check averaged
check goes_on
check compared
check told
finish
