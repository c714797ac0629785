#!/usr/bin/env bash
# A job that stops and continues ends with the bits of one that never stopped; its checkpoints
# can be evaluated and can generate text.
. "$(dirname "$0")/../lib.sh"

make_text text 300
one=(--microbatches 4 --batch-size 24)

# job FILE ARG...: gpt2 with dropout, so that the random numbers must continue, too.
job() {
    local file=$1
    shift
    good train --json "${one[@]}" --model "$gpt,dropout=0.1" "$@" text && mv out "$file"
}

# goes_on STRATEGY-OF-THE-FIRST-HALF STRATEGY-OF-THE-SECOND [ARG...]; words within are split.
goes_on() {
    local first second
    read -ra first <<<"$1"
    read -ra second <<<"$2"
    shift 2
    rm -rf saved
    job whole --steps 20 "$@" || return
    # The first half has --steps 10; a schedule that depends on the total names it itself:
    # cosine:steps=20.
    job half --steps 10 --strategy "${first[@]}" --save saved "$@" || return
    job rest --steps 20 --strategy "${second[@]}" --resume saved "$@" || return
    same_run whole rest 11
    [ "$(steps_of rest | wc -l)" -eq 10 ] || fail "not 10 steps but $(steps_of rest | wc -l)"
    [ "$(field eval_loss whole)" = "$(field eval_loss rest)" ] || fail "eval_loss differs"
}

# A job that was asked for epochs tells their ends also when it goes on, without being asked again.
epochs_go_on() {
    local args=(--json --model mlp:in=144,hidden=4,layers=1 --batch-size 8)
    make_idx digits train 40 && make_idx digits t10k 20
    good train "${args[@]}" --epochs 4 --save passes --save-every 3 --save-keep 9 digits
    mv out whole
    good train --json --resume passes/step-00000003
    diff <(grep '"event":"epoch"' whole) <(grep '"event":"epoch"' out) || fail 'epochs'
    good train --json --resume passes/step-00000003 --steps 6
    [ "$(grep -c '"event":"epoch"' out)" = 0 ] || fail 'epochs of steps'
}

# An infinite value of the user's stays the best: patience runs from there.
infinite_best() {
    local args=(--json --model toy --eval-every 1 --best m --patience 5 --no-eval random) told
    # shellcheck disable=SC2016 # of the command's shell
    args+=(--metric 'm=echo >>calls; n=$(wc -l <calls); [ $n = 2 ] && echo inf || echo $n')
    told='"event":"(eval|stop)"'
    good train "${args[@]}" --steps 9 && grep -E "$told" out | sed 's/"eval_s.*//' >whole
    [ "$(grep -c . whole)" = 8 ] || fail "$(cat whole)"
    rm calls
    good train "${args[@]}" --steps 4 --save measured
    good train "${args[@]}" --resume measured --steps 9
    diff <(tail -n 5 whole) <(grep -E "$told" out | sed 's/"eval_s.*//') || fail 'another end'
    [ "$(readlink measured/best)" = step-00000002 ] || fail "best: $(readlink measured/best)"
}

# Llama continues, too, can be evaluated and generates text.
llama_goes_on() {
    local args=(--json "${one[@]}" --model "$llama,tied=1")
    rm -rf saved
    good train "${args[@]}" --steps 8 text && mv out whole
    good train "${args[@]}" --steps 4 --strategy ddp --nproc 2 --save saved text
    good train "${args[@]}" --steps 8 --resume saved --save saved text && mv out rest
    same_run whole rest 5
    good eval --json --batch-size 6 saved text
    [ "$(field loss out)" = "$(field eval_loss rest)" ] ||
        fail "eval says $(field loss out), train said $(field eval_loss rest)"
    good generate saved --tokens 8 --prompt 'the sea'
    [ "$(wc -c <out)" -eq 16 ] || fail "$(wc -c <out) bytes, not the prompt, 8 and a newline"
}

