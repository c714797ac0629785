#!/usr/bin/env bash
# What the tables say of each option, and of each key of a strategy, is so: a job is resumed with
# another value of it, and the bits of its weights are compared with those of the job that never
# stopped. A note is printed where they are others, and nowhere else. A row of the tables that no
# flip below tries is a failure.
. "$(dirname "$0")/lib.sh"

export CHOIR_CPU_DEVICES=2
declare -A says tried whole
while read -r row class; do
    says[$row]=$class
done < <(choir __numbers)

# base NAME ARG...: a job of 6 steps with a checkpoint after step 3, which is resumed without a
# change, too.
base() {
    local name=$1
    shift
    choir train --json --batch-size 12 --steps 6 --no-eval --seed 1 "$@" --save "$name" \
        --save-every 3 --save-keep 9 >out 2>err || { fail "base $name: $(cat err)"; return 1; }
    whole[$name]=$(field weights_sha256 out)
    choir train --json --resume "$name/step-00000003" >out 2>err
    [ "$(field weights_sha256 out)" = "${whole[$name]}" ] ||
        fail "$name has other bits when it goes on: $(cat err)"
}

# flip ROW BASE ARG...: the arguments give ROW another value. than: another run to compare with.
flip() {
    local row=$1 base=$2 class=${says[$1]-} status noted=0 same=0
    shift 2
    [ -n "$class" ] || fail "the tables have no row $row"
    choir train --json --resume "$base/step-00000003" "$@" >out 2>err
    status=$?
    if [ "$class" = refused ]; then
        [ $status -eq 1 ] && [ ! -s out ] &&
            grep -qE "was trained with(out)? $row|is of the model" err ||
            fail "$row, $*: status $status, not refused: $(cat err)"
        tried[$row]+=refused
        return
    fi
    [ $status -eq 0 ] || { fail "$row, $*: status $status: $(cat err)"; return; }
    grep -qE 'replaces the checkpoint|is new: the checkpoint' err && noted=1
    [ "$(field weights_sha256 out)" = "${whole[${than-$base}]}" ] && same=1
    case $class in
    judges) [ $noted$same = 11 ] ;;
    *) [ $noted$same = 01 ] || [ $noted$same = 10 ] ;;
    esac || fail "$row of $base, $*: note $noted, same bits $same: $(cat err)"
    tried[$row]+=" $same"
}

options_of_a_model() {
    flip --model plain --model toy:hidden=11
    flip --weights plain --weights plain/latest
    flip --tokenizer plain --tokenizer chars
    flip --bytes plain --bytes
    flip --bytes tensor --bytes=false
    flip --batch-size plain --batch-size 24
    flip --microbatches plain --microbatches 2
    flip --chunks plain --chunks 2
    flip --chunks chunked --chunks 4
    flip --slices plain --slices 2
    flip --augment images --augment randaugment
    flip --pack plain --pack
    flip --columns plain --columns text=body
    flip --val-split plain --val-split 0.2
    flip --balance images --balance
    flip --skip-batches plain --skip-batches 5
    flip --workers plain --workers 2
    flip --init plain --init torch
    flip --seed plain --seed 2
}

options_of_devices() {
    flip --strategy three --strategy single
    flip --strategy three --strategy ddp:hook=bf16
    flip --strategy three --strategy diloco --nproc 2
    flip --mesh tensor --strategy ddp+tp --mesh 2x2
    flip --mesh ring --mesh 2x2 \
        --strategy ddp:algorithm=ring,bucket_cap_mb=1e-4,first_bucket_mb=1e-4+pipeline
    flip --nproc three --nproc 2
    flip --nproc tensor --nproc 4
    flip --nproc ring --nproc 2
    flip --devices three --devices cpu:0,cpu:0
    flip --devices ring --devices cpu:0,cpu:0
    flip --max-restarts three --max-restarts 1
    flip --no-copy shards --max-restarts 1 --no-copy --save fresh1
    flip --threads images --threads 2
    flip --mem-cap plain --mem-cap 100M
    flip --recompute plain --recompute
    flip --amp plain --amp bf16
    flip --amp plain --amp off
    flip --bits plain --bits chain
    flip --bits halves --bits amx
    flip --timeout plain --timeout 99
    flip --slow-after three --slow-after 5
    flip --backend three --backend shm
}

