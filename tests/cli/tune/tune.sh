#!/usr/bin/env bash
# choir tune: the same trials however many run at once, commands with placeholders, trials that
# fail, hang or are interrupted, and what is refused.
. "$(dirname "$0")/../lib.sh"

# A bowl: its least value is 0 at x = 0.3, width = 4.
cat >bowl <<'BOWL'
#!/bin/bash
echo "no JSON"
echo '{"step":0,"eval_loss":99}'
awk -v x="$1" -v w="$2" \
    'BEGIN { printf "{\"step\":1,\"eval_loss\":%.6f}\n", (x - 0.3)^2 + (w - 4)^2 }'
BOWL
chmod +x bowl
space=(--space 'x=uniform(0,1)' --space 'width=int(1,8)')

# trials FILE: what must not depend on the number of trials at once.
trials() { sed 's/,"seconds":[0-9.]*//' "$1"; }

same_trials() {
    good tune --json --trials 24 --window 4 --seed 3 "${space[@]}" -- ./bowl {x} {width}
    [ "$(grep -c '^{"event":"trial"' out)" = 24 ] || fail "trials: $(cat out)"
    local params='"params":\{"x":0[.][0-9]*,"width":[1-8]\}'
    has out '^\{"event":"trial","number":0,"state":"COMPLETE",'"$params"',"value":[0-9.e-]+,"step":'
    tail -1 out | grep -qE '^\{"event":"best","number":[0-9]+,"params":\{.*"width":4\},"value":' ||
        fail "best: $(tail -1 out)"
    trials out >one
    for n in 2 4; do
        good tune --json --trials 24 --window 4 --parallel $n --seed 3 "${space[@]}" -- \
        ./bowl {x} {width}
        trials out | cmp -s one - || fail "other trials with --parallel $n"
    done
    good tune --json --trials 24 --window 4 --seed 4 "${space[@]}" -- ./bowl {x} {width}
    trials out | cmp -s one - && fail 'another seed, the same trials'
    good tune --json --trials 5 --direction maximize "${space[@]}" -- ./bowl {x} {width}
    best=$(grep -o '"value":[0-9.e+-]*' out | head -5 | cut -d: -f2 | sort -g | tail -1)
    tail -1 out | grep -qF "\"value\":$best}" || fail "not the most: $(cat out)"
}

table() {
    good tune --trials 3 --sampler grid --space 'x=choice(0.3,0.5)' --space width=4 -- \
        ./bowl {x} {width}
    has out '^trial +state +eval_loss +x +width +seconds$' \
        '^    0  COMPLETE +0 +0.3 +4 ' '^    1  COMPLETE +0.04 +0.5 +4 ' \
        '^best: trial 0, eval_loss 0$' '^  ./bowl 0.3 4$'
    good tune --quiet --sampler grid --space x=0.5 --space width=4 -- ./bowl {x} {width}
    [ "$(wc -l <out)" = 2 ] || fail "quiet: $(cat out)"
}

