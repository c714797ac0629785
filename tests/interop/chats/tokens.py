#!/usr/bin/env python3
"""Conversations beside transformers' apply_chat_template: token ids and masks of records in every form, by
tokenizers of several kinds and templates of several styles; the constructs of tests/golden/chats.
"""
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

for name in ("numpy", "tokenizers", "transformers"):
    if importlib.util.find_spec(name) is None:
        print("skipped: %s has no %s (PyPI has it)" % (sys.executable, name))
        sys.exit(77)

import logging

import numpy as np
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import choir
from choir import C, E

logging.disable(logging.WARNING)
GOLDEN = os.path.join(choir.ROOT, "tests", "golden", "chats")
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
MARKERS = list(SPECIAL.values()) + ["<|im_start|>", "<|im_end|>", "[INST]", "[/INST]"]
CORPUS = ["What is the weather in Köln? It is 21 °C.", "Hello there, how are you?", "2 + 2 is 4, naïve café 日本語 👍🏽",
          "user assistant system tool", "tool_calls arguments {\"city\": \"Köln\"}"] * 4

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}
{{ c.function | tojson }}{% endfor %}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATES = {
    "marked": CHATML,
    "unmarked": CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", ""),
    "turns": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
             "{% elif m.role == 'assistant' %} {{ m.content | trim }}{{ eos_token }}{% endif %}{% endfor %}",
    "tools": "{{ bos_token }}{% if tools %}{{ tools | tojson(indent=2) }}\n{% endif %}{% for m in messages %}"
             "{{ m.role | upper }}: {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
             "{{ p.text }}{% endfor %}{% endif %}{{ eos_token }}\n{% endfor %}"
             "{% if add_generation_prompt %}ASSISTANT: <think>\n{% endif %}",
}


# --- tokenizers ---

def bytes_of_words():
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=MARKERS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(CORPUS, trainer)
    return made