options_of_training() {
    than=plain8 flip --steps plain --steps 8
    than=cosine8 flip --steps cosine --steps 8
    flip --epochs images --epochs 1
    flip --optimizer plain --optimizer adamw:beta2=0.9
    flip --optimizer plain --optimizer adamw:beta2=0.999
    flip --lr plain --lr 0.02
    flip --lr plain --lr 1e-3
    flip --lr-for plain --lr-for '*=0.02'
    flip --freeze plain --freeze '*bias'
    flip --lora plain --lora r=2,targets=all-linear
    flip --base plain --base bf16
    flip --adapter plain --adapter nowhere
    flip --schedule plain --schedule exponential:gamma=0.5
    flip --schedule plain --schedule constant:warmup=0
    flip --weight-decay plain --weight-decay 0.5
    flip --weight-decay plain --weight-decay 0.01
    flip --clip plain --clip 1e-3
    flip --clip plain --clip 0
    flip --offload plain --offload .
    flip --ema plain --ema 0.9
    flip --swa plain --swa 2
    flip --swa-every averaged --swa-every 2
    flip --on-spike plain --save spiky --save-every 1 --on-spike 1:rewind=1,skip=1,window=1
    flip --max-time plain --max-time 1h
    flip --eval-every plain --eval-every 2
    flip --eval-every plateau --eval-every 3
    flip --eval-epochs images --eval-epochs 1
    flip --eval-batches plain --eval-batches 2
    flip --eval-batches plateau --eval-batches 2
    flip --no-eval judged --no-eval
    flip --best judged --best loss:max
    flip --metric images --metric 'samples=wc -l'
    flip --patience judged --patience 9
}

options_of_records() {
    flip --save plain --save fresh2
    flip --save-every plain --save fresh3 --save-every 1
    flip --save-keep plain --save fresh4 --save-keep 2
    flip --save-warn plain --save fresh5 --save-warn
    flip --grace plain --grace 30s
    flip --run plain --run fresh6
    flip --log plain --log csv:table.csv
    flip --log-histograms plain --log tensorboard:board --log-histograms 1
    flip --audit plain --run fresh8 --audit=every=1
    flip --page plain --page --run fresh7
    flip --recut apart --recut
    flip --debug-nan plain --debug-nan
    flip --json plain --json
    flip --quiet plain --quiet
    flip --log-every plain --log-every 2
    flip --trace plain --trace trace.json
}

keys_of_one_process() {
    local two=cpu:0,cpu:1 s
    for s in dp dp-balanced; do
        flip $s:output_device three --strategy $s:output_device=cpu:1 --devices $two
        flip $s:dim three --strategy $s:dim=0 --devices $two
    done
    flip mp:cuts plain --strategy mp:cuts=2 --devices $two
    flip mp:clocked plain --strategy mp:clocked=1 --devices $two
    flip pipeline:cuts plain --strategy pipeline:cuts=2 --devices $two
    flip pipeline:clocked plain --strategy pipeline:clocked=1 --devices $two
    flip pipeline:schedule plain --strategy pipeline:schedule=gpipe --devices $two
    flip pipeline:chunks plain --strategy pipeline:chunks=1 --devices $two
}

keys_of_ranks() {
    # ddp KEY BASE VALUE [OTHER KEYS]
    ddp() { flip "ddp:$1" "$2" --strategy "ddp:${4+$4,}$1=$3" --nproc 3; }
    ddp bucket_cap_mb three 1e-4
    ddp first_bucket_mb three 1e-4
    ddp algorithm three exchange
    ddp algorithm three ring
    ddp algorithm three binomial
    for algorithm in ring native halving; do # two addends have one order
        flip ddp:algorithm pairs --strategy ddp:algorithm=$algorithm --nproc 2
    done
    flip ddp:algorithm three --strategy ddp:algorithm=ring --nproc 2
    flip ddp:algorithm pairs --strategy ddp:algorithm=ring --nproc 4
    flip ddp:algorithm pairs --strategy ddp:algorithm=halving --nproc 4
    ddp sync_bn images 1
    flip ddp:groups groups --strategy ddp:sync_bn=1,groups=3 --nproc 3
    ddp find_unused three 1
    ddp static_graph three 1
    ddp delay_allreduce three 1
    ddp hook three bf16
    ddp bucket_cap_mb ring 1 algorithm=ring,first_bucket_mb=1e-4
    ddp first_bucket_mb ring 1 algorithm=ring,bucket_cap_mb=1e-4
    ddp delay_allreduce ring 1 algorithm=ring,bucket_cap_mb=1e-4,first_bucket_mb=1e-4
    ddp rank power 2 hook=powersgd,start_step=0
    ddp start_step power 5 hook=powersgd
    flip cp:exchange chunked --strategy cp:exchange=keys --nproc 2
    flip tp:sequence_parallel tensor --strategy tp:sequence_parallel=1 --nproc 2
    local pair
    for pair in stage=1 shard_ranks=1 unit_params=20 unit_class=linear 'ignored=*.bias' gather=1 \
        reshard=0; do
        flip "fsdp:${pair%%=*}" shards --strategy "fsdp:$pair" --nproc 2
    done
    for pair in every=2 outer_lr=0.5 momentum=0.5 nesterov=0 wire=bf16; do
        flip "diloco:${pair%%=*}" apart --strategy "diloco:every=3,$pair" --nproc 2
    done
    flip diloco:workers apart --strategy diloco:every=3,workers=1 --nproc 1
    flip local-sgd:workers mean --strategy local-sgd:every=3,workers=1 --nproc 1
    flip local-sgd:every mean --strategy local-sgd:every=2 --nproc 2
    flip local-sgd:warmup mean --strategy local-sgd:every=3,warmup=9 --nproc 2
    flip local-sgd:node_every mean --strategy local-sgd:every=3,node_every=1 --nproc 2
}

