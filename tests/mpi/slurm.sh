#!/bin/bash
# A Slurm cluster of two nodes that are both this machine. The ranks that srun starts become a
# group: by shared memory on one node, at the first node's address on two, and over MPI by its
# PMI.
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || skip "a Slurm cluster of one's own needs root"
for tool in slurmctld slurmd srun munged mungekey; do
    command -v $tool >/dev/null || skip "there is no $tool (install slurm-wlm munge)"
done
kind=slurm
chmod 755 "$work"
mkdir "$work/state" "$work/a" "$work/b" "$work/munge"
stop() {
    local file step
    for file in "$work"/*.pid; do
        [ -f "$file" ] && kill "$(cat "$file")"
    done
    sleep 1
    for step in $(pgrep -x slurmstepd); do # a daemon of a step whose slurmd is gone
        [[ $(readlink "/proc/$step/cwd") != "$work"* ]] || kill -KILL "$step"
    done
    rm -rf "$work"
} 2>/dev/null
trap stop EXIT

mungekey -c -k "$work/munge/key"
munged --force --socket="$work/munge/socket" --key-file="$work/munge/key" --num-threads=2 \
    --pid-file="$work/munge.pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" ||
    skip "munged does not start here"
port=$((RANDOM % 10000 + 30000))
host=$(hostname)
cat >"$work/slurm.conf" <<END
ClusterName=choir
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SlurmctldPort=$port
SlurmctldPidFile=$work/controller.pid
SlurmctldLogFile=$work/controller.log
SlurmdPidFile=$work/node-%n.pid
SlurmdLogFile=$work/node-%n.log
SlurmdSpoolDir=$work/%n
StateSaveLocation=$work/state
NodeName=a NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=b NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=a,b Default=YES State=UP
END
export SLURM_CONF=$work/slurm.conf
slurmctld -f "$SLURM_CONF" && slurmd -f "$SLURM_CONF" -N a && slurmd -f "$SLURM_CONF" -N b ||
    skip "Slurm's daemons do not start here"
for _ in $(seq 40); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.5
done
[ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] ||
    skip "Slurm's nodes do not come up here: $(sinfo -h 2>&1 | head -1)"

job() { # SRUN OPTION... PROGRAM
    timeout -k 5 60 srun "$@" >"$work/out" 2>&1 </dev/null
}
export TIMEOUT_S=30
job --mpi=none -N1 -n3 "$RANKS" where
expect 3 '^rank [0-2] of 3, shm, node 0 of 1, local [0-2] of 3'

# An array of searches that share a study. One of them is killed, one is asked to end and is queued
# again; the trials are those of one search alone.
CHOIR=${CHOIR:-$PLUGINS/../choir}
searches() {
    local script number holder
    local search=(--json --trials 24 --window 4 --seed 3 --space 'x=uniform(0,1)')
    script=$(realpath "$(dirname "$0")/../../docs/cluster/tune.sbatch")
    cat >"$work/bowl" <<'END'
#!/bin/bash
while [ "$CHOIR_TRIAL_NUMBER" = 9 ] && [ -e holding ] && echo "$PPID" >holder; do sleep 0.1; done
awk -v x="$1" 'BEGIN { printf "{\"eval_loss\":%.6f}\n", (x - 0.3)^2 }'
END
    chmod +x "$work/bowl"
    : >"$work/holding"
    number=$(cd "$work" && CHOIR=$CHOIR STORAGE=journal:study.log DIR=trials \
        sbatch --parsable --array=1-3 --output search-%a.out "$script" "${search[@]}" -- ./bowl {x})
    checks=$((checks + 1))
    until_true [ -e "$work/holder" ] || fail 'no trial 9' || return
    scancel --batch --signal=TERM "${number}_2"
    until_true queued_again "${number}_2" || fail "$(scontrol show job "${number}_2")" || return
    rm "$work/holder"
    until_true [ -e "$work/holder" ] || fail 'no trial 9 again' || return
    holder=$(cat "$work/holder")
    kill -KILL "$holder"
    rm "$work/holding"
    until_true no_job "$number" || fail "$(squeue)" || return
    (cd "$work" && "$CHOIR" tune "${search[@]}" -- ./bowl {x}) | sed 's/,"seconds":[0-9.]*//' \
        >"$work/reference"
    "$CHOIR" tune show --json "$work/study.log" | sed 's/,"seconds":[0-9.]*//' >"$work/shown"
    cmp "$work/reference" "$work/shown" || fail "another table: $(cat "$work"/search-*.out)"
    [ "$(ls -d "$work"/trials/*/ | wc -l)" = 24 ] || fail "folders: $(ls "$work/trials")"
}
until_true() {
    for _ in $(seq 160); do
        "$@" && return
        sleep 0.25
    done
    return 1
}
queued_again() { scontrol show job "$1" | grep -q 'Restarts=1'; }
# Slurm would wait two minutes before it begins a job again that was queued again. At once is too
# early: in the same second Slurm takes the new credential for the one that it has revoked.
hastened=
hasten() {
    [ "$hastened" = "$1" ] ||
        { scontrol update "JobId=$1" StartTime=now+2 2>/dev/null && hastened=$1; }
}
no_job() {
    hasten "${1}_2"
    [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]
}
if [ -x "$CHOIR" ]; then
    searches
