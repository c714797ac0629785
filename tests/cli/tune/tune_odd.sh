#!/usr/bin/env bash
# choir tune with what is unusual: texts that are not UTF-8, numbers that no integer holds, trials
# that are given twice, and studies that are deleted while they are searched.
. "$(dirname "$0")/../lib.sh"
storages=(journal:odd.log)
"$CHOIR" info --json | grep -q '"studies":\[[^]]*"sqlite"' && storages+=(sqlite:odd.db)
latin=$(printf 'caf\351')
print=(-- sh -c 'printf "{\"step\":1,\"eval_loss\":%s}\n" "$1"' sh {x})

# A stored search runs whatever its command's words and its folder are; a name that is to be read
# again, by Choir or by Optuna, is refused.
not_utf8() {
    local storage i search
    for storage in "${storages[@]}"; do
        search=(--storage "$storage" --sampler random --dir "$latin-${storage%%:*}"
            --space 'x=uniform(0,1)' "${print[@]}" "$latin")
        for i in 1 2; do good tune --trials $i "${search[@]}"; done
        good tune best "$storage"
        has out "sh 0[.][0-9]+ 'caf.+'$|sh 0[.][0-9]+ caf.+$"
        bad 2 "expected a study's name in UTF-8" tune --study "$latin" "${search[@]}"
        good tune show "$storage"
    done
    bad 2 '--metric: expected a key of JSON' tune --metric "$latin" "${search[@]}"
    bad 2 "unknown direction 'mxa' \(did you mean 'max'\?\)" tune --metric l:mxa "${search[@]}"
    bad 2 "expected a study's name, got ''" tune --study '' "${search[@]}"
    bad 2 '--unit: expected a key of JSON' tune --unit "$latin" "${search[@]}"
}

# Trials that are given to a search, of which another one takes the last numbers, are counted.
points_left() {
    local other search=(--storage journal:left.log --trials 3 --window 3 --sampler random
        --space 'x=uniform(0,1)')
    start tune "${search[@]}" --enqueue x=0.25 --enqueue x=0.5 --enqueue x=0.75 -- sh -c \
        '>here; until [ -e go ]; do sleep 0.02; done; echo "{\"eval_loss\":$1}"' sh {x}
    await 20 [ -e here ] || fail "no trial: $(cat err)"
    "$CHOIR" tune "${search[@]}" "${print[@]}" >other 2>&1 &
    other=$!
    await 20 ends_in left.log 2 || fail "no other trials: $(cat other)"
    >go
    ended 20
    wait "$other" || fail "the other search: $(cat other)"
    [ "$status" = 0 ] && grep -q '^choir tune: note: 2 of the trials of --enqueue did not' err ||
        fail "$(cat out err)"
    ! grep -q -e --enqueue other || fail "the other search: $(cat other)"
}
ends_in() { [ "$(grep -c '"state":1' "$1")" -ge "$2" ]; }

# A number that no integer holds changes nothing about the others of its line.
large_numbers() {
    local seed='"seed":18446744073709551615' storage
    good tune --json --trials 1 --space x=2 -- \
        sh -c 'echo "{\"step\":7,\"eval_loss\":$1,$2}"' sh {x} "$seed,\"norm\":1e999"
    has out '"COMPLETE","params":.*"value":2,"step":7,'
    good tune --json --trials 1 --space x=2 -- \
        sh -c 'echo "{\"step\":7,\"eval_loss\":NaN,$2}"; echo "{\"eval_loss\":$1}"' sh {x} "$seed"
    has out '"COMPLETE","params":.*"value":2,"step":7,'
    for storage in memory "${storages[@]}"; do
        good tune --json --trials 4 --scheduler asha:min=1,max=3,eta=3 --storage "$storage" \
            --study asha --dir "asha-${storage%%:*}" --space 'x=uniform(0,1)' -- \
            sh -c 'for step in 1 2 3; do echo "{\"step\":$step,\"eval_loss\":$1,$2}"; done' \
            sh {x} "$seed"
        has out '"state":"PRUNED",.*"step":1,' '"state":"COMPLETE",.*"step":3,'
    done
    choir tune --trials 1 --space x=2 -- \
        sh -c 'echo "{\"step\":18446744073709551615,\"eval_loss\":$1}"' sh {x} >out 2>err
    has out 'FAIL .* expected a step of at most 9223372036854775806, got 1.8446744073709552e\+19$'
}

