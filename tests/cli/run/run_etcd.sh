#!/usr/bin/env bash
# choir run with nodes that meet in an etcd: as in run_elastic.sh, but any node may be lost. The
# etcd is a real one on this machine, also with TLS and users.
. "$(dirname "$0")/ledger.sh" etcd 'etcd is not built in (install libcurl4-openssl-dev)'
for program in etcd curl openssl; do
    command -v $program >/dev/null ||
        skip "there is no $program (install ${program/etcd/etcd-server})"
done
unset ETCDCTL_USER ETCDCTL_PASSWORD

# serve_etcd NAME SCHEME OPTION...: sets etcd_NAME to its port, and etcd_pid.
etcds=
serve_etcd() {
    local name=$1 scheme=$2 client peer try
    shift 2
    for try in 1 2 3 4 5; do
        # Ports below those that the kernel gives to connections.
        client=$((30000 + (RANDOM + $$) % 2700)) peer=$((10000 + (RANDOM + $$) % 9000))
        etcd --name test --data-dir "$work/etcd.$name.$try" --log-level error --unsafe-no-fsync \
            --listen-client-urls "$scheme://127.0.0.1:$client" \
            --advertise-client-urls "$scheme://127.0.0.1:$client" \
            --listen-peer-urls "http://127.0.0.1:$peer" \
            --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
            --initial-cluster "test=http://127.0.0.1:$peer" "$@" >"etcd.$name.log" 2>&1 </dev/null &
        etcd_pid=$!
        disown $etcd_pid
        etcds="$etcds $etcd_pid"
        eval "etcd_$name=$client"
        await 20 etcd_answers_or_ends "$scheme" $client
        ! is_gone $etcd_pid && etcd_answers "$scheme" $client && return
        kill -KILL $etcd_pid 2>/dev/null
    done
    fail "etcd does not start: $(tail -n 3 "etcd.$name.log")"
}
etcd_answers() { curl -sk $curl_options "$1://127.0.0.1:$2/version" | grep -q etcdserver; }
etcd_answers_or_ends() { is_gone $etcd_pid || etcd_answers "$@"; } # another's port ends it
curl_options=
# shellcheck disable=SC2086
trap 'kill -KILL $etcds 2>/dev/null; clean_up' EXIT

# v3 PATH JSON: a call of the plain etcd.
v3() { curl -s "http://127.0.0.1:$etcd_plain/v3/$1" -d "$2"; }

# member NAME ARG...: an agent that meets the others in the plain etcd, in the run of this check.
member() { node "$1" "${ledger[@]}" --rdzv-id "run$port" "${@:2}"; }

# A job from its beginning to its end, with a failure in between; nothing of it stays in etcd.
whole_job() {
    job_with_a_failure
    ! v3 kv/range '{"key":"AA==","range_end":"AA==","keys_only":true}' | grep -q '"key"' ||
        fail 'keys are left in etcd'
}

# Any node may die, the first one included; node 0's place goes to another.
first_agent_killed() {
    fresh
    three "[ \$GROUP_RANK != 0 ] || echo first; $work_on; exec sleep $mark"
    local first
    for name in a b c; do
        ! grep -qs first $name.out || first=$name
    done
    kill_one "$first" 0
}

# A stopped agent has lost its lease when it continues: it stops its ranks, and joins again.
agent_stopped() {
    fresh
    member a --nnodes 1:2 sh -c "$work_on"
    awaits 20 '^0 of 1' 1
    member b --nnodes 1:2 sh -c "$work_on"
    awaits 20 ' of 2 on' 2
    agent_of b
    kill -STOP "$agent"
    awaits 20 '^0 of 1' 2
    kill -CONT "$agent"
    awaits 20 ' of 2 on' 4
    touch go
    over 20
    ended_with a 0
    ended_with b 0
}

# Agents that cannot reach etcd stop their ranks in time; when it is back they go on.
etcd_stopped() {
    fresh
    member a --nnodes 2 --max-restarts 1 sh -c "$work_on"
    member b --nnodes 2 --max-restarts 1 sh -c "$work_on"
    awaits 20 ' of 2 on' 2
    kill -STOP $plain_pid
    await 20 no_workers || fail 'ranks go on without etcd'
    kill -CONT $plain_pid
    awaits 30 ' of 2 on node ., restart 0' 4
    touch go
    over 20
    ended_with a 0
    ended_with b 0
}
no_workers() {
    local name
    for name in a b; do
        agent_of $name
        [ -z "$(cat /proc/"$agent"/task/*/children)" ] || return 1
    done
}

