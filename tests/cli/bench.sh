#!/usr/bin/env bash
# choir bench: every collective, type, operation and algorithm gives right results and prints
# the documented output, under every launcher.
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK CHOIR_JOB CHOIR_INIT CHOIR_BACKEND MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1

all='all_reduce all_gather reduce_scatter broadcast reduce gather scatter all_to_all sendrecv
    barrier'
reducing='all_reduce reduce_scatter reduce'
short=(--min 3000 --max 50K --factor 17)

# lines COLLECTIVE BACKEND ALGORITHM RANKS BYTES...: out has one such line per size.
lines() {
    local pattern="\"collective\":\"$1\",\"backend\":\"$2\",\"algorithm\":\"$3\",\"ranks\":$4"
    local what="$*" number='[0-9]+\.[0-9]+'
    shift 4
    [ "$(wc -l <out)" -eq $# ] || fail "$what: not $# lines: $(cat out)"
    for bytes; do
        grep -qxE "\{$pattern,\"bytes\":$bytes,\"time_us\":$number,\"algbw_gbs\":$number,\
\"busbw_gbs\":$number,\"wrong\":0\}" out || fail "$what: none of $bytes bytes: $(cat out)"
    done
}

# --- what is measured ---------------------------------------------------------------------------

# Parts are whole elements: 3000 bytes are 250 f32 for each of three ranks.
collectives() {
    for collective in $all; do
        good bench "$collective" -n 3 "${short[@]}" --json
        case $collective in
        barrier) lines barrier shm direct 3 0 ;;
        *) lines "$collective" shm '(direct|exchange)' 3 3000 51000 ;;
        esac
    done
    good bench all_gather -n 3 --min 1K --max 1K --json
    lines all_gather shm direct 3 1020
    good bench all_reduce -n 1 --max 1K --json
    lines all_reduce shm direct 1 1024
}

types() {
    for dtype in f64 bf16 f16 i64 i32 u8 bool; do
        for op in sum mean min max prod band bor bxor; do
            sampled 3 || continue
            case $dtype,$op in
            f*,b* | bf16,b* | bool,mean)
                bad 2 "expected an operation of --dtype $dtype, got '$op'" \
                    bench all_reduce --dtype $dtype --op $op
                continue
                ;;
            esac
            for collective in $reducing; do
                good bench "$collective" -n 3 --min 3000 --max 3000 --dtype $dtype --op $op --json
                lines "$collective" shm direct 3 3000
            done
        done
        for collective in all_gather all_to_all; do
            good bench "$collective" -n 2 --min 4000 --max 4000 --dtype $dtype --json
            lines "$collective" shm direct 2 4000
        done
    done
}

# An algorithm's name applies to the collectives that support it; the output names the algorithm
# that ran.
algorithms() {
    for name in exchange binomial halving ring double_tree; do
        good bench all_reduce -n 3 "${short[@]}" --algorithm $name --json
        lines all_reduce shm $name 3 3000 51000
        good bench all_reduce -n 3 "${short[@]}" --algorithm $name --op max --dtype i32 --json
        lines all_reduce shm $name 3 3000 51000
        good bench all_reduce -n 3 "${short[@]}" --algorithm $name --dtype bf16 --json
        lines all_reduce shm $name 3 3000 51000
        good bench all_to_all -n 3 "${short[@]}" --algorithm $name --json
        lines all_to_all shm exchange 3 3000 51000
    done
    for collective in $all; do
        good bench "$collective" -n 4 --min 16K --max 16K --algorithm binomial --json
        good bench "$collective" -n 4 --min 16K --max 16K --algorithm staged --json
        grep -q '"algorithm":"staged".*"wrong":0' out || fail "$collective: $(cat out)"
    done
    good bench all_reduce --max 1K --algorithm native --json
    lines all_reduce shm direct 2 1024
}

# --- what people read ---------------------------------------------------------------------------

columns() {
    good bench all_reduce --min 1K --max 16K --op mean
    has out '^# choir bench all_reduce: 2 ranks on one node, shm, .*, in place$' \
        '^# +size +count +type +redop +root +time +algbw +busbw +#wrong  algorithm$' \
        '^# +\(B\) +\(elements\) +\(us\) +\(GB/s\) +\(GB/s\)$' \
        '^ +1024 +256 +f32 +mean +-1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0  direct$' '^ +4096 ' '^ +16384 '
    [ "$(wc -l <out)" -eq 6 ] || fail "$(wc -l <out) lines: $(cat out)"
    good bench scatter -n 2 --max 1K --dtype u8
    has out 'out of place$' '^ +1024 +512 +u8 +none +0 '
    # busbw is algbw times 2 (n-1)/n for all_reduce, (n-1)/n for parts.
    good bench all_reduce -n 4 --min 4M --max 4M --json
    busbw 1.5
    good bench reduce_scatter -n 4 --min 4M --max 4M --json
    busbw 0.75
}

