#!/bin/bash
# script/gpu: its errors for wrong options, and a build with only the files that --carry
# collects.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

script/gpu --help | grep -q -- '--carry DIR' || fail "--help"
for wrong in "--nonsense" "--time soon" "--out"; do
    script/gpu $wrong >"$work/out" 2>&1
    [ $? = 2 ] || fail "script/gpu $wrong is not wrong usage"
done
grep -q -- "missing value of --out" "$work/out" || fail "no reason"

# A test that hangs on a card is ended.
CHOIR_TEST_GPU=real CHOIR_GPU_TEST_SECONDS=1 tests/softgpu/with_gpu.sh sleep 60 >"$work/out" &&
    fail "a hanging test has passed"
grep -q 'ended after 1 s' "$work/out" || fail "a hanging test: $(cat "$work/out")"

command -v objdump >/dev/null || {
    echo "skipped: there is no objdump (install binutils)"
    exit 77
}
script/gpu --carry "$work/carried" || fail "--carry"
[ "$(head -1 "$work/carried/README")" = "$(uname -m)" ] || fail "README"
cat >"$work/all.c" <<'C'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <sodium.h>
#include <zlib.h>
int main(void)
{
    json_decref(json_object());
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return sodium_init() < 0 || !*zlibVersion();
}
C
# Headers from that folder alone: the compiler reports the files that it used.
cc -M -I"$work/carried/include" "$work/all.c" | tr ' ' '\n' |
    grep -E '^/usr/include/.*(jansson|sodium|zlib|zconf|cmocka)' && fail "headers were left behind"
cc -o "$work/all" -I"$work/carried/include" "$work/all.c" -L"$work/carried/lib" -lcmocka -ljansson \
    -lsodium -lz -Wl,-rpath,"$work/carried/lib" || fail "does not link"
"$work/all" || fail "does not run"
ldd "$work/all" | grep -E 'jansson|sodium|cmocka|libz' | grep -v "$work/carried" &&
    fail "libraries were left behind"
[ "$(find "$work/carried/licenses" -type f | grep -c .)" -ge 4 ] ||
    ! command -v dpkg-query >/dev/null || fail "licences were left behind"
[ "$(du -sk "$work/carried" | cut -f1)" -lt 8192 ] || fail "more than 8 MiB"

# A machine with three cards of two kinds: the build is for both. cmake is replaced, too: it notes
# its options and fails.
mkdir "$work/bin"
cat >"$work/bin/nvidia-smi" <<'SH'
#!/bin/sh
case $* in
-L) printf 'GPU 0: A\nGPU 1: B\nGPU 2: A\n' ;;
*name*) echo 'index, name' ;;
*compute_cap*) printf '9.0\n8.0\n9.0\n' ;;
esac
SH
printf '#!/bin/sh\necho "$*" >>"%s"\nexit 1\n' "$work/options" >"$work/bin/cmake"
chmod +x "$work/bin"/*
CHOIR_GPU_BUILD=$work/build PATH=$work/bin:$PATH CHOIR_PYTHON=/nowhere \
    script/gpu --tests --out "$work/report" >/dev/null 2>&1
grep -qF -- '-DCMAKE_CUDA_ARCHITECTURES=80;90 ' "$work/options" ||
    fail "not for every card: $(cat "$work/options")"
grep -q 'build for sm_80, sm_90' "$work/report" || fail "the report's cards"

# cuDNN, NCCL and cuBLASLt of PyTorch alone: the build finds them in one folder, Choir those that
# it opens when needed in the wheels'.
site=$work/site/nvidia
for library in cudnn:cudnn.h:cudnn:9 nccl:nccl.h:nccl:2 cublasLt:cublasLt.h:cu13:13; do
    IFS=: read -r name header folder version <<<"$library"
    mkdir -p "$site/$folder/include" "$site/$folder/lib"
    touch "$site/$folder/include/$header" "$site/$folder/lib/lib$name.so.$version"
done
cat >"$work/bin/python" <<SH
#!/bin/sh
case \$2 in
*nvidia*) echo "$site" ;;
*sys.prefix*) echo "$work/nowhere" ;;
*) exit 1 ;;
esac
SH
printf '#!/bin/sh\necho "$CUDNN_PATH $NCCL_HOME" >"%s"\nexit 1\n' "$work/paths" \
    >"$work/bin/cmake"
printf '#!/bin/sh\n' >"$work/bin/nvcc"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/bare_cc" # finds none of the headers
chmod +x "$work/bin"/*
CC=bare_cc CHOIR_GPU_BUILD=$work/build PATH=$work/bin:$PATH CHOIR_PYTHON=$work/bin/python \
    script/gpu --tests --out "$work/report" >/dev/null 2>&1
[ "$(cat "$work/paths")" = "$site/cudnn $site/nccl" ] ||
    fail "where the wheels are: $(cat "$work/paths")"
# What a run says of libraries and tests: choir opens no cuDNN where PyTorch has one, a test fails,
# and one has no time.
printf '#!/bin/sh\n' >"$work/bin/cmake"
cat >"$work/bin/ctest" <<'SH'
#!/bin/sh
case $* in
*show-only*) ;;
*-N*) printf '  Test #1: cuda.a\n  Test #2: cuda.b\n  Test #3: cuda.c\n' ;;
*-R*) echo ' 1/2 Test #1: cuda.a ......   Passed    0.10 sec'
    echo "cuBLASLt refused 1 of 2x2x2 f32" >>"$CHOIR_CUDA_PLANS" ;;
*) echo ' 1/2 Test #2: cuda.b ......***Failed    0.10 sec'; exit 8 ;;
esac
SH
cat >"$work/build/choir" <<'SH'
#!/bin/sh
[ "$1" = bench ] && echo 'NCCL version 2.28.3+cuda13.0' && exit
[ "$2" = --json ] && echo '{"gpus":[{"cublaslt":"13.0.0","cudnn":null}]}' && exit
echo 'backends  cpu, cuda (devices); shm, nccl (groups)'
sleep 0.2 # as it does to look at the cards: whoever reads no further has gone by then
echo 'gpus      cuda:0'
SH
sed -i 's/^\*nvidia/*cudnn.version*or*) echo 91900 ;;\n&/' "$work/bin/python"
chmod +x "$work/bin"/* "$work/build/choir"
CC=bare_cc CHOIR_GPU_BUILD=$work/build PATH=$work/bin:$PATH CHOIR_PYTHON=$work/bin/python \
    script/gpu --tests --out "$work/report" >/dev/null 2>&1
[ $? = 1 ] || fail "a missing cuDNN has passed"
for line in 'libraries: PyTorch has cuDNN, and Choir opened none' 'plans: 1 refused when called' \
    'tests: 1 of 3 passed, 0 skipped, 1 not run in the time; failed: cuda.b' \
    'cuBLASLt: 0 made, 0 none, 1 refused' '1 cuBLASLt refused 1 of 2x2x2 f32' \
    'opened    cuBLASLt 13.0.0, cuDNN none, NCCL 2.28.3'; do
    grep -qF "$line" "$work/report" || fail "no '$line' in $(cat "$work/report")"
done
for name in cudnn nccl cublasLt; do
    [ -e "$work/build/pytorchs/lib/lib$name.so" ] || fail "no lib$name.so: $(cat "$work/report")"
done
