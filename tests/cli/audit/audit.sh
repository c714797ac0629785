#!/usr/bin/env bash
# --audit and choir audit: the lines of one training are the same on every layout and after every
# interruption, and a difference is found where it is.
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=4
make_text text 200
job=(train --model "$gpt" --batch-size 12 --microbatches 4 --no-eval --quiet text)

# lines FOLDER: an audit's steps without their links, which begin with the lines of the job.
lines() { grep '^{"step"' "$1/audit.jsonl" | sed 's/,"chain".*//'; }

# same FOLDER: has the lines of the folder `single`, and its dumps.
same() {
    [ "$(lines "$1" | wc -l)" -gt 0 ] || fail "$1 has no lines" || return
    diff <(lines single) <(lines "$1") >/dev/null || fail "$1 has other lines than single" || return
    diff -rq --exclude '*.ops-*' single/audit "$1/audit" || fail "$1 has other tensors"
}

one_chain_on_every_layout() {
    local strategy
    good "${job[@]}" --steps 4 --strategy single --run single --audit=every=1,dump
    [ "$(lines single | wc -l)" -eq 4 ] || fail "lines: $(lines single)"
    [ "$(lines single | grep -c null)" -eq 1 ] || fail 'hashes are missing after the first step'
    for strategy in "ddp --nproc 3" "fsdp --nproc 3" "fsdp:stage=2 --nproc 2" \
        "dp --devices cpu:0,cpu:1" "mp --devices cpu:0,cpu:1" "pipeline --nproc 2" \
        "pipeline:schedule=zero-bubble --devices cpu:0,cpu:1" "fsdp+pipeline --mesh 2x2"; do
        rm -rf other
        # shellcheck disable=SC2086 # words
        good "${job[@]}" --steps 4 --strategy $strategy --run other --audit=every=1,dump
        same other || fail "of --strategy $strategy"
    done
}

# Weights that the optimizer does not change, or in another form than f32, are in the lines, too,
# and a run of them is proved on another layout.
every_form_of_weights() {
    local form layout held=gpt2:layers=1,heads=2,width=32,context=16
    while IFS='|' read -r form layout; do
        rm -rf form
        # shellcheck disable=SC2086 # words
        choir train --model $held --batch-size 8 --microbatches 4 --no-eval --quiet --steps 4 text \
            $form --run form --audit=every=2 >out 2>err || fail "$form: $(cat err)" || return
        # shellcheck disable=SC2086 # words
        good audit form $layout
        grep -q '^equal: form, 2 audited steps' out || fail "$form on $layout: $(cat out)"
    done <<'END'
--lora r=2 --base q8_0|--strategy fsdp --nproc 2
--lora r=2 --base bf16|--strategy pipeline --nproc 2
--amp fp16|--strategy ddp --nproc 2
--slices 2|--strategy tp --nproc 2
--chunks 2 --strategy fsdp+tp --mesh 2x1|--strategy cp --nproc 2
--optimizer sgd:momentum=0.9|--strategy fsdp --nproc 3
--optimizer lion|--strategy single
--optimizer adamw:amsgrad=1|--threads 2
END
}

# A strategy whose workers meet at intervals has lines there.
one_chain_of_workers() {
    local ranks
    for ranks in 1 2; do
        good "${job[@]}" --steps 6 --strategy diloco:workers=2,every=3 --nproc $ranks \
            --save workers$ranks --save-every 3 --audit=every=1
    done
    [ "$(lines workers1 | wc -l)" -eq 2 ] || fail "lines: $(lines workers1)"
    diff <(lines workers1) <(lines workers2) >/dev/null || fail 'one rank has other lines than two'
    bad 2 "hogwild" "${job[@]}" --steps 7 --strategy hogwild --nproc 2 --run apart --audit
}

# rest_of FOLDER: its lines; of the step that a rank did not survive, without what that rank may
# have taken with it, the hashes of its micro-batches and of their gradients.
rest_of() {
    local step
    step=$(sed -n 's/^{"event":"membership","step":\([0-9]*\),.*/\1/p' lost/events.jsonl)
    lines "$1" | sed "/^{\"step\":$step,/s/,\"batch\":.*,\"weights\":/,\"weights\":/"
}

