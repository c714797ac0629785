#!/bin/bash
# Explores queue.pml with spin: the protocol holds in every order of its steps, and each of its
# parts is needed, since the model fails without it.
# Two steps, and two ranks, have too many states; a sample of them is tried.
#
#   run.sh QUEUE.PML
set -euo pipefail
model=$(readlink -f "$1")
for tool in spin cc; do
    command -v $tool >/dev/null ||
        { echo "skipped: there is no $tool (Debian's packages spin, gcc)"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

explore() { # DEFINITIONS... -- OPTIONS OF PAN...: prints what spin found
    local definitions=()
    while [ "$1" != -- ]; do definitions+=("$1"); shift; done
    shift
    spin "${definitions[@]}" -a "$model"
    cc -O2 -DSAFETY "${store:--DCOLLAPSE}" -DMEMLIM=4000 -o pan pan.c
    ./pan -m2000000 "$@"
}

expect_errors() { # NUMBER: reads spin's words
    tee result | grep -E 'errors:|states, stored|assertion|invalid end' || true
    if grep -q 'max search depth too small\|Search not completed' result && [ "$1" = 0 ] &&
        [ -z "${store:-}" ]; then
        echo "FAILED: the search was not completed"
        exit 1
    fi
    grep -q "errors: $1\$" result || { echo "FAILED: expected $1 errors"; exit 1; }
}

echo "one rank"
explore -DRANKS=1 -- | expect_errors 0
for fault in 1 2 3; do
    echo "one rank, part $fault of the protocol left out"
    explore -DRANKS=1 -DFAULT=$fault -- | expect_errors 1
done
for more in "-DRANKS=1 -DSTEPS=2" "-DRANKS=2"; do
    echo "$more, a sample of the states"
    store=-DBITSTATE
    # shellcheck disable=SC2086 # words
    explore $more -- -w30 -Q2 | expect_errors 0
done
