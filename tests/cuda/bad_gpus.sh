#!/usr/bin/env bash
# GPUs that cannot be used: each gives one sentence, and programs that did not ask for one
# continue. The soft GPU stands for all of them.
. "$(dirname "$0")/../cli/lib.sh"
unset CHOIR_DEVICE
[ -n "${CHOIR_PLUGIN_PATH:-}" ] || skip "a real GPU cannot be made to fail"

# refused PART ENV...: training on cuda:0 reports it, and auto takes the CPU.
refused() {
    local part=$1
    shift
    there() { timeout 60 env "${environment[@]}" "$CHOIR" "$@"; }
    environment=("$@")
    if there train --devices cuda:0 --steps 1 --model toy random >out 2>err; then
        fail "trained on cuda:0 with $*"
    fi
    [ "$(wc -l <err)" = 1 ] && grep -qF "$part" err || fail "with $*: $(cat err)"
    case $part in
    *driver* | *"no GPU"*)
        there train --devices auto --steps 1 --model toy random >out 2>err || fail "auto with $*"
        grep -q '^  cpu:0 ' out || fail "auto with $* is not the processor: $(cat out)"
        there info | grep -qF "$part" || fail "info with $*" ;;
    esac
}

check refused "driver is too old: it serves CUDA 12.4" SOFTGPU_DRIVER=12040
check refused "the NVIDIA driver shows no GPU" SOFTGPU_COUNT=0
check refused "shows no GPU; CUDA_VISIBLE_DEVICES is 7" CUDA_VISIBLE_DEVICES=7
check refused "of compute capability 6.1, for which this build has no code" SOFTGPU_CAPABILITY=61
check refused "no device 'cuda:0'" CHOIR_PLUGIN_PATH=/nowhere

# A kernel that fails is named by the numbers that the GPU writes. Where it cannot write them,
# no kernel is named: the first of those kept would be blamed.
names_kernels() { # PART ENV...
    local part=$1
    shift
    if env SOFTGPU_FAIL=kernel:8 "$@" timeout 60 "$CHOIR" train --devices cuda:0 --steps 3 \
        --model toy random >out 2>err; then
        fail "a failed kernel was not noticed with $*"
    fi
    grep -qE "$part" err || fail "with $*: $(cat err)"
}
check names_kernels "choir train: [a-z_]+ of [0-9]+ failed on GPU 0"
check names_kernels "one of the last kernels failed on GPU 0" SOFTGPU_WRITES=no
check names_kernels "one of the last kernels failed on GPU 0" SOFTGPU_WRITES=lost

# Commands that read checkpoints take their device only from CHOIR_DEVICE.
no_such_device() {
    make_text text 20
    good train --devices cpu:0 --steps 1 --model "$gpt" --no-eval --save ck text || return
    CHOIR_DEVICE=cuda:9 bad 1 "no device 'cuda:9'" eval ck text
    CHOIR_DEVICE=bogus bad 1 "no devices of kind 'bogus'" generate ck --prompt the
}
check no_such_device
finish