fi

# The nodes' names do not resolve, so the test sets an address.
MASTER_ADDR=127.0.0.1 job --mpi=none -N2 -n4 --ntasks-per-node=2 "$RANKS" where
expect 4 '^rank [0-3] of 4, shm, node 0 of 1, local [0-3] of 4'
MASTER_ADDR=127.0.0.1 job --mpi=none -N2 -n2 "$RANKS" split
expect 1 'checks on 2 ranks'
for pair in openmpi:pmix mpich:pmi2; do
    [ -f "$PLUGINS/choir_mpi_${pair%:*}.so" ] || continue
    srun --mpi=list 2>&1 | grep -q "${pair#*:}" || continue
    CHOIR_BACKEND=mpi job --mpi="${pair#*:}" -N1 -n2 "$RANKS" where
    expect 2 '^rank [01] of 2, mpi, node 0 of 1, local [01] of 2'
done

# A job that is asked to end saves, is queued again, and ends with the bits of one that was not.
CHOIR=${CHOIR:-$PLUGINS/../choir}
submits() {
    local script number status=
    script=$(realpath "$(dirname "$0")/../../docs/cluster/train.sbatch")
    local train=(--json --microbatches 2 --batch-size 8 --steps 3000 --model mlp:hidden=8 random)
    "$CHOIR" train "${train[@]}" >"$work/out" 2>&1 || fail 'no training' || return
    local bits
    bits=$(grep -o '"weights_sha256":"[0-9a-f]*"' "$work/out")
    : >"$work/out"
    export CHOIR SAVE=$work/saved RANKS=1 ENDPOINT=127.0.0.1:$((port + 9))
    number=$(cd "$work" &&
        sbatch --parsable -N2 -c1 --output job.out "$script" --save-every 20 "${train[@]}")
    checks=$((checks + 1))
    for _ in $(seq 240); do
        [ -n "$status" ] || [ ! -e "$work/saved/latest" ] || {
            scancel --batch --signal=TERM "$number"
            status=asked
        }
        case $(scontrol show job "$number" | grep -o 'JobState=[A-Z]*') in
        *=COMPLETED) break ;;
        *=PENDING) [ -z "$status" ] || hasten "$number" ;;
        *=FAILED | *=CANCELLED) fail "the job fails: $(tail -n 5 "$work/job.out")" || return ;;
        esac
        sleep 0.25
    done
    scontrol show job "$number" | grep -q 'Restarts=1' ||
        fail "not queued again: $(scontrol show job "$number" | head -4)" || return
    grep -q 'interrupted after step [0-9]*; saved to' "$work/job.out" || fail 'nothing was saved'
    grep -q "$bits" "$work/job.out" || fail "other weights than $bits: $(tail -n 3 "$work/job.out")"
}
if [ -x "$CHOIR" ]; then
    submits
fi
finish
