#!/usr/bin/env bash
# --max-restarts: ranks of choir train are killed or stopped, at random moments; the job goes on and
# ends with the losses and weights of an undisturbed one, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"

make_text text 200
seed=${CHOIR_TEST_SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed"
job=(train --model "$gpt" --batch-size 24 --microbatches 6 --steps 1200
    --eval-every 400 --eval-batches 2
    --json text)
weights() { grep -o 'weights_sha256":"[0-9a-f]*' "$1"; }
losses() { grep -o '"event":"\(step\|eval\)","step":[0-9]*,"loss":[^,}]*' "$1"; }

# struck SIGNAL LINES RANKS OPTION...: strikes a random rank once LINES lines are out.
struck() {
    local signal=$1 lines=$2 world=$3
    shift 3
    shared=$(shared_files)
    start "${job[@]}" --strategy ddp --nproc "$world" --max-restarts 2 "$@"
    await 60 has_lines "$lines" || fail "no $lines lines: $(cat err)" || return
    mapfile -t ranks < <(pgrep -P "$started_pid" | sort -n)
    [ ${#ranks[@]} -ge "$world" ] || fail "${#ranks[@]} ranks, not $world" || return
    kill -"$signal" "${ranks[RANDOM % world]}"
    wait "$started_pid"
    [ $? -eq 0 ] || fail "$signal after $lines lines: exit status, $(cat err)" || return
    grep -q '"event":"membership","generation":2' out || fail "no membership event: $(cat err)"
    grep -q "go on from step" err || fail "nothing on standard error"
    [ "$(weights out)" = "$(weights calm)" ] ||
        fail "$signal after $lines: other weights: $(cat err)"
    diff <(losses calm) <(losses out) >/dev/null ||
        fail "$signal after $lines: other losses"
    [ "$(shared_files)" = "$shared" ] || fail "/dev/shm has $(shared_files), it had $shared"
}
has_lines() { [ "$(wc -l <out)" -ge "$1" ]; }

killed() {
    for i in 1 2; do
        struck KILL $((1 + RANDOM % 150)) $((2 + RANDOM % 2)) || return
    done
}
stopped() { struck STOP 20 2 --timeout 2; }
with_saves() { struck KILL $((1 + RANDOM % 150)) 3 --save out.saved --save-every 50 --timeout 60; }

# A spare knows nothing of a save that is under way when a rank is lost, and yet takes part in its
# repetition.
saves_with_a_spare() {
    local two=("${job[@]}" --microbatches 2 --steps 300 --strategy ddp)
    choir "${two[@]}" --strategy single >calm.two 2>err || fail "undisturbed: $(cat err)"
    start "${two[@]}" --nproc 3 --max-restarts 1 --timeout 60 --save two --save-every 40
    await 60 has_lines 80 || fail "no 80 lines: $(cat err)" || return
    mapfile -t ranks < <(pgrep -P "$started_pid" | sort -n)
    kill -KILL "${ranks[RANDOM % 2]}"
    wait "$started_pid"
    [ $? -eq 0 ] || fail "exit status: $(cat err)" || return
    [ "$(weights out)" = "$(weights calm.two)" ] || fail "other weights: $(cat err)"
}

# An interrupt ends spares at once, and the ranks after they have saved.
interrupted() {
    start "${job[@]}" --microbatches 2 --strategy ddp --nproc 3 --max-restarts 2 --save ended
    await 60 has_lines 20 || fail "no 20 lines: $(cat err)" || return
    kill -INT "$started_pid"
    wait "$started_pid"
    [ $? -eq 130 ] || fail "exit status after SIGINT: $(cat err)"
    grep -q 'interrupted after step .*saved to ended' err || fail "$(cat err)"
    [ -d ended ] || fail 'nothing is saved'
}

refused() {
    bad 2 "cannot go on when ranks are lost" train --strategy fsdp --nproc 2 --max-restarts 1 random
    bad 2 "expected --nproc 2 or more" train --strategy ddp --nproc 1 --max-restarts 1 random
    bad 2 "expected shm" train --strategy ddp --nproc 2 --backend ucx --max-restarts 1 random
    bad 1 "a hook's sums depend on the number of ranks" train --model toy --steps 5 \
        --strategy ddp:hook=bf16 --nproc 2 --max-restarts 1 random
}

choir "${job[@]}" --strategy single >calm 2>err || fail "undisturbed: $(cat err)"
check killed
check stopped
check with_saves
check saves_with_a_spare
check interrupted
check refused
finish
