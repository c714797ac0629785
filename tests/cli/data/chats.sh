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
    noted "$by says is learned, where it adds to the messages before it$" \
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
    bad 1 'cannot go on with' train --resume paired --steps 4 --columns text=question
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

check chosen
check marked
check columns
check faults
finish
