#!/bin/bash
# Every collective, element type, operation and size, on 1 to 8 ranks, by the fixed tree (with
# the bits of choir__reduce) and by MPI's own algorithms; rows distributed over the ranks;
# sub-groups; groups one after another. A sample tries half of the numbers of ranks.
. "$(dirname "$0")/lib.sh"
export CHOIR_BACKEND=mpi

collectives() {
    local n
    for n in 1 2 3 5 8; do
        sampled 3 || continue
        [ "$kind$n" = mpich8 ] && continue # its ranks are crowded and take half a minute
        LIMIT=280 good "$n" "$RANKS" collectives
        expect 1 "^[0-9]+ checks on $n ranks"
    done
    for n in 1 2 3 5; do
        sampled 3 || continue
        good "$n" "$RANKS" split
        good "$n" "$RANKS" twice
    done
    for n in 1 2 3 4 8; do # with 8 ranks, sub-groups of every color up to 3
        [ "$kind$n" = mpich8 ] || ! sampled 3 || good "$n" "$RANKS" rows
    done
}
each_mpi collectives
finish
