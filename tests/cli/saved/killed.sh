#!/usr/bin/env bash
# Jobs that are killed at each change of a name or link while they save: what continues ends with
# the weights, the best checkpoint and the records of a job that was never killed.
. "$(dirname "$0")/../lib.sh"
command -v "${CC:-cc}" >/dev/null || skip 'there is no C compiler'

make_text text 40
# Ends the process before the n-th rename or link, n in KILL_AT.
cat >kill.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void count(void)
{
    static int calls;
    const char *at = getenv("KILL_AT");
    if (at && ++calls == atoi(at))
        kill(getpid(), SIGKILL);
}
int rename(const char *from, const char *to)
{
    count();
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
int symlink(const char *to, const char *path)
{
    count();
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "symlink"))(to, path);
}
END
${CC:-cc} -shared -fPIC -o kill.so kill.c -ldl || skip 'no shared library can be built'

# The evaluations of a run, without their times, in their order.
evals() { grep '"event":"eval"' "$1/events.jsonl" | sed -E 's/"(time|eval_s)":[^,}]*,?//g'; }
best_sum() { sha256sum <"$1/best/model.safetensors"; }

# The steps and losses of the evaluations in a table.
eval_rows() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "eval/loss") at = i; next }
        $at != "" { print $1, $at }' "$1"
}

# killed_at_each OPTION...: the job continues after each kill.
killed_at_each() {
    local job=(--json --model "$gpt" --batch-size 4 --steps 4 --lr 0.3 "$@") at
    rm -rf whole
    good train "${job[@]}" --save whole --log csv:whole.csv text && mv out one
    for ((at = 1; at < 60; at++)); do
        rm -rf run
        KILL_AT=$at ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
            LD_PRELOAD=$PWD/kill.so \
            choir train "${job[@]}" --save run --log csv:run.csv text >/dev/null 2>&1
        status=$?
        [ "$status" != 0 ] || break # it had fewer changes
        [ "$status" = 137 ] || { fail "status $status at $at"; return; }
        if [ -e run/latest ] || compgen -G 'run/step-*' >/dev/null; then
            choir train --json --resume run >out 2>err || fail "resumed after $at: $(cat err)"
        else
            rm -rf run
            good train "${job[@]}" --save run --log csv:run.csv text
        fi
        [ "$(field weights_sha256 out)" = "$(field weights_sha256 one)" ] ||
            fail "other weights after $at"
        [ "$(field skipped_steps out)" = "$(field skipped_steps one)" ] ||
            fail "after $at no skipped steps are told"
        [ "$(readlink run/best)" = "$(readlink whole/best)" ] &&
            [ "$(best_sum run)" = "$(best_sum whole)" ] ||
            fail "after $at the best is $(readlink run/best), not $(readlink whole/best)"
        [ "$(evals run)" = "$(evals whole)" ] ||
            fail "other evaluations after $at: $(diff <(evals whole) <(evals run))"
        [ "$(eval_rows run.csv)" = "$(eval_rows whole.csv)" ] ||
            fail "another table after $at: $(eval_rows run.csv)"
    done
    [ "$at" -gt 8 ] && [ "$at" -lt 60 ] || fail "$at changes"
}

check killed_at_each --eval-every 2 --save-every 100
check killed_at_each --eval-every 2 --save-every 2 --amp fp16
check killed_at_each --eval-every 1 --save-every 100 --eval-batches 1 --patience 1 --lr 40
finish