resumed_and_replaced() {
    good "${job[@]}" --steps 40 --strategy single --run whole --audit=every=3
    good "${job[@]}" --steps 20 --save half --save-every 7 --save-keep 9 --audit=every=3
    good train --resume half --steps 40 --quiet --strategy fsdp --nproc 2
    diff <(lines whole) <(lines half) >/dev/null || fail 'a resumed job has other lines'
    [ "$(grep -c '^{"begin"' half/audit.jsonl)" -eq 2 ] || fail 'the return has no line'
    good audit half --steps 25:
    grep -q '^equal: half, 5 audited steps from 27 to 39' out || fail "$(cat out)"

    local victim
    good "${job[@]}" --steps 300 --strategy single --run calm --audit=every=5
    for victim in head tail; do # rank 0 writes the lines, so another rank takes over
        rm -rf lost
        start "${job[@]}" --steps 300 --strategy ddp --nproc 3 --max-restarts 2 --run lost \
            --audit=every=5,dump
        await 20 grep -qs '^{"step":20,' lost/audit.jsonl || fail 'no line of step 20'
        kill -KILL "$(children | $victim -n 1)"
        ended 60
        [ $status -eq 0 ] || fail "status $status: $(cat err)"
        grep -q '"event":"membership"' lost/events.jsonl || fail 'no rank was lost'
        diff <(rest_of calm) <(rest_of lost) >/dev/null ||
            fail "a job that lost a rank ($victim) has other lines"
    done
}

# A pipeline moves weights once it has measured their stages; the update's hashes do not follow.
weights_that_move() {
    local model strategy
    for model in llama:layers=4,heads=4,width=64,context=32 lstm:layers=3,hidden=64,context=32; do
        rm -rf stays
        good "${job[@]}" --model $model --steps 5 --strategy single --run stays --audit=every=1
        for strategy in 'pipeline --nproc 2' 'fsdp+pipeline --mesh 2x2' 'mp --nproc 2'; do
            rm -rf moves
            # shellcheck disable=SC2086 # words
            good "${job[@]}" --model $model --steps 5 --strategy $strategy --run moves \
                --audit=every=1
            diff <(lines stays) <(lines moves) >/dev/null || fail "$model on $strategy"
        done
    done
}

proved() {
    good "${job[@]}" --steps 8 --save run --save-every 3 --save-keep 9 --audit=every=2
    good audit run
    grep -q '^equal: run, 4 audited steps from 2 to 8' out || fail "$(cat out)"
    good audit run --steps 5:9 --strategy ddp --nproc 3 --json
    grep -q '"event":"audit","equal":true,"step":null' out || fail "$(cat out)"
    good audit run --against "$CHOIR" --steps 4
    good audit run --against "${CHOIR%/*}" --steps 4
    bad 1 'by nowhere/choir: cannot run nowhere/choir' audit run --against nowhere/choir
    bad 1 'every 2 steps, up to step 8' audit run --steps 3
    bad 2 'A:B' audit run --steps 3:3
    [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -user "$(id -un)" -name 'choir-audit-*' \
        -newer single/job.json)" ] || fail 'folders are left'
}

# A signal stops the second run, too, and leaves nothing.
has_begun() { compgen -G "$work/temporary/*/again/run/audit.jsonl" >/dev/null; }
interrupted() {
    mkdir temporary
    good "${job[@]}" --steps 6000 --run long --audit=every=500
    TMPDIR=$work/temporary start audit long
    await 20 has_begun || fail 'the second run has not begun' || return
    kill -INT "$started_pid"
    ended 60
    [ $status -eq 130 ] || fail "status $status: $(cat err)"
    [ -z "$(ls temporary)" ] || fail "left: $(ls temporary)"
}