# Batch norm's running statistics and momentum are part of what goes on. images_go_on MODEL
images_go_on() {
    local args=(--json "${one[@]}" --model "$1" --optimizer sgd:momentum=0.9)
    rm -rf saved
    good train "${args[@]}" --steps 8 random && mv out whole
    good train "${args[@]}" --steps 4 --strategy ddp --nproc 2 --save saved random
    good train "${args[@]}" --steps 8 --strategy ddp --nproc 3 --resume saved random && mv out rest
    same_run whole rest 5
    [ "$(field eval_loss whole)" = "$(field eval_loss rest)" ] || fail "eval_loss differs"
}

# A recurrent model continues, is evaluated and generates text; on numbers, it continues too.
lstm_goes_on() {
    local args=(--json "${one[@]}" --model "$lstm,cell=gru,dropout=0.2")
    rm -rf saved numbers
    good train "${args[@]}" --steps 8 text && mv out whole
    good train "${args[@]}" --steps 4 --save saved text
    good train "${args[@]}" --steps 8 --strategy ddp --nproc 2 --resume saved text && mv out rest
    same_run whole rest 5
    good eval --json --batch-size 24 saved text
    good generate saved --tokens 20 --prompt 'the sea' && mv out first
    [ "$(wc -c <first)" -eq 28 ] || fail "$(wc -c <first) bytes, not the prompt, 20 and a newline"
    args=(--json "${one[@]}" --model "$lstm,out=3")
    good train "${args[@]}" --steps 8 random && mv out whole
    good train "${args[@]}" --steps 4 --save numbers random
    good train "${args[@]}" --steps 8 --resume numbers random && mv out rest
    same_run whole rest 5
}

# Continuing in the same folder, from a middle step that --save-every left there.
goes_on_in_place() {
    rm -rf saved
    job whole --steps 12
    job half --steps 8 --save saved --save-every 3
    job rest --steps 12 --resume saved --save saved
    same_run whole rest 9
    [ "$(readlink saved/latest)" = step-00000012 ] || fail "latest is $(readlink saved/latest)"
    good eval --json saved text
    [ "$(field step out)" = 12 ] || fail "eval of step $(field step out)"
}

wrong_resumes_are_errors() {
    rm -rf saved
    job half --steps 4 --save saved
    bad 1 'model' train --json "${one[@]}" --steps 8 --resume saved --model toy random
    bad 1 'model' train --json "${one[@]}" --steps 8 --resume saved \
        --model gpt2:layers=2,heads=2,width=16,context=16,dropout=0.1 text
    bad 1 'batch-size 24' train --json --batch-size 48 --microbatches 4 --steps 8 --resume saved \
        --model "$gpt,dropout=0.1" text
    bad 1 'microbatches 4' train --json --batch-size 24 --microbatches 2 --steps 8 --resume saved \
        --model "$gpt,dropout=0.1" text
    bad 1 'optimizer' train --json "${one[@]}" --steps 8 --optimizer sgd --resume saved \
        --model "$gpt,dropout=0.1" text
    bad 1 '4 steps already' train --json "${one[@]}" --steps 4 --resume saved \
        --model "$gpt,dropout=0.1" text
    bad 1 '4 steps already' train --json "${one[@]}" --steps 3 --strategy ddp --nproc 2 \
        --resume saved --model "$gpt,dropout=0.1" text
    rm -rf records
    job half --steps 4 --run records --save records/saved
    bad 1 'records has the records of a run, and no checkpoint: .* in records/saved' \
        train --resume records
    bad 1 'rewind 2: records has the records .* in records/saved' \
        train --resume records --rewind 2
    bad 1 'records has the records .* in records/saved' eval records text
    bad 1 'the checkpoint nowhere' train --json "${one[@]}" --resume nowhere --model "$gpt" text
}

