#!/usr/bin/env bash
# Processes with little: limits on memory, stacks, processes and locked memory, and machines
# without /proc or /dev/shm, or whose disk becomes read-only. Training works or says in one
# sentence why not.
. "$(dirname "$0")/../lib.sh"
LIMIT=30 limit_s=$((30 * patience)) # of choir, and of what is started otherwise
export OMP_NUM_THREADS=1

make_text text 100
lm=(--quiet --no-eval --batch-size 4 --microbatches 2 --steps 3 --timeout 10 --model "$gpt")
good train "${lm[@]}" text && loss=$(grep -o 'loss [0-9.]*' out)

# limited LIMIT ARG...: trains with a limit of prlimit's; sets status.
limited() {
    local limit=$1
    shift
    timeout -k 2 $limit_s prlimit "$limit" "$CHOIR" train "${lm[@]}" "$@" text >out 2>err
    status=$?
}
trains() {
    limited "$@"
    [ $status = 0 ] && has out "$loss" || fail "status $status with $*: $(cat out err)"
}
sanitized() { grep -q '__[at]san_init' "$CHOIR"; }

# Whatever the limit, each rank that fails says why, and none dies in the code that oneDNN makes.
address_space() {
    sanitized && return # its shadow memory is larger than any limit
    for mb in 40 100 125 150 170 200 240; do
        for strategy in single 'ddp --nproc 2'; do
            # shellcheck disable=SC2086
            limited --as=$((mb << 20)) --strategy $strategy
            grep -q SIGSEGV err && fail "$mb MB: $(cat err)"
            case $status in
            0) ;;
            1 | 134) grep -qE 'address space|no host memory|out of (host )?memory' err ||
                fail "$mb MB: $(cat err)" ;;
            *) fail "$mb MB: status $status: $(cat err)" ;;
            esac
        done
    done
}

processes() {
    [ "$(id -u)" = 0 ] || return 0 # limits of a user who has other processes say nothing
    local user=$((60000 + $$ % 5000)) as
    as=(setpriv --reuid $user --regid $user --clear-groups)
    chmod 755 . && chmod 644 text
    "${as[@]}" test -x "$CHOIR" || return 0 # it lies in a folder of this user's
    timeout $limit_s "${as[@]}" prlimit --nproc=2 "$CHOIR" train "${lm[@]}" --batch-size 6 \
        --microbatches 3 --strategy ddp --nproc 3 text >out 2>err
    [ $? = 1 ] || fail "status: $(cat out err)"
    is_one_line 'cannot start process [0-2] of 3: .*[(]ulimit -u[)]' || fail "$(cat err)"
}

small_limits() {
    sanitized || trains --stack=$((64 << 10)) --strategy pipeline --nproc 2
    trains --memlock=0 --strategy ddp --nproc 2
    trains --sigpending=0 --strategy ddp --nproc 2
}

# without MOUNTS: trains on two ranks where these commands have been run first.
without() {
    timeout -k 2 $limit_s unshare --mount sh -c "$1 && shift && exec \"\$@\"" sh - "$CHOIR" train \
        "${lm[@]}" --strategy ddp --nproc 2 text >out 2>err && has out "$loss" ||
        fail "$1: $(cat out err)"
}
bare_machine() {
    unshare --mount mount -t tmpfs none /dev/shm 2>/dev/null ||
        { echo 'no mount namespaces: machines without /proc or /dev/shm are left out'; return; }
    without 'umount -l /dev/shm'
    without 'mount -t tmpfs -o ro none /dev/shm'
    without 'mount -t tmpfs -o size=16k none /dev/shm'
    sanitized || without 'umount -l /proc'
}

# The last checkpoint stays whole when the disk can be written no more.
read_only_disk() {
    mkdir small
    mount -t tmpfs -o size=8m none small 2>/dev/null || { echo 'no tmpfs may be mounted'; return; }
    # its records are elsewhere: a disk with a file that is open to be written stays writable
    start train --no-eval --json --batch-size 4 --steps 1000000 --model "$gpt" --save small/run \
        --run records --save-every 3 text
    await 10 test -e small/run/latest/state.json || fail "no checkpoint: $(cat err)"
    for _ in $(seq 2000); do # busy while a file is open to be written
        mount -o remount,ro small 2>/dev/null && break
    done
    mount | grep -qE " $PWD/small .*[(,]ro[,)]" || fail 'cannot remount'
    ended 20
    [ "$status" = 1 ] && is_one_line 'small/run.*Read-only file system' ||
        fail "status $status: $(cat err)"
    good checkpoint verify small/run
    mount -o remount,rw small
    good eval small/run text
    umount small
}

# A rank that the kernel kills for want of memory is named with the reason. Control groups can be
# made where this test may; elsewhere it does nothing.
out_of_memory() {
    local group limit
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        group=/sys/fs/cgroup/choir-$$ limit=memory.max
    else
        group=/sys/fs/cgroup/memory/choir-$$ limit=memory.limit_in_bytes
    fi
    mkdir "$group" 2>/dev/null || return 0
    if echo 100M 2>/dev/null >"$group/$limit" &&
        (echo "$BASHPID" >"$group/cgroup.procs") 2>/dev/null; then
        (
            echo "$BASHPID" >"$group/cgroup.procs"
            exec timeout $limit_s "$CHOIR" run -n 2 sh -c '[ $RANK = 0 ] && exec sleep 20
                exec python3 -c "x = bytearray(1 << 30)"'
        ) >out 2>err
        has err '^choir run: rank 1 of 2 was killed by SIGKILL, as memory ran out'
    fi
    await 10 rmdir "$group" 2>/dev/null || fail "$group is left"
}

check out_of_memory
check address_space
check processes
check small_limits
check bare_machine
check read_only_disk
finish
