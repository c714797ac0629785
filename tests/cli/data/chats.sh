#!/usr/bin/env bash
# Conversations by the chat template of a model's folder: what is chosen is said; every form of
# record; the same bits on two ranks and after a pause; a template or a record that is wrong.
. "$(dirname "$0")/../lib.sh"

# The model: bytes, and a token that ends a text.
for i in $(seq 300); do echo '{"text":"some text"}'; done >text.jsonl
good train --model gpt2:layers=1,heads=2,width=16,context=48 --bytes --batch-size 4 --steps 1 \
    --save base text.jsonl
cp -rL base/latest model
cat >model/chat_template.jinja <<'END'
{%- for m in messages -%}
{%- if m.role == 'narrator' %}{{ raise_exception('Only users and assistants speak') }}{% endif -%}
<{{ m.role }}>{{ m.content | trim }}</>
{% endfor -%}
{%- if add_generation_prompt %}<assistant>{% endif -%}
END
say() { printf '{"role":"%s","content":"%s"}' "$1" "$2"; }
chats() {
    local i
    for i in $(seq 40); do
        case $((i % 3)) in
        0) echo "{\"messages\":[$(say user "Say $i"),$(say assistant "$i")]}" ;;
        1) echo '{"conversations":[{"from":"human","value":"Say '"$i"'"},' \
                '{"from":"gpt","value":"'"$i"'"}]}' ;;
        2) echo '{"instruction":"Say","input":"'"$i"'","output":"'"$i"'"}' ;;
        esac
    done
}
chats >chats.jsonl
job=(train --model ./model --batch-size 4 --microbatches 2 --json)
by='conversations are written by the chat template of the tokenizer.s folder; what the assistant'

chosen() {
    noted "$by says is learned, where it adds to the messages before it" \
        "${job[@]}" --steps 4 chats.jsonl
    mv out one
    noted "$by" "${job[@]}" --steps 4 --strategy ddp --nproc 2 chats.jsonl
    same_run one out
    noted "$by" "${job[@]}" --pack --steps 4 --save packed chats.jsonl
    mv out one
    noted "$by" "${job[@]}" --pack --steps 2 --save half chats.jsonl
    noted "$by" train --json --resume half --steps 4
    same_run one out 3
    good eval --json packed chats.jsonl
}

# A template that marks answers, and a conversation that is too long for a sample.
marked() {
    cp -r model marking
    sed -i 's|^<{{.*|<{{ m.role }}>{% generation %}{{ m.content }}</>{% endgeneration %}|' \
        marking/chat_template.jinja
    { chats; echo "{\"messages\":[$(say assistant "$(printf '%0200d' 0)")]}"; } >long.jsonl
    noted 'as the template marks it; 1 are longer than the 48 tokens of a sample, and are cut' \
        "${job[@]}" --model ./marking --steps 2 --pack long.jsonl
}

# A template that writes nothing behind an answer, or does not mark what it writes there, teaches no
# end of an answer.
endless() {
    local line never='no token that ends a turn or a text is learned, so answers will not end'
    for line in '<{{ m.role }}>{{ m.content }}' '<{{ m.role }}>{{ m.content }}<.end>' \
        '<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}<|endoftext|>'; do
        rm -rf ends && cp -r model ends
        sed -i "s/^<{{.*/$line/" ends/chat_template.jinja
        noted "$never" "${job[@]}" --model ./ends --steps 1 chats.jsonl
    done
    sed -i 's/{% endgeneration %}<|endoftext|>/<|endoftext|>{% endgeneration %}/' \
        ends/chat_template.jinja
    noted 'as the template marks it$' "${job[@]}" --model ./ends --steps 1 chats.jsonl
}

# A template that writes its eos_token behind the last message, whichever that is.
trailing() {
    cp -r model trails
    echo '{"eos_token":"<|endoftext|>"}' >trails/tokenizer_config.json
    cat >>trails/chat_template.jinja <<'END'
{%- if not add_generation_prompt %}{{ eos_token }}{% endif -%}
END
    for i in $(seq 20); do
        echo "{\"messages\":[$(say user "Say $i"),$(say assistant "$i"),$(say user "Say it"),$(
            say assistant "it")]}"
    done >twice.jsonl
    noted "$by says is learned, where it adds" "${job[@]}" --model ./trails --steps 1 twice.jsonl
}

# ShareGPT's names within "messages", and messages without any.
names() {
    local i
    for i in $(seq 40); do
        echo '{"messages":[{"from":"human","value":"Say '"$i"'"},{"from":"gpt","value":"'"$i"'"}]}'
    done >turns.jsonl
    noted "$by" "${job[@]}" --steps 2 turns.jsonl
    mv out one
    sed 's/from":"human/role":"user/; s/from":"gpt/role":"assistant/; s/value/content/g' \
        turns.jsonl >usual.jsonl
    noted "$by" "${job[@]}" --steps 2 usual.jsonl
    same_run one out
    cp -r model lenient
    echo '{% for m in messages %}{{ m.text }}{% endfor %}' >lenient/chat_template.jinja
    for i in $(seq 40); do echo '{"messages":[{"text":"a"}]}'; done >bare.jsonl
    bad 1 'bare.jsonl, line 1: .* which alone are learned, got messages without a role, and' \
        "${job[@]}" --model ./lenient bare.jsonl
}