# Conditional parameters, conditions on all, given trials.
spaces() {
    good tune --json --trials 12 --space 'o=choice(sgd,adamw)' --space 'm=uniform(0,1) if o==sgd' \
        --space 'x=uniform(0,1)' --require 'x < 0.5' --enqueue 'o=sgd,m=0.25,x=0.125' -- \
        sh -c 'echo "{\"eval_loss\":$1}"' sh {x} --m {m} {o}
    has out '"number":0,.*"params":\{"o":"sgd","m":0.25,"x":0.125\},"value":0.125,'
    grep -E '"x":0[.][5-9]' out && fail 'x of 0.5 or more'
    grep -F '"o":"adamw","m"' out && fail 'a momentum of adamw'
    grep -qF '"o":"adamw","x"' out || fail 'no adamw'
    choir tune --quiet --trials 2 --space 'x=uniform(0,1)' -- \
        sh -c 'echo "{\"step\":1}"; echo bad data; exit 3' sh {x} >out 2>err && fail 'no failure'
    has err 'no trial has a value; the last one failed because it exited with status 3: bad data$'
    good tune --trials 2 --space 'x=choice("a,b",c)' --space 'y=uniform(0,1)' \
        --enqueue 'x="a,b",y=0.5' --enqueue x=c -- sh -c 'echo "{\"eval_loss\":1}"' sh {x} {y}
    has out '^ +0 +COMPLETE +1 +a,b +0\.5 ' '^ +1 +COMPLETE +1 +c '
    good tune --dir runs --trials 1 --enqueue o=adamw --space 'o=choice(sgd,adamw)' \
        --space 'm=uniform(0,1) if o==sgd' -- sh -c 'echo "{\"eval_loss\":1}"
        echo "$CHOIR_TRIAL_NUMBER $CHOIR_TRIAL_PARAMS $*" >&2' \
        sh --m {m} -o{o} '{{x}' {trial} {dir}
    [ "$(cat runs/0/stderr)" = '0 {"o":"adamw"} -oadamw {x} 0 runs/0' ] ||
        fail "$(cat runs/0/stderr)"
    [ "$(cat runs/0/stdout)" = '{"eval_loss":1}' ] || fail "$(cat runs/0/stdout)"
    has out "-oadamw '[{]x[}]' 0 runs/0$"
}

# A model of choir itself needs no placeholders for its options.
trains() {
    good tune --json --trials 2 --space 'lr=log(1e-4,1e-1)' --space 'hidden=choice(8,16)' -- \
        "$CHOIR" train --strategy single --steps 2 --eval-batches 1 --batch-size 4 \
        --model 'mlp:in=4,hidden={hidden},classes=2' random
    [ "$(grep -c '"state":"COMPLETE"' out)" = 2 ] || fail "$(cat out)"
    # The command that repeats the best one is for people: its lines are no JSON.
    good tune --trials 1 --space 'lr=log(1e-4,1e-1)' -- "$CHOIR" train --strategy single --steps 2 \
        --model 'mlp:in=4,hidden=8,classes=2' random
    has out '^best: trial 0' "^  .*choir train .* random --lr [0-9.e-]*$"
}

fails() {
    choir tune --trials 30 --max-failures 3 --space 'x=uniform(0,1)' -- \
        sh -c 'echo why not >&2; exit 7' {x} >out 2>err
    [ $? = 1 ] || fail 'status of a search that always fails'
    [ "$(grep -c FAIL out)" = 3 ] || fail "$(cat out)"
    is_one_line '3 trials in a row have failed, the last .* exited with status 7: why not' ||
        fail "$(cat err)"
    choir tune --trials 9 --max-failures 2 --space 'x=uniform(0,1)' -- \
        sh -c 'for i in $(seq 12); do echo "line $i of trial $2" >&2; done; exit 7' sh {x} {trial} \
        >out 2>err
    has err '^The last lines of trial 1:$' '^  line 5 of trial 1$' '^  line 12 of trial 1$'
    grep -q 'line 4 of' err && fail "more than the last lines: $(cat err)"
    choir tune --trials 1 --space 'x=uniform(0,1)' -- not-there {x} >out 2>err
    has out 'FAIL .* exited with status 127: cannot run not-there: No such file'
    choir tune --trials 1 --space 'x=uniform(0,1)' -- echo '{"loss":1}' {x} >out 2>err
    has out 'FAIL .* printed no line of JSON with a number "eval_loss"'
    # A trial that has diverged has failed, whatever it said before.
    for value in NaN Infinity null; do
        why='eval_loss is not a number'
        [ $value != Infinity ] || why='eval_loss is infinite'
        choir tune --trials 1 --space 'x=uniform(0,1)' -- \
            sh -c 'echo "{\"eval_loss\":0.1}"
                echo "{\"step\":2,\"eval_loss\":$1}"' sh $value {x} >out 2>err
        has out "FAIL .* $why"
        is_one_line "the last one failed because it printed a line in which $why\$" ||
            fail "$(cat err)"
    done
    choir tune --trials 1 --space 'x=uniform(0,1)' -- \
        sh -c 'echo "{\"step\":9223372036854775807,\"eval_loss\":1}"' sh {x} >out 2>err
    is_one_line 'last one failed because it printed a wrong step: expected a step of at most' ||
        fail "$(cat err)"
    # Trials beside the last failure that is allowed count no more.
    choir tune --trials 9 --parallel 4 --max-failures 3 --space 'x=uniform(0,1)' -- \
        sh -c '[ $1 -lt 3 ] && exit 7
            until [ "$(grep -c FAIL out)" = 3 ]; do sleep 0.02; done
            echo "{\"eval_loss\":1}"' sh {trial} {x} >out 2>err
    [ $? = 1 ] && [ "$(grep -c 'FAIL\|COMPLETE\|^best' out)" = 3 ] || fail "$(cat out err)"
    is_one_line '3 trials in a row have failed, the last .* status 7' || fail "$(cat err)"
    # A command that was mended goes on: failures of an earlier run count no more.
    choir tune --dir gave --trials 4 --max-failures 2 --space 'x=uniform(0,1)' -- \
        sh -c 'test -f mended && echo "{\"eval_loss\":$0}"' {x} >out 2>err
    [ $? = 1 ] || fail 'status of a search that gave up'
    touch mended
    good tune --dir gave --trials 4 --max-failures 2 --space 'x=uniform(0,1)' -- \
        sh -c 'test -f mended && echo "{\"eval_loss\":$0}"' {x}
    [ "$(grep -c COMPLETE out)" = 2 ] || fail "goes on: $(cat out)"
    good tune --json --trials 2 --retries 1 --space 'x=uniform(0,1)' -- \
        sh -c 'mkdir seen-$1 2>/dev/null && exit 1; echo "{\"eval_loss\":1}"' sh {x}
    [ "$(grep -c COMPLETE out)" = 2 ] || fail "retries: $(cat out)"
}

# A process that ends may leave others that still write, but not for long.
late_output() {
    good tune --json --trials 1 --space 'x=uniform(0,1)' -- \
        sh -c '(while grep -q "[)] [^Z]" /proc/$$/stat; do sleep 0.02; done 2>/dev/null
            echo "{\"eval_loss\":3}") & echo "{\"eval_loss\":9}"' sh {x}
    has out '"state":"COMPLETE".*"value":3,'
    mark=3141.61
    good tune --json --trials 1 --space 'x=uniform(0,1)' -- \
        sh -c "sleep $mark & echo '{\"eval_loss\":4}'" sh {x}
    has out '"state":"COMPLETE".*"value":4,'
    gone 5
}

