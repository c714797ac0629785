#!/usr/bin/env bash
# Ranks that were started one by one with different options: before the first step one sentence
# says which option differs, and on which rank.
. "$(dirname "$0")/../lib.sh"

make_text text 300
tr 'ab' 'ba' <text >other
lm=(--strategy ddp --batch-size 12 --steps 2 --quiet --model "$gpt" --timeout 20)

# differs PATTERN OF-RANKS-0-AND-2 OF-RANK-1: the last argument of rank 1 of three is another.
differs() {
    current="differs $*"
    # shellcheck disable=SC2016
    OMP_NUM_THREADS=1 choir run -n 3 sh -c 'mine=$1 other=$2 && shift 2
        [ "$RANK" = 1 ] && mine=$other
        exec "$0" train "$@" "$mine"' "$CHOIR" "$2" "$3" "${lm[@]}" "${@:4}" >out 2>err
    [ $? -ne 0 ] || fail 'no error'
    grep -qE -e "ranks disagree on $1" err || fail "$(cat err)"
}

options_are_compared() {
    differs '--lr: 0.001 on ranks 0, 2; 0.002 on rank 1' --lr=0.001 --lr=0.002 text
    differs '--schedule: constant on ranks 0, 2; cosine on rank 1' --schedule=constant \
        --schedule=cosine text
    differs '--optimizer: adamw .*; sgd on rank 1' --optimizer=adamw --optimizer=sgd text
    differs '--steps: 2 .*; 3 on rank 1' --quiet --steps=3 text
    differs '--batch-size: 12 .*; 24 on rank 1' --quiet --batch-size=24 text
    differs '--clip: 0 .*; 1 on rank 1' --quiet --clip=1 text
    differs '--amp: unspecified on ranks 0, 2; bf16 on rank 1' --quiet --amp=bf16 text
    differs '--seed: 42 .*; 43 on rank 1' --seed=42 --seed=43 text
    differs '--eval-every: unspecified' --quiet --eval-every=1 text
    differs '--recompute: unspecified .*; true on rank 1' --quiet --recompute text
    differs '--model: .*dropout=0.5,eps=1e-05 on rank 1' --quiet --model="$gpt,dropout=0.5" text
    differs 'the data, by its SHA-256: [0-9a-f]{64} on ranks 0, 2' text other
    differs '--model: .*vocab=20' text random
    differs '--save: unspecified on ranks 0, 2; a folder on rank 1' --quiet --save=saved text
}

# Models of one shape with other weights; a rank has them under a path of its own.
weights_are_compared() {
    good train "${lm[@]}" --strategy single --save a text
    good train "${lm[@]}" --strategy single --seed 7 --save b text
    differs 'the initial weights, by their SHA-256: [0-9a-f]{64} on ranks 0, 2; [0-9a-f]{64} on' \
        --weights=a/latest --weights=b/latest --tokenizer chars text
    differs 'the initial weights, by their SHA-256: [0-9a-f]{64} on ranks 0, 2; none on rank 1' \
        --weights=a/latest --quiet --tokenizer chars text
    cp -r a same
    # shellcheck disable=SC2016
    OMP_NUM_THREADS=1 choir run -n 2 sh -c 'model=a; [ "$RANK" = 0 ] || model=same
        exec "$0" train "$@" --weights $model/latest text' "$CHOIR" "${lm[@]}" \
        --tokenizer chars >out 2>err || fail "the same weights: $(cat err)"
}

# Options of which each rank may have its own.
own_options() {
    # shellcheck disable=SC2016
    OMP_NUM_THREADS=1 choir run -n 2 sh -c 'exec "$0" train --workers $((RANK + 1)) "$@"' \
        "$CHOIR" "${lm[@]}" text >out 2>err || fail "$(cat err)"
    [ ! -s err ] || fail "$(cat err)"
}

# Ranks that were started by hand have no name of a job: the sentence says what may have happened.
two_jobs_on_one_port() {
    local port=$((20000 + $$ % 10000)) rank
    for rank in 0 1; do
        env -u CHOIR_JOB RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port timeout 60 "$CHOIR" train --lr 0.00$((rank + 1)) "${lm[@]}" text \
            >out$rank 2>err$rank &
    done
    wait
    for rank in 0 1; do
        grep -q 'ranks disagree on --lr: .*; if these are ranks of two jobs, give each' err$rank ||
            fail "$(cat err$rank)"
    done
}

check options_are_compared
check two_jobs_on_one_port
check own_options
check weights_are_compared
finish
