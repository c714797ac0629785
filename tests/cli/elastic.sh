#!/usr/bin/env bash
# --max-restarts: ranks of choir train are killed or stopped, at random moments; the job goes on and
# ends with the losses and weights of an undisturbed one, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"

make_text text 200
seed=${CHOIR_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed"
job=(train --model "$gpt" --batch-size 24 --microbatches 6 --steps 300
    --eval-every 100 --eval-batches 2
    --json text)
weights() { grep -o 'weights_sha256":"[0-9a-f]*' "$1"; }
losses() { grep -o '"event":"\(step\|eval\)","step":[0-9]*,"loss":[^,}]*' "$1"; }

# struck SIGNAL LINES RANKS OPTION...: strikes a random rank once LINES lines are out. `strategy`
# and `calm`, a file with the output of an undisturbed job, say which job.
strategy=ddp
calm=calm
struck() {
    local signal=$1 after=$2 world=$3
    shift 3
    shared=$(shared_files)
    start_until "$after" "${job[@]}" --strategy "$strategy" --nproc "$world" --max-restarts 2 \
        "$@" || return
    mapfile -t ranks < <(children)
    [ ${#ranks[@]} -ge "$world" ] || fail "${#ranks[@]} ranks, not $world: $(cat err)" || return
    kill -"$signal" "${ranks[RANDOM % world]}"
    end_started
    [ $? -eq 0 ] || fail "$strategy, $signal after $after lines: exit status, $(cat err)" || return
    grep -q '"event":"membership","generation":2' out || fail "no membership event: $(cat err)"
    grep -q "continue from step" err || fail "nothing on standard error"
    [ "$(weights out)" = "$(weights $calm)" ] ||
        fail "$strategy, $signal after $after: other weights: $(cat err)"
    diff <(losses $calm) <(losses out) >/dev/null ||
        fail "$strategy, $signal after $after: other losses"
    [ "$(shared_files)" = "$shared" ] || fail "/dev/shm has $(shared_files), it had $shared"
}

killed() {
    for i in 1 2; do
        struck KILL $((1 + RANDOM % 150)) $((2 + RANDOM % 2)) || return
    done
}
stopped() { struck STOP 20 2 --timeout 2; }
with_saves() { struck KILL $((1 + RANDOM % 150)) 3 --save out.saved --save-every 50 --timeout 60; }

# All ranks of ddp die at once, and with them the state: the job goes on from its checkpoint, with
# the same bits, or says that it has none. The first death and the return are the two restarts.
all_at_once() {
    local save
    for save in '' '--save all.saved --save-every 50'; do
        # shellcheck disable=SC2086 # options and their values
        start_until 60 "${job[@]}" --strategy ddp --nproc 2 --max-restarts 2 $save || return
        [ -z "$save" ] || await 20 test -e all.saved/latest || fail 'no checkpoint'
        mapfile -t ranks < <(children)
        kill -STOP "$started_pid" # the supervisor sees both deaths at once
        kill -KILL "${ranks[@]}"
        kill -CONT "$started_pid"
        end_started
        local status=$?
        [ -n "$save" ] || { [ $status -eq 1 ] && has err "none has the job's state; with --save"; }
    done
    [ $status -eq 0 ] || fail "status $status: $(cat err)"
    has err "none has the job's state: the job continues from step [0-9]+ of all.saved"
    [ "$(weights out)" = "$(weights calm)" ] || fail 'other weights'
    diff <(losses calm) <(losses out) >/dev/null || fail 'other losses'
    rm -rf all.saved
}

# The only rank that has the state dies again and again: to go back to a checkpoint is a restart,
# and there is but one.
always_the_one() {
    start "${job[@]}" --steps 100000000 --strategy ddp --nproc 2 --microbatches 1 \
        --max-restarts 1 --save one.saved --save-every 1
    await 20 test -e one.saved/latest || fail 'no checkpoint'
    kill -KILL "$(children | head -n 1)"
    await 20 grep -q 'continues from step' err || fail "no return: $(cat err)"
    await 20 test -n "$(children)" || fail 'no rank'
    kill -KILL "$(children | head -n 1)"
    ended 20
    [ "$status" -eq 1 ] || fail "status $status: $(cat err)"
    [ "$(grep -c 'continues from step' err)" -eq 1 ] || fail "$(cat err)"
    rm -rf one.saved
}

# Ranks that are rebuilt: shards have the numbers of one rank; the other strategies have numbers
# of their own.
rebuilt() {
    local strategy
    strategy=fsdp:stage=$((1 + RANDOM % 3))
    struck KILL $((1 + RANDOM % 150)) $((2 + RANDOM % 2)) || return
    strategy=fsdp
    struck STOP 20 3 --timeout 2 || return
    strategy=fsdp:stage=2
    struck KILL $((1 + RANDOM % 150)) 3 --save rebuilt.saved --save-every 50 --timeout 60 || return
}
rebuilt_as_many() {
    local strategy calm=calm.other world more
    while read -r world strategy more; do
        sampled 3 || continue
        # shellcheck disable=SC2086
        choir "${job[@]}" --strategy $strategy --nproc "$world" $more >$calm 2>err ||
            fail "undisturbed $strategy: $(cat err)"
        # shellcheck disable=SC2086
        struck KILL $((1 + RANDOM % 150)) "$world" $more || return
    done <<'END'
2 tp
2 cp:exchange=keys
2 pipeline
2 diloco:every=20
3 local-sgd:every=10,workers=6
3 local-sgd:every=10,warmup=30
4 ddp+pipeline --mesh 2x2
4 ddp+tp --mesh 2x2
4 ddp+cp --mesh 2x2
4 fsdp+tp --mesh 2x2
4 fsdp+cp --mesh 2x2
END
}

# Nobody reads, so rank 0 waits with a line that the pipe does not take, and is killed then. The
# line is there once.
killed_while_writing() {
    local strategy more
    while read -r strategy more; do
        # shellcheck disable=SC2086
        start_until 5 "${job[@]}" --strategy $strategy --max-restarts 2 $more || return
        kill_waiting_rank_0
        end_started
        [ $? -eq 0 ] || fail "$strategy: exit status, $(cat err)" || return
        grep -q '"event":"membership"' out || fail "$strategy: no rank was lost: $(cat err)"
        diff <(losses calm) <(losses out) >lines || fail "$strategy: other losses: $(cat lines)"
    done <<'END'
ddp --nproc 2
fsdp --nproc 2
END
}

# The same with lines of validations alone, which the other ranks have behind them by then.
killed_with_a_validation() {
    local job=(train --model toy --batch-size 8 --microbatches 2 --steps 400 --log-every 1000
        --eval-every 1 --eval-batches 1 --json random)
    choir "${job[@]}" --strategy single >calm.judged 2>err || fail "undisturbed: $(cat err)"
    start_until 5 "${job[@]}" --strategy ddp --nproc 2 --max-restarts 2 || return
    kill_waiting_rank_0
    end_started
    [ $? -eq 0 ] || fail "exit status, $(cat err)" || return
    grep -q '"event":"membership"' out || fail "no rank was lost: $(cat err)"
    diff <(evals calm.judged) <(evals out) >lines || fail "other validations: $(cat lines)"
}
evals() { grep '"event":"eval"' "$1" | sed 's/"eval_s":[^,}]*//'; }

# Kills rank 0 when it has slept for a while; on a busy machine one that computes stands still, too.
kill_waiting_rank_0() {
    local before='' now slept=0
    while [ $slept -lt 3 ]; do
        now=$(state_of_rank_0) || return
        [[ $now = S* && $now = "$before" ]] && slept=$((slept + 1)) || slept=0
        before=$now
        sleep 0.2
    done
    kill -KILL "$(children | head -n 1)"
}
state_of_rank_0() { cut -d ' ' -f 3,14,15 "/proc/$(children | head -n 1)/stat"; }

# A step that gradients' scale has not survived is skipped, so the scale is a part of the state.
scaled() {
    local job=("${job[@]}" --amp fp16) calm=calm.scaled strategy
    choir "${job[@]}" --strategy single >$calm 2>err || fail "undisturbed: $(cat err)"
    for strategy in ddp fsdp; do
        struck KILL $((1 + RANDOM % 150)) 2 || return
    done
}

# Without copies, the job goes on from its last checkpoint, or says that there is none.
no_copy() {
    local strategy=fsdp
    struck KILL $((60 + RANDOM % 90)) 2 --no-copy --save kept --save-every 20 || return
    rm -rf kept
    start_until 20 "${job[@]}" --strategy fsdp --nproc 2 --max-restarts 1 --no-copy --save kept ||
        return
    mapfile -t ranks < <(pgrep -P "$started_pid")
    kill -KILL "${ranks[0]}"
    end_started
    [ $? -eq 1 ] || fail "exit status without a checkpoint: $(cat err)"
    grep -q 'kept has no checkpoint of this job yet' err || fail "$(cat err)"
}

# in_group LEFT ARG...: the command in a control group of either version that has 1 GB, and LEFT
# bytes of it left: files of a mount that only the command sees.
in_group() {
    local used=$((1000000000 - $1))
    shift
    mkdir -p groups/memory
    echo 1000000000 | tee groups/memory.max groups/memory/memory.limit_in_bytes >/dev/null
    echo $used | tee groups/memory.current groups/memory/memory.usage_in_bytes >/dev/null
    timeout $((60 * patience)) unshare -m \
        sh -c 'mount --bind groups /sys/fs/cgroup && exec "$0" "$@"' "$CHOIR" "$@" >out 2>err
}

# The limit of a control group would have a rank killed, in place of an error: ranks ask before.
control_group() {
    local job=(train --model "$gpt" --batch-size 8 --microbatches 2 --steps 4 text)
    unshare -m sh -c 'mount --bind . /sys/fs/cgroup' 2>/dev/null ||
        { echo 'nothing may be mounted: no control group'; return; }
    grep -qE '^(0::|[0-9]+:([a-z,]*,)?memory)' /proc/self/cgroup || { echo 'no groups'; return; }
    in_group 900000000 "${job[@]}" --strategy fsdp --nproc 2 --max-restarts 1 ||
        fail "status in a large group: $(cat err)"
    ! grep -q 'no copies' err || fail "a group with room: $(cat err)"
    in_group 1000 "${job[@]}" --strategy fsdp --nproc 2 --max-restarts 1 ||
        fail "status in a small group: $(cat err)"
    has err "no copies .* are kept: .* the control group has 0 MB of memory left, .* --no-copy"
}

# A checkpoint has the states of all workers: where no copies are kept, the job goes on from it. The
# limit that keeps copies away is lifted before the loss: where the new process comes late, one rank
# alone writes the states of both workers, into a file that is larger than a copy.
lacking() {
    local most pid job=(train --model gpt2:layers=2,heads=2,width=64,context=16 --batch-size 6
        --microbatches 6 --steps 300 --json text)
    most=$(ulimit -S -f)
    trap '' XFSZ
    ulimit -S -f 1500
    start_until 40 "${job[@]}" --strategy diloco:every=10 --nproc 2 --max-restarts 1 \
        --save lacking --save-every 20
    trap - XFSZ
    ulimit -S -f "$most"
    await 10 test -e lacking/latest || fail "no save: $(cat err)"
    mapfile -t ranks < <(children)
    for pid in "$started_pid" "${ranks[@]}"; do
        prlimit --pid "$pid" --fsize="$(prlimit --pid $$ --fsize -o HARD --noheadings --raw)":
    done
    kill -KILL "${ranks[1]}"
    end_started
    [ $? -eq 0 ] || fail "exit status without copies: $(cat err)"
    has err 'no copies of the ranks. state are kept'
    choir "${job[@]}" --strategy diloco:every=10 --nproc 2 >calm.lacking 2>err ||
        fail "undisturbed: $(cat err)"
    [ "$(weights out)" = "$(weights calm.lacking)" ] || fail 'other weights without copies'
}

# A validation for which one rank has no memory costs that rank alone, whether the others wait for
# its part of a forward or for its next question. Memory is asked for as the validation begins.
validates_without_memory() {
    local strategy job=(train --model gpt2:layers=2,heads=2,width=16,context=16 --batch-size 6
        --microbatches 6 --steps 120 --eval-every 60 --eval-batches 2 --json text)
    for strategy in pipeline ddp; do
        choir "${job[@]}" --strategy $strategy --nproc 2 >calm.validates 2>err ||
            fail "undisturbed: $(cat err)"
        start_until 5 "${job[@]}" --strategy $strategy --nproc 2 --max-restarts 2
        mapfile -t ranks < <(children)
        prlimit --pid "${ranks[0]}" --as=1000000
        end_started
        [ $? -eq 0 ] || fail "$strategy: exit status: $(cat err)"
        has err "rank 0 .pid ${ranks[0]}. (exited with status 1|was killed)"
        [ "$(weights out)" = "$(weights calm.validates)" ] || fail "$strategy: other weights"
    done
}

# have_left PID...: these ranks have left their generation, and closed what they shared.
have_left() {
    local pid
    for pid; do
        ! ls -l "/proc/$pid/fd" 2>/dev/null | grep -q '/memfd:choir (deleted)' || return
    done
}

# lose_one_of_three OPTION...: starts a job, kills rank 1, and lets the supervisor see that when the
# others have left their generation, so that they begin the next one while the new process starts:
# it has that process at low priority on a core that is busy, where it comes later. Returns the
# job's exit status.
lose_one_of_three() {
    local drain core busy
    core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
    start_until 30 "$@"
    mapfile -t ranks < <(children)
    kill -STOP "${ranks[1]}" "$started_pid"
    taskset -cp "$core" "$started_pid" >/dev/null
    renice -n 19 "$started_pid" >/dev/null
    timeout 20 taskset -c "$core" sh -c 'while :; do :; done' &
    busy=$!
    cat <&"$lines" >>out &
    drain=$!
    kill -KILL "${ranks[1]}"
    await 10 have_left "${ranks[0]}" "${ranks[2]}" || fail "ranks stay: $(cat err)"
    kill -CONT "$started_pid"
    await 10 grep -q '"event":"membership"' out
    kill "$busy"
    wait "$drain"
    end_started
}

# Two ranks need more memory for a copy than three, and here get none: they go on without copies.
# The third one comes back when a checkpoint is saved, and all go on from that, not from the copies
# of before. Where it was there at once, all is tried again. A limit on the length of files is one
# on copies; shared memory is a little shorter.
little_room() {
    local most from status try
    local job=(train --model gpt2:layers=2,heads=2,width=128,context=16 --batch-size 6
        --microbatches 6 --steps 200 --json text)
    choir "${job[@]}" --strategy single >calm.wide 2>err || fail "undisturbed: $(cat err)"
    most=$(ulimit -S -f)
    trap '' XFSZ
    ulimit -S -f 2344
    for try in 1 2 3 4 5; do
        rm -rf wide
        lose_one_of_three "${job[@]}" --strategy fsdp --nproc 3 --max-restarts 1 --save wide \
            --save-every 20
        status=$?
        grep -q '"generation":2,"step":[0-9]*,"world":3' out || break
    done
    trap - XFSZ
    ulimit -S -f "$most"
    [ $status -eq 0 ] || fail "exit status: $(cat err)" || return
    has err "no copies of the ranks' state are kept: .* cannot keep a copy of [0-9]+ bytes"
    mapfile -t from < <(sed -n 's/.*"membership","generation":[0-9]*,"step":\([0-9]*\).*/\1/p' out)
    [ ${#from[@]} -eq 2 ] && [ "${from[1]}" -gt "${from[0]}" ] && [ $((from[1] % 20)) -eq 0 ] ||
        fail "they go on from steps ${from[*]} ($try): $(cat err)"
    [ "$(weights out)" = "$(weights calm.wide)" ] || fail "other weights: $(cat err)"
}

# A failure of an older generation that was got over is not the cause of the job's end: no save
# succeeds, and the ranks that begin again find nothing to go on from.
newest_cause() {
    mkdir small
    mount -t tmpfs -o size=16k tmpfs small 2>/dev/null ||
        { echo 'no tmpfs may be mounted: no full disk'; return; }
    choir "${job[@]}" --strategy fsdp --nproc 2 --no-copy --max-restarts 2 --save small \
        --save-every 5 >out 2>err && fail 'a full disk, and status 0'
    umount small
    grep -q 'small has no checkpoint of this job yet' err || fail "the cause: $(cat err)"
}

# A spare knows nothing of a save that is under way when a rank is lost, and yet takes part in its
# repetition.
saves_with_a_spare() {
    local two=("${job[@]}" --microbatches 2 --strategy ddp)
    choir "${two[@]}" --strategy single >calm.two 2>err || fail "undisturbed: $(cat err)"
    start_until 80 "${two[@]}" --nproc 3 --max-restarts 1 --timeout 60 --save two \
        --save-every 40 || return
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[RANDOM % 2]}"
    end_started
    [ $? -eq 0 ] || fail "exit status: $(cat err)" || return
    [ "$(weights out)" = "$(weights calm.two)" ] || fail "other weights: $(cat err)"
}

# on_slow_disk LINES OPTION...: starts a job of two ranks on a disk on which each file takes 30 ms,
# and kills one of them once LINES lines are out.
on_slow_disk() {
    local after=$1
    shift
    cat >slow.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
typedef int sync_fn(int fd);
int fsync(int fd)
{
    usleep(30000);
    return ((sync_fn *)dlsym(RTLD_NEXT, "fsync"))(fd);
}
END
    [ -e slow.so ] || ${CC:-cc} -shared -fPIC -o slow.so slow.c -ldl || return 77
    ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 LD_PRELOAD=$PWD/slow.so \
        start_until "$after" "$@" --nproc 2 --max-restarts 2
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[RANDOM % 2]}" || fail 'no rank was there'
}
still=(train --model "$gpt" --batch-size 12 --microbatches 6 --steps 40 --eval-every 4
    --save-every 4 --no-eval --lr 0 --patience 4 --json text)

# A rank that is lost while all wait for the save behind a validation does not make the others judge
# the validation again, or show it.
judged_once() {
    good "${still[@]}" --strategy single && mv out calm.judged
    rm -rf judged
    on_slow_disk 15 "${still[@]}" --strategy ddp --save judged
    [ $? != 77 ] || return 0 # no compiler
    has <(tail -n 1 out) '"event":"eval","step":12'
    end_started
    [ $? -eq 0 ] || fail "exit status: $(cat err)"
    grep -q '"event":"membership"' out || fail "no rank was lost: $(cat err)"
    diff <(lines_of calm.judged) <(lines_of out) || fail 'another end, or lines shown twice'
}

# A rank that is lost while the best step is being written does not take it with it: no later step
# is better. The second job saves because the step is the best.
best_is_written() {
    local saves strategy
    for saves in 4 30; do
        for strategy in ddp fsdp; do
            rm -rf judged
            on_slow_disk 5 "${still[@]}" --save-every "$saves" --strategy "$strategy" \
                --save judged
            [ $? != 77 ] || return 0
            has <(tail -n 1 out) '"event":"eval","step":4,.*"best":true'
            end_started
            [ $? -eq 0 ] || fail "exit status: $(cat err)"
            grep -q '"event":"membership"' out || fail "no rank was lost: $(cat err)"
            [ "$(readlink judged/best)" = step-00000004 ] ||
                fail "$strategy, every $saves: the best is $(readlink judged/best): $(ls judged)"
        done
    done
}
lines_of() { grep -E '"event":"(step|eval|stop|end)"' "$1" | sed 's/"items_per_s":[^,]*,//'; }

# A rank that is lost before the ranks have met does not make the others forget where the job is to
# continue: they began at step 0, and their next checkpoint took the place of the old ones. Nor do
# they show again what the earlier job has shown.
resumed_early() {
    local early=("${job[@]}" --eval-every 300) i lost=0
    good "${early[@]}" --steps 20 --strategy single --save begun
    cp -r begun again
    good "${early[@]}" --steps 40 --strategy single --resume again && mv out calm.early
    for i in 1 2 3 4 5 6 7 8; do
        rm -rf again && cp -r begun again
        start "${early[@]}" --steps 40 --resume again --strategy ddp --nproc 2 --max-restarts 1
        mapfile -t ranks < <(wait_for_two)
        sleep "0.00$i"
        kill -KILL "${ranks[0]}"
        ended 60
        [ "$status" = 0 ] || fail "exit status: $(cat err)" || return
        lost=$((lost + $(grep -c 'was killed' err)))
        diff <(losses calm.early) <(losses out) || fail "other steps: $(cat err)" || return
        [ "$(weights out)" = "$(weights calm.early)" ] || fail "other weights: $(cat err)" || return
    done
    [ "$lost" -gt 0 ] || fail 'no rank was lost'
}
wait_for_two() {
    local here=() until=$((SECONDS + 10))
    while [ ${#here[@]} -lt 2 ] && [ $SECONDS -lt "$until" ]; do mapfile -t here < <(children); done
    printf '%s\n' "${here[@]}"
}

# An interrupt ends spares at once, and the ranks after they have saved.
interrupted() {
    start_until 20 "${job[@]}" --microbatches 2 --strategy ddp --nproc 3 --max-restarts 2 \
        --save ended || return
    kill -INT "$started_pid"
    end_started
    [ $? -eq 130 ] || fail "exit status after SIGINT: $(cat err)"
    grep -q 'interrupted after step .*saved to ended' err || fail "$(cat err)"
    [ -d ended ] || fail 'nothing is saved'
}

refused() {
    bad 2 "cannot continue when ranks are lost" train --strategy dp --max-restarts 1 random
    bad 2 "--strategy hogwild, whose ranks have the whole state" \
        train --strategy hogwild --nproc 2 --max-restarts 1 --no-copy random
    bad 2 "need no copies" train --strategy ddp --nproc 2 --max-restarts 1 --no-copy random
    bad 2 "without --max-restarts" train --strategy fsdp --nproc 2 --no-copy random
    bad 2 "without --save" train --strategy fsdp --nproc 2 --max-restarts 1 --no-copy random
    bad 2 "expected --nproc 2 or more" train --strategy ddp --nproc 1 --max-restarts 1 random
    bad 2 "expected shm" train --strategy ddp --nproc 2 --backend ucx --max-restarts 1 random
    bad 1 "a hook's sums depend on the number of ranks" train --model toy --steps 5 \
        --strategy ddp:hook=bf16 --nproc 2 --max-restarts 1 random
}

choir "${job[@]}" --strategy single >calm 2>err || fail "undisturbed: $(cat err)"
check killed
check all_at_once
check always_the_one
check stopped
check rebuilt
check rebuilt_as_many
check killed_while_writing
check killed_with_a_validation
check scaled
check no_copy
check little_room
check lacking
check validates_without_memory
check control_group
check newest_cause
check with_saves
check saves_with_a_spare
check judged_once
check best_is_written
check resumed_early
check interrupted
check refused
finish
