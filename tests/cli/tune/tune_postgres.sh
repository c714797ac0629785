#!/usr/bin/env bash
# choir tune --storage postgresql://...: a real server in a folder of its own. Searches share a
# study; the server goes away and comes back; connections are cut; a machine is lost.
tests=$(cd "$(dirname "$0")/../.." && pwd)
. "$tests/cli/lib.sh"
. "$tests/page.sh"
"$CHOIR" info --json | grep -q '"studies":\[[^]]*"postgresql"' ||
    skip 'this build has no PostgreSQL'
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
PATH=$PATH:$bin
for program in initdb pg_ctl psql; do
    command -v $program >/dev/null || skip "there is no $program (see script/bootstrap --dev)"
done

# A server does not run as root.
as_owner() { "$@"; }
owner=$(id -un)
if [ "$owner" = root ]; then
    owner=postgres
    as_owner() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
    chmod 711 "$work"
fi
server=$work/server
mkdir "$server"
[ "$owner" = "$(id -un)" ] || chown "$owner" "$server"
as_owner initdb -D "$server/data" -U postgres -A trust -N >"$work/initdb.log" 2>&1 ||
    skip "initdb: $(tail -1 "$work/initdb.log")"
begin_server() {
    as_owner pg_ctl -D "$server/data" -l "$server/log" -w -t 60 \
        -o "-c listen_addresses= -c unix_socket_directories='$server' -c fsync=off" start >/dev/null
}
end_server() { as_owner pg_ctl -D "$server/data" -m immediate -w stop >/dev/null; }
trap 'end_server 2>/dev/null; clean_up' EXIT
begin_server || skip "the server does not start: $(tail -3 "$server/log")"
url="postgresql://postgres@/postgres?host=$server"
sql() { psql -qAtX "$url" -c "$1"; }

# A bowl that notes each start. Of a number that is in `holding` it waits.
cat >bowl <<'BOWL'
#!/bin/bash
echo "$CHOIR_TRIAL_NUMBER" >>starts
if [ -e holding ] && [ "$(cat holding)" = "$CHOIR_TRIAL_NUMBER" ]; then
    [ -z "${CHOIR_TRIAL_DIR-}" ] || echo half >"$CHOIR_TRIAL_DIR/checkpoint"
    echo "$PPID" >holder.new
    mv holder.new holder
    while [ -e holding ]; do sleep 0.02; done
elif [ -e "${CHOIR_TRIAL_DIR-none}/checkpoint" ]; then
    echo "$CHOIR_TRIAL_NUMBER from $(cat "$CHOIR_TRIAL_DIR/checkpoint")" >>went_on
fi
awk -v x="$1" -v w="$2" \
    'BEGIN { printf "{\"step\":1,\"eval_loss\":%.6f}\n", (x - 0.3)^2 + (w - 4)^2 }'
BOWL
chmod +x bowl
search=(--json --trials 30 --window 4 --seed 3 --space 'x=uniform(0,1)' --space 'width=int(1,8)')
bowl=(-- ./bowl {x} {width})
trials() { sed 's/,"seconds":[0-9.]*//' "$1"; }
same_table() {
    trials out | cmp -s reference - || fail "another table: $(trials out | diff reference -)"
}

reference() {
    good tune "${search[@]}" "${bowl[@]}"
    trials out >reference
}

shared() {
    local i pids=
    rm -f starts
    for i in 1 2 3 4; do
        "$CHOIR" tune --storage "$url" "${search[@]}" "${bowl[@]}" >out$i 2>err$i &
        pids+=" $!"
    done
    for i in $pids; do wait "$i" || fail "status $?: $(cat err?)"; done
    for i in 1 2 3 4; do
        cp out$i out
        same_table
        [ ! -s err$i ] || fail "$(cat err$i)"
    done
    [ "$(sort -n starts)" = "$(seq 0 29)" ] || fail "started twice: $(sort -n starts | uniq -d)"
    good tune show --json "$url"
    same_table
    good tune best "postgresql+psycopg2:${url#*:}"
    bad 2 "study 'study' has the window 4, got 2" \
        tune --storage "$url" "${search[@]}" --window 2 "${bowl[@]}"
}

# Cuts all connections, all the time, until the started search ends, as if none had been cut.
survives_cuts() {
    while ! is_gone "$started_pid"; do
        sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'" >cuts
    done
    ended 1
    [ "$status" = 0 ] || fail "status $status: $(cat err)"
    same_table
}

# The server dies while trials run and comes back; connections are cut all the time.
goes_away() {
    local i
    rm -f starts holder
    echo 5 >holding
    start tune --storage "$url" --study away --parallel 2 "${search[@]}" "${bowl[@]}"
    await 20 [ -e holder ] || fail "no trial 5: $(cat err)"
    end_server
    rm holding
    await 20 grep -q 'trials wait' err || fail "does not wait: $(cat err)"
    begin_server
    ended 60
    [ "$status" = 0 ] || fail "status $status: $(cat err)"
    same_table
    [ "$(wc -l <err)" = 2 ] || fail "$(cat err)"
    has err "^choir: postgresql://.*; the study's trials wait$" 'answers again$'
    [ "$(sort -n starts)" = "$(seq 0 29)" ] || fail "started twice: $(sort -n starts | uniq -d)"
    start tune --storage "$url" --study cut --parallel 2 "${search[@]}" "${bowl[@]}"
    survives_cuts
}

