#!/usr/bin/env bash
# Too little memory, full disks, folders without write permission and damaged checkpoints: each
# gives one clear line, and earlier checkpoints stay good.
. "$(dirname "$0")/../lib.sh"
LIMIT=30

make_text text 200
lm=(--batch-size 24 --model "$gpt")

# --- memory -----------------------------------------------------------------------------------

# out_of_memory FILE ARG...: train fails, and reports it in one line.
out_of_memory() {
    choir train --json --steps 5 "${lm[@]}" "$@" text >out 2>err
    local status=$?
    [ $status -eq 1 ] && is_one_line 'out of memory|no memory' || {
        fail "status $status of train $*: $(cat err)"
        return 1
    }
    ! grep -qE 'rank [0-9]+: rank' err || fail "said twice: $(cat err)"
    ! grep -q summary out || fail "a summary in spite of: $(cat err)"
}

# advice_works CAP M ARG...: cut into M micro-batches, the batch does not fit. With the advised
# --microbatches (or --batch-size, if no cut of this batch fits) it does.
advice_works() {
    local cap=$1 cut=$2 advice
    shift 2
    out_of_memory --mem-cap "$cap" --microbatches "$cut" "$@" || return
    is_one_line 'largest micro-batch that fits is [0-9]+ sample' || fail "advice: $(cat err)"
    advice=$(sed -n 's/.*: \(--[a-z-]* [0-9]*\) would do$/\1/p' err)
    [ -n "$advice" ] || { fail "no advice in: $(cat err)"; return; }
    # shellcheck disable=SC2086 # an option and its value; the last of two counts
    good train --json --steps 5 "${lm[@]}" --mem-cap "$cap" --microbatches "$cut" "$@" $advice \
        text || return
    local peak limit
    peak=$(grep -o '"peak_bytes":[0-9]*' out | sed 's/.*://' | sort -n | tail -n 1)
    limit=$(numfmt --from=iec "$cap")
    [ "$peak" -le "$limit" ] || fail "a peak of $peak bytes under a cap of $limit"
}

caps_too_small_for_anything() {
    for cap in 1 1K 20K; do
        out_of_memory --mem-cap $cap && { is_one_line 'one sample' || fail "cap $cap: $(cat err)"; }
    done
    out_of_memory --mem-cap 20K --strategy ddp --nproc 3 &&
        { is_one_line 'one sample' || fail "$(cat err)"; }
    good train --json --steps 5 "${lm[@]}" --mem-cap 1G text
}

# --- disks ------------------------------------------------------------------------------------

job() {
    choir train --json --microbatches 2 "${lm[@]}" "$@" text >out 2>err
}

unwritable_folders() {
    : >file
    bad_save 'save' --save ''
    bad_save 'file' --save file
    bad_save 'file' --save file/below
    bad_save '/proc' --save /proc/nowhere
    [ "$(id -u)" -eq 0 ] && return
    mkdir -m 555 locked
    bad_save 'locked' --save locked/run
}

# bad_save PATTERN ARG...
bad_save() {
    local pattern=$1
    shift
    job --steps 3 "$@"
    local status=$?
    [ $status -eq 1 ] && is_one_line "$pattern" || fail "status $status of $*: $(cat err)"
    ! grep -q summary out || fail "a summary in spite of: $(cat err)"
    # The error comes before the first step, not after hours of training.
    ! grep -q '"event":"step"' out || fail "found out only after $(grep -c step out) steps: $*"
}

# before_stays FOLDER STEP: the save failed in one line, and the checkpoint of STEP is whole.
before_stays() {
    sed -i '/warning: .*cannot write.*jsonl.* without this record$/d' err # has no room either
    is_one_line "$1.*(No space|too large|untouched)" || fail "standard error: $(cat err)"
    [ -z "$(leftovers "$1")" ] || fail "left over: $(leftovers "$1")"
    good eval --json "$1" text
    [ "$(field step out)" = "$2" ] || fail "the checkpoint is of step $(field step out), not $2"
}

leftovers() { find "$1" -name '.new-*' -o -name '*.tmp*' -o -name '.link-*' -o -name '.old-*'; }