# different WORDS ARG...: an audit that finds a difference, whose output has the words.
different() {
    local words=$1
    shift
    choir "$@" >out 2>err
    [ $? -eq 1 ] || fail "a status other than 1 of choir $*: $(cat out err)" || return
    [ ! -s err ] || fail "choir $*: $(cat err)"
    grep -qF -e "$words" out || fail "choir $*: no '$words' in $(cat out)"
}

# Sums of bf16 in AMX's order are other ones: both sides can be run again, and the first step, its
# first op and the values are named, although they were not recorded. The op is the same one on
# every layout, so all ops before it are equal there.
found_in_other_bits() {
    local layout
    choir "${job[@]}" --steps 6 --run half-words --amp bf16 --bits chain --audit=every=3 \
        >out 2>err || fail "$(cat err)"
    different '"equal":false,"step":3' audit half-words --bits amx --json
    has out '"exact_step":[123],"exact_kind":"[a-z]+"' \
        '"microbatch":0,"op":"linear","op_module":"[a-z0-9_.]*","pass":"[a-z]+ward","operand":' \
        '"tensor":"0/[a-z].*"index":[0-9]+,"values":\[.*"bits":\["0x[0-9a-f]{4,8}","0x'
    cp out single-op
    for layout in 'pipeline --nproc 2' 'ddp --nproc 3' 'mp --devices cpu:0,cpu:1'; do
        # shellcheck disable=SC2086 # words
        different '"op":"linear"' audit half-words --bits amx --json --strategy $layout
        diff out single-op || fail "--strategy $layout finds another op"
    done
}

# A recorded chain of another run stands for a fault that cannot be made once more.
found_in_a_chain() {
    good "${job[@]}" --steps 8 --run faster --audit=every=2 --lr 0.01
    cp -r run other-chain
    cp faster/audit.jsonl other-chain
    sed -i 's/"lr":0.01/"lr":0.001/' other-chain/audit.jsonl
    bad 1 'audit.jsonl:1: the chain breaks here' audit other-chain
    good "${job[@]}" --steps 4 --run slow1 --audit=every=1,dump
    good "${job[@]}" --steps 4 --run slow2 --audit=every=1,dump --lr 0.002
    different 'step 1 is the first audited one that differs: weight' audit diff slow1 slow2
    grep -qE '^lr +0.001 +\| +0.002' out || fail "no rate: $(cat out)"
    has out '^  first op: update$' '^  first element: [a-z_0-9.]+\[[0-9]+\]'
    different '"kind":"weight","read":false' audit diff slow1 slow2 --json
    good "${job[@]}" --steps 4 --run noise --audit=every=1 --seed 9
    different 'seed' audit diff slow1 noise
    has out 'weight, as the step read it, of' \
        '^  no values are known: not both runs kept the tensors of this step or the one before it'
    different '"read":true' audit diff slow1 noise --json
    has out '"tensor":null,.*"note":"no values are known: not both'
    good "${job[@]}" --steps 4 --run noise2 --audit=every=2,dump --lr 0.002
    different 'step 2 is the first audited one that differs: weight, as the step read it' \
        audit diff slow1 noise2
    has out '^  first element: ' '^  the values are those after the step: not both runs kept'
    good "${job[@]}" --steps 4 --run skips --audit=every=2,dump --skip-batches 2
    different 'that differs: batch of micro-batch 0' audit diff slow1 skips
    has out '^  first element: batch\.x\[[0-9]+\]'
    rm -r skips/audit
    different 'choir data slow1 --step 2 lists' audit diff slow1 skips
    head -n 1 slow1/audit.jsonl | grep -q '"build":"Choir [0-9.]* ([0-9a-f]\{12\})"' ||
        fail "the build: $(head -n 1 slow1/audit.jsonl)"
    cp -r slow2 rebuilt && sed -i '/"choir":/{n;s/[0-9a-f]\{12\}/000000000000/}' rebuilt/job.json
    different '"  |  "000000000000"' audit diff slow1 rebuilt
    good audit diff slow1 slow1
    good "${job[@]}" --steps 4 --run other-cut --audit=every=2 --microbatches 2
    different 'the batch is cut into 4 and 2 micro-batches' audit diff slow1 other-cut
    grep -qE 'step 2 is the first .* differs: (weight|loss|gradient)' out || fail "$(cat out)"
}

