#!/usr/bin/env bash
# Kernels before Linux 5.3, as RHEL 8's, have neither pidfd_open nor close_range. A filter answers
# as they do: ranks still train with the same bits, and the end of each process is noticed.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || skip 'there is no python3 (see script/bootstrap --test)'

cat >old_kernel <<'PYTHON'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
FAIL, ALLOW = 0x00050000 | 38, 0x7fff0000  # ENOSYS
lines = [(LOAD, 0, 0, 0), (EQUAL, 2, 0, 434), (EQUAL, 1, 0, 436), (RETURN, 0, 0, ALLOW),
         (RETURN, 0, 0, FAIL)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *l) for l in lines))
program = struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(code))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(77)
if sys.argv[1:]:
    os.execvp(sys.argv[1], sys.argv[1:])
try:
    os.pidfd_open(os.getpid())
except OSError:
    sys.exit(0)
sys.exit(77)
PYTHON
python3 old_kernel || skip 'this kernel lets no process filter its calls'
job=(train --model "$gpt" --batch-size 24 --microbatches 6 --steps 300 --json text)
weights() { grep -o 'weights_sha256":"[0-9a-f]*' "$1"; }
make_text text 200
choir "${job[@]}" >calm 2>err || fail "undisturbed: $(cat err)"
newer=$CHOIR
printf '#!/bin/sh\nexec python3 "%s" "%s" "$@"\n' "$PWD/old_kernel" "$newer" >older
chmod +x older
CHOIR=$PWD/older

trains() {
    choir "${job[@]}" --strategy ddp --nproc 2 >out 2>err || fail "ddp: $(cat err)"
    [ "$(weights out)" = "$(weights calm)" ] || fail 'other weights'
    [ ! -s err ] || fail "ddp says: $(cat err)"
}

# A rank that is killed is noticed by its parent and by its peers, and how it ended is told.
goes_on() {
    start_until 20 "${job[@]}" --strategy ddp --nproc 2 --max-restarts 1
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[1]}"
    end_started
    [ $? -eq 0 ] || fail "status: $(cat err)"
    has err 'rank 1 .* was killed by SIGKILL .* continue from step'
    [ "$(weights out)" = "$(weights calm)" ] || fail 'other weights after a loss'
}
loses() {
    start_until 20 "${job[@]}" --steps 100000 --strategy fsdp --nproc 2
    mapfile -t ranks < <(children)
    kill -KILL "${ranks[0]}"
    end_started
    [ $? -eq 1 ] || fail "status: $(cat err)"
    has err 'rank 0 .* was killed by SIGKILL'
    [ -z "$(pgrep -f -- '--steps 100000 --strategy fsdp')" ] || fail 'a rank is left'
}
others() {
    choir run --nproc 2 -- "$newer" "${job[@]}" --strategy ddp >out 2>err || fail "run: $(cat err)"
    [ "$(weights out)" = "$(weights calm)" ] || fail 'other weights under choir run'
    choir tune --trials 4 --parallel 2 --space 'x=uniform(0,1)' -- \
        sh -c 'echo "{\"step\":1,\"eval_loss\":$1}"' sh {x} >out 2>err || fail "tune: $(cat err)"
}

check trains
check goes_on
check loses
check others
finish
