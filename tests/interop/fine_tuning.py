"""The guide's chapter on fine-tuning a BERT, run as it stands: a folder that transformers made is trained
on texts, pairs and words, on numbers and several labels, evaluated, and predicts; transformers reads the result back, and has the same
labels, probabilities, accuracy and F1."""
import contextlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import need  # first: it skips without PyTorch

try:
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is made here
    import transformers
    if int(transformers.__version__.split(".")[0]) < 5:
        raise ImportError("version %s, 5 is the oldest that is compared" % transformers.__version__)
except ImportError as why:
    print("skipped: no transformers that is new enough (pip install transformers): %s" % why)
    sys.exit(77)

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

import choir

CHOIR = os.environ.get("CHOIR", os.path.join(choir.ROOT, "build", "choir"))
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def blocks():
    """The chapter's blocks of python and sh, in order."""
    with open(os.path.join(choir.ROOT, "docs", "guide.md")) as file:
        chapter = file.read().split("### A BERT on labelled text")[1].split("\n## ")[0]
    return re.findall(r"```(python|sh)\n(.*?)```", chapter, re.S)


def write_data():
    choice = random.Random(7)
    moods = {"good": ["fine", "good", "great"], "bad": ["poor", "bad", "dull"]}
    weather = {"it rains": "the street is wet", "the sun is out": "the street is dry"}
    people, places = ["anna", "bob", "carla"], ["rome", "paris", "oslo"]
    reviews, pairs, entities = [], [], []
    for i in range(240):
        mood = choice.choice(list(moods))
        text = choice.choice(["a %s film", "the plot was %s", "%s"]) % choice.choice(moods[mood])
        reviews.append({"text": text + choice.choice(["", ".", " and long"]), "label": mood})
        first, second = choice.choice(list(weather)), choice.choice(list(weather.values()))
        label = "follows" if second.endswith("wet") else "contradicts"
        pairs.append((first, second, label))
        words = [choice.choice(people), "lives", "in", choice.choice(places)]
        if i % 3 == 0:
            words += ["and", choice.choice(places)]
        tags = ["PER" if w in people else "LOC" if w in places else "O" for w in words]
        entities.append({"tokens": words, "tags": tags})
    stars = [{"text": r["text"], "label": 1 if r["label"] == "good" else -0.5} for r in reviews]
    topics = [{"text": r["text"], "labels": [r["label"]] + (["long"] if "long" in r["text"] else [])} for r in reviews]
    for name, records in ("reviews", reviews), ("entities", entities), ("stars", stars), ("topics", topics):
        with open(name + ".jsonl", "w") as file:
            file.writelines(json.dumps(r) + "\n" for r in records)
    with open("pairs.csv", "w") as file:
        file.write("sentence1,sentence2,label\n" + "".join("%s,%s,%s\n" % p for p in pairs))
    with open("corpus.txt", "w") as file:
        file.writelines(r["text"] + "\n" for r in reviews)
        file.writelines("%s\n%s\n" % p[:2] for p in pairs)
        file.writelines(" ".join(r["tokens"]) + "\n" for r in entities)
    return reviews, pairs, entities, stars, topics


