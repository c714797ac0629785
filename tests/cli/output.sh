#!/usr/bin/env bash
# The command's output. Programs get exactly the JSON that CLI.md documents; people get help
# with an example, lines on a pipe and a progress line on a terminal.
. "$(dirname "$0")/lib.sh"

make_text text 200
lm=(train --steps 6 --batch-size 12 --microbatches 3 --model "$gpt")

# --- JSON -------------------------------------------------------------------------------------

# is_json: each line of standard input is one JSON object.
is_json() {
    if command -v jq >/dev/null; then
        jq -es 'all(type == "object")' >/dev/null 2>&1
    else
        ! grep -qvE '^\{"[a-z_]+":.*\}$'
    fi
}

# keys: one line per object with its keys; values and nested keys stay in place.
keys() { sed -E 's/"([a-z_0-9]+)":/<\1>/g; s/[^<>]*<([a-z_0-9]+)>[^<>[]*/\1 /g'; }

json_of_train() {
    good "${lm[@]}" --json --eval-every 2 --eval-batches 2 --strategy ddp --nproc 2 text
    while IFS= read -r line; do
        is_json <<<"$line" || fail "no JSON: $line"
    done <out
    [ "$(grep -c '"event":"step"' out)" -eq 6 ] || fail "$(grep -c '"step"' out) steps"
    [ "$(grep '"event":"step"' out | keys | sort -u)" = \
        'event step loss loss_bits items_per_s grad_norm lr ' ] || fail "a step: $(head -n 1 out)"
    [ "$(grep '"event":"eval"' out | keys | sort -u)" = 'event step loss accuracy best ' ] ||
        fail "an eval: $(grep eval out)"
    [ "$(grep '"event":"eval"' out | sed 's/.*"step":\([0-9]*\).*/\1/' | tr '\n' ' ')" = '2 4 ' ] ||
        fail "evals: $(grep '"eval"' out)"
    tail -n 1 out | grep -q '^{"event":"summary"' || fail "the last line is $(tail -n 1 out)"
    [ "$(grep -c summary out)" -eq 1 ] || fail 'more than one summary'
}

json_of_summary() {
    good "${lm[@]}" --json --strategy ddp --nproc 2 text
    local key last device
    device='{"device":"cpu:[0-9]+","peak_bytes":[0-9]+,"busy":[0-9.]+,"comm_bytes":[0-9]+}'
    tail -n 1 out >summary
    for key in model strategy world microbatches steps parameters final_loss eval_loss \
        step_ms_median items_per_s first_step_s weights_sha256 devices; do
        grep -q "\"$key\":" summary || fail "no $key in $(cat summary)"
    done
    grep -qE "\"devices\":\\[$device,$device\\]}\$" summary || fail "devices: $(cat summary)"
    [ "$(field world out) $(field microbatches out) $(field steps out) $(field strategy out)" = \
        '2 3 6 ddp' ] || fail "$(cat summary)"
    grep -qE '"weights_sha256":"[0-9a-f]{64}"' summary || fail "weights_sha256: $(cat summary)"
    last=$(grep '"event":"step"' out | tail -n 1 | sed 's/.*"loss":\([^,]*\),.*/\1/')
    [ "$(field final_loss out)" = "$last" ] ||
        fail "final_loss $(field final_loss out), the last step's $last"
    [ "$(steps_of out | tail -n 1)" = "6 $(bits_of "$last")" ] ||
        fail "the loss $last has other bits than $(steps_of out | tail -n 1)"
}

# bits_of X: the bits of a positive float of nine digits, as in loss_bits.
bits_of() {
    awk -v x="$1" 'BEGIN {
        while (x >= 2) { x /= 2; e++ }
        while (x < 1) { x *= 2; e-- }
        printf "0x%08x", (127 + e) * 8388608 + int((x - 1) * 8388608 + 0.5)
    }'
}

# Regressions have no accuracy. Also the JSON of the other commands.
json_of_others() {
    good train --steps 2 --json random
    grep -q '"eval_accuracy":null' out || fail "accuracy of a regression: $(tail -n 1 out)"
    is_json <out || fail "$(cat out)"
    good train --steps 2 --json --save saved --model mlp:in=20,hidden=8,classes=3 random
    is_json <out || fail "$(cat out)"
    good info --json
    is_json <out && grep -q '"version":.*"backends":\[.*"devices":\[' out || fail "$(cat out)"
    good "${lm[@]}" --json --save saved_text text
    good eval --json saved_text text
    is_json <out && [ "$(wc -l <out)" -eq 1 ] || fail "eval: $(cat out)"
    good bench all_reduce -n 2 --max 4K --json
    is_json <out && grep -q '"busbw_gbs":' out || fail "bench: $(cat out)"
}

