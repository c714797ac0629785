#!/usr/bin/env bash
# choir tune --scheduler: trials that stop early, wait with a checkpoint and go on, copies of
# better ones, and what is refused. The rules are in tests/unit/tune/schedulers.c.
. "$(dirname "$0")/../lib.sh"

# A curve that falls to its parameter's distance from 0.3; it keeps its step when it is stopped.
cat >curve <<'CURVE'
#!/bin/bash
step=0 stop=0 file=$CHOIR_TRIAL_DIR/checkpoint
[ -e "$file" ] && read -r step <"$file"
echo "$CHOIR_TRIAL_STEP to ${CHOIR_TRIAL_BUDGET-the end}, from $step" >>"$CHOIR_TRIAL_DIR/runs"
trap stop=1 TERM
while ((step < 9 && !stop)); do
    step=$((step + 1))
    awk -v s=$step -v x="$1" 'BEGIN { d = x - 0.3; if (d < 0) d = -d
        printf "{\"step\":%d,\"eval_loss\":%.6f}\n", s, d + 1 / s }'
    echo $step >"$file"
    read -rt 0.05 <> <(:) # time for the signal
    # At its budget the trial is stopped, which may take longer on a busy machine.
    while ((step < 9 && step == ${CHOIR_TRIAL_BUDGET-9} && !stop)); do read -rt 0.01 <> <(:); done
done
((!stop)) || exit 143
CURVE
chmod +x curve
space=(--space 'x=uniform(0,1)')

# parts FILE: what must not depend on the number of trials at once.
parts() { sed 's/,"seconds":[0-9.]*//' "$1"; }

asha() {
    local n
    for n in 1 4; do
        good tune --json --trials 9 --window 4 --parallel $n --sampler random --dir asha$n \
            --scheduler asha:min=1,max=9,eta=3 "${space[@]}" -- ./curve {x}
        parts out >asha$n.out
    done
    cmp -s asha1.out asha4.out || fail "other parts with --parallel 4: $(diff asha1.out asha4.out)"
    has asha1.out '"number":0,"state":"PRUNED","params":\{"x":[0-9.]+\},"value":.*,"step":1\}' \
        '"state":"PRUNED",.*,"step":3\}' '"state":"COMPLETE",.*,"step":9\}'
    [ "$(grep -c '"step":1}' asha1.out)" = 9 ] || fail "$(cat asha1.out)"
    local best
    best=$(grep -o '"event":"best","number":[0-9]*' out | grep -o '[0-9]*$')
    has "asha4/$best/runs" '^0 to 1, from 0$' '^3 to 9, from [3-8]$'
    good tune --trials 3 --sampler random --dir asha_table --scheduler asha:max=9 "${space[@]}" \
        -- ./curve {x}
    has out '^trial +state +eval_loss +step +x +seconds$' '^    0  PRUNED +[0-9.]+ +1 '
}

# choir train keeps its checkpoints by itself; what a first segment starts from, others name again.
trains() {
    good train --quiet --steps 1 --batch-size 4 --save begun random \
        --model mlp:in=4,hidden=8,classes=2
    good tune --json --trials 4 --parallel 2 --sampler random --dir train \
        --scheduler asha:min=20,max=80,eta=2 --space 'lr=log(1e-4,1e-1)' -- \
        "$CHOIR" train --strategy single --steps 80 --eval-every 20 --eval-batches 1 \
        --batch-size 4 --weights begun --model mlp:in=4,hidden=8,classes=2 --init torch random
    has out '"state":"PRUNED",.*,"step":20,' '"state":"COMPLETE",.*,"step":80,'
    [ -e train/0/checkpoint/latest ] || fail "no checkpoint: $(ls train/0)"
}

stops() {
    good tune --json --trials 8 --sampler grid --scheduler median:startup=1 \
        --space 'x=choice(0.3,0.9,0.31,0.8)' --dir stops -- ./curve {x}
    has out '"number":0,"state":"COMPLETE","params":\{"x":0.3\}' \
        '"number":1,"state":"PRUNED",.*,"step":1,'
    good tune show stops
    has out '^trial +state +eval_loss +step +x +seconds$' '^    1  PRUNED +[0-9.]+ +1 +0[.]9 ' \
        '^    0  COMPLETE +[0-9.]+ +9 +0[.]3 '
    local scheduler
    for scheduler in median percentile:percent=25 patience:reports=2; do
        good tune --trials 1 --scheduler $scheduler --dir "table_$scheduler" "${space[@]}" -- \
            ./curve {x}
        has out '^trial +state +eval_loss +step +x +seconds$' '^    0  COMPLETE +[0-9.]+ +9 '
    done
}

