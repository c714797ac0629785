"""How important parameters are: `choir tune importance` beside Optuna's PED-ANOVA, for studies of Optuna's
with every kind of parameter."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

for name in ("numpy", "optuna"):
    if importlib.util.find_spec(name) is None:
        print("skipped: %s has no %s (PyPI has it; name a Python with -DCHOIR_PYTHON=...)"
              % (sys.executable, name))
        sys.exit(77)

import optuna

if int(optuna.__version__.split(".")[0]) < 5:
    print("skipped: optuna %s; the numbers are those of 5" % optuna.__version__)
    sys.exit(77)

optuna.logging.set_verbosity(optuna.logging.ERROR)
CHOIR = os.environ["CHOIR"]


def mixed(trial):
    """Numbers and choices of every kind, of which one is conditional."""
    x = trial.suggest_float("x", -2, 3)
    lr = trial.suggest_float("lr", 1e-6, 1, log=True)
    width = trial.suggest_int("width", 16, 4096, log=True)
    step = trial.suggest_int("step", 3, 300, step=11)
    few = trial.suggest_int("few", 1, 4)
    opt = trial.suggest_categorical("opt", ["sgd", "adamw", "lamb"])
    value = x ** 2 + lr + 100 / width + step / 1000 + (opt == "adamw") + 0.01 * few
    if opt == "sgd":
        value += trial.suggest_float("momentum", 0, 0.99)
    trial.suggest_float("same", 0.5, 0.5)
    if trial.number % 7 == 5:
        raise optuna.TrialPruned
    return float("inf") if trial.number == 3 else value


def stepped(trial):
    """Real numbers with a step, of which some are more than the grid's points."""
    dropout = trial.suggest_float("dropout", 0, 0.5, step=0.1)
    y = trial.suggest_float("y", -1, 1, step=0.25)
    return dropout + 0.3 * y ** 2 + trial.suggest_float("z", 0, 1, step=0.01)


def ties(trial):
    """Many equal values at the boundary of the best ones."""
    trial.suggest_float("free", 0, 1)
    return trial.suggest_int("n", 0, 5) // 2


def few(trial):
    return trial.suggest_float("a", 0, 1) + trial.suggest_categorical("b", [True, False])


def compare(made, name):
    theirs = optuna.importance.get_param_importances(made)
    done = subprocess.run([CHOIR, "tune", "importance", "--json", "--study", name, "journal:study.log"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)
    assert ours["event"] == "importance", ours
    assert ours["shares"].keys() == theirs.keys(), (ours, theirs)
    worst = max(abs(ours["shares"][k] - v) for k, v in theirs.items())
    print("%s: %d parameters, worst difference %.2g" % (name, len(theirs), worst))
    assert worst < 1e-9, (ours, theirs)


def compare_forests(made, name):
    """fANOVA of a random forest: shares differ as those of two seeds do."""
    if importlib.util.find_spec("sklearn") is None:
        print("%s has no sklearn: fANOVA is not compared" % sys.executable)
        return
    theirs = [optuna.importance.get_param_importances(
        made, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=seed)) for seed in range(2)]
    done = subprocess.run([CHOIR, "tune", "importance", "--evaluator", "fanova", "--json", "--study", name,
                           "journal:study.log"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)["shares"]
    assert all(ours[k] == 0 for k in ours if k not in theirs[0]), ours
    worst = max(abs(ours[k] - sum(t[k] for t in theirs) / 2) for k in theirs[0])
    between = max(abs(theirs[0][k] - theirs[1][k]) for k in theirs[0])
    print("%s, fANOVA: worst difference %.2g, between two seeds of Optuna's %.2g" % (name, worst, between))
    assert worst < 0.05, (ours, theirs)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("study.log"))
    cases = [(mixed, 300, "minimize"), (mixed, 41, "maximize"), (ties, 90, "minimize"),
             (stepped, 60, "minimize"), (stepped, 200, "maximize"),
             (few, 6, "minimize"), (few, 1, "minimize")]
    for objective, trials, direction in cases:
        name = "%s of %d" % (objective.__name__, trials)
        study = optuna.create_study(study_name=name, direction=direction,
                                    sampler=optuna.samplers.RandomSampler(seed=trials))
        study.optimize(objective, n_trials=trials)
        storage.create_new_study([study.direction], name)
        optuna.load_study(study_name=name, storage=storage).add_trials(study.trials)
        compare(study, name)
    for objective, trials in [(mixed, 100), (stepped, 80), (few, 30)]:
        name = "%s of %d" % (objective.__name__, trials)
        study = optuna.create_study(study_name=name, sampler=optuna.samplers.RandomSampler(seed=trials))
        study.optimize(objective, n_trials=trials)
        storage.create_new_study([study.direction], name)
        optuna.load_study(study_name=name, storage=storage).add_trials(study.trials)
        compare_forests(study, name)
