#!/usr/bin/env bash
# choir audit RUN: what the second run begins with, what it is compared with, and what it says of
# runs that it cannot make again.
. "$(dirname "$0")/../lib.sh"

export CHOIR_CPU_DEVICES=4
make_text text 200
job=(train --model "$gpt" --batch-size 12 --microbatches 4 --no-eval --quiet text)

# different WORDS ARG...: an audit that finds a difference, whose output has the words.
different() {
    local words=$1
    shift
    choir "$@" >out 2>err
    [ $? -eq 1 ] || fail "a status other than 1 of choir $*: $(cat out err)" || return
    grep -qE -e "$words" out || fail "choir $*: no '$words' in $(cat out)"
}

# forge FROM TO FOLDER: replaces words in an audit, and links its lines anew, as a run would have
# written them.
forge() {
    python3 - "$@" <<'END'
import hashlib, sys
path, link, lines = sys.argv[3] + "/audit.jsonl", "", []
for line in open(path):
    text = line.rstrip("\n")[:-len(',"chain":"' + 64 * "0" + '"}')]
    text = text.replace(sys.argv[1], sys.argv[2])
    link = hashlib.sha256((link + text).encode()).hexdigest()
    lines.append('%s,"chain":"%s"}\n' % (text, link))
open(path, "w").writelines(lines)
END
}

# A run that computed wrong before its first audited step has a checkpoint of these wrong numbers,
# too: the second run begins before it.
begins_before_the_unseen() {
    good "${job[@]}" --steps 3 --lr 0.01 --save wrong --save-every 3
    choir train --resume wrong --lr 0.001 --steps 12 --save-every 3 --save-keep 9 --quiet \
        --audit=every=4 >out 2>err || fail "$(cat err)"
    forge '"begin":3' '"begin":0' wrong
    different '^different: wrong, 1 audited step from 4 to 4, run again from the beginning$' \
        audit wrong
    good audit wrong --steps 8: # the line of step 4 has the wrong numbers
    has out '^equal: wrong, 2 audited steps from 8 to 12, run again from step 3$'

    good "${job[@]}" --steps 12 --save right --save-every 3 --save-keep 9 --audit=every=4
    good audit right
    has out '^equal: right, 3 audited steps from 4 to 12, run again from the beginning$'
    good audit right --steps 9: --json
    has out '"equal":true,.*"from":6,'
    good audit right --steps 9:
    has out '^equal: right, 1 audited step from 12 to 12, run again from step 6$'
}

# Where only a later checkpoint is there, the steps that were not compared are named.
names_the_unseen() {
    rm -rf part later
    good "${job[@]}" --steps 2 --save part
    good train --resume part --save later --steps 8 --save-every 3 --save-keep 9 --quiet \
        --audit=every=4
    mv part gone
    rm -rf later/step-00000002
    good audit later
    has out '^step 3 was not compared: no audited step stands between them and' \
        '^equal: later, 2 audited steps from 4 to 8, run again from step 3$'
}

# An audit that begins in mid-run proves nothing of the steps before, and says so. Two runs with
# lines at other steps are compared by their checkpoints.
begins_late() {
    good "${job[@]}" --steps 6 --save late --save-every 3 --save-keep 9
    good train --resume late --steps 12 --quiet --audit=every=4
    good audit late
    has out '^steps 1 to 6 were not compared: the audit of late begins with step 7$' \
        '^equal: late, 2'
    good audit late --steps 9:
    ! grep -q 'not compared' out || fail "$(cat out)"
    good "${job[@]}" --steps 6 --save odd --save-every 3 --audit=every=5
    good audit diff odd late
    has out '^odd and late have no audited step in common: the weights of checkpoints were' \
        '^equal: odd and late, 1 checkpoint'
}

# Standard input comes again from its beginning, whatever the span.
of_a_stream() {
    local read=(train --model "$gpt" --bytes --batch-size 8 --microbatches 4 --no-eval --quiet)
    choir "${read[@]}" --steps 9 --save stream --save-every 3 --audit=every=3 - <text >out 2>err ||
        fail "$(cat err)"
    choir audit stream --steps 8: <text >out 2>err || fail "$(cat err)"
    has out '^equal: stream, 1 audited step from 9 to 9, run again from the beginning$'
}

