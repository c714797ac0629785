"""Study files: docs/study.schema.json is a valid schema, has the options of `choir tune` for keys, and
accepts and refuses the same files as the command."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

if importlib.util.find_spec("jsonschema") is None:
    print("skipped: %s has no jsonschema (install python3-jsonschema)" % sys.executable)
    sys.exit(77)

import jsonschema

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
CHOIR = os.environ["CHOIR"]
OF_LINE = {"json", "quiet", "print-study", "plot", "help"}

with open(os.path.join(ROOT, "docs", "study.schema.json")) as file:
    schema = json.load(file)
jsonschema.Draft7Validator.check_schema(schema)
check = jsonschema.Draft7Validator(schema)

words = subprocess.run([CHOIR, "__complete", "tune", "--"], capture_output=True, text=True).stdout.split()
options = {word[2:] for word in words} - OF_LINE
keys = set(schema["properties"]) - {"$schema", "command"}
assert keys == options, keys ^ options

good = {"space": {"x": "uniform(0,1)", "n": 3, "m": "normal(0,1) if n == 3"}, "require": ["x < 0.9"],
        "enqueue": [{"x": 0.5, "m": 1}, "x=0.25"], "metric": ["a", "b:max"], "trials": 2, "parallel": 1,
        "window": 2, "sampler": "nsga2:population=4", "scheduler": "none", "free": False, "seed": 1,
        "retries": 1, "max-failures": 3, "trial-timeout": 9.5, "storage": "memory", "study": "s",
        "direction": "minimize",
        "command": ["sh", "-c", "echo '{\"a\":1,\"b\":2}'", "sh", "{x}", "{n}", "{m}", 7]}
bad = [{"trails": 3}, {"trials": "3"}, {"trials": 0}, {"trials": 2.5}, {"seed": -1}, {"direction": "down"},
       {"metric": 3}, {"space": {}}, {"space": ["x"]}, {"space": {"x": [1, 2]}}, {"space": {"1x": 2}},
       {"enqueue": [3]}, {"command": []}, {"command": "true"}, {"command": [["sh"]]}, {"free": "yes"},
       {"sampler": "tree"}, {"scheduler": "asha1"}, {"quiet": True}, {"require": [1]}, {"memory-per-trial": 1.5},
       {"memory-per-trial": ["1G"]}, {"memory-per-trial": -1}]


def accepted(study, *options):
    with open("study.json", "w") as file:
        json.dump(study, file)
    done = subprocess.run([CHOIR, "tune", *options, "study.json"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 2), (study, done)
    assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode == 0, done.stdout


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check.validate(good)
    ran, out = accepted(good, "--json")
    assert ran and out.count('"event":"trial"') == 2, out
    printed, text = accepted(good, "--print-study")
    check.validate(json.loads(text))
    assert accepted(json.loads(text), "--json")[1].replace("\n", "").count('"COMPLETE"') == 2
    assert accepted(json.loads(text), "--print-study")[1] == text
    for change in bad:
        study = {**good, **change}
        assert not check.is_valid(study), change
        assert not accepted(study, "--json")[0], change
    for key in ("space", "command"):
        study = {k: v for k, v in good.items() if k != key}
        assert not check.is_valid(study) and not accepted(study)[0], key
print("%d keys, %d files that both refuse" % (len(keys), len(bad) + 2))