# A signal ends a search that waits.
waiting_ends() {
    rm -f holder
    echo 5 >holding
    start tune --storage "$url" --study ends "${search[@]}" "${bowl[@]}"
    await 20 [ -e holder ] || fail "no trial 5: $(cat err)"
    end_server
    rm holding
    await 20 grep -q 'trials wait' err || fail "does not wait: $(cat err)"
    kill -TERM "$started_pid"
    ended 10
    [ "$status" = 1 ] || [ "$status" = 143 ] || fail "status $status: $(cat err)"
    begin_server
    good tune --storage "$url" --study ends "${search[@]}" "${bowl[@]}"
    same_table
}

# The trial of a machine from which no sign of life comes is taken up, and not before.
lost_machine() {
    rm -f starts holder
    echo 5 >holding
    start tune --storage "$url" --study lost --dir lost_dir "${search[@]}" "${bowl[@]}"
    await 20 [ -e holder ] || fail "no trial 5: $(cat err)"
    kill -KILL "$started_pid"
    wait "$started_pid" 2>/dev/null
    # The name of a worker on another machine.
    sql "UPDATE trial_system_attributes SET value_json = regexp_replace(value_json,
         '[0-9a-f]{8}-[0-9a-f-]*', 'another-boot') WHERE \"key\" = 'choir:worker'"
    rm holding
    start tune --storage "$url" --study lost --dir lost_dir "${search[@]}" "${bowl[@]}"
    await 20 grep -q '"number":4' out || fail "no trial 4: $(cat err)"
    await 20 grep -qx 8 starts || fail "no trials that the window allows: $(cat starts)"
    [ "$(grep -cx 5 starts)" = 1 ] || fail 'took up the trial of a machine that may be alive'
    sql "UPDATE trial_heartbeats SET heartbeat = heartbeat - interval '61 seconds'"
    ended 30
    [ "$status" = 0 ] || fail "status $status: $(cat err)"
    same_table
    [ "$(sort -n starts | uniq -d)" = 5 ] || fail "started twice: $(sort -n starts | uniq -d)"
    [ "$(cat went_on)" = '5 from half' ] || fail 'trial 5 does not find its checkpoint'
}

# --- trials that stop and go on ---

# A curve that notes its starts, and waits while there is a file `early`. A trial that goes on to
# the budget in `holding` waits at its second step.
cat >curve <<'CURVE'
#!/bin/bash
step=0 file=$CHOIR_TRIAL_DIR/checkpoint far=$(($1 - 300000))
[ -e "$file" ] && read -r step <"$file"
echo "$CHOIR_TRIAL_NUMBER $CHOIR_TRIAL_BUDGET from $step" >>starts
trap : TERM
while [ -e early ]; do read -rt 0.02 <> <(:); done
while ((step < CHOIR_TRIAL_BUDGET)); do
    step=$((step + 1))
    echo "{\"step\":$step,\"eval_loss\":$(((far < 0 ? -far : far) + 1000000 / step))}"
    echo $step >"$file"
    if [ $step = 2 ] && [ "$(cat holding 2>/dev/null)" = "$CHOIR_TRIAL_BUDGET" ]; then
        echo "$CHOIR_TRIAL_NUMBER" >holder.new
        mv holder.new holder
        while [ -e holding ]; do read -rt 0.02 <> <(:); done
    fi
done
CURVE
chmod +x curve
segments=(--json --trials 12 --window 4 --seed 2 --sampler random --space 'x=int(0,1000000)'
    --scheduler 'asha:min=1,max=9,eta=3' -- ./curve {x})

segments_reference() {
    good tune --storage memory --dir memory "${segments[@]}"
    trials out >reference
}

# Several machines share a folder and the study; the server goes away and comes back.
# All three searches have their study, whose trials wait for that: a server that goes away before
# is an error.
three_are_open() {
    [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'three' AND
        state = 'idle' AND query <> ''")" = 3 ]
}
segments_shared() {
    local i pids=
    rm -f starts
    touch early
    for i in 1 2 3; do
        PGAPPNAME=three "$CHOIR" tune --storage "$url" --study segments --dir shared --parallel 2 \
            "${segments[@]}" >out$i 2>err$i &
        pids+=" $!"
    done
    await 20 three_are_open || fail "not open: $(cat err?)"
    rm early
    await 20 [ -e shared/3 ] || fail "no trial 3: $(cat err?)"
    end_server
    begin_server
    for i in $pids; do wait "$i" || fail "status $?: $(cat err?)"; done
    for i in 1 2 3; do
        cp out$i out
        same_table
    done
    [ -z "$(cut -d' ' -f1,2 starts | sort | uniq -d)" ] || fail "started twice: $(sort starts)"
    [ "$(sql "SELECT string_agg(DISTINCT state::text, ' ') FROM trials JOIN studies USING (study_id)
        WHERE study_name = 'segments'")" = 'COMPLETE PRUNED' ] || fail 'states of the trials'
    start tune --storage "$url" --study cut_segments --dir cut --parallel 2 "${segments[@]}"
    survives_cuts
}

