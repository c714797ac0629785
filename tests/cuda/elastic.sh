#!/usr/bin/env bash
# A rank whose GPU fails counts as lost: it leaves with its cause named, the others go on, another
# process takes its place, and the weights are those of an undisturbed job.
. "$(dirname "$0")/../cli/lib.sh"
unset CHOIR_DEVICE
[ -n "${CHOIR_PLUGIN_PATH:-}" ] || skip "a real GPU cannot be made to fail"
export SOFTGPU_COUNT=2 SOFTGPU_FAIL_ONCE=$work/failed
make_text text 40
job=(train --model "$gpt" --batch-size 2 --microbatches 2 --steps 4 --no-eval --json
    --devices cuda:0,cuda:1)

# fails STRATEGY CALL WHY: in one of the ranks the call fails.
fails() {
    local what="$1, $2"
    rm -f failed
    SOFTGPU_FAIL=$2 choir "${job[@]}" --strategy "$1" --nproc 2 --max-restarts 1 text >out 2>err ||
        fail "$what: $(cat err)" || return
    [ -e failed ] || fail "$what: the call was not reached"
    has out '"event":"membership","generation":2,.*"why":"exited with status 1: .*'"$3"
    has err "rank [01] .pid [0-9]*. exited with status 1: .*$3.* from step [0-9]*, after"
    [ "$(field weights_sha256 out)" = "$(field weights_sha256 calm)" ] ||
        fail "$what: other weights"
}

gpu_errors() {
    local strategy call why
    choir "${job[@]}" --strategy single --devices cuda:0 text >calm 2>err || fail "$(cat err)"
    while read -r strategy call why; do
        sampled 3 || continue
        fails "$strategy" "$call" "$why"
    done <<'END'
ddp kernel:120 illegal memory access .* each kernel is waited for, and named
ddp launch:100 too many resources requested
ddp malloc:2+ out of memory on cuda:
fsdp copy:50 illegal memory access .* each kernel is waited for, and named
fsdp kernel:120 illegal memory access .* each kernel is waited for, and named
fsdp malloc:2+ out of memory on cuda:
END
}

check gpu_errors
finish
