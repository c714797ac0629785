#!/bin/bash
# --optimizer and --schedule: each name trains and resumes to the same bits, and wrong options
# give an error.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/lib.sh"

model=toy:in=6,hidden=5,out=3
runs=0 # folders so far

hash_of() { # of the summary in out
    sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' out
}

same_after_resume() { # OPTION...: eight steps, and four and four more
    local whole name=run$((++runs))
    good train --json --model "$model" --steps 8 "$@" random || return
    whole=$(hash_of)
    [ -n "$whole" ] || { fail "no hash: $*"; return 1; }
    good train --json --model "$model" --steps 4 --save "$name" "$@" random || return
    good train --json --model "$model" --steps 8 --resume "$name" "$@" random || return
    [ "$(hash_of)" = "$whole" ] || fail "other weights after --resume: $*"
}

optimizers_resume() {
    local text
    for text in sgd sgd:momentum=0.9,dampening=0.1 sgd:momentum=0.9,nesterov=1 sgd:maximize=1 adam \
        adam:amsgrad=1 adamw:amsgrad=1,decay=matrices lamb lamb:max_grad_norm=0,trust_always=1 \
        lamb:bias_correction=0,grad_averaging=0,decoupled=0 lion lion:beta1=0.8,decay=matrices \
        rmsprop rmsprop:momentum=0.9,centered=1,eps=1e-3 adafactor \
        adafactor:d=2,beta2_decay=-0.5 muon \
        muon:adjust=original,nesterov=0,ns_steps=3; do
        same_after_resume --optimizer "$text" --weight-decay 0.1 --lr 1e-2 || return
    done
}

# Matrices of at least 4096 elements have codes, which are saved as they are, with magnitudes.
eight_bits_resume() {
    local model=mlp:in=300,hidden=33,classes=7 text
    for text in adamw:bits=8 adam:bits=8,beta2=0.9; do
        same_after_resume --optimizer "$text" --lr 1e-2 || return
    done
    good train --json --model "$model" --steps 8 --optimizer adamw:bits=8 --lr 1e-2 --save saved8 \
        random
    local whole
    whole=$(hash_of)
    choir checkpoint inspect saved8 >parts || fail "inspect"
    grep -q 'exp_avg_absmax.*33, 2' parts || fail "no magnitudes of blocks: $(cat parts)"
    good train --json --model "$model" --steps 8 --lr 1e-2 random
    [ "$(hash_of)" != "$whole" ] || fail "codes of 8 bits are not f32"
}

# Each rank has some of the rows; Adafactor and Muon need all of them. Other ranks may resume.
optimizers_keep_their_bits() {
    local model=mlp:in=300,hidden=33,classes=7 text whole
    for text in lion rmsprop:momentum=0.9,centered=1,eps=1e-3 adafactor muon adamw:bits=8; do
        set -- --json --model "$model" --microbatches 6 --batch-size 24 --lr 1e-2 --clip 0.5 \
            --optimizer "$text" random
        good train --steps 6 "$@" || return
        whole=$(hash_of)
        local way
        for way in "ddp --nproc 2" "fsdp:stage=1 --nproc 3" "fsdp:stage=2 --nproc 2" \
            "fsdp --nproc 3"; do
            # shellcheck disable=SC2086
            good train --steps 6 --strategy $way "$@" || return
            [ "$(hash_of)" = "$whole" ] || fail "other weights: $text, $way"
        done
        good train --steps 6 --strategy fsdp+pipeline --mesh 2x2 "$@" || return
        [ "$(hash_of out)" = "$whole" ] || fail "other weights: $text, fsdp around a pipeline"
        good train --steps 3 --strategy fsdp --nproc 3 --save "moved$checks" "$@" || return
        good train --steps 6 --strategy fsdp --nproc 2 --resume "moved$checks" "$@" || return
        [ "$(hash_of)" = "$whole" ] || fail "other weights after ranks have changed: $text"
        rm -r "moved$checks"
    done
}

