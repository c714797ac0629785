#!/usr/bin/env bash
# choir tune STUDY.json: the same search as from options, options that replace the file's, several
# metrics, and what is refused. The file's schema is checked in tests/interop/tune/study_file.py.
. "$(dirname "$0")/../lib.sh"

cat >bowl <<'BOWL'
#!/bin/bash
awk -v x="$1" -v w="$2" 'BEGIN {
    printf "{\"step\":1,\"eval_loss\":%.6f,\"size\":%d}\n", (x - 0.3)^2 + (w - 4)^2, w }'
BOWL
chmod +x bowl
cat >study.json <<'STUDY'
{
  "space": {"x": "uniform(0,1)", "width": "int(1,8)"},
  "require": ["x < 0.75"],
  "enqueue": [{"x": 0.5, "width": 2}],
  "trials": 12,
  "window": 4,
  "seed": 3,
  "command": ["./bowl", "{x}", "{width}"]
}
STUDY
line=(--space 'x=uniform(0,1)' --space 'width=int(1,8)' --require 'x < 0.75'
    --enqueue 'x=0.5,width=2' --trials 12 --window 4 --seed 3)
trials() { sed 's/,"seconds":[0-9.]*//' "$1"; }

same_search() {
    good tune --json "${line[@]}" -- ./bowl {x} {width}
    trials out >from_line
    good tune --json study.json
    trials out | cmp -s from_line - || fail "another search from the file: $(diff from_line out)"
    good tune study.json --json --parallel 4
    trials out | cmp -s from_line - || fail 'options behind the file'
    good tune "${line[@]}" --print-study -- ./bowl {x} {width}
    cp out printed.json
    good tune --json printed.json
    trials out | cmp -s from_line - || fail "another search from --print-study: $(cat printed.json)"
}

replaces() {
    good tune --json study.json --trials 3 --space 'width=choice(2,4)' --require 'x > 0.25' --seed 4
    [ "$(grep -c '"event":"trial"' out)" = 3 ] || fail "$(cat out)"
    ! grep '"event":"trial"' out | grep -qv '"width":[24]' || fail "another width: $(cat out)"
    grep -E '"x":0[.](1|2[0-4]|7[6-9]|[89])' out && fail 'x that a condition excludes'
    good tune --json study.json --trials 2 -- sh -c 'echo "{\"eval_loss\":7}"' {x} {width}
    has out '"number":1,.*"value":7,'
}

# Small and good are opposed: the front has several trials.
metrics() {
    good tune --json study.json --trials 40 --metric eval_loss --metric size:max
    has out '"number":0,.*"values":\[4[.]04,2\]'
    [ "$(grep -c '"event":"best"' out)" -gt 2 ] || fail "front: $(grep best out)"
    has out '"event":"best",.*"values":\[16[.0-9]*,8\]\}'
    good tune study.json --trials 4 --metric eval_loss --metric size
    has out '^trial +state +eval_loss +size +x +width +seconds$' \
        '^best: trial [0-9], eval_loss .*, size [0-9]$'
    good tune study.json --trials 4 --metric eval_loss --metric size --dir two
    good tune export two
    has out '^number,state,eval_loss,size,x,width,step,seconds,why$' \
        '^0,COMPLETE,4[.]04[0-9]*,2,0[.]5,2,1,'
    bad 2 'the study has the metric eval_loss, size, got size, eval_loss' tune study.json \
        --trials 4 --metric size --metric eval_loss --storage two/study.db
}

# A search with a folder is written down there, and goes on from that; a folder may move.
from_its_folder() {
    good tune study.json --dir kept --trials 3
    cp kept/study.json first.json
    ! grep -q storage first.json || fail "the study file names the folder: $(cat first.json)"
    mv kept moved
    good tune --dir moved --trials 5 --json
    [ "$(grep -c '"event":"trial"' out)" -ge 5 ] || fail "other trials: $(cat out)"
    good tune export --storage moved/study.db --study study
    [ "$(grep -c COMPLETE out)" -eq 5 ] || fail "not 5 trials: $(cat out)"
    good tune best --storage sqlite:moved/study.db
    mv out best
    good tune best --dir moved && cmp -s best out || fail "tune best --dir: $(cat out)"
    bad 2 'missing COMMAND, and no search has left none/study.json' tune --dir none
    bad 2 'expected one of STUDY, --storage and --dir, got 2' tune show --storage moved moved
    bad 2 'expected one of STUDY, --storage and --dir, got 2' \
        tune show --storage nowhere.db --dir moved
    bad 2 '--dir nowhere: there is no such folder' tune best --dir nowhere
    bad 2 '--dir nowhere: there is no such folder' tune plot --dir nowhere file.svg
    bad 2 'missing STUDY, --storage URL or --dir DIR' tune best
    bad 2 'nosearch: there is no such study or folder' tune show nosearch
    bad 2 'missing STUDY, --storage URL or --dir DIR' tune plot file.svg
}

