#!/usr/bin/env bash
# A run that is edited (batches left out, after it has gone back before them) has the bits of one
# that never saw these batches, on any strategy and any number of ranks.
. "$(dirname "$0")/../lib.sh"

make_text text 300
steps=14
job=(--json --microbatches 4 --batch-size 24 --no-eval --model "$gpt,dropout=0.1")
two=(--schedule cosine:steps=16 --optimizer adamw)

# fresh FILE ARG...: a job of all steps, from its beginning.
fresh() {
    local file=$1
    shift
    good train "${job[@]}" "${two[@]}" --steps $steps "$@" text && mv out "$file"
}

# A run of 10 steps, for each check to edit: checkpoints of steps 2, 4, ... 10.
recorded() {
    rm -rf run
    cp -r whole.saved run
}

# The edit has the bits of the run without the batches, also where others do the work, and where
# the edited run is resumed later.
rewind_and_skip() {
    fresh never --skip-batches 6:9,11
    for strategy in single 'ddp --nproc 3' 'fsdp --nproc 2' 'pipeline --nproc 2' \
        'ddp+pipeline --mesh 2x2 --nproc 4'; do
        recorded
        # shellcheck disable=SC2086
        noted 'skip-batches 6:9,11 is new' train --json --resume run --rewind 5 --steps $steps \
            --skip-batches 6:9,11 --strategy $strategy && mv out edited
        same_run never edited 5 || fail "$strategy"
    done
    recorded
    noted 'skip-batches' train --json --resume run --rewind 5 --skip-batches 6:9 --steps 7
    grep -q '"skip-batches": "6:9"' run/latest/job.json || fail "the record has no list"
    noted 'skip-batches 6:9,11 replaces' train --json --resume run --skip-batches 11 \
        --steps $steps --strategy ddp --nproc 2 && mv out edited
    same_run never edited 8
    [ "$(field weights_sha256 never)" != "$(field weights_sha256 whole)" ] || fail "nothing skipped"
}

# Records and checkpoints go back, too; without --skip-batches the same steps come again.
rewind_alone() {
    recorded
    good train --json --resume run --rewind 7 --steps 8 && mv out again
    [ "$(steps_of again)" = "$(steps_of whole 7 | head -n 2)" ] || fail "other steps"
    [ "$(wc -l <run/metrics.jsonl)" -eq 8 ] || fail "$(wc -l <run/metrics.jsonl) rows"
    [ ! -e run/step-00000010 ] && [ -e run/step-00000008 ] || fail "$(ls run)"
    grep -q '"event":"edit","step":6,.*"rewound_from":10' run/events.jsonl ||
        fail "$(cat run/events.jsonl)"
    recorded
    good train --json --resume run --rewind 6 --save other --steps 8
    [ "$(readlink run/latest)" = step-00000010 ] || fail "a run that others go on from has changed"
}

# A rank of the edited run is killed, under strategies that recover in place and by copies.
elastic_ranks() {
    local strategy
    fresh never --skip-batches 6:9,11,70 --steps 80
    for strategy in ddp fsdp; do
        recorded
        start train --json --resume run --rewind 5 --steps 80 --skip-batches 6:9,11,70 \
            --strategy $strategy --nproc 2 --max-restarts 2
        await 20 grep -q '"step":20,' out && kill -KILL "$(children | tail -n 1)"
        ended 60
        [ "$status" -eq 0 ] || fail "$strategy: $(cat err)"
        grep -q '"event":"membership"' out || fail "$strategy: no rank was lost"
        [ "$(field weights_sha256 never)" = "$(field weights_sha256 out)" ] || fail "$strategy"
    done
}

wrong_edits() {
    recorded
    noted 'rewind 99: the newest checkpoint of run is of step 10, and is taken' \
        train --json --resume run --rewind 99 --steps 11
    recorded
    bad 2 "of batches before END, got '6:6'" train --skip-batches 6:6 random
    bad 2 "got 'x'" train --skip-batches 3,x random
    bad 1 'last step, 5, is on batch 5, before batch 50' train --skip-batches 50:60 --steps 5 random
    bad 1 'up to batch 10, and has left out none, not 9:11' \
        train --resume run --skip-batches 9:12 --steps 20
    bad 1 'no checkpoint of step 1 or before; it has kept 2, 4, 6, 8, 10' \
        train --resume run --rewind 1 --steps 20
    bad 1 'folder of a run' train --resume run/step-00000004 --rewind 2 --steps 20
    bad 2 'without --resume' train --rewind 2 random
    bad 2 'read once' train --skip-batches 3 --bytes - <text
}

good train "${job[@]}" "${two[@]}" --steps 10 --save whole.saved --save-every 2 --save-keep 9 text
mv out whole
check rewind_and_skip
check rewind_alone
check elastic_ranks
check wrong_edits
finish