saved_some() { compgen -G "killed/step-*" >/dev/null; }

# A run that ends by an error is compared up to there, as one is that was killed.
one_has_failed() {
    local nan='the loss is nan at step [0-9]'
    rm -rf burst killed
    choir "${job[@]}" --steps 8 --optimizer sgd --lr 1e12 --run burst --audit=every=1 >out 2>err &&
        fail 'a rate of 1e12 does not fail'
    has err "$nan"
    different 'burst failed at step' audit diff run burst
    has out "^burst failed at step [0-9]: $nan" '^optimizer ' '^lr .*\|' \
        '^different: run and burst' '^  step [0-9] is the first audited'
    different '"note":"burst failed at step' audit diff burst run --json
    good audit diff burst burst
    [ "$(grep -c 'burst failed' out)" -eq 1 ] || fail "$(cat out)"
    start "${job[@]}" --steps 100000000 --save killed --save-every 20 --audit=every=2
    await 20 saved_some || fail 'the job does not save'
    kill -KILL "$started_pid"
    wait "$started_pid" 2>/dev/null
    started_pid=
    choir audit diff run killed >out 2>err || fail "status $?: $(cat err out)"
    has out '^killed has no end after step [0-9]+: it was killed, or it still runs$' '^equal: run'
    different 'burst failed' audit diff burst killed
    has out '^killed has no end'
    # once it goes on to its end, it has one
    good train --resume killed --steps "$(($(wc -l <killed/metrics.jsonl) + 2))" --quiet
    choir audit diff run killed >out 2>err || fail "status $?: $(cat err out)"
    ! grep -q 'has no end' out || fail "$(cat out)"
}

without_audit_data() {
    good "${job[@]}" --steps 6 --save plain --save-every 3 --save-keep 9
    good audit plain
    grep -q 'plain has no audit data: the weights of its checkpoint of step 6 were compared' out &&
        grep -q '^equal' out || fail "$(cat out)"
    good audit diff plain plain
    grep -q 'no audit data: the weights of checkpoints were compared instead' out ||
        fail "$(cat out)"
    good "${job[@]}" --steps 6 --save plain2 --save-every 3 --save-keep 9 --lr 0.01
    different 'step 3 is the first checkpoint that differs: weight of' audit diff plain plain2
    has out '^plain and plain2 have no audit data: the weights'
    has out '^  first element: '
    different '"step":3,"module":"transformer.h' audit diff plain plain2 --json
    bad 1 'plain/latest is a checkpoint: expected the folder of its run' audit plain/latest
    bad 1 'plain/latest is a checkpoint' audit diff plain2 plain/latest
    rm -r plain/step-* plain/latest
    bad 1 'no audit data .*, and it has no checkpoint' audit plain
    bad 1 'no audit data .*, and plain and plain have no checkpoint in common' \
        audit diff plain plain
    # what differs in their making is not told of runs that cannot be compared
    bad 1 'plain and plain2 have no audit data .*, and plain and plain2 have no checkpoint' \
        audit diff plain plain2
}

