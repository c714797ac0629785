#!/usr/bin/env bash
# choir tune --storage: searches that are killed and go on, machines that share a study, what
# show, best and export say, and storages that are locked, read-only, full or no such storage.
. "$(dirname "$0")/../lib.sh"
"$CHOIR" info --json | grep -q '"studies":\[[^]]*"sqlite"' || skip 'this build has no SQLite'
command -v sqlite3 >/dev/null || skip 'there is no sqlite3 (see script/bootstrap --dev)'

# A bowl that notes each start. Of a number that is in `holding` it waits for its own end.
cat >bowl <<'BOWL'
#!/bin/bash
echo "$CHOIR_TRIAL_NUMBER" >>starts
if [ -e holding ] && [ "$(cat holding)" = "$CHOIR_TRIAL_NUMBER" ]; then
    echo "$PPID" >holder.new
    mv holder.new holder
    exec sleep 2718.28
fi
awk -v x="$1" -v w="$2" \
    'BEGIN { printf "{\"step\":1,\"eval_loss\":%.6f}\n", (x - 0.3)^2 + (w - 4)^2 }'
BOWL
chmod +x bowl
mark=2718.28
search=(--window 4 --seed 3 --space 'x=uniform(0,1)' --space 'width=int(1,8)')
bowl=(-- ./bowl {x} {width})
whole=(--trials 30 "${search[@]}" "${bowl[@]}")

# trials FILE: what must not depend on who ran them.
trials() { sed 's/,"seconds":[0-9.]*//' "$1"; }

reference() {
    good tune --json "${whole[@]}"
    trials out >reference
}

# ended_trials: numbers of trials whose end is on the disk.
ended_trials() { sqlite3 "$1" "SELECT number FROM trials WHERE state = 'COMPLETE'"; }
has_trials() { [ "$(ended_trials "$1" 2>/dev/null | wc -l)" -ge "$2" ]; }

# Killed again and again, at moments of all kinds, the search ends with the same table; what had
# ended did not start again.
killed() {
    local at told n
    for at in 1 2 5 6 9 13 14 19 24 28; do
        rm -f starts
        start tune --json --storage sqlite:killed.db --parallel 3 "${whole[@]}"
        await 20 has_trials killed.db "$at" || fail "no $at trials: $(cat err)"
        kill -KILL "$started_pid" 2>/dev/null
        wait "$started_pid" 2>/dev/null
        ended_trials killed.db >before
        [ -e starts ] && [ -e told ] && for n in $(cat told); do
            grep -qx "$n" starts && fail "trial $n had ended, and was started again"
        done
        cp before told
    done
    started_pid=
    good tune --json --storage sqlite:killed.db --parallel 3 "${whole[@]}"
    trials out | cmp -s reference - ||
        fail "another table after kills: $(trials out | diff reference -)"
    rm -f starts
    good tune --json --storage sqlite:killed.db "${whole[@]}"
    trials out | cmp -s reference - || fail 'another table of a study that has all trials'
    [ ! -e starts ] || fail "started again: $(cat starts)"
    [ "$(sqlite3 killed.db 'SELECT count(*), count(DISTINCT number) FROM trials')" = '30|30' ] ||
        fail 'numbers of trials'
}

# Two searches share a study; one is killed while it runs trial 5, which the other takes up. And
# an interrupted search leaves its trial at once.
shared() {
    local first second holder end status
    for end in KILL TERM; do
        status=$((128 + $(kill -l $end)))
        rm -f holder starts
        echo 5 >holding
        "$CHOIR" tune --json --storage sqlite:$end.db "${whole[@]}" \
            >out1 2>err1 &
        first=$!
        "$CHOIR" tune --json --storage sqlite:$end.db "${whole[@]}" \
            >out2 2>err2 &
        second=$!
        await 20 [ -e holder ] || fail "nobody runs trial 5: $(cat err1 err2)"
        rm holding
        holder=$(cat holder)
        kill -$end "$holder"
        wait "$first" 2>/dev/null
        local status1=$?
        wait "$second" 2>/dev/null
        local status2=$?
        [ $((status1 + status2)) = "$status" ] ||
            fail "status $status1 and $status2, not $status and 0: $(cat err1 err2)"
        [ "$holder" = "$first" ] && cp out2 out || cp out1 out
        trials out | cmp -s reference - ||
            fail "another table of two searches ($end): $(trials out | diff reference -)"
        [ "$(sort -n starts | uniq -d)" = 5 ] && [ "$(grep -cx 5 starts)" = 2 ] ||
            fail "started twice: $(sort -n starts | uniq -d)"
        gone 5
    done
}

