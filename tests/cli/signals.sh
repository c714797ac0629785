#!/bin/bash
# Signals: one table for jobs of one process, of ranks, of ranks that are replaced, and under
# choir run. No signal, and no validation, costs a step that is done.
. "$(dirname "$0")/lib.sh"

lm=(--model gpt2:layers=1,heads=2,width=32,context=32 --bytes --batch-size 4 --microbatches 2
    --no-eval --quiet --steps 100000000 --save run text)
make_text text 2000

number() { kill -l "$1"; }
step_of() { readlink run/latest; }
has_step() { [ "$(readlink run/latest)" = "step-$(printf %08d "$1")" ]; }
steps_are_recorded() { grep -q '"loss"' run/metrics.jsonl; }

# begin WAY...: a job, some steps in.
begin() {
    rm -rf run
    start "$@" "${lm[@]}"
    await 20 steps_are_recorded 2>/dev/null || fail "no steps of $*: $(cat err)"
}

# table LAST WAY...: USR2 shows, USR1 saves, and both go on; LAST saves and ends.
table() {
    local last=$1 way="${*:2}"
    shift
    begin "$@"
    kill -USR2 "$started_pid"
    await 10 grep -q 'group world' err || fail "no report of $way: $(cat err)"
    [ ! -e run/latest ] || fail "USR2 saves $way"
    kill -USR1 "$started_pid"
    await 10 test -e run/latest || fail "USR1 does not save $way"
    ! is_gone "$started_pid" || fail "USR1 ends $way: $(cat err)"
    local before
    before=$(step_of)
    kill "-$last" "$started_pid"
    ended 10
    [ "$status" -eq $((128 + $(number "$last"))) ] || fail "status $status after $last of $way"
    has err 'interrupted'
    [[ $(step_of) > $before ]] || fail "$last does not save $way: $(step_of) after $before"
    has run/events.jsonl "\"event\":\"stop\",.*\"signal\":\"SIG$last\"" '"event":"interrupted"'
}

# QUIT ends at once, says what is lost, and loses nothing that is saved.
quit() {
    begin "$@"
    kill -USR1 "$started_pid"
    await 10 test -e run/latest || fail 'USR1 does not save'
    kill -QUIT "$started_pid"
    ended 10
    [ "$status" -eq $((128 + $(number QUIT))) ] || fail "status $status"
    has err '^choir train: ended at once by SIGQUIT; .*(are lost|was not finished)'
    good eval --json run text
}

# So does a rank that has become rank 0: it knows the checkpoint that it has not written itself.
quit_of_heir() {
    local way=(train --strategy ddp --nproc 2 --max-restarts 1) lines
    begin "${way[@]}"
    kill -TERM "$started_pid"
    ended 10
    lines=$(wc -l <run/metrics.jsonl)
    start "${way[@]}" --resume run "${lm[@]}"
    await 20 has_more "$lines" || fail "no steps: $(cat err)"
    kill -KILL "$(children | head -n 1)"
    await 10 grep -q 'continue from step' err || fail "no other rank 0: $(cat err)"
    kill -QUIT "$started_pid"
    ended 10
    has err 'ended at once by SIGQUIT; steps after [1-9][0-9]*, the newest'
}
has_more() { [ "$(wc -l <run/metrics.jsonl)" -gt "$1" ]; }