full_disk() {
    mkdir small
    mount -t tmpfs -o size=256k tmpfs small 2>/dev/null ||
        { echo 'no tmpfs may be mounted: no full disk'; return; }
    job --steps 2 --save small/run || fail "a first save: $(cat err)"
    head -c 1M /dev/zero >small/filler 2>/dev/null
    job --steps 4 --save small/run --resume small/run && fail 'saved to a full disk'
    before_stays small/run 2
    job --steps 4 --save small/run --resume small/run --strategy ddp --nproc 2 && fail 'saved'
    before_stays small/run 2
    rm small/filler
    job --steps 4 --save small/run --resume small/run || fail "with room again: $(cat err)"
    umount small
}

largest_file() {
    # One rank, because several share memory through a file, which the limit would refuse.
    job --steps 2 --strategy single --save limited || fail "a first save: $(cat err)"
    (ulimit -f 8 && job --steps 4 --strategy single --save limited --resume limited) &&
        fail 'saved beyond ulimit -f'
    before_stays limited 2
}

# --- damage -----------------------------------------------------------------------------------

# damaged PATTERN: every command that reads a checkpoint refuses the one in `broken`.
damaged() {
    bad 1 "$1" eval --json broken text
    bad 1 "$1" generate broken
    bad 1 "$1" train --json --microbatches 2 "${lm[@]}" --steps 9 --resume broken text
    bad 1 "$1" train --json --microbatches 2 "${lm[@]}" --steps 9 --strategy ddp --nproc 2 \
        --resume broken text
}

# damage FILE COMMAND: runs the command on a copy of a good checkpoint, where $f is its file.
damage() {
    rm -rf broken
    cp -a saved broken
    f=broken/step-00000002/$1
    eval "$2"
    damaged "$1"
}

damaged_checkpoints() {
    job --steps 2 --save saved || fail "$(cat err)"
    for file in model.safetensors optimizer.safetensors choir_tokenizer.json state.json; do
        damage $file 'truncate -s -10 $f'
        damage $file ': >$f'
        damage $file 'printf x | dd of=$f bs=1 seek=150 conv=notrunc status=none'
        damage $file 'head -c 400 /dev/urandom >$f'
    done
    damage model.safetensors 'rm $f'
    damage state.json 'rm $f'
    damage optimizer.safetensors 'rm $f; mkdir $f'
    damage model.safetensors 'printf "%b" "\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f" |
        dd of=$f bs=1 conv=notrunc status=none'
}

not_a_checkpoint() {
    rm -rf broken && mkdir broken && damaged 'broken: expected a checkpoint'
    ln -s step-00000009 broken/latest && damaged 'latest'
    rm -rf broken && : >broken && damaged 'broken: expected a checkpoint'
    rm -rf broken && damaged 'cannot open the checkpoint broken'
}

other_checkpoints() {
    good train --json --steps 2 --save toys random
    bad 1 'toy' eval --json toys text
    bad 1 'toy' generate toys
    rm -rf broken
    cp -a saved broken # weights of one model with another's state
    good train --json --microbatches 2 --batch-size 24 --steps 2 --save others \
        --model gpt2:layers=2,heads=2,width=16,context=16 text
    cp others/step-00000002/model.safetensors broken/step-00000002
    damaged 'model.safetensors'
    bad 1 nowhere eval --json saved nowhere
    bad 1 "saved" eval --json saved saved
}

# --- jobs that meet ---------------------------------------------------------------------------

has_folder() { [ -s "$1/.in-use" ]; }
refused='another job has the folder [a-z]+: pid [0-9]+ on '

