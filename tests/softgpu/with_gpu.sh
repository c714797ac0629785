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
[ -n "$SOFT_PLUGINS" ] || { echo "skipped: no GPU, real or emulated"; exit 77; }
[ -e "$SOFT_PLUGINS/choir_cuda.so" ] ||
    { echo "skipped: no plug-in in $SOFT_PLUGINS; script/test --full builds it"; exit 77; }
CHOIR_PLUGIN_PATH=$SOFT_PLUGINS SOFTGPU_STRICT=${SOFTGPU_STRICT:-1}
SOFTGPU_SAMPLE=${CHOIR_TEST_SAMPLE:-} SOFTGPU_SEED=${SOFTGPU_SEED:-${CHOIR_TEST_SAMPLE:-1}}
# Where a checker makes trials so slow that they have a rate of their own, a run of all cases takes
# a sample, too, four times as large.
if [ -z "$SOFTGPU_SAMPLE" ] && [ -n "${SOFTGPU_SAMPLE_RATE-}" ]; then
    SOFTGPU_SAMPLE=$$ SOFTGPU_SAMPLE_RATE=$(((SOFTGPU_SAMPLE_RATE + 3) / 4))
    echo "a sample of one trial in $SOFTGPU_SAMPLE_RATE, by the seed $SOFTGPU_SAMPLE"
fi
export CHOIR_PLUGIN_PATH SOFTGPU_STRICT SOFTGPU_SAMPLE SOFTGPU_SEED
exec "$@"