# A disk that takes no file before there is `go`.
slow_disk() {
    cat >slow.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int fd)
{
    while (access("go", F_OK))
        usleep(1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
END
    ${CC:-cc} -shared -fPIC -o slow.so slow.c -ldl
}

is_saving() { compgen -G 'run/.new-*' >/dev/null; }

# saving "SIGNAL..." STATUS PATTERN WAY...: signals more than a second apart, during a save, which
# ends after the last one.
saving() {
    local signals=$1 want=$2 pattern=$3 pause=0
    shift 3
    touch go
    ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 LD_PRELOAD=$PWD/slow.so begin "$@"
    rm go
    for signal in $signals; do
        sleep $pause
        kill "-$signal" "$started_pid" 2>/dev/null
        await 10 is_saving || fail "$signal: no save"
        pause=1.1
    done
    case $signals in
    *INT) insist INT ;;
    *QUIT) await 10 is_gone "$started_pid" ;;
    esac
    touch go
    ended 20
    [ "$status" -eq "$want" ] || fail "status $status after $signals of $*"
    has err "$pattern"
}
second_one_waits() {
    saving 'TERM HUP' 143 'interrupted after step [0-9]+; saved to run' "$@"
    [ -e run/latest ] && ! is_saving || fail "the save was cut short: $(ls -A run)"
}
second_int_tells() {
    saving 'INT INT' 130 'by SIGINT; the checkpoint of step [0-9]+ was not finished; there' "$@"
}

# Behind the time of --grace, ranks that cannot end by themselves are ended.
overdue() {
    saving_begins --grace 2 "$@"
    kill -TERM "$started_pid"
    ended 4
    touch go
    [ "$status" -eq 143 ] || fail "status $status: $(cat err)"
    has err 'rank . .pid [0-9]+. was killed by SIGKILL .Killed.: it had not ended after 2 s'
}
saving_begins() {
    touch go
    ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 LD_PRELOAD=$PWD/slow.so \
        begin train "$@"
    rm go
    kill -USR1 "$started_pid"
    await 10 is_saving || fail 'no save'
}

# A rank that was stopped is woken by the signal that ends the job.
stopped_rank() {
    begin train "$@"
    kill -STOP "$(children | tail -n 1)"
    sleep 0.3
    kill -TERM "$started_pid"
    ended 10
    [ "$status" -eq 143 ] || fail "status $status: $(cat err)"
    has err 'interrupted after step [0-9]+; saved to run'
}

# A signal that comes while ranks start has its number in the status, whenever it comes. A shell
# that is about to become the command may lose one.
is_command() { [ "/proc/$started_pid/exe" -ef "$CHOIR" ]; }
while_ranks_start() {
    for ms in 000 020 050 080 110; do
        rm -rf run
        start train --strategy ddp --nproc 2 "${lm[@]}"
        await 10 is_command || fail 'it does not start'
        sleep 0.$ms
        kill -TERM "$started_pid"
        ended 10
        [ "$status" -eq 143 ] || fail "status $status after $ms ms: $(cat err)"
    done
}

# A rank that crashes in place of ending is reported, and so the job has failed.
crashes_when_told() {
    begin train --strategy ddp --nproc 2
    local rank
    rank=$(children | tail -n 1)
    kill -STOP "$rank"
    kill -TERM "$started_pid"
    kill -ABRT "$rank" # comes before SIGTERM, whose number is higher
    kill -CONT "$rank"
    ended 10
    [ "$status" -eq 1 ] || fail "status $status: $(cat err)"
    has err "interrupted; rank 1 \(pid $rank\) was killed by SIGABRT"
}

# Ranks that step apart do not wait for a meeting in an hour.
before_a_meeting() {
    begin train --nproc 2 --strategy diloco:every=1000000
    kill -TERM "$started_pid"
    sleep 1.2
    insist TERM
    ended 20
    [ "$status" -eq 143 ] || fail "status $status: $(cat err)"
    has err 'interrupted after step [0-9]+; saved to run'
}

# A job whose standard input has stalled.
stalled_input() {
    rm -rf run stall
    mkfifo stall
    set -m
    "$CHOIR" train "$@" "${lm[@]:0:${#lm[@]}-1}" - <stall >out 2>err &
    started_pid=$!
    set +m
    exec {feed}>stall
    head -c 40000 text >&"$feed"
    await 20 steps_are_recorded 2>/dev/null || fail "no steps: $(cat err)"
    kill -TERM "$started_pid"
    ended 10
    exec {feed}>&-
    [ "$status" -eq 143 ] || fail "status $status: $(cat err)"
    has err 'interrupted after step [0-9]+; saved to run'
}

