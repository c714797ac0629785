#!/bin/bash
# The race checker on the kernels themselves: leaves a line out of a copy of src/device/cuda, builds
# the plug-in with it, and expects that the conformance suite ends with a race.
#
#   faults.sh SOURCES CXX HEADERS FOLDER-OF-TESTS OBJECT...     (tests/softgpu/CMakeLists.txt)
set -euo pipefail
sources=$1 cxx=$2 headers=$3 tests=$4
shift 4
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# without FILE SCRIPT: a copy of the file without the line that the sed script deletes.
without() {
    mkdir -p "$(dirname "$out/src/device/cuda/$1")"
    sed "$2" "$sources/src/device/cuda/$1" >"$out/src/device/cuda/$1"
    local lines
    lines=$(diff "$sources/src/device/cuda/$1" "$out/src/device/cuda/$1" | grep -c '^[<>]' || true)
    [ "$lines" = 1 ] || { echo "$1: expected a copy without 1 line, got $lines others"; exit 1; }
}

# expect_race KERNEL.cu SUITE: with this kernel compiled anew, the suite ends with a race.
expect_race() {
    local kernel=$1 suite=$2 file=$sources/src/device/cuda/$1 objects=()
    [ -e "$out/src/device/cuda/$1" ] && file=$out/src/device/cuda/$1
    "$cxx" -xc++ -std=c++17 -O1 -g1 -fsanitize=thread -fPIC -fvisibility=hidden -ffp-contract=off \
        -fno-math-errno -w -DCHOIR_SOFT_GPU -D_GNU_SOURCE -I "$out/src" -I "$sources/include" \
        -I "$sources/src" -I "$sources/tests/softgpu" -isystem "$headers" -c "$file" \
        -o "$out/kernel.o"
    for object in "${all[@]}"; do
        case $object in */"$kernel".o) ;; *) objects+=("$object") ;; esac
    done
    "$cxx" -shared -o "$out/choir_cuda.so" "$out/kernel.o" "${objects[@]}" -L"$tests/softgpu" \
        -lsoftgpu -Wl,-rpath,"$tests/softgpu" -lm
    if CHOIR_PLUGIN_PATH=$out CHOIR_TEST_DEVICE=cuda:0 "$tests/$suite" >"$out/said" 2>&1 ||
        ! grep -E '^softgpu: .*: a race in shared memory' "$out/said"; then
        echo "$kernel: expected a race, and the suite said:"
        tail -20 "$out/said"
        exit 1
    fi
    rm -rf "$out"/*
}

all=("$@")
without kit/kernel.cuh '/an earlier call.s readers are done/d'
expect_race kernels/layer_norm.cu test_conformance_kernels_norm
without attention/attention_mma.cuh '/inline void put_rows/,/^}/{/^    }$/{n;/__syncwarp/d}}'
expect_race attention/attention_mma.cu test_conformance_kernels_attention
without attention/attention_mma.cu '0,/wait_copies<1>();/{/wait_copies<1>();/{n;d}}'
expect_race attention/attention_mma.cu test_conformance_kernels_attention
echo "all three were found"
