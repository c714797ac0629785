#!/bin/sh
# A program trains the job of a document (choir/job.h). Its weights have the bits of `choir train`
# with the same document: on one rank and on several, as ranks of `choir run`, with the best
# checkpoint, and when either goes on from a run that the other has begun.
#
#   check_job.sh CHOIR PROGRAM
choir=$1 program=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/choir-job.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

quiet() { [ ! -s err ] || { echo "on standard error:"; cat err; exit 1; }; }
run() { "$@" >out 2>err || { echo "failed: $*"; cat out err; exit 1; }; }

# Both print the hash of the final weights, in ways of their own.
by_command() {
    run "$choir" train "$@" --json
    sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' out >weights
    [ -s weights ] || { echo "no weights: $*"; cat out; exit 1; }
}
by_program() {
    run "$@"
    sed -n 's/^\(\[rank0\]: \)\{0,1\}weights \([0-9a-f]*\)$/\2/p' out >weights
    [ -s weights ] || { echo "no weights: $*"; cat out; exit 1; }
}
same() {
    cmp whole weights || { echo "$1: other weights"; exit 1; }
}

run "$program" # two ranks, without a document
[ "$(grep -c '^step .* loss [0-9]' out)" = 20 ] || { cat out; exit 1; }

for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    echo "In line $i the ranks go on, each with a part of what all of them have to do."
done >text
run "$choir" train text --print-job --strategy single --microbatches 2 --steps 12 \
    --model gpt2:layers=2,heads=2,width=16,context=16
cp out job.json

by_command job.json
mv weights whole
by_program "$program" job.json
quiet
same "one rank"
by_program "$program" job.json strategy ddp nproc 2
quiet
same "two ranks"
by_program "$program" job.json strategy ddp+pipeline mesh 2x2
same "two replicas of a pipeline"
by_program "$choir" run -n 2 "$program" job.json strategy ddp
same "two ranks of choir run"

by_program "$program" job.json steps 5 eval-every 2 save by_program
grep -q "^best by_program/best$" out || { cat out; exit 1; }
for file in job.json metrics.jsonl events.jsonl latest/model.safetensors best/model.safetensors
do
    [ -f "by_program/$file" ] || { echo "by_program/$file is missing"; exit 1; }
done
cp by_program/best/model.safetensors best_of_program
by_command --resume by_program --steps 12 --strategy ddp --nproc 2
same "the command goes on"
by_command job.json --steps 5 --eval-every 2 --save by_command
cmp by_command/best/model.safetensors best_of_program || exit 1
by_program "$program" by_command/job.json resume by_command steps 12
same "the program goes on"

# A fault is one sentence, on standard error, which the example prints by choir_check.
for wrong in "nowhere.json" "job.json stesp 4" "job.json steps 0" "job.json patience 2"; do
    # shellcheck disable=SC2086
    "$program" $wrong >out 2>err && { echo "taken: $wrong"; exit 1; }
    if [ "$(wc -l <err)" != 1 ] || [ -s out ]; then
        echo "$wrong:"; cat out err; exit 1
    fi
done
