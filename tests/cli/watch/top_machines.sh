#!/usr/bin/env bash
# choir top and choir watch see the ranks of other machines, here through a real sshd: two network
# namespaces, each with its own processes and name.
. "$(dirname "$0")/../run/agents.sh"
[ -x /usr/sbin/sshd ] && command -v ssh >/dev/null || skip 'there is no sshd'
hosts 2>hosts.err && unshare --uts --pid --fork --mount-proc true 2>hosts.err ||
    skip "namespaces are left out: $(tail -n 1 hosts.err)"
[ -e "$(dirname "$CHOIR")/plugins/choir_ucx.so" ] || skip 'UCX is not built in'

# alone NAMESPACE NAME COMMAND...: a machine that sees its own processes alone.
alone() {
    local space=$1 name=$2
    shift 2
    exec ip netns exec "$space" unshare --uts --pid --fork --mount-proc --kill-child \
        sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
}

set_up_ssh() {
    mkdir -p /run/sshd ssh && chmod 700 . ssh
    ssh-keygen -q -t ed25519 -N '' -f ssh/host && ssh-keygen -q -t ed25519 -N '' -f ssh/user
    cp ssh/user.pub ssh/keys
    cat >ssh/sshd.conf <<END
ListenAddress 10.99.7.2:2222
HostKey $work/ssh/host
AuthorizedKeysFile $work/ssh/keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
END
    cat >ssh/conf <<END
Host node1
    HostName 10.99.7.2
    Port 2222
    IdentityFile $work/ssh/user
    UserKnownHostsFile $work/ssh/known
    LogLevel ERROR
END
    echo "[10.99.7.2]:2222 $(cut -d ' ' -f 1,2 ssh/host.pub)" >ssh/known
    chmod 600 ssh/*
}

# Two ranks on each machine train until the end of the test.
start_job() {
    local job=("$CHOIR" run --nnodes 2 --nproc-per-node 2 --rdzv-endpoint 10.99.7.1 --key-file key)
    local train=("$CHOIR" train --json --log-every 20 --steps 100000000 --microbatches 4
        --batch-size 24 --model "$gpt" --strategy ddp text)
    make_text text 200
    head -c 32 /dev/urandom >key && chmod 600 key
    alone $here node0 "${job[@]}" --node-rank 0 "${train[@]}" >a.out 2>a.err </dev/null &
    pid_a=$!
    alone $there node1 sh -c '/usr/sbin/sshd -f "$0" -E sshd.log && exec "$@"' \
        "$work/ssh/sshd.conf" "${job[@]}" --node-rank 1 "${train[@]}" >b.out 2>b.err </dev/null &
    pid_b=$!
    await 40 test -s a.out || { fail "no steps: $(cat a.err b.err)"; finish; }
    agent=$(pgrep -P "$pid_a") # as this test sees it
}

# from0 COMMAND...: a command on node0.
from0() { timeout -k 2 $((60 * patience)) nsenter -t "$agent" -p -m -u -n -w"$work" "$@"; }
through=(--through 'ssh -F ssh/conf -o BatchMode=yes {}')

sees_all_machines() {
    from0 "$CHOIR" top --once >seen 2>top.err || fail "$(cat top.err)"
    has seen '^job [0-9a-f]{8}, 4 ranks, 2 here, up '
    from0 "$CHOIR" top --once --hosts all "${through[@]}" >seen 2>top.err ||
        fail "$(cat top.err seen)"
    has seen '^job [0-9a-f]{8}, 4 ranks on 2 machines, up ' '^on node0:$' '^on node1:$'
    [ "$(grep -cE '^ +[0-3] +[0-9]+  cpu:' seen)" = 4 ] || fail "not four ranks: $(cat seen)"
    [ "$(grep -c '^job' seen)" = 1 ] || fail "not one job: $(cat seen)"
    from0 "$CHOIR" top --json --hosts node0,node1 "${through[@]}" >seen 2>top.err
    [ $? = 1 ] || fail 'node0 has no sshd, and nothing says so'
    is_one_line_of top.err '^choir top: node0: its command ended with status 255: ssh: '
    [ "$(grep -o '"host":"node[01]"' seen | sort | uniq -c | tr -s ' \n' ' ')" = \
        ' 2 "host":"node0" 2 "host":"node1" ' ] || fail "JSON: $(cat seen)"
    from0 "$CHOIR" top --dump --hosts all "${through[@]}" >seen 2>top.err || fail "$(cat top.err)"
    has seen '^rank 0 of 4, pid [0-9]+ on node0, ' '^rank 3 of 4, pid [0-9]+ on node1, '
}
is_one_line_of() {
    [ "$(wc -l <"$1")" = 1 ] && grep -qE "$2" "$1" || fail "not '$2': $(cat "$1")"
}

# The page follows ranks of both machines, and says when one cannot be seen any more.
page_sees_all_machines() {
    from0 "$CHOIR" watch --hosts all "${through[@]}" >url 2>watch.err &
    local watch=$!
    await 20 test -s url || fail "no page: $(cat watch.err)"
    from0 python3 - "$(cat url)" "$(pgrep -f 'sshd.*ssh/sshd.conf' | head -n 1)" <<'END' ||
import json, os, subprocess, sys, urllib.request
def ranks(condition):
    kind = None
    for line in urllib.request.urlopen(sys.argv[1] + "live", timeout=200):
        line = line.decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: ") and kind == "ranks" and condition(json.loads(line[6:])):
            return
    sys.exit("the page ended")
def all_there(m):
    jobs = m["jobs"]
    return len(jobs) == 1 and jobs[0]["machines"] == 2 and not m["troubles"] and [
        (r["rank"], r["host"]) for r in jobs[0]["ranks"]] == [
        (0, "node0"), (1, "node0"), (2, "node1"), (3, "node1")] and all(
        r["calls"] and r["devices"][0]["busy"] > 0 for r in jobs[0]["ranks"])
ranks(all_there)
subprocess.run(["pkill", "-KILL", "ssh"])
ranks(lambda m: len(m["troubles"]) == 1 and m["troubles"][0].startswith(
    "node1: its command ") and len(m["jobs"][0]["ranks"]) == 2)
END
        fail 'the page does not see both machines'
    pkill -TERM -f "^$CHOIR watch --hosts all"
    wait "$watch" || fail "status $? of choir watch: $(cat watch.err)"
}

# A machine that is cut off is named; nothing that was started for the look stays.
silence_is_told() {
    local pid
    from0 "$CHOIR" top --hosts node1 --through "sh -c 'trap : PIPE; sleep $mark' {}" --once \
        >seen 2>top.err && fail 'no failure'
    has seen '^node1: no news for [0-9]+ s'
    pid=$(pgrep -f "sleep $mark")
    [ -z "$pid" ] || fail "left over: $pid"
    from0 "$CHOIR" top --hosts node1 --through 'echo hello {}; cat /dev/zero #' --once \
        >seen 2>top.err && fail 'no failure'
    has seen "^node1: expected the output of choir __boards, got 'hello node1"
    bad 1 "expected names of machines, separated by commas, got 'a b'" top --hosts 'a b' --once
    bad 1 'expected at most 128 machines' top --once --through 'true {}' \
        --hosts "$(seq -s , -f 'n%g' 129)"
    bad 1 "expected names of machines, separated by commas, got '-x'" top --hosts=-x --once
    bad 1 'expected a command with .. for the name' top --hosts a --through ssh --once
}

set_up_ssh
start_job
check sees_all_machines
check page_sees_all_machines
check silence_is_told
kill -KILL "$pid_a" "$pid_b"
finish
