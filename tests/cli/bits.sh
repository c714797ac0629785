#!/usr/bin/env bash
# --bits: the class of a job's products decides its bits, and the processor does not. Ranks with
# different instruction sets train together.
. "$(dirname "$0")/lib.sh"

job=(train --json --model gpt2:layers=1,width=64,heads=2,context=16,vocab=61 --batch-size 4
    --microbatches 2 --steps 3)

# Prints "class hash" of a job's summary.
result() { # ISA [OPTION...]
    CHOIR_ISA=$1 "$CHOIR" "${job[@]}" "${@:2}" random >line || fail "${*}: status $?"
    grep '"event":"summary"' line |
        sed 's/.*"bits":"\([a-z]*\)".*"weights_sha256":"\([0-9a-f]*\)".*/\1 \2/'
}

# Also with the instruction of AMX, where this processor has it, and with its model.
one_result_on_every_instruction_set() {
    local isa options expected
    for options in "--bits chain" "--bits chain --amp bf16" "--bits chain --amp fp16" \
        "--bits amx --amp bf16"; do
        expected=
        for isa in "" avx2 baseline; do
            # shellcheck disable=SC2086 # words
            is=$(result "$isa" $options)
            [ "$is" = "${expected:=$is}" ] || fail "$options, $isa: $is, not $expected"
        done
        [ "${expected% *}" = "$(cut -d' ' -f2 <<<"$options")" ] || fail "$options: $expected"
    done
    [ "$(result "" --bits chain --amp bf16)" != "$expected" ] || fail "amx has the chain's bits"
}

convolutions_too() {
    local isa expected='' job=(train --json --model cnn:width=4 --batch-size 4 --steps 2)
    for isa in "" avx2 baseline; do
        is=$(result "$isa" --bits chain)
        [ "$is" = "${expected:=$is}" ] || fail "$isa: $is, not $expected"
    done
}

# Two ranks that are started one by one, each with an instruction set of its own.
pairs=0
pair() { # ISA ISA [OPTION...]
    local rank isa=("$1" "$2") started=() status=0
    shift 2
    ((++pairs))
    for rank in 0 1; do
        CHOIR_ISA=${isa[rank]} RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank CHOIR_JOB=bits-$$-$pairs \
            "$CHOIR" "${job[@]}" --strategy ddp "$@" random >"out$rank" 2>"err$rank" &
        started+=($!)
    done
    for rank in 0 1; do
        wait "${started[rank]}" || status=1
    done
    return $status
}

ranks_settle_what_all_have() {
    pair "" "" && grep -q '"bits":"chain"' out0 || fail "alike: $(cat err0 err1)"
    pair baseline avx2 || fail "different: $(cat err0 err1)"
    grep -q '"bits":"chain"' out0 || fail "auto: $(tail -1 out0)"
    is=$(grep -o '"weights_sha256":"[0-9a-f]*"' out0 | tail -1)
    [ "chain $(cut -d'"' -f4 <<<"$is")" = "$(result "" --bits chain)" ] || fail "other bits: $is"
}

wrong_classes_are_refused() {
    bad 2 "unknown value 'quick': choose one of auto, chain, amx, onednn" train --bits quick random
    bad 2 'expected GPUs, got processors' train --bits cuda --steps 1 random
    local command
    for command in 'train --steps 1 random' 'check --answers' 'info --kernels'; do
        # shellcheck disable=SC2086 # words
        CHOIR_MATH=quick "$CHOIR" $command >out 2>err
        [ $? -le 2 ] && is_one_line "CHOIR_MATH.*'quick'.*chain, amx" ||
            fail "$command: status $?: $(cat out err)"
    done
    if CHOIR_MATH=onednn "$CHOIR" info | grep -q oneDNN; then
        ! pair baseline avx2 --bits onednn || fail "a mix of oneDNN's bits was accepted"
        grep -q 'expected one oneDNN on all ranks, got .*choose --bits chain, or auto' err0 err1 ||
            fail "$(cat err0 err1)"
    fi
}

# A resumed job continues in the class of its checkpoint, wherever it is.
resuming_keeps_the_class() {
    local whole half
    whole=$(result "" --bits amx --amp bf16 --steps 4)
    "$CHOIR" "${job[@]}" --bits amx --amp bf16 --steps 2 --schedule constant --save half random \
        >line || fail "status $?"
    grep -q '"bits": "amx"' half/latest/job.json || fail "$(cat half/latest/job.json)"
    local job=(train --json --resume half --steps 4)
    half=$(result avx2)
    [ "$half" = "$whole" ] || fail "$half, not $whole"
    "$CHOIR" train --resume half --steps 5 --bits chain random 2>err >line || fail "status $?"
    grep -q "note: --bits chain replaces the checkpoint's amx" err || fail "$(cat err)"
}

# Agents may start ranks again on machines whose ranks settle another class: the job keeps its own,
# and so do the checkpoints that follow.
ranks_started_again_keep_the_class() {
    local started whole ranks=(env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0)
    local job=(train --json --model gpt2:layers=1,width=64,heads=2,context=16,vocab=61
        --batch-size 4 --schedule constant --strategy ddp --amp bf16 --save again)
    whole=$("${ranks[@]}" "CHOIR_JOB=bits-$$-whole" "$CHOIR" "${job[@]:0:${#job[@]}-2}" --bits amx \
        --steps 4 random | grep -o '"weights_sha256":"[0-9a-f]*"')
    for started in 1 2; do
        [ $started = 1 ] && export CHOIR_MATH=amx || unset CHOIR_MATH
        CHOIR_GENERATION=$started CHOIR_ISA=baseline "${ranks[@]}" "CHOIR_JOB=bits-$$-$started" \
            "$CHOIR" "${job[@]}" --steps $((2 * started)) random >line 2>err ||
            fail "start $started: $(cat err)"
        grep -q '"bits":"amx"' line || fail "start $started: $(tail -n 1 line)"
        grep -q '"bits": "amx"' again/latest/job.json ||
            fail "start $started: $(cat again/latest/job.json)"
    done
    [ "$(grep -o '"weights_sha256":"[0-9a-f]*"' line)" = "$whole" ] || fail "other bits than $whole"
}

check one_result_on_every_instruction_set
check convolutions_too
check ranks_settle_what_all_have
check wrong_classes_are_refused
check resuming_keeps_the_class
check ranks_started_again_keep_the_class
finish
