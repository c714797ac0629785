#!/usr/bin/env bash
# choir tune --storage with trials that stop and go on: searches that are killed at any moment,
# that are interrupted, or that share a study, end with the table of a search in memory; no
# segment that has ended starts again.
. "$(dirname "$0")/../lib.sh"
"$CHOIR" info --json | grep -q '"studies":\[[^]]*"sqlite"' || skip 'this build has no SQLite'
command -v sqlite3 >/dev/null || skip 'there is no sqlite3 (see script/bootstrap --dev)'

# A curve that falls to its parameter's distance from 300000, and keeps its step after each
# report. It notes its starts. It runs on until it is stopped, or with CURVE_ENDS to its budget:
# with pbt, copies of a checkpoint begin where it is.
cat >curve <<'CURVE'
#!/bin/bash
last=${CURVE_ENDS:+$CHOIR_TRIAL_BUDGET}
step=0 stop=0 file=$CHOIR_TRIAL_DIR/checkpoint far=$(($1 - 300000))
[ -e "$file" ] && read -r step <"$file"
echo "$CHOIR_TRIAL_NUMBER ${CHOIR_TRIAL_BUDGET-9} from $step" >>starts
trap stop=1 TERM
while ((step < ${last:-9} && !stop)); do
    step=$((step + 1))
    loss=$(((far < 0 ? -far : far) + 1000000 / step))
    echo "{\"${CHOIR_TRIAL_UNIT-step}\":$step,\"eval_loss\":$loss}"
    echo $step >"$file"
    read -rt 0.01 <> <(:) # time for the signal
    # At its budget the trial is stopped, which may take longer on a busy machine.
    while ((step < 9 && step == ${CHOIR_TRIAL_BUDGET-9} && !stop)); do read -rt 0.01 <> <(:); done
done
((!stop)) || exit 143
CURVE
chmod +x curve
asha=(--scheduler 'asha:min=1,max=9,eta=3' --trials 12)
hyperband=(--scheduler 'hyperband:min=1,max=9,eta=3' --trials 12)
pbt=(--scheduler 'pbt:population=8,interval=3,max=9' --trials 14)
search=(--json --window 4 --seed 2 --sampler random --space 'x=int(0,1000000)' -- ./curve {x})

# parts FILE: what must not depend on who ran them.
parts() { sed 's/,"seconds":[0-9.]*//' "$1"; }
same_table() {
    parts out | cmp -s "$1.reference" - ||
        fail "another table: $(parts out | diff "$1.reference" -)"
}
# words KIND OPTION...: the words of the search with that scheduler.
words() {
    local -n options=$1
    export CURVE_ENDS=
    [ "$1" = pbt ] && CURVE_ENDS=yes
    shift
    words=(tune "${options[@]}" "$@" "${search[@]}")
}

references() {
    local kind
    for kind in asha hyperband pbt; do
        words $kind --storage memory --dir memory.$kind
        good "${words[@]}"
        parts out >$kind.reference
    done
}

# sum_of_parts FILE: "trial seconds step" of the printed parts of each trial
sum_of_parts() {
    sed -nE 's/.*"trial","number":([0-9]*),.*"step":([0-9]*),.*"seconds":([0-9.]*).*/\1 \2 \3/p' \
        "$1" | awk '{ seconds[$1] += $3; step[$1] = $2 }
            END { for (t in step) printf "%d %.3f %d\n", t, seconds[t], step[t] }' | sort -n
}