# A trial that writes without end keeps no other from being read.
endless_output() {
    choir tune --trials 2 --parallel 2 --space 'x=uniform(0,1)' -- sh -c 'if [ $1 = 0 ]; then
            yes & until [ -s other ] && ! kill -0 $(cat other) 2>/dev/null; do sleep 0.05; done
            kill $!; exit 3
        fi
        echo $$ >part; mv part other; echo "{\"eval_loss\":5}"' sh {trial} {x} >out 2>err
    [ $? = 0 ] || fail "status: $(cat err)"
    has out '^    0  FAIL .* status 3' '^    1  COMPLETE +5 ' '^best: trial 1'
}

# A process that cannot be started is a trial that failed; the soft limit of open files is no
# reason, and trials have it as it was.
few_descriptors() {
    local tell='echo "{\"eval_loss\":$(ulimit -n)}"'
    (ulimit -n 20; choir tune --trials 8 --parallel 8 --space 'x=uniform(0,1)' -- \
        sh -c "sleep 2; $tell" sh {x}) >out 2>err
    [ $? = 0 ] || fail "status: $(cat out err)"
    has out 'FAIL .*could not be started: .*Too many open files: .*may have 20' \
        '^best: trial [0-9], eval_loss 20$'
    (ulimit -Sn 20; choir tune --trials 8 --parallel 8 --space 'x=uniform(0,1)' -- \
        sh -c "echo >>began; until [ \$(wc -l <began) = 8 ]; do sleep 0.05; done; $tell" sh {x}) \
        >out 2>err
    [ "$(grep -c 'COMPLETE *20 ' out)" = 8 ] || fail "soft limit: $(cat out err)"
}

# Output is valid JSON whatever trials write; options that a trial has no value for are left out.
odd_words() {
    choir tune --json --trials 1 --space 'x=uniform(0,1)' -- \
        sh -c 'printf "no \377 \303\244 \\ \" t\n" >&2; exit 1' sh {x} >out 2>err
    has out '"why":"exited with status 1: no [^ ]+ ä .. ." t"'
    good tune --json --dir odd --trials 1 --space 'n=choice(0,1)' \
        --enqueue n=1 --space 'm=1 if n == 0' -- \
        sh -c 'echo "$*" >&2; echo "{\"eval_loss\":1}"' sh -- {m} -1 {m} --mm {m} --n {n}
    [ "$(cat odd/0/stderr)" = '-- -1 --n 1' ] || fail "$(cat odd/0/stderr)"
    CHOIR_TRIAL_DIR=outer choir tune --trials 1 --space n=1 -- \
        sh -c 'echo "in [$CHOIR_TRIAL_DIR]" >&2; exit 1' sh {n} >out 2>err
    has out 'FAIL .*: in \[]$'
}

