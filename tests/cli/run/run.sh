#!/usr/bin/env bash
# choir run on one node: the environment of its workers, the handling of their output, and that
# nothing outlives it, however it ends. Workers are shell one-liners; a `sleep` of a length
# unique to this test marks processes that must disappear.
. "$(dirname "$0")/../lib.sh"
unset OMP_NUM_THREADS RANK WORLD_SIZE CHOIR_JOB CHOIR_INIT MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1
mark=$((100000 + $$)).25 # seconds of this test's sleep

# run ARG...: choir run, with standard output in out and standard error in err; returns the
# status.
run() {
    choir run "$@" >out 2>err </dev/null
    status=$?
}

ended_with() { [ "$status" -eq "$1" ] || fail "status $status, not $1: $(head -c 2000 err)"; }

# --- what workers are told --------------------------------------------------------------------

environment() {
    run --nproc-per-node 3 --rdzv-id job1 --max-restarts 2 \
        sh -c 'env | sed "s/^/$RANK /" >env.$RANK'
    ended_with 0
    for rank in 0 1 2; do
        for pair in RANK=$rank LOCAL_RANK=$rank GROUP_RANK=0 ROLE_RANK=$rank WORLD_SIZE=3 \
            LOCAL_WORLD_SIZE=3 ROLE_WORLD_SIZE=3 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 \
            TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=2 TORCHELASTIC_RUN_ID=job1 \
            OMP_NUM_THREADS=1; do
            grep -qxF "$rank $pair" env.$rank || fail "rank $rank lacks $pair: $(cat env.$rank)"
        done
        has env.$rank "^$rank MASTER_PORT=[0-9]+$" "^$rank CHOIR_JOB=[0-9a-f]{32}$"
    done
    [ "$(grep -h -e _PORT -e _JOB env.* | cut -d' ' -f2- | sort -u | wc -l)" -eq 2 ] ||
        fail 'ranks of one job have different ports or secrets'
    choir run env >out && choir run env >other
    [ "$(grep CHOIR_JOB out)" != "$(grep CHOIR_JOB other)" ] || fail 'two jobs, one secret'
}

# --- torchrun's options -----------------------------------------------------------------------

# A stand-in for Python, which prints its arguments.
fake_python() { printf '#!/bin/sh\necho "python $*"\n' >python && chmod +x python; }

python_commands() {
    fake_python
    echo 'print(1)' >train.py
    export PYTHON_EXEC=$PWD/python
    run train.py --lr 1
    has out '^python -u train.py --lr 1$'
    run -m package.train -m x
    has out '^python -u -m package.train -m x$'
    run --run_path --no-python train.py
    has out '^python -u train.py$'
    run --no-python ./train.py
    ended_with 126
    printf '#!/bin/sh\necho itself\n' >train.py && chmod +x train.py
    run ./train.py
    has out '^itself$'
    unset PYTHON_EXEC
}

# A line as scripts for Slurm have it, but for the name of the launcher.
line_of_a_script() {
    fake_python
    PYTHON_EXEC=$PWD/python run --nnodes=1 --nproc_per_node=2 --rdzv_id 4711 \
        --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 --rdzv-conf \
        'timeout=900,read_timeout=60,last_call_timeout=5,is_host=true' --role trainer \
        --local-addr 127.0.0.1 --signals-to-handle SIGTERM,SIGUSR1 --start-method=spawn \
        --monitor_interval 5 --event_log_handler null --shutdown-timeout 20 -m package.train
    ended_with 0
    [ "$(grep -c 'python -u -m package.train' out)" -eq 2 ] || fail "$(cat out)"
    run -n 1 --role trainer --local-addr localhost sh -c 'echo $ROLE_NAME $MASTER_ADDR'
    has out '^trainer 127.0.0.1$' # one node has no address but loopback
    bad 2 "unknown key 'speed': choose one of" run --rdzv-conf speed=1 true
    bad 2 "unknown key 'time_out' .did you mean 'timeout'" run --rdzv-conf time_out=1 true
    bad 2 'expected seconds' run --rdzv-conf timeout=soon true
    bad 2 "unknown signal 'SIGKILL'" run --signals-to-handle SIGTERM,SIGKILL true
    bad 2 'numactl' run --numa-binding node true
    bad 2 'copies no lines into a further file; --tee 3' run --duplicate-stderr-filters x true
    bad 2 'takes that of its LOCAL_RANK' run --virtual-local-rank true
    bad 2 "logs-specs: unknown value 'mine': choose one of default" run --logs-specs mine true
    choir run --logs-specs default --role me -n 2 \
        --log_line_prefix_template '<${hostname} ${role_name} ${local_rank}/${rank}>' \
        echo hi >out 2>err
    has out "^<$(uname -n) me 0/0> hi$" "^<$(uname -n) me 1/1> hi$"
    bad 2 'prints no completions; bash reads them from' run --print-completion zsh
}

