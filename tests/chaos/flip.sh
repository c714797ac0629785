# Faults in memory, products and files: script/chaos --flip says which, and what is expected.
# shellcheck shell=bash
# shellcheck disable=SC2154 # seed: of script/chaos
struck=${CHOIR_STRUCK:-${CHOIR%/*}/tests/choir_struck}
flip_kinds=(bit bits periodic stuck product core file)
flip_places=(pool pool pool shared heap saves)
flip_job=(train --model "$gpt" --batch-size 12 --microbatches 3 --no-eval --steps 8 --strategy ddp
    --nproc 3 --timeout 10 --save-every 1 --save-keep 99 --json text) # the last --strategy counts

# flip_run FOLDER STRIKE ARG...: runs the job under a fault; sets `status`.
flip_run() {
    local folder=$1 strike=$2
    shift 2
    rm -rf "$folder" strike.log
    CHOIR_STRIKE=$strike CHOIR_STRIKE_LOG=strike.log LIMIT=30 CHOIR=$struck \
        choir "${flip_job[@]}" --save "$folder" --audit=every=1,recheck="$recheck" "$@" >out 2>err
    status=$?
}

# numbers STATE.JSON: what it says of the training; its list of files differs by the job's record.
numbers() { sed '/^  "files": {/,/^  }/d; /^  "sha256"/d' "$1"; }

# Sets `spoiled`, the checkpoints that differ from those of the calm job, and `unnoticed`, those of
# them that choir checkpoint verify finds whole.
look_at_checkpoints() {
    local step file
    spoiled=0 unnoticed=0
    for step in "$1"/step-*; do
        [ -d "$step" ] || continue
        for file in "calm/${step##*/}"/{*.safetensors,state.json}; do
            case $file in
            *.json) [ "$(numbers "$file")" != "$(numbers "$step/state.json")" ] || continue ;;
            *) ! cmp -s "$step/${file##*/}" "$file" || continue ;;
            esac
            spoiled=$((spoiled + 1))
            ! choir checkpoint verify "$step" >/dev/null 2>&1 || unnoticed=$((unnoticed + 1))
            break
        done
    done
}

# Sets `outcome` of the last run: none (the job has not noticed it, and has the calm one's numbers),
# once, later (after more than one step), missed, saved (missed, and in a checkpoint), or hung.
judge_flip() {
    local at found
    at=$(sed -n 's/.* step \([0-9]*\) .*struck.*/\1/p' strike.log | head -n 1)
    found=$(cat err out | grep -o '\(in step\|gradients was damaged.* in step\) [0-9]*' |
        grep -o '[0-9]*$' | head -n 1)
    look_at_checkpoints "$1"
    if [ "$unnoticed" -gt 0 ]; then
        outcome=saved
    elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        outcome=hung
    elif [ -n "$found" ] && [ "$found" -gt $((at + 1)) ]; then
        outcome=later
    elif [ "$status" -ne 0 ] || [ -n "$found" ] || grep -q '"event":"membership"' out; then
        outcome=once
        [ "$status" -ne 0 ] || grep -q "$calm_weights" out || outcome=missed
    elif grep -q "$calm_weights" out; then
        outcome=none
    else
        outcome=missed
    fi
}

# Changes a bit of a saved file, which choir checkpoint verify must see.
flip_file() {
    local files file size at byte
    rm -rf saved && cp -r calm saved
    files=(saved/step-*/*.safetensors saved/step-*/*.json)
    file=${files[RANDOM % ${#files[@]}]}
    size=$(stat -c %s "$file") at=$((RANDOM * 32768 + RANDOM))
    at=$((at % size))
    byte=$(od -An -tu1 -j $at -N 1 "$file")
    # shellcheck disable=SC2059 # an escape
    printf "$(printf '\\%03o' $((byte ^ (1 << RANDOM % 8))))" |
        dd of="$file" bs=1 seek=$at conv=notrunc status=none
    outcome=once
    ! choir checkpoint verify "${file%/*}" >out 2>err || outcome=saved
    fault="file ${file##*/} $at"
}

# Draws a fault, runs the job under it and counts its outcome in `flips`.
flip_once() {
    local kind=${flip_kinds[RANDOM % ${#flip_kinds[@]}]} rank=$((RANDOM % 3)) place args=()
    place=${flip_places[RANDOM % ${#flip_places[@]}]}
    case $kind in product | core) place=products ;; file) place=files ;; esac
    [ $((RANDOM % 2)) -eq 0 ] || args=(--max-restarts 3)
    fault="$((RANDOM * 32768 + RANDOM)):$rank:$((RANDOM % flip_calls + 1)):$kind:$place"
    if [ "$kind" = file ]; then
        flip_file
    else
        flip_run struck "$fault" "${args[@]}"
        if ! grep -q struck strike.log 2>/dev/null; then
            flips[unstruck]=$((${flips[unstruck]:-0} + 1))
            return
        fi
        judge_flip struck
    fi
    flips[$kind $place $outcome]=$((${flips[$kind $place $outcome]:-0} + 1))
    case $outcome in
    missed | saved | hung)
        echo "$outcome: $fault ${args[*]}: $(cat strike.log 2>/dev/null)"
        [ ! -s err ] || sed 's/^/    /' err
        ;;
    esac
}

# A job without a fault says nothing and has the numbers of one without hashes.
flip_calm() {
    rm -rf calm
    choir "${flip_job[@]}" --save calm >out 2>err || fail "the calm job: $(cat err)" || return
    calm_weights=$(weights out)
    flip_run quiet 1:0:0:none:none "$@"
    [ "$status" -eq 0 ] && [ ! -s err ] && grep -q "$calm_weights" out &&
        ! grep -q '"event":"membership"' out || fail "a false alarm: $(cat err)" || return
    flip_calls=$(sed -n 's/.* calls \([0-9]*\) .*counted.*/\1/p' strike.log | sort -n | tail -n 1)
    [ "${flip_calls:-0}" -gt 0 ] || fail 'no rank has counted its products'
}

flip_table() {
    local key row outcome
    local -A all=()
    printf '%-10s %-10s %8s %8s %8s %8s %8s %8s\n' fault in none once later missed saved hung
    while read -r row; do
        # shellcheck disable=SC2086 # two words
        printf '%-10s %-10s' $row
        for outcome in none once later missed saved hung; do
            printf ' %8s' "${flips[$row $outcome]:-0}"
            all[$outcome]=$((${all[$outcome]:-0} + ${flips[$row $outcome]:-0}))
        done
        printf '\n'
    done < <(for key in "${!flips[@]}"; do
        [ "$key" = unstruck ] || echo "${key% *}"
    done | sort -u)
    printf '%-21s' all
    for outcome in none once later missed saved hung; do printf ' %8s' "${all[$outcome]}"; done
    printf '\n'
    echo "${flips[unstruck]:-0} faults came too late to strike"
}

# Under recheck=1 no fault is missed, and none is in a checkpoint that verify finds whole.
none_missed() {
    local key
    for key in "${!flips[@]}"; do
        case $key in
        *missed | *saved | *hung) fail "${flips[$key]} faults: $key" ;;
        esac
    done
}

# flip N: N faults.
flip() {
    local n
    recheck=1
    declare -gA flips=()
    check flip_calm || finish
    for ((n = 1; n <= $1; n++)); do
        flip_once
        [ $((n % 100)) -ne 0 ] || check flip_calm --max-restarts 3 # false alarms
    done
    flip_table
    check none_missed
    finish
}