# A trial's seconds are those of all its parts, and its step is the last one's; the unit of steps
# is the study's.
looks() {
    words asha --dir units --unit epoch
    good "${words[@]}"
    sed 's/,"unit":"epoch"//' out >printed
    sum_of_parts printed >from_parts
    [ "$(wc -l <from_parts)" = 12 ] || fail "parts: $(cat out)"
    good tune show --json units
    has out '"number":0,.*,"step":[0-9]+,"unit":"epoch","seconds":'
    sed 's/,"unit":"epoch"//' out >shown
    sum_of_parts shown | cmp -s from_parts - || fail "show: $(cat out)"
    good tune export units
    [ "$(head -1 out)" = number,state,eval_loss,x,epoch,seconds,why ] || fail "$(head -1 out)"
    tail -n +2 out | awk -F, '{ printf "%d %.3f %d\n", $1, $6, $5 }' | cmp -s from_parts - ||
        fail "export: $(cat out)"
    good tune show units
    has out '^trial +state +eval_loss +epoch +x +seconds$'
    # Attributes, which Optuna shows, are of all parts, too: each step takes 10 ms or more.
    [ "$(sqlite3 units/study.db "SELECT count(*), min(a.value_json >= 0.01 * s.value_json)
        FROM trials JOIN trial_user_attributes a USING (trial_id)
        JOIN trial_user_attributes s USING (trial_id)
        WHERE a.key = 'seconds' AND s.key = 'step'")" = '12|1' ] || fail 'seconds of a part alone'
    bad 2 'the study has the unit epoch, got step; choose the same, or another name' \
        tune "${asha[@]}" --dir units "${search[@]}"
    sqlite3 units/study.db "DELETE FROM study_user_attributes WHERE key = 'choir:unit'"
    good tune show units # a study of an earlier Choir
    has out '^trial +state +eval_loss +step +x +seconds$'
}

# ended_segments FILE: "trial count" of the segments whose end is on the disk.
ended_segments() {
    sqlite3 "$1" "SELECT number, json_array_length(value_json) FROM trials
        JOIN trial_system_attributes USING (trial_id) WHERE key = 'choir:segments'" 2>/dev/null
}
has_segments() {
    [ "$(ended_segments "$1" | awk -F'|' '{ n += $2 } END { print n + 0 }')" -ge "$2" ]
}

# The budgets of each trial with the number of its segment, from a table of parts.
budgets() { sed -n 's/.*"number":\([0-9]*\),.*"step":\([0-9]*\)}.*/\1 \2/p' "$1"; }

killed() {
    local kind at trial count times
    for kind in asha hyperband pbt; do
        words $kind --dir killed.$kind --parallel 3
        rm -f starts ended
        for at in 1 2 4 5 8 11 13; do
            start "${words[@]}"
            await 20 has_segments killed.$kind/study.db $at || fail "no $at segments: $(cat err)"
            kill -KILL "$started_pid" 2>/dev/null
            wait "$started_pid" 2>/dev/null
            check_starts $kind
            ended_segments killed.$kind/study.db >ended
            rm -f starts
        done
        started_pid=
        good "${words[@]}"
        same_table $kind
        check_starts $kind
        rm -f starts
        good "${words[@]}"
        same_table $kind
        [ ! -e starts ] || fail "started again: $(cat starts)"
    done
}

# No segment in `ended` is among the starts since.
check_starts() {
    local trial count budget
    [ -e ended ] && [ -e starts ] || return
    while IFS='|' read -r trial count; do
        while read -r budget; do
            grep -q "^$trial $budget " starts &&
                fail "$1: trial $trial had ended its segment to $budget, and started it again"
        done < <(budgets $1.reference |
            awk -v t="$trial" -v n="$count" '$1 == t && k++ < n { print $2 }')
    done <ended
}

