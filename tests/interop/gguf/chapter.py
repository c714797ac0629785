"""The guide's chapter on fine-tuning, up to the BERT of ../fine_tuning.py: each of its commands runs as it
stands, on small folders that transformers makes here. Where llama-cli is talked to, llama.cpp is asked through
xllamacpp, if there is one. Then a chat is trained until its answers end."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import folders
from files import CHOIR
from gguf import GGUFReader

GUIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "guide.md")
# The commands train for as long as their options say; those that leave it open make two steps.
CHOIR_SHORTLY = """#!/bin/sh
case "$1 $*" in
train*--steps*|train*--epochs*) exec %(choir)s "$@" ;;
train*) exec %(choir)s "$@" --batch-size 4 --steps 2 --no-eval ;;
*) exec %(choir)s "$@" ;;
esac
"""
LLAMA_CLI = """#!/bin/sh
exec %(python)s %(me)s --talk "$2"
"""


def blocks():
    with open(GUIDE) as file:
        chapter = file.read().split("\n## Fine-tuning\n")[1].split("### A BERT on labelled text")[0]
    return re.findall(r"```sh\n(.*?)```", chapter, re.S)


def talk(path):
    """What llama-cli does, as far as a test needs it."""
    try:
        from texts import answer, server_of
    except SystemExit:
        return print(len(GGUFReader(path).tensors), "tensors")
    print(answer(server_of(path), "the sea")[0])
    sys.stdout.flush()
    os._exit(0)  # servers of llama.cpp keep threads


def png(path, colour):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes(colour) * 40 for _ in range(160))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def program(name, text):
    with open(os.path.join("bin", name), "w") as file:
        file.write(text)
    os.chmod(file.name, 0o755)


def prepare():
    os.makedirs("path/to")
    os.mkdir("bin")
    folders.make("gpt2", 64, "path/to/gpt2")
    folders.make("llama", 256, "path/to/llama")
    folders.make("llama", 256, "smol")
    for name in "text.txt", "more.txt":
        with open(name, "w") as file:
            file.writelines(text + "\n" for text in folders.TEXTS * 16)
    with open("chats.jsonl", "w") as file:
        for i in range(160):
            file.write(json.dumps({"messages": [{"role": "user", "content": "how many gulls?"},
                                                {"role": "assistant", "content": "%d gulls" % i}]}) + "\n")
    for i in range(5):
        os.makedirs("photos/kind%d" % i)
        for k in range(4):
            png("photos/kind%d/%d.png" % (i, k), (40 * i, 60 * k, 90))
    program("choir", CHOIR_SHORTLY % {"choir": os.path.abspath(CHOIR)})
    program("llama-cli", LLAMA_CLI % {"python": sys.executable, "me": os.path.abspath(__file__)})
    run("choir train --model resnet18:classes=7,image=32 --save runs/net photos\n"
        "cp runs/net/latest/model.safetensors resnet18.safetensors\n")


def run(text):
    path = os.path.abspath("bin") + ":" + os.environ["PATH"]
    done = subprocess.run(["sh", "-e", "-c", text], input=b"how many gulls?\n", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=dict(os.environ, PATH=path))
    if done.returncode:
        raise AssertionError("the chapter's block\n%s\nends with\n%s%s" % (
            text, done.stdout.decode(), done.stderr.decode()))


def answers_end():
    """A chat stops at the token with which the template ends an answer, though the folder names another one."""
    folders.make("qwen2", 64, "small")
    run("choir train chats.jsonl --model small --steps 90 --lr 0.005 --no-eval --save runs/small-talk\n"
        "choir export runs/small-talk small-gguf --format gguf\n"
        "choir chat runs/small-talk --temperature 0 --tokens 40 --json >here\n")
    run("choir chat small-gguf/model.gguf --temperature 0 --tokens 40 --json >there\n")
    for name in "here", "there":
        with open(name) as file:
            said = json.loads(file.readline())
        assert said["stopped"] == "eos" and "<|end|>" not in said["text"], said


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        prepare()
        lines = 0
        for text in blocks():
            run(text)
            lines += text.count("choir ") + text.count("llama-cli ")
        answers_end()
        for made in "tuned-adapter/adapter_config.json", "tuned/model.safetensors", "smol-gguf/model.gguf", \
                "smol-again/config.json", "runs/more/latest":
            assert os.path.exists(made), "the chapter makes no %s" % made
        os.chdir("/")
    assert lines >= 12, lines
    print("%d commands of the chapter run" % lines)


if "--talk" in sys.argv:
    talk(sys.argv[-1])
else:
    main()