# Sums are cut as in the recorded run, whatever the layout would choose by itself.
keeps_the_cut() {
    bad 1 'right could not be run again: 2 ranks do not divide 1 chunk: an audit cuts sums as' \
        audit right --strategy cp --nproc 2
    bad 1 '2 ranks share each weight and do not divide the slices: an audit cuts sums as' \
        audit right --strategy tp --nproc 2
}

# Validations choose nothing in the second run, which has no command that measures.
has_no_choice_to_make() {
    good "${job[@]}" --steps 6 --save measured --save-every 3 --audit=every=2 --eval-every 2 \
        --metric 'lines=wc -l' --best lines --patience 5
    good audit measured
    has out '^equal: measured, 3 audited steps from 2 to 6'
}

# A run shorter than the steps between two lines has checkpoints alone.
has_no_line_yet() {
    good "${job[@]}" --steps 4 --save short --audit
    good audit short
    has out '^short has no audited step yet: its audit has every 50: the weights of' \
        '^equal: short, step 4, run again from the beginning$'
    good audit diff short short
    has out '^short has no audited step yet' '^equal: short and short, 1 checkpoint$'
}

# What the run has kept of the step before shows the numbers that a step read.
values_that_were_read() {
    good "${job[@]}" --steps 2 --seed 9 --save other --save-every 2
    good "${job[@]}" --steps 4 --run read --save-every 2 --audit=every=2,dump
    cp -r read otherwise
    good "${job[@]}" --steps 4 --run noise --seed 9 --audit=every=2,dump
    cp noise/audit.jsonl otherwise
    cp noise/audit/* otherwise/audit
    forge '"seed":9' '"seed":42' otherwise
    different 'as the step read it' audit otherwise
    has out '^  first element: [a-z_0-9.]+\[[0-9]+\]$' \
        '^  the values are those after the step: those before it were not kept, or are equal$'
    ! grep -q 'kept no tensors' out || fail "$(cat out)"
}

# Ranks of tp and cp have parts of results, which are no first op that differs.
parts_are_no_ops() {
    good "${job[@]}" --steps 2 --slices 2 --run sliced --audit=every=1,dump
    good "${job[@]}" --steps 2 --slices 2 --strategy tp --nproc 2 --run shared \
        --audit=every=1,dump
    good audit diff sliced shared
    good "${job[@]}" --steps 2 --slices 2 --strategy tp --nproc 2 --run rate --lr 0.002 \
        --audit=every=1,dump
    different 'step 1 is the first audited one that differs: weight of' audit diff sliced rate
    ! grep -q 'first op' out || fail "an op: $(cat out)"
    has out 'results of ops were not compared, since ranks have parts of them' \
        '^  first element: [a-z_0-9.]+\[[0-9]+\]$'
}

# The job of the step that differs is compared, not that of a process that came later.
options_of_the_step() {
    rm -rf first second
    good "${job[@]}" --steps 4 --save first --audit=every=2
    good "${job[@]}" --steps 4 --save second --audit=every=2 --lr 0.002
    choir train --resume second --lr 0.001 --steps 6 --quiet --grace 3s --save-every 2 \
        >out 2>err || fail "$(cat err)"
    different '^lr +0.001 +\|  0.002$' audit diff first second
    ! grep -qE '^(save-every|grace|quiet) ' out || fail "$(cat out)"
}

wrong_options() {
    bad 2 'audit: --step: expected with diff RUN FILE.safetensors' audit right --step 3
    bad 2 'audit: --tolerance: expected with diff RUN FILE' audit diff right right --tolerance 1
    bad 2 'audit: --steps: expected with one run, without diff' audit diff right right --steps 3:
    bad 2 'audit: --bits: expected with one run' audit diff right x.safetensors --bits chain
}

check begins_before_the_unseen
check names_the_unseen
check begins_late
check of_a_stream
check keeps_the_cut
check has_no_choice_to_make
check has_no_line_yet
check values_that_were_read
check parts_are_no_ops
check options_of_the_step
check wrong_options
finish
