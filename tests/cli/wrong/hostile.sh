#!/usr/bin/env bash
# Files made to do harm: they wait for ever, have no end, unpack to thousands of times their size,
# point out of their folder, hold numbers that overflow, or speak to the terminal.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || skip 'no python3, which makes the files (install python3)'
LIMIT=20 # a file that is waited for is an error, not a test that takes a minute

make_text text 60
gpt=$gpt,dropout=0
good train --quiet --no-eval --batch-size 4 --microbatches 2 --steps 2 --model "$gpt" \
    --save saved text

# peak ARG...: runs the command; prints the most memory that it had, in MiB.
peak() {
    python3 - "$CHOIR" "$@" <<'EOF'
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=open('out', 'w'), stderr=open('err', 'w'), timeout=60)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
EOF
}

# png FILE [N]: an image of 8 by 8, with N texts of 16 MiB that are packed.
png() {
    python3 - "$1" "${2:-0}" <<'EOF'
import struct, sys, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
text = chunk(b'zTXt', b'k\0\0' + zlib.compress(b'A' * ((16 << 20) - 100), 9))
rows = zlib.compress((b'\0' + b'\x10\x20\x30' * 8) * 8)
open(sys.argv[1], 'wb').write(b'\x89PNG\r\n\x1a\n' +
    chunk(b'IHDR', struct.pack('>IIBBBBB', 8, 8, 8, 2, 0, 0, 0)) + text * int(sys.argv[2]) +
    chunk(b'IDAT', rows) + chunk(b'IEND', b''))
EOF
}

# pictures FOLDER N: two classes of images; a/2.png has N packed texts.
pictures() {
    local at
    for at in train/a train/b val/a val/b; do
        mkdir -p "$1/$at"
        png "$1/$at/1.png"
    done
    png "$1/train/a/2.png" "$2"
}

# --- files that are no files -------------------------------------------------------------------

# not_a_file PATTERN FILE ARG...: neither a FIFO nor an endless device in its place is read.
not_a_file() {
    local pattern=$1 file=$2
    shift 2
    mv "$file" kept
    mkfifo "$file"
    bad "${status:-1}" "$pattern" "$@"
    rm "$file"
    ln -s /dev/zero "$file"
    bad "${status:-1}" "$pattern" "$@"
    rm "$file"
    mv kept "$file"
}

nothing_waits() {
    local folder="${work:?}/copy" expected='expected a regular file'
    cp -rL saved/latest "$folder"
    not_a_file "state.json.*$expected" "$folder/state.json" checkpoint verify "$folder"
    not_a_file 'tokenizer.json' "$folder/choir_tokenizer.json" generate "$folder" --tokens 1
    rm "$folder/state.json" "$folder/job.json" # as published weights
    not_a_file "tokenizer.json.*$expected" "$folder/choir_tokenizer.json" \
        train --quiet --steps 1 --model "$folder" text
    make_idx idx train 30
    not_a_file "labels.*$expected" idx/train-labels-idx1-ubyte \
        train --quiet --steps 1 --batch-size 4 --model cnn:width=4 idx
    pictures pictures 0
    cp saved/job.json job.json
    status=2 not_a_file "job.json.*$expected" job.json train job.json
    good tune --quiet --trials 1 --space 'x=uniform(0,1)' --dir study -- \
        sh -c 'echo "{\"eval_loss\": $1}"' sh '{x}'
    cp study/study.db study.db
    not_a_file "study.db.*$expected" study.db tune show study.db
    printf '%s\n' '{"op_code": 0, "worker_id": "w", "study_name": "s", "directions": [1]}' >s.log
    not_a_file "s.log.*$expected" s.log tune show journal:s.log
    not_a_file "s.log.*$expected" s.log tune show s.log
    cp -r saved curves
    not_a_file "metrics.jsonl: $expected" curves/metrics.jsonl plot curves p.svg
    not_a_file "2.png.*$expected" pictures/train/a/2.png train --quiet --no-eval --steps 3 \
        --batch-size 3 --model cnn:image=8,channels=3 pictures
}

# --- small files that become large ones --------------------------------------------------------

