# One model, one seed, one declared cut, on every layout: the hash of the weights must be one.
#
#   script/bench layouts [--steps=N] [--rows=PATTERN]
#
# N: default 10. PATTERN: the rows to run, as grep -E takes it, such as '^(single|cp)'; all by
# default.
#
# A row for each layout, as public tables of other systems have, in which losses differ from row to
# row: M = 8 micro-batches, T = 4 slices, S = 8 chunks. Up to 8 ranks share the machine's cores, so
# a time shows that a layout runs, not how fast it could be. Memory and traffic: the busiest rank.
. "$(dirname "$0")/lib.inc"

steps=10 rows=.
for argument; do
    case $argument in
    --steps=*) steps=${argument#*=} ;;
    --rows=*) rows=${argument#*=} ;;
    *) echo "script/bench layouts: expected --steps=N or --rows=PATTERN, got '$argument'" >&2
        exit 2 ;;
    esac
done
export CHOIR_CPU_DEVICES=8
cut=(--microbatches 8 --slices 4 --chunks 8)
job=(--model llama:layers=8,heads=8,kv_heads=4,width=128,hidden=352,context=128 --batch-size 16
    --steps "$steps" --seed 7 --clip 1 --lr 1e-3 --log-every 1 --no-eval)

# STRATEGY MESH: a mesh has as many numbers as the strategy has parts
layouts='single 1
ddp 8
fsdp 2
fsdp 8
pipeline 2
pipeline 4
pipeline 8
tp 2
tp 4
tp:sequence_parallel=1 4
cp 2
cp 4
ddp+pipeline 2x4
fsdp+tp 2x4
fsdp+cp 2x4
tp+pipeline 4x2
cp+pipeline 4x2
cp+tp 2x4
fsdp+tp+pipeline 2x2x2
fsdp+cp+tp 2x2x2
cp+tp+pipeline 2x2x2'

loss_at() { sed -n "s/.*\"event\":\"step\",\"step\":$1,\"loss\":\([^,}]*\).*/\1/p" "$out"; }
# most NAME: the largest of the devices' numbers
most() { grep -o "\"$1\":[0-9]*" <<<"$summary" | cut -d: -f2 | sort -n | tail -1; }

machine
echo "${job[*]} ${cut[*]}"
printf '%-22s %-6s %-16s %12s %12s %12s %9s %9s %10s\n' layout mesh 'weights (hash)' "loss at 1" \
    "at $(((steps + 1) / 2))" "at $steps" 'step, ms' 'peak, MiB' 'moved, MiB'
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0
declare -A hashes
while read -r strategy mesh; do
    ranks=(--nproc "$mesh")
    [[ $mesh = *x* ]] && ranks=(--mesh "$mesh")
    [ "$strategy" = single ] && ranks=()
    if ! choir train --json "${job[@]}" "${cut[@]}" --strategy "$strategy" "${ranks[@]}" \
        >"$out" 2>"$out.err"; then
        printf '%-22s %-6s failed: %s\n' "$strategy" "$mesh" "$(tail -n 1 "$out.err")"
        failed=1
        continue
    fi
    summary=$(tail -1 "$out")
    hash=$(sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' <<<"$summary")
    hashes[$hash]=1
    printf '%-22s %-6s %-16s %12s %12s %12s %9.1f %9.2f %10.2f\n' "$strategy" "$mesh" \
        "${hash:0:16}" "$(loss_at 1)" "$(loss_at $(((steps + 1) / 2)))" "$(loss_at "$steps")" \
        "$(field step_ms_median <<<"$summary")" \
        "$(calc "$(most peak_bytes) / 1048576")" "$(calc "$(most comm_bytes) / 1048576 / $steps")"
done < <(grep -E -e "$rows" <<<"$layouts")
rm -f "$out.err"
echo "hashes: ${#hashes[@]}"
[ "$failed" = 0 ] && [ "${#hashes[@]}" = 1 ]