busbw() {
    sed -E 's/.*algbw_gbs":([0-9.]+),"busbw_gbs":([0-9.]+).*/\1 \2/' out |
        awk -v f="$1" '{ exit !($2 > 0 && $2 / $1 > 0.99 * f && $2 / $1 < 1.01 * f) }' ||
        fail "busbw is not $1 times algbw: $(cat out)"
}

mistakes() {
    bad 2 'missing COLLECTIVE' bench
    bad 2 "'frob'.*all_reduce.*barrier" bench frob
    bad 2 "'two'" bench all_reduce two
    bad 2 "'--frob'" bench all_reduce --frob
    bad 2 'missing value of --min' bench all_reduce --min
    for value in 0 -1 x 1.5 1T 99999999999999999999 ''; do
        bad 2 "--min: .*'$value'" bench all_reduce --min "$value"
        bad 2 "--max: .*'$value'" bench all_reduce --max "$value"
        bad 2 "--factor: .*'$value'" bench all_reduce --factor "$value"
        bad 2 "--ranks: .*'$value'" bench all_reduce --ranks "$value"
    done
    bad 2 "--factor: .*'1'" bench all_reduce --factor 1
    bad 2 "--ranks: .*'65'" bench all_reduce -n 65
    bad 2 'max 1024: expected at least --min 2048' bench all_reduce --min 2K --max 1K
    bad 2 '12 bytes' bench all_gather -n 3 --min 8
    bad 2 "'f8'.*bf16" bench all_reduce --dtype f8
    bad 2 "'avg'.*mean" bench all_reduce --op avg
    bad 2 "'wring'.*ring.*staged" bench all_reduce --algorithm wring
    bad 2 "'gloo'.*ucx" bench all_reduce --backend gloo
    bad 2 'mpirun -n 3' bench all_reduce -n 3 --backend mpi
    bad 2 'two ranks' bench sendrecv -n 1
}

# --- who starts the ranks -----------------------------------------------------------------------

by_hand() {
    RANK=1 WORLD_SIZE=2 CHOIR_JOB=bench-$$ choir bench all_gather --max 1K --json >other 2>&1 &
    RANK=0 WORLD_SIZE=2 CHOIR_JOB=bench-$$ good bench all_gather --max 1K --json
    wait $! || fail "rank 1: $(cat other)"
    lines all_gather shm direct 2 1024
    [ ! -s other ] || fail "rank 1 wrote $(cat other)"
    RANK=0 WORLD_SIZE=2 CHOIR_JOB=bench-$$ bad 2 'expected 2, as.*got 3' bench barrier -n 3
}

by_choir_run() {
    good run -n 3 --local-ranks-filter 0 "$CHOIR" bench reduce --max 1K --json
    sed -i 's/^\[rank0\]: //' out
    lines reduce shm direct 3 1024
}

by_mpirun() {
    command -v mpirun >/dev/null || return 0
    local mpi=(timeout -k 2 60 mpirun -n 2)
    # The libraries under the plug-in hold some memory until exit.
    local -x ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    mpirun --version | grep -q 'Open MPI' && mpi+=(--allow-run-as-root --oversubscribe)
    "${mpi[@]}" "$CHOIR" bench all_reduce --max 1K --json >out 2>err || fail "mpirun: $(cat err)"
    lines all_reduce shm direct 2 1024
    if "${mpi[@]}" "$CHOIR" bench all_reduce --max 1K --backend mpi --json >out 2>err; then
        lines all_reduce mpi exchange 2 1024
    else
        has err 'choir_mpi' # not built in
    fi
}

# The engine for several machines, on one machine: few ranks exchange, many use a tree.
by_ucx() {
    if ! choir bench all_reduce --max 1K --backend ucx --json >out 2>err; then
        has err 'choir_ucx' # not built in
        return
    fi
    lines all_reduce ucx exchange 2 1024
    good bench all_reduce -n 6 --min 1K --max 64K --factor 64 --backend ucx --json
    grep -q '"algorithm":"binomial".*"bytes":1024,.*"wrong":0' out || fail "1 KiB: $(cat out)"
    grep -q '"algorithm":"halving".*"bytes":65536,.*"wrong":0' out || fail "64 KiB: $(cat out)"
    good bench sendrecv --max 1K --backend ucx --json
    lines sendrecv ucx exchange 2 1024
}

# The death of a rank ends the others, and leaves nothing behind.
death() {
    start bench all_reduce -n 3 --min 256M --max 256M --json
    await 10 rank_there || fail 'no ranks'
    pkill -KILL -P "$started_pid" -o
    ended 20
    [ "$status" -eq 1 ] || fail "status $status: $(cat err)"
    has err 'was killed by SIGKILL'
    await 5 group_is_gone "$started_pid" || fail 'ranks are left'
}

rank_there() { [ "$(pgrep -c -P "$started_pid")" -ge 3 ]; }

check collectives
check types
check algorithms
check columns
check mistakes
check by_hand
check by_choir_run
check by_mpirun
check by_ucx
check death
finish