# A trial that hangs is stopped with all that it started, and so are all when the search is, also
# when it is killed. Processes in sessions of their own are no exception.
hangs() {
    mark=3141.59
    choir tune --trials 1 --trial-timeout 0.2 --space 'x=uniform(0,1)' -- \
        sh -c "sleep $mark & sleep $mark" {x} >out 2>err
    has out 'FAIL .* took longer than 0.2 s'
    await 5 none_left || fail 'a hanging trial left processes'
    start tune --trials 3 --parallel 2 --space 'x=uniform(0,1)' -- \
        sh -c "echo >here; sleep $mark & sleep $mark" {x}
    await 10 [ -e here ] || fail 'no trial began'
    kill -INT "$started_pid"
    wait "$started_pid"
    [ $? = 130 ] || fail 'status after SIGINT'
    await 5 none_left || fail 'an interrupted search left processes'
    choir tune --trials 1 --trial-timeout 0.5 --space x=1 -- \
        sh -c "setsid sleep $mark & sleep $mark" {x} >out 2>err
    await 5 none_left || fail 'a hanging trial left a session'
    good tune --trials 1 --space x=1 -- \
        sh -c "setsid sleep $mark & (setsid env -i sleep $mark &); echo '{\"eval_loss\":1}'" {x}
    await 5 none_left || fail 'a trial that ended left a session'
    rm here
    start tune --trials 3 --parallel 2 --space x=1 -- \
        sh -c "setsid sh -c 'setsid sleep $mark & sleep $mark' & echo >here; sleep $mark" {x}
    await 10 [ -e here ] || fail 'no trial began'
    kill -KILL "$started_pid"
    wait "$started_pid"
    await 5 none_left || fail 'a killed search left sessions'
    rm here
    start tune --trials 2 --space x=1 -- sh -c "[ {trial} = 1 ] || exec echo '{\"eval_loss\":1}'
        env -i sleep $mark & echo >here; wait" {x}
    await 10 [ -e here ] || fail 'no second trial began'
    kill -KILL "$started_pid"
    wait "$started_pid"
    await 5 none_left || fail "a killed search left a later trial's group"
    started_pid=
}
none_left() { ! pgrep -f "sleep $mark" >/dev/null; }

# Trials of choir train that save in their folders run again after any end of the search, and where
# one of them is killed.
saved_trials() {
    local search=(--json --trials 2 --seed 1 --space 'lr=log(1e-3,1e-1)' -- "$CHOIR" train random
        --model toy --steps 8000 --save {dir} --save-every 500 --log=run:{dir}/run) signal
    good tune --dir calm "${search[@]}" && trials out | grep trial >calm.trials
    for signal in KILL TERM; do
        rm -rf again
        start tune --dir again "${search[@]}"
        await 10 [ -e again/0/latest ] || fail 'no checkpoint'
        kill -"$signal" "$started_pid"
        ended 10
        good tune --json --dir again
        diff calm.trials <(trials out | grep trial) || fail "after $signal: $(cat err)"
    done
    rm -rf again
    start tune --dir again --retries 1 "${search[@]}"
    await 10 [ -e again/0/latest ] || fail 'no checkpoint'
    pkill -KILL -f 'save again/0 '
    ended 60
    diff calm.trials <(trials out | grep trial) || fail "a killed trial: $(cat err)"
}

# Numbers are written as JSON has them.
numbers() {
    good tune --json --dir numbers --trials 3 --sampler grid --space 'x=choice(0x10,.5,1e21)' -- \
        sh -c 'echo "{\"eval_loss\":1}"; echo "$CHOIR_TRIAL_PARAMS" >&2' sh {x}
    [ "$(grep -o '"x":[^}]*' out | head -3 | tr '\n' ' ')" = '"x":16 "x":0.5 "x":1e+21 ' ] ||
        fail "$(cat out)"
    [ "$(cat numbers/*/stderr | tr '\n' ' ')" = '{"x":16} {"x":0.5} {"x":1e+21} ' ] ||
        fail "$(cat numbers/*/stderr)"
    # The shortest decimals that read back, which the command has, are those of all outputs.
    good tune --json --dir short --trials 1 --space 'x=uniform(0,1)' --space 'y=log(1e-6,1)' \
        --space 'n=int(1,9000000000000001)' --enqueue 'x=0.1,y=1e-05,n=9000000000000001' -- \
        sh -c 'echo "{\"eval_loss\":5.12468}"; echo "$* $CHOIR_TRIAL_PARAMS" >&2' sh {x} {y} {n}
    local params='{"x":0.1,"y":1e-05,"n":9000000000000001}'
    [ "$(cat short/0/stderr)" = "0.1 1e-05 9000000000000001 $params" ] ||
        fail "$(cat short/0/stderr)"
    [ "$(grep -cF "\"params\":$params,\"value\":5.12468" out)" = 2 ] || fail "$(cat out)"
    good tune export short
    has out '^0,COMPLETE,5.12468,0.1,1e-05,9000000000000001,'
}

