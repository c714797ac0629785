# Faults of machines: script/chaos says which, and what is expected. The machines are network
# namespaces at a switch, 10.97.7.1 to 4; each has an agent with one or two ranks.
# shellcheck shell=bash
# shellcheck disable=SC2154 # seed, text: of script/chaos and tests/cli/lib.sh
switch=choir-chaos-$$-s
machine() { echo "choir-chaos-$$-$1"; }
machine_steps=250
machine_job=(train --model "$gpt" --batch-size 24 --microbatches 8 --steps $machine_steps
    --eval-every 100 --eval-batches 2 --json text)
machine_blows=(RANK AGENT POWER POWER CUT CUT FLICKER LOSS SLOW LEAVE JOIN)
machine_strategies=(ddp fsdp:stage=1 fsdp:stage=2 fsdp)

# Lays the cables, or says why there are no machines here.
machines_are_there() {
    local i
    [ -e "$(dirname "$CHOIR")/plugins/choir_ucx.so" ] ||
        { echo 'faults of machines are left out: UCX is not built in'; return 1; }
    trap 'for i in s 1 2 3 4; do ip netns del "$(machine $i)" 2>/dev/null; done; clean_up' EXIT
    { ip netns add $switch && ip -n $switch link add br0 type bridge &&
        ip -n $switch link set br0 up && unshare --uts true; } 2>machines.err ||
        { echo "faults of machines are left out: $(tail -n 1 machines.err)"; return 1; }
    for i in 1 2 3 4; do # UCX takes two ends of one index for one cable
        ip netns add "$(machine $i)" &&
            ip link add ch$$m$i index $((100 * i)) netns "$(machine $i)" type veth \
                peer name port$i netns $switch &&
            ip -n $switch link set port$i master br0 up &&
            wire "$(machine $i)" ch$$m$i 10.97.7.$i/24 || return
    done
    for i in 1 2 3 4; do await 10 has_carrier "$(machine $i)" ch$$m$i || return; done
    head -c 32 /dev/urandom >key && chmod 600 key
    choir "${machine_job[@]}" --strategy single >calm.machines 2>err || fail "$(cat err)"
}

cable() { ip -n $switch link set "port$1" "$2"; }

# Machines that hold the job's state together outlive any of them, two that meet at the endpoint
# only the other one.
choose_machines() {
    blow=${machine_blows[RANDOM % ${#machine_blows[@]}]}
    strategy=${machine_strategies[RANDOM % ${#machine_strategies[@]}]}
    count=$((2 + RANDOM % 3)) per=$((1 + RANDOM % 2)) backend=(--rdzv-backend c10d)
    [ "$count" -eq 2 ] || [ $((RANDOM % 3)) -eq 0 ] || backend=(--rdzv-backend raft)
    victim=$((2 + RANDOM % (count - 1)))
    [ "${backend[1]}" != raft ] || victim=$((1 + RANDOM % count))
    [ "$blow" != JOIN ] || victim=$count
}

begin_on() { # MACHINE
    local more=()
    [ "$blow" != JOIN ] || more=(--rdzv-conf last_call_timeout=0.1)
    on "$(machine "$1")" "node$1" "$CHOIR" run --rdzv-endpoint 10.97.7.1 --key-file key \
        --node-rank $(($1 - 1)) --nnodes $((count - 1)):$count --max-restarts 2 \
        --nproc-per-node $per "${backend[@]}" "${more[@]}" \
        "$CHOIR" "${machine_job[@]}" --strategy "$strategy" >m$1.out 2>m$1.err </dev/null &
    guards[$1]=$!
}
told() { [ "$(cat m?.out 2>/dev/null | grep -c '"event":"step"')" -ge "$1" ]; }

processes_on() { ip netns pids "$(machine "$1")" 2>/dev/null; }
ranks_on() { # MACHINE
    local pid
    for pid in $(processes_on "$1"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '^[^ ]*choir train' && echo "$pid"
    done
}

strike_machine() {
    local m=$victim agent space ranks
    space=$(machine "$m")
    [ "$blow" = JOIN ] || read -r agent </proc/${guards[m]}/task/${guards[m]}/children
    case $blow in
    RANK)
        mapfile -t ranks < <(ranks_on "$m")
        kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" ;;
    AGENT) kill -KILL ${agent%% *} ;;
    POWER) cable "$m" down && kill -KILL $(processes_on "$m") ;;
    CUT) cable "$m" down ;;
    FLICKER)
        cable "$m" down
        read -rt "$((RANDOM % 2)).$(printf %03d $((RANDOM % 700)))" -u "$nothing"
        cable "$m" up ;;
    LOSS)
        ip netns exec "$space" nft add table inet chaos &&
            ip netns exec "$space" nft add chain inet chaos in \
                '{ type filter hook input priority 0; }' &&
            ip netns exec "$space" nft add rule inet chaos in numgen random mod 100 '<' \
                $((1 + RANDOM % 5)) drop || fail "$what: nft drops no packets" ;;
    SLOW) ip netns exec "$space" tc qdisc add dev ch$$m$m root tbf \
        rate $((2 + RANDOM % 8))mbit burst 16kb latency 200ms || fail "$what: tc slows nothing" ;;
    LEAVE) kill -TERM ${agent%% *} ;;
    JOIN) begin_on "$m" ;;
    esac
}

