#!/bin/bash
# The suite that all engines pass (tests/conformance/collectives.h), on ranks started by mpirun.
. "$(dirname "$0")/lib.sh"

suite() {
    local n
    for n in 1 2 3 5; do
        LIMIT=280 good "$n" "$SUITE" joined
    done
}
each_mpi suite
finish