# What starts no training that goes on, or needs other machines.
without_flip=' --rewind --rendezvous --key-file --resume --print-job --without --summary --find-lr '

each_row_is_tried() {
    local row
    for row in "${!says[@]}"; do
        [[ $without_flip != *" $row "* ]] || continue
        case "${says[$row]}:${tried[$row]-}" in
        *:) fail "no flip tries $row" ;;
        *sometimes:*0*1* | *sometimes:*1*0* | by*:*0*1* | by*:*1*0*) ;;
        *sometimes:* | by*:*) fail "$row is tried one way alone: ${tried[$row]}" ;;
        yes:*0* | judges:*1* | refused:*) ;;
        no:*0* | unrecorded:*0* | yes:*) fail "$row: ${says[$row]}, tried: ${tried[$row]}" ;;
        esac
    done
}

make_text text 40
make_idx folder train 60
make_idx folder t10k 20
check base plain --model toy random
check base plain8 --model toy --steps 8 random
check base halves --model gpt2:layers=1,width=64,heads=2,context=16,vocab=61 --amp bf16 \
    --bits chain random
check base cosine --model toy --schedule cosine random
check base cosine8 --model toy --schedule cosine --steps 8 random
check base images --model cnn:width=4 --microbatches 3 --steps 5 folder
check base groups --model cnn:width=4 --microbatches 3 --steps 5 --nproc 3 \
    --strategy ddp:sync_bn=1 folder
check base plateau --model toy --lr 0.05 --eval-every 1 \
    --schedule plateau:patience=0,factor=0.1 random
check base judged --model toy --eval-every 2 random
check base averaged --model toy --swa 2 random
check base three --model mlp:in=10,hidden=10,classes=5 --lr 0.1 --nproc 3 --microbatches 6 \
    --strategy ddp random
check base pairs --model mlp:in=10,hidden=10,classes=5 --lr 0.1 --nproc 2 --microbatches 4 \
    --strategy ddp random
check base ring --model mlp:in=10,hidden=10,classes=5 --lr 0.1 --nproc 3 --microbatches 6 \
    --strategy ddp:algorithm=ring,bucket_cap_mb=1e-4,first_bucket_mb=1e-4 random
check base shards --model toy --strategy fsdp --nproc 2 random
check base tensor --model "${gpt/heads=2/heads=4}" --bytes --microbatches 6 --slices 4 \
    --strategy tp --nproc 2 text
check base chunked --model "${gpt/heads=2/heads=4}" --bytes --strategy cp --nproc 2 text
check base apart --model toy --strategy diloco:every=3 --nproc 2 --optimizer sgd --lr 0.1 random
check base mean --model toy --strategy local-sgd:every=3 --nproc 2 --optimizer sgd --lr 0.1 random
choir train --json --batch-size 12 --steps 6 --no-eval --model toy --nproc 3 --save power \
    --strategy ddp:hook=powersgd,start_step=0 --save-every 3 --save-keep 9 random >out 2>err
whole[power]=$(field weights_sha256 out) # what it feeds back is not in a checkpoint
check options_of_a_model
check options_of_devices
check options_of_training
check options_of_records
check keys_of_one_process
check keys_of_ranks
check each_row_is_tried
finish
