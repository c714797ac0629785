#!/bin/bash
# A collective over sizes: Choir beside Gloo, Open MPI and MPICH, and beside what memory allows.
#
# All programs run in turn, ROUNDS times over; a size's time is the median of the rounds' medians,
# so that a busy moment of the machine meets all of them or none. Where the machine is never idle,
# LEAST=1 takes every program's best round. What is not installed is left out and said so.
#
#   limit    the same reads and writes without synchronisation: bench/traffic.c
#   shm      data in memory that all ranks map; staged: private memory
#   ucx      over this machine's own ways; mpi: Choir over Open MPI, with Choir's bits
#   gloo, openmpi, mpich: the peers. UCC has no package in Debian 12.
#
# Settings by environment:
#
#   COLLECTIVE=all_reduce  RANKS=2  ROUNDS=5  MIN=1024  MAX=268435456  FACTOR=4   (bytes)
#   JSON=1                 a JSON object a size instead of the table
#   ONLY='shm limit'       these programs alone
set -uo pipefail
source bench/lib.inc
collective=${COLLECTIVE:-all_reduce} ranks=${RANKS:-2} rounds=${ROUNDS:-5}
min=${MIN:-1024} max=${MAX:-268435456} factor=${FACTOR:-4}
statistic=${LEAST:+best} statistic=${statistic:-median}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ "${JSON:-}" ] || machine

ours() { # BACKEND ALGORITHM
    choir bench "$collective" -n "$ranks" --backend "$1" ${2:+--algorithm "$2"} \
        --min "$min" --max "$max" --factor "$factor" --json
}
peer() { # IMPLEMENTATION LAUNCHER-OPTION...
    local name=$1
    shift
    "mpirun.$name" "$@" -n "$ranks" "$out/$name.exe" "$collective" "$min" "$max" "$factor"
}
if [ "$ranks" -le "$cores" ]; then # a core a rank
    openmpi_where=(--bind-to core) mpich_where=(-bind-to core)
else
    openmpi_where=(--oversubscribe) mpich_where=()
fi

# One function a program; each prints the lines of `choir bench --json`.
run_limit() { choir_bench_traffic "$ranks" "$min" "$max" "$factor"; }
run_shm() { ours shm direct; }
run_staged() { ours shm staged; }
run_ucx() { ours ucx; }
run_gloo() {
    "$python" bench/peers/torch_collectives.py "$collective" "$ranks" "$min" "$max" "$factor"
}
run_mpi() {
    mpirun.openmpi --allow-run-as-root "${openmpi_where[@]}" -n "$ranks" \
        "$(command -v choir)" bench "$collective" --backend mpi \
        --min "$min" --max "$max" --factor "$factor" --json
}
run_openmpi() { peer openmpi --allow-run-as-root "${openmpi_where[@]}"; }
run_mpich() { peer mpich "${mpich_where[@]}"; }

# Why a program cannot run here; nothing if it can.
lacks() {
    case $1 in
    shm | staged) ;;
    limit)
        [ "$collective" = all_reduce ] && [ "$ranks" -le 8 ] ||
            echo "only for all_reduce of up to 8 ranks"
        ;;
    ucx | mpi)
        (min=1024 max=1024; "run_$1" >/dev/null 2>&1) ||
            echo "the plug-in is not built or cannot run here"
        ;;
    gloo)
        grep -q "^    \"$collective\":" bench/peers/torch_collectives.py || echo "not $collective"
        "$python" -c 'import torch' 2>/dev/null || echo "no PyTorch (CHOIR_PYTHON)"
        ;;
    openmpi | mpich)
        command -v "mpicc.$1" >/dev/null &&
            "mpicc.$1" -O2 bench/peers/mpi_collectives.c -o "$out/$1.exe" ||
            echo "there is no mpicc.$1"
        ;;
    esac
}

programs=()
for program in ${ONLY:-limit shm staged ucx mpi gloo openmpi mpich}; do
    why=$(lacks "$program")
    [ -z "$why" ] && programs+=("$program") || echo "left out: $program: $why" >&2
done
for round in $(seq "$rounds"); do
    for program in "${programs[@]}"; do
        "run_$program" 2>"$out/err" | sed "s/^/$program /" >>"$out/all" ||
            { echo "$program failed: $(tail -1 "$out/err")" >&2; }
    done
done
[ "${JSON:-}" ] || cat <<END
$collective, f32, $ranks ranks, $statistic of $rounds rounds, microseconds
load after: $(cut -d' ' -f1-3 /proc/loadavg)
END

awk -v order="${programs[*]}" -v json="${JSON:-}" -v low="$min" -v high="$max" \
    -v what="$collective" -v ranks="$ranks" -v least="${LEAST:-}" '
    function number(name) {
        if (!match($0, "\"" name "\": *[-0-9.e+]+")) return 0
        return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    function sort(v, n,   i, j, t) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] + 0 < v[j-1] + 0; j--) {
                t = v[j]; v[j] = v[j-1]; v[j-1] = t
            }
    }
    function middle(list,   v, n) {
        n = split(list, v, " ")
        sort(v, n)
        if (least && n) return v[1]
        return n % 2 ? v[(n + 1) / 2] : n ? (v[n / 2] + v[n / 2 + 1]) / 2 : 0
    }
    function show(x, width) {
        if (x) printf " %" width ".2f", x
        else printf " %" width "s", "-"
    }
    { b = number("bytes"); if (b < low || b > high) next
      if (!(b in seen)) { seen[b] = 1; sizes[++size_count] = b }
      times[$1, b] = times[$1, b] " " number("time_us"); wrong += number("wrong") }
    END {
        n = split(order, name, " ")
        sort(sizes, size_count)
        if (!json) {
            printf "%10s", "bytes"
            for (i = 1; i <= n; i++) printf " %11s", name[i]
            printf " %10s %11s %9s\n", "peer/shm", "peer/staged", "of limit"
        }
        for (s = 1; s <= size_count; s++) {
            b = sizes[s]; best = 0
            for (i = 1; i <= n; i++) {
                t = at[name[i]] = middle(times[name[i], b])
                if (name[i] ~ /^(gloo|openmpi|mpich)$/ && t && (!best || t < best)) best = t
            }
            direct = at["shm"] && best ? best / at["shm"] : 0
            staged = at["staged"] && best ? best / at["staged"] : 0
            share = at["shm"] && at["limit"] ? at["limit"] / at["shm"] : 0
            if (direct) { direct_log += log(direct); direct_n++ }
            if (staged) { staged_log += log(staged); staged_n++ }
            if (share && b >= 1048576 && (!worst || share < worst)) worst = share
            if (json) {
                printf "{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%d", what, ranks, b
                for (i = 1; i <= n; i++)
                    if (at[name[i]]) printf ",\"%s_us\":%.3f", name[i], at[name[i]]
                printf ",\"best_peer_over_shm\":%.3f", direct
                printf ",\"best_peer_over_staged\":%.3f,\"of_limit\":%.3f}\n", staged, share
                continue
            }
            printf "%10d", b
            for (i = 1; i <= n; i++) show(at[name[i]], 11)
            show(direct, 10)
            show(staged, 11)
            show(share, 9)
            printf "\n"
        }
        if (json) exit
        if (direct_n) printf "geometric mean, best peer / shm: %.2f", exp(direct_log / direct_n)
        if (staged_n) printf "; / staged: %.2f", exp(staged_log / staged_n)
        if (worst) printf "; least share of the limit from 1 MiB: %.2f", worst
        printf "\nwrong elements: %d\n", wrong
    }' "$out/all"