wrong() {
    local key value
    bad 2 'none.json' tune none.json
    echo '{"space": {"x": "uniform(0,1)"},' >broken.json
    bad 2 'broken.json: line 2: expected a study as JSON: ' tune broken.json
    echo '[]' >list.json
    bad 2 '^choir tune: list.json: expected a study as a JSON object, such as .*, got a list$' \
        tune list.json
    bad 2 '^choir tune: --space: parameter x is on the command line twice$' \
        tune study.json --space 'x=uniform(0,2)' --space 'x=uniform(0,3)'
    while read -r key value; do
        sed "s/\"seed\": 3/\"$key\": $value/" study.json >wrong.json
        choir tune wrong.json >out 2>err
        [ $? = 2 ] && is_one_line "wrong.json: .*$key" || fail "$key $value: $(cat err)"
    done <<'KEYS'
trails 3
quiet true
seeds 3
retries "one"
retries 5000
metric [1]
free 1
study 7
KEYS
    sed 's/"seed"/"trails"/' study.json >wrong.json
    bad 2 "wrong.json: unknown key 'trails' .did you mean 'trials'\?.: choose one of space, " \
        tune wrong.json
    sed 's/uniform(0,1)/unifrm(0,1)/' study.json >wrong.json
    bad 2 "unknown distribution 'unifrm'" tune wrong.json
    sed '/command/d; s/"seed": 3,/"seed": 3/' study.json >wrong.json
    bad 2 'missing COMMAND' tune wrong.json
    bad 2 'metric is there twice' tune study.json --metric a --metric a:max
    bad 2 'expected one direction, got 2' tune study.json --metric a --metric b --sampler tpe
}

# Texts that JSON does not know are refused, not left out.
odd_texts() {
    local s=(--space 'x=uniform(0,1)') odd=$'a\xffb'
    bad 2 '^choir tune: --print-study: command: expected text in UTF-8, .* got .a.+b.$' \
        tune "${s[@]}" --print-study -- echo "$odd" {x}
    bad 2 '^choir tune: --print-study: space: expected text in UTF-8' \
        tune --space "x=choice($odd,b)" --print-study -- echo {x}
    bad 2 '^choir tune: --print-study: enqueue: expected text in UTF-8' \
        tune "${s[@]}" --enqueue "x=$odd" --print-study -- echo {x}
    bad 2 '^choir tune: --print-study: dir: expected text in UTF-8' \
        tune "${s[@]}" --dir "$odd" --print-study -- echo {x}
    bad 2 'parameter x is in the space twice' tune "${s[@]}" "${s[@]}" --print-study -- echo {x}
}

resources() {
    bad 2 'devices-per-trial 2: expected --devices LIST beside it' \
        tune --devices-per-trial 2 study.json
    sed 's/"seed": 3/"devices-per-trial": 2/' study.json >wrong.json
    bad 2 'devices-per-trial 2: expected --devices LIST beside it' tune wrong.json
    bad 2 "memory-per-trial: expected a whole number of bytes .* got '1.5M'" \
        tune --memory-per-trial 1.5M study.json
    local value
    for value in 1.5 true '["1G"]'; do
        sed "s/\"seed\": 3/\"memory-per-trial\": $value/" study.json >wrong.json
        bad 2 'wrong.json: memory-per-trial: expected a whole number of bytes .* as 500M or 2G' \
            tune wrong.json
    done
    for value in 100000000 1e8 '"100M"'; do
        sed "s/\"seed\": 3/\"memory-per-trial\": $value/" study.json >memory.json
        good tune --trials 1 memory.json
        good tune --print-study memory.json
        has out '"memory-per-trial": "10[0-9]*"'
    done
}

check same_search
check replaces
check metrics
check odd_texts
check resources
check from_its_folder
check wrong
finish
