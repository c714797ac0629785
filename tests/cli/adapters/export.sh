#!/usr/bin/env bash
# choir export, and --adapter: adapters in peft's form leave and come back with the same bits; whole
# models keep the files that Choir does not use; another base is refused, and leaves nothing.
. "$(dirname "$0")/../lib.sh"

make_text text 200
small=gpt2:layers=2,heads=2,width=16,context=16

# A published folder: a checkpoint without its state, with a key and a file of others.
make_base() {
    good train --quiet --model "$small" --steps 2 --no-eval --batch-size 4 --seed "$2" --save made \
        text || return
    good export made "$1" --format hf
    rm -rf made
    sed -i 's/^{/{"transformers_version": "9.8.7",/' "$1/config.json"
    echo '{{ messages }}' >"$1/chat_template.jinja"
    mkdir "$1/additional_chat_templates"
    echo '{{ tools }}' >"$1/additional_chat_templates/tool_use.jinja"
    echo '{{ documents }}' >"$1/additional_chat_templates/rag.jinja"
    echo terms >"$1/LICENSE"
    head -c 100000 /dev/zero >"$1/of_others.txt"
}

tune() {
    good train --json --model base --lora r=2,targets=c_attn/c_fc --steps 3 --no-eval \
        --batch-size 4 --lr 0.02 "$@" text
}

loss_of() {
    good eval --json "$1" text && field loss out
}

adapters_come_back() {
    make_base base 1 && tune --save tuned || return
    cp out first
    good export tuned adapter --format peft
    [ "$(cd adapter && echo *)" = 'README.md adapter_config.json adapter_model.safetensors' ] ||
        fail "adapter has $(ls adapter)"
    has adapter/README.md 'base_model: .*/base"' 'SHA-256 of the data' '\| lora \|' '\| steps \| .3'
    ! grep -q "$work/tuned" adapter/README.md || fail 'the card names a folder of the run'
    good train --json --model base --adapter adapter --steps 1 --lr 0 --weight-decay 0 --no-eval \
        --batch-size 4 text
    [ "$(field weights_sha256 out)" = "$(field weights_sha256 first)" ] || fail 'other weights'
    [ "$(loss_of adapter)" = "$(loss_of tuned)" ] || fail 'an adapter beside its base: another loss'
    good train --json --model base --adapter adapter --steps 2 --no-eval --batch-size 4 \
        --microbatches 2 --save more text && mv out one
    good train --json --model base --adapter adapter --steps 2 --no-eval --batch-size 4 \
        --microbatches 2 --strategy fsdp --nproc 2 text && mv out two
    same_run one two
    good train --json --resume more --steps 3 --no-eval
}

whole_models_keep_files() {
    good export tuned merged --format hf
    good export base merged2 --format hf --adapter adapter
    cmp merged/model.safetensors merged2/model.safetensors || fail 'two ways, two files'
    for file in chat_template.jinja LICENSE of_others.txt; do
        cmp base/$file merged2/$file || fail "$file"
    done
    [ ! -e merged/beside ] || fail "$(ls merged)"
    ln -s gone base/special_tokens_map.json # to a file that a cache has lost
    good export base merged3 --format hf --adapter adapter
    rm base/special_tokens_map.json
    good train --quiet --resume tuned --steps 4 --save-every 1 --save-keep 1 --save on --no-eval
    rm -r on/step-00000004/additional_chat_templates # a link goes, and its target stays
    ln -s "$PWD/base/additional_chat_templates" on/step-00000004/additional_chat_templates
    good train --quiet --resume on --steps 5 --save-every 1 --save-keep 1 --no-eval
    [ "$(cd on && echo step-*)" = step-00000005 ] || fail "earlier steps: $(ls on)"
    [ -s base/additional_chat_templates/rag.jinja ] || fail 'a file behind a link is gone'
    good checkpoint convert on shards --shards 2
    good checkpoint verify on
    good checkpoint verify shards
    good export on/latest again --format hf
    for file in chat_template.jinja additional_chat_templates/{tool_use,rag}.jinja; do
        for copy in merged merged2 on/latest shards again; do
            cmp base/$file $copy/$file || fail "$file in $copy"
        done
    done
    for file in LICENSE of_others.txt; do
        for copy in merged on/latest/beside shards/beside again; do
            cmp base/$file $copy/$file || fail "$file in $copy"
        done
    done
    good checkpoint convert base copied
    cmp base/LICENSE copied/LICENSE || fail 'a published folder converted'
    cp -r base own && mkdir own/beside && echo mine >own/beside/LICENSE
    good train --quiet --model own --steps 1 --batch-size 2 --no-eval --save of_own text
    cmp base/LICENSE of_own/latest/beside/LICENSE || fail "a base's own folder beside"
    rm -r own/beside
    good train --quiet --weights own --steps 1 --batch-size 2 --no-eval --save by_weights text
    cmp base/LICENSE by_weights/latest/beside/LICENSE || fail 'the license of --weights'
    rm on/latest/additional_chat_templates/rag.jinja
    ! choir checkpoint verify on >out 2>err || fail 'a template is gone, and all is good'
    has out 'BAD .*additional_chat_templates/rag.jinja'
    grep -q 9.8.7 merged/config.json || fail 'a key of others'
    good export tuned half --format hf --dtype bf16
    grep -q bfloat16 half/config.json || fail "$(cat half/config.json)"
    local half all
    half=$(stat -c %s half/model.safetensors)
    all=$(stat -c %s merged/model.safetensors)
    [ "$half" -lt $((all * 6 / 10)) ] || fail "$half of $all bytes"
    good generate merged --tokens 4 --prompt the
    [ ! -e merged/job.json ] && [ ! -e merged/state.json ] || fail 'the state of a training'
}