what_is_gone_or_wrong() {
    cp -r run gone
    good train --resume run/step-00000006 --run gone2 --steps 9 --quiet --audit=every=1
    good audit gone2
    mv run elsewhere
    bad 1 'resumed from step 6 of run/step-00000006, whose checkpoint is gone' audit gone2
    mv elsewhere run

    sed -i '3s/"key":"./"key":"z/' gone/audit.jsonl
    bad 1 'gone/audit.jsonl:3: the chain breaks here: the line was edited' audit gone
    cp run/audit.jsonl gone
    sed -i 3d gone/audit.jsonl
    bad 1 'gone/audit.jsonl:3: the chain breaks here' audit gone
    cp run/audit.jsonl gone
    sed -i '$d' gone/audit.jsonl
    good audit gone
    has out '^the audit of gone ends at line 4, with step 6, and the run has done 8 steps: it was' \
        '^equal: gone, 3'
    good audit gone --steps 3:9 --json
    has out '"note":"the audit of gone ends at line 4, with step 6, and'
    good audit gone --steps 3:8 # step 8 is not asked for
    ! grep -q 'audit of gone' out || fail "$(cat out)"
    bad 1 'no step from 7 to 8 was audited; .* step 6; the audit of gone ends at line 4' \
        audit gone --steps 7:9
    good audit diff run gone
    has out '^the audit of gone ends at line 4, with step 6, .* 8 steps' '^equal: run and gone, 3'
    good audit diff gone run --json
    has out '"note":"the audit of gone ends'
    good audit diff run run
    ! grep -q 'was cut' out || fail "$(cat out)"
    truncate -s -20 gone/audit.jsonl
    bad 1 'gone/audit.jsonl:4: the line is cut off' audit gone

    good train random --model toy --steps 4 --batch-size 12 --no-eval --quiet --run toy \
        --audit=every=2
    cp text before
    echo more >>text
    bad 1 "run could not be run again: '.*text' is not the data of this job .*: an audit needs" \
        audit run
    ! grep -qE 'choir-audit-|command line' err || fail "$(cat err)"
    cp before text

    bad 1 'the runs have different models: run has a module' audit diff run toy
    bad 1 'nowhere: there is no such run' audit nowhere
    bad 1 'nowhere: there is no such run' audit diff run nowhere
    head -c 99 text >th.pt
    mkdir empty
    bad 1 '^choir audit: th.pt: expected the folder of a run, or a .safetensors file$' \
        audit diff run th.pt
    bad 1 '^choir audit: empty: expected the folder of a run$' audit diff empty run
    bad 1 '^choir audit: th.pt: expected the folder of a run$' audit th.pt
    bad 2 'expected two runs' audit diff run
    bad 2 'without --save or --run' "${job[@]}" --steps 4 --audit
    bad 2 'every=0' "${job[@]}" --steps 4 --run none --audit=every=0
    bad 2 "'sometimes'" "${job[@]}" --steps 4 --run none --audit=sometimes
}

beside_another_program() {
    good audit diff slow1 slow1/audit/step-00000002.safetensors --step 2
    grep -q '^0 of ' out || fail "$(cat out)"
    different 'of their largest number' audit diff slow1 slow2/audit/step-00000004.safetensors
    grep -q '^!  *[0-9.e-]* *grad' out || fail "$(cat out)"
    good audit diff slow1 slow2/audit/step-00000004.safetensors --tolerance 100 --json
    grep -q '"event":"tensor","tensor":"grad[^"]*","equal":true,"error":' out || fail "$(cat out)"
    bad 1 'train with --audit=dump' audit diff run slow1/audit/step-00000002.safetensors
    bad 1 'nowhere: there is no such run' audit diff nowhere slow1/audit/step-00000002.safetensors
    bad 1 'not kept the tensors of step 77; the newest that it has are of step 4' \
        audit diff slow1 slow1/audit/step-00000002.safetensors --step 77
    bad 2 'expected a run, and then a file' audit diff slow1/audit/step-00000002.safetensors slow1
}

# A checkpoint's weights are averages, which were hashed as the optimizer's state.
averages_are_saved() {
    local average
    for average in '--ema 0.9' '--swa 2'; do
        rm -rf averaged
        # shellcheck disable=SC2086 # two words
        good train --model toy --steps 4 $average --save averaged --save-every 2 --audit=every=1 \
            random
        good checkpoint verify averaged
    done
}

check one_chain_on_every_layout
check every_form_of_weights
check one_chain_of_workers
check weights_that_move
check averages_are_saved
check resumed_and_replaced
check proved
check interrupted
check found_in_other_bits
check found_in_a_chain
check one_has_failed
check without_audit_data
check what_is_gone_or_wrong
check beside_another_program
finish
