"""Optuna's studies with what no space of Choir's is written as: `choir tune show`, `best`, `importance` and
`export` open them, and a search runs the trials that wait in them."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

if importlib.util.find_spec("optuna") is None:
    print("skipped: %s has no optuna (PyPI has it)" % sys.executable)
    sys.exit(77)

import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
CHOIR = os.environ["CHOIR"]


def choir(*args):
    return subprocess.run([CHOIR, "tune", *args], capture_output=True, text=True, timeout=60)


def tune(*args):
    done = choir(*args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def looked_at(storage, name):
    """All ways to look; returns the lines of trials."""
    for verb in "show", "best", "importance", "export":
        done = choir(verb, "--study", name, storage)
        assert done.returncode == 0, (verb, done.stderr)
        assert verb == "export" or not set(done.stdout) & set("\x1b\t"), done.stdout
    tune("best", "--json", "--study", name, storage)
    return [line for line in tune("show", "--json", "--study", name, storage) if line["event"] == "trial"]


def as_printed(value):
    """Choices that JSON has and spaces do not are words."""
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value) if isinstance(value, list) else value


def odd(trial):
    """Names and choices of all kinds."""
    value = trial.suggest_float("model/lr", 1e-5, 1, log=True) + trial.suggest_float("a b", 0, 1)
    value += trial.suggest_float("größe", 0, 0.5, step=0.1) + trial.suggest_int("0", 1, 3)
    value += trial.suggest_int("x.y[0]", 0, 2 ** 60) / 2 ** 60 + trial.suggest_float('say "it"', 0, 1)
    trial.suggest_float("two\nlines\x1b[1m", 0, 1)
    trial.suggest_categorical("h", [1, "1"])
    trial.suggest_categorical("word", ["it's \"both\"", "a, b", "", "two\nlines\x1b[1m", "größe"])
    trial.suggest_categorical("kind", [True, False, None, "None", 2 ** 70, float("nan")])
    trial.suggest_categorical("layers", [[1, 2], [3]])
    return value


def opens_odd(storage, url):
    made = optuna.create_study(storage=url, study_name="odd", sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(odd, n_trials=25)
    lines = looked_at(storage, "odd")
    for trial, line in zip(made.trials, lines, strict=True):
        for name, value in trial.params.items():
            there = line["params"][name]
            if name != "kind" or not isinstance(value, (int, float)) or isinstance(value, bool):
                assert there == as_printed(value) and type(there) is not bool, (name, value, there)
    table = choir("show", "--study", "odd", storage).stdout
    assert len(table.splitlines()) == 27, table  # a line for each trial, the head and the best one
    if int(optuna.__version__.split(".")[0]) >= 5:
        params = [n for n in made.trials[0].params if n not in ("kind", "layers")]
        theirs = optuna.importance.get_param_importances(made, params=params, normalize=False)
        ours = tune("importance", "--json", "--study", "odd", storage)[0]["shares"]
        for name in params[1:]:
            wanted = theirs[name] / theirs[params[0]]
            assert abs(ours[name] / ours[params[0]] - wanted) < 1e-6 * wanted, (name, ours, theirs)


def opens_odd_attributes(storage, url):
    made = optuna.create_study(storage=url, study_name="attributes")
    trial = made.ask()
    x = trial.suggest_float("x", 0, 1)
    for of in made, trial:
        of.set_user_attr("big", [2 ** 64 - 1, 7, 10 ** 400])
        of.set_user_attr("zero", "a\0b")
        of.set_user_attr("infinite", {"NaN": float("nan"), "a\\\"": -float("inf")})
        if storage.startswith("journal:"):  # the tables do not store these
            of.set_user_attr("a\0b", 1)
            of.set_user_attr("half", "\ud800")
    made.tell(trial, 0.25)
    line, = looked_at(storage, "attributes")
    assert (line["state"], line["value"], line["params"]) == ("COMPLETE", 0.25, {"x": x})


SPACE = ["--space", "flag=choice(True,False,None)", "--space", "x=uniform(0,1)", "--sampler", "random"]
TRIAL = ["--", "sh", "-c", r'''printf '{"eval_loss":%s}\n' "$2"''', "sh", "{flag}", "{x}"]


def flagged(trial):
    trial.suggest_categorical("flag", [True, False, None])
    return trial.suggest_float("x", 0, 1)


def runs_waiting(storage, url):
    """Trials that wait keep no study closed, run with their values, and each once."""
    made = optuna.create_study(storage=url, study_name="waiting", sampler=optuna.samplers.RandomSampler(seed=1))
    made.enqueue_trial({"flag": True, "x": 0.25})
    made.optimize(flagged, n_trials=3)
    made.enqueue_trial({"flag": None, "x": 0.5})
    line = looked_at(storage, "waiting")[3]
    assert line["params"] == {"flag": "None", "x": 0.5}, line
    lines = tune("--json", "--storage", storage, "--study", "waiting", "--trials", "6", "--enqueue",
                 "flag=True,x=0.25", "--enqueue", "flag=None,x=0.5", "--enqueue", "flag=False,x=0.75", *SPACE, *TRIAL)
    xs = [line["params"]["x"] for line in lines if line["event"] == "trial"]
    assert lines[3]["params"] == {"flag": "None", "x": 0.5}, lines[3]
    assert [xs.count(x) for x in (0.25, 0.5, 0.75)] == [1, 1, 1], xs

    made = optuna.load_study(storage=url, study_name="waiting", sampler=optuna.samplers.TPESampler(seed=1))
    assert all(trial.params["flag"] in (True, False, None) for trial in made.trials), made.trials
    made.enqueue_trial({"flag": False, "x": 0.75}, skip_if_exists=True)
    assert len(made.trials) == 6
    made.optimize(flagged, n_trials=1)  # which would refuse the words as other choices
    assert len(optuna.importance.get_param_importances(made)) == 2

    made = optuna.create_study(storage=url, study_name="wrong", sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(flagged, n_trials=2)
    made.enqueue_trial({"flag": "maybe", "x": 0.5})
    made.enqueue_trial({"flag": False, "x": 7})
    lines = looked_at(storage, "wrong")
    assert [line["params"] for line in lines[2:]] == [{"x": 0.5}, {"flag": "False"}], lines
    assert [line["state"] for line in lines[2:]] == ["WAITING"] * 2, lines
    done = choir("--storage", storage, "--study", "wrong", *SPACE, *TRIAL)
    assert done.returncode == 2 and "trial 2, which waits: parameter flag: 'maybe'" in done.stderr, done.stderr


def more(trial):
    return trial.suggest_float("x", 0, 1) + trial.suggest_int("depth", 1, 4)


def opens_with_more(storage, url):
    """A study of Choir to which Optuna adds a parameter is looked at with it, and not continued without it."""
    search = ["--storage", storage, "--study", "more", "--sampler", "random", "--space", "x=uniform(0,1)"]
    printed = ["--", "sh", "-c", r'''printf '{"eval_loss":%s}\n' "$1"''', "sh", "{x}"]
    tune("--trials", "2", *search, *printed)
    made = optuna.load_study(storage=url, study_name="more", sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(more, n_trials=1)
    lines = looked_at(storage, "more")
    assert [list(line["params"]) for line in lines] == [["x"], ["x"], ["x", "depth"]], lines
    done = choir("--trials", "4", *search, *printed)
    assert done.returncode == 2 and "trial 2 of the stored study has a parameter depth" in done.stderr, done


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    storages = [("journal:study.log", optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend("study.log")))]
    if '"sqlite"' in subprocess.run([CHOIR, "info", "--json"], capture_output=True, text=True).stdout:
        storages.append(("sqlite:study.db", "sqlite:///study.db"))
    for storage, url in storages:
        opens_odd(storage, url)
        opens_odd_attributes(storage, url)
        runs_waiting(storage, url)
        opens_with_more(storage, url)
        print("%s: odd studies of Optuna %s open" % (storage.split(":")[0], optuna.__version__))