# Another model's licence does not hold for a new one; a file about tokens does.
a_tokenizer_comes_alone() {
    cp -r base old
    echo merges >old/my_merges.txt
    good train --quiet --model old --steps 1 --batch-size 2 --no-eval --save oldrun text
    cmp base/LICENSE oldrun/latest/beside/LICENSE || fail "the run's own license"
    good train --quiet --model "$small" --tokenizer oldrun/latest --steps 1 --batch-size 2 \
        --no-eval --save new text
    [ "$(ls new/latest/beside)" = my_merges.txt ] || fail "$(ls new/latest/beside)"
    cmp base/chat_template.jinja new/latest/chat_template.jinja || fail 'its template'
    good train --quiet --resume new --steps 2 --no-eval
    [ "$(ls new/latest/beside)" = my_merges.txt ] || fail "resumed: $(ls new/latest/beside)"
    good train --quiet --model "$small" --tokenizer old --steps 1 --batch-size 2 --no-eval \
        --save newer text
    [ ! -e newer/latest/beside/LICENSE ] || fail 'a published folder lends its license'
}

is_refused() {
    make_base other 2
    bad 1 'an adapter of another base: its base.s weights have the SHA-256 [0-9a-f]{12}' \
        export other nothing --format hf --adapter adapter
    bad 1 'is an adapter of another base' train --quiet --model other --adapter adapter text
    bad 1 'base has no adapters, which are all that the format peft has' export base nothing \
        --format peft
    bad 1 'tuned has adapters already' export tuned nothing --format peft --adapter adapter
    bad 1 'merged is there already' export tuned merged --format hf
    bad 2 'missing --format' export tuned nothing
    bad 2 "choose one of peft, hf" export tuned nothing --format onnx
    bad 1 '(missing|no file|No such file)' export nowhere nothing --format hf
    bad 1 'adapter has r=2,.* where --lora says r=3' train --quiet --model base --adapter adapter \
        --lora r=3 text
    bad 1 'missing --model, its base, which it calls .*/base' train --quiet --adapter adapter text
    cp -r adapter dora
    sed -i 's/"use_dora": false/"use_dora": true/' dora/adapter_config.json
    bad 1 "key 'use_dora' is true: Choir has no such adapters" export base nothing --format hf \
        --adapter dora
    cp -r adapter pissa
    sed -i 's/"init_lora_weights": true/"init_lora_weights": "pissa"/' pissa/adapter_config.json
    bad 1 "key 'init_lora_weights' is .*pissa" export base nothing --format hf --adapter pissa
    cp -r adapter cut && truncate -s 200 cut/adapter_model.safetensors
    bad 1 'cut/adapter_model.safetensors' export base nothing --format hf --adapter cut
    cp -r adapter away && sed -i 's|"base_model_name.*|"base_model_name_or_path": "hub/name",|' \
        away/adapter_config.json
    bad 1 "adapter of 'hub/name', which is no model here: choir export BASE NEW" eval away text
    [ ! -e nothing ] && ! compgen -G 'nothing*' || fail "left: $(echo nothing*)"
    [ -z "$(echo -n *.new-*)" ] || [ "$(echo *.new-*)" = '*.new-*' ] || fail "left: $(echo *.new-*)"
}

check adapters_come_back
check whole_models_keep_files
check a_tokenizer_comes_alone
check is_refused
finish
