# Faults of the ranks of one machine: script/chaos says which, and what is expected.
# shellcheck shell=bash
# shellcheck disable=SC2154 # seed, nothing: of script/chaos and tests/cli/lib.sh
steps=800
missed=0
job=(train --model "$gpt" --batch-size 24 --microbatches 8 --steps $steps --eval-every 400
    --eval-batches 2 --json text)
worlds=(2 2 3 3 4 4 6 8) # no more than --max-restarts below: ALL kills every rank
blows=(KILL KILL KILL STOP TWICE ALL TERM MEMORY DISK)
strategies=(ddp fsdp:stage=1 fsdp:stage=2 fsdp tp pipeline 'ddp+pipeline --mesh 2x2'
    'fsdp+pipeline --mesh 2x2' 'fsdp+tp --mesh 2x2' diloco:every=20 local-sgd:every=10 hogwild)

ranks() { children; }

# Sets `strategy`, `world`, and `repeats`, the number of steps that a loss may cost.
choose() {
    strategy=${strategies[RANDOM % ${#strategies[@]}]}
    world=${worlds[RANDOM % ${#worlds[@]}]} repeats=1
    case $strategy in
    *mesh*) world=4 ;;
    tp | pipeline) world=2 ;;
    diloco*) repeats=20 ;;
    local-sgd*) repeats=10 ;;
    esac
    blow=${blows[RANDOM % ${#blows[@]}]}
    # else no rank would be left that has the state
    [[ "$blow $world $strategy" != @(ALL\ *|TWICE\ 2)\ @(ddp|hogwild) ]] || blow=KILL
    # checkpoints lack what ranks keep, or the numbers differ from run to run
    [[ "$blow $strategy" != TERM\ @([dl]*:every*|hogwild) ]] || blow=KILL
}

# Sets `calm`, a file with the output of the job undisturbed; hogwild's differ from run to run.
undisturbed() {
    [ "$strategy" != hogwild ] || return 0
    local as="$strategy --nproc $world"
    [[ $strategy == ddp || $strategy == fsdp:* || $strategy == fsdp ]] && as=single
    calm="calm.${as//[^a-z0-9=+]/_}"
    # shellcheck disable=SC2086 # words
    [ -s "$calm" ] || LIMIT=240 choir "${job[@]}" --strategy $as >"$calm" 2>err ||
        fail "undisturbed $as: $(cat err)"
}

# No event of a membership says an earlier step than the ones before allow. A line that rank 0
# wrote as it died may be there twice.
repeated_little() {
    awk -v most="$repeats" '
        match($0, /"step":[0-9]+/) { n = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        /"event":"step"/ { if (n != last + 1 && n != again) exit 1; last = n; again = 0 }
        /"event":"membership"/ { if (n < last - most) exit 1; again = n + 1 }' out
}

names() { grep -qE "rank [0-9]+ \(pid $1\) (was|finished|exited with status)" err; }

# goes_on PID...: the job has gone on without these ranks, and nobody sees it in its numbers.
goes_on() {
    [ "$status" -eq 0 ] || { fail "$what: status $status: $(cat err)"; return; }
    for pid; do
        names "$pid" || fail "$what: pid $pid is not named: $(cat err)"
    done
    if [ "$strategy" = hogwild ]; then # ranks step by themselves, and go on from the furthest one
        [ -z "$(steps_of out | sort -n | uniq -d)" ] || fail "$what: a step is told twice"
        return
    fi
    repeated_little || fail "$what: a step is missing, or more than $repeats repeated: $(cat err)"
    [ "$(weights out)" = "$(weights "$calm")" ] || fail "$what: other weights: $(cat err)"
    [ "$(losses out | uniq)" = "$(losses "$calm")" ] || fail "$what: other losses: $(cat err)"
}

# Memory is asked for at the start and now and then: a rank that got by without more is not lost.
not_struck() {
    [ "$status" -eq 0 ] && ! grep -q '"event":"membership"' out && ! names "$1"
}

# Ranks that meet learn that one of them has no memory to share: then the job ends, and says so.
refuses_memory() {
    [ "$status" -eq 1 ] && grep -q 'has no memory to share' err
}

resumes() {
    [[ $status == 130 || $status == 143 ]] || { fail "$what: status $status: $(cat err)"; return; }
    # shellcheck disable=SC2086 # words
    LIMIT=240 choir "${job[@]}" --strategy $strategy --nproc "$world" --max-restarts 1 \
        --resume saved >out 2>err || fail "$what: resumed: $(cat err)"
    [ "$(weights out)" = "$(weights "$calm")" ] || fail "$what: resumed: other weights"
}

says_full() {
    [ "$status" -eq 1 ] || fail "$what: status $status: $(cat err)"
    has err 'No space left on device'
}

strike() {
    local victim=$((RANDOM % world)) other
    mapfile -t pids < <(ranks)
    other=$(((victim + 1) % world)) victims=()
    case $blow in
    KILL | STOP) victims=("${pids[victim]}") && kill "-$blow" "${victims[0]}" ;;
    TWICE)
        victims=("${pids[victim]}" "${pids[other]}")
        kill -KILL "${victims[0]}"
        read -rt "0.$(printf %03d $((RANDOM % 100)))" -u "$nothing"
        kill -KILL "${victims[1]}" ;;
    ALL) victims=("${pids[@]:0:world}") && kill -KILL "${victims[@]}" ;;
    TERM) kill -TERM "$started_pid" ;;
    MEMORY) victims=("${pids[victim]}") && prlimit --pid "${victims[0]}" --as=1000000 ;;
    esac
}

# Waits until all ranks are there, and then a moment: they set themselves up.
setting_up() {
    all_there() { [ "$(ranks | wc -l)" -ge "$world" ]; }
    await 10 all_there || return
    read -rt "0.$(printf %03d $((RANDOM % 150)))" -u "$nothing"
    true
}

nothing_left() {
    await 10 group_is_gone "$1" ||
        fail "$what: left: $(ps -eo pgid=,pid=,args= | awk -v g="$1" '$1 == g')"
    no_new_files
    [ -z "$(find . -maxdepth 1 -name '.*' ! -name .)" ] || fail "$what: hidden files are left"
}

disturbed() {
    local shared after=$((1 + RANDOM % 150)) more=() group
    choose
    [ "$blow" = MEMORY ] && [ $((RANDOM % 3)) -gt 0 ] && after=0
    what="fault $1 (seed $seed), $blow, $strategy of $world ranks, after $after lines"
    undisturbed
    shared=$(shared_files)
    [ "$blow" = STOP ] && more=(--timeout 2)
    [ "$blow" = TERM ] && more=(--save saved)
    if [ "$blow" = DISK ]; then
        mkdir -p small
        mount -t tmpfs -o size=16k tmpfs small 2>/dev/null || { echo "$what: no mounts"; return; }
        more=(--save small/out --save-every 40)
    fi
    # shellcheck disable=SC2086 # words
    start_until "$([ "$blow" = DISK ] && echo 1 || echo "$after")" "${job[@]}" \
        --strategy $strategy --nproc "$world" --max-restarts 8 "${more[@]}" || return
    group=$started_pid
    [ "$after" -gt 0 ] || setting_up || fail "$what: not all ranks have begun: $(cat err)" || return
    strike
    end_started
    status=$?
    if [ "$blow" = MEMORY ] && not_struck "${victims[0]}"; then
        missed=$((missed + 1)) checks=$((checks - 1)) victims=()
        what="$what, not struck"
    fi
    case $blow in
    MEMORY) refuses_memory || goes_on "${victims[@]}" ;;
    TERM) resumes ;;
    DISK) says_full; umount small ;;
    *) goes_on "${victims[@]}" ;;
    esac
    nothing_left "$group"
    rm -rf saved
    echo "$what: status $status"
}