# --- validation -------------------------------------------------------------------------------

# Its validation takes minutes.
long=(--json --model gpt2:layers=4,heads=4,width=128,context=64 --bytes --batch-size 4
    --microbatches 2 --val-split 0.9 --save run much)

due() { sed -n 's/.*"eval_due": \([0-9]*\).*/\1/p' run/latest/state.json; }

# ended_validation DUE WAY...: TERM ends the validation behind step 4, which is saved.
ended_validation() {
    local due=$1
    shift
    [ -e much ] || for _ in {1..60}; do cat text; done >much
    rm -rf run
    start train "$@" "${long[@]}"
    await 30 has_step 4 || fail "the step is not saved before its validation: $(cat err)"
    kill -TERM "$started_pid"
    ended 5
    [ "$status" -eq 143 ] || fail "status $status of $*: $(cat err)"
    has err 'interrupted after step 4; saved to run'
    has_step 4 && [ "$(due)" = "$due" ] || fail "$(step_of), eval_due is $(due)"
}

# A job that is resumed there begins with the validation, and does not save the step again.
saved_once() {
    ended_validation 1 --steps 1000 --eval-every 4 --save-every 4 --save-keep 9 "$@"
    local folder
    folder=$(stat -c %i run/step-00000004)
    choir train --json --resume run --steps 5 --eval-batches 1 --no-eval >out 2>err ||
        fail "status $?: $(cat err)"
    has out '"event":"eval","step":4'
    [ "$(stat -c %i run/step-00000004)" = "$folder" ] || fail "step 4 is saved again: $*"
    has_step 5 || fail "$(step_of)"
}

# --max-time ends it, too, and no other one follows.
time_ends_validation() {
    local s
    for s in 1 5 25; do # a busy machine may not come to the validation in the first of them
        rm -rf run
        LIMIT=$((10 + s)) choir train --max-time ${s}s --steps 1000 --eval-every 4 "${long[@]}" \
            >out 2>err || fail "status $? with $s s: $(cat err)"
        ! has_step 4 || break
    done
    drop_notes
    [ ! -s err ] || fail "said: $(cat err)"
    has out '"event":"stop","step":4,"by":"max-time"' '"event":"end","step":4,"by":"max-time"' \
        '"event":"summary".*"eval_loss":null'
    has_step 4 && [ "$(due)" = 1 ] || fail "$(step_of), eval_due is $(due)"
}

# rates_and_scores FILE...: every validation, the rate of each step, and the weights.
rates_and_scores() {
    cat "$@" | sed -nE 's/.*("event":"eval".*)/\1/p; s/.*("step":[0-9]+),.*("lr":.*)/\1\2/p'
    cat "$@" | grep -o '"weights_sha256":"[0-9a-f]*"'
}

# A job that is resumed from a step whose validation was ended, or did not begin, validates first:
# plateau, best, patience and records are those of the undisturbed job.
made_up_for() {
    local at=$1 job=(train --json --model gpt2:layers=1,heads=2,width=32,context=32 --bytes
        --batch-size 8 --microbatches 4 --steps 24 --eval-every 6 --save-every 6 --seed 1
        --schedule plateau:factor=0.5,patience=1,threshold=0.3 --patience 3)
    shift
    rm -rf run
    if [ ! -e calm ]; then
        good "${job[@]}" --strategy single --save calm text && rates_and_scores out >quiet
    fi
    start "${job[@]}" "$@" --save run text
    await 20 has_step "$at" || fail "no checkpoint of step $at: $(cat err)"
    kill -TERM "$started_pid" 2>/dev/null
    ended 10
    mv out first
    [ "$status" -eq 143 ] || return 0 # it had ended before the signal came
    good train --json --resume run || return
    rates_and_scores first out | diff quiet - >diff || fail "after step $at: $(head -5 diff)"
    [ "$(readlink run/best)" = "$(readlink calm/best)" ] || fail "best: $(readlink run/best)"
    diff <(evals calm) <(evals run) || fail 'other records'
}
evals() { grep '"event":"eval"' "$1/events.jsonl" | sed 's/"time":[^,]*,//; s/,"eval_s":[^}]*//'; }

