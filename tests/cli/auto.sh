# --strategy auto, the default: it takes the devices that the job gains from, says so in a line,
# and has the bits of one device at a cut that does not depend on the machine.
source "$(dirname "$0")/lib.sh"
export HOME=$work # without a calibration of this machine

# 57 MFLOP a step and 9,000 parameters: enough for two ranks.
worth=(train --model mlp:in=64,hidden=64,classes=10 --batch-size 1024 --steps 4)
summary() { tail -n 1 "$1"; }
# says FILE TEXT...: the summary has each text
says() {
    local file=$1 text
    shift
    for text; do
        summary "$file" | grep -qF "$text" || fail "no $text: $(summary "$file")"
    done
}
same_weights() {
    [ "$(summary "$1" | grep -o '"weights_sha256":"[^"]*"')" = \
        "$(summary "$2" | grep -o '"weights_sha256":"[^"]*"')" ] || fail "$1 and $2 differ"
}

one_core() {
    taskset -c 0 true 2>/dev/null || return 0
    taskset -c 0 "$CHOIR" "${worth[@]}" random >out 2>err || fail "$(cat err)"
    grep -qx -- '--strategy auto: single on 1 core: .*--microbatches 2 has the same bits' out ||
        fail "$(cat out)"
}

# Times of seconds are in seconds, and rates below ten have two digits.
long_steps_are_readable() {
    taskset -c 0 true 2>/dev/null || return 0
    taskset -c 0 "$CHOIR" train --model resnet50:image=224 --batch-size 3 --steps 1 --no-eval \
        random >out 2>err || fail "$(cat err)"
    has out '^--strategy auto: .* about [0-9.]+ s per step' \
        '^step 1/1 .*  ([0-9]+[.][0-9]+|[0-9]{2,}) samples/s'
}

small_jobs_stay_single() {
    good train --steps 2 --json random
    says out '"strategy":"single"' '"world":1' '"microbatches":1'
}

# Two devices are named, so that the test needs no second core.
two_devices() {
    local two=(--devices cpu:0,cpu:1)
    export CHOIR_CPU_DEVICES=2
    good "${worth[@]}" "${two[@]}" random
    grep -qx -- '--strategy auto: ddp on 2 cores: .* --microbatches 2 has the same bits' out ||
        fail "$(cat out)"
    good "${worth[@]}" "${two[@]}" --json random && mv out auto
    says auto '"strategy":"ddp"' '"world":2' '"microbatches":2'
    good "${worth[@]}" --strategy single --microbatches 2 --json random && mv out single
    same_weights auto single
    good "${worth[@]}" --strategy auto "${two[@]}" --microbatches 4 --json random && mv out auto
    says auto '"strategy":"ddp"' '"microbatches":4'
    good "${worth[@]}" --strategy single --microbatches 4 --json random && mv out single
    same_weights auto single
    good "${worth[@]}" "${two[@]}" --microbatches 1 --json random && mv out auto
    says auto '"strategy":"single"' '"microbatches":1'
    good "${worth[@]}" "${two[@]}" --threads 2 --microbatches 1 --json random && mv out threads
    same_weights auto threads
    good "${worth[@]}" "${two[@]}" --batch-size 1021 --json random # a prime number
    says out '"strategy":"single"' '"microbatches":1'
    # A limit that the whole model would exceed: the ranks share it.
    good train --model mlp:in=64,hidden=400,classes=10 --batch-size 64 --steps 2 "${two[@]}" \
        --mem-cap 4M --json random && mv out auto
    says auto '"strategy":"fsdp"' '"world":2' '"microbatches":8'
    good train --model mlp:in=64,hidden=400,classes=10 --batch-size 64 --steps 2 \
        --strategy single --microbatches 8 --json random && mv out single
    same_weights auto single
    unset CHOIR_CPU_DEVICES
}

