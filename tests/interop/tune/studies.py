"""Studies in Optuna's tables: Optuna reads those of `choir tune`, also while they run, and `choir tune`
goes on with those of Optuna."""
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile

if importlib.util.find_spec("optuna") is None:
    print("skipped: %s has no optuna (PyPI has it)" % sys.executable)
    sys.exit(77)

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
CHOIR = os.environ["CHOIR"]
SPACE = ["--space", "lr=log(1e-5,0.1)", "--space", "width=int(16,128,step=16)",
         "--space", "opt=choice(sgd,adamw,0.5)", "--space", "m=uniform(0,0.99) if opt==sgd"]
# Prints two reports; its value follows from the parameters.
TRIAL = ["sh", "-c", r'''printf '{"step":1,"eval_loss":9}\n{"step":2,"eval_loss":%s}\n' "$2"
    if [ -e "$0" ] && [ "$1" = 3 ]; then echo >"$0.here"; while [ -e "$0" ]; do sleep 0.02; done; fi''',
         "hold", "{trial}", "{lr}", "{width}", "{opt}", "{m}"]


def tune(*args, **options):
    done = subprocess.run([CHOIR, "tune", *args], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def same(trial, line):
    """An Optuna trial is what choir tune printed."""
    assert trial.number == line["number"] and trial.state.name == line["state"]
    assert trial.params == line["params"], (trial.params, line)
    assert trial.value == line["value"]


def optuna_reads(storage, url):
    study = ["--storage", storage, "--study", "first", "--window", "2", *SPACE]
    lines = tune("--json", "--trials", "12", *study, "--", *TRIAL)
    loaded = optuna.load_study(study_name="first", storage=url)
    assert len(loaded.trials) == 12 and loaded.direction.name == "MINIMIZE"
    for trial, line in zip(loaded.trials, lines):
        same(trial, line)
        assert trial.intermediate_values == {1: 9.0, 2: trial.value}
        assert trial.distributions["lr"] == FloatDistribution(1e-5, 0.1, log=True)
        assert trial.distributions["width"] == IntDistribution(16, 128, step=16)
        assert trial.distributions["opt"] == CategoricalDistribution(("sgd", "adamw", 0.5))
        assert ("m" in trial.params) == (trial.params["opt"] == "sgd")
        assert trial.datetime_complete >= trial.datetime_start
    assert loaded.best_trial.number == lines[-1]["number"]
    assert optuna.importance.get_param_importances(
        loaded, evaluator=optuna.importance.PedAnovaImportanceEvaluator(), params=["lr", "width"])


def optuna_reads_live(storage, url):
    with open("hold", "w"):
        pass
    if os.path.exists("hold.here"):
        os.unlink("hold.here")
    running = subprocess.Popen([CHOIR, "tune", "--storage", storage, "--study", "live", "--trials", "5", *SPACE,
                                "--", *TRIAL], stdout=subprocess.DEVNULL)
    while not os.path.exists("hold.here"):
        assert running.poll() is None
    loaded = optuna.load_study(study_name="live", storage=url)
    for _ in range(200):
        states = [t.state for t in loaded.trials]
        if len(states) == 4 and loaded.trials[3].intermediate_values:
            break
    assert states == [TrialState.COMPLETE] * 3 + [TrialState.RUNNING]
    loaded.enqueue_trial({"lr": 0.01, "width": 32, "opt": "adamw"})
    os.unlink("hold")
    assert running.wait() == 0
    assert [t.state for t in loaded.trials] == [TrialState.COMPLETE] * 5
    assert loaded.trials[4].params == {"lr": 0.01, "width": 32, "opt": "adamw"}


def optuna_knows_points(storage, url):
    """A trial that was given is one for skip_if_exists, on both sides."""
    options = ["--storage", storage, "--study", "given", "--sampler", "random", *SPACE]
    tune(*options, "--trials", "2", "--enqueue", "lr=0.01,width=32,opt=0.5", "--enqueue", "opt=adamw", "--", *TRIAL)
    loaded = optuna.load_study(study_name="given", storage=url)
    assert loaded.trials[0].system_attrs["fixed_params"] == {"lr": 0.01, "width": 32, "opt": 0.5}
    loaded.enqueue_trial({"lr": 0.01, "width": 32, "opt": 0.5}, skip_if_exists=True)
    loaded.enqueue_trial({"opt": "adamw"}, skip_if_exists=True)
    assert len(loaded.trials) == 2
    loaded.enqueue_trial({"lr": 0.02}, skip_if_exists=True)
    tune(*options, "--trials", "5", "--enqueue", "lr=0.02", "--enqueue", "lr=0.03", "--", *TRIAL)
    rates = [trial.params["lr"] for trial in loaded.trials]
    assert rates[2:4] == [0.02, 0.03] and len(set(rates)) == 5


def optuna_reads_large_steps(storage, url):
    """SQLite's integers and JSON's have room for steps that PostgreSQL's have not."""
    if storage.startswith("postgresql"):
        return
    tune("--storage", storage, "--study", "steps", "--trials", "1", "--unit", "tokens", "--space", "n=7000000000", "--",
         "sh", "-c", '''printf '{"tokens":%s,"eval_loss":1}\n' "$0"''', "{n}")
    trial = optuna.load_study(study_name="steps", storage=url).trials[0]
    assert trial.intermediate_values == {7000000000: 1.0}


# A curve that keeps its step, and ends at its budget.
CURVE = ["sh", "-c", r"""step=$CHOIR_TRIAL_STEP
    while [ $step -lt $CHOIR_TRIAL_BUDGET ]; do
        step=$((step + 1)); printf '{"step":%d,"eval_loss":%d}\n' $step $(($1 + 1000 / step)); done
    echo $step >"$CHOIR_TRIAL_DIR/checkpoint" """, "curve", "{x}"]


def optuna_reads_segments(storage, url, folder):
    """Trials that stop and go on are RUNNING until nothing is left to be done."""
    options = ["--json", "--sampler", "random", "--space", "x=int(0,1000)", "--window", "4", "--dir", folder,
               "--scheduler", "asha:min=1,max=9,eta=3", "--storage", storage, "--study", "segments"]
    lines = tune(*options, "--trials", "10", "--parallel", "2", "--", *CURVE)
    last = {line["number"]: line for line in lines if line["event"] == "trial"}
    loaded = optuna.load_study(study_name="segments", storage=url)
    assert {line["state"] for line in last.values()} == {"COMPLETE", "PRUNED"}
    assert len(loaded.trials) == len(last) == 10
    for trial in loaded.trials:
        same(trial, last[trial.number])
        steps = range(1, last[trial.number]["step"] + 1)
        assert trial.intermediate_values == {s: trial.params["x"] + 1000 // s for s in steps}
        assert trial.last_step == last[trial.number]["step"]
    assert loaded.best_trial.number == lines[-1]["number"]
    more = tune(*options, "--trials", "12", "--", *CURVE)  # and they go on, if there are more
    last = {line["number"]: line for line in more if line["event"] == "trial"}
    assert len(last) == 12
    if not storage.startswith("journal:"):  # of which Optuna takes no notice
        for trial in optuna.load_study(study_name="segments", storage=url).trials:
            same(trial, last[trial.number])


def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 0.1, log=True)
    trial.suggest_int("width", 16, 128, step=16)
    if trial.suggest_categorical("opt", ["sgd", "adamw", 0.5]) == "sgd":
        trial.suggest_float("m", 0, 0.99)
    trial.report(lr + 1, 1)
    if trial.number == 2:
        raise optuna.TrialPruned
    if trial.number == 3:
        trial.report(math.nan, 2)
        return math.nan
    return math.inf if trial.number == 4 else lr


def choir_goes_on(storage, url):
    made = optuna.create_study(storage=url, study_name="theirs", sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(objective, n_trials=8)
    made.set_user_attr("by", "us")
    made.ask()  # abandoned
    made.enqueue_trial({"lr": 0.02})
    shown = tune("show", "--json", "--study", "theirs", storage)
    for trial, line in zip(made.trials[:8], shown):
        assert (trial.state.name, trial.params) == (line["state"], line["params"])
        finite = trial.value is not None and math.isfinite(trial.value)
        assert line["value"] == (trial.value if finite else None)
    lines = tune("--json", "--storage", storage, "--study", "theirs", "--trials", "14", *SPACE, "--", *TRIAL)
    assert [line["state"] for line in lines[:10]] == ["COMPLETE"] * 2 + ["PRUNED", "FAIL"] + ["COMPLETE"] * 4 + [
        "FAIL", "COMPLETE"]
    assert lines[9]["params"]["lr"] == 0.02
    assert len(made.trials) == 14 and made.user_attrs["by"] == "us"
    for trial, line in zip(made.trials[9:], lines[9:]):
        same(trial, line)
    made.sampler = optuna.samplers.TPESampler(seed=2)
    made.optimize(objective, n_trials=2)  # and Optuna goes on with it in turn
    assert [t.number for t in made.trials] == list(range(16))
    other = subprocess.run([CHOIR, "tune", "--storage", storage, "--study", "theirs", "--space", "lr=log(1e-4,0.1)",
                            *SPACE[2:], "--", *TRIAL], capture_output=True, text=True)
    assert other.returncode == 2 and "space" in other.stderr, other.stderr
    made.ask()  # a trial that Optuna runs, without heartbeats
    assert tune("show", "--json", "--study", "theirs", storage)[16]["state"] == "RUNNING"


def backends():
    yield "sqlite:study.db", "sqlite:///study.db"
    yield "journal:study.log", optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend("study.log"))
    if os.environ.get("CHOIR_TEST_POSTGRES"):
        url = os.environ["CHOIR_TEST_POSTGRES"]
        yield url, url.replace("postgresql:", "postgresql+psycopg2:")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for storage, url in backends():
        optuna_reads(storage, url)
        optuna_reads_live(storage, url)
        optuna_reads_large_steps(storage, url)
        optuna_knows_points(storage, url)
        choir_goes_on(storage, url)
        optuna_reads_segments(storage, url, "folder." + storage.split(":")[0])
        print("%s: studies of %s are the same" % (storage.split(":")[0], optuna.__version__))
