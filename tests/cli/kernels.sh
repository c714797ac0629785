#!/usr/bin/env bash
# choir info --kernels: no op falls back to a reference kernel, but in f64, with each set of this
# library's kernels, and where oneDNN knows fewer instructions.
. "$(dirname "$0")/lib.sh"

# As the processor is, and as less of it would be.
settings=(CHOIR_ISA= CHOIR_ISA=scalar DNNL_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX512_CORE
    DNNL_MAX_CPU_ISA=SSE41)
! grep -qw avx2 /proc/cpuinfo || settings+=(CHOIR_ISA=avx2)

table_has_no_reference() {
    local setting
    for setting in "${settings[@]}"; do
        env "$setting" "$CHOIR" info --kernels --json >table || fail "$setting: status $?"
        [ "$(grep -c '"f64":"reference"' table)" -gt 50 ] || fail "$setting: $(head -3 table)"
        ! grep -E '"(f32|bf16|f16)":"reference"' table || fail "$setting has these"
    done
}

# A pass of a convolution that is slower than the others is one that oneDNN was asked for wrongly.
passes_are_alike() {
    "$CHOIR" info --kernels --json >table
    local op ways
    for op in matmul linear 'conv2d 3x3' 'conv2d 1x1' 'conv2d 3x3, stride 2'; do
        ways=$(grep "\"op\":\"$op\"" table | grep -o '"f32".*' | sort -u)
        [ "$(wc -l <<<"$ways")" = 1 ] || fail "$op: $ways"
    done
}

# No set is replaced by another in silence.
sets_are_named() {
    CHOIR_ISA=avx1024 bad 1 "unknown CHOIR_ISA 'avx1024': choose one of .*scalar" \
        train --model toy --steps 1 random
    grep -qw avx512f /proc/cpuinfo ||
        CHOIR_ISA=avx512 bad 1 'CHOIR_ISA=avx512' train --model toy --steps 1 random
    [ "$(CHOIR_ISA=scalar "$CHOIR" info --json | grep -o '"isa":"[a-z]*"')" = '"isa":"scalar"' ] ||
        fail "$("$CHOIR" info --json)"
}

# What no training would take here is said before one is tried.
info_says_what_is_refused() {
    CHOIR_ISA=avx1024 CHOIR_MATH=mkl good info
    has out "refused   unknown CHOIR_ISA 'avx1024'" "unknown CHOIR_MATH 'mkl'" '^kernels   [a-z]'
    CHOIR_ISA=avx1024 good info --json
    has out "\"refused\":\[\"unknown CHOIR_ISA 'avx1024'[^\"]*\"\]"
    good info --json
    has out '"refused":\[\]'
    ! grep -qw avx512f /proc/cpuinfo || return 0
    CHOIR_ISA=avx512 CHOIR_MATH=amx good info
    has out 'refused   CHOIR_ISA=avx512: this processor lacks' 'amx \(.*has no AMX\)$'
}

check table_has_no_reference
check sets_are_named
check info_says_what_is_refused
check passes_are_alike
finish
