"""Published folders by name: each row of published_names.tsv is a folder whose tensors have other names
than Choir's, or keys that Choir lacks. A tiny folder with those names is read, and trains to the bits of
the same numbers under today's names; or one sentence refuses it."""
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import folders

HERE = os.path.dirname(os.path.abspath(__file__))
CHOIR = os.environ.get("CHOIR", os.path.join(HERE, "..", "..", "build", "choir"))
LEAST = 40  # rows


def rows():
    with open(os.path.join(HERE, "..", "golden", "published_names.tsv")) as file:
        for line in file:
            if not line.startswith("#"):
                name, source, config, names, outcome = line.rstrip("\n").split("\t")
                assert source.startswith("https://"), line
                yield name, json.loads(config), names.split(), outcome


def sized(config):
    """The config with sizes; null stands for one that the folder names."""
    config = {**config, **folders.SIZES.get(config.get("model_type"), {})}
    for key, value in (("num_key_value_heads", 1), ("head_dim", 4)):
        if key in config:
            config[key] = value
    return config


def of_layers(name):
    return [name.replace("N", str(i), 1) for i in range(folders.LAYERS)] if re.search(r"\bN\b", name) else [name]


def more(weights, edit):
    """Adds the tensors of +NAME, +NAME:SHAPE or +NAME=OTHER, each with numbers of its own or OTHER's."""
    name, _, shape = edit.partition(":")
    name, _, other = name.partition("=")
    for each in of_layers(name):
        width = tuple(int(n) for n in shape.split(",")) if shape else (folders.WIDTH, folders.WIDTH)
        if re.search(r"_proj\.bias$", each):  # of a linear layer
            width = weights[each[:-len("bias")] + "weight"][0][:1]
        weights[each] = weights[other] if other else folders.numbers(each, width)


def edited(weights, names):
    """-> the weights under the row's names, and those of them that the model has, under its own."""
    today = dict(weights)
    for edit in names:
        if edit[0] == "+":
            more(weights, edit[1:])
            if re.search(r"_proj\.bias$|^\+classifier", edit):
                more(today, edit[1:])
        elif edit[0] == "-":
            for part in (weights, today):
                for name in [n for n in part if n.startswith(edit[1:])]:
                    del part[name]
        else:
            old, new = edit.split(">")
            weights = {name.replace(old, new, 1): value for name, value in weights.items()}
    return weights, today


def train(folder):
    """-> the status, the hash of the weights after a step, and what was said."""
    done = subprocess.run([CHOIR, "train", "--model", folder, "--strategy", "single", "--steps", "1",
                           "--batch-size", "1", "--no-eval", "--json", "random"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    found = re.search(rb'"weights_sha256":"([0-9a-f]+)', done.stdout)
    return done.returncode, found and found.group(1), done.stderr.decode()


def check(row):
    """-> what is wrong with a row, or None."""
    name, config, names, outcome = row
    config = sized(config)
    known = config.get("model_type") in folders.NAMES and not any(n[0] == "=" for n in names)
    with tempfile.TemporaryDirectory() as place:
        theirs, ours = os.path.join(place, "theirs"), os.path.join(place, "ours")
        if known:
            weights, today = edited(folders.tensors(config), names)
            folders.write(ours, config, today)
        else:
            weights = {each: folders.numbers(each, (4, 4)) for n in names for each in of_layers(n.lstrip("="))}
        folders.write(theirs, config, weights)
        status, digest, said = train(theirs)
        if outcome == "read":
            expected = train(ours)
            if status or not digest or digest != expected[1]:
                return "%s: not read as today's names are: %s %s" % (name, said, expected[2])
        else:
            errors = [line for line in said.splitlines() if not line.startswith("choir train: note:")]
            if not status or len(errors) != 1 or not re.search(outcome, errors[0]):
                return "%s: expected '%s', got status %d, '%s'" % (name, outcome, status, said)
    return None


table = list(rows())
assert len(table) >= LEAST and len({row[0] for row in table}) == len(table), "%d rows" % len(table)
with ThreadPoolExecutor(2) as pool:
    wrong = [text for text in pool.map(check, table) if text]
print("\n".join(wrong + ["%d folders, %d read" % (len(table), sum(row[3] == "read" for row in table))]))
sys.exit(bool(wrong))
