#!/usr/bin/env bash
# --on-spike: a run that goes back by itself and leaves batches out has the bits of one that never
# saw these batches, and neither ranks nor interruptions change what it does.
. "$(dirname "$0")/../lib.sh"

make_text text 300
job=(--json --microbatches 4 --batch-size 24 --no-eval --model "$gpt,dropout=0.1" --lr 0.05)
spike=(--on-spike 1.7:rewind=3,skip=2,window=6 --save-every 4)

edits_of() { # the steps and lists of a run's edits, a line each
    sed -n 's/.*"event":"edit","step":\([0-9]*\),.*"skip_batches":"\([^"]*\)".*/\1 \2/p' "$1"
}

# spiky FILE ARG...: a run of 40 steps with spikes; its folder is FILE.saved.
spiky() {
    local file=$1
    shift
    choir train "${job[@]}" --steps 40 "${spike[@]}" --save "$file.saved" "$@" text >out 2>err ||
        fail "status $? of $*: $(cat err)"
    mv out "$file"
}

# The list of the last edit, skipped from the beginning, gives the same bits, on any strategy.
as_if_edited_by_hand() {
    local strategy n=0
    spiky one
    grep -q 'is a spike: the .* is beyond 1.7 times .* the median' err || fail "no spike"
    [ "$(edits_of one | wc -l)" -gt 1 ] || fail "too few spikes"
    good train "${job[@]}" --steps 40 text \
        --skip-batches "$(edits_of one | tail -n 1 | cut -d ' ' -f 2)" && mv out never
    [ "$(field weights_sha256 one)" = "$(field weights_sha256 never)" ] || fail "not as by hand"
    [ "$(wc -l <one.saved/metrics.jsonl)" -eq 40 ] || fail "$(wc -l <one.saved/metrics.jsonl) rows"
    cmp <(cut -d, -f 1,3 one.saved/metrics.jsonl) <(sort -t: -k2n <(cut -d, -f 1,3 \
        one.saved/metrics.jsonl)) || fail "rows do not ascend"
    grep -q '"skip-batches": "' one.saved/job.json || fail "the run's record has no list"
    for strategy in 'ddp --nproc 3' 'fsdp --nproc 2' 'pipeline --nproc 2'; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        spiky "many$n" --strategy $strategy
        [ "$(edits_of one)" = "$(edits_of "many$n")" ] || fail "other edits: $strategy"
        [ "$(field weights_sha256 one)" = "$(field weights_sha256 "many$n")" ] || fail "$strategy"
    done
}

# An audit runs all steps of a run that went back, also those before it: the checkpoint to which it
# went back may be gone. Its second run goes back to nothing.
audited() {
    spiky audited --audit=every=1 --save-keep 1
    [ ! -e audited.saved/step-00000004 ] || fail 'the first checkpoint is kept'
    good audit audited.saved
    has out '^equal: audited.saved, 40 audited steps from 1 to 40, run again from the beginning$'
    good audit audited.saved --steps 2:9 --strategy ddp --nproc 2
    good audit one.saved # compares the weights of a checkpoint
}

# Stopped behind the window's first steps, the run finds the same spikes when it goes on.
interruptions_change_nothing() {
    choir train "${job[@]}" "${spike[@]}" --save half --steps 7 text >out 2>err || fail "$(cat err)"
    choir train --json --resume half --steps 40 --strategy ddp --nproc 2 >rest 2>err ||
        fail "$(cat err)"
    [ "$(edits_of half/events.jsonl)" = "$(edits_of one.saved/events.jsonl)" ] ||
        fail "other edits: $(edits_of half/events.jsonl)"
    [ "$(field weights_sha256 one)" = "$(field weights_sha256 rest)" ] || fail "other bits"
}