mend_machine() {
    cable "$victim" up
    ip netns exec "$(machine "$victim")" tc qdisc del dev ch$$m$victim root 2>/dev/null
    ip netns exec "$(machine "$victim")" nft delete table inet chaos 2>/dev/null
}

# The machines that are not struck end with the job; those that are cut off, lost or told to leave
# do not count, and leave nothing behind either.
machines_end() {
    local m goes_on
    for ((m = 1; m <= count; m++)); do
        goes_on=1
        [[ $m != "$victim" || $blow =~ ^(RANK|FLICKER|LOSS|SLOW|JOIN)$ ]] || goes_on=0
        [ $goes_on = 1 ] || continue
        await 60 is_gone "${guards[m]}" ||
            fail "$what: machine $m does not end: $(tail -n 5 m?.err)"
        wait "${guards[m]}" 2>/dev/null
        status=$?
        [ $status -eq 0 ] || fail "$what: status $status of machine $m: $(tail -n 20 m?.err)"
    done
    mend_machine
    if ! is_gone "${guards[victim]}"; then # it looks for a job that has ended
        kill -TERM $(processes_on "$victim") 2>/dev/null
        await 10 is_gone "${guards[victim]}" ||
            fail "$what: machine $victim does not end: $(cat m$victim.err)"
    fi
    wait "${guards[victim]}" 2>/dev/null
}

machine_is_named() {
    local pattern others
    others=$(ls m?.err | grep -v "m$victim.err")
    case $blow in
    RANK) pattern="rank [0-9]+ .*(pid|killed by SIGKILL|signal 9)" others=$(ls m?.err) ;;
    AGENT | POWER | CUT) pattern="node $((victim - 1)) (is gone|fell silent)" ;;
    LEAVE) pattern="interrupted by SIGTERM on node $((victim - 1))" ;;
    JOIN) pattern='joins; all ranks start again' ;;
    *) return 0 ;;
    esac
    # shellcheck disable=SC2086 # words
    cat $others | grep -qE "$pattern" || fail "$what: no '$pattern': $(cat m?.err)"
}

# All losses are there, and none is another; at most one step ran again, and a machine that was
# lost may have told one more.
machine_numbers() {
    local twice
    [ "$(weights m?.out | sort -u)" = "$(weights calm.machines)" ] ||
        fail "$what: other weights: $(cat m?.err)"
    [ "$(losses m?.out | sort -u)" = "$(losses calm.machines | sort -u)" ] ||
        fail "$what: other losses: $(cat m?.err)"
    twice=$(losses m?.out | sort | uniq -d | wc -l)
    [ "$twice" -le 2 ] || fail "$what: $twice lines are repeated: $(cat m?.err)"
}

machine_disturbed() {
    local shared after=$((1 + RANDOM % 100)) m first guards=()
    choose_machines
    what="fault $1 (seed $seed), $blow to machine $victim of $count with $per ranks each,"
    what="$what ${backend[1]}, $strategy, after $after steps"
    shared=$(shared_files)
    rm -f m?.out m?.err
    first=$count
    [ "$blow" != JOIN ] || first=$((count - 1))
    for ((m = 1; m <= first; m++)); do begin_on "$m"; done
    await 40 told "$after" || { fail "$what: it does not begin: $(cat m?.err)"; }
    strike_machine
    machines_end
    machine_is_named
    machine_numbers
    for ((m = 1; m <= count; m++)); do
        [ -z "$(processes_on "$m")" ] || fail "$what: left: $(ps -fp $(processes_on "$m"))"
    done
    no_new_files
    echo "$what: fine"
}
