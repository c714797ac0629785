#!/bin/sh
# with_gpu.sh COMMAND...   runs it on a GPU: the machine's where there is one that this build's
# plug-in can use, else the soft one. CHOIR_TEST_GPU=soft or real decides. On the soft one
# CHOIR_TEST_SAMPLE=SEED has tests try a part of their cases (tests/sample.h), and is the seed of
# the orders in which threads run (block.c).
export CHOIR_CUDA_TF32=${CHOIR_CUDA_TF32:-0} # results are compared with those of CPUs
case ${CHOIR_TEST_GPU:-any} in
soft) ;;
real) exec "$@" ;;
*) if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then exec "$@"; fi ;;
esac
CHOIR_PLUGIN_PATH=$SOFT_PLUGINS SOFTGPU_STRICT=${SOFTGPU_STRICT:-1}
SOFTGPU_SAMPLE=${CHOIR_TEST_SAMPLE:-} SOFTGPU_SEED=${SOFTGPU_SEED:-${CHOIR_TEST_SAMPLE:-1}}
export CHOIR_PLUGIN_PATH SOFTGPU_STRICT SOFTGPU_SAMPLE SOFTGPU_SEED
exec "$@"
