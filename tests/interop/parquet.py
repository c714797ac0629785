"""Parquet files that pyarrow writes, in the forms it has, beside the same rows as JSON lines: trainings on
both end with the same weights. Damaged files end with a sentence."""
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile

if importlib.util.find_spec("pyarrow") is None:
    print("skipped: %s has no pyarrow (PyPI has it)" % sys.executable)
    sys.exit(77)

import pyarrow as pa
import pyarrow.parquet as pq

CHOIR = os.environ["CHOIR"]
MODEL = ["--model", "gpt2:layers=1,heads=1,width=16,context=32,vocab=259", "--bytes", "--batch-size", "4"]
WORDS = 'to be or nöt "that" is\\the 疑問 whether\ttis nobler\nin 🎭 mind'.split(" ") + ["", "\u0001"]
DAMAGED = 150


def choir(*arguments):
    return subprocess.run([CHOIR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def weights(path, *options):
    done = choir("train", *MODEL, "--json", "--steps", "3", *options, path)
    assert done.returncode == 0, (path, done.stderr.decode())
    return json.loads(done.stdout.splitlines()[-1])["weights_sha256"]


def say(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 40)))


def forms(texts, chats):
    """name -> a table, pq.write_table's options, and the rows that it stands for."""
    rows = [{"text": t} for t in texts]
    plain = pa.table({"text": texts})
    messages = [{"messages": c} for c in chats]
    return {
        "plain": (plain, {}, rows),
        "gzip": (plain, {"compression": "gzip"}, rows),
        "zstd": (plain, {"compression": "zstd", "row_group_size": 7}, rows),
        "version-1": (plain, {"version": "1.0", "data_page_version": "1.0"}, rows),
        "delta": (plain, {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}, rows),
        "large": (pa.table({"text": pa.array(texts, pa.large_string())}), {}, rows),
        "names": (pa.table({"text": pa.array(texts).dictionary_encode()}), {}, rows),
        "others": (pa.table({"id": list(range(len(texts))), "raw": [b"\xff\x00"] * len(texts),
                             "score": [float("nan"), 0.5] * (len(texts) // 2), "text": texts}), {}, rows),
        "chats": (pa.Table.from_pylist(messages), {}, messages),
        "large-chats": (pa.Table.from_pylist(messages).cast(pa.schema([("messages", pa.large_list(
            pa.struct([("role", pa.string()), ("content", pa.string())])))])), {}, messages),
    }


def compare(folder, draw):
    texts = [say(draw) for _ in range(200)]
    chats = [[{"role": "user", "content": say(draw)}, {"role": "assistant", "content": say(draw)}]
             for _ in range(100)]
    for name, (table, options, rows) in forms(texts, chats).items():
        lines, file = (os.path.join(folder, name + end) for end in (".jsonl", ".parquet"))
        with open(lines, "w") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
        pq.write_table(table, file, **options)
        assert weights(lines) == weights(file), name
        print("ok     %s" % name)
    parts = os.path.join(folder, "parts")
    os.mkdir(parts)
    for split, table in ("train", texts[:150]), ("validation", texts[150:]):
        pq.write_table(pa.table({"text": table}), os.path.join(parts, split + ".parquet"))
    weights(parts, "--eval-batches", "1")
    print("ok     a folder of splits")
    hub = os.path.join(folder, "hub", "data")
    os.makedirs(hub)
    for i, rows in enumerate((texts[:60], texts[60:])):
        pq.write_table(pa.table({"text": rows}), os.path.join(hub, "train-0000%d-of-00002.parquet" % i))
    whole = os.path.join(folder, "plain.parquet")
    assert weights(os.path.dirname(hub)) == weights(whole), "numbered files"
    print("ok     a folder of numbered files")


def damage(folder, draw):
    with open(os.path.join(folder, "zstd.parquet"), "rb") as file:
        whole = file.read()
    path = os.path.join(folder, "damaged.parquet")
    refused = 0
    for _ in range(DAMAGED):
        data = bytearray(whole)
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)):]
        for _ in range(draw.randrange(1, 4)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        with open(path, "wb") as file:
            file.write(data)
        done = choir("train", *MODEL, "--steps", "1", "--no-eval", "--quiet", path)
        refused += done.returncode == 1
        assert done.returncode in (0, 1) and done.stderr.count(b"\n") == done.returncode, done
    assert refused > DAMAGED // 4, refused
    print("ok     %d of %d damaged files are refused" % (refused, DAMAGED))


def bombs(folder):
    """A few hundred bytes that stand for gigabytes: one text in many rows, a page, and many rows."""
    path = os.path.join(folder, "bomb.parquet")
    rows = pa.array([0] * 200000, pa.int32())
    for texts in (pa.DictionaryArray.from_arrays(rows[:1024], ["a" * 2000000]), pa.array(["a" * (70 << 20)]),
                  pa.DictionaryArray.from_arrays(rows, ["a" * 500])):
        pq.write_table(pa.table({"text": texts}), path, compression="zstd")
        assert os.path.getsize(path) < 20000, os.path.getsize(path)
        done = choir("train", *MODEL, "--steps", "1", "--quiet", path)
        assert done.returncode == 1 and b"expected at most 64 MiB and" in done.stderr, done
    print("ok     files that expand too far are refused")


def main():
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        some = os.path.join(folder, "some.parquet")
        pq.write_table(pa.table({"text": ["some"]}), some)
        if b"is a plug-in" in choir("train", *MODEL, "--steps", "1", some).stderr:
            print("skipped: this build reads no Parquet files")
            sys.exit(77)
        compare(folder, draw)
        damage(folder, draw)
        bombs(folder)


main()
