#!/bin/bash
# Programs join the ranks that mpirun or srun started. On one machine the default engine is
# still shared memory, the engine over MPI is used when it is named, and choir train becomes a
# rank.
. "$(dirname "$0")/lib.sh"

where() {
    good 3 "$RANKS" where
    expect 1 '^rank 1 of 3, shm, node 0 of 1, local 1 of 3'
    CHOIR_INIT=mpi:// good 2 "$RANKS" where
    expect 2 '^rank [01] of 2, shm'
    CHOIR_BACKEND=mpi good 3 "$RANKS" where
    expect 1 '^rank 2 of 3, mpi, node 0 of 1, local 2 of 3'
    CHOIR_INIT=mpi:// CHOIR_BACKEND=mpi good 1 "$RANKS" where
    expect 1 '^rank 0 of 1, mpi'
    (unset RANK; CHOIR_BACKEND=shm good 1 "$RANKS" where) && expect 1 '^rank 0 of 1, shm'
}
each_mpi where

# Training has the losses of ranks that choir starts by itself.
train() { # BACKEND
    local gpt=(train --model gpt2:layers=1,heads=2,width=16,context=16 --strategy ddp --steps 4)
    local losses='loss [0-9.]*, validation [0-9.]*'
    checks=$((checks + 1))
    mpi 2 "$CHOIR" "${gpt[@]}" --backend "$1"
    grep -o "$losses" "$work/out" >"$work/joined"
    timeout 60 "$CHOIR" "${gpt[@]}" --nproc 2 2>&1 </dev/null | grep -o "$losses" >"$work/spawned"
    if ! [ -s "$work/spawned" ] || ! cmp -s "$work/joined" "$work/spawned"; then
        fail "choir train --backend $1 under mpirun, and by itself: $(
            cat "$work/joined" "$work/spawned")"
    fi
}
training() {
    train shm
    train mpi
}
each_mpi training

# --- without MPI ---
kind=none
CHOIR_INIT=mpi:// "$RANKS" where >"$work/out" 2>&1
expect 1 'mpi:// joins what mpirun or srun started, and neither did start this'
export CHOIR_JOB=choir-test-$$ CHOIR_BACKEND=mpi WORLD_SIZE=2 TIMEOUT_S=20
RANK=1 timeout 60 "$RANKS" where >/dev/null 2>&1 &
RANK=0 timeout 60 "$RANKS" where >"$work/out" 2>&1
wait
unset CHOIR_JOB CHOIR_BACKEND WORLD_SIZE
expect 1 'a rank 0 of 2 joined where MPI counts 1 ranks: start all of them with one mpirun'

# The variables of srun; and those of a batch script, which is not a rank.
slurm() { # RANK COMMAND...
    SLURM_JOB_ID=770$$ SLURM_STEP_ID=1 SLURM_NTASKS=2 SLURM_PROCID=$1 SLURM_LOCALID=$1 \
        SLURM_NODEID=0 SLURM_STEP_NODELIST='node[3-4]' "${@:2}"
}
slurm 0 env SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "$RANKS" where >"$work/0" 2>&1 &
slurm 1 env SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "$RANKS" where >"$work/1" 2>&1
wait
cat "$work/0" "$work/1" >"$work/out"
expect 1 '^rank 0 of 2, shm, node 0 of 1, local 0 of 2'
expect 1 '^rank 1 of 2, shm, node 0 of 1, local 1 of 2'
slurm 0 "$RANKS" where >"$work/out" 2>&1
expect 1 '^rank 0 of 1, shm'
finish
