#!/usr/bin/env bash
# choir train --strategy hogwild: one process gives the bits of single; several learn, and
# validation and checkpoints use their shared weights; a job continues, is interrupted, and
# loses a rank as others do, or goes on without it.
. "$(dirname "$0")/lib.sh"

make_text text 300
cut=(--microbatches 4 --batch-size 24)

# one_is_single MODEL [DATA]: with several micro-batches, validation and a checkpoint on the way.
one_is_single() {
    local args=(--json "${cut[@]}" --steps 8 --eval-every 3 --eval-batches 2 --save-every 4)
    good train "${args[@]}" --save a --strategy single --model "$@" && mv out single
    good train "${args[@]}" --save b --strategy hogwild --nproc 1 --model "$@" && mv out one
    same_run single one
    [ "$(field eval_loss single)" = "$(field eval_loss one)" ] || fail 'eval_loss differs'
    [ "$(field final_loss single)" = "$(field final_loss one)" ] || fail 'final_loss differs'
    good train "${args[@]}" --strategy hogwild --nproc 1 --resume a/step-00000008 --steps 16 \
        --model "$@" && mv out one
    good train "${args[@]}" --resume a/step-00000008 --steps 16 --model "$@" && mv out single
    same_run single one 9
    rm -rf a b
}

# Four processes and 200 steps each: from a loss of 2.9 to below 1.5; about 0.7 as a rule.
four_learn() {
    good train --json --model "$gpt" --strategy hogwild --nproc 4 --batch-size 32 --steps 200 \
        --lr 0.01 --eval-every 80 --save saved text && mv out four
    [ "$(field world four)" = 4 ] || fail "world $(field world four)"
    below 1.5 "$(field eval_loss four)"
    [ "$(steps_of four | wc -l)" -eq 200 ] || fail "$(steps_of four | wc -l) steps"
    good eval --json --batch-size 8 saved text
    [ "$(field loss out)" = "$(field eval_loss four)" ] ||
        fail "what was saved has $(field loss out), what was validated $(field eval_loss four)"
}

# below BOUND VALUE
below() { awk -v b="$1" -v v="$2" 'BEGIN { exit !(v > 0 && v < b) }' || fail "$2, not below $1"; }

# A checkpoint's weights are loaded once, for any number of processes.
several_go_on() {
    local before
    before=$(field eval_loss four)
    noted 'lr 0 replaces .* 0.01' train --json --model "$gpt" --strategy hogwild --nproc 3 \
        --batch-size 32 --microbatches 4 --steps 201 --lr 0 --resume saved/step-00000200 text
    [ "$(field eval_loss out)" = "$before" ] || # a rate of 0: nothing changes
        fail "eval_loss $(field eval_loss out) of a model that had $before"
    good train --json --model "$gpt" --strategy hogwild --nproc 3 --batch-size 32 \
        --microbatches 4 --steps 300 --lr 0.01 --resume saved text
    below 1.5 "$(field eval_loss out)"
}

# begin ARG...: three processes in the background, some steps in; their pids are in `ranks`.
begin() {
    rm -rf out saved
    start train --steps 100000000 --json --log-every 20 --batch-size 24 --strategy hogwild \
        --nproc 3 --model "$gpt" --save saved "$@" text
    await 20 test -s out || fail "no steps: $(cat err)"
    mapfile -t ranks < <(children)
    [ ${#ranks[@]} -eq 3 ] || fail "${#ranks[@]} ranks"
}

# Each rank is at a different step: they meet, and rank 0 saves the shared weights.
interrupted() {
    begin "$@"
    kill -INT "-$started_pid"
    ended 20
    [ "$status" -eq 130 ] || fail "status $status after SIGINT"
    is_one_line 'interrupted after step [0-9]+; saved to saved' || fail "said: $(cat err)"
    good eval --json saved text
}

killed_rank() {
    begin
    kill -KILL "${ranks[1]}"
    ended 20
    [ "$status" -eq 1 ] || fail "status $status after SIGKILL of a rank"
    is_one_line "rank 1 \\(pid ${ranks[1]}\\).*SIGKILL" || fail "said: $(cat err)"
}

# replaced SIGNAL RANK: of three ranks, which step apart, one is lost in a step. The others go on
# from the furthest one's step, a new one takes part, and what all have learned is kept.
replaced() {
    local shared
    shared=$(shared_files)
    start_until $((40 + RANDOM % 90)) train --json --model "$gpt" --strategy hogwild --nproc 3 \
        --batch-size 24 --steps 200 --lr 0.01 --eval-every 80 --save replaced --save-every 50 \
        --max-restarts 1 --timeout 4 text || return
    mapfile -t ranks < <(children)
    kill -"$1" "${ranks[$2]}"
    end_started
    [ $? -eq 0 ] || fail "$1 of rank $2: $(cat err)" || return
    has out '"event":"membership","generation":2'
    has err "continue from step"
    below 1.5 "$(field eval_loss out)"
    [ "$(steps_of out | sort -n -u | wc -l)" -eq "$(steps_of out | wc -l)" ] ||
        fail "a step is told twice"
    good eval --json --batch-size 8 replaced text
    below 1.5 "$(field loss out)"
    [ "$(shared_files)" = "$shared" ] || fail "/dev/shm has $(shared_files), it had $shared"
    rm -rf replaced
}

# A rank that takes part when all steps are done has no loss of its own: the mean of the others'
# last ones is told, not half of it. Rank 0 waits for its output to be read, and rank 1 goes on
# to the end meanwhile: there it waits for rank 0 in a collective, the first one after its steps.
in_a_collective() { "$CHOIR" top --once --json "$1" | grep -q '"running":true'; }
lost_at_the_end() {
    start_until 60 train --json --model "$gpt" --strategy hogwild --nproc 2 --batch-size 24 \
        --steps 200 --max-restarts 1 text || return
    mapfile -t ranks < <(children)
    await 20 in_a_collective "${ranks[1]}" || fail 'rank 1 comes to no end'
    kill -KILL "${ranks[0]}"
    end_started
    [ $? -eq 0 ] || fail "$(cat err)" || return
    grep -o '"event":"step",.*"loss":[0-9.]*' out | tail -20 | sed 's/.*://' |
        awk -v last="$(field final_loss out)" 'NR == 1 || $1 < least { least = $1 }
            END { exit !(last > 0.75 * least) }' || fail "final loss $(field final_loss out)"
}

wrong_input() {
    bad 2 "strategy hogwild.*lr" train --strategy hogwild:lr=1 --model toy random
    bad 2 'strategies for several ranks are ddp, fsdp, .*, mp, pipeline, hogwild' \
        train --strategy single --nproc 2 --model toy random
    good info
    if grep -qE '^backends .*[ ,]ucx' out; then
        bad 1 'cannot reach .* memory by ucx: take --backend shm' \
            train --strategy hogwild --nproc 2 --backend ucx --model toy random
    fi
}

check one_is_single toy random
check one_is_single mlp:in=20,hidden=33,classes=7 random
check one_is_single "$gpt,dropout=0.1" text
check one_is_single resnet50:image=32,width=8,classes=4 random
check four_learn
check several_go_on
check interrupted
check interrupted --eval-every 3 --save-every 7
check killed_rank
check replaced KILL 0
check replaced KILL 2
check replaced STOP 1
check lost_at_the_end
check wrong_input
finish