# Journals: killed, shared, and looked at.
journals() {
    local at
    for at in 3 8 17; do
        start tune --json --storage journal:killed.log --parallel 3 "${search[@]}" "${bowl[@]}"
        await 20 [ -e killed.log ]
        await 20 ends_in killed.log $at || fail "no $at trials: $(cat err)"
        kill -KILL "$started_pid" 2>/dev/null
        wait "$started_pid" 2>/dev/null
        printf '{"op_code":6,"worker_id":"x","trial_id":0,"sta' >>killed.log # half a line
        rm -f killed.log.lock # else the next one waits for 30 s
    done
    started_pid=
    "$CHOIR" tune --json --storage killed.log "${whole[@]}" >out1 2>err1 &
    good tune --json --storage journal:///killed.log "${whole[@]}"
    wait $!
    trials out | cmp -s reference - || fail "another table: $(trials out | diff reference -)"
    trials out1 | cmp -s reference - || fail "another table: $(trials out1 | diff reference -)"
    good tune best --json killed.log
    [ "$(cat out)" = "$(tail -1 reference)" ] || fail "best: $(cat out)"
    [ ! -e killed.log.lock ] || fail 'a lock is left'
    echo 'Once upon a time.' >story.log
    bad 1 "story.log, line 1: expected a line of Optuna's journals, got 'Once upon" \
        tune --storage journal:story.log "${whole[@]}"
    bad 1 'cannot open no/such.log: No such file' tune --storage no/such.log "${whole[@]}"

    # A byte of zero amid the lines is damage; what follows it is not cut off.
    at=$(($(head -40 killed.log | wc -c) + 30))
    cp killed.log hole.log
    printf '\0' | dd of=hole.log bs=1 seek=$at conv=notrunc status=none
    touch -d '10 seconds ago' hole.log
    cp hole.log before
    bad 1 'hole.log, line 41: expected a line .* got bytes of zero' tune show hole.log
    bad 1 'hole.log, line 41: expected a line .* got bytes of zero' \
        tune --storage hole.log "${whole[@]}"
    cmp -s before hole.log || fail 'the search changed a damaged journal'
    head -40 killed.log >zeros.log # a machine that went down leaves zeros at the end: they go
    head -c 300 /dev/zero >>zeros.log
    good tune --json --storage zeros.log "${whole[@]}"
    trials out | cmp -s reference - || fail 'another table after zeros at the end'
}
ends_in() { [ "$(grep -c '"state":1' "$1")" -ge "$2" ]; }

# Many begin at once with a file that is not there yet.
crowd() {
    local i pids=
    for i in 1 2 3 4 5 6 7 8; do
        "$CHOIR" tune --json --storage crowd.db "${whole[@]}" \
            >crowd$i 2>crowd-err$i &
        pids+=" $!"
    done
    for i in $pids; do wait "$i" || fail "status $?"; done
    for i in 1 2 3 4 5 6 7 8; do
        [ ! -s crowd-err$i ] || fail "$(cat crowd-err$i)"
        trials crowd$i | cmp -s reference - ||
            fail "another table: $(trials crowd$i | diff reference -)"
    done
}

looks() {
    good tune --dir runs "${whole[@]}"
    cp out whole
    good tune show runs
    cmp -s whole out || fail "show: $(diff whole out)"
    good tune show --json sqlite:runs/study.db
    trials out | cmp -s reference - || fail "show --json: $(trials out | diff reference -)"
    good tune best --json runs/study.db
    [ "$(cat out)" = "$(tail -1 reference)" ] || fail "best: $(cat out)"
    good tune best runs
    [ "$(cat out)" = "$(tail -2 whole)" ] || fail "best: $(cat out)"
    bash -c "$(tail -1 out)" >again # the command that it prints, with its folder
    cat again <(tail -1 reference) | sed -E 's/.*"(eval_loss|value)":([0-9.e-]*).*/\2/' |
        awk '{ v[NR] = $1 } END { exit !(NR == 2 && v[1] - v[2] == 0) }' ||
        fail "the best trial's command: $(cat again)"
    good tune export runs
    [ "$(head -1 out)" = 'number,state,eval_loss,x,width,step,seconds,why' ]  &&
        [ "$(wc -l <out)" = 31 ] || fail "export: $(head -1 out)"
    has out '^29,COMPLETE,[0-9.e-]+,0[.][0-9]+,[1-8],1,[0-9.]+,$'
    choir tune --dir failed --trials 2 --space 'x=choice("a,b",c)' --sampler grid -- \
        sh -c 'echo "no, \"never\"" >&2; exit 3' {x} >out 2>err
    good tune export failed
    has out '^0,FAIL,,"a,b",,[0-9.]+,"exited with status 3: no, ""never"""$'
    bad 1 'no trial has a value' tune best failed
    for n in 3 9; do # a grid goes on behind its last point
        good tune --dir grid --trials $n --space 'x=choice(1,2,3,4,5)' --sampler grid -- \
            sh -c 'echo "{\"eval_loss\":$1}"' sh {x}
    done
    [ "$(grep -c COMPLETE out)" = 5 ] || fail "a grid of 5: $(cat out)"
}

