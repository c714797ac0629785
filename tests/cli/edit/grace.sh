#!/usr/bin/env bash
# --grace: a signal ends a job, and a checkpoint that fits into the time that is left is saved.
. "$(dirname "$0")/../lib.sh"

job=(--json --model toy --steps 1000000 --log-every 100 --save-every 100 --no-eval)

newest_of() { readlink "$1/latest" | sed 's/step-0*//'; }
has_two() { [ "$(newest_of "$1" || echo 0)" -ge 200 ]; } 2>/dev/null

# ended_with FOLDER ARG...: TERM ends the job behind its second checkpoint.
ended_with() {
    local folder=$1
    shift
    start train "${job[@]}" --save "$folder" "$@" random
    await 30 has_two "$folder" || fail "no second checkpoint: $(cat err)"
    kill -TERM "$started_pid"
    ended 30
    [ "$status" -eq 143 ] || fail "status $status: $(cat err)"
}

left_of() { sed -n 's/.*"event":"stop".*"grace_s":\([0-9.]*\).*/\1/p' out; }

# is_within LEAST MOST: the seconds of the stop event.
is_within() {
    awk -v x="$(left_of)" -v low="$1" -v high="$2" 'BEGIN { exit !(x > low && x <= high) }' ||
        fail "$(left_of) s are left, not $1 to $2"
}

enough_time() {
    local step
    for ranks in 1 2; do
        ended_with "enough$ranks" --grace 1m --nproc $ranks --strategy ddp
        step=$(sed -n 's/.*interrupted after step \([0-9]*\); saved to .*/\1/p' err)
        [ -n "$step" ] && [ "$(newest_of "enough$ranks")" = "$step" ] || fail "$(cat err)"
        is_within 30 60
    done
}

# The step is lost, unless it is one that is being saved; the newest checkpoint is named.
too_little_time() {
    local named
    ended_with little --grace 0.001s
    named=$(sed -n 's/.*not saved: a checkpoint takes .* are left; the newest is of step //p' err)
    # a save that was under way may end later
    [ -n "$named" ] && [ "$named" -le "$(newest_of little)" ] ||
        grep -q "saved to little" err || fail "$(cat err)"
    good train --quiet --resume little --steps $(($(newest_of little) + 1))
}

slurm_knows() {
    export SLURM_CONF=gone SLURM_JOB_ID=7 SLURM_JOB_END_TIME=$(($(date +%s) + 600))
    ended_with ahead
    is_within 500 600
    SLURM_JOB_END_TIME=$(($(date +%s) + 100000)) ended_with long_before
    is_within 29 30
    unset SLURM_JOB_END_TIME
    ended_with unknown
    is_within 29 30
    printf '%s\n' '# KillWait=9' 'SlurmctldPort=6817' ' killwait=120 # seconds' >slurm.conf
    SLURM_CONF=slurm.conf ended_with configured
    is_within 119 120
    ended_with given --grace 45
    is_within 30 45
    unset SLURM_JOB_ID
    ended_with no_limit
    [ -z "$(left_of)" ] || fail "$(left_of) s are left"
}

# A printed job has all options. Those with the value that they have by default are no news.
printed() {
    choir train --model toy --steps 3 --print-job random >printed.json || fail 'no job'
    choir train printed.json >out 2>err
    [ ! -s err ] || fail "said: $(cat err)"
    sed 's/"save-keep": 1/"save-keep": 2/' printed.json >other.json
    noted 'nothing is saved without --save: --save-keep has no effect' train other.json
}

# A job without validations says the same of what would be validated.
without_validations() {
    local option
    for option in --eval-batches=2 --metric=words=cat --best=loss; do
        noted "nothing is validated with --no-eval: ${option%%=*} has no effect" \
            train --model toy --steps 3 --no-eval $option random
    done
    choir train --model toy --steps 3 --no-eval --eval-every 2 --eval-batches 1 random >out 2>err
    [ ! -s err ] || fail "said: $(cat err)"
    bad 1 '^choir train: --bytes: toy reads no texts' train --model toy --bytes random
    bad 1 '^choir train: --tokenizer: toy reads no texts' train --model toy --tokenizer x random
}

# Nor have the ways of meeting others an effect on a single process.
without_others() {
    local option
    for option in --backend=shm --key-file=key; do
        noted "one process meets no others: ${option%%=*} has no effect" \
            train --model toy --steps 3 $option random
    done
    choir train --model toy --steps 3 --strategy ddp --nproc 2 --backend shm random >out 2>err
    [ ! -s err ] || fail "said: $(cat err)"
}

# Nor has the number of ranks an effect where another program has started them.
among_others() {
    choir run -n 1 "$CHOIR" train --model toy --steps 3 --no-eval --nproc 4 random >out 2>err ||
        fail "status $?: $(cat err)"
    has err 'note: another program has started 1 rank: --nproc 4 has no effect'
    choir run -n 1 "$CHOIR" train --model toy --steps 3 --no-eval --nproc 1 random >out 2>err
    [ ! -s err ] || fail "said: $(cat err)"
}

wrong_times() {
    bad 2 "grace: expected a time such as 90s" train --grace soon --save s random
    bad 2 "grace: expected a time such as 90s" train --grace -1 --save s random
}

# A job that writes no checkpoints says that their options have no effect.
without_checkpoints() {
    local option name
    for option in --grace=30s --save-every=2 --save-keep=2 --save-warn; do
        name=${option%%=*}
        noted "nothing is saved without --save: $name has no effect" \
            train --model toy --steps 3 $option random
    done
    choir train --model toy --steps 3 --save kept --save-every 2 --grace 30s random >out 2>err
    [ ! -s err ] || fail "said: $(cat err)"
}

check enough_time
check too_little_time
check slurm_knows
check wrong_times
check without_checkpoints
check printed
check without_validations
check without_others
check among_others
finish
