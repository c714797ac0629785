"""Schedules: the rates of 60 steps, compared with torch.optim.lr_scheduler."""
import ctypes
import warnings

from check import C, agree, case, main, refuses  # first: it skips without PyTorch
import choir
import numpy as np
import torch
from torch.optim import lr_scheduler as S

warnings.filterwarnings("ignore", category=UserWarning)  # steps of a schedule without the optimizer's


def rate(schedule, lr, t):
    return C.schedule_at(ctypes.addressof(schedule), lr, t)


def compare(what, schedule, make, lr=0.1, steps=60, base=None):
    """make(optimizer) returns PyTorch's scheduler for the rate base (default: lr)."""
    optim = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base or lr)
    theirs, rates = make(optim), []
    for t in range(steps):
        rates.append(optim.param_groups[0]["lr"])
        optim.step()
        if t < steps - 1:
            theirs.step()
    ours = np.array([rate(schedule, lr, t) for t in range(steps)])
    agree(what, ours, np.array(rates), 1e-6)
    return ours


def changed(schedule, **fields):
    for name, value in fields.items():
        setattr(schedule, name, value)
    return schedule


def milestones(*at):
    return (ctypes.c_int64 * len(at))(*at), len(at)


@case
def constant():
    compare("constant", C.schedule_constant(), lambda o: S.LambdaLR(o, lambda t: 1.0))


@case
def step():
    compare("step", C.schedule_step(7, 0.5), lambda o: S.StepLR(o, 7, 0.5))


@case
def cosine():
    compare("cosine", C.schedule_cosine(0, 59, 0.01), lambda o: S.CosineAnnealingLR(o, 59, 0.01))


@case
def linear():
    compare("linear", C.schedule_linear(0, 40, 0.02),
            lambda o: S.LinearLR(o, start_factor=1, end_factor=0.2, total_iters=40))


@case
def multistep():
    at, count = milestones(5, 9, 30)
    compare("multistep", C.schedule_multistep(at, count, 0.3), lambda o: S.MultiStepLR(o, [5, 9, 30], 0.3))


@case
def exponential():
    compare("exponential", C.schedule_exponential(0.93), lambda o: S.ExponentialLR(o, 0.93))


@case
def polynomial():
    for power in (1, 2, 0.5):
        compare("power %g" % power, C.schedule_polynomial(40, power, 0),
                lambda o: S.PolynomialLR(o, 40, power))


@case
def restarts():
    for period, growth in ((7, 1), (5, 2), (1, 3), (100, 2)):
        compare("%d times %d" % (period, growth), C.schedule_restarts(period, growth, 0.001),
                lambda o: S.CosineAnnealingWarmRestarts(o, period, growth, 0.001))


@case
def one_cycle():
    for fields, theirs in (
            (dict(), dict()), (dict(rise=0.45), dict(pct_start=0.45)),
            (dict(first_factor=10, last_factor=100), dict(div_factor=10, final_div_factor=100)),
            (dict(straight=True), dict(anneal_strategy="linear")),
            (dict(three_phase=True), dict(three_phase=True)),
            (dict(three_phase=True, straight=True, rise=0.4),
             dict(three_phase=True, anneal_strategy="linear", pct_start=0.4))):
        for steps in (60, 47):
            compare("%s of %d" % (theirs, steps), changed(C.schedule_one_cycle(steps), **fields),
                    lambda o: S.OneCycleLR(o, 0.1, total_steps=steps, **theirs), steps=steps)


@case
def cyclic():
    for fields, theirs in (
            (dict(), dict()), (dict(step_down=4), dict(step_size_down=4)),
            (dict(halving=True), dict(mode="triangular2")),
            (dict(gamma=0.95), dict(mode="exp_range", gamma=0.95))):
        compare(str(theirs), changed(C.schedule_cyclic(7, 0.01), **fields),
                lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=7, cycle_momentum=False, **theirs))


@case
def inverse_sqrt():
    """Noam's, with the base rate at its peak."""
    width, warmup = 64, 11
    compare("noam", C.schedule_inverse_sqrt(warmup), lambda o: S.LambdaLR(
        o, lambda t: width ** -0.5 * min((t + 1) ** -0.5, (t + 1) * warmup ** -1.5)),
        lr=(width * warmup) ** -0.5, base=1)


@case
def warm_up_then():
    """A linear warm-up, then any schedule: SequentialLR, whose first factor is 1/(w+1)."""
    for schedule, make in (
            (C.schedule_cosine(9, 60, 0.01), lambda o: S.CosineAnnealingLR(o, 51, 0.01)),
            (C.schedule_step(7, 0.5), lambda o: S.StepLR(o, 7, 0.5)),
            (C.schedule_exponential(0.9), lambda o: S.ExponentialLR(o, 0.9))):
        def theirs(o):
            rise = S.LinearLR(o, start_factor=0.1, end_factor=1, total_iters=9)
            return S.SequentialLR(o, [rise, make(o)], milestones=[9])
        compare(str(schedule.kind), changed(schedule, warmup=9), theirs, steps=59)


@case
def plateau():
    for seed, fields in enumerate((dict(), dict(patience=2, factor=0.5), dict(patience=1, cooldown=3),
                                   dict(patience=0, threshold=0.1, min_lr=0.02, factor=0.7))):
        ours = choir.options(C.plateau_defaults, **fields)
        optim = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        theirs = S.ReduceLROnPlateau(optim, **fields)
        lr, losses = 0.1, np.random.RandomState(seed).rand(60).cumsum() / np.arange(1, 61)
        for loss in losses:
            theirs.step(loss)
            lr = C.plateau_next(ctypes.addressof(ours), lr, loss)
            agree(str(fields), np.array(lr), np.array(optim.param_groups[0]["lr"]), 1e-6)


@case
def optimizer_follows():
    """A step uses the schedule's rate, not only reports it."""
    with choir.Run() as run:
        module = run.module(C.nn_linear, 3, 2)
        optim = C.sgd(run, module, choir.options(C.sgd_defaults, lr=0.1))
        schedule = C.schedule_exponential(0.5)
        C.optim_schedule(optim, schedule)
        weight = module.tensors()["weight"]
        for t in range(5):
            before = weight.numpy()
            with run.step() as step:
                y = module(step.tensor(np.ones((1, 3), "f4")))
                C.backward(C.sum(y))
                C.optim_step(optim)
            agree("step", before - weight.numpy(), np.full((2, 3), 0.1 * 0.5 ** t), 1e-4)


@case
def bad_schedules():
    def used(schedule):
        def attempt():
            with choir.Run() as run:
                C.optim_schedule(C.sgd(run, run.module(C.nn_linear, 2, 2), C.sgd_defaults()), schedule)
                C.scope_status(run)
        return attempt
    at, count = milestones(9, 5)
    for word, schedule in (
            ("period", C.schedule_step(0, 0.1)), ("gamma", C.schedule_exponential(-1)),
            ("increase", C.schedule_multistep(at, count, 0.1)), ("milestones", C.schedule_multistep(at, 0, 1)),
            ("1 step", C.schedule_cosine(0, 0, 0)), ("min_lr", C.schedule_linear(0, 5, -1)),
            ("power", C.schedule_polynomial(5, 0, 0)), ("growth", C.schedule_restarts(5, 0, 0)),
            ("rise", changed(C.schedule_one_cycle(5), rise=2)), ("warm-up", C.schedule_cosine(-1, 5, 0))):
        refuses(word, ["schedule", word], used(schedule))


if __name__ == "__main__":
    main()
