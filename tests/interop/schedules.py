"""Schedules: the rates of 60 steps, against torch.optim.lr_scheduler stepped beside."""
import warnings

from check import C, agree, case, main  # first: it skips without PyTorch
import choir
import numpy as np
import torch
from torch.optim import lr_scheduler as S

warnings.filterwarnings("ignore", category=UserWarning)  # steps of a schedule without the optimizer's


def compare(what, schedule, make, lr=0.1, steps=60):
    parameter = torch.zeros(1, requires_grad=True)
    optim = torch.optim.SGD([parameter], lr=lr)
    theirs, rates = make(optim), []
    for t in range(steps):
        rates.append(optim.param_groups[0]["lr"])
        optim.step()
        theirs.step()
    call = choir.LIB["choir_schedule_at"]
    import ctypes
    ours = [call(ctypes.byref(schedule), lr, t) for t in range(steps)]
    agree(what, np.array(ours), np.array(rates), 1e-6)


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


if __name__ == "__main__":
    main()
