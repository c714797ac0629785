#!/usr/bin/env bash
# What a training leaves: its run folder, the logs that --log names, and curves of them. A kill or
# a full disk costs no more than what could not be written, and a run that goes on goes on in the
# same curve.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/lib.sh"

make_text text 200
lm=(--batch-size 12 --microbatches 2 --model "$gpt")

# losses FILE: "step bits" for each line of metrics.jsonl, as steps_of has it.
losses() {
    python3 -c '
import json, struct, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    print(row["step"], "0x%08x" % struct.unpack("I", struct.pack("f", row["loss"])))' "$1"
}
events() { sed -n 's/.*"event":"\([a-z]*\)".*/\1/p' "$1" | tr '\n' ' '; }

# The folder has every step, with the bits that --json prints.
folder_has_all() {
    good train --json "${lm[@]}" --steps 6 --eval-every 3 --save-every 4 --save run "$@" text
    [ "$(losses run/metrics.jsonl)" = "$(steps_of out)" ] || fail "$(losses run/metrics.jsonl)"
    has run/metrics.jsonl '"lr":0.001,' '"grad_norm":[0-9]' '"items_per_s":' '"step_s":' \
        '"items":1152,' '"device/0/cpu:0/bytes":[1-9]' '"device/0/cpu:0/busy":[01]' \
        '"device/0/cpu:0/(weights|gradients|optimizer)_bytes":[1-9]'
    [ $# = 0 ] || has run/metrics.jsonl '"device/1/cpu:1/bytes":[1-9]'
    [ "$(events run/events.jsonl | tr ' ' '\n' | sort | tr '\n' ' ')" = \
        'begin checkpoint checkpoint checkpoint end eval eval ' ] || # a save ends when it ends
        fail "events: $(events run/events.jsonl)"
    has run/events.jsonl "\"weights_sha256\":\"$(field weights_sha256 out)\""
    has run/job.json '"format": "choir-job"' '"lr": 0.001' '"steps": 6' '"recompute": false' \
        "\"data_sha256\": \"$(sha256sum <text | cut -c 1-64)\"" '"host": ' '"products": ' \
        '"optimizer": "adamw:beta1=0.9,beta2=0.999,eps=1e-08,' '"weight-decay": 0.01,' \
        '"schedule": "constant:warmup=0"' '"amp": "off"'
    [ ! -s run/stderr.log ] || fail "stderr.log: $(cat run/stderr.log)"
    rm -rf run
}

run_has_no_checkpoints() {
    good train --quiet "${lm[@]}" --steps 2 --run only text
    [ "$(ls only | tr '\n' ' ')" = 'events.jsonl job.json metrics.jsonl stderr.log ' ] ||
        fail "files: $(ls only)"
    bad 1 'only holds the records of another run' train --quiet "${lm[@]}" --steps 1 --run only text
    bad 1 'run:only holds the records of another run' train --quiet "${lm[@]}" --steps 1 \
        --log run:only text
}

# A killed run goes on: each step is there once, with the bits of an undisturbed one. Its output
# fills the pipe, so it cannot end before it is killed.
goes_on_after_a_kill() {
    local logs=(--log csv:loss.csv --log "mlflow:$PWD/ml")
    rm -rf run ml loss.csv
    good train --json "${lm[@]}" --steps 300 text && mv out whole
    start_until 130 train --json "${lm[@]}" --steps 300 --save-every 50 --save run "${logs[@]}" text
    kill -KILL -- "-$started_pid"
    end_started
    started_pid=
    printf '{"step":99,"lo' >>run/metrics.jsonl # as a kill in mid-write may leave it
    printf '99,12' >>loss.csv
    good train --json --resume run && mv out rest # with the logs of the run
    [ "$(losses run/metrics.jsonl)" = "$(steps_of whole)" ] || fail "$(losses run/metrics.jsonl)"
    [ "$(grep -c '"event":"begin"' run/events.jsonl)" = 2 ] || fail "$(cat run/events.jsonl)"
    [ "$(cut -d, -f1 loss.csv | tr '\n' ' ')" = "step $(seq -s ' ' 300) 300 " ] ||
        fail "steps of the table: $(cut -d, -f1 loss.csv | tr '\n' ' ')"
    [ "$(cut -d' ' -f3 ml/*/*/metrics/loss | tr '\n' ' ')" = "$(seq -s ' ' 300) " ] ||
        fail "steps of MLflow: $(cut -d' ' -f3 ml/*/*/metrics/loss | tr '\n' ' ')"
    rm -rf run ml loss.csv
}

# A run goes on in its logs, however its folder is written, from one of its steps and beside a
# folder of --run, too; not those of another run, which would lose what they have.
logs_go_on() {
    local from to table=(train --quiet "${lm[@]}" --steps 4 --save-every 2 --save-keep 3)
    steps_in_table() { grep -c '^[0-9]*,[0-9.]*,[0-9]' "$1"; }
    for from in run/ ./run/latest run/step-00000002; do
        rm -rf run loss.csv
        good "${table[@]}" --save run --log csv:loss.csv --log tensorboard:board \
            --log-histograms 2 text
        good train --quiet --resume "$from" --save run --steps 6
        [ "$(steps_in_table loss.csv)" = 6 ] || fail "$from: $(cat loss.csv)"
        has run/job.json "\"csv:$PWD/loss.csv\"" "\"tensorboard:$PWD/board\"" \
            '"log-histograms": 2'
    done
    noted 'does not continue the logs of run: csv:/.*loss.csv, tensorboard:/.*board; --log names' \
        train --quiet --resume run --save other --steps 8
    noted 'does not continue the logs of run: csv:/.*loss.csv, tensorboard:/.*board; --log names' \
        train --quiet --resume run --save third --run beside --steps 8
    good train --quiet --resume run --save run --steps 8 --log csv:more.csv
    [ "$(steps_in_table loss.csv)" = 6 ] && [ "$(steps_in_table more.csv)" = 2 ] ||
        fail "$(cat loss.csv more.csv)"
    # Run again, a job has no histograms where the logs of the command line take none.
    good train --quiet --log csv:last.csv run/job.json
    rm -rf run other third beside ./*.csv
    good "${table[@]}" --save run --run kept --log csv:loss.csv text
    good train --quiet --resume run --save run --run kept --steps 6
    [ "$(steps_in_table loss.csv)" = 6 ] || fail "$(cat loss.csv)"
    # From another folder, the run goes on in its own log, not in that of another run.
    mkdir elsewhere && printf 'step,time,loss\n9,9,9\n' >elsewhere/loss.csv
    (cd elsewhere && "$CHOIR" train --quiet --resume ../run --run ../kept --steps 7) 2>err ||
        fail "$(cat err)"
    [ "$(steps_in_table loss.csv)" = 7 ] && grep -q '^9,9,9$' elsewhere/loss.csv ||
        fail "$(cat loss.csv elsewhere/loss.csv)"
    # A device is not read: it has no columns, and may have no end.
    choir train --quiet --resume run --save run --log csv:/dev/full --steps 8 >out 2>err
    [ $? = 3 ] && grep -q '/dev/full: No space left' err || fail "$(cat err)"
    rm -rf run kept board elsewhere loss.csv
}

# A rank that is killed, also rank 0, leaves each step once in the curve.
lost_ranks_leave_the_curve() {
    local step pid
    for step in 6 9; do
        rm -rf run
        start_until $step train --json "${lm[@]}" --steps 200 --strategy ddp --nproc 2 \
            --max-restarts 2 --run run text
        pid=$(pgrep -P "$started_pid" | head -n 1) # rank 0
        kill -KILL "$pid"
        end_started || fail "the job ended with $?: $(cat err)"
        started_pid=
        [ "$(losses run/metrics.jsonl | cut -d ' ' -f 1 | tr '\n' ' ')" = "$(seq -s ' ' 200) " ] ||
            fail "steps: $(losses run/metrics.jsonl)"
        grep -q '"event":"membership"' run/events.jsonl || fail "$(cat run/events.jsonl)"
        grep -q 'killed by SIGKILL' run/stderr.log || fail "stderr.log: $(cat run/stderr.log)"
    done
    rm -rf run
}

failures_are_events() {
    rm -rf run
    bad 1 'loss is' train --quiet "${lm[@]}" --steps 50 --lr 1e12 --optimizer sgd --run run text
    has run/events.jsonl '"event":"failure".*"message":".*the loss is'
    cmp -s err run/stderr.log || fail "stderr.log: $(cat run/stderr.log)"
    rm -rf run failed
    bad 1 'loss is' train --quiet "${lm[@]}" --steps 50 --lr 1e12 --optimizer sgd \
        --log "mlflow:$PWD/failed" text
    grep -rq '^status: 4' failed || fail "mlflow: $(grep -r '^status' failed)"
    start_until 5 train --json "${lm[@]}" --steps 100000 --strategy ddp --nproc 2 --run run text
    kill -KILL "$(pgrep -P "$started_pid" | head -n 1)"
    end_started
    started_pid=
    has run/events.jsonl '"event":"failure".*SIGKILL'
    has run/job.json '"options"'
    rm -rf run
}

# Where another rank is killed, rank 0's logs end as those of a failed job, too.
killed_peers_are_failures() {
    rm -rf run failed
    start_until 5 train --json "${lm[@]}" --steps 100000 --strategy ddp --nproc 2 --run run \
        --log "mlflow:$PWD/failed" text
    kill -KILL "$(children | sed -n 2p)"
    end_started && fail 'a job with a killed rank ends well'
    started_pid=
    grep -rq '^status: 4' failed || fail "mlflow: $(grep -r '^status' failed)"
    has run/events.jsonl '"event":"failure",.*SIGKILL'
    grep '"event":"failure"' run/events.jsonl | grep -q '"step":[1-9]' ||
        fail "the step of the failure: $(cat run/events.jsonl)"
    [ "$(grep -c '"event":"failure"' run/events.jsonl)" = 1 ] || fail "$(cat run/events.jsonl)"
    rm -rf run failed
}

# A record that cannot be written costs a warning and the exit status, not the training.
unwritable_records() {
    unwritten() { # PATTERN ARG...: of a job that is trained
        local pattern=$1
        shift
        choir train --quiet "${lm[@]}" --steps 3 "$@" text >out 2>err
        local status=$?
        [ $status = 3 ] || fail "status $status of $*: $(cat err)"
        grep -q '^3 steps: loss' out || fail "$*: $(cat out)"
        [ "$(wc -l <err)" = 1 ] && grep -qE "warning: .*$pattern" err || fail "$*: $(cat err)"
    }
    echo >file
    unwritten '/proc/nothing' --run /proc/nothing
    unwritten 'file/run' --run file/run
    unwritten '/dev/full' --log csv:/dev/full
    unwritten '/dev/full' --log csv:/dev/full --strategy ddp --nproc 2
    bad 2 "unknown kind of log 'tensorbord' \(did you mean 'tensorboard'\?\)" \
        train --log tensorbord:x text
    bad 2 'missing FILE' train --log csv text
}

# Two records in one place, or one in the place of other data, are refused before the training.
places_are_checked() {
    rm -rf run x.csv
    bad 1 'log csv:./x.csv: .*name each place once' train --log csv:x.csv --log csv:./x.csv text
    bad 1 'log run:run: .*name each place once' train --run run --log run:run text
    bad 1 "csv:text: this file is the data of the job" train --log csv:text text
    cp text other
    bad 1 "csv:other': the file is no table of a log" train --log csv:other text
    cmp -s text other || fail 'a file is written over'
    if ! choir train --log metrics::0 text 2>&1 | grep -q 'no metrics'; then
        bad 2 'log metrics::99999: expected :PORT' train --log metrics::99999 text
        bad 2 'log metrics::0: expected :PORT.*from 1 to' train --log metrics::0 text
        bad 2 'log metrics:1: expected :PORT' train --log metrics:1 text
    fi
    bad 1 'no log of this job takes histograms' train --log csv:x.csv --log-histograms 2 text
    bad 2 "lr: expected a number of at most .*, got '1e20'" train --lr 1e20 text
    noted '--swa 100 with --steps 2: no step is averaged' train --quiet "${lm[@]}" --steps 2 \
        --swa 100 text
    good train --quiet "${lm[@]}" --steps 2 --log csv:x.csv --log csv:y.csv text
    good train --quiet "${lm[@]}" --steps 2 --log csv:x.csv text
}

port_is_taken() {
    choir train --quiet "${lm[@]}" --steps 1 --log metrics::1 text >out 2>err
    ! grep -q 'no libmicrohttpd' err || return 0
    local port
    coproc held { exec python3 -c '
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True)
sys.stdin.read()' 2>/dev/null; }
    read -r port <&"${held[0]}"
    choir train --quiet "${lm[@]}" --steps 2 --log "metrics::$port" text >out 2>err
    [ $? = 3 ] && grep -q "port $port is taken" err || fail "$(cat err)"
    exec {held[1]}>&-
    wait "$held_PID" 2>/dev/null
}

# On a narrow terminal no line is longer than it, and lines with the loss stay.
narrow_terminals() {
    command -v script >/dev/null || return 0
    script -qec "stty cols 40; $CHOIR train --steps 60 --batch-size 12 --model $gpt \
        --eval-every 30 --save narrow text" /dev/null >out 2>err </dev/null || fail "$(cat out)"
    sed 's/\r$//; s/.*\r//; s/\x1b\[K//g' out | sed '/What it writes/,$d' >lines
    [ "$(awk '{ if (length > m) m = length } END { print m + 0 }' lines)" -le 40 ] ||
        fail "wider than 40 columns: $(awk 'length > 40' lines)"
    [ "$(grep -c '^step .*loss' lines)" -ge 10 ] || fail "lines that stay: $(cat lines)"
    ! grep '^step' lines | grep -vqE '^step [0-9]+/60  loss [0-9]+\.[0-9]{4}(  lr [0-9.e-]+)?'\
'(  [0-9]+ tokens/s)?(  [0-9]+:[0-9]{2} left)?$' || fail "fields that are cut: $(cat lines)"
    # Nor a summary's, an error's, a note's or a warning's, which a record has whole.
    script -qec "stty cols 40; $CHOIR train --summary --model $bert text
        $CHOIR train --lr 1e20 text
        $CHOIR train --resume narrow --save narrow --log csv:/dev/full --steps 62 \
            --weight-decay 0.25 --quiet" \
        /dev/null >out 2>err </dev/null
    sed 's/\r$//' out >lines
    [ "$(awk '{ if (length > m) m = length } END { print m + 0 }' lines)" -le 40 ] ||
        fail "wider than 40 columns: $(awk 'length > 40' lines)"
    has lines '^bert.embeddings.LayerNorm$|^  bert.embeddings.LayerNorm$' 'layer_norm \(' \
        '^choir train: --lr: expected a number of$' '^choir train: note: --weight-decay 0.25$' \
        '^choir train: warning: cannot write$'
    has narrow/stderr.log "warning: cannot write /dev/full: .* continues without this record\$"
    script -qec "$CHOIR train --steps 60 --batch-size 12 --model $gpt --log-every 2 text" \
        /dev/null >out 2>err </dev/null || fail "$(cat out)"
    [ "$(grep -c '^step .*loss\|step .*loss.*left' out)" -ge 30 ] || fail "asked for: $(cat out)"
}

# --- jobs as files ----------------------------------------------------------------------------

jobs_run_again() {
    rm -rf run
    good train --json "${lm[@]}" --steps 8 --lr 0.0123 --schedule cosine:warmup=2 --clip 0.7 \
        --save run text && mv out first
    good train --json run/job.json && mv out again
    same_run first again
    good train --json --steps 4 run/job.json && mv out shorter
    [ "$(steps_of shorter | wc -l)" = 4 ] || fail 'steps of the command line'
    # Another kind of optimizer has its own weight decay.
    good train --print-job --optimizer lion run/job.json
    has out '"optimizer": "lion:beta1=0.9,beta2=0.99,' '"weight-decay": 0.0'
    good train --print-job "${lm[@]}" --steps 8 --lr 0.0123 --schedule cosine:warmup=2 --clip 0.7 \
        --save printed text
    [ ! -e printed ] || fail '--print-job makes folders'
    mv out job.json
    good train --json job.json && mv out third
    same_run first third
    [ -e printed/latest ] || fail 'the job of --print-job did not save'
    good train --print-job job.json
    cmp -s out job.json || fail "a printed job changes: $(diff out job.json)"
    # What the command line leaves out has its default.
    good train --print-job --without schedule,clip,save job.json
    has out '"schedule": "constant' '"lr": 0.0123' '"clip": 0.0'
    ! grep -q '"save"' out || fail "an option stays: $(cat out)"
    bad 2 "expected names of options that a job file has, got 'shedule'" \
        train --without clip,shedule job.json
    bad 2 "expected names of options that a job file has, got 'print-job'" \
        train --without print-job job.json
    bad 2 'expected a job file or --resume' train --without clip text
    good train --json --strategy ddp --nproc 2 run/job.json && mv out ranks
    same_run first ranks
    # Options of places that the run had and the job has not.
    good train --json "${lm[@]}" --steps 2 --run placed --log tensorboard:tb --log-histograms 1 \
        --strategy fsdp --nproc 2 --max-restarts 1 --no-copy --save kept text && mv out of_places
    good train --json placed/job.json && mv out again
    same_run of_places again
    rm -r placed tb kept
    good train --json run/latest/job.json && mv out of_checkpoint
    same_run first of_checkpoint
    python3 - <<'END' # as an older version wrote it
import json
job = json.load(open('run/latest/job.json'))
text = lambda x: x if isinstance(x, str) else json.dumps(x)
job['options'] = {name: text(value) for name, value in job['options'].items()}
json.dump(job, open('old.json', 'w'))
END
    good train --json old.json && mv out of_old
    same_run first of_old
    printf '{"format":"choir-job","version":1,"options":%s}' \
        '{"quiet":true,"steps":2,"json":true,"model":"'"$gpt"'"}' >flags.json
    good train --quiet=false --json=false flags.json
    has out '^loss .*after 2 steps|^step +2'
    printf '{"format":"choir-job","version":1,"options":{"mem-cap":"1G","epochs":2}}' >bytes.json
    good train --print-job --steps 3 bytes.json random
    has out '"mem-cap": 1073741824' '"steps": 3'
    ! grep epochs out || fail 'the epochs of the file stay beside --steps of the command line'
    bad 2 "--quiet: expected true or false, got 'maybe'" train --quiet=maybe flags.json
    tr 'ab' 'ba' <text >other
    mv text kept && cp other text
    bad 1 'not the data of this job' train run/job.json
    good train --quiet run/job.json other
    mv kept text
}

# What a job's file names is found from any folder, and none of it is left out.
places_of_jobs() {
    for file in ran text; do
        yes "the words of $file" | head -40 >$file
    done
    good train --bytes --model gpt2:layers=1,heads=1,width=8,context=8 --print-job ran+text
    has out "\"data\": \"$PWD/ran[+]$PWD/text\""
    bad 1 "--log 'csv:.*csv' is not UTF-8" train --print-job --log $'csv:\xff.csv' --log csv:b.csv \
        random
}

bad_jobs() {
    wrong() { # PATTERN JSON
        printf '%s' "$2" >bad.json
        bad 2 "$1" train bad.json
    }
    local head='{"format":"choir-job","version":1'
    wrong "unknown option 'stesp'; did you mean 'steps'\?" "$head,\"options\":{\"stesp\":3}}"
    wrong "unknown key 'optoins'; did you mean 'options'\?" "$head,\"optoins\":{}}"
    wrong "option 'lr': expected a number of at least 0, got true" \
        "$head,\"options\":{\"lr\":true}}"
    wrong "option 'lr': expected a number.*got \"fast\"" "$head,\"options\":{\"lr\":\"fast\"}}"
    wrong "option 'model': expected a text, got 3" "$head,\"options\":{\"model\":3}}"
    wrong "option 'steps': expected a whole number of at least 1, got \"5\"" \
        "$head,\"options\":{\"steps\":\"5\"}}"
    wrong "option 'recompute': expected true or false, got \"x\"" \
        "$head,\"options\":{\"recompute\":\"x\"}}"
    wrong "option 'log': expected a text, got 1" "$head,\"options\":{\"log\":[1]}}"
    wrong "option 'log': unknown kind of log 'x'" "$head,\"options\":{\"log\":[\"x:y\"]}}"
    wrong "option 'mem-cap': expected a whole number of bytes.* got '1.5M'" \
        "$head,\"options\":{\"mem-cap\":\"1.5M\"}}"
    wrong '--steps 5 with --epochs 2: choose one of them' \
        "$head,\"options\":{\"epochs\":2,\"steps\":5}}"
    wrong '--steps 5 with --epochs 2: choose one of them' \
        "$head,\"options\":{\"steps\":5,\"epochs\":2}}"
    wrong "key 'data': expected a text, got \[\]" "$head,\"data\":[]}"
    wrong 'expected "version": 1, got 2' '{"format":"choir-job","version":2}'
    wrong 'bad.json:1:[0-9]+: ' "$head,}"
    wrong "unknown option 'print-job'" "$head,\"options\":{\"print-job\":true}}"
    bad 2 "unexpected argument 'more'" train text more
}

schema_is_current() {
    choir __job_schema >schema.json
    cmp -s schema.json "$root/docs/job.schema.json" ||
        fail 'docs/job.schema.json is old: choir __job_schema >docs/job.schema.json'
    python3 -c 'import jsonschema' 2>/dev/null || return 0
    python3 - <<'END' || fail 'a job does not fit the schema'
import json, jsonschema
schema = json.load(open('schema.json'))
jsonschema.validate(json.load(open('job.json')), schema)
jsonschema.validate(json.load(open('run/job.json')), schema)
jsonschema.validate(json.load(open('run/latest/job.json')), schema)
END
}

# --- curves -----------------------------------------------------------------------------------

# A folder of runs stands for them, trial 2 before trial 10; marks differ, and are where they say.
curves_of_a_folder() {
    local run
    mkdir -p search/{2,10}/checkpoint search/empty search/other
    for run in 2 10; do
        printf '{"step":%s,"time":1,"loss":2.000%s}\n' 1 1 8 $run \
            >search/$run/checkpoint/metrics.jsonl
    done
    printf '{"step":1,"time":1,"accuracy":1}\n' >search/other/metrics.jsonl
    noted "search/other has no metric 'loss' yet; it has accuracy" plot search/
    tail -n 2 out | sed 's/:.*//' >names
    printf 'a  trial 2\nb  trial 10\n' | cmp -s - names ||
        fail "runs of a folder: $(cat out)"
    grep -qE '^ +1 +4 +8$' out || fail "the middle of 1 and 8: $(cat out)"
    [ "$(sed -nE 's/^ *([0-9.]+) .*/\1/p' out | sort | uniq -d)" = '' ] ||
        fail "marks are equal: $(cat out)"
    bad 1 "search/2/checkpoint has no metric 'los' yet; it has loss" plot search/2 --metric los
    for run in {1..26}; do
        mkdir "search/more-$run"
        cp search/2/checkpoint/metrics.jsonl "search/more-$run"
    done
    bad 1 'expected at most 26 runs, got more [(]the next is search/' plot search
    legend_of_many
    mkdir many && mv search/more-* many
    bad 1 'expected at most 26 runs, got more [(]the next is search/2/checkpoint[)]' \
        plot many search/2/checkpoint
    printf '{"step":%s,"time":1,"loss":2}\n' 1 70000 >search/2/checkpoint/metrics.jsonl
    good plot search/2
    grep -qE '^ +1 +3500[01] +70000$' out || fail "the middle of 1 and 70000: $(cat out)"
}

# legend_of_many: the names of 14 trials stand below one another, beside the curves, and a ninth
# curve has dashes.
legend_of_many() {
    command -v gnuplot >/dev/null || return 0
    local trial
    for trial in {0..13}; do
        mkdir -p trials/$trial/checkpoint
        (
            cd trials/$trial/checkpoint
            printf '{"step":%s,"time":1,"loss":%s}\n' 1 $trial 8 1 >metrics.jsonl
            printf '{"event":"eval","step":%s,"loss":1}\n' 1 8 >events.jsonl
        )
    done
    good plot trials trials.svg
    python3 - <<'END' || fail 'the legend of many runs'
import re, xml.dom.minidom

words = {}
dom = xml.dom.minidom.parse("trials.svg")
for text in dom.getElementsByTagName("text"):
    where = text.parentNode.getAttribute("transform")
    x, y = map(float, re.match(r"translate\(([-\d.]+),([-\d.]+)\)", where).groups())
    word = "".join(n.data for n in text.childNodes if n.nodeType == n.TEXT_NODE) or \
        "".join(n.firstChild.data for n in text.getElementsByTagName("tspan") if n.firstChild)
    words[word.strip()] = x, y
names = [f"trial {i}" for i in range(14)] + ["validation"]
assert all(name in words for name in names), list(words)
assert len({words[name][0] for name in names}) == 1, words
assert [words[name][1] for name in names] == sorted(words[name][1] for name in names)
assert words["trial 0"][0] > words["8"][0], words  # beside the last mark of the steps
assert "stroke-dasharray" in open("trials.svg").read()
END
}

# The search's study names the best of its trials, and those that it stopped early are grey.
curves_of_a_search() {
    "$CHOIR" info --json | grep -q '"sqlite"' || return 0
    choir tune --dir asha --trials 4 --parallel 1 --scheduler asha:min=5,max=20,eta=2 \
        --space 'lr=log(1e-4,1)' -- "$CHOIR" train --model mlp:hidden=16 --steps 20 \
        --eval-every 5 random >out 2>err || fail "tune: $(cat err)"
    local best
    best=$(sed -n 's/^best: trial \([0-9]*\),.*/\1/p' out)
    good plot asha
    has out "trial $best, the best: last [^;]*$" '; stopped early$'
    command -v gnuplot >/dev/null || return 0
    good plot asha asha.svg
    grep -q "trial $best, the best" asha.svg && grep -q 'stopped early' asha.svg ||
        fail 'the legend of a search'
    good tune plot asha history.svg
    [ "$(cat out)" = history.svg ] || fail "tune plot says $(cat out)"
}

curves() {
    local file
    good train --quiet "${lm[@]}" --steps 30 --eval-every 10 --run a text
    good train --quiet "${lm[@]}" --steps 20 --lr 0.02 --run b text
    good plot a
    [ "$(wc -l <out)" -ge 20 ] || fail "$(cat out)"
    has out 'loss against steps' 'a: last .*validation'
    [ "$(awk '{ if (length > m) m = length } END { print m }' < <(iconv -f utf8 -t utf16le out |
        tr -d '\000' | tr -c '\n -~' x))" -le 400 ] || fail 'lines'
    good plot a b --against time --smooth 0.5 --log-scale
    has out '^a  a: ' '^b  b: ' 'seconds'
    good plot a --metric lr --against tokens
    good plot a --metric accuracy # a number of validations alone
    has out 'accuracy against steps' 'a: last [0-9.]+, .*validation [0-9.]+$'
    mkdir scored # a metric of one's own has its name
    printf '{"step":%s,"time":1,"loss":1}\n' 1 2 >scored/metrics.jsonl
    printf '{"event":"eval","step":%s,"loss":1,"metric":%s,"metric_name":"f1"}\n' 1 0.5 2 0.75 \
        >scored/events.jsonl
    good plot scored --metric f1
    has out 'f1 against steps' 'scored: last 0.75'
    bad 1 "scored has no metric 'f2' yet" plot scored --metric f2
    mkdir huge # numbers whose distance is infinite
    printf '{"step":%s,"time":1,"loss":%s}\n' 1 1.7e308 2 -1.7e308 3 0 >huge/metrics.jsonl
    good plot huge
    ! sed 1,1d out | grep -i 'nan\|inf' || fail 'numbers at the axis'
    command -v gnuplot >/dev/null && good plot huge huge.svg
    mkdir -p below
    printf '{"step":1,"time":1,"loss":-1}\n{"step":2,"time":2,"loss":-2}\n' >below/metrics.jsonl
    bad 1 'log-scale: expected numbers above 0, and loss has none' plot --log-scale below
    printf '{"step":3,"time":3,"loss":2}\n{"step":4,"time":4,"loss":3}\n' >>below/metrics.jsonl
    noted 'leaves out 2 of 4 values' plot --log-scale below
    bad 1 "a has no metric 'los' yet; it has loss, lr" plot a --metric los
    bad 1 'nowhere is no folder of a recorded run: ' plot nowhere
    mkdir -p hollow/inside
    bad 1 'hollow is no folder of a recorded run, and has none in it: ' plot hollow
    bad 2 'missing RUN before x.png' plot x.png
    bad 2 "unknown value 'years'" plot a --against years
    command -v gnuplot >/dev/null || return 0
    for file in curve.png curve.svg; do
        good plot --smooth 0.9 a b "$file"
        [ -s "$file" ] || fail "no $file"
    done
    # Long numbers, and long names of a run and of its metric, stay in the frame.
    local long=a_run_whose_name_says_all_of_its_options_and_when_it_began
    local number=gradients/a_model_in_a_model/layers.11.attention.output
    mkdir $long
    printf '{"step":%s,"time":1,"%s":%s}\n' 1 $number 0.000351 2 $number -0.000352 \
        >$long/metrics.jsonl
    good plot --metric $number $long long.svg
    texts_fit long.svg curve.svg
    cp -r a $'odd\xff\x01<name>' # a picture has XML's characters alone
    good plot a $'odd\xff\x01<name>' odd.svg
    python3 -c '
import xml.dom.minidom
text = xml.dom.minidom.parse("odd.svg").toxml()
assert "odd??&lt;name&gt;" in text, "no name"' || fail 'an SVG that is no XML'
    bad 1 'cannot write there' plot a /nonexistent/x.png
}

