"""The densities of TPE beside those of Optuna, for the same observations of numbers and choices.

    densities.py TEST_UNIT_STUDY

Kernels of equal whole numbers have different widths, by their order. NumPy's default sort leaves
that order open, so it is replaced by a stable one here."""
import importlib.util
import subprocess
import sys

for name in ("numpy", "optuna"):
    if importlib.util.find_spec(name) is None:
        print("skipped: %s has no %s (PyPI has it; name a Python with -DCHOIR_PYTHON=...)"
              % (sys.executable, name))
        sys.exit(77)

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe import parzen_estimator as pe
from optuna.samplers._tpe.sampler import default_weights

if int(optuna.__version__.split(".")[0]) < 5:
    print("skipped: optuna %s; the widths are those of 5" % optuna.__version__)
    sys.exit(77)

SPACE = {"a": FloatDistribution(0, 1), "b": FloatDistribution(1e-3, 10, log=True),
         "c": IntDistribution(1, 9), "d": CategoricalDistribution(["p", "q", "r"]),
         "e": IntDistribution(1, 40, step=3)}
SCALE = np.log(np.log(10 / 1e-3))  # Choir's density is by the unit interval of log(b)
argsort = np.argsort
np.argsort = lambda a, *args, **kwargs: argsort(a, kind="stable")

lines = subprocess.run([sys.argv[1], "densities"], check=True, stdout=subprocess.PIPE,
                       universal_newlines=True).stdout.split("\n")
worst = estimates = 0
while lines and lines[0].startswith("estimate"):
    count = int(lines.pop(0).split()[1])
    observed = np.array([l.split() for l in lines[:count]], float).reshape(count, len(SPACE))
    del lines[:count]
    points = []
    while lines[0] and not lines[0].startswith("estimate"):
        points.append(lines.pop(0).split())
    points = np.array(points, float)
    parameters = pe._ParzenEstimatorParameters(
        prior_weight=1.0, consider_magic_clip=True, consider_endpoints=False,
        weights=default_weights, multivariate=True)
    theirs = pe._ParzenEstimator({k: observed[:, i] for i, k in enumerate(SPACE)}, SPACE,
                                 parameters)
    expected = theirs.log_pdf({k: points[:, i] for i, k in enumerate(SPACE)})
    worst = max(worst, np.abs(points[:, -1] - SCALE - expected).max())
    estimates += 1
print("%d estimates, worst difference of log densities %.2g" % (estimates, worst))
sys.exit(estimates < 10 or not worst < 1e-9)
