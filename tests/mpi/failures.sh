#!/bin/bash
# A rank that is late or stopped is named on every other rank, with its last known activity.
# Ranks that disagree get both sides; a rank that left is named.
. "$(dirname "$0")/lib.sh"
export CHOIR_BACKEND=mpi LATE_S=3
# Open MPI's mpirun may hang for good when it has ended a job that failed: it waits for a lock of
# its own in PMIx_server_finalize, with no rank left.
LIMIT=${LIMIT:-40}

failures() {
    local n=3
    mpi $n "$RANKS" late
    expect $n '^late: rank [0-9]: rank 2 \(pid [0-9]+\) did not come to all_reduce of 4 f32'
    expect $n 'within 3 s; last seen: finished all_reduce of 3 f32 .number 1.'
    mpi $n "$RANKS" late_large
    expect $n '^late: rank [0-9]: rank 2 .* did not come to all_reduce of 1048577 f32 .* within 3 s'
    mpi $n "$RANKS" stopped
    expect 2 '^late: rank [01]: rank 2 .* is stopped .SIGSTOP. and did not come to barrier'
    mpi $n "$RANKS" busy
    expect 2 '^late: rank [01]: rank 2 .* did not come to barrier .number 2. within 3 s'
    mpi $n "$RANKS" silent
    expect 2 '^late: rank [01]: rank 2 .* did not come to receive of 3 f32 from rank 2'
    good $n "$RANKS" mismatch
    expect $n 'rank 2 called all_reduce of 3 f32 .mean. while rank 0 called broadcast of 8 f32'
    good $n "$RANKS" uneven
    expect $n 'mismatch: .*all_to_all: rank 1 sends 2 elements to rank 0, which awaits 1'
    mpi $n "$RANKS" messages
    expect $n 'mismatch: .*rank 0 sent 5000 f32 to rank 1, which receives 3 i32'
    mpi $n "$RANKS" leaves
    expect 2 'left: .*rank 0 .pid [0-9]+. has left the group, and barrier .* needs it'
    mpi $n "$RANKS" never
    expect 2 '^no group: rank [01]: .*(rank 2 of 3 never came|MPI did not start within 3 s)'
}
each_mpi failures
finish
