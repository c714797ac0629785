# Functions that the tests of choir run on several nodes share. The nodes are several agents on one
# machine, or in network namespaces that stand for machines.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
unset RANK WORLD_SIZE CHOIR_JOB CHOIR_INIT MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1
mark=$((200000 + $$)).25 # seconds of this test's sleep
port=$((20000 + $$ * 40 % 10000)) # each check takes the next one, and tests run side by side
LIMIT=40

# node NAME ARG...: an agent in the background, with its output in NAME.out and NAME.err. endpoint:
# where the nodes meet, if not at the first one.
endpoint=
node() {
    local name=$1
    shift
    "$CHOIR" run --rdzv-endpoint "${endpoint:-127.0.0.1:$port}" "$@" >"$name.out" 2>"$name.err" \
        </dev/null &
    eval "pid_$name=$!"
    names+=("$name")
}

begin() { port=$((port + 1)) names=(); }

# Begins where ranks work until `go` is there, and each of their starts is a line of starts.
fresh() { rm -f starts go fail* ./*.out ./*.err; : >starts; begin; }
started() { [ "$(grep -c -e "$1" starts)" -ge "$2" ]; }
awaits() { # SECONDS PATTERN COUNT: so many ranks have started so
    await "$1" started "$2" "$3" || fail "no $3 starts '$2': $(cat starts ./*.err)"
}
agent_of() { # NAME: sets agent to the process below the guard
    local guard
    eval "guard=\$pid_$1"
    read -r agent </proc/$guard/task/$guard/children
}

# over SECONDS: all nodes end in time; their statuses are in status_NAME.
over() {
    local name pid
    for name in "${names[@]}"; do
        eval "pid=\$pid_$name"
        await "$1" is_gone "$pid" || fail "node $name is still there after $1 s"
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        eval "status_$name=$?"
    done
}

ended_with() {
    local name=$1 status
    eval "status=\$status_$name"
    [ "$status" -eq "$2" ] || fail "status $status of $name, not $2: $(head -c 2000 "$name.err")"
}

say='echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK, \
    $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID $CHOIR_JOB.'

listens() { (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; }

up='echo up; exec sleep '$mark
all_up() { [ "$(cat ./*.out | grep -c up)" -eq "$1" ]; }

# --- machines ---------------------------------------------------------------------------------

wire() {
    ip -n "$1" addr add "$3" dev "$2" && ip -n "$1" link set "$2" up && ip -n "$1" link set lo up
}

# has_carrier NAMESPACE DEVICE: the kernel reports it up to a second after both ends are up, and UCX
# uses no link before.
has_carrier() { ip -n "$1" -o link show "$2" | grep -q 'state UP'; }

# Two network namespaces joined by a cable act as two machines. UCX does not see through a cable
# whose ends have the same index, which is the default.
hosts() {
    here=choir-run-$$-0 there=choir-run-$$-1
    trap 'ip netns del $here; ip netns del $there; clean_up' EXIT
    ip netns add $here && ip netns add $there &&
        ip link add crun$$a index 100 netns $here type veth \
            peer name crun$$b index 200 netns $there &&
        wire $here crun$$a 10.99.7.1/24 && wire $there crun$$b 10.99.7.2/24 &&
        await 10 has_carrier $here crun$$a && await 10 has_carrier $there crun$$b
}

# on NAMESPACE NAME COMMAND...: also sets the machine's name, or UCX would take the two for one.
on() {
    local space=$1 name=$2
    shift 2
    exec ip netns exec "$space" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
}
