# Functions that the tests under mpirun share. RANKS names the program they start (ranks.c),
# PLUGINS the folder with choir_mpi_KIND.so; `each_mpi FUNCTION` calls it once for every MPI
# that is built and has its mpirun here. Exit status 77: skipped.
# shellcheck shell=bash
set -u
export LC_ALL=C
. "$(dirname "${BASH_SOURCE[0]}")/../sample.sh"
# The libraries under a plug-in hold some memory until exit.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE CHOIR_JOB CHOIR_INIT CHOIR_BACKEND
work=$(mktemp -d "${TMPDIR:-/tmp}/choir-mpi.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
checks=0
failures=0

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED with $kind: $*"
    [ -z "$last" ] || echo "    $last"
    [ -s "$work/out" ] && sed 's/^/    /' "$work/out" | head -40
    failures=$((failures + 1))
    return 1
}
finish() {
    echo "$checks checks, $failures failures"
    [ "$checks" -gt 0 ] && [ "$failures" -eq 0 ]
    exit
}

# The command that starts ranks: mpi N PROGRAM ARG...; their output goes to $work/out, and how it
# ended to `last`. SAID: see failures.c.
kind=
last=
launcher=()
export SAID=$work/said
mpi() {
    local ranks=$1 status from
    shift
    for _ in 1 2; do
        : >"$SAID"
        from=$SECONDS
        timeout -k 5 "${LIMIT:-120}" "${launcher[@]}" -n "$ranks" "$@" >"$work/out" 2>&1 </dev/null
        status=$?
        last="mpirun -n $ranks $* ended with $status after $((SECONDS - from)) s"
        # Open MPI's mpirun itself crashes now and then while it ends a job that has failed; of a
        # rank that does, it would report the signal.
        case $status in
        134 | 135 | 139) ! grep -q 'exited on signal' "$work/out" || break ;;
        *) break ;;
        esac
    done
    return $status
}

# Sets launcher for an MPI; false if its mpirun is not here.
choose_mpi() {
    local name
    kind=$1
    [ -f "$PLUGINS/choir_mpi_$kind.so" ] || return 1
    for name in "mpirun.$kind" mpirun; do
        command -v "$name" >/dev/null || continue
        case $kind:$("$name" --version 2>/dev/null | head -3) in
        openmpi:*"Open MPI"* | openmpi:*OpenRTE*)
            launcher=("$name" --oversubscribe)
            [ "$(id -u)" = 0 ] && launcher+=(--allow-run-as-root)
            return 0 ;;
        mpich:*HYDRA*)
            launcher=("$name")
            return 0 ;;
        esac
    done
    return 1
}

each_mpi() {
    local found=0 one
    for one in ${ONLY:-openmpi mpich}; do
        choose_mpi "$one" || continue
        found=1
        "$@"
    done
    [ "$found" = 1 ] ||
        skip "no MPI that is built in has an mpirun (install libopenmpi-dev openmpi-bin)"
}

# expect N TEXT: N lines of the output contain the text.
expect() {
    checks=$((checks + 1))
    local seen
    seen=$(grep -cE -- "$2" "$work/out")
    [ "$seen" = "$1" ] || fail "$seen lines, not $1, have: $2"
}

# good N PROGRAM ARG...: ends with status 0.
good() {
    checks=$((checks + 1))
    mpi "$@" || fail 'expected status 0'
}