# A high rate makes the later steps worse: the best step is an early one, and is kept.
best_is_kept() {
    rm -rf saved
    job run --steps 16 --lr 0.3 --eval-every 2 --save saved --save-every 4
    local best low
    best=$(readlink saved/best)
    low=$(sed -n 's/.*"event":"eval","step":\([0-9]*\),"loss":\([0-9.e+-]*\).*/\2 \1/p' run |
        { cat; echo "$(field eval_loss run) 16"; } | sort -g | head -n 1)
    [ "$best" = "$(printf 'step-%08d' "${low#* }")" ] || fail "best is $best, the lowest $low"
    good eval --json saved/best text
    [ "$(field loss out | cut -c 1-7)" = "$(cut -c 1-7 <<<"$low")" ] ||
        fail "best evaluates to $(field loss out), it was $low"
    [ "$(find saved -name 'step-*' | wc -l)" -le 2 ] || fail "old steps stay: $(ls saved)"
}

# The batches of train's validation are micro-batches of 6 samples: so are these.
eval_agrees() {
    rm -rf saved images pictures
    job run --steps 5 --save saved --strategy ddp --nproc 2
    good eval --json --batch-size 6 saved text
    [ "$(field loss out)" = "$(field eval_loss run)" ] ||
        fail "eval says $(field loss out), train said $(field eval_loss run)"
    make_idx images train 60
    make_idx images t10k 20
    good train --json --batch-size 12 --steps 5 --model cnn:width=4 --save pictures images
    mv out run
    good eval --json --batch-size 12 pictures images
    [ "$(field loss out)" = "$(field eval_loss run)" ] ||
        fail "eval says $(field loss out), train said $(field eval_loss run), of images"
    good eval pictures images
    grep -q 'loss .*accuracy' out || fail "eval writes $(cat out)"
}

generate_writes() {
    rm -rf saved
    job run --steps 5 --save saved
    good generate saved --tokens 8 --prompt 'the sea' --seed 1 && mv out first
    good generate saved --tokens 8 --prompt 'the sea' --seed 1 && mv out again
    good generate saved --tokens 8 --prompt 'the sea' --seed 2 && mv out other
    cmp -s first again || fail "the same seed, another text"
    ! cmp -s first other || fail "another seed, the same text"
    [ "$(head -c 7 first)" = 'the sea' ] || fail "it does not begin with the prompt"
    [ "$(wc -c <first)" -eq 16 ] || fail "$(wc -c <first) bytes, not the prompt, 8 and a newline"
    good generate saved --tokens 5 --temperature 0
    bad 1 'é|character|token' generate saved --prompt 'é'
    bad 2 'tokens' generate saved --tokens 0
}

# A folder with a run is continued or left unchanged.
not_written_over() {
    rm -rf saved
    job half --steps 4 --save saved
    bad 1 'holds a run' train --json "${one[@]}" --steps 2 --save saved --model "$gpt" text
    good eval --json saved text
    [ "$(field step out)" = 4 ] || fail "step $(field step out) is left, not 4"
    # Neither is it continued from a run whose name begins like its own.
    job half --steps 5 --save saved1
    bad 1 'save saved holds a run' train --json --steps 8 --resume saved1 --save saved text
    [ "$(readlink saved/latest)" = step-00000004 ] || fail "latest is $(readlink saved/latest)"
    rm -rf saved1
}

# Options stored in the checkpoint need not be given again.
model_is_remembered() {
    rm -rf saved
    job whole --steps 8
    job half --steps 4 --save saved
    good train --json --batch-size 24 --steps 8 --resume saved text && mv out rest
    same_run whole rest 5
}

# --- the record of the job --------------------------------------------------------------------

record=(--lr 0.01 --clip 0.5 --weight-decay 0.2 --schedule cosine:warmup=2,min_lr=0.001
    --optimizer adamw:beta2=0.99)

# `--resume DIR` needs no other argument: it has the options, the data and the folder of the job,
# and ends with the bits of the job that was never interrupted. resumes_alone ARG...
resumes_alone() {
    local args=("${one[@]}" --steps 160 "${record[@]}" --save-every 50)
    rm -rf saved
    job whole "${args[@]}" --save saved "$@" || return
    mv saved whole_saved
    start_until $((1 + RANDOM % 10)) train --json "${args[@]}" --model "$gpt,dropout=0.1" \
        --save saved "$@" text || return
    kill -INT "$started_pid"
    end_started
    status=$?
    [ "$status" = 130 ] || fail "status $status, not interrupted: $(cat err)"
    good train --json --resume saved && mv out rest
    same_run whole rest "$(steps_of rest | head -n 1 | cut -d ' ' -f 1)"
    [ "$(readlink saved/latest)" = step-00000160 ] || fail "latest is $(readlink saved/latest)"
    cmp whole_saved/latest/job.json saved/latest/job.json || fail "the record has changed"
    rm -rf whole_saved
}

# What changes the numbers is named, and taken or refused; nothing else is said.
changes_are_named() {
    rm -rf saved
    job half --steps 6 "${record[@]}" --save saved
    local from=saved/step-00000006
    again() { noted "$1" train --quiet --resume $from --steps 8 "${@:2}"; }
    again 'steps 8 replaces the checkpoint.s 6'
    again 'lr 0.02 replaces the checkpoint.s 0.01' --lr 0.02
    again 'clip 2 replaces the checkpoint.s 0.5' --clip 2
    again 'weight-decay 0 replaces the checkpoint.s 0.2' --weight-decay 0
    again 'schedule constant replaces the checkpoint.s cosine' --schedule constant
    again 'optimizer adamw:beta2=0.9 replaces the checkpoint.s adamw:beta2=0.99' \
        --optimizer adamw:beta2=0.9
    again 'amp bf16' --amp bf16
    again 'strategy local-sgd:workers=2 replaces the checkpoint.s [a-z]*: .*others' \
        --strategy local-sgd --nproc 2
    again 'strategy ddp:hook=bf16 of 2 ranks replaces' --strategy ddp:hook=bf16 --nproc 2
    again 'hook=powersgd|strategy ddp: .*feeds back' --strategy ddp:hook=powersgd --nproc 2
    noted 'epochs 2, [0-9]+ steps, replaces' train --quiet --resume $from --epochs 2
    good train --quiet --resume $from --steps 8 "${record[@]}" --lr 1e-2 "${one[@]}" --seed 42 text
    grep -q lr err && fail "the same rate in other words is named: $(cat err)"
    refused() { bad 1 "$1" train --quiet --resume saved --steps 8 "${@:2}"; }
    refused 'trained with --optimizer adamw:.*cannot continue with sgd' --optimizer sgd
    refused 'trained with --seed 42' --seed 43
    refused 'trained with --microbatches 4' --microbatches 2
    refused 'trained without --bytes' --bytes
    refused 'trained without --tokenizer' --tokenizer none.json
    bad 2 'steps 8 with --epochs 1' train --resume saved --steps 8 --epochs 1
    bad 2 'steps 8 with --epochs 1' train --steps 8 --epochs 1 text
    [ "$(readlink saved/latest)" = step-00000006 ] || fail "one of its steps wrote to the folder"
}

# A run that trains longer, or otherwise, goes on in its folder and in its records.
longer_in_place() {
    local steps
    rm -rf saved
    job whole --steps 12
    job half --steps 4 --save saved
    good train --json --resume saved --steps 8
    good train --json --resume saved --steps 12 && mv out rest
    [ ! -s err ] || fail "more steps at a constant rate change no number: $(cat err)"
    same_run whole rest 9
    [ "$(readlink saved/latest)" = step-00000012 ] || fail "latest is $(readlink saved/latest)"
    steps=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' saved/metrics.jsonl | tr '\n' ' ')
    [ "$steps" = "$(seq -s ' ' 12) " ] || fail "steps of metrics.jsonl: $steps"
    [ "$(grep -c '"event":"begin"' saved/events.jsonl)" = 3 ] || fail "$(cat saved/events.jsonl)"
    has saved/job.json '"steps": 12'
    has saved/latest/job.json '"steps": 12'
    choir train --json --resume saved --epochs 1 --lr 0.02 >out 2>err || fail "$(cat err)"
    has err 'lr 0.02 replaces the checkpoint.s 0.001'
    [ "$(readlink saved/latest)" = "step-$(printf %08d "$(field steps out)")" ] ||
        fail "latest is $(readlink saved/latest)"
    has saved/job.json '"epochs": 1' '"lr": 0.02'
    rm -rf other
    good train --json --resume saved --epochs 2 --save other
    [ -e other/latest ] && [ "$(readlink saved/latest)" != "$(readlink other/latest)" ] ||
        fail "--save other: $(readlink saved/latest other/latest)"
}

# DIR/latest is the newest step of a run, which goes on; from the others another run begins, of
# which nothing is kept unless --save says where.
steps_go_on() {
    local from
    rm -rf saved
    job whole --steps 8
    job half --steps 4 --eval-every 2 --save saved --save-every 2 --save-keep 9
    for from in saved/best saved/step-00000002 saved/step-00000002/; do
        noted 'nothing is saved without --save' train --json --resume $from --steps 5
        [ "$(readlink saved/latest)" = step-00000004 ] || fail "$from went on in its folder"
    done
    good train --json --resume saved/latest/ --steps 6
    [ ! -s err ] || fail "$(cat err)"
    [ "$(readlink saved/latest)" = step-00000006 ] || fail "latest is $(readlink saved/latest)"
    cd saved || return
    good train --json --resume latest --steps 8 ../text
    cd .. || return
    [ "$(readlink saved/latest)" = step-00000008 ] || fail "latest is $(readlink saved/latest)"
    mv saved/out rest
    same_run whole rest 7
}

# By another measure nothing has been the best yet.
another_measure() {
    local of=(--model mlp:in=10,hidden=8,classes=4 --lr 0.1 --eval-every 2)
    rm -rf judged
    good train --json "${of[@]}" --steps 8 --best accuracy --save judged random
    noted 'best loss replaces the checkpoint.s accuracy' \
        train --json --resume judged --steps 12 --best loss random
    has judged/events.jsonl '"event":"eval","step":10,.*"best":true'
}

# Other data of the same characters and of the same size are noticed, and moved data found.
data_are_compared() {
    rm -rf saved moved other folder pictures
    job half --steps 4 --save saved
    local hash
    hash=$(sed -n 's/.*"data_sha256": "\(.*\)".*/\1/p' saved/latest/job.json)
    [ "$(sha256sum <text)" = "$hash  -" ] ||
        fail "the hash is not sha256sum's"
    tr 'ab' 'ba' <text >other
    bad 1 'other is not the data that saved was trained on' \
        train --steps 8 --resume saved other
    cp text moved
    good train --quiet --steps 8 --resume saved/step-00000004 moved
    mv text kept && cp other text
    bad 1 'text is not the data' train --steps 8 --resume saved
    mv kept text
    make_idx folder train 60
    make_idx folder t10k 20
    good train --quiet --batch-size 12 --steps 3 --model cnn:width=4 --save pictures folder
    echo of no matter >folder/notes.txt
    good train --quiet --resume pictures --steps 4
    printf x | dd of=folder/t10k-images-idx3-ubyte bs=1 seek=100 conv=notrunc 2>/dev/null
    bad 1 'folder is not the data' train --resume pictures --steps 5
}

# resealed CODE: changes the latest checkpoint as a program in Python says, and its sums.
resealed() {
    CODE=$1 python3 - <<'EOF'
import hashlib, json, os
path = 'saved/latest/'
state = json.load(open(path + 'state.json'), parse_float=lambda digits: f'@{digits}@')
exec(os.environ['CODE'])
del state['sha256']
def text():
    dumped = json.dumps(state, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return dumped.replace('"@', '').replace('@"', '')
state['sha256'] = hashlib.sha256(text().encode()).hexdigest()
open(path + 'state.json', 'w').write(text())
EOF
}

# A checkpoint of a program, or of an older Choir, which multiplied by oneDNN where it had that, has
# no job.json: what it lacks is named.
old_checkpoints_load() {
    rm -rf saved
    if CHOIR_MATH=onednn "$CHOIR" info >info 2>&1; then
        local -x CHOIR_MATH=onednn
    fi
    job whole --steps 8
    job half --steps 4 --save saved
    resealed 'del state["files"]["job.json"]; os.remove(path + "job.json")' ||
        { echo "no python3"; return; }
    local all='--augment, --balance, --skip-batches, --steps, --lr, --lr-for, --schedule'
    all+=', --weight-decay, --clip, --eval-every, --eval-batches, --on-spike'
    noted "all options .*: $all\$" \
        train --json --resume saved --save older text
    noted 'nothing is saved without --save' train --json --resume saved --steps 6 text
    [ "$(readlink saved/latest)" = step-00000004 ] || fail 'it is saved where it was found'
    noted 'defaults: --augment, --balance, --skip-batches, --lr-for, --schedule, --weight-decay, ' \
        train --json --resume saved --save more \
        --threads 1 --steps 8 --lr 1e-3 --clip 0 text && mv out rest
    same_run whole rest 5
}

# another_record CODE: changes the record, `job`, of the latest checkpoint.
another_record() {
    resealed "job = open(path + 'job.json').read()
$1
open(path + 'job.json', 'w').write(job)
state['files']['job.json'] = {'bytes': len(job),
                              'sha256': hashlib.sha256(job.encode()).hexdigest()}"
}

# A record is anyone's: validations after more steps than there are numbers never happen.
numbers_of_a_record() {
    rm -rf saved
    make_text long 6000
    good train --quiet --batch-size 1 --steps 1 --no-eval --eval-every 5 --patience 9 \
        --model "${gpt/context=16/context=8}" --save saved long
    noted 'eval-epochs 1, [0-9]+ steps, replaces' \
        train --quiet --no-eval --resume saved --steps 2 --eval-epochs 1
    steps=$(sed -n 's/.*epochs 1, \([0-9]*\) steps.*/\1/p' err) \
        another_record 'job = job.replace("\"eval-epochs\": 1",
        "\"eval-epochs\": %d" % (2 ** 64 // int(os.environ["steps"]) + 1))' || return 0
    noted 'eval-every 9 is new: the checkpoint has none' \
        train --quiet --no-eval --resume saved --steps 3 --eval-every 9
}

# Kinds of devices differ in the last bits. Here the record says that the first half had GPUs.
devices_are_compared() {
    rm -rf saved
    job half --steps 4 --save saved
    another_record 'job = job.replace("cpu\"", "cuda\"")' || return 0
    noted 'device cpu replaces the checkpoint.s cuda: the numbers .* others' \
        train --json --resume saved --steps 6
    choir train --json --resume saved --steps 8 >out 2>err && [ ! -s err ] ||
        fail "now both are on a CPU: $(cat err)"
}

check resumes_alone
check resumes_alone --strategy ddp --nproc 2
check changes_are_named
check longer_in_place
check steps_go_on
check another_measure
check data_are_compared
check old_checkpoints_load
check devices_are_compared
check numbers_of_a_record
check goes_on single single
check goes_on single single --schedule cosine:steps=20,warmup=4
check goes_on 'ddp --nproc 2' single
check goes_on 'ddp --nproc 2' 'ddp --nproc 3' --schedule cosine:steps=20 --clip 1
check goes_on single 'ddp --nproc 4'
check llama_goes_on
check images_go_on cnn:width=4,image=12
check images_go_on resnet18:width=4,image=16,classes=5,stages=2,small=1
check lstm_goes_on
check goes_on_in_place
check not_written_over
check model_is_remembered
check wrong_resumes_are_errors
check epochs_go_on
check infinite_best
check best_is_kept
check eval_agrees
check generate_writes
finish