log_every_thins_out() {
    good "${lm[@]}" --json --log-every 4 text
    [ "$(steps_of out | cut -d ' ' -f 1 | tr '\n' ' ')" = '4 6 ' ] || fail "steps: $(steps_of out)"
    good "${lm[@]}" --log-every 2 text
    [ "$(grep -c '^step ' out)" -eq 3 ] || fail "lines of --log-every 2 in 6 steps: $(cat out)"
}

# --- text -------------------------------------------------------------------------------------

# A line's rate is the mean of the steps since the line before, whose times the run folder has.
rates_are_means() {
    good "${lm[@]}" --json --steps 23 --log-every 7 --run rates text
    sed -n 's/.*"step":\([0-9]*\),.*"items_per_s":\([0-9.e+]*\),.*/\1 \2/p' out >lines
    [ "$(wc -l <lines)" = 4 ] || fail "lines: $(cat out)"
    sed -n 's/.*"step_s":\([0-9.e-]*\),.*/\1/p' rates/metrics.jsonl | awk '
        NR == FNR { rate[$1] = $2; next }
        { seconds += $1; n++ }
        FNR in rate { off = rate[FNR] * seconds / (12 * 16 * n) - 1; seconds = n = 0
            wrong += off > 1e-4 || off < -1e-4 }
        END { exit wrong || FNR != 23 }' lines - ||
        fail "rates: $(cat lines rates/metrics.jsonl)"
}

text_on_a_pipe() {
    good train --steps 200 --lr 0.01 --batch-size 24 --model "$gpt" --log-every 50 text
    grep -q $'[\r\033]' out && fail 'control characters on a pipe'
    head -n 1 out | grep -qE 'gpt2:.*[0-9]+ parameters' || fail "the first line: $(head -n 1 out)"
    sed -n 's/^step .*loss \([0-9.]*\).*/\1/p' out >losses
    [ "$(wc -l <losses)" -ge 3 ] || fail "lines of steps: $(cat out)"
    awk 'NR == 1 { first = $1 } END { exit !($1 < 0.8 * first) }' losses ||
        fail "the loss does not fall: $(tr '\n' ' ' <losses)"
    grep -q 'left$' out || fail 'no time left'
    # lines have mean rates, and the last one says that it has the median step's
    has out '^200 steps: loss .*; [0-9.]+ ms per median step \([0-9.]+ tokens/s\)'
    sed -n '/What it writes/,$p' out >sample
    [ "$(wc -c <sample)" -gt 250 ] || fail "no sample: $(cat out)"
}

quiet_is_quiet() {
    good "${lm[@]}" --quiet --eval-every 2 --save quiet text
    [ "$(wc -l <out)" -eq 1 ] && grep -q '^6 steps: loss ' out || fail "--quiet: $(cat out)"
    good "${lm[@]}" --quiet --strategy ddp --nproc 2 text
    [ "$(wc -l <out)" -eq 1 ] || fail "--quiet on 2 ranks: $(cat out)"
}

text_on_a_terminal() {
    command -v script >/dev/null || { echo 'no script(1): no terminal'; return; }
    timeout 60 script -qefc "$CHOIR train --steps 400 --model $gpt text" typescript \
        >/dev/null 2>&1 </dev/null || fail "status $? on a terminal"
    grep -q $'\r\033\\[K' typescript || fail 'no line is rewritten'
    tr '\r' '\n' <typescript | grep -qE 'step [0-9]+/400 .*loss [0-9.]+.* [0-9]+:[0-9]{2} left' ||
        fail "no progress: $(head -c 500 typescript)"
    grep -q '400 steps: loss' typescript || fail "no last line: $(tail -n 5 typescript)"
}

# mpirun may give its ranks a terminal where it writes to a file itself. Ranks that call their
# devices alike are told apart.
relayed_by_mpirun() {
    local place=OMPI_COMM_WORLD_
    command -v script >/dev/null || { echo 'no script(1): no terminal'; return; }
    timeout 60 script -qefc "env ${place}RANK=0 ${place}SIZE=1 ${place}LOCAL_RANK=0 \
        ${place}LOCAL_SIZE=1 $CHOIR train --steps 40 --model $gpt text" typescript \
        >/dev/null 2>&1 </dev/null || fail "status $? on a terminal of mpirun"
    ! grep -q $'\033' typescript || fail 'lines are rewritten under mpirun'
    grep -q '40 steps: loss' typescript || fail "no last line: $(tail -n 5 typescript)"
    CHOIR_CPU_DEVICES=1 OMP_NUM_THREADS=1 good run -n 2 "$CHOIR" train "${lm[@]:1}" text
    has out '  rank 0 +cpu:0 +peak' '  rank 1 +cpu:0 +peak'
    good "${lm[@]}" --strategy ddp --nproc 2 text
    has out '^  cpu:0 +peak' '^  cpu:1 +peak'
}