# Of the trials that are given to a search that goes on, the new ones run, once each.
given() {
    local given=(--sampler random --space 'x=uniform(0,1)' --space 'width=int(1,8)')
    good tune --storage given.db --trials 3 --enqueue x=0.25 "${given[@]}" "${bowl[@]}"
    good tune --json --storage given.db --trials 6 --enqueue x=0.5,width=2 --enqueue x=0.25 \
        --enqueue x=0.125 --enqueue x=0.125 "${given[@]}" "${bowl[@]}"
    has out '"number":0,.*"x":0.25,' '"number":3,.*"x":0.5,"width":2\}' '"number":4,.*"x":0.125,'
    [ "$(grep '"trial"' out | grep -cE '"x":0[.](25|5|125),')" = 3 ] || fail "$(cat out)"
    # A study of an earlier Choir does not say which point a trial was given.
    sqlite3 given.db "DELETE FROM trial_system_attributes WHERE key = 'fixed_params'"
    good tune --json --storage given.db --trials 7 --enqueue x=0.125 --enqueue x=0.5,width=2 \
        "${given[@]}" "${bowl[@]}"
    [ "$(grep '"trial"' out | grep -cE '"x":0[.](25|5|125),')" = 3 ] || fail "$(cat out)"
    bad 2 '^choir tune: --enqueue: trial x=0.75: the study of 7 trials has no room' \
        tune --storage given.db --trials 7 --enqueue x=0.75 "${given[@]}" "${bowl[@]}"
}

# A study that goes on under another command says which word has changed, and once.
other_command() {
    local db=sqlite:command.db
    good tune --storage $db --trials 2 "${search[@]}" "${bowl[@]}"
    cp bowl basin
    noted "ran another command: its word 1 was './bowl', and is './basin' now" \
        tune --quiet --storage $db --trials 3 "${search[@]}" -- ./basin {x} {width}
    noted "ran another command: its word 4 was missing, and is 'more' now" \
        tune --quiet --storage $db --trials 4 "${search[@]}" -- ./basin {x} {width} more
    good tune --quiet --storage $db --trials 5 "${search[@]}" -- ./basin {x} {width} more
    [ ! -s err ] || fail "told twice: $(cat err)"
}

# Steps that count tokens are large; one that no storage holds is a trial's failure.
large_steps() {
    local storage
    for storage in sqlite:large.db journal:large.log; do
        good tune --trials 1 --storage $storage --unit tokens --space n=7000000000 -- \
            sh -c 'echo "{\"tokens\":$1,\"eval_loss\":1}"' sh {n}
        good tune show --json $storage
        has out '"state":"COMPLETE",.*"value":1,"step":7000000000,'
    done
    choir tune --storage large.db --study more --trials 1 --space n=1 -- sh -c \
        'echo "{\"step\":99999999999999999999,\"eval_loss\":1}"; exec sleep 1618.03' {n} >out 2>err
    [ $? = 1 ] || fail "a step that is too large: $(cat out)"
    has out 'FAIL .* step: expected a step of at most 9223372036854775806, got '
}

# --- what is refused --------------------------------------------------------------------------