# A server of MLflow that is busy for a moment loses nothing; it gets the user's token.
busy_server() {
    "$CHOIR" info --json | grep -q '"mlflow"' || { echo 'this build has no MLflow'; return; }
    rm -f port posted
    timeout 60 python3 -c '
import http.server, json
busy = 2
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        global busy
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what = self.path.split("mlflow/")[1]
        creates = {"experiments/create": {"experiment_id": "7"},
            "runs/create": {"run": {"info": {"run_id": "r"}}}}
        status, reply = 200, creates.get(what, {})
        if what == "runs/log-batch" and busy:
            busy, status, reply = busy - 1, 503, {"message": "come back later"}
        elif what != "experiments/search":
            with open("posted", "a") as file:
                print(what, self.headers["Authorization"], json.dumps(body), file=file)
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as file: print(server.server_port, file=file)
import os; os.rename("port.new", "port")
server.serve_forever()' &
    local server=$!
    await 20 test -e port
    MLFLOW_TRACKING_TOKEN=secret good train --quiet "${lm[@]}" --steps 3 \
        --log "mlflow:http://127.0.0.1:$(cat port)/" text
    mv posted posted_first
    MLFLOW_TRACKING_PASSWORD=hunter2 good train --quiet "${lm[@]}" --steps 3 \
        --log "mlflow:http://joe@127.0.0.1:$(cat port)/" text
    has posted "Basic $(printf joe:hunter2 | base64) "
    mv posted_first posted
    kill $server
    [ "$(grep -c 'Bearer secret' posted)" = "$(wc -l <posted)" ] || fail "$(cat posted)"
    [ "$(grep -o '"key": "loss", "value": [^,]*, "timestamp": [0-9]*, "step": [0-9]*' posted |
        sed 's/.*: //' | tr '\n' ' ')" = '1 2 3 ' ] || fail "$(cat posted)"
    has posted '^runs/update .*"FINISHED"'
}