# Each rank has columns of some matrices: the update of the whole is computed on each rank, and
# blocks of codes end where a slice does.
optimizers_with_tensor_parallelism() {
    local text model
    for text in adafactor muon lamb adamw:bits=8; do
        for model in "$gpt" mlp:in=300,hidden=520,classes=8; do
            local job=(--json --model "$model" --steps 4 --microbatches 2 --lr 1e-2)
            good train "${job[@]}" --optimizer $text --slices 2 random || return
            mv out single
            good train "${job[@]}" --optimizer $text --strategy tp --nproc 2 random || return
            same_run single out || fail "$text of $model"
        done
    done
}

schedules_resume() {
    local text
    for text in constant:warmup=3 cosine:steps=8,warmup=2,min_lr=1e-3 linear:steps=8 \
        step:size=3,gamma=0.5 \
        multistep:milestones=2/5,gamma=0.1 exponential:gamma=0.9 polynomial:steps=8,power=2 \
        restarts:size=3,growth=2 one_cycle:steps=8,three_phase=1 cyclic:size=2,down=3,halving=1 \
        inverse_sqrt:warmup=3; do
        same_after_resume --optimizer sgd --lr 1e-2 --schedule "$text" || return
    done
}

a_schedule_changes_the_weights() {
    local plain
    good train --json --model "$model" --steps 8 --optimizer sgd random || return
    plain=$(hash_of)
    good train --json --model "$model" --steps 8 --optimizer sgd \
        --schedule exponential:gamma=0.5 random
    [ "$(hash_of)" != "$plain" ] || fail "the schedule did nothing"
}

refused() { # WORDS OPTION...
    local words=$1
    shift
    choir train --model "$model" --steps 1 "$@" random >out 2>err && fail "accepted: $*"
    grep -q -- "$words" err || fail "'$words' is not in: $(cat err)"
}

wrong_options() {
    refused "sgd, adam, adamw, lamb, lion, rmsprop, adafactor, muon" --optimizer lomb
    refused "bits=16" --optimizer adamw:bits=16
    refused "adjust=half" --optimizer muon:adjust=half
    refused "max_grad_norm" --optimizer lamb:norm=1
    refused "beta1=2" --optimizer lamb:beta1=2
    refused "decay=some" --optimizer adamw:decay=some
    refused "amsgrad=x" --optimizer adam:amsgrad=x
    refused "inverse_sqrt" --schedule noam
    refused "unknown option 'power'" --schedule cosine:power=2
    refused "milestones" --schedule multistep
    refused "milestones=5/x" --schedule multistep:milestones=5/x
    refused "increase" --schedule multistep:milestones=5/5
    refused "rise=1" --schedule one_cycle:rise=1
    refused "three phases" --schedule one_cycle:rise=0.7,three_phase=1
}

# Schedules that end with the job take the length of an epoch from the data.
epochs_end_schedules() {
    good train --json --model "$model" --epochs 2 --batch-size 64 --schedule cosine:warmup=2 random
    local steps
    steps=$(field steps out)
    mv out epochs
    good train --json --model "$model" --steps "$steps" --batch-size 64 --schedule cosine:warmup=2 \
        random
    [ "$(field weights_sha256 out)" = "$(field weights_sha256 epochs)" ] ||
        fail "--epochs 2 and --steps $steps end differently"
}

check epochs_end_schedules
init_is_chosen() {
    local own torch
    good train --json --model "$model" --steps 1 random || return
    own=$(hash_of)
    good train --json --model "$model" --steps 1 --init choir random || return
    [ "$(hash_of)" = "$own" ] || fail "--init choir is another start"
    good train --json --model "$model" --steps 1 --init torch random || return
    torch=$(hash_of)
    [ "$torch" != "$own" ] || fail "--init torch did nothing"
    good train --json --model "$model" --steps 1 --init torch --seed 3 random || return
    [ "$(hash_of)" != "$torch" ] || fail "--init torch does not follow --seed"
    refused "choir, torch" --init xavier
    refused "checkpoint" --init torch --resume nowhere
}

check init_is_chosen
check optimizers_resume
check eight_bits_resume
check optimizers_keep_their_bits
check optimizers_with_tensor_parallelism
check schedules_resume
check a_schedule_changes_the_weights
check wrong_options
finish