# What a job that was killed everywhere leaves behind does not disturb the next one of its name.
left_behind() {
    fresh
    member a --nnodes 2 sh -c "$work_on"
    member b --nnodes 2 sh -c "$work_on"
    awaits 20 ' of 2 on' 2
    for name in a b; do agent_of $name; kill -KILL "$agent"; done
    over 20
    names=()
    member c --nnodes 2 sh -c "$work_on"
    member d --nnodes 2 sh -c "$work_on"
    awaits 20 ' of 2 on' 4
    touch go
    over 20
    ended_with c 0
    ended_with d 0
}

bad_etcd() {
    local args=(run --nnodes 2 --rdzv-backend etcd --rdzv-id x --timeout 1)
    bad 1 'etcd at http://127.0.0.1:1 does not answer: ' "${args[@]}" \
        --rdzv-endpoint 127.0.0.1:1 true
    bad 2 'etcd: missing --rdzv-id NAME' run --nnodes 2 --rdzv-backend etcd \
        --rdzv-endpoint 127.0.0.1:1 true
    bad 2 'etcd: missing --rdzv-endpoint HOST:PORT' run --nnodes 2 --rdzv-backend etcd true
    bad 1 'etcd at http://127.0.0.1:[0-9]+ refuses auth/authenticate: .*not enabled' "${args[@]}" \
        --timeout 20 --rdzv-endpoint 127.0.0.1:$etcd_plain --rdzv-conf user=me:secret true
}

# The key files of two nodes differ.
other_key() {
    fresh
    for name in a b; do head -c 32 /dev/urandom >key$name && chmod 600 key$name; done
    member a --nnodes 2 --key-file keya true
    member b --nnodes 2 --key-file keyb true
    over 20
    for name in a b; do
        ended_with $name 1
        has $name.err 'nodes disagree: the key file .--key-file. of .* is not that of node 0'
    done
}

# certificate NAME: for 127.0.0.1, by the authority ca.crt, which the first call makes. It has no
# common name, which etcd's gateway refuses in clients' certificates.
certificate() {
    local new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
    # shellcheck disable=SC2086
    {
        [ -e ca.crt ] || openssl req -x509 $new -days 2 -subj /CN=ca -keyout ca.key -out ca.crt
        openssl req $new -subj /O=$1 -keyout $1.key -out $1.csr &&
            echo subjectAltName=IP:127.0.0.1 >names &&
            openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                -extfile names -out $1.crt
    } >openssl.log 2>&1 || fail "$(cat openssl.log)"
}
tls_and_user() {
    certificate server
    certificate client
    curl_options='--cert client.crt --key client.key'
    serve_etcd tls https --cert-file server.crt --key-file server.key --client-cert-auth \
        --trusted-ca-file ca.crt || return
    local url="https://127.0.0.1:$etcd_tls/v3" cmd='curl -sk --cert client.crt --key client.key'
    # shellcheck disable=SC2086
    for call in 'auth/user/add {"name":"root","password":"pw"}' 'auth/role/add {"name":"root"}' \
        'auth/user/grant {"user":"root","role":"root"}' 'auth/enable {}'; do
        $cmd "$url/${call%% *}" -d "${call#* }" >>auth.log
    done
    local args=(run --nnodes 2 --rdzv-backend etcd --rdzv-endpoint "127.0.0.1:$etcd_tls" --rdzv-id x
        --timeout 20) conf=cacert=ca.crt,cert=client.crt,key=client.key
    bad 1 'refuses .*user name is empty: name a user by --rdzv-conf user=NAME:PASSWORD' \
        "${args[@]}" --rdzv-conf $conf true
    bad 1 'refuses auth/authenticate: .*authentication failed, invalid user ID or password' \
        "${args[@]}" --rdzv-conf $conf,user=root:no true
    bad 1 'TLS failed: ' "${args[@]}" --rdzv-conf protocol=https,user=root:pw true
    "$CHOIR" "${args[@]}" --rdzv-conf $conf,user=root:pw echo one >one.out 2>one.err &
    local one=$!
    ETCDCTL_USER=root ETCDCTL_PASSWORD=pw choir "${args[@]}" --rdzv-conf $conf echo two \
        >two.out 2>two.err || fail "$(cat two.err auth.log)"
    wait $one || fail "$(cat one.err)"
    has one.out '^one$'
    has two.out '^two$'
}

serve_etcd plain http
plain_pid=$etcd_pid
endpoint=127.0.0.1:$etcd_plain
check whole_job
check first_agent_killed
check agent_stopped
check etcd_stopped
check left_behind
check bad_etcd
check other_key
check tls_and_user
finish
