#!/bin/bash
# All-reduce over sizes on two ranks, beside Open MPI and Gloo where they are installed.
set -uo pipefail
source bench/lib.inc
machine
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

choir bench all_reduce -n 2 --min 1K --max 64M --factor 4 --json >"$out/choir"
if command -v mpicc >/dev/null; then
    mpicc -O2 bench/peers/mpi_all_reduce.c -o "$out/mpi_all_reduce" &&
        mpirun --allow-run-as-root --bind-to core -n 2 "$out/mpi_all_reduce" >"$out/mpi" 2>/dev/null
fi
if have_torch; then
    "$python" "$peers/torch_all_reduce.py" 2 >"$out/gloo" 2>/dev/null
fi

time_at() { # FILE BYTES
    [ -s "$out/$1" ] && grep "\"bytes\": *$2," "$out/$1" | field time_us
}
printf '%10s %12s %12s %12s %9s %9s\n' bytes 'choir us' 'Open MPI us' 'Gloo us' 'x MPI' 'x Gloo'
for bytes in $(sed 's/.*"bytes": *\([0-9]*\).*/\1/' "$out/choir"); do
    ours=$(time_at choir "$bytes") mpi=$(time_at mpi "$bytes") gloo=$(time_at gloo "$bytes")
    printf '%10d %12.2f %12s %12s %9s %9s\n' "$bytes" "$ours" "${mpi:--}" "${gloo:--}" \
        "$([ -n "$mpi" ] && calc "$mpi / $ours" || echo -)" \
        "$([ -n "$gloo" ] && calc "$gloo / $ours" || echo -)"
done