# A search whose study another program deletes fails; it keeps no trials that no study has.
deleted() {
    local storage name=deleted
    for storage in "${storages[@]}"; do
        storage=${storage/odd/deleted}
        local file=${storage#*:}
        case $storage in
        sqlite:*)
            command -v sqlite3 >/dev/null || continue
            local delete="sqlite3 '$file' \"DELETE FROM trials; DELETE FROM studies\"" ;;
        *) local delete="echo '{\"op_code\":1,\"worker_id\":\"x\",\"study_id\":0}' >>'$file'" ;;
        esac
        choir tune --storage "$storage" --study $name --space 'x=uniform(0,1)' --trials 4 -- \
            sh -c "[ \$1 != 1 ] || $delete; echo '{\"step\":1,\"eval_loss\":1}'" sh {trial} {x} \
            >out 2>err
        [ $? = 1 ] || fail "$storage: status, of $(cat out err)"
        is_one_line "$file: another program has deleted the study '$name'" || fail "$(cat err)"
        bad 1 "there is no study in " tune show "$storage"
        [ $storage = journal:deleted.log ] ||
            [ "$(sqlite3 "$file" 'SELECT count(*) FROM trials')" = 0 ] || fail 'trials are left'
    done
}

# A search fails if its file is removed, since its results could not be found again.
removed() {
    local storage
    for storage in "${storages[@]}"; do
        storage=${storage/odd/removed}
        choir tune --storage "$storage" --study a --space 'x=uniform(0,1)' --trials 4 -- \
            sh -c "[ \$1 != 1 ] || rm '${storage#*:}'; echo '{\"step\":1,\"eval_loss\":1}'" \
            sh {trial} {x} >out 2>err
        [ $? = 1 ] || fail "$storage: status, of $(cat out err)"
        is_one_line "${storage#*:}: the file was removed" || fail "$(cat err)"
    done
}

# A search fails if its journal is cut, whose results are lost, also where the cut is not at a
# line's end and others have written behind it.
cut_off() {
    local change
    for change in 'truncate -s 300 "$2"' ': >"$2"' \
        'truncate -s 300 "$2"; head -c 100000 /dev/zero | tr "\0" x >>"$2"'; do
        rm -f cut.log
        choir tune --storage journal:cut.log --space 'x=uniform(0,1)' --trials 4 -- \
            sh -c "[ \$1 != 2 ] || { $change; }"' && echo "{\"step\":1,\"eval_loss\":$3}"' \
            sh {trial} cut.log {x} >out 2>err
        [ $? = 1 ] || fail "$change: status, of $(cat out err)"
        is_one_line 'cut.log: another program has cut the journal: line [0-9]+' ||
            fail "$change: $(cat err)"
    done
}

# A study without directions, which Optuna does not make, has no values.
without_directions() {
    local op='"worker_id":"a","study_id":0'
    printf '%s\n' "{\"op_code\":0,$op,\"study_name\":\"a\"}" \
        "{\"op_code\":4,$op,\"datetime_start\":\"2026-11-28T00:00:00\"}" \
        "{\"op_code\":6,$op,\"trial_id\":0,\"state\":1,\"values\":[1]}" >none.log
    bad 1 "none.log: the study 'a' has no direction" tune show journal:none.log
}

check deleted
check removed
check cut_off
check without_directions
check points_left
check not_utf8
check large_numbers
finish
