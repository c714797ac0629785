#!/usr/bin/env bash
# choir tune --devices: trials are divided among a machine's cores and GPUs, and a trial of
# several ranks has devices for each; memory that a trial may take; what is refused.
. "$(dirname "$0")/../lib.sh"
cores=$(nproc)

# Says what the trial has, and waits until another one has begun.
cat >look <<'LOOK'
#!/bin/bash
mkdir "here.$CHOIR_TRIAL_NUMBER"
end=$((SECONDS + 20))
until [ "$(ls -d here.* | wc -l)" -ge "$1" ] || [ $SECONDS -ge $end ]; do
    read -rt 0.01 <> <(:)
done
cores=$(grep Cpus_allowed_list /proc/self/status | cut -f2)
echo "$(ls -d here.* | wc -l) $CHOIR_TRIAL_DEVICES ${CUDA_VISIBLE_DEVICES-unset} $cores" \
    >"look.$CHOIR_TRIAL_NUMBER"
echo '{"eval_loss":1}'
LOOK
chmod +x look

bound() {
    local i
    [ "$cores" -gt 1 ] || { echo 'one core: nothing to divide'; return; }
    good tune --devices auto --trials "$cores" --space x=1 -- ./look "$cores" {x}
    for ((i = 0; i < cores; i++)); do
        has look.$i "^$cores cpu:0  [0-9]+$" # all run at once, on a core each
    done
    [ "$(cut -d' ' -f4 look.* | sort -u | wc -l)" = "$cores" ] || fail "$(cat look.*)"
    rm -rf here.* look.*
    good tune --devices cpu:0,cpu:1 --devices-per-trial 2 --trials 2 --space x=1 -- ./look 1 {x}
    has look.0 '^1 cpu:0,cpu:1  [0-9]+[-,][0-9]+$'
    has look.1 '^2 cpu:0,cpu:1  [0-9]+[-,][0-9]+$' # one after the other
}

# A trial's ranks are on its own cores.
ranks() {
    [ "$cores" -gt 1 ] || return
    good tune --json --devices cpu:0,cpu:1 --devices-per-trial 2 --trials 1 \
        --space 'lr=choice(0.1)' -- \
        "$CHOIR" train --strategy ddp --steps 2 --batch-size 4 --eval-batches 1 \
        --model mlp:in=4,hidden=8,classes=2 random
    has out '"state":"COMPLETE"'
}

# A trial that takes too much memory fails with the reason; the others go on.
memory() {
    cat >eat <<'EAT'
#!/bin/bash
[ "$1" = 1 ] && exec bash -c 'a=$(head -c 300000000 /dev/zero | tr "\0" x); sleep 100'
echo '{"eval_loss":1}'
EAT
    chmod +x eat
    good tune --json --memory-per-trial 100M --trials 3 --space 'x=choice(0,1,2)' \
        --sampler grid -- ./eat {x}
    has out \
        '"number":1,"state":"FAIL",.*"why":"took [0-9.]+ MiB of memory, more than the 100 MiB of a'
    [ "$(grep -c COMPLETE out)" = 2 ] || fail "$(cat out)"
}

wrong() {
    bad 2 'expected a list such as cpu:0,cpu:1 or cuda:0-3, got .all' \
        tune --devices all --space x=1 -- true {x}
    bad 2 'cpu:0 is named twice' tune --devices cpu:0,cpu:0 --space x=1 -- true {x}
    bad 2 '--devices-per-trial 2: expected at most the 1 devices of --devices' \
        tune --devices cpu:0 --devices-per-trial 2 --space x=1 -- true {x}
    bad 2 '--parallel 3: expected at most 1, for which the 1 devices' \
        tune --devices cpu:0 --parallel 3 --space x=1 -- true {x}
    bad 2 'the memory of this machine is enough for 0 trials' \
        tune --memory-per-trial 100000G --space x=1 -- true {x}
}

check bound
check ranks
check memory
check wrong
finish
