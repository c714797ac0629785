#!/usr/bin/env bash
# choir tune with what is unusual: texts that are not UTF-8, numbers that no integer holds, trials
# that are given twice, and studies that are deleted while they are searched.
. "$(dirname "$0")/lib.sh"
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
    bad 2 '--unit: expected a key of JSON' tune --unit "$latin" "${search[@]}"
}

check not_utf8
finish