# A machine is lost while a trial goes on: another one takes it up, with the checkpoint that the
# trial had when it went on.
segments_lost_machine() {
    local trial
    rm -f starts holder
    echo 3 >holding
    start tune --storage "$url" --study lost_segments --dir lost "${segments[@]}"
    await 20 [ -e holder ] || fail "no trial goes on: $(cat err)"
    trial=$(cat holder)
    kill -KILL "$started_pid"
    wait "$started_pid" 2>/dev/null
    sql "UPDATE trial_system_attributes SET value_json = regexp_replace(value_json,
         '[0-9a-f]{8}-[0-9a-f-]*', 'another-boot') WHERE \"key\" = 'choir:worker'"
    rm holding
    start tune --storage "$url" --study lost_segments --dir lost "${segments[@]}"
    await 20 [ -s out ] || fail "nothing: $(cat err)"
    [ "$(grep -c "^$trial 3 " starts)" = 1 ] ||
        fail 'took up the segment of a machine that may be alive'
    sql "UPDATE trial_heartbeats SET heartbeat = heartbeat - interval '61 seconds'"
    ended 30
    [ "$status" = 0 ] || fail "status $status: $(cat err)"
    same_table
    [ "$(grep "^$trial 3 " starts)" = "$trial 3 from 1
$trial 3 from 1" ] || fail "starts of trial $trial: $(grep "^$trial " starts)"
}

# The page shows the studies of a server without its password, and says when it is gone.
on_a_page() {
    local database=$url
    watch "${url/postgres@/postgres:secret@}"
    live "$url" 'any(path.endswith(": steps") and s["count"] == 1 for path, s in studies.items())' \
        >seen || fail "not seen: $(cat seen)"
    grep -q secret seen && fail 'the password is shown'
    end_server
    live "$url" 'troubles' >seen || fail "$(cat seen)"
    has seen 'connection to server'
    begin_server
    live "$url" 'studies and not troubles' >seen || fail "$(cat seen)"
    stop_watching
    url=$database
}

# Optuna's column of steps has 32 bits here: the trial ends at once, with the reason.
large_steps() {
    good tune --storage "$url" --study steps --trials 1 --space n=2147483647 -- \
        sh -c 'echo "{\"step\":$1,\"eval_loss\":1}"' sh {n}
    "$CHOIR" tune --storage "$url" --study larger --trials 1 --space n=2147483648 -- \
        sh -c 'echo "{\"step\":$1,\"eval_loss\":1}"; exec sleep 1618.03' sh {n} >out 2>err
    [ $? = 1 ] || fail "a step that is too large: $(cat out err)"
    has out 'FAIL .* step: expected a step of at most 2147483647, .* .*, got 2147483648'
}

refused() {
    bad 1 'database "none" does not exist' \
        tune --storage "postgresql://postgres@/none?host=$server" "${search[@]}" "${bowl[@]}"
    bad 1 'role "nobody-of-ours" does not exist' \
        tune --storage "postgresql://nobody-of-ours:secret@/postgres?host=$server" \
        "${search[@]}" "${bowl[@]}"
    grep -q secret err && fail 'the password is printed'
    sql 'UPDATE version_info SET schema_version = 13'
    bad 1 'newer Optuna: expected tables of version 12, got 13' \
        tune --storage "$url" "${search[@]}" "${bowl[@]}"
    end_server
    bad 1 'connection to server .* failed' tune --storage "$url" "${search[@]}" "${bowl[@]}"
}

# A role that may write and does not own the tables.
another_role() {
    sql "CREATE ROLE worker LOGIN;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO worker" || fail 'no role'
    good tune --storage "${url/postgres@/worker@}" --study theirs "${search[@]}" "${bowl[@]}"
    same_table
}

# Optuna reads these studies, and both go on with each other's.
beside_optuna() {
    local python=${CHOIR_PYTHON:-python3}
    $python -c 'import optuna, psycopg2' 2>/dev/null ||
        { echo "no Optuna with psycopg2 in $python: not beside Optuna"; return; }
    CHOIR_TEST_POSTGRES=$url CHOIR=$CHOIR timeout 100 \
        $python "$tests/interop/tune/studies.py" >out 2>err ||
        fail "$(tail -5 err)"
    grep -q '^postgresql: studies' out || fail "$(cat out)"
    sql 'DROP SCHEMA public CASCADE; CREATE SCHEMA public' 2>/dev/null
}

check reference
check beside_optuna
check shared
check another_role
check goes_away
check waiting_ends
check lost_machine
check segments_reference
check segments_shared
check segments_lost_machine
check large_steps
check on_a_page
check refused
finish