# What stands where in a help, and that it names choices once.
help_is_in_order() {
    local words
    good --help
    has out '^  checkpoint  inspect, ' '^  train       train a model'
    good train --help
    awk '/^[A-Z]/ { group = $0 } /^  --(summary|find-lr|debug-nan|json) / { print $1, group }' out |
        sort >groups
    diff - groups <<'END' || fail 'options are in other groups'
--debug-nan Training
--find-lr Instead of training
--json Output
--summary Instead of training
END
    for words in train 'tune show' 'tune plot'; do
        # shellcheck disable=SC2086 # words
        good $words --help
        tr -s '\n ' ' ' <out >line
        has line '[(]default (choir|ped-anova)[)][^-]*(-anova)?[^-]*one of'
        ! grep -qE '[(]the default[)][^-]*(-anova)?[^-]*; one of' line || fail "twice: $(cat out)"
    done
}

help_has_an_example() {
    good --help
    grep -q 'choir train ' out || fail 'no example in choir --help'
    for command in $(sed -n 's/^  \([a-z]*\)  .*/\1/p' out); do
        good "$command" --help || continue
        head -n 1 out | grep -q "^Usage: choir $command" || fail "$command: $(head -n 1 out)"
        sed -n '/Example/,$p' out | grep -q "choir $command" || fail "$command has no example"
        awk 'length > 80' out | grep . && fail "$command --help is wider than 80 columns"
        grep -q ' $' out && fail "$command --help has blanks at a line's end"
    done
    good --version
    grep -qE '^choir [0-9]+\.[0-9]+' out || fail "--version: $(cat out)"
    good info
    grep -q 'cpu:0' out || fail "info: $(cat out)"
}

# Every option that CLI.md lists for train and this build supports is in its help.
help_lists_the_options() {
    good train --help
    for option in model strategy devices nproc backend timeout batch-size microbatches steps \
        epochs optimizer lr schedule weight-decay clip mem-cap eval-every eval-batches seed save \
        save-every resume threads json quiet log-every; do
        grep -q -e "--$option" out || fail "--$option is not in the help"
    done
    sed -n '/--strategy/,/--mesh/p' out |
        awk '/ \[:/ { open = 1 } open && !/]$/ && length < 60; /]$/ { open = 0 }' | grep . &&
        fail "a strategy's options are broken before the line is full"
}

# The sample follows training with every strategy, and equal weights write equal texts.
samples() {
    local strategy
    for strategy in single dp mp "ddp --nproc 2" pipeline; do
        good "${lm[@]}" --no-eval --strategy $strategy text
        sed -n '/What it writes/,$p' out >"sample.${strategy%% *}"
        [ "$(wc -l <"sample.${strategy%% *}")" -gt 1 ] ||
            fail "$strategy writes nothing: $(cat out)"
        cmp sample.single "sample.${strategy%% *}" || fail "$strategy writes another text"
    done
    good "${lm[@]}" --no-eval --strategy tp --nproc 2 text
    has out 'What it writes:$' 'no rank has the whole model here: choir generate'
}

# With descriptors 0 to 2 closed, sockets and files do not take their numbers: no JSON gets into
# them, checkpoints are whole, and ranks end as ever but for the output that cannot be written.
closed_descriptors() {
    local all=(train --model toy --strategy ddp --nproc 2 --steps 3 --quiet --no-eval --seed 5)
    good "${all[@]}" --json --save whole random
    choir "${all[@]}" --save closed random <&- >&- 2>&-
    choir "${all[@]}" random <&- >out 2>&- || fail "status $? without standard error"
    good checkpoint verify closed
    cmp closed/latest/model.safetensors whole/latest/model.safetensors || fail 'other weights'
    choir "${all[@]}" --json random <&- >&- 2>err
    [ $? -eq 1 ] || fail 'JSON without standard output is a success'
    has err 'cannot write to standard output'
    choir run -n 1 "$CHOIR" --version <&- >&- 2>err
    [ $? -eq 1 ] || fail "choir run without standard output: $(cat err)"
}

check json_of_train
check json_of_summary
check json_of_others
check log_every_thins_out
check rates_are_means
check text_on_a_pipe
check quiet_is_quiet
check text_on_a_terminal
check relayed_by_mpirun
check help_is_in_order
check help_has_an_example
check help_lists_the_options
check samples
check closed_descriptors
finish
