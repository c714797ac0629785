#!/bin/sh
# A program that does the work of `choir train`. With one rank and with two, in one run and in
# two halves, and continued by the command, its weights and optimizer have the command's bits.
#
#   check_train_any.sh CHOIR PROGRAM
choir=$1 program=$2
model=gpt2:layers=1,heads=2,width=16,context=16
folder=$(mktemp -d "${TMPDIR:-/tmp}/choir-train-any.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

run() { "$@" >out 2>err || { echo "failed: $*"; cat out err; exit 1; }; }

# same FOLDER FOLDER: the latest checkpoints hold the same tensors
same() {
    for file in model optimizer; do
        cmp "$1/latest/$file.safetensors" "$2/latest/$file.safetensors" || exit 1
    done
}

run "$program" # a small GPT on the text of Choir
grep -q '^rank 0 of 1, step 20: loss [0-9]' out || { cat out; exit 1; }

for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    echo "In line $i the ranks go on, each with a part of what all of them have to do."
done >text
for ranks in 1 2; do
    run "$choir" train text --model $model --strategy ddp --nproc $ranks --steps 12 \
        --save command$ranks --json
    run "$choir" run -n $ranks "$program" program$ranks 5 $model text
    run "$choir" run -n $ranks "$program" program$ranks 12 $model text
    same command$ranks program$ranks
done
run "$choir" run -n 2 "$program" half 5 $model text
run "$choir" train text --strategy ddp --nproc 2 --steps 12 --resume half --save rest --json
same command2 rest