other_studies() {
    local db="sqlite:KILL.db"
    # An option that is refused leaves nothing in the storage.
    bad 2 'expected a study in memory' tune --storage sqlite:fresh.db --scheduler asha \
        --free --dir fresh --space 'x=uniform(0,1)' -- true {x}
    bad 2 'sampler tpe: ' tune --storage sqlite:fresh.db --sampler tpe:statup=5 \
        --space 'x=uniform(0,1)' -- true {x}
    good tune --storage sqlite:fresh.db --trials 1 --space 'x=uniform(0,1)' -- \
        sh -c 'echo "{\"eval_loss\":1}"' sh {x}
    # A search that was refused before its first trial leaves no definition behind.
    bad 2 "parameter x: '7' is not a value" tune --storage sqlite:first.db --trials 1 \
        --space 'x=uniform(0,1)' --enqueue x=7 -- sh -c 'echo "{\"eval_loss\":1}"' sh {x}
    good tune --storage sqlite:first.db --trials 1 --space 'x=uniform(0,10)' --enqueue x=7 -- \
        sh -c 'echo "{\"eval_loss\":1}"' sh {x}
    bad 2 'has the space .*, got ' tune --storage sqlite:first.db --trials 1 \
        --space 'x=uniform(0,11)' -- true {x}
    bad 2 'expected sqlite:FILE, postgresql://.*, journal:FILE or a FILE.db' \
        tune --storage studies.txt "${search[@]}" "${bowl[@]}"
    bad 2 "study 'study' has the window 4, got 1" \
        tune --storage $db --seed 3 --window 1 "${search[@]:4}" "${bowl[@]}"
    bad 2 "parallel 5: expected at most the window of the study 'study', 4" \
        tune --storage $db --seed 3 --parallel 5 "${search[@]:4}" "${bowl[@]}"
    bad 2 "study 'study' has the order \"fixed\", got \"free\"" \
        tune --storage $db --free "${search[@]}" "${bowl[@]}"
    bad 2 "study 'study' has the space .*, got " \
        tune --storage $db "${search[@]:0:4}" --space x=1 -- true {x}
    bad 2 "study 'study' has another direction" \
        tune --storage $db --direction maximize "${search[@]}" "${bowl[@]}"
    bad 2 "study 'study' has the sampler \"tpe\", got \"random\"" \
        tune --storage $db --sampler random "${search[@]}" "${bowl[@]}"
    bad 2 'the study has the metric eval_loss, got accuracy' \
        tune --storage $db --metric accuracy "${whole[@]}"
    bad 1 "there is no study 'other' in .*KILL.db: choose one of study" \
        tune show --study other KILL.db
    good tune --quiet --trials 1 --storage $db --study other --space x=1 -- ./bowl {x} 4
    bad 1 'holds several studies: choose one of study, other' tune show KILL.db
    good tune show --study other KILL.db
    bad 2 'missing STUDY' tune show
}

no_storages() {
    local s=("${search[@]}" "${bowl[@]}")
    bad 1 'cannot open .*none.db: no such file$' tune show none.db
    bad 1 'cannot open .*none.db: no such file$' tune show --storage sqlite:none.db
    bad 1 'cannot open .*no/such.db: no such file, or no right' \
        tune --storage sqlite:no/such.db "${s[@]}"
    echo 'Once upon a time there was no database, but a long line of text.' >text.db
    bad 1 'text.db is not an SQLite database' tune --storage sqlite:text.db "${s[@]}"
    sqlite3 empty.db 'CREATE TABLE things (id INTEGER)'
    bad 1 'there are no studies in .*empty.db' tune show empty.db
    cp KILL.db newer.db
    sqlite3 newer.db 'UPDATE version_info SET schema_version = 13'
    bad 1 'written by a newer Optuna: expected tables of version 12, got 13' \
        tune --storage newer.db "${s[@]}"
    sqlite3 newer.db 'UPDATE version_info SET schema_version = 11'
    bad 1 "an older Optuna.*'optuna storage upgrade'" tune --storage newer.db "${s[@]}"
    sqlite3 newer.db "UPDATE version_info SET schema_version = 12;
        UPDATE alembic_version SET version_num = 'v9.9.9'"
    bad 1 "written by another Optuna: expected tables of revision v3.2.0.a, got 'v9.9.9'" \
        tune --storage newer.db "${s[@]}"
    bad 2 'expected sqlite:a.db or sqlite:///a.db' tune --storage sqlite://a.db "${s[@]}"
    bad 2 'expected a timeout from 0' tune --storage 'sqlite:a.db?timeout=soon' "${s[@]}"
}

# hold FILE: another program locks it until `release`.
hold() {
    coproc sqlite3 -batch "$1"
    holding_in=${COPROC[1]} holding_out=${COPROC[0]}
    echo '.timeout 5000
        BEGIN IMMEDIATE; SELECT 1;' >&"$holding_in"
    read -r -u "$holding_out" _
}
release() {
    local pid=$COPROC_PID
    echo 'COMMIT;' >&"$holding_in"
    eval "exec $holding_in>&-"
    wait "$pid"
}