# Kubernetes' PyTorchJob gives options as variables.
variables() {
    PET_NPROC_PER_NODE=2 PET_NNODES=1 PET_NODE_RANK=0 PET_STANDALONE=0 PET_MAX_RESTARTS=3 \
        PET_RDZV_ID='' run sh -c 'echo $RANK/$WORLD_SIZE/$TORCHELASTIC_MAX_RESTARTS'
    has out '0/2/3$' '1/2/3$'
    PET_NPROC_PER_NODE=2 run -n 1 sh -c 'echo $RANK/$WORLD_SIZE'
    has out '^0/1$'
    PET_NNODES=many bad 2 '--nnodes: expected' run true
}

# Slurm's --signal=USR1: the ranks get it, and the job ends.
ending_signal() {
    start run -n 1 --signals-to-handle SIGUSR1 \
        sh -c 'trap "echo got; exit 5" USR1; touch ready; while :; do sleep 0.05; done'
    await 20 test -e ready || fail "$(cat err)"
    kill -USR1 "$started_pid"
    ended 10
    [ "$status" -eq $((128 + $(kill -l USR1))) ] || fail "status $status"
    has out '^got$'
    has err 'interrupted by SIGUSR1'
}

# A worker that outlives the signal, and fails by another cause soon after, is started again; the
# signal is none of the next one's.
outlived_signal() {
    start run -n 1 --signals-to-handle SIGUSR1 --max-restarts 1 \
        sh -c 'if [ -e got ]; then exit 7; fi; trap "touch got" USR1; echo $$ >new; mv new pid
            while :; do sleep 0.05; done'
    await 20 test -e pid || fail "$(cat err)"
    kill -USR1 "$started_pid"
    await 10 test -e got || fail 'SIGUSR1 is not passed on'
    kill -KILL "$(cat pid)"
    ended 10
    [ "$status" -eq 7 ] || fail "status $status: $(cat err)"
    has err 'was killed by SIGKILL' 'restart 1 of 1'
}

# Workers inherit three of the launcher's descriptors.
descriptors() {
    sh -c 'ls /proc/self/fd | tr "\n" " "' >plain </dev/null
    for n in 1 3; do
        run -n $n --local-ranks-filter 0 --log-dir logs sh -c 'ls /proc/self/fd | tr "\n" " "'
        [ "$(cat out)" = "$(cat plain)" ] || fail "descriptors $(cat out), not $(cat plain)"
    done
}

threads() {
    (unset OMP_NUM_THREADS && run -n 2 sh -c 'echo threads $OMP_NUM_THREADS')
    has out 'rank0.*threads 1' 'rank1.*threads 1'
    has err '^choir run: note: OMP_NUM_THREADS=1'
    (unset OMP_NUM_THREADS && run -n 1 sh -c 'echo threads $OMP_NUM_THREADS.')
    has out '^threads \.$'
    [ ! -s err ] || fail "a note for one rank: $(cat err)"
    OMP_NUM_THREADS=4 run -n 2 sh -c 'echo threads $OMP_NUM_THREADS'
    has out 'threads 4'
    [ ! -s err ] || fail "a note though it is set: $(cat err)"
}

