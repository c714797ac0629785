#!/bin/bash
# What must not become slower, in a minute: ratios to yardsticks that are measured in the same run.
#
# Each ratio is Choir's speed over a yardstick's, so higher is better, and a slower machine changes
# both. Choir and yardstick take turns, ROUNDS times. Beside the median and its noise (half of the
# middle half of the rounds) stands the ratio that this kind of processor had before, from its
# file in bench/seen/: no yardstick has the same ratio on all. The exit status is 1 if a ratio is
# worse than that by more than 3 % and twice its noise.
#
#   ROUNDS=5     UPDATE=1: writes today's ratios to that file
#
# Kernels are timed in steps of small models, in f32, bf16 and f16, each over the rate of a
# product of 1024 x 1024 x 1024 in f32.
set -uo pipefail
source bench/lib.inc
rounds=${ROUNDS:-5}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
machine

nano=(--model gpt2:layers=4,heads=4,width=128,context=64,vocab=65 --steps 10 random)
flops=7.92e9 # of a step of nano with 24 x 64 tokens: 6 x parameters x tokens, and attention

note() { # NAME SPEED YARDSTICK: adds a round's ratio
    if [ -n "$2" ] && [ -n "$3" ]; then echo "$(digits=5 calc "$2 / ($3)")" >>"$out/$1"; fi
}
on_core() { # NUMBER
    taskset -c "$1" choir train --json --eval-batches 1 "${nano[@]}" --batch-size 24
}
all_reduce_us() { # SIZE
    choir bench all_reduce -n 2 --min "$1" --max "$1" --json | field time_us
}
note_kernels() { # DTYPE OPTION...
    local dtype=$1 kernel rate
    shift
    while read -r kernel rate; do
        note "$kernel in $dtype, the rate of matrices" "$rate" "$matrix"
    done < <(taskset -c 0 choir_bench_shapes --small "$@")
}

for _ in $(seq "$rounds"); do
    build/choir_bench_yardsticks >"$out/yard"
    matrix=$(build/choir_bench_matmul_rate) # GFLOP/s
    on_core 0 >"$out/left" &
    on_core 1 >"$out/right"
    wait
    left=$(field step_ms_median <"$out/left") right=$(field step_ms_median <"$out/right")
    apart=$(calc "($left + $right) / 2")
    slower=$(slower_ms "$out/left" "$out/right")
    one=$(on_core 0 | field step_ms_median)
    ddp=$(train "${nano[@]}" --batch-size 48 --strategy ddp --nproc 2 | field step_ms_median)
    fsdp=$(train "${nano[@]}" --batch-size 48 --strategy fsdp --nproc 2 | field step_ms_median)
    toy=$(train --model toy --steps 20000 random | field step_ms_median)
    note 'two processes apart, two ranks of ddp' "$apart" "$ddp"
    note 'two processes apart, two ranks of fsdp' "$apart" "$fsdp"
    note 'the slower of two apart in each step, ddp' "$slower" "$ddp"
    note 'nano on one core, the rate of matrices' "$(calc "$flops / $one / 1e6")" "$matrix"
    note 'a line to the other core and back six times, all-reduce of 1 KiB' \
        "$(field line_us <"$out/yard")*6" "$(all_reduce_us 1K)"
    note 'its reads and writes alone, all-reduce of 1 MiB' \
        "$(choir_bench_traffic 2 1048576 1048576 4 | field time_us)" "$(all_reduce_us 1M)"
    note_kernels f32
    note_kernels bf16 --amp bf16
    note_kernels f16 --amp fp16
    note '3200 empty calls, a step of toy' "$(field calls_us <"$out/yard")*50" "$toy*1e3"
done

worse=0
section guard >"$out/before.txt"
printf '%-68s %8s %8s %8s\n' ratio now noise before
for file in "$out"/*,*; do
    name=$(basename "$file")
    read -r now noise < <(grep . "$file" | sort -g | awk '{v[NR]=$1} END {
        printf "%.3f %.3f\n", v[int((NR+1)/2)], (v[int(3*(NR-1)/4)+1] - v[int((NR-1)/4)+1]) / 2}')
    before=$(sed -n "s|^$name: ||p" "$out/before.txt")
    verdict=$(awk -v n="$now" -v s="$noise" -v b="${before:-0}" \
        'BEGIN { if (n < b * 0.97 && n < b - 2 * s) print "worse" }')
    [ -z "$verdict" ] || worse=1
    printf '%-68s %8s %8s %8s %s\n' "$name" "$now" "$noise" "${before:--}" "$verdict"
    echo "$name: $now" >>"$out/today"
done
if [ -n "${UPDATE:-}" ]; then
    { circumstances; cat "$out/today"; } | put_section guard
elif [ ! -s "$out/before.txt" ]; then
    echo "this processor, $(processor_key), has no ratios yet:" \
        "UPDATE=1 script/bench guard, on an idle machine, writes $seen"
fi
exit $worse
