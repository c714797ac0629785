"""What a training makes of a published folder: the files beside the weights come out byte by byte, keys
of config.json that Choir does not use stay, and bos, eos and pad are the folder's: in a checkpoint, after
--resume, of several ranks, after `choir checkpoint convert`, and when the result is trained again."""
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

import folders

CHOIR = os.environ.get("CHOIR", os.path.join(os.path.dirname(__file__), "..", "..", "build", "choir"))
BESIDE = ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
          "chat_template.jinja", "preprocessor_config.json", "tokenizer.json",
          "additional_chat_templates/rag.jinja", "tokenizer.model"]
UNKNOWN = ["LICENSE", "vocab.txt"]  # which Choir does not read
ADDED = ["<|pad|>", "<|begin|>", "<｜end▁of▁sentence｜>"]
PAD, BEGIN, END = 256, 257, 258


def choir(*arguments, fails=False):
    done = subprocess.run([CHOIR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert (done.returncode != 0) == fails, "choir %s: %s" % (arguments, done.stderr.decode())
    return done.stderr.decode()


def train(model, save, data, *options, says=None):
    said = choir("train", "--model", model, "--batch-size", "2", "--steps", "2", "--no-eval", "--save", save, *options,
                 data)
    assert says is None or says in said, said
    return os.path.join(save, "latest")


def folder(name, model_type="llama", **more):
    """A chat model's folder, as DeepSeek's Llamas name their tokens."""
    config = {**folders.SIZES[model_type], "model_type": model_type, "vocab_size": 256 + len(ADDED),
              "bos_token_id": BEGIN, "eos_token_id": [END, PAD], "pad_token_id": PAD, "use_cache": True,
              "_name_or_path": "somebody/model", "of_others": {"nested": [1, {"key": None}]},
              "torch_dtype": "bfloat16", **more}
    folders.write(name, config, folders.tensors(config))
    folders.write_tokenizer(name, ADDED)
    folders.write_json(name, "generation_config.json", {"eos_token_id": [END, PAD], "temperature": 0.6})
    folders.write_json(name, "tokenizer_config.json", {"eos_token": ADDED[2], "pad_token": ADDED[0], "x": "é"})
    folders.write_json(name, "special_tokens_map.json", {"eos_token": {"content": ADDED[2]}})
    folders.write_json(name, "added_tokens.json", {ADDED[2]: END})
    folders.write_json(name, "preprocessor_config.json", {})
    with open(os.path.join(name, "chat_template.jinja"), "wb") as file:
        file.write(b"{% for m in messages %}\r\n{{ m }}{% endfor %}")
    os.makedirs(os.path.join(name, "additional_chat_templates"), exist_ok=True)
    with open(os.path.join(name, "additional_chat_templates", "rag.jinja"), "wb") as file:
        file.write(b"{{ documents }}\r\n")
    for other in UNKNOWN:
        with open(os.path.join(name, other), "wb") as file:
            file.write(b"of others: " + other.encode())
    with open(os.path.join(name, "tokenizer.model"), "wb") as file:
        file.write(b"\n\x03abc\x00\xff")
    return config


def config_of(name, file="config.json"):
    with open(os.path.join(name, file)) as opened:
        return json.load(opened)


def check_unknown(where, names):
    """Checkpoints keep unknown files in a folder of their own."""
    inner = os.path.join(where, "beside")
    assert (sorted(os.listdir(inner)) if os.path.exists(inner) else []) == names, (where, os.listdir(where))
    for name in names:
        assert filecmp.cmp(os.path.join(inner, name), os.path.join("model", name), shallow=False), (where, name)


def check_kept(where, before, dtype="float32"):
    for name in BESIDE:
        assert filecmp.cmp(os.path.join(where, name), os.path.join("model", name), shallow=False), (where, name)
    now = config_of(where)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "_name_or_path", "of_others"):
        assert now[key] == before[key], (where, key, now[key])
    assert now["torch_dtype"] == dtype, (where, now)


def all_ways(data):
    before = folder("model")
    saved = train("./model", "one", data)
    check_kept(saved, before)
    choir("checkpoint", "verify", "one")
    choir("train", "--resume", "one", "--steps", "4", "--save", "on", "--no-eval")
    check_kept("on/latest", before)
    for where in ("one/latest", "on/latest", train("./on/latest", "third", data)):
        check_unknown(where, UNKNOWN)
    check_kept(train("./model", "two", data, "--strategy", "ddp", "--nproc", "2"), before)
    check_kept(train("./one/latest", "again", data), before)
    check_kept(train("./model/config.json", "anew", data, "--tokenizer", "./model"), before)
    choir("checkpoint", "convert", "one", "converted", "--dtype", "bf16")
    check_kept("converted", before, "bfloat16")
    check_unknown("converted", UNKNOWN)
    check_unknown("anew/latest", [])  # the files beside a config.json may be anybody's
    choir("checkpoint", "convert", "./model", "copied", "--shards", "2")
    check_kept("copied", before, "bfloat16")
    os.remove("one/latest/chat_template.jinja")
    assert "chat_template.jinja" in choir("checkpoint", "verify", "one", fails=True)


def other_tokens(data):
    """Ids are those of the tokenizer in use; without its folder, Choir's own, and none to begin with."""
    before = folder("model")
    now = config_of(train("./model/config.json:vocab=260", "bytes", data, "--bytes"))
    assert (now["bos_token_id"], now["eos_token_id"]) == (None, 256), now
    assert now["of_others"] == before["of_others"] and not os.path.exists("bytes/latest/chat_template.jinja")
    now = config_of(train("llama:layers=1,heads=2,width=8,context=8", "named", data, "--tokenizer", "./model"))
    assert (now["bos_token_id"], now["eos_token_id"]) == (BEGIN, [END, PAD]), now
    assert "of_others" not in now and os.path.exists("named/latest/chat_template.jinja")
    with open("chats.jsonl", "w") as file:
        for i in range(40):
            print(json.dumps({"messages": [{"role": "user", "content": "%d?" % i},
                                           {"role": "assistant", "content": "%d" % i}]}), file=file)
    os.remove("model/chat_template.jinja")  # without a template, chats are ChatML
    train("llama:layers=1,heads=2,width=8,context=8", "more", "chats.jsonl", "--tokenizer", "./model")
    assert os.path.exists("more/latest/choir_tokenizer.json") and os.path.exists("more/latest/tokenizer_config.json")
    assert not os.path.exists("more/latest/tokenizer.model")  # which lacks the markers of chats


def other_models(data):
    before = folder("model", "gpt2")
    check_kept(train("./model", "gpt2", data), before)
    before = folder("model", "mistral", sliding_window=None, num_key_value_heads=1)
    check_kept(train("./model", "mistral", data), before)


def refused(data):
    folder("model")
    os.remove("model/chat_template.jinja")
    said = choir("train", "--model", "./model", "--steps", "1", "chats.jsonl", fails=True)
    assert "chats.jsonl, line 1: column 'messages'" in said and "<|im_start|> is no token" in said, said


def ends(data):
    """The end of texts in training is among the ids at which the tuned model stops."""
    folder("model", eos_token_id=BEGIN, bos_token_id=300)
    folders.write_json("model", "generation_config.json", {"eos_token_id": [300, PAD], "temperature": 0.6})
    now = train("./model", "ends", data, says="texts end with '%s', token %d, which is not the eos_token_id of "
                "generation_config.json: checkpoints have it there, too" % (ADDED[2], END))
    config = config_of(now)
    assert config["eos_token_id"] == [BEGIN, END] and config["bos_token_id"] is None, config
    generation = config_of(now, "generation_config.json")
    assert generation == {"eos_token_id": [PAD, END], "temperature": 0.6}, generation
    said = choir("train", "--resume", "ends", "--steps", "4", "--save", "ends_on", "--no-eval")
    assert "texts end with" not in said, said


def other_folders(data):
    """A tokenizer elsewhere gets the model's files, unless its own folder has them, or it has other tokens."""
    before = folder("model")
    os.makedirs("elsewhere", exist_ok=True)
    shutil.copy("model/tokenizer.json", "tok.json")
    shutil.copy("model/tokenizer.json", "elsewhere/tokenizer.json")
    for name, tokenizer in (("file", "tok.json"), ("folder", "./elsewhere")):
        now = train("./model", name, data, "--tokenizer", tokenizer)
        for kept in BESIDE[:-1]:
            assert filecmp.cmp(os.path.join(now, kept), os.path.join("model", kept), shallow=False), kept
        assert config_of(now)["bos_token_id"] == before["bos_token_id"], config_of(now)
        assert not os.path.exists(os.path.join(now, "tokenizer.model"))
    folders.write_json("model", "generation_config.json", {"eos_token_id": [50256, END]})  # of an older model
    now = train("./model", "older", data, "--tokenizer", "tok.json")
    assert config_of(now, "generation_config.json") == {"eos_token_id": END}
    folders.write_json("elsewhere", "generation_config.json", {"eos_token_id": END})
    now = train("./model", "own", data, "--tokenizer", "./elsewhere")
    assert config_of(now, "generation_config.json") == {"eos_token_id": END}
    assert os.path.exists(os.path.join(now, "chat_template.jinja"))
    folders.write_json("elsewhere", "tokenizer_config.json", {"chat_template": "{{ own }}"})
    now = train("./model", "template", data, "--tokenizer", "./elsewhere")
    assert not os.path.exists(os.path.join(now, "chat_template.jinja"))
    os.remove("elsewhere/tokenizer_config.json")
    folders.write_tokenizer("elsewhere", ["<|other|>", "<eos>", "<s>"])
    os.remove("elsewhere/generation_config.json")
    now = train("./model", "others", data, "--tokenizer", "./elsewhere", says="'%s' is no token" % ADDED[2])
    assert config_of(now)["eos_token_id"] == 257 and config_of(now)["bos_token_id"] is None, config_of(now)
    check_unknown(now, ["LICENSE"])  # the other file describes other tokens
    left = [name for name in BESIDE if os.path.exists(os.path.join(now, name))]
    assert left == ["preprocessor_config.json", "tokenizer.json"], left
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        os.remove(os.path.join("model", name))
    now = train("./model/config.json:vocab=260", "no_names", data, "--bytes", says="no token 257")
    assert config_of(now)["eos_token_id"] == 256 and config_of(now)["bos_token_id"] is None, config_of(now)


def odd_files(data):
    """What Choir cannot parse passes through, with a note on a file that it would have read."""
    before = folder("model")
    odd = {"tokenizer_config.json": b'{"eos_token": "x", "y": NaN}', "added_tokens.json": b"[Infinity",
           "special_tokens_map.json": b"", "preprocessor_config.json": b"", "generation_config.json": b"[]"}
    for name, text in odd.items():
        with open(os.path.join("model", name), "wb") as file:
            file.write(text)
    says = "note: ./model/tokenizer_config.json is not valid JSON: line 1"
    check_kept(train("./model", "odd", data, says=says), before)
    choir("train", "--resume", "odd", "--steps", "4", "--save", "odd_on", "--no-eval")
    check_kept("odd_on/latest", before)
    choir("checkpoint", "verify", "odd_on")
    choir("checkpoint", "convert", "odd_on", "odd_converted", "--dtype", "bf16")
    check_kept("odd_converted", before, "bfloat16")


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    with open("docs.jsonl", "w") as docs:
        for number in range(60):
            print(json.dumps({"prompt": "ab%d" % number, "completion": "xyz"}), file=docs)
    for way in (all_ways, other_tokens, other_models, refused, ends, other_folders, odd_files):
        way("docs.jsonl")
print("kept")
sys.exit(0)
