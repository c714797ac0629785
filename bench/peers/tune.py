#!/usr/bin/env python3
"""Optuna's samplers on the functions of bench/tune.c, with its lines of JSON.

  tune.py quality SAMPLER FUNCTION SEEDS TRIALS [FIRST]     regrets: median and quartiles
  tune.py speed SAMPLER TRIALS PARAMETERS                   ask and tell, in memory

SAMPLER: random, qmc, tpe, gp, cmaes, nsga2; skopt: the Gaussian process of scikit-optimize."""
import json, math, sys, time, warnings

warnings.filterwarnings("ignore")

A = [[10, 3, 17, 3.5, 1.7, 8], [.05, 10, 17, .1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
     [17, 8, .05, 10, .1, 14]]
P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
ALPHA = [1, 1.2, 3, 3.2]


def branin(c, x):
    a, b = x
    d = b - 5.1 / (4 * math.pi ** 2) * a * a + 5 / math.pi * a - 6
    return d * d + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def hartmann6(c, x):
    return -sum(ALPHA[i] * math.exp(-sum(A[i][j] * (x[j] - P[i][j] * 1e-4) ** 2
                                         for j in range(6))) for i in range(4))


def ones(c, x):
    return 16 - sum(c) - sum(x)


def queens(c, x):
    return sum(c[i] == c[j] or abs(c[i] - c[j]) == i - j for i in range(8) for j in range(i))


def zdt1(c, x):
    g = 1 + 9 * sum(x[1:]) / (len(x) - 1)
    return x[0], g * (1 - math.sqrt(x[0] / g))


# choices: parameters and their number of values; reals: their ranges
PROBLEMS = {
    "branin": ((0, 0), [(-5, 10), (0, 15)], branin, 0.39788735772973816),
    "hartmann6": ((0, 0), [(0, 1)] * 6, hartmann6, -3.32236801141551),
    "ones": ((8, 2), [(0, 1)] * 8, ones, 0),
    "queens": ((8, 8), [], queens, 0),
    "zdt1": ((0, 0), [(0, 1)] * 8, zdt1, 1.1 * 1.1 - 1 / 3),
}


def area(points):
    """The area that points dominate up to (1.1, 1.1)."""
    total, low = 0, 1.1
    for a, b in sorted(points):
        if a < 1.1 and b < low:
            total, low = total + (1.1 - a) * (low - b), b
    return total


def sampler_of(optuna, name, seed):
    s = optuna.samplers
    return {"random": s.RandomSampler, "tpe": s.TPESampler, "gp": s.GPSampler,
            "cmaes": s.CmaEsSampler, "nsga2": s.NSGAIISampler,
            "qmc": lambda seed: s.QMCSampler(seed=seed, scramble=True),
            "tpe1": lambda seed: s.TPESampler(seed=seed, multivariate=False)}[name](seed=seed)


def with_skopt(problem, seed, trials):
    import numpy as np
    np.int = int
    from skopt import gp_minimize
    _, reals, value, best = problem
    r = gp_minimize(lambda x: value([], x), [(float(a), float(b)) for a, b in reals],
                    n_calls=trials, random_state=seed)
    return r.fun - best


def with_optuna(name, problem, seed, trials):
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (count, size), reals, value, best = problem
    several = value is zdt1

    def objective(t):
        c = [t.suggest_categorical(f"c{i}", list(range(size))) for i in range(count)]
        x = [t.suggest_float(f"x{i}", a, b) for i, (a, b) in enumerate(reals)]
        return value(c, x)

    study = optuna.create_study(directions=["minimize"] * (1 + several),
                                sampler=sampler_of(optuna, name, seed))
    study.optimize(objective, n_trials=trials)
    if several:
        return best - area([t.values for t in study.best_trials])
    return study.best_value - best


def quality(name, function, seeds, trials, first=0):
    problem, regrets = PROBLEMS[function], []
    __import__("skopt" if name == "skopt" else "optuna")  # before the clock starts
    begin = time.perf_counter()
    for seed in range(first, first + seeds):
        run = with_skopt if name == "skopt" else lambda *a: with_optuna(name, *a)
        regrets.append(run(problem, seed, trials))
        print(f"{name} {function} {seed} {regrets[-1]:.6g}", file=sys.stderr, flush=True)
    r = sorted(regrets)
    print(json.dumps(dict(
        sampler=name, function=function,
        regret_median=(r[(seeds - 1) // 2] + r[seeds // 2]) / 2,
        regret_quartiles=[r[seeds // 4], r[3 * seeds // 4]],
        trial_ms=(time.perf_counter() - begin) / seeds / trials * 1e3)))


def speed(name, trials, parameters):
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=sampler_of(optuna, name, 0))
    begin = part = time.perf_counter()
    following, last = 1000, 900
    for i in range(trials):
        if i == last:
            part = time.perf_counter()
        t = study.ask()
        study.tell(t, sum((t.suggest_float(f"x{k}", 0, 1) - 0.3) ** 2
                          for k in range(parameters)))
        if i + 1 == following:
            now = time.perf_counter()
            print(json.dumps(dict(sampler=name, trials=following,
                                  trial_us=(now - part) / (following - last) * 1e6,
                                  mean_us=(now - begin) / following * 1e6)))
            following, last = 10 * following, 10 * following - 100
    print(json.dumps(dict(sampler=name, trials=trials,
                          mean_us=(time.perf_counter() - begin) / trials * 1e6)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["quality"] and len(sys.argv) in (6, 7) and sys.argv[3] in PROBLEMS:
        quality(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
    elif sys.argv[1:2] == ["speed"] and len(sys.argv) == 5:
        speed(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        sys.exit(__doc__)