def pieces():
    """As Llama's: a blank before words, and bytes for what is unknown."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False,
                                  special_tokens=["<unk>"] + MARKERS + ["<0x%02X>" % b for b in range(256)])
    made.train_from_iterator([" " + line for line in CORPUS], trainer)
    file = json.loads(made.to_str())  # bytes are no special tokens there
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    return tokenizers.Tokenizer.from_str(json.dumps(file))


TOKENIZERS = {"bytes": bytes_of_words, "pieces": pieces}


def load(folder, kind, template):
    os.makedirs(folder, exist_ok=True)
    made = TOKENIZERS[kind]()
    made.save(os.path.join(folder, "tokenizer.json"))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made, chat_template=TEMPLATES[template], **SPECIAL)
    theirs.save_pretrained(folder)
    handle = ctypes.c_void_p()
    C.tokenizer_load(os.path.abspath(folder), ctypes.addressof(handle))
    return theirs, handle


# --- conversations, as records and as messages ---

def say(role, content, **more):
    return dict({"role": role, "content": content}, **more)


TOOL = {"type": "function", "function": {"name": "weather", "description": "Of a \"city\".", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}
CALLS = [say("user", "Weather in Köln?"),
         {"role": "assistant", "content": None, "tool_calls": [
             {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 1.5}}}]},
         say("tool", "21"), say("assistant", "It is 21 °C. 👍🏽")]
TURNS = [say("user", "Hello there"), say("assistant", "Hi! How are you?"), say("user", "naïve\n日本語?"),
         say("assistant", "Fine <s> thanks.\n")]


def records():
    """Pairs of a record and what apply_chat_template gets for it."""
    yield {"messages": TURNS}, TURNS, None
    yield {"messages": [say("system", "Be brief.")] + TURNS}, [say("system", "Be brief.")] + TURNS, None
    yield {"messages": CALLS, "tools": [TOOL]}, CALLS, [TOOL]
    yield {"messages": json.dumps(TURNS), "tools": json.dumps([TOOL])}, TURNS, [TOOL]
    yield {"messages": TURNS[:2], "tools": None}, TURNS[:2], None
    yield ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}], "system": "S"},
           [say("system", "S"), say("user", "Hi"), say("assistant", "Hello!")], None)
    yield {"conversations": TURNS}, TURNS, None
    yield ({"instruction": "Add.", "input": "2 + 2", "output": "4", "text": "Below is an instruction"},
           [say("user", "Add.\n\n2 + 2"), say("assistant", "4")], None)
    yield {"instruction": "Say hi.", "input": "", "output": "hi"}, [say("user", "Say hi."), say("assistant", "hi")], None
    yield {"prompt": TURNS[:3], "completion": TURNS[3:]}, TURNS, None
    yield {"messages": [say("user", "e\u0301 cafe\u0301"), say("assistant", "e\u0301!")]}, \
        [say("user", "e\u0301 cafe\u0301"), say("assistant", "e\u0301!")], None


def expected_mask(theirs, messages, tools, made):
    """Of answers: the template's own marks, or the text beyond that of the messages before and the prompt."""
    if "generation %" in theirs.chat_template:
        return made["assistant_masks"]
    def render(count, prompt):
        return theirs.apply_chat_template(messages[:count], tools=tools, tokenize=False, add_generation_prompt=prompt)
    spans = []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            whole = render(len(messages), False)
            begin = len(os.path.commonprefix([render(i, True), whole]))
            spans.append((begin, len(render(i + 1, False))))
    offsets = theirs(whole, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return [int(any(a < to and b > begin for begin, to in spans)) for a, b in offsets]


def ours(folder, record, handle, count):
    """The first ids of the record, and which of them are learned; the first one is never a target."""
    path = os.path.join(folder, "data")
    os.makedirs(path, exist_ok=True)
    for split in ("train", "validation"):
        with open(os.path.join(path, split + ".jsonl"), "w") as file:
            file.write(2 * (json.dumps(record) + "\n"))
    opts = choir.options(C.corpus_defaults, context=count, fixed_tokens=True)
    data, tokenizer = ctypes.c_void_p(), ctypes.c_void_p(handle.value)
    C.dataset_corpus(path, E.CHOIR_TRAIN, opts, ctypes.addressof(tokenizer), ctypes.addressof(data))
    assert tokenizer.value == handle.value
    x, y = np.empty(count, np.int64), np.empty(count, np.int64)
    C.dataset_get(data, 0, x.ctypes.data, y.ctypes.data)
    C.dataset_free(data)
    return x, y


def compare(folder):
    cases = 0
    for kind in TOKENIZERS:
        for style in TEMPLATES:
            theirs, handle = load(os.path.join(folder, kind + "-" + style), kind, style)
            for record, messages, tools in records():
                made = theirs.apply_chat_template(messages, tools=tools, return_dict=True,
                                                  return_assistant_tokens_mask=True)
                ids = np.array(made["input_ids"])
                mask = expected_mask(theirs, messages, tools, made)
                if "prompt" in record:  # whose own answers are not learned
                    asked = theirs.apply_chat_template(record["prompt"], tools=tools)["input_ids"]
                    mask = [int(m and i >= len(asked)) for i, m in enumerate(mask)]
                x, y = ours(folder, record, handle, len(ids))
                what = "%s, %s, %s" % (kind, style, record)
                assert (x == ids).all(), "%s\nours   %s\ntheirs %s" % (what, list(x), list(ids))
                want = [int(i) if learned else -100 for i, learned in zip(ids[1:], mask[1:])]
                assert list(y[:-1]) == want, "%s\nours   %s\ntheirs %s" % (what, list(y[:-1]), want)
                assert any(mask), what
                cases += 1
            C.tokenizer_free(handle)
    print("%d conversations have transformers' ids and masks" % cases)


with tempfile.TemporaryDirectory() as temporary:
    compare(temporary)
subprocess.run([sys.executable, os.path.join(GOLDEN, "constructs.py"), "--check"], check=True)
