#!/bin/sh
# A program writes behind a prompt what the command writes, with a published folder's model.
#
#   check_answer.sh CHOIR PROGRAM
choir=$1 program=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/choir-answer.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

"$choir" train --model gpt2:layers=1,heads=2,width=16,context=32 --steps 3 --batch-size 4 \
    --no-eval --quiet --save run >out 2>&1 || { cat out; exit 1; }
"$program" run/latest "the sea" >out 2>err || { cat out err; exit 1; }
"$choir" generate run --prompt "the sea" --temperature 0 --json >said || exit 1
python3 -c 'import json, sys
said = [json.loads(line) for line in sys.stdin if "\"text\"" in line][-1]
print(said["text"] + "\n25 tokens: " + said["stopped"])' <said >expected
cmp out expected || { cat out expected; exit 1; }
