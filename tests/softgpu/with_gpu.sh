#!/bin/sh
# with_gpu.sh COMMAND...   runs it on a GPU: the machine's where there is one that this build's
# plug-in can use, else the soft one. CHOIR_TEST_GPU=soft or real decides. On the soft one
# CHOIR_TEST_SAMPLE=SEED has tests try a part of their cases (tests/sample.h), and is the seed of
# the orders in which threads run (block.c).
#
# On a real one a test has CHOIR_GPU_TEST_SECONDS (90), times CHOIR_GPU_TEST_TIMES (1; more for
# tests of many runs), so that one that hangs leaves time for the others.
export CHOIR_CUDA_TF32=${CHOIR_CUDA_TF32:-0} # results are compared with those of CPUs
on_a_card() {
    seconds=$((${CHOIR_GPU_TEST_SECONDS:-90} * ${CHOIR_GPU_TEST_TIMES:-1}))
    timeout -k 5 "$seconds" "$@"
    status=$?
    [ $status -ne 124 ] || echo "FAILED: it was ended after $seconds s (CHOIR_GPU_TEST_SECONDS)"
    exit $status
}
case ${CHOIR_TEST_GPU:-any} in
soft) ;;
real) on_a_card "$@" ;;
*) if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then on_a_card "$@"; fi ;;
esac
[ -n "$SOFT_PLUGINS" ] || { echo "skipped: no GPU, and none made of software"; exit 77; }
CHOIR_PLUGIN_PATH=$SOFT_PLUGINS SOFTGPU_STRICT=${SOFTGPU_STRICT:-1}
SOFTGPU_SAMPLE=${CHOIR_TEST_SAMPLE:-} SOFTGPU_SEED=${SOFTGPU_SEED:-${CHOIR_TEST_SAMPLE:-1}}
export CHOIR_PLUGIN_PATH SOFTGPU_STRICT SOFTGPU_SAMPLE SOFTGPU_SEED
exec "$@"