# A job that lives keeps others out of its folder; one that is gone does not, however it went.
one_job_at_a_time() {
    local long=(train --quiet --no-eval "${lm[@]}" --steps 1000000 --save-every 5)
    start "${long[@]}" --save met --run records text
    await 20 has_folder records || fail "no claim: $(cat err)"
    choir train --quiet "${lm[@]}" --steps 5 --save records text >refused 2>&1 &
    await 20 test -e records/metrics.jsonl || fail 'no records'
    bad 1 'records of another run' train --quiet "${lm[@]}" --steps 5 --run records text
    await 20 test -e met/latest || fail 'no checkpoint'
    bad 1 "$refused" train --resume met
    wait $! && fail 'a second job in a folder'
    has refused 'note: waits 5 s for the end of the job of pid' "$refused"
    kill -KILL "$started_pid" && wait "$started_pid" 2>/dev/null
    has_folder met || fail 'a killed job has cleared up'
    choir train --quiet --resume met --max-time 0.1s >out 2>err || fail "after a kill: $(cat err)"
    [ ! -e met/.in-use ] || fail 'a job that has ended still has its folder'
    start "${long[@]}" --strategy ddp --nproc 2 --save ranks text
    await 20 test -e ranks/latest || fail "no checkpoint: $(cat err)"
    kill -KILL "$started_pid" && wait "$started_pid" 2>/dev/null # its ranks end a moment later
    choir train --quiet --resume ranks --max-time 0.1s >out 2>err || fail "ranks: $(cat err)"
    started_pid=
}

# Of jobs that start together one has the folder, and the others say so.
one_of_four() {
    local i job jobs=()
    rm -rf met
    for i in 1 2 3 4; do
        "$CHOIR" train --quiet --no-eval "${lm[@]}" --seed $i --steps 1000000 --save met text \
            >out$i 2>err$i &
        jobs+=($!)
    done
    await 30 three_refused && await 30 one_is_left || fail "not one of four: $(cat err[1-4])"
    for job in "${jobs[@]}"; do
        kill -TERM "$job" 2>/dev/null
    done
    for job in "${jobs[@]}"; do
        wait "$job"
        echo $?
    done >statuses
    [ "$(sort statuses | tr '\n' ' ')" = '1 1 1 143 ' ] || fail "exit statuses $(cat statuses)"
}
one_is_left() { [ "$(jobs -rp | wc -l)" = 1 ]; } # a job ends a moment after its sentence
three_refused() { [ "$(grep -l 'another job has the folder met' err[1-4] | wc -l)" = 3 ]; }

claimed_anew() { has_folder agents && ! cmp -s <(grep token before) <(grep token agents/.in-use); }
saved_anew() { ! readlink agents/latest | cmp -s last -; }

# Between two generations of an agent's ranks nobody else gets in.
agents_keep_it() {
    start run --max-restarts 1 sh -c 'if [ $CHOIR_GENERATION = 2 ]; then
            touch again; until [ -e go ]; do sleep 0.02; done; fi
        exec "$0" "$@"' "$CHOIR" train --quiet --no-eval "${lm[@]}" --steps 1000000 \
        --save-every 5 --save agents text
    await 20 test -e agents/latest || fail "no checkpoint: $(cat err)"
    pkill -KILL -P "$(sed -n 's/^pid //p' agents/.in-use)" # the rank of this agent
    await 20 test -e again || fail "not started again: $(cat err)"
    cp agents/.in-use before
    bad 1 'another job has the folder agents: pid' train --resume agents
    readlink agents/latest >last
    touch go
    await 20 claimed_anew || fail 'the second generation does not claim the folder'
    await 20 saved_anew || fail 'the second generation does not save'
    kill -TERM "$started_pid"
    ended 30
    [ ! -e agents/.in-use ] || fail 'after the last restart the folder is not given back'
}

# The first checkpoint counts when the process died before it made the link latest.
first_checkpoint() {
    rm -rf first
    job --steps 2 --save first || fail "$(cat err)"
    rm first/latest
    bad 1 'holds a run already' train --json "${lm[@]}" --steps 1 --save first text
    good eval --json first text
    [ "$(field step out)" = 2 ] || fail "step $(field step out)"
    job --steps 3 --resume first --save first || fail "$(cat err)"
    good eval --json first text
    [ "$(field step out)" = 3 ] || fail "step $(field step out)"
}

check one_job_at_a_time
check one_of_four
check agents_keep_it
check first_checkpoint
check caps_too_small_for_anything
check advice_works 200K 1
check advice_works 400K 1
check advice_works 600K 1
check advice_works 300K 2 --strategy ddp --nproc 2
check unwritable_folders
check full_disk
check largest_file
check damaged_checkpoints
check not_a_checkpoint
check other_checkpoints
finish
