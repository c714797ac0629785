#!/usr/bin/env bash
# choir train --strategy diloco and local-sgd: equal bits from run to run; one rank that
# averages alone gives the bits of single, a warm-up those of ddp; validation, checkpoints and
# interrupts wait for a synchronization, and a job continues from there on any number of ranks;
# few bytes are sent; ddp:sync_bn=1.
. "$(dirname "$0")/lib.sh"

make_text text 300
export CHOIR_CPU_DEVICES=4
job=(--model "$gpt" --batch-size 24 --nproc 3)

# local_one MODEL [DATA]: averaging over one rank changes nothing.
local_one() {
    local args=(--json --batch-size 24 --microbatches 4 --steps 8)
    good train "${args[@]}" --strategy single --model "$@" && mv out single
    good train "${args[@]}" --strategy local-sgd:every=3 --nproc 1 --model "$@" && mv out one
    same_run single one
}

same_twice() {
    local strategy
    for strategy in diloco:every=4 diloco:every=4,wire=bf16 local-sgd:every=4,warmup=3 \
        local-sgd:every=4,node_every=2; do
        good train --json "${job[@]}" --strategy "$strategy" --steps 14 text && mv out first
        good train --json "${job[@]}" --strategy "$strategy" --steps 14 text && mv out second
        same_run first second || fail "$strategy"
    done
}

# In the warm-up the weights are ddp's; the losses shown are rank 0's own.
warm_up() {
    good train --json "${job[@]}" --strategy ddp --steps 6 text && mv out ddp
    good train --json "${job[@]}" --strategy local-sgd:warmup=6,every=2 --steps 6 text &&
        mv out warm
    [ "$(field weights_sha256 ddp)" = "$(field weights_sha256 warm)" ] || fail 'weights differ'
    [ "$(field final_loss ddp)" = "$(field final_loss warm)" ] || fail 'final_loss differs'
}

# Due work runs at the next synchronization: steps 6 (asked for 5), 12 (10), 18 (15) and the
# end, 20.
due_where_they_meet() {
    local evals
    choir train --json "${job[@]}" --strategy diloco:every=6 --steps 20 --eval-every 5 \
        --eval-batches 2 --save-every 5 --save saved text >first 2>err || fail "$? $(cat err)"
    has err 'the workers met after step 20, before a meeting was due'
    evals=$(grep '"event":"eval"' first | sed 's/.*"step":\([0-9]*\).*/\1/' | tr '\n' ' ')
    [ "$evals" = '6 12 18 ' ] || fail "validated after steps $evals"
    good eval --json --batch-size 8 saved text
    [ "$(field loss out)" = "$(field eval_loss first)" ] ||
        fail "what was saved has $(field loss out), what was validated $(field eval_loss first)"
    rm -rf saved
}

# A job in two parts: every worker continues from its own moments, on as many ranks or on one.
goes_on() {
    local strategy=diloco:every=5 args=(--json --nproc 3 --batch-size 24 --model "$gpt") ranks
    good train "${args[@]}" --strategy $strategy --steps 20 text && mv out whole
    good train "${args[@]}" --strategy $strategy --steps 10 --save b text
    for ranks in 3 1; do
        good train --json --steps 20 --resume b/step-* --nproc $ranks && mv out rest
        same_run whole rest 11
    done
    # No other strategy minds the workers' state, or its absence.
    good train "${args[@]}" --strategy ddp --steps 20 --resume b --save c text && mv out rest
    near 0.1 "$(field eval_loss rest)" "$(field eval_loss whole)"
    good train "${args[@]}" --strategy $strategy --steps 25 --resume c text
    rm -rf b c
}

# Where a job ends between two meetings, its workers meet early, and a longer job's do not. The
# next meeting is `every` steps later.
ended_early() {
    local strategy early='note: the workers met after step 7, before a meeting was due'
    for strategy in diloco:every=5 local-sgd:every=5,warmup=1; do
        choir train "${job[@]}" --strategy $strategy --steps 7 --no-eval --save b text >out 2>err ||
            fail "status $?: $(cat err)"
        has err "$early"
        good train --steps 12 --resume b # says nothing: step 12 is a meeting
        rm -rf b
    done
    good train "${job[@]}" --strategy local-sgd:every=3,warmup=1 --steps 7 --no-eval --save b text
    good train "${job[@]}" --strategy diloco:every=5 --steps 7 --no-eval text # keeps nothing
    rm -rf b
}

