#!/usr/bin/env bash
# choir check: the answers of this build are the release's on every instruction set, all cores are
# asked, and so are other machines.
project=$(cd "$(dirname "$0")/../../.." && pwd)
. "$(dirname "$0")/../lib.sh"

# The constants are those of each set of kernels that this processor has.
answers_of_each_set() {
    local isa
    for isa in avx512 avx2 baseline; do
        if ! CHOIR_ISA=$isa "$CHOIR" train --steps 1 random >out 2>err; then
            grep -q "lacks these" err || fail "$isa: $(cat err)"
            echo "skipped: answers of $(sed 's/.*CHOIR_ISA=//' err)"
            continue
        fi
        CHOIR_ISA=$isa "$project/script/known-answers" --check "$CHOIR" 2>err ||
            fail "$isa: $(head -n 5 err)"
    done
}

all_cores() {
    good check --burn-in 0.1s
    grep -q "^cpu, class chain *[0-9a-f]\{16\}$" out || fail "$(cat out)"
    grep -q "^$(nproc) cores, [0-9]* answers, [0-9]* rounds: all as they should be$" out ||
        fail "$(cat out)"
    good check --burn-in 0.1s --json
    [ "$(grep -c '^{"event":"check","device":"cpu:[0-9]*","bits":"chain","ok":true,"hash":"' out)" \
        -eq "$(nproc)" ] || fail "$(cat out)"
    [ "$(grep '"bits":"chain"' out | grep -o '"hash":"[0-9a-f]\{16\}"' | sort -u | wc -l)" = 1 ] &&
        tail -n 1 out | grep -q '^{"event":"checked","cores":'"$(nproc)"',.*"faults":0}$' ||
        fail "$(cat out)"
    good info --kernels --json
    [ "$(grep -c '"pass":"forward"' out)" -eq "$("$CHOIR" check --answers | grep -c ', f32$')" ] ||
        fail "not every op of info --kernels has an answer"
}

# A machine is a command here. One has a core that computes otherwise.
other_machines() {
    cat >reach <<'END'
#!/bin/sh
host=$1
shift
case $host in
good*) exec "$@" ;;
bad) "$@" | sed 's/"faults":0/"faults":1/
    s/"cpu:0",\(.*\)"op":null/"cpu:0",\1"op":"gelu, f32"/' ;;
silent) sleep 600.125 ;;
*) echo "cannot reach $host" >&2; exit 255 ;;
esac
END
    chmod +x reach
    good check --burn-in 0.1s --hosts good1,good2 --through "$PWD/reach {}"
    [ "$(grep -c 'all as they should be' out)" -eq 2 ] || fail "$(cat out)"
    choir check --burn-in 0.1s --hosts good1,bad,gone --through "$PWD/reach {}" >out 2>err
    [ $? -eq 1 ] || fail "a bad core is no failure"
    grep -q '^bad: core 0 computes otherwise: gelu, f32 of the class chain$' out &&
        grep -q '^bad: .* there are faults$' out && grep -q '^good1: .* should be$' out ||
        fail "$(cat out)"
    is_one_line 'gone: it does not answer: cannot reach gone' || fail "$(cat err)"
    good check --burn-in 0.1s --hosts good1 --through "$PWD/reach {}" --json
    [ "$(grep -c '"event":"check".*"host":"good1"}$' out)" -ge "$(nproc)" ] || fail "$(cat out)"
}

# A machine that is lost behind its connection is given up, and the others are heard. It is waited
# for while the other checks run.
begin_silent_machine() {
    choir check --burn-in 0.1s --hosts silent,good1 --through "$PWD/reach {}" >late 2>late-err &
    silent_pid=$!
}

silent_machine() {
    wait $silent_pid
    [ $? -eq 1 ] || fail "a silent machine is no failure: $(cat late late-err)"
    grep -q '^good1: .* should be$' late || fail "the other machine is not heard: $(cat late)"
    grep -q 'silent: it does not answer' late-err || fail "$(cat late-err)"
    ! pgrep -f 'sleep 600[.]125' >silent || fail "its command runs on: $(cat silent)"
}

wrong_requests() {
    bad 2 'expected names of at most' check --hosts 'a;b'
    bad 2 'expected a time such as' check --burn-in soon
    bad 2 'choose one of them' check --quick --burn-in 1s
}

check other_machines
begin_silent_machine
check answers_of_each_set
check all_cores
check wrong_requests
check silent_machine
finish
