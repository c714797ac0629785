#!/usr/bin/env python3
"""Published chat templates beside transformers: the texts of each for CONVERSATIONS, and the parts that it marks.

    CHOIR_TEMPLATES=FOLDER published.py            compares; FOLDER has each template under its SHA-256
    CHOIR_TEMPLATES=FOLDER published.py --record   prints tests/golden/chats/published.tsv with new hashes

The templates stay in their repositories: published.tsv has where each comes from, its licence and hash, and the hash
of the texts that transformers gives, so that another version of transformers is noticed. FOLDER is filled by, say,
git -C REPOSITORY show COMMIT:PATH >FOLDER/SHA256.
"""
import ctypes
import datetime
import hashlib
import importlib.util
import json
import os
import sys

FOLDER = os.environ.get("CHOIR_TEMPLATES", "")
if not FOLDER or importlib.util.find_spec("transformers") is None or importlib.util.find_spec("numpy") is None:
    print("skipped: CHOIR_TEMPLATES names no folder of templates, or %s has no transformers" % sys.executable)
    sys.exit(77)

import logging

import transformers.utils.chat_template_utils as templates
from transformers.tokenization_utils_base import _normalize_chat_messages

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import choir
from choir import C

logging.disable(logging.CRITICAL)
TABLE = os.path.join(choir.ROOT, "tests", "golden", "chats", "published.tsv")
NOW = 1700000000
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def user(content):
    return {"role": "user", "content": content}


def answer(content, **more):
    return dict({"role": "assistant", "content": content}, **more)


def call(i, name, arguments):
    return {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are  terse.\n"}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The \"weather\" of a city.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Its name"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": ["integer", "null"], "minimum": 1},
            "opts": {"type": "object", "required": ["deep"],
                     "properties": {"deep": {"type": "array", "items": {"type": "number"}}}}}},
    "return": {"type": "string"}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "Adds <a> & b.", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}
CALLS = [user("Weather in Köln?"),
         answer(None, tool_calls=[call("abcdefghi", "get_weather", {"city": "Köln", "days": 2,
                                                                    "opts": {"deep": [1.5, 2]}})]),
         {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 21}"},
         answer("It is 21 °C."), user("Thanks!")]
TWO = [SYSTEM, user("a"), answer("Let me see.", tool_calls=[call("abcdefghi", "add", {"a": 1, "b": 2}),
                                                            call("123456789", "get_weather", {"city": "B"})]),
       {"role": "tool", "name": "add", "tool_call_id": "abcdefghi", "content": "3"},
       {"role": "tool", "name": "get_weather", "tool_call_id": "123456789", "content": "sun"}, answer("3 and sun")]
CONVERSATIONS = [
    {"messages": [user("Hi")]},
    {"messages": [user("Hi")], "add_generation_prompt": True},
    {"messages": [SYSTEM, user(" Hello there \n")], "add_generation_prompt": True},
    {"messages": [SYSTEM, user("Hi"), answer("Hello! "), user("How are\nyou?"), answer("Fine.")]},
    {"messages": [user("Hi"), answer("Hello! "), user("日本語 \"q\" <b>"), answer("It's {{ x }} {% fine %}")]},
    {"messages": [user("2+2?"), answer("4", reasoning_content="Add.\nTwo."), user("3?"),
                  answer("<think>\nHm.\n</think>\n\n9")]},
    {"messages": [user("2+2?"), answer("<think>a</think>4"), user("3?")], "add_generation_prompt": True,
     "enable_thinking": False},
    {"messages": [user([{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]),
                  answer([{"type": "text", "text": "A cat."}])]},
    {"messages": [SYSTEM, user("Hi")], "tools": [WEATHER, ADD], "add_generation_prompt": True},
    {"messages": CALLS, "tools": [WEATHER, ADD], "add_generation_prompt": True},
    {"messages": CALLS, "add_generation_prompt": True},
    {"messages": TWO, "tools": [WEATHER, ADD]},
    {"messages": [user("a"), answer("", tool_calls=[call("abcdefghi", "add", "{\"a\": 1, \"b\": 2}")]),
                  {"role": "tool", "name": "add", "tool_call_id": "abcdefghi", "content": "3"}],
     "tools": [ADD], "add_generation_prompt": True},
    {"messages": [answer("I first"), user("Hi"), user("again")]},
    {"messages": [{"role": "narrator", "content": "x"}, user("Hi")]},
    {"messages": [{"role": "developer", "content": "Be kind."}, user("Hi")], "add_generation_prompt": True},
    {"messages": [user("What?")], "documents": [{"title": "T", "text": "body", "contents": "c"}],
     "add_generation_prompt": True},
    {"messages": [user("x"), {"role": "assistant"}, user("y")]},
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


templates.datetime = Clock


def theirs(template, conversation):
    """The text, or None for a refusal."""
    given = dict(conversation)
    messages = _normalize_chat_messages(given.pop("messages"))
    try:
        return templates.render_jinja_template([messages], chat_template=template, **{
            "tools": None, "documents": None, "add_generation_prompt": False, **SPECIAL, **given})[0][0]
    except Exception:  # of any kind, since a template is a program
        return None


def ours(chat, conversation):
    text, count = ctypes.c_void_p(), ctypes.c_size_t()
    try:
        C.chat_render(chat, json.dumps({**SPECIAL, **conversation}), NOW, ctypes.addressof(text),
                      ctypes.addressof(count))
    except choir.Error as error:
        return None, str(error)
    found = ctypes.string_at(text.value, count.value).decode()
    ctypes.CDLL(None).free(text)
    return found, ""


def check(row):
    """The hash of transformers' texts, and the number of conversations whose text is another one here."""
    with open(os.path.join(FOLDER, row[4]), encoding="utf-8", newline="") as file:
        template = file.read()
    if hashlib.sha256(template.encode()).hexdigest() != row[4]:
        raise SystemExit("%s: the file is another one than published.tsv has" % row[4])
    chat, digest, wrong = ctypes.c_void_p(), hashlib.sha256(), 0
    data = template.encode()
    C.chat_parse(row[2], data, len(data), None, ctypes.addressof(chat))
    for i, conversation in enumerate(CONVERSATIONS):
        want, (found, why) = theirs(template, conversation), ours(chat, conversation)
        digest.update((want or "").encode() + b"\0")
        if want != found:
            wrong += 1
            print("%s, conversation %d:\nours   %r %s\ntheirs %r" % (row[2], i, found, why, want))
    C.chat_free(chat)
    return digest.hexdigest(), wrong


def main():
    wrong = 0
    with open(TABLE) as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    print("\t".join(lines[0]) if "--record" in sys.argv else "%d templates" % (len(lines) - 1))
    for row in lines[1:]:
        digest, differ = check(row)
        wrong += differ
        if "--record" in sys.argv:
            print("\t".join(row[:5] + [digest, row[6]]))
        elif digest != row[5]:
            print("%s: this transformers gives other texts than published.tsv records" % row[2])
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