# A resumed job validates first, however slow its disk is.
saves_what_it_validates() {
    local job=(train --json --model gpt2:layers=1,heads=2,width=32,context=32 --bytes
        --batch-size 8 --microbatches 2 --eval-every 6 --save-every 6 --val-split 0.9) try
    cat text text text text >more
    for try in {1..9}; do # until it is killed in its validation
        rm -rf run
        touch go
        start "${job[@]}" --steps 9 --save run more
        await 20 has_step 6
        kill -KILL "$started_pid" 2>/dev/null
        ended 10 2>/dev/null
        [ "$(due)" != 1 ] || break
    done
    [ "$(due)" = 1 ] || fail "after $try tries"
    rm go
    ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 LD_PRELOAD=$PWD/slow.so \
        start train --json --steps 9 --resume run
    await 20 grep -q '"event":"eval"' out || fail "it does not validate: $(cat err)"
    sleep 6 # longer than a save waits for another one
    touch go
    ended 10
    [ "$status" -eq 0 ] && ! grep -q warning err || fail "status $status: $(cat err)"
}

# A validation that cannot read its data costs no step.
broken_validation() {
    python3 - <<'END'
import os, struct, zlib
def png(path, colour, cut=0):
    def chunk(kind, data):
        all = kind + data
        return struct.pack(">I", len(data)) + all + struct.pack(">I", zlib.crc32(all))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress((b"\0" + bytes(colour) * 16) * 16)) + chunk(b"IEND", b"")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(data[:len(data) - cut])
for name, colour in (("blue", (0, 0, 200)), ("red", (200, 0, 0))):
    for i in range(12):
        png("images/train/%s/%02d.png" % (name, i), colour)
    for i in range(4):
        png("images/val/%s/%02d.png" % (name, i), colour)
png("images/val/red/99.png", (200, 0, 0), 30)
END
    local job=(train --model cnn:image=16,channels=3,width=4 --batch-size 8 --microbatches 4
        --steps 8 --save run --quiet images)
    for way in '--strategy ddp --nproc 2' '--strategy single --eval-every 4' \
        '--strategy ddp --nproc 2 --eval-every 4 --save-every 4'; do
        local last=8
        [[ $way != *eval-every* ]] || last=4
        rm -rf run
        # shellcheck disable=SC2086
        bad 1 "validation after step $last: .*99.png is cut short.*; the step is saved to run" \
            "${job[@]}" $way
        has_step $last || fail "$way: $(ls run)"
    done
}

check table XCPU train --strategy single
check table HUP train --strategy ddp --nproc 2
check table TERM train --strategy fsdp --nproc 2 --max-restarts 1
check table INT run -n 2 --signals-to-handle SIGUSR1,SIGUSR2 "$CHOIR" train --strategy ddp
check quit train --strategy single
check quit train --strategy ddp --nproc 2
check quit_of_heir
if slow_disk; then
    check second_one_waits train --strategy ddp --nproc 2
    check second_int_tells train --strategy ddp --nproc 2
    check overdue --strategy ddp --nproc 2
    check saving 'TERM QUIT' 143 'by SIGQUIT after SIGTERM; the checkpoint of' train --strategy ddp
fi
check stopped_rank --strategy ddp --nproc 2
check stopped_rank --strategy ddp --nproc 2 --max-restarts 1
check while_ranks_start
check crashes_when_told
check before_a_meeting
check stalled_input --strategy ddp --nproc 2
check saved_once --strategy single
check saved_once --strategy ddp --nproc 2
check ended_validation 2 --steps 4 --strategy fsdp --nproc 2
check time_ends_validation
check made_up_for 24 --strategy single
check made_up_for 12 --strategy ddp --nproc 2
[ ! -e slow.so ] || check saves_what_it_validates
check broken_validation
finish