# Columns of CSV differ in their names, and --json gives lines of JSON.
exports() {
    local name all=(state step seconds why eval_loss params_why x) spaces=() words=()
    for name in "${all[@]}"; do
        spaces+=(--space "$name=0.5")
        words+=("{$name}")
    done
    good tune --dir clash --trials 1 "${spaces[@]}" -- \
        sh -c 'echo "{\"eval_loss\":2}"' sh "${words[@]}"
    good tune export clash
    [ "$(head -1 out)" = "number,state,eval_loss,params_state,params_step,params_seconds,\
params_params_why,params_eval_loss,params_why,x,step,seconds,why" ] || fail "$(head -1 out)"
    good tune --dir clash_metric --trials 1 --metric seconds --space x=1 -- \
        sh -c 'echo "{\"seconds\":2}"' sh {x}
    good tune export clash_metric
    [ "$(head -1 out)" = number,state,values_seconds,x,step,seconds,why ] || fail "$(head -1 out)"
    good tune export --json clash_metric
    has out '^\{"event":"trial","number":0,"state":"COMPLETE","params":\{"x":1\},"value":2,"sec'
    [ "$(wc -l <out)" = 1 ] || fail "$(cat out)"
}

wrong() {
    local s='--space x=uniform(0,1)'
    bad 2 'missing --space NAME=DISTRIBUTION' tune -- true
    bad 2 'missing COMMAND' tune $s
    bad 2 "unknown action 'shwo' \(did you mean 'show'\?\): choose one of show, best, impo" \
        tune shwo runs.db
    bad 2 "did you mean 'export'" tune exprot runs.db --json
    bad 2 'missing --space' tune ./bowl runs.db
    bad 2 "expected NAME=DISTRIBUTION, got 'x'" tune --space x -- true
    bad 2 "unknown distribution 'unifrm'.*did you mean 'uniform'" tune --space 'x=unifrm(0,1)' -- \
        true
    bad 2 "the space has no parameter 'y'" tune $s -- ./bowl {x} {y}
    bad 2 'parameter x: the command has no \{x\}' tune $s -- ./bowl
    bad 2 "choir train has no option --lrr, .*; did you mean 'lr'" \
        tune --space 'lrr=log(1e-4,1)' -- choir train random
    bad 2 'the command has \{dir\}: expected --dir DIR' tune $s -- ./bowl {x} {dir}/log
    bad 2 "unknown sampler 'tree'" tune $s --sampler tree -- ./bowl {x}
    bad 2 "unknown direction 'minimze' .did you mean 'minimize'" \
        tune $s --direction minimze -- ./bowl {x}
    bad 2 "unknown direction 'down'" tune $s --direction down -- ./bowl {x}
    bad 2 "unknown direction 'minimize,maximize'" \
        tune $s --direction minimize,maximize -- ./bowl {x}
    bad 2 'expected at least --parallel 4' tune $s --parallel 4 --window 2 -- ./bowl {x}
    bad 2 "the space has no parameter 'y'" tune $s --enqueue y=1 -- ./bowl {x}
    bad 2 'trial x=0.5: it does not fulfil the condition x > 2' \
        tune $s --require 'x > 2' --enqueue x=0.5 -- ./bowl {x}
    bad 2 'trial o=b,m=0.5: it has no parameter m, which is uniform\(0,1\) if o==a' \
        tune --space 'o=choice(a,b)' --space 'm=uniform(0,1) if o==a' --enqueue o=b,m=0.5 -- \
        ./bowl {o} {m}
    bad 1 'no suggestion|none of 1000 suggestions' tune $s --quiet --require 'x > 2' -- ./bowl {x}
    bad 2 'expected a program that every trial has' tune --space 'o=choice(a,b)' \
        --space 'x=uniform(0,1) if o==a' -- {x} {o}
    bad 1 'none of 1000000 points of the grid in a row fulfils .*x \+ y > 3' tune --quiet \
        --sampler grid:points=1000000 $s --space 'y=uniform(0,1)' --require 'x + y > 3' -- \
        ./bowl {x} {y}
    bad 1 '/dev/null/runs' tune $s --dir /dev/null/runs -- ./bowl {x}
}

check same_trials
check table
check spaces
check trains
check fails
check late_output
check endless_output
check few_descriptors
check odd_words
check hangs
check saved_trials
check numbers
check exports
check wrong
finish