bombs() {
    local mib
    pictures bomb 120
    mib=$(peak train --model cnn:image=8,channels=3 --steps 3 --batch-size 3 --quiet --no-eval bomb)
    [ ! -s err ] || fail "$(cat err)"
    [ "$mib" -lt 1000 ] || fail "an image of 64 pixels took $mib MiB"

    make_idx packed train 30
    { printf '%b' '\x00\x00\x08\x03\x00\x10\x00\x00\x00\x00\x00\x10\x00\x00\x00\x10'
        head -c 300000 /dev/urandom; } | gzip >packed/train-images-idx3-ubyte.gz
    rm packed/train-images-idx3-ubyte
    bad 1 'promises 268435456 bytes of values, over 100 times' \
        train --quiet --steps 1 --batch-size 4 --model mlp packed

    python3 - <<'EOF'
import struct
def file(name, text):
    open(name + '.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text.encode())
file('lists', '{"a":' + '[[],' * 100000 + '[]' + ']' * 100000 + '}')
file('flat', '{"a":{"dtype":"F32","shape":[' + '1,' * 1000000 + '1],"data_offsets":[0,4]}}')
file('entries', '{' + ','.join('"%x":{}' % i for i in range(100000)) + '}')
EOF
    for file in lists flat entries; do
        bad 1 'expected a description of tensors' checkpoint inspect $file.safetensors
    done
}

# --- names and numbers -------------------------------------------------------------------------

stays_in_its_folder() {
    local donut=donut:height=32,image_width=32,patch=4,window=1,embed=8,depths=1-1-1-1
    donut=$donut,heads=1-1-1-1,layers=1,decoder_heads=1,width=8,hidden=8,context=16
    for name in ../../etc/passwd /etc/passwd a/../../b ..; do
        mkdir -p doc/train
        printf '{"file_name":"%s","ground_truth":{"gt_parse":{"a":"b"}}}\n' "$name" \
            >doc/train/metadata.jsonl
        bad 1 "line 1: file_name '$name': expected a file of the folder" \
            train --quiet --steps 1 --batch-size 1 --model "$donut" doc
    done
}

# state KEY JSON: a copy of the checkpoint whose state.json has another value, and a valid hash.
state() {
    rm -rf changed
    cp -r saved changed
    python3 - "$1" "$2" <<'EOF'
import hashlib, json, sys
path = 'changed/latest/state.json'
state = json.load(open(path), parse_float=lambda digits: f'@{digits}@')
del state['sha256']
state[sys.argv[1]] = json.loads(sys.argv[2])
def text():
    dumped = json.dumps(state, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return dumped.replace('"@', '').replace('@"', '').replace('\\u001b', '\\u001B')
state['sha256'] = hashlib.sha256(text().encode()).hexdigest()
open(path, 'w').write(text())
EOF
}

numbers_are_bounded() {
    local key
    for key in step optimizer_steps position batch_size microbatches classes task world \
        scale_clean scale_in_a_row skipped_steps; do
        [ $key = position ] || state $key 9223372036854775807
        [ $key = position ] && state $key -1
        bad 1 "key '$key'" train --quiet --steps 4 --resume changed
        bad 1 "key '$key'" checkpoint inspect changed
    done
    state input '[4294967296, 4294967296]'
    bad 1 "key 'input'" eval changed text
}

# visible: neither output has a character that commands a terminal, or turns its text.
visible() {
    ! grep -q -e $'[\033\007]' -e $'\xe2\x80\xae' out err ||
        fail "escapes: $(cat -v out err | head -c 300)"
}

terminals_are_safe() {
    python3 - <<'EOF'
import json, struct
name = 'a\x1b[2J\x07b\x9b1mc\nd\u202e\u061c\u200e\u200f\u2028\u2066\u2069e'
text = json.dumps({name: {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
open('named.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + b'\0' * 4)
text = json.dumps({name: {'dtype': 'F33', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
open('wrong.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + b'\0' * 4)
EOF
    good checkpoint inspect named.safetensors
    grep -q 'a?\[2J?b??1mc?d[?]\{20\}e ' out || fail "names: $(cat -v out)"
    visible
    choir checkpoint inspect wrong.safetensors >out 2>err && fail 'a wrong type is taken'
    visible
    for key in model optimizer strategy; do
        state $key '"\u001b[2Jevil"'
        choir checkpoint inspect changed >out 2>err
        grep -q 'evil' out err || fail "$key is not shown: $(cat err)"
        visible
        choir train --quiet --steps 4 --resume changed >out 2>err
        visible
    done
}

# Texts of records, names of classes and of files, in lines of their own for each sample.
predictions_are_safe() {
    python3 - <<'EOF'
import json
tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', 'fine', 'film']
json.dump({'version': '1.0', 'added_tokens': [], 'normalizer': None,
    'pre_tokenizer': {'type': 'BertPreTokenizer'}, 'post_processor': None, 'decoder': None,
    'model': {'type': 'WordPiece', 'vocab': {t: i for i, t in enumerate(tokens)},
        'unk_token': '[UNK]', 'continuing_subword_prefix': '##', 'max_input_chars_per_word': 100}},
    open('wp.json', 'w'))
record = {'text': 'a fine\nfilm\x1b]0;pwn\x07 \u202e\x7f\u009b1m'}
with open('said.jsonl', 'w') as out:
    for label in ['up\x1b[2J\nfake  1.0000', 'down'] * 10:
        out.write(json.dumps({**record, 'label': label}) + '\n')
EOF
    good train --model bert:classes=2,layers=1,heads=1,width=8,context=16 --tokenizer wp.json \
        --batch-size 4 --steps 2 --quiet --no-eval --save classes said.jsonl
    good predict classes said.jsonl
    [ "$(grep -c 'a fine?film?\]0;pwn? ???' out)" = 20 ] && [ "$(wc -l <out)" = 20 ] ||
        fail "$(cat -v out | head -3)"
    visible
    good predict --json classes said.jsonl
    visible
    python3 - <<'EOF' || fail "$(head -1 out)"
import json
lines = [json.loads(line) for line in open('out')]
assert lines[0]['text'] == 'a fine\nfilm\x1b]0;pwn\x07 \u202e\x7f\u009b1m', lines[0]
EOF
    ! grep -q $'\x7f\|\xc2\x9b' out || fail "$(cat -v out | head -1)"
    pictures shown 0
    good train --quiet --no-eval --steps 2 --batch-size 2 --model cnn:image=8,channels=3 \
        --save pictured shown
    cp shown/val/a/1.png $'shown/\e[2J\n.png'
    good predict pictured $'shown/\e[2J\n.png'
    grep -q 'shown/?\[2J?\.png$' out || fail "$(cat -v out)"
    visible
}

# A table for spreadsheets: no text is a formula, and numbers stay numbers.
tables_are_safe() {
    python3 - <<'EOF'
import json
choices = ['=1+1', '-5', '-x', '+1e-3', '@a', 'k', '\x1b[2J=1']
space = json.dumps({'name': 'CategoricalDistribution', 'attributes': {'choices': choices}})
with open('cells.log', 'w') as out:
    def put(code, **op):
        out.write(json.dumps({'op_code': code, 'worker_id': 'w', **op}) + '\n')
    put(0, study_name='s', directions=[1])
    for i in range(len(choices)):
        put(4, study_id=0, datetime_start='2026-01-01T00:00:00.000000')
        put(5, trial_id=i, param_name='@p\x1b', param_value_internal=i, distribution=space)
        put(6, trial_id=i, state=1, values=[-2], datetime_complete='2026-01-01T00:00:01.000000')
EOF
    good tune export cells.log
    visible
    [ "$(head -1 out)" = "number,state,value,'@p?,step,seconds,why" ] || fail "$(head -1 out)"
    [ "$(cut -d, -f3,4 out | tail -n +2 | sort | tr '\n' ' ')" = \
        "-2,'-x -2,'=1+1 -2,'@a -2,+1e-3 -2,-5 -2,?[2J=1 -2,k " ] ||
        fail "$(cut -d, -f3,4 out | tail -n +2 | sort | tr '\n' ' ')"
    for what in show best importance; do
        good tune $what cells.log
        visible
    done
    good tune export --json cells.log
    python3 - <<'EOF' || fail "$(head -1 out)"
import json
values = sorted(str(v) for line in open('out') for v in json.loads(line)['params'].values())
assert values == sorted(['=1+1', '-5', '-x', '+1e-3', '@a', 'k', '\x1b[2J=1']), values
EOF
}

check nothing_waits
check bombs
check stays_in_its_folder
check numbers_are_bounded
check terminals_are_safe
check predictions_are_safe
check tables_are_safe
finish