# An interrupted search leaves its trials at once, and they go on from where they came.
interrupted() {
    local trial n
    words asha --dir interrupted --parallel 2
    start "${words[@]}"
    await 20 has_segments interrupted/study.db 3 || fail "no segments: $(cat err)"
    kill -TERM "$started_pid"
    ended 20
    [ "$status" = 143 ] || fail "status $status: $(cat err)"
    # Optuna may fail a trial from which no sign of life comes: its segments stay as they were.
    trial=$(for n in $(sqlite3 interrupted/study.db "SELECT number FROM trials JOIN
            trial_system_attributes USING (trial_id) WHERE value_json LIKE '\"paused%'"); do
        [ "$(budgets asha.reference | grep -c "^$n ")" != 1 ] || echo "$n"
    done | head -1)
    [ -n "$trial" ] || fail 'no trial that waits in vain'
    sqlite3 interrupted/study.db "UPDATE trials SET state = 'FAIL' WHERE number = $trial"
    good "${words[@]}"
    same_table asha
}

# Several searches share the trials; one is killed and another one takes its segments up.
shared() {
    local kind i pids
    for kind in asha pbt; do
        rm -f starts
        pids=
        words $kind --dir shared.$kind --parallel 2
        for i in 1 2 3; do
            "$CHOIR" "${words[@]}" >out$i 2>err$i &
            pids+=" $!"
        done
        await 20 has_segments shared.$kind/study.db 4 || fail "no segments: $(cat err?)"
        kill -KILL "${pids##* }"
        wait $pids 2>/dev/null
        for i in 1 2; do
            [ ! -s err$i ] || fail "$(cat err$i)"
            cp out$i out
            same_table $kind
        done
        good tune show --json shared.$kind
        [ "$(tail -1 out)" = "$(tail -1 $kind.reference)" ] || fail "best: $(tail -1 out)"
        grep -q '"state":"RUNNING"' out && fail "a trial runs: $(cat out)"
    done
}

journals() {
    words asha --storage journal:segments.log --dir journals --parallel 2
    start "${words[@]}"
    await 20 [ -e journals/5/checkpoint ] || fail "no trial 5: $(cat err)"
    kill -KILL "$started_pid"
    wait "$started_pid" 2>/dev/null
    started_pid=
    good "${words[@]}"
    same_table asha
}

# A trial whose worker was killed begins its segment again, with the checkpoint from before it:
# a report that nobody has read would be missing else.
begins_again() {
    cat >slow <<'SLOW'
#!/bin/bash
step=0 file=$CHOIR_TRIAL_DIR/checkpoint
[ -e "$file" ] && read -r step <"$file"
echo "$CHOIR_TRIAL_NUMBER from $step" >>starts
trap : TERM
while ((step < CHOIR_TRIAL_BUDGET)); do
    step=$((step + 1))
    [ ! -e hold ] || [ $step != 3 ] || [ $CHOIR_TRIAL_NUMBER != "$(cat hold)" ] ||
        { echo $step >"$file"; >held; exec sleep 100; } # the report of step 3 is not read
    echo "{\"step\":$step,\"eval_loss\":$((step + CHOIR_TRIAL_NUMBER))}"
    [ -e careless ] || echo $step >"$file"
done
SLOW
    chmod +x slow
    local from w
    for from in 1 0; do # 0: the trial did not save anything before
        rm -rf starts held again
        [ $from = 1 ] || >careless
        echo 0 >hold
        w=(tune --json --trials 3 --sampler random --scheduler asha:min=1,max=3,eta=3
            --space 'x=uniform(0,1)' --dir again -- ./slow {x})
        start "${w[@]}"
        await 20 [ -e held ] || fail "trial 0 does not go on: $(cat err)"
        kill -KILL "$started_pid"
        wait "$started_pid" 2>/dev/null
        started_pid=
        rm hold
        good "${w[@]}"
        has out '"number":0,"state":"COMPLETE",.*"value":3,"step":3'
        [ "$(tail -2 starts)" = "0 from $from
0 from $from" ] || fail "$(cat starts)"
        [ -z "$(ls again/0/checkpoint.* 2>/dev/null)" ] || fail "$(ls again/0)"
    done
}

# No process of a trial outlives a search that is killed.
mark=3141.59
nothing_is_left() {
    start tune --json --parallel 2 --trials 2 --space 'x=choice(1,2)' -- \
        bash -c "sleep $mark & wait" bash {x}
    await 20 left || fail "no process of a trial: $(cat err)"
    kill -KILL "$started_pid"
    wait "$started_pid" 2>/dev/null
    started_pid=
    gone 10
}

wrong() {
    bad 2 '--dir memory.asha: expected a folder without trials of another search' \
        tune "${asha[@]}" --dir memory.asha --storage new.db "${search[@]}"
    [ ! -e new.db ] || fail 'a refused search makes a storage'
    bad 2 'expected a study in memory' \
        tune "${asha[@]}" --free --dir free --storage new.db "${search[@]}"
    good tune "${asha[@]}" --free --dir free "${search[@]}"
    bad 2 'has the scheduler' tune "${hyperband[@]}" --dir interrupted "${search[@]}"
}

check references
check looks
check killed
check interrupted
check shared
check journals
check begins_again
check nothing_is_left
check wrong
finish
