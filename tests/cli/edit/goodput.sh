#!/usr/bin/env bash
# choir goodput divides the time of a run among causes, also where it was killed, edited, or lost
# ranks.
. "$(dirname "$0")/../lib.sh"

make_text text 300
job=(--quiet --model "$gpt" --batch-size 24)

# goodput RUN: its JSON, in the file `spent`; the causes add up to the whole.
goodput() {
    good goodput --json "$1" && mv out spent
    tr -d '{}"' <spent | tr , '\n' | awk -F: '
        /_s:/ && !/^elapsed/ { sum += $2; if ($2 < 0) bad = 1 }
        /^elapsed/ { all = $2 }
        END { exit bad || all <= 0 || sum < 0.999 * all || sum > 1.001 * all }' ||
        fail "$1: $(cat spent)"
}

# more KEY LEAST: a number of the table is above it.
more() {
    awk -v x="$(field "$1" spent)" -v least="$2" 'BEGIN { exit !(x > least) }' ||
        fail "$1 is $(field "$1" spent), not above $2"
}

a_whole_run() {
    good train "${job[@]}" --steps 40 --save run --save-every 10 --save-keep 9 --eval-every 20 text
    goodput run
    [ "$(field steps spent)" = 40 ] && [ "$(field processes spent)" = 1 ] &&
        [ "$(field repeated_s spent)" = 0 ] && [ "$(field recovery_s spent)" = 0 ] ||
        fail "$(cat spent)"
    more training_s 0
    more checkpoints_s 0
    more validation_s 0
    more starting_s 0
    good goodput run
    [ "$(wc -l <out)" -eq 10 ] && grep -q '^  training .* s .* %$' out || fail "$(cat out)"
}

# A run that goes back has two processes, and repeats steps.
a_run_that_went_back() {
    good train "${job[@]}" --resume run --rewind 10 --steps 50
    goodput run
    [ "$(field steps spent)" = 50 ] && [ "$(field processes spent)" = 2 ] &&
        [ "$(field repeated_steps spent)" = 30 ] || fail "$(cat spent)"
    more repeated_s 0
    good goodput run
    grep -q 'repeated steps .* 30 steps$' out || fail "$(cat out)"
    choir train "${job[@]}" --lr 0.05 --on-spike 1.7:rewind=3,skip=2,window=6 --save spiky \
        --save-every 4 --steps 40 text >out 2>err || fail "$(cat err)"
    goodput spiky
    [ "$(field processes spent)" = 1 ] || fail "$(cat spent)"
    more repeated_steps 0
    more recovery_s 0
}

lost_ranks() {
    start train "${job[@]}" --steps 100 --strategy ddp --nproc 2 --max-restarts 1 --run lost text
    await 20 grep -qs '"step":20,' lost/metrics.jsonl && kill -KILL "$(children | tail -n 1)"
    ended 60
    [ "$status" -eq 0 ] || fail "$(cat err)"
    goodput lost
    more recovery_s 0
}

nothing_to_read() {
    bad 1 'nothing: expected the folder of a run with its records' goodput nothing
    mkdir empty
    : >empty/metrics.jsonl
    : >empty/events.jsonl
    bad 1 'no step yet' goodput empty
    printf '{"step":1,"time":5,"step_s":1e999}\n{"step":2,' >empty/metrics.jsonl
    printf 'x\n[1]\n{"event":3}\n{"event":"begin","time":"y"}\n' >empty/events.jsonl
    good goodput empty
    bad 2 'expected RUN, whose time is over, or --cluster FILE' goodput
}

# What failures will leave of the time of a described cluster.
a_cluster() {
    printf '%s' '{"name": "hall", "device": "H100", "nodes": 2048, "devices_per_node": 8,
        "failures": {"per_node_day": 0.0065, "restart_s": 600, "recovery_s": 20, "repair_s": 86400,
        "spares": 26}, "price_per_device_hour": 2}' >hall.json
    good goodput --cluster hall.json --save-s 30 --json
    [ "$(field ranks out)" = 16384 ] && [ "$(field price_per_hour out)" = 32768 ] ||
        fail "$(cat out)"
    awk -v m="$(field mttf_s out)" -v r="$(field goodput_restart out)" \
        -v c="$(field goodput_recovery out)" \
        'BEGIN { exit !(m > 6400 && m < 6600 && r > 0.7 && r < c && c < 1) }' || fail "$(cat out)"
    good goodput --cluster hall.json --ranks 1024 --save-s 30 --save-every-s 600
    grep -q 'mean time to failure *28.8 h (0.83 failures a day)' out || fail "$(cat out)"
    bad 1 'expected at least one for each of the 20000 ranks' \
        goodput --cluster hall.json --ranks 20000
    bad 1 'nowhere.json: ' goodput --cluster nowhere.json
    bad 2 'expected --cluster FILE with --ranks' goodput --ranks 3 run
}

check a_whole_run
check a_run_that_went_back
check lost_ranks
check nothing_to_read
check a_cluster
finish