# The cut is the job's: on one device and on two the weights are the same.
cut_is_the_jobs() {
    export CHOIR_CPU_DEVICES=2
    good "${worth[@]}" --devices cpu:0 --json random && mv out one
    good "${worth[@]}" --devices cpu:0,cpu:1 --json random && mv out two
    says one '"strategy":"single"' '"microbatches":2'
    says two '"strategy":"ddp"' '"microbatches":2'
    same_weights one two
    unset CHOIR_CPU_DEVICES
}

# Where the cut has no second micro-batch, other dimensions of it share the work.
other_dimensions() {
    local job=(train --model gpt2:layers=2,heads=4,width=128,context=128,vocab=96 --batch-size 8
        --microbatches 1 --steps 2 --devices cpu:0,cpu:1 --json --no-eval)
    export CHOIR_CPU_DEVICES=2
    good "${job[@]}" --slices 4 random && mv out auto
    says auto '"strategy":"tp"' '"world":2' '"slices":4'
    good "${job[@]}" --slices 4 --strategy single random && mv out single
    same_weights auto single
    good "${job[@]}" --chunks 4 random && mv out auto
    says auto '"strategy":"cp"' '"world":2' '"chunks":4'
    good "${job[@]}" --chunks 4 --strategy single random && mv out single
    same_weights auto single
    unset CHOIR_CPU_DEVICES
}

# A job that would run out of memory does not begin.
never_without_room() {
    bad 1 'auto: no strategy fits on 2 devices' train --model mlp:hidden=400 --mem-cap 100K \
        --devices cpu:0,cpu:1 random
    bad 1 "auto: no strategy fits: .* needs .* GiB and .* may be used; 'choir plan' says" train \
        --model gpt2:layers=96,heads=96,width=12288 --batch-size 1 --devices cpu:0 random
}

# A batch that no number of ranks divides: all cores compute in one device, with its bits.
cores_in_one_device() {
    local job=(train --model mlp:in=64,hidden=64,classes=10 --batch-size 20011 --steps 1) cores
    cores=$(nproc)
    [ "$cores" -ge 2 ] || return 0
    good "${job[@]}" --no-eval random
    grep -q -- "^--strategy auto: single on $cores cores: .*--microbatches 1 has" out ||
        fail "$(cat out)"
    good "${job[@]}" --no-eval --json random && mv out auto
    good "${job[@]}" --no-eval --strategy single --json random && mv out single
    same_weights auto single
}

# A number of ranks, and a launcher, decide by themselves.
ranks_decide() {
    good train --steps 2 --nproc 2 --json random
    says out '"strategy":"ddp"' '"world":2' '"microbatches":2'
    good train --steps 2 --nproc 1 --devices cpu:0 --json random
    says out '"strategy":"single"'
    OMP_NUM_THREADS=1 good run -n 2 "$CHOIR" train --steps 2 --json random
    says out '"strategy":"ddp"' '"world":2' '"microbatches":2'
}

# The record of a job has the choice, so that a resumed job goes on as it began.
goes_on() {
    export CHOIR_CPU_DEVICES=2
    good "${worth[@]}" --devices cpu:0,cpu:1 --steps 8 --json random && mv out whole
    good "${worth[@]}" --devices cpu:0,cpu:1 --save saved random && cp -r saved again
    good train --resume saved --steps 8 --json && mv out rest
    says rest '"strategy":"ddp"' '"microbatches":2'
    same_weights whole rest
    good train --resume again --strategy auto --devices cpu:0 --steps 8 --json && mv out one
    says one '"strategy":"single"' '"microbatches":2'
    same_weights whole one
    unset CHOIR_CPU_DEVICES
}

refused() {
    bad 2 "mesh 2x2: missing --strategy" train --mesh 2x2 random
    bad 2 'auto has no keys' train --strategy auto:stage=2 random
    bad 2 "unknown strategy 'autos'" train --strategy autos random
    bad 2 "unknown strategy 'auto'" train --strategy auto+pipeline --mesh 2x2 random
}

check one_core
check long_steps_are_readable
check small_jobs_stay_single
check two_devices
check cut_is_the_jobs
check other_dimensions
check never_without_room
check cores_in_one_device
check ranks_decide
check goes_on
check refused
finish