# A password is used and not kept: no file of the run has it, and a run that goes on asks for it.
no_passwords() {
    local url=http://joe:hunter2@127.0.0.1:9
    choir train --json "${lm[@]}" --steps 2 --save secret --log mlflow:$url text >out 2>err
    has err 'MLflow at http://joe@127.0.0.1:9 does not answer'
    has secret/job.json '"mlflow:http://joe@127.0.0.1:9"'
    good train --print-job "${lm[@]}" --log mlflow:$url text
    cp out secret/printed
    bad 1 'http://joe@127.*are there already' train "${lm[@]}" --log mlflow:$url \
        --log mlflow:$url text
    cp err secret/twice
    bad 2 'unknown kind of log .mlflo' train "${lm[@]}" --log mlflo:$url text
    cp err secret/unknown
    good tune --trials 1 --dir secret/search --space x=1 -- sh -c \
        'echo "{\"eval_loss\":$1}"' sh {x} $url
    has out 'sh 1 http://joe@127'
    good tune --print-study --storage postgresql://me:hunter2@db/studies --space x=1 -- echo {x}
    has out '"postgresql://me@db/studies"'
    ! grep -r hunter2 secret out err || fail 'a password is kept'
    [ "$(stat -c %a secret/stderr.log)" = 600 ] || fail 'others may read stderr.log'
    local more=(train --json --resume secret --save secret --steps 3)
    HOME=/nowhere bad 1 'missing the password of mlflow:http://joe@.*set MLFLOW_TRACKING_PASSWORD' \
        "${more[@]}" text
    MLFLOW_TRACKING_PASSWORD=hunter2 choir "${more[@]}" text >out 2>err
    has err 'MLflow at http://joe@127.0.0.1:9 does not answer'
    ! grep -r hunter2 secret out err || fail 'a password is kept'
}

check no_passwords
check folder_has_all
check folder_has_all --strategy ddp --nproc 2
check run_has_no_checkpoints
check goes_on_after_a_kill
check logs_go_on
check lost_ranks_leave_the_curve
check failures_are_events
check killed_peers_are_failures
check unwritable_records
check places_are_checked
check port_is_taken
check busy_server
check narrow_terminals
check jobs_run_again
check places_of_jobs
check bad_jobs
check schema_is_current
check curves
check curves_of_a_search
check curves_of_a_folder
finish
