#!/bin/bash
# cmake/cuda.cmake: the places where nvcc is looked for, the host compilers that it takes, and the
# GPUs that are compiled for. Toolkits and compilers here are folders with scripts.
#   toolkit.sh CMAKE [PLUGIN...]
set -uo pipefail
cmake=$1 root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
tool() { mkdir -p "$(dirname "$1")" && printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }

# ask EXPRESSION ENV...: the value after cuda.cmake, in an environment that knows no toolkit
ask() {
    local code=$1
    shift
    printf 'include("%s/cmake/cuda.cmake")\n%s\n' "$root" "$code" >"$work/ask.cmake"
    env -u CUDACXX -u CUDA_HOME -u CUDA_PATH -u CUDA_ROOT -u CUDAToolkit_ROOT -u CONDA_PREFIX \
        -u VIRTUAL_ENV PATH=/nowhere "$@" "$cmake" "-DCHOIR_CUDA_SYSTEM=$work/system" \
        -P "$work/ask.cmake" 2>&1
}
is() { # WHAT EXPECTED GOT
    [ "$3" = "$2" ] || fail "$1: expected '$2', got '$3'"
}

nvcc='choir_find_nvcc(nvcc looked)
message("${nvcc}|${looked}")'
is "no nvcc" "|the PATH, $work/system/bin" "$(ask "$nvcc")"
is "its line" "|the PATH, /a/bin $work/system/bin" "$(ask "$nvcc" CUDA_HOME=/a)"
tool "$work/system/bin/nvcc" true
[[ $(ask "$nvcc") == "$work/system/bin/nvcc|"* ]] || fail "the system's: $(ask "$nvcc")"
tool "$work/conda/bin/nvcc" true
[[ $(ask "$nvcc" CONDA_PREFIX="$work/conda") == "$work/conda/bin/nvcc|"* ]] || fail "conda's"
tool "$work/venv/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc" true
[[ $(ask "$nvcc" VIRTUAL_ENV="$work/venv") == */nvidia/cu13/bin/nvcc\|* ]] || fail "a wheel's"
tool "$work/path/nvcc" true
[[ $(ask "$nvcc" PATH="$work/path" CUDA_HOME="$work/conda") == "$work/path/nvcc|"* ]] ||
    fail "the PATH's is not first"
[[ $(ask "$nvcc" CUDACXX=/my/nvcc) == "/my/nvcc|"* ]] || fail "CUDACXX"

# The newest GCC of nvcc's header, and a compiler that is newer.
printf '#if __GNUC__ > 13\n#error -- unsupported GNU version!\n' >"$work/host_config.h"
newest="choir_newest_host($work/host_config.h newest)"
is "the newest" 13 "$(ask "$newest
message(\${newest})")"
is "no header" "''" "$(ask "choir_newest_host(/nowhere newest)
message(\"'\${newest}'\")")"
host="$newest"'
choir_find_host("${newest}" host trouble)
message("${host}|${trouble}")'
tool "$work/new/g++" 'echo 13'
is "a compiler that it takes" "|" "$(ask "$host" PATH="$work/new:/bin:/usr/bin")"
tool "$work/new/g++" 'echo 16'
# In this PATH only the compilers of this test.
for name in sh echo; do ln -s "$(command -v $name)" "$work/new/"; done
got=$(ask "$host" PATH="$work/new")
[[ $got == "|nvcc takes GCC up to 13, and g++ is 16: install g++-13, or name "* ]] ||
    [[ $got == /usr/bin/g++-*\| ]] || fail "no older compiler: $got" # CMake looks in /usr/bin, too
tool "$work/new/g++-12" true
[[ $(ask "$host" PATH="$work/new") == *g++-1[0-3]\| ]] || fail "an older compiler"

kinds() { ask "choir_cuda_kinds(\"$1\" kinds)
message(\"\${kinds}\")"; }
is "kinds of 13.0" "80-real;86-real;89-real;90-real;100-real;120-real;120-virtual" \
    "$(kinds $'compute_75\ncompute_80\ncompute_86\ncompute_87\ncompute_89\ncompute_90\ncompute_100
compute_103\ncompute_120\ncompute_121')"
is "kinds of 12.5" "80-real;86-real;89-real;90-real;90-virtual" \
    "$(kinds $'compute_80\ncompute_86\ncompute_87\ncompute_89\ncompute_90')"
is "kinds without a list" 80 "$(kinds "")"

# The plug-ins load without cuDNN and NCCL, and look for the toolkit's libraries where it is.
for plugin in "${@:2}"; do
    [ -f "$plugin" ] && command -v objdump >/dev/null || continue
    objdump -p "$plugin" >"$work/headers"
    grep -E 'NEEDED +lib(cudnn|nccl)' "$work/headers" && fail "$plugin is linked with these"
    folder=$(ldd "$plugin" | sed -n 's,.*=> \(/.*\)/libcudart[.]so.*,\1,p')
    [ -z "$folder" ] || grep -E 'RUNPATH|RPATH' "$work/headers" | grep -q "/lib" ||
        [[ $folder == /usr/lib* || $folder == /lib* ]] ||
        fail "$plugin finds libcudart in $folder by the environment alone"
done
exit 0