spellings() {
    run --standalone --nproc_per_node=2 --master_port=29511 --rdzv_backend=c10d \
        --monitor_interval 1 --rdzv_id x sh -c 'echo $MASTER_PORT $WORLD_SIZE --n_x'
    ended_with 0
    has out '29511 2 --n_x'
    CHOIR_CPU_DEVICES=3 run --nproc-per-node cpu sh -c 'echo of $WORLD_SIZE'
    has out 'of 3'
    run -n 1 sh -c 'echo "$@"' x --nproc_per_node --help -n # options of the worker's command
    has out '^--nproc_per_node --help -n$'
}

input() {
    printf 'one\ntwo\n' | choir run -n 2 sh -c 'echo "$RANK got $(cat | tr "\n" .)"' >out
    has out '^\[rank0\]: 0 got one\.two\.$' '^\[rank1\]: 1 got $'
}

# --- what they write --------------------------------------------------------------------------

# Eight ranks write long lines in small pieces: no line is torn or lost, and each has its
# prefix.
whole_lines() {
    run -n 8 sh -c 'i=0
        while [ $i -lt 200 ]; do printf "%s-" a b c d; echo "$RANK.$i."; i=$((i + 1)); done
        printf "last of %s" $RANK'
    ended_with 0
    [ "$(wc -l <out)" -eq 1608 ] || fail "$(wc -l <out) lines, not 1608"
    bad=$(grep -vE '^\[rank([0-7])\]: (a-b-c-d-\1\.[0-9]+\.|last of \1)$' out)
    [ -z "$bad" ] || fail "torn: $bad"
    for rank in 0 1 2 3 4 5 6 7; do
        [ "$(grep -c "^.rank$rank" out)" -eq 201 ] || fail "lines of rank $rank are lost"
        grep "^.rank$rank" out | head -n 200 | sed 's/.*\.\(.*\)\./\1/' | sort -nc ||
            fail "lines of rank $rank changed places"
    done
}

as_it_is() {
    head -c 300000 /dev/urandom >data
    choir run cat <data >out || fail 'cat failed'
    cmp data out || fail 'one rank: not what it wrote'
    run -n 1 sh -c 'echo a; echo b >&2; printf c'
    [ "$(cat out)$(cat err)" = "$(printf 'a\ncb')" ] || fail "changed: $(cat out err)"
}

long_line() {
    run -n 2 sh -c 'head -c 3000000 /dev/zero | tr "\0" $RANK; echo; echo end'
    ended_with 0
    [ "$(tr -cd 0 <out | wc -c)" -ge 3000000 ] && [ "$(grep -c ': end$' out)" -eq 2 ] ||
        fail 'a line of 3 MB is lost'
}

filters() {
    run -n 3 --local-ranks-filter 0,2 sh -c 'echo from $RANK; echo err $RANK >&2'
    has out '^\[rank0\]: from 0' '^\[rank2\]: from 2'
    ! grep -q 1 out err || fail "rank 1 is heard: $(cat out err)"
    run -n 3 --local_ranks_filter 1 sh -c 'echo from $RANK'
    [ "$(cat out)" = 'from 1' ] || fail "one rank alone has a prefix: $(cat out)"
}

# logged FILE TEXT
logged() { [ "$(cat "$1" 2>&1)" = "$2" ] || fail "$1 is '$(cat "$1" 2>&1)', not '$2'"; }