# A trial that failed before its first report has no step.
no_step() {
    local scheduler
    for scheduler in asha:max=9 median; do
        choir tune --trials 1 --scheduler $scheduler --dir "none_$scheduler" "${space[@]}" -- \
            sh -c 'exit 1' sh {x} >out 2>err
        has out '^    0  FAIL +- +- +[0-9.]+ +[0-9.]+  exited with status 1$'
    done
}

population() {
    good tune --json --parallel 2 --sampler random --dir pbt \
        --scheduler pbt:population=4,interval=3,max=9 "${space[@]}" -- ./curve {x}
    grep -q '^3 to 6, from 3$' pbt/[4-9]/runs || fail "no copies: $(cat out)"
    [ "$(grep -c '"state":"COMPLETE"' out)" = 4 ] || fail "$(cat out)"
    # The stored table says where each copy comes from.
    grep -o '"parent":.*' out | sort -u >parents
    good tune show --json pbt
    grep -o '"parent":.*' out | sort -u | cmp -s parents - || fail "other parents: $(cat out)"
    has out '"parent":\{"trial":[0-9],"step":3\}'
}

wrong() {
    bad 2 'unknown scheduler .asha1. .did you mean .asha.*choose one of none, asha, ' \
        tune --scheduler asha1 "${space[@]}" -- ./curve {x}
    bad 2 '--scheduler asha: expected --dir DIR, where trials' \
        tune --scheduler asha "${space[@]}" -- ./curve {x}
    bad 2 '--dir asha1: expected a folder without trials of another search' \
        tune --scheduler asha --dir asha1 --storage memory "${space[@]}" -- ./curve {x}
    bad 2 '--eval-every N, since eval_loss decides on the way' \
        tune --scheduler asha --dir new --space 'lr=log(1e-4,1)' -- "$CHOIR" train random
    bad 2 'without --save and --resume' tune --scheduler asha --dir new \
        --space 'lr=log(1e-4,1)' -- "$CHOIR" train --eval-every 5 --save x random
    bad 2 'half of the population 4, got 4' tune --scheduler pbt:population=4 --parallel 4 \
        --dir new "${space[@]}" -- ./curve {x}
    bad 2 'expected a study in memory' tune --scheduler asha --free --dir new \
        --storage sqlite:new.db "${space[@]}" -- ./curve {x}
}

# A program that ends by itself below its budget: whether it also ran past an earlier budget, since
# it was stopped late, does not show in the table.
cat >ends <<'ENDS'
#!/bin/bash
step=0 stop=0 file=$CHOIR_TRIAL_DIR/checkpoint
[ -e "$file" ] && read -r step <"$file"
if [ "$FAST" ]; then trap '' TERM; else trap stop=1 TERM; fi
while ((step < 4 && !stop)); do
    step=$((step + 1))
    echo "{\"step\":$step,\"eval_loss\":$(($1 + 1000 / step))}"
    echo $step >"$file"
    while [ ! "$FAST" ] && ((step == ${CHOIR_TRIAL_BUDGET-9} && !stop)); do
        read -rt 0.01 <> <(:)
    done
done
((!stop)) || exit 143
ENDS
chmod +x ends
ends_early() {
    local workers fast
    for workers in 1 4; do
        for fast in '' yes; do
            rm -rf early
            FAST=$fast good tune --json --dir early --trials 9 --window 4 --parallel $workers \
                --seed 1 --sampler random --scheduler asha:min=1,max=9,eta=3 \
                --space 'x=int(0,1000)' -- ./ends {x}
            sed 's/,"seconds":[0-9.]*//' out >early.$workers.${fast:-slow}
            cmp -s early.1.slow early.$workers.${fast:-slow} ||
                fail "another table: $(diff early.1.slow early.$workers.${fast:-slow})"
        done
    done
    has early.1.yes '"state":"COMPLETE"'
}

check asha
check ends_early
check trains
check stops
check no_step
check population
check wrong
finish
