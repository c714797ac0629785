# Functions that the tests of the command share. CHOIR names the command; each test works in a
# separate folder. A check is a function; `check NAME` runs it, and `finish` prints the number
# of failures. Exit status 77: skipped.
# shellcheck shell=bash
set -u
export LC_ALL=C
. "$(dirname "${BASH_SOURCE[0]}")/../sample.sh"
# These tests expect CPUs; --devices would take a GPU where one exists.
[ "${CHOIR_DEVICE-}" = cuda ] || export CUDA_VISIBLE_DEVICES=
CHOIR=${CHOIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/choir}
picture=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/tune/picture.py
work=$(mktemp -d "${TMPDIR:-/tmp}/choir-cli.XXXXXX") || exit 1
gpt=gpt2:layers=1,heads=2,width=16,context=16
bert=bert:layers=2,heads=2,width=16,context=16
llama=llama:layers=1,heads=4,width=16,context=16
lstm=lstm:layers=2,hidden=16,in=8,context=16
checks=0
failures=0
started_pid=

clean_up() { # not in a child that a signal reaches before it becomes the command
    [ "$BASHPID" = $$ ] || return
    [ -n "$started_pid" ] && kill -KILL -- "-$started_pid" 2>/dev/null
    local place
    for place in "$work"/small/step-* "$work/small"; do
        mountpoint -q "$place" 2>/dev/null && umount "$place"
    done
    chmod -R u+w "$work" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

skip() {
    echo "skipped: $*"
    exit 77
}
[ -x "$CHOIR" ] || skip "there is no command $CHOIR"
cd "$work" || exit 1

fail() {
    echo "FAILED in ${current:-?}: $*"
    failures=$((failures + 1))
    return 1
}

check() {
    current=$1
    checks=$((checks + 1))
    "$@"
}

finish() {
    echo "$checks checks, $failures failures"
    [ "$checks" -gt 0 ] && [ "$failures" -eq 0 ]
    exit
}

# --- running the command ----------------------------------------------------------------------

# choir ARG...: runs the command, and kills it after a time limit, $patience times LIMIT seconds.
choir() {
    timeout -k 2 $((${LIMIT:-60} * patience)) "$CHOIR" "$@"
}

# Removes from err what each resumed job with more steps or another strategy says, and one that has
# waited for another to leave its folder.
drop_notes() {
    local note='--steps .* replaces|(strategy|device) .* (replaces|uninterrupted)'
    note+='|nothing is saved|--amp .* saves memory here' # on processors without units for 16 bits
    sed -i -E "/^choir train: note: ($note)/d; /^choir [a-z]*: note: waits .* for the end/d" err
}

# good ARG...: exits 0 and writes nothing to standard error; its output is in $work/out.
good() {
    choir "$@" >out 2>err
    local status=$?
    drop_notes
    [ $status -eq 0 ] || { fail "status $status of: choir $*: $(cat err)"; return 1; }
    [ ! -s err ] || fail "standard error of: choir $*: $(cat err)"
}

# noted PATTERN ARG...: exits 0, and writes notes to standard error, one of which matches.
noted() {
    local pattern=$1
    shift
    choir "$@" >out 2>err
    local status=$?
    [ $status -eq 0 ] || { fail "status $status of: choir $*: $(cat err)"; return 1; }
    ! grep -qv '^choir [a-z]*: note: ' err && grep -qE -e "$pattern" err ||
        fail "no note '$pattern' of: choir $*: '$(cat err)'"
}

# bad STATUS PATTERN ARG...: exits with STATUS, writes one line that starts with "choir" and
# matches PATTERN on standard error, and nothing on standard output.
bad() {
    local want=$1 pattern=$2
    shift 2
    choir "$@" >out 2>err </dev/null
    local status=$?
    [ $status -eq "$want" ] || fail "status $status, not $want, of: choir $*: $(cat err)"
    [ ! -s out ] || fail "standard output of: choir $*: $(head -c 300 out)"
    is_one_line "$pattern" || fail "standard error of: choir $*: '$(cat err)', not '$pattern'"
}

# texts_fit FILE.svg...: no text of a picture touches another one, a point, or the picture's edge.
texts_fit() {
    command -v python3 >/dev/null || return 0
    local faults
    faults=$(python3 "$picture" "$@") || fail "$faults"
}

# is_one_line PATTERN: err is one whole line from choir that matches.
is_one_line() {
    drop_notes
    [ "$(wc -l <err)" -eq 1 ] && grep -q '^choir' err && grep -qE -e "$1" err
}

# start ARG...: in the background and in a process group of its own, with signals as a
# terminal's shell sets them (a script's `&` alone would ignore SIGINT). Sets started_pid.
start() {
    set -m
    "$CHOIR" "$@" >out 2>err </dev/null &
    started_pid=$!
    set +m
}

# children [PGREP'S OPTIONS]: the processes of the started job in the order in which it forked them,
# a line each. Numbers that are less than its own began anew meanwhile.
children() {
    pgrep "$@" -P "$started_pid" | sort -n | awk -v job="$started_pid" '
        $1 < job { late[++n] = $1; next }
        { print }
        END { for (i = 1; i <= n; i++) print late[i] }'
}

# await SECONDS COMMAND...: until the command is true; false if it does not come true in time.
# SECONDS is what a quiet machine needs at most. Tests run side by side, so they wait $patience
# times as long before they call something hung; a wait ends soon after its condition holds. It
# naps by reading what is never written, since a process for each nap would keep a core busy.
patience=4
exec {nothing}<> <(:)
await() {
    local end=$((SECONDS + $1 * patience)) ms=8
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        read -rt "0.$(printf %03d $ms)" -u "$nothing"
        [ $ms -ge 128 ] || ms=$((ms * 5 / 4))
    done
}

is_gone() { # or a zombie
    local stat
    ! { read -r stat <"/proc/$1/stat"; } 2>/dev/null || [[ ${stat##*) } == Z* ]]
}
group_is_gone() {
    ! kill -0 -- "-$1" 2>/dev/null ||
        [ -z "$(ps -eo pgid=,stat= | awk -v g="$1" '$1 == g && $2 !~ /^Z/')" ]
}

# insist SIGNAL: sends it to the started job until the job ends, seconds apart, since signals within
# a second of the first one count as that one, and a busy machine delivers late.
insist() {
    local tries
    for tries in {1..10}; do
        kill "-$1" "$started_pid" 2>/dev/null
        ! await 1 is_gone "$started_pid" || return 0
    done
}

# Tests mark their workers by a `sleep` of $mark seconds, a length unique to the test. gone
# SECONDS waits until none of them is left.
left() { pgrep -f "sleep $mark" >/dev/null; }
none_left() { ! left; }
gone() {
    await "$1" none_left && return
    fail "left over: $(pgrep -af "sleep $mark")"
    pkill -f "sleep $mark"
}

# ended SECONDS: waits for the started command; sets `status`, 124 if it had to be killed.
ended() {
    local pid=$started_pid
    if await "$1" is_gone "$pid"; then
        wait "$pid" 2>/dev/null
        status=$?
    else
        fail "still running after $1 s: choir"
        status=124
    fi
    kill -KILL -- "-$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    started_pid=
}

# start_until LINES OPTION...: starts a job, whose output goes to a pipe, and reads LINES lines of
# it. A job that is read no further cannot end, so a test that is slow still strikes it in time. The
# pipe holds 16 KiB in place of 64, about 130 lines of JSON (1031 is F_SETPIPE_SZ), so that this
# holds for jobs of LINES + 150 steps.
start_until() {
    local more=$1 line held
    shift
    rm -f pipe
    mkfifo pipe
    exec {held}<>pipe
    perl -e 'exit(fcntl(STDIN, 1031, 16384) != 16384)' <&"$held" || fail 'the pipe stays large'
    set -m
    "$CHOIR" "$@" >pipe 2>err </dev/null {held}<&- &
    started_pid=$!
    set +m
    exec {lines}<pipe {held}<&-
    while ((more--)) && read -r -t $((60 * patience)) -u "$lines" line; do
        echo "$line"
    done >out
    [ "$more" -lt 0 ] || fail "the output ends: $(cat err)"
}
# Reads the rest, waits for the job, and returns its exit status.
end_started() {
    timeout $((60 * patience)) cat <&"$lines" >>out
    exec {lines}<&-
    wait "$started_pid"
}

# has FILE PATTERN...: FILE contains each pattern.
has() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do
        grep -qE -e "$pattern" "$file" ||
            fail "no '$pattern' in $file: $(head -c 2000 "$file")"
    done
}

# --- what it wrote ----------------------------------------------------------------------------

# steps_of FILE [FIRST]: one line "step bits" per step, from step FIRST on.
steps_of() {
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*"loss_bits":"\(0x[0-9a-f]*\)".*/\1 \2/p' "$1" |
        awk -v first="${2:-1}" '$1 >= first'
}

# field NAME FILE: its value in the summary (or in a lone line).
field() {
    grep -v -e '"event":"step"' "$2" | tail -n 1 |
        sed -n 's/.*"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p'
}

# same_run A B [FIRST]: every step from FIRST on and the weights have equal bits.
same_run() {
    [ -n "$(steps_of "$1" "${3:-1}")" ] || { fail "$1 has no steps"; return 1; }
    [ "$(steps_of "$1" "${3:-1}")" = "$(steps_of "$2" "${3:-1}")" ] ||
        { fail "$1 and $2 differ in loss_bits"; return 1; }
    [ -n "$(field weights_sha256 "$1")" ] &&
        [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ] ||
        { fail "$1 and $2 differ in weights_sha256"; return 1; }
}

# --- data -------------------------------------------------------------------------------------

# make_text FILE LINES: readable, and always the same text.
make_text() {
    awk -v n="$2" 'BEGIN {
        split("the sea sings of a small boat and one grey gull under rain", word, " ")
        for (i = 0; i < n; i++) {
            x = (x * 1103515245 + 12345) % 2147483648
            line = word[x % 13 + 1]
            for (j = 1; j < 6; j++) {
                x = (x * 1103515245 + 12345) % 2147483648
                line = line " " word[int(x / 64) % 13 + 1]
            }
            print line "."
        }
    }' >"$1"
}

# make_tokenizer FILE WORD...: BERT's kind of tokenizer, with these words.
make_tokenizer() {
    local file=$1 vocab='"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3' i=4 word added=
    shift
    for word; do vocab+=",\"$word\":$((i++))"; done
    for word in '0 [PAD]' '2 [CLS]' '3 [SEP]'; do
        added+=",{\"id\":${word% *},\"content\":\"${word#* }\",\"special\":true}"
    done
    cat >"$file" <<END
{"added_tokens":[${added#,}],
 "normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",
 "max_input_chars_per_word":100,"vocab":{$vocab}}}
END
}

# be32 N: four bytes, the highest first, as printf escapes.
be32() {
    printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) \
        $(($1 >> 8 & 255)) $(($1 & 255))
}

# Lists /dev/shm without the semaphores of Python's multiprocessing and PostgreSQL's segments, which
# do not come from Choir.
shared_files() { ls /dev/shm | grep -v -e '^sem\.mp-' -e '^PostgreSQL\.'; }

# make_idx FOLDER PREFIX COUNT: images of 12 by 12 whose columns tell the class, and their
# labels.
make_idx() {
    mkdir -p "$1"
    local images="$1/$2-images-idx3-ubyte" labels="$1/$2-labels-idx1-ubyte"
    printf '%b' "\\x00\\x00\\x08\\x03$(be32 "$3")$(be32 12)$(be32 12)" >"$images"
    printf '%b' "\\x00\\x00\\x08\\x01$(be32 "$3")" >"$labels"
    awk -v n="$3" 'BEGIN { for (i = 0; i < n; i++) for (p = 0; p < 144; p++)
        printf "\\x%02x", (p % 12 == i % 10) ? 255 - p % 7 : (i * p) % 31 }' |
        { IFS= read -r text; printf '%b' "$text"; } >>"$images"
    awk -v n="$3" 'BEGIN { for (i = 0; i < n; i++) printf "\\x%02x", i % 10 }' |
        { IFS= read -r text; printf '%b' "$text"; } >>"$labels"
}