columns() {
    local i
    echo 'question,answer' >rows.csv
    for i in $(seq 40); do echo "Say $i,it is $i"; done >>rows.csv
    bad 1 "rows.csv, line 2: missing the column 'text'" "${job[@]}" --steps 2 rows.csv
    good "${job[@]}" --steps 2 --columns prompt=question,completion=answer --save paired rows.csv
    good eval --json paired rows.csv
    noted "$by" "${job[@]}" --steps 2 --columns instruction=question,output=answer rows.csv
    bad 1 "unknown option 'question': choose one of text, prompt" \
        "${job[@]}" --columns question=prompt rows.csv
    bad 1 'cannot continue with' train --resume paired --steps 4 --columns text=question
}

# Alpaca's and ShareGPT's files are arrays, on one line or on many.
arrays() {
    noted "$by" "${job[@]}" --steps 3 chats.jsonl
    mv out one
    { printf '[' && sed '$!s/$/,/' chats.jsonl | tr -d '\n' && echo ']'; } >row.json
    sed 's/,"/,\n    "/g; 1s/^/[\n /; $!s/$/,/; $s/$/\n]/' chats.jsonl >many.json
    for file in row many; do
        noted "$by" "${job[@]}" --steps 3 $file.json
        same_run one out
        ! grep -q 'plain text' err || fail "$(cat err)"
    done
    head -c 1500 many.json >cut.json
    bad 1 'cut.json, line [0-9]+: the file ends within an object' "${job[@]}" cut.json
    sed '7s/:/;/' many.json >wrong.json
    bad 1 'wrong.json, line 7, column [0-9]+: expected' "${job[@]}" wrong.json
    { sed '$d' many.json && echo ', 3]'; } >number.json
    bad 1 'number.json, line [0-9]+: expected an object' "${job[@]}" number.json
    { cat row.json && echo x; } >behind.json
    bad 1 'behind.json, line 2: expected nothing behind the array' "${job[@]}" behind.json
}

faults() {
    echo "{\"messages\":[$(say narrator x)]}" >refused.jsonl
    bad 1 'refused.jsonl, line 1: chat_template.jinja, line 2: the chat template refuses .*Only' \
        "${job[@]}" refused.jsonl
    echo '{"messages":[]}' >empty.jsonl
    bad 1 'empty.jsonl, line 1: messages: expected an array of one' "${job[@]}" empty.jsonl
    echo "{\"messages\":[$(say assistant x)]}" >first.jsonl
    bad 1 "first.jsonl, line 1: message 1: it is the assistant's, and nothing stands before it" \
        "${job[@]}" first.jsonl
    cp -r model other
    echo '{% for m in messages %}{{ "!" if loop.last }}{{ m.content }}{% endfor %}' \
        >other/chat_template.jinja
    echo "{\"messages\":[$(say user a),$(say assistant b),$(say user c)]}" >changes.jsonl
    bad 1 'changes.jsonl, line 1: message 1: later messages change the template.s text' \
        "${job[@]}" --model ./other changes.jsonl
    printf 'a\n{%% include "b" %%}' >other/chat_template.jinja
    bad 1 'changes.jsonl, line 1: a chat: chat_template.jinja, line 2: the tag .% include %. is' \
        "${job[@]}" --model ./other changes.jsonl
    rm other/chat_template.jinja
    bad 1 'the tokenizer.s folder has no chat template, so chats are written in ChatML' \
        "${job[@]}" --model ./other changes.jsonl
}

# Nothing is learned of a conversation without an answer: a file of such alone is refused.
silent() {
    local i refused="expected words of the role 'assistant', which alone are learned, got messages"
    refused="$refused of"
    for i in $(seq 40); do
        echo "{\"messages\":[$(say system Hi),$(say user "Say $i"),$(say user more)]}"
    done >asked.jsonl
    for how in '' --pack '--strategy ddp --nproc 2'; do
        bad 1 "asked.jsonl, line 1: $refused 'system', 'user', and the training split has no oth" \
            "${job[@]}" $how asked.jsonl
    done
    bad 1 "asked.jsonl, line 1: $refused 'system', 'user'" train --bytes --pack asked.jsonl \
        --model gpt2:layers=1,heads=2,width=16
    choir "${job[@]}" - <asked.jsonl >out 2>err && fail 'a stream without answers'
    has err 'standard input, line [0-9]+: up to here no conversation has words of the role'
    { chats && head -3 asked.jsonl; } >some.jsonl
    noted 'before it; .*the assistant says nothing in [23] conversations, first in some' \
        "${job[@]}" --steps 2 some.jsonl
    has err 'some.jsonl, line 4[123]: nothing of such a conversation is learned'
    mkdir parts
    chats >parts/train.jsonl
    cp asked.jsonl parts/validation.jsonl
    bad 1 "parts/validation.jsonl, line 1: $refused .*the validation split has no others" \
        "${job[@]}" parts
}

check chosen
check silent
check marked
check endless
check trailing
check names
check columns
check arrays
check faults
finish