# Ranks are lost behind an edit. On a busy machine the run may end before the test sees step 9.
elastic_ranks() {
    local strategy
    for strategy in ddp fsdp; do
        for _ in {1..5}; do
            rm -rf lost
            start train "${job[@]}" "${spike[@]}" --save lost --steps 40 --strategy $strategy \
                --nproc 2 --max-restarts 2 text
            await 20 grep -q '"step":9,' out && kill -KILL "$(children | tail -n 1)" 2>/dev/null
            ended 60
            ! grep -q '"event":"membership"' out || break
        done
        [ "$status" -eq 0 ] || fail "$strategy: $(cat err)"
        grep -q '"event":"membership"' out || fail "$strategy: no rank was lost"
        [ "$(field weights_sha256 one)" = "$(field weights_sha256 out)" ] || fail "$strategy"
    done
}

# A rank that has joined goes back with the others, whose audit begins again.
joined_before_a_spike() {
    local rare=(--lr 0.003 --steps 300 --on-spike 1.5:rewind=3,skip=4,window=12 --save-every 4)
    choir train "${job[@]}" "${rare[@]}" --save calm text >calm.out 2>err || fail "$(cat err)"
    start train "${job[@]}" "${rare[@]}" --save joined --strategy ddp --nproc 3 \
        --max-restarts 2 --audit=every=5 text
    await 20 grep -q '"step":36,' out && kill -KILL "$(children | tail -n 1)"
    ended 60
    [ "$status" -eq 0 ] || fail "status $status: $(cat err)"
    grep -q '"event":"membership"' out || fail 'no rank was lost'
    [ "$(edits_of out | tail -n 1)" = "$(edits_of calm.out | tail -n 1)" ] || fail 'other edits'
    [ "$(field weights_sha256 calm.out)" = "$(field weights_sha256 out)" ] || fail 'other bits'
}

# Before the first checkpoint a run goes back to its beginning.
back_to_the_beginning() {
    local strategy
    for strategy in single 'ddp --nproc 2' 'fsdp --nproc 2' 'pipeline --nproc 2'; do
        rm -rf begun.saved
        # shellcheck disable=SC2086
        spiky begun --save-every 99 --steps 12 --strategy $strategy
        edits_of begun | grep -q '^0 ' || fail "not from the beginning: $(cat err)"
        good train "${job[@]}" --steps 12 text \
            --skip-batches "$(edits_of begun | tail -n 1 | cut -d ' ' -f 2)"
        [ "$(field weights_sha256 begun)" = "$(field weights_sha256 out)" ] || fail "$strategy"
    done
}

# Where other batches give the same spike, none is to blame.
no_batch_is_to_blame() {
    choir train --quiet --model toy --optimizer sgd --lr 1e12 --on-spike 5 --save high \
        --save-every 50 --steps 60 random >out 2>err && fail 'a rate of 1e12 does not fail'
    [ "$(grep -c 'goes back to step 0 and leaves out batches' err)" -eq 10 ] || fail "$(cat err)"
    has err 'has gone back to step 0 10 times in a row, .* choose a lower --lr'
}

# A loss that is not finite is a spike at any step; and without a checkpoint the sentence says what
# to do.
nothing_to_go_back_to() {
    good train --quiet --model toy --optimizer sgd --steps 5 --save before random
    choir train --quiet --resume before/latest --lr 1e12 --on-spike 5:rewind=50 \
        --save none --save-every 50 --steps 60 >out 2>err && fail 'a loss of NaN is no spike'
    has err 'step [0-9]* is a spike: the .* is .*; no checkpoint to go back to is kept: --skip-b'
}

wrong_rules() {
    local rule
    for rule in 0.5 x 5:rewind=0 5:skip=0 5:window=999 5:back=1; do
        bad 2 'on-spike: ' train --on-spike "$rule" --save s --save-every 5 random
    done
    bad 2 'without --save and --save-every' train --on-spike 5 --save s random
    bad 2 'losses of their own' train --on-spike 5 --save s --save-every 5 \
        --strategy local-sgd:every=2 --nproc 2 random
}

check as_if_edited_by_hand
check audited
check interruptions_change_nothing
check elastic_ranks
check joined_before_a_spike
check back_to_the_beginning
check no_batch_is_to_blame
check nothing_to_go_back_to
check wrong_rules
finish