logs() {
    local both='echo out $RANK; echo err $RANK >&2'
    run -n 2 --log-dir logs --rdzv-id a --redirects 3 sh -c "$both"
    ended_with 0
    [ ! -s out ] && [ ! -s err ] || fail "not redirected: $(cat out err)"
    for rank in 0 1; do
        logged logs/a/attempt_0/$rank/stdout.log "out $rank"
        logged logs/a/attempt_0/$rank/stderr.log "err $rank"
    done
    run -n 2 --log-dir logs --rdzv-id b -t 0:1,1:2 sh -c "$both"
    has out 'rank0.*out 0' 'rank1.*out 1'
    has err 'rank0.*err 0' 'rank1.*err 1'
    logged logs/b/attempt_0/0/stdout.log 'out 0'
    logged logs/b/attempt_0/1/stderr.log 'err 1'
    [ "$(find logs/b -type f | wc -l)" -eq 2 ] || fail "too many logs: $(find logs/b)"
    run -n 2 --log-dir logs --rdzv-id c sh -c "$both"
    has out 'rank0.*out 0'
    logged logs/c/attempt_0/1/stdout.log 'out 1'
    TMPDIR=$work run -n 2 --redirects 1 sh -c "$both"
    has err 'note: log files are in .*/choir-run-'
    logged "$work"/choir-run-*/*/attempt_0/1/stdout.log 'out 1'
    run -n 1 --log-dir /dev/null/x --tee 3 true
    ended_with 1
    has err '/dev/null/x'
}

colour() {
    command -v script >/dev/null || return 0
    TERM=xterm script -qec "$CHOIR run -n 2 echo hi" /dev/null >out </dev/null
    grep -q $'\033\\[3[0-9]m\\[rank0\\]:\033\\[0m hi' out || fail "no colour: $(cat -v out)"
    NO_COLOR=1 TERM=xterm script -qec "$CHOIR run -n 2 echo hi" /dev/null >out </dev/null
    ! grep -q $'\033' out || fail "colour in spite of NO_COLOR: $(cat -v out)"
}

# When the reader exits, the workers end too, as in a pipe without choir run.
closed_output() {
    LIMIT=20 choir run -n 2 yes 2>err | head -n 3 >out
    [ "${PIPESTATUS[0]}" -ne 124 ] || fail 'writes for ever to nobody'
    [ "$(grep -c '^\[rank.\]: y$' out)" -eq 3 ] || fail "$(cat out)"
}

lost_output() {
    choir run -n 2 echo hi >/dev/full 2>err
    status=$?
    ended_with 1
    has err 'choir run: cannot write to standard output: No space'
    mkdir -p small
    mount -t tmpfs -o size=64k none small 2>/dev/null || return 0
    run -n 1 --tee 1 --log-dir small sh -c 'head -c 300000 /dev/zero; echo end'
    umount small
    ended_with 0
    has err 'cannot write on to the log file small/.*No space'
    [ "$(wc -c <out)" -eq 300004 ] || fail 'what is shown ends with the log'
}

# --- failures ---------------------------------------------------------------------------------

failing() {
    run -n 3 sh -c '[ $RANK = 1 ] || exec sleep '$mark'
        echo on stdout; i=0; while [ $i -lt 30 ]; do i=$((i + 1)); echo "line $i" >&2; done; exit 7'
    ended_with 7
    has err '^choir run: rank 1 of 3 exited with status 7$' \
        '^  host +.*, pid [0-9]+ \(local rank 1' '^  time +20' '^    \| line 30$' '^    \| line 21$'
    ! grep -qE '\| line 20$|\| on stdout' err || fail "too much: $(cat err)"
    gone 2
    run -n 2 --log-dir logs --redirects 3 --rdzv-id f sh -c 'echo words; exit 9'
    ended_with 9
    has err 'log +logs/f/attempt_0/[01]/stderr.log' '\| words'
    run sh -c 'exit 5'
    ended_with 5
    has err '^choir run: rank 0 of 1 exited with status 5$' 'it wrote nothing'
}

killed() {
    run -n 3 sh -c '[ $RANK = 2 ] && kill -'"$1"' $$; sleep '$mark
    ended_with "$2"
    has err "^choir run: rank 2 of 3 was killed by SIG$1 \\("
    gone 2
}

# The report names the cause, not its consequences: other ranks exit as soon as one is gone.
first_of_many() {
    rm -f victim
    run -n 4 sh -c '[ $RANK = 3 ] && { echo $$ >victim; kill -KILL $$; }
        until [ -s victim ] && grep -q "^State:.Z" /proc/$(cat victim)/status; do :; done
        exit 1'
    ended_with 137
    has err 'rank 3 of 4 was killed by SIGKILL'
}

no_command() {
    bad 127 'command not found' run -n 2 frobnicate
    bad 127 'No such file' run -n 2 ./frobnicate
    bad 126 'directory' run -n 2 /tmp
    echo 'print(1)' >script.py
    bad 126 'script.py.*--run-path it is run by Python' run -n 2 --no-python ./script.py
    bad 126 'Permission denied' run --no-python ./script.py
    printf '#!/no/such/interpreter\n' >odd && chmod +x odd
    run -n 2 ./odd
    ended_with 127
    printf 'echo plain script\n' >plain && chmod +x plain
    run ./plain
    has out '^plain script$'
}

usage() {
    bad 2 "'--frob'" run --frob true
    bad 2 'COMMAND' run -n 2
    bad 2 'missing value of --nproc-per-node' run --nproc-per-node
    for value in 0 -1 x 1.5 '' 99999; do
        bad 2 'ranks' run -n "$value" true
        bad 2 'ranks' run --nproc-per-node "$value" true
        bad 2 'nnodes' run --nnodes "$value" true
    done
    bad 2 'GPU' run --nproc-per-node gpu true
    for value in 4 x 0: 0:4 2:1 0:1,, ''; do
        bad 2 'tee' run -n 2 --tee "$value" true
        bad 2 'redirects' run -n 2 --redirects "$value" true
    done
    for value in 2 x '' 0,,1 -1; do
        bad 2 'local-ranks-filter' run -n 2 --local-ranks-filter "$value" true
    done
    bad 2 'nnodes 2.*rdzv-endpoint' run --nnodes 2 true
    bad 2 'nnodes 2:1.*MIN not above MAX' run --nnodes 2:1 --rdzv-endpoint localhost true
    bad 2 'node-rank.*0 to 1.*got 2' run --nnodes 2 --node-rank 2 --rdzv-endpoint localhost true
    bad 2 'one node' run --nnodes 2 -n 2 --rdzv-endpoint localhost true
    bad 2 'rdzv-endpoint' run --nnodes 2 --rdzv-endpoint localhost:x true
    bad 2 'brackets' run --nnodes 2 --rdzv-endpoint ::1 true
    bad 2 "rdzv-backend.*'zookeeper'" run --rdzv-backend zookeeper true
    bad 2 'rdzv-endpoint' run --nnodes 2 --rdzv-backend etcd true
    bad 2 'rdzv-id' run --rdzv-id a/b true
    bad 2 'timeout' run --timeout soon true
    bad 2 'master-port' run --master-port 70000 true
    bad 2 'max-restarts' run --max-restarts -1 true
    good run --help
}

restarts() {
    rm -f tries
    run -n 2 --max-restarts 2 --log-dir logs --rdzv-id again sh -c '
        echo try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS
        [ $RANK = 1 ] || exec sleep 0.1
        [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 3'
    ended_with 0
    has out 'try 2 of 2'
    has err 'restart 1 of 2' 'restart 2 of 2'
    logged logs/again/attempt_1/0/stdout.log 'try 1 of 2'
    run -n 2 --max-restarts 1 sh -c 'exit 4'
    ended_with 4
    [ "$(grep -c 'exited with status 4$' err)" -eq 2 ] || fail "$(cat err)"
}

# --- nothing is left ---------------------------------------------------------------------------

# Workers with children, some of which moved to a session of their own.
family="setsid sh -c 'sleep $mark & sleep $mark' & (sleep $mark &)
    echo up \$\$; exec sleep $mark"

# begin N SCRIPT: starts in the background and waits until all ranks report that they are up.
begin() {
    local ranks=$1
    shift
    rm -f out
    start run -n "$ranks" sh -c "$1"
    await 10 all_up "$ranks" || fail "not up: $(cat out err)"
    agent=$(pgrep -P "$started_pid")
}
all_up() { [ "$(cat out 2>/dev/null | grep -c up)" -eq "$1" ]; }

# after WHAT STATUS
after() {
    ended 10
    [ "$status" -eq "$2" ] || fail "status $status, not $2, after $1: $(cat err)"
    gone 3
}

killed_from_outside() {
    begin 3 "$family"
    kill -KILL "$started_pid"
    after 'SIGKILL of the guard' 137
    begin 3 "$family"
    kill -KILL "$agent"
    after 'SIGKILL of the agent' 137
    has err 'the agent \(pid [0-9]+\) was killed by SIGKILL'
    begin 3 "$family"
    kill -KILL "$(sed -n 's/.*up //p' out | head -n 1)" # the agent has adopted the others
    after 'SIGKILL of a worker' 137
    begin 3 'echo up; exec sleep '$mark
    kill -STOP "$started_pid" # so that it cannot end the others
    await 5 stopped "$started_pid"
    kill -KILL "$agent" "$started_pid"
    after 'SIGKILL of both' 137
    # Children of the shell that the process was before exec are not its own.
    sh -c "sleep $mark & exec $CHOIR run -n 2 true" 2>err
    left || fail 'killed what it had not started'
    pkill -f "^sleep $mark"
    run -n 2 sh -c "setsid sleep $mark & sleep $mark & exit 0"
    ended_with 0
    gone 1
}

# A kill at any moment of its start leaves nothing.
killed_early() {
    for delay in 0 0.001 0.002 0.003 0.004 0.005 0.006 0.008 0.010 0.012 0.015 0.02; do
        start run -n 3 sh -c "$family"
        sleep $delay
        kill -KILL "$started_pid"
        after "SIGKILL in $delay s" 137
    done
}

signalled() {
    begin 2 'trap "echo told; exit 0" '"$1"'; echo up; while :; do sleep 0.05; done'
    kill "-$1" "$started_pid"
    after "SIG$1" "$2"
    [ "$(grep -c told out)" -eq 2 ] || fail "SIG$1 is not passed on: $(cat out)"
    has err "^choir run: interrupted by SIG$1$"
}

# A worker that crashes when it is told to end: the job reports it, and exits with its status.
crashes_when_told() {
    begin 2 'trap "[ $RANK = 0 ] || { echo torn >&2; kill -ABRT $$; }; exit 0" TERM
        echo up; while :; do sleep 0.05; done'
    kill -TERM "$started_pid"
    after 'a crash' $((128 + $(kill -l ABRT)))
    has err '^choir run: interrupted by SIGTERM$' 'rank 1 of 2 was killed by SIGABRT' '[|] torn'
}

# The signal goes to the whole process group of choir run, as with Ctrl-C.
ctrl_c() {
    begin 2 'echo up; exec sleep '$mark
    kill -INT -- "-$started_pid"
    after Ctrl-C 130
    begin 2 'trap "" INT TERM; echo up; while :; do sleep '$mark'; done'
    kill -INT "$started_pid"
    kill -INT "$started_pid" # within a second it is the first one again
    sleep 1.1
    ! is_gone "$started_pid" || fail 'did not wait for workers that ignore SIGINT'
    insist INT
    after 'the second Ctrl-C' 130
}

other_signals() {
    # The signal reaches the whole group: it also ends the sleep, whose status a loop would return.
    begin 2 'trap "echo two" USR2; echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 0'
    kill -USR2 "$started_pid"
    await 5 grep -q rank1.*two out || fail "SIGUSR2 is not passed on: $(cat out)"
    kill -USR1 "$started_pid" # is for the agent
    kill -TSTP "$started_pid"
    await 5 stopped "$(pgrep -P "$agent" | tail -n 1)" || fail 'SIGTSTP is not passed on'
    kill -CONT "$started_pid"
    touch stop
    after 'SIGCONT' 0
}
# True if the process or one of its group is stopped; a shell that is about to start a process
# cannot be stopped.
stopped() { ps -eo pgid=,stat= | awk -v g="$1" '$1 == g && $2 ~ /^T/ { n++ } END { exit !n }'; }

none_sleeps() { ! pgrep -f "^sleep $mark" >/dev/null; }
both_sleep() { [ "$(pgrep -fc "^sleep $mark")" -eq 2 ]; }

# A blocked terminal delays the handling of neither signals nor failures.
blocked_output() {
    mkfifo full
    sleep 60 <>full & # keeps it open without reading
    local reader=$!
    set -m
    "$CHOIR" run -n 2 sh -c "yes & exec sleep $mark" >full 2>err </dev/null &
    started_pid=$!
    set +m
    await 10 both_sleep || fail "not up: $(cat err)"
    sleep 1 # for the pipes between to fill, too
    kill -TERM "$started_pid"
    await 10 none_sleeps || fail 'workers go on after SIGTERM while the output is blocked'
    kill -TERM "$started_pid" # now only unread output is left
    after 'SIGTERM with blocked output' 143
    kill $reader
    wait $reader 2>/dev/null
}

stopped_worker() {
    begin 2 'echo up; [ $RANK = 1 ] && kill -STOP $$; until [ -e go ]; do sleep 0.05; done; exit 3'
    touch go
    after 'the failure of one beside a stopped one' 3
}

# --- programs that are made to be started so ----------------------------------------------------

# choir train joins the other workers: its bits equal those of ranks that it starts itself.
train_joins() {
    local args=(train --json --microbatches 4 --batch-size 24 --steps 6 --model "$gpt" text)
    make_text text 200
    good "${args[@]}" && mv out single
    for ranks in 1 2 3; do
        run -n $ranks --local-ranks-filter 0 "$CHOIR" "${args[@]}" --strategy ddp
        ended_with 0
        mv out ddp$ranks
        same_run single ddp$ranks
        [ "$(field world ddp$ranks)" = $ranks ] || fail "not on $ranks ranks"
    done
    run -n 2 "$CHOIR" "${args[@]}" --strategy single
    ended_with 2
    has err 'got 2 that were started; strategies for several ranks are ddp'
}

# On SIGUSR1 it prints the activity of the ranks, also of those started through a shell.
shows_recorders() {
    begin 2 "echo up; $CHOIR train --strategy ddp --model toy --quiet --steps 100000000 random; :"
    for try in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.3
        kill -USR1 "$started_pid"
        await 1 grep -q tree_reduce err && break
    done
    has err tree_reduce
    [ "$(grep -c '^rank [01] ' err)" -ge 2 ] || fail "not of both: $(cat err)"
    kill -TERM "$started_pid"
    after SIGTERM 143
}

gloo() {
    local python
    for python in ${CHOIR_PYTHON:-} python3 /usr/bin/python3 ''; do
        [ -n "$python" ] || { echo 'PyTorch is not here: gloo is left out'; return 0; }
        "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' \
            2>/dev/null && break
    done
    cat >sum.py <<'PYTHON'
import torch, torch.distributed as group
group.init_process_group("gloo")
ones = torch.ones(3) * (group.get_rank() + 1)
group.all_reduce(ones)
print("rank", group.get_rank(), "of", group.get_world_size(), "has", int(ones.sum()))
PYTHON
    run -n 3 "$python" sum.py
    ended_with 0
    for rank in 0 1 2; do has out "rank$rank.*rank $rank of 3 has 18"; done
}

check python_commands
check line_of_a_script
check variables
check ending_signal
check outlived_signal
check environment
check descriptors
check threads
check spellings
check input
check whole_lines
check as_it_is
check long_line
check filters
check logs
check colour
check closed_output
check lost_output
check failing
check killed KILL 137
check killed SEGV 139
check first_of_many
check no_command
check usage
check restarts
check killed_from_outside
check killed_early
check signalled TERM 143
check signalled INT 130
check signalled HUP 129
check crashes_when_told
check ctrl_c
check other_signals
check stopped_worker
check blocked_output
check train_joins
check shows_recorders
check gloo
finish