# A checkpoint of a warm-up, or of its end, has the state of all workers, so any number of ranks
# continues the job.
goes_on_warm() {
    local strategy=local-sgd:warmup=6,every=2,workers=4 cut ranks
    local args=(--json --nproc 2 --batch-size 12 --microbatches 4 --no-eval --model "$gpt" text)
    good train "${args[@]}" --strategy $strategy --steps 12 && mv out whole
    for cut in 4 6; do
        good train "${args[@]}" --strategy $strategy --steps $cut --save b
        for ranks in 1 2 4; do
            good train --json --steps 12 --resume b/step-* --nproc $ranks && mv out rest
            same_run whole rest $((cut + 1)) || fail "step $cut on $ranks"
        done
        rm -rf b
    done
}

# Another number of workers is refused without --recut; with it, ranks change nothing.
recut() {
    local strategy=diloco:every=3,workers=6 ranks
    good train --json "${job[@]}" --microbatches 6 --strategy diloco:every=3 --steps 6 --save a text
    bad 1 'a was trained with diloco:workers=3: it cannot continue with workers=6, unless --recut' \
        train --json --resume a --strategy $strategy --nproc 2 --steps 12
    for ranks in 1 4; do
        noted "$strategy replaces the checkpoint's .*workers=3: the numbers .* are others" \
            train --json --resume a --strategy $strategy --nproc $ranks --steps 12 --recut \
            --save "b$ranks" && mv out "six$ranks"
    done
    same_run six1 six4 7
    bad 2 '--recut without --resume' train --recut --model toy random
    bad 1 'workers=3 are fewer than 4 ranks' train --resume a --nproc 4 --steps 12
    rm -rf a b1 b4
}

# near BOUND A B: A and B differ by less than the fraction BOUND of B.
near() { is_near "$@" || fail "$2, not within $1 of $3"; }
is_near() {
    awk -v e="$1" -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) < e * b) }'
}

few_bytes() {
    local ddp diloco bf16
    good train --json "${job[@]}" --strategy ddp --steps 100 --no-eval text && ddp=$(bytes)
    good train --json "${job[@]}" --strategy diloco:every=50 --steps 100 --no-eval text &&
        diloco=$(bytes)
    good train --json "${job[@]}" --strategy diloco:every=50,wire=bf16 --steps 100 --no-eval text &&
        bf16=$(bytes)
    [ $((25 * diloco)) -lt "$ddp" ] || fail "diloco moved $diloco bytes, ddp $ddp"
    [ $((3 * bf16)) -lt $((2 * diloco)) ] || fail "bf16 moved $bf16 bytes, f32 $diloco"
}

bytes() { sed -n 's/.*"comm_bytes":\([0-9]*\).*/\1/p' out | tail -1; }

# It stops at the next synchronization, and saved steps are multiples of `every`.
interrupted() {
    rm -rf out saved
    start train --steps 100000000 --json --log-every 20 "${job[@]}" --save saved \
        --strategy diloco:every=7 "$@" text
    await 20 test -s out || fail "no steps: $(cat err)"
    kill -INT "-$started_pid"
    ended 20
    [ "$status" -eq 130 ] || fail "status $status after SIGINT"
    is_one_line 'interrupted after step [0-9]+; saved to saved' || fail "said: $(cat err)"
    local step
    step=$(grep -oE 'step [0-9]+' err | grep -oE '[0-9]+')
    [ $((step % 7)) -eq 0 ] || fail "stopped after step $step"
    good eval --json saved text
}

killed_rank() {
    local ranks
    rm -rf out saved
    start train --steps 100000000 --json --log-every 20 "${job[@]}" --strategy diloco:every=3 text
    await 20 test -s out || fail "no steps: $(cat err)"
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[1]}"
    ended 20
    [ "$status" -eq 1 ] || fail "status $status after SIGKILL of a rank"
    is_one_line "rank 1 \\(pid ${ranks[1]}\\).*SIGKILL" || fail "said: $(cat err)"
}

compared() {
    good compare --json --strategies diloco:every=4,ddp --devices cpu:0-1 --steps 8 --repeats 1 \
        --batch-size 16 --microbatches 4 --model "$gpt" text
    grep -q '"strategy":"diloco:every=4".*"same_bits":false' out || fail "$(cat out)"
}