def run_chapter():
    """-> what the last block of Python prints"""
    os.mkdir("bin")
    os.symlink(os.path.abspath(CHOIR), "bin/choir")
    environment = dict(os.environ, PATH=os.path.abspath("bin") + ":" + os.environ["PATH"])
    for kind, text in blocks():
        said = io.StringIO()
        if kind == "python":
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
                exec(text, {})
            continue
        done = subprocess.run(["sh", "-e", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment)
        if done.returncode:
            raise AssertionError("the chapter's block\n%s\nends with\n%s%s" % (
                text, done.stdout.decode(), done.stderr.decode()))
    return said.getvalue()


def json_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def theirs(kind, run):
    return kind.from_pretrained("runs/%s/latest" % run).eval(), AutoTokenizer.from_pretrained("runs/%s/latest" % run)


def probabilities(model, encoded):
    with torch.no_grad():
        return torch.softmax(model(**encoded).logits, -1).numpy()


def compare(what, ours, row, names):
    """One prediction of `choir predict --json --top N`, beside the probabilities of all classes."""
    for choice in ours.get("top", [ours]):
        off = abs(choice["probability"] - row[choice["class"]])
        assert off < 1e-5, "%s: %s, transformers %s" % (what, choice, row)
        assert choice["label"] == names[choice["class"]], (choice, names)
    assert ours["class"] == int(np.argmax(row)), (what, ours, row)


def check_scores(run, data, predicted, labels):
    """`choir eval` on the held-out tenth, beside accuracy and F1 of the given predictions."""
    done = subprocess.run([CHOIR, "eval", "--json", "--per-class", "runs/" + run, data], check=True,
                          stdout=subprocess.PIPE)
    score = json.loads(done.stdout)
    held = [i for i in range(len(labels)) if choir.is_held(i)]
    pairs = [(p, l) for i in held for p, l in zip(predicted[i], labels[i])]
    assert abs(score["accuracy"] - np.mean([p == l for p, l in pairs])) < 1e-6, score
    assert score["accuracy"] > 0.9, "it did not learn: %s" % score
    for entry in score["classes"]:
        name = entry["class"]
        hits = sum(p == l == name for p, l in pairs)
        named = sum(p == name for p, _ in pairs) + sum(l == name for _, l in pairs)
        assert entry["samples"] == sum(l == name for _, l in pairs), entry
        assert abs(entry["f1"] - 2 * hits / max(1, named)) < 1e-6, entry


def sequences(run, data, texts, labels):
    """texts: a list of arguments of the tokenizer."""
    model, tokenizer = theirs(AutoModelForSequenceClassification, run)
    names = model.config.id2label
    assert sorted(names.values()) == sorted(set(labels)), names
    assert model.config.label2id == {v: k for k, v in names.items()}, model.config.label2id
    predicted = []
    for text, ours in zip(texts, json_lines(run + ".out"), strict=True):
        row = probabilities(model, tokenizer(*text, return_tensors="pt"))[0]
        compare(text, ours, row, names)
        predicted.append([names[int(np.argmax(row))]])
    check_scores(run, data, predicted, [[l] for l in labels])


def words(run, data, records):
    model, tokenizer = theirs(AutoModelForTokenClassification, run)
    predicted = []
    for record, line in zip(records, json_lines(run + ".out"), strict=True):
        encoded = tokenizer(record["tokens"], is_split_into_words=True, return_tensors="pt")
        rows, ids = probabilities(model, encoded)[0], encoded.word_ids()
        firsts = [ids.index(w) for w in range(len(record["tokens"]))]
        for word, ours, at in zip(record["tokens"], line["words"], firsts, strict=True):
            assert ours["word"] == word, (ours, word)
            compare(word, ours, rows[at], model.config.id2label)
        predicted.append([ours["label"] for ours in line["words"]])
    check_scores(run, data, predicted, [r["tags"] for r in records])


def numbers_and_topics(stars, topics):
    for run, records, activation in ("stars", stars, lambda x: x), ("topics", topics, torch.sigmoid):
        model, tokenizer = theirs(AutoModelForSequenceClassification, run)
        assert model.config.problem_type == {"stars": "regression", "topics": "multi_label_classification"}[run]
        wrong = 0
        for record, ours in zip(records, json_lines(run + ".out"), strict=True):
            with torch.no_grad():
                row = activation(model(**tokenizer(record["text"], return_tensors="pt")).logits)[0].numpy()
            if run == "stars":
                assert abs(ours["number"] - row[0]) < 1e-5, (record, ours, row)
                wrong += abs(row[0] - record["label"]) > 0.5
                continue
            for choice in ours["top"]:
                assert abs(choice["probability"] - row[choice["class"]]) < 1e-5, (record, ours, row)
            had = {model.config.id2label[c] for c in range(3) if row[c] > 0.5}
            assert {choice["label"] for choice in ours["labels"]} == had, (record, ours, row)
            wrong += had != set(record["labels"])
        assert wrong < len(records) / 10, "%s: it did not learn: %d wrong" % (run, wrong)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    torch.set_num_threads(1)
    torch.manual_seed(1)  # some weights to begin with learn little in a few epochs
    reviews, pairs, entities, stars, topics = write_data()
    said = run_chapter()
    for label in "'good'", "'follows'", "'PER'", "'LOC'":
        assert label in said, said
    sequences("reviews", "reviews.jsonl", [(r["text"],) for r in reviews], [r["label"] for r in reviews])
    sequences("pairs", "pairs.csv", [p[:2] for p in pairs], [p[2] for p in pairs])
    words("entities", "entities.jsonl", entities)
    numbers_and_topics(stars, topics)
    before, after = (transformers.AutoModel.from_pretrained(p).state_dict()
                     for p in ("tiny-bert", "runs/reviews/latest"))
    for name, value in before.items():
        if name.startswith("embeddings."):
            assert torch.equal(value, after[name]), "%s was frozen" % name
    os.chdir("/")
print("texts, pairs and words agree with transformers %s" % transformers.__version__)