locked() {
    rm -f holder
    hold KILL.db
    bad 1 'another program has locked the file for 0.1 s' \
        tune --storage 'sqlite:KILL.db?timeout=0.1' --trials 31 "${search[@]}" "${bowl[@]}"
    release
    # In the middle of a search the trials wait.
    start tune --json --storage 'sqlite:locked.db?timeout=0.1' --trials 4 "${search[@]}" -- \
        sh -c 'if [ $1 = 1 ]; then >here; while [ ! -e go ]; do sleep 0.02; done; fi
            exec ./bowl $2 $3' sh {trial} {x} {width}
    await 10 [ -e here ] || fail "no trial 1: $(cat err)"
    hold locked.db
    >go
    await 10 grep -q 'trials wait' err || fail "does not wait: $(cat err)"
    release
    ended 20
    [ "$status" = 0 ] && [ "$(grep -c COMPLETE out)" = 4 ] || fail "$(cat out err)"
    [ "$(wc -l <err)" = 2 ] || fail "$(cat err)"
    has err 'locked the file for 0.1 s; the study.s trials wait$' 'answers again$'
}

read_only() {
    mkdir small
    mount -t tmpfs -o size=300k tmpfs small 2>/dev/null ||
        { echo 'no tmpfs may be mounted: no full disk'; return; }
    choir tune --storage small/full.db --trials 3000 "${search[@]}" "${bowl[@]}" >out 2>err
    [ $? = 1 ] && grep -q 'full.db: the disk is full' err || fail "a full disk: $(tail -3 err)"
    [ "$(grep -c . err)" = 1 ] || fail "$(cat err)"
    umount small
    mount -t tmpfs -o size=4m tmpfs small
    good tune --quiet --storage small/once.db --trials 2 "${search[@]}" "${bowl[@]}"
    cp small/once.db small/plain.db
    sqlite3 small/plain.db 'PRAGMA journal_mode=DELETE' >/dev/null # as Optuna makes files
    mount -o remount,ro small
    bad 1 'once.db: the file is read-only' \
        tune --storage small/once.db --trials 3 "${search[@]}" "${bowl[@]}"
    local file
    for file in once plain; do # but they can be looked at
        good tune show "$PWD/small/$file.db"
        [ "$(grep -c COMPLETE out)" = 2 ] || fail "$(cat out)"
    done
    umount small
}

# Another search is kept out of the folder of one that lives; the same one may share it.
one_search_a_folder() {
    rm -f starts holding holder
    echo 1 >holding
    start tune --json --dir ours --trials 3 "${search[@]}" "${bowl[@]}"
    await 20 test -e holder || fail "no trial 1: $(cat err)"
    choir tune --json --dir ours --storage memory --trials 3 "${search[@]}" "${bowl[@]}" \
        >refused 2>&1 &
    bad 1 'another job has the folder ours: pid' \
        tune --json --dir ours --study another --trials 3 "${search[@]}" "${bowl[@]}"
    wait $! && fail 'a search in the folder of another'
    has refused 'another job has the folder ours: pid'
    rm holding
    pkill -KILL -f "sleep $mark"
    good tune --json --dir ours --trials 3 --retries 2 "${search[@]}" "${bowl[@]}"
    ended 20
    [ ! -e ours/.in-use ] || fail 'a search that has ended still has its folder'
}

# Whoever begins when the study's file is not there yet shares it with those that come later.
one_study_before_its_file() {
    local same=(--json --dir theirs --storage journal:new.log --trials 3 --retries 2)
    rm -f starts holding holder
    echo 1 >holding
    start tune "${same[@]}" "${search[@]}" "${bowl[@]}"
    await 20 test -e holder || fail "no trial 1: $(cat err)"
    rm holding
    pkill -KILL -f "sleep $mark"
    good tune "${same[@]}" --storage "journal:$PWD/new.log" "${search[@]}" "${bowl[@]}"
    ended 20
    [ ! -e theirs/.in-use ] || fail 'a search that has ended still has its folder'
}

check reference
check one_search_a_folder
check one_study_before_its_file
check killed
check shared
check journals
check crowd
check looks
check given
check other_command
check large_steps
check other_studies
check no_storages
check locked
check read_only
finish