# With the statistics of all ranks the first loss is that of the whole batch; without them it
# differs.
sync_batch_norm() {
    local args=(--json --batch-size 24 --steps 4 --no-eval --lr 0)
    args+=(--model cnn:width=4,image=12,dropout=0)
    good train "${args[@]}" --strategy single random && mv out whole
    good train "${args[@]}" --strategy ddp:sync_bn=1 --nproc 3 random && mv out synced
    good train "${args[@]}" --strategy ddp --nproc 3 random && mv out apart
    near 1e-5 "$(field final_loss synced)" "$(field final_loss whole)"
    is_near 1e-5 "$(field final_loss apart)" "$(field final_loss whole)" &&
        fail 'statistics of parts are those of the whole'
    bad 1 '4 micro-batches on 3 ranks, .*: expected a number of groups that divides 4' train \
        "${args[@]}" --strategy ddp:sync_bn=1 --nproc 3 --microbatches 4 random
    bad 1 'groups = 5 do not divide 4 micro-batches' train "${args[@]}" \
        --strategy ddp:sync_bn=1,groups=5 --nproc 2 --microbatches 4 random
    bad 2 'groups needs sync_bn=1' train --strategy ddp:groups=2 --model toy random
}

# The groups are the cut: one hash on 1 to 4 ranks, also where other ranks continue a job; by
# default a group has one micro-batch of each rank.
groups_of_batch_norm() {
    local args=(--json --batch-size 24 --microbatches 4 --model cnn:width=4,image=12) ranks
    good train "${args[@]}" --strategy ddp:sync_bn=1,groups=2 --nproc 1 --steps 6 random &&
        mv out one
    for ranks in 2 3 4; do
        good train "${args[@]}" --strategy ddp:sync_bn=1,groups=2 --nproc $ranks --steps 6 \
            random && mv out many
        same_run one many
    done
    good train "${args[@]}" --strategy ddp:sync_bn=1 --nproc 2 --steps 3 --save a random
    for ranks in 1 3 4; do
        good train --json --resume a/step-00000003 --nproc $ranks --steps 6 --save b && mv out rest
        same_run one rest 4
        rm -rf b
    done
    bad 1 'was trained with ddp:groups=2: it cannot continue with groups=4, unless --recut' train \
        --resume a --strategy ddp:sync_bn=1,groups=4 --nproc 1 --steps 6
    rm -rf a
}

wrong_input() {
    bad 2 'strategy diloco.*lr' train --strategy diloco:lr=1 --model toy random
    bad 2 'every' train --strategy diloco:every=0 --model toy random
    bad 2 'wire=f16: expected f32 or bf16' train --strategy diloco:wire=f16 --model toy random
    bad 1 'near_every = 4; ranks near each other meet more often than all do, every 4 steps' train \
        --strategy local-sgd:every=4,node_every=4 --nproc 2 --model toy random
    bad 2 'warmup' train --strategy local-sgd:warmup=-1 --model toy random
    bad 1 'workers=2 are fewer than 3 ranks; each rank needs one' train \
        --strategy diloco:workers=2 --nproc 3 --microbatches 6 --batch-size 24 --model toy random
    bad 1 'workers=4 do not divide 6 micro-batches; each worker needs as many as the others' train \
        --strategy diloco:workers=4 --nproc 2 --microbatches 6 --batch-size 24 --model toy random
    bad 1 'workers = 4 on 2 ranks; ranks near each other meet where each rank is one worker' train \
        --strategy local-sgd:workers=4,node_every=2 --nproc 2 --model toy random
    bad 1 'workers = 4 on 3 ranks; with a warm-up, the ranks divide the workers' train \
        --strategy local-sgd:workers=4,warmup=2 --nproc 3 --model toy random
}

# Workers skip steps by themselves under fp16, so each has a loss scale of its own.
own_scales() {
    local own=(--model mlp:in=20,hidden=16,classes=4 --amp fp16 --optimizer sgd --lr 3 --json
        --batch-size 4 --microbatches 4 --strategy diloco:every=4,workers=2)
    local seed
    for seed in 1 2 3; do
        rm -rf saved
        good train "${own[@]}" --seed $seed --steps 16 --nproc 1 random && mv out whole
        good train "${own[@]}" --seed $seed --steps 8 --nproc 2 --save saved random || return
        good train --resume saved --steps 16 --nproc 1 --json random && mv out rest
        [ "$(field weights_sha256 whole)" = "$(field weights_sha256 rest)" ] || fail "seed $seed"
    done
    rm -rf saved
}

check own_scales
check local_one toy random
check local_one "$gpt,dropout=0.1" text
check same_twice
check warm_up
check due_where_they_meet
check goes_on
check goes_on_warm
check ended_early
check recut
check few_bytes
check interrupted
check interrupted --eval-every 3 --save-every 10
check killed_rank
check compared
check sync_batch_norm
check groups_of_batch_norm
check wrong_input
finish
