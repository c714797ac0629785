"""Schedulers that stop trials, beside Optuna's pruners: the same decision at every report.

    pruners.py TEST_UNIT_SCHEDULERS"""
import importlib.util
import subprocess
import sys
import warnings

if importlib.util.find_spec("optuna") is None:
    print("skipped: %s has no optuna (PyPI has it; name a Python with -DCHOIR_PYTHON=...)"
          % sys.executable)
    sys.exit(77)

import optuna
from optuna.pruners import MedianPruner, PatientPruner, PercentilePruner

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
CASES = [
    ("median", MedianPruner()),
    ("median:startup=3,warmup=4,interval=3", MedianPruner(3, 4, 3)),
    ("median:startup=1,least=8", MedianPruner(1, n_min_trials=8)),
    ("percentile", PercentilePruner(25)),
    ("percentile:percent=70,startup=2,interval=2", PercentilePruner(70, 2, 0, 2)),
    ("patience:reports=2", PatientPruner(None, 2)),
    ("patience:reports=5,delta=0.3", PatientPruner(None, 5, 0.3)),
]
wrong = reports = stopped = 0
for scheduler, pruner in CASES:
    for direction in ("minimize", "maximize"):
        study = optuna.create_study(pruner=pruner, direction=direction)
        lines = subprocess.run([sys.argv[1], scheduler, direction], check=True,
                               stdout=subprocess.PIPE, universal_newlines=True).stdout
        for line in lines.splitlines():
            words = line.split()
            trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
            stops = False
            for step, value in zip(words[:-2:2], words[1:-2:2]):
                if stops:
                    wrong += 1  # Optuna would have stopped before
                trial.report(float(value), int(step))
                stops = trial.should_prune()
                reports += 1
            wrong += stops != (words[-2] == "stopped")
            stopped += stops
            if words[-2] == "stopped":
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(trial, float(words[-1]))
print("%d reports, %d trials stopped, %d decisions differ" % (reports, stopped, wrong))
sys.exit(1 if wrong or stopped < 100 else 0)
