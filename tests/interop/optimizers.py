"""Optimizers: ten steps of a small network with each option, its weights afterwards, and clipping."""
from check import LOSSES, C, agree, case, copy_weights, main, ten_steps  # first: it skips without PyTorch
import choir
import torch
import torch.nn as nn


def network():
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 9), nn.LayerNorm(9), nn.Linear(9, 4))


def ours(run):
    parts = [C.nn_linear(run, 12, 20), C.nn_tanh(run), C.nn_linear(run, 20, 9), C.nn_layer_norm(run, 9),
             C.nn_linear(run, 9, 4)]
    return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], len(parts))


def train(make, make_theirs, group=None, clip=None, before=None, steps=10):
    """make(run, module) and make_theirs(network) give the optimizers."""
    theirs = network()
    x, y = torch.randn(16, 12), torch.randn(16, 4)
    with choir.Run() as run:
        module = ours(run)
        copy_weights(module, theirs)
        optim, their_optim = make(run, module), make_theirs(theirs)
        if clip is not None:
            C.optim_clip(optim, clip)
            inner = their_optim.step

            def clipped():
                theirs.norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip if clip > 0 else 1e30)
                inner()
            their_optim.step = clipped
        ten_steps(run, module, theirs, [x], y, optim, their_optim,
                  before=(lambda t: before(t, optim, their_optim)) if before else lambda t: None, steps=steps)
        if clip is not None:
            agree("norm", choir.Tensor(C.optim_grad_norm(optim).handle), theirs.norm)
        for name, t in module.tensors().items():
            agree("weights " + name, t, theirs.state_dict()[name], LOSSES)


def compare(name, defaults, theirs, **changes):
    """The same options to both; where PyTorch's names differ, NAMES says how."""
    opts = choir.options(defaults, **{k: v for k, v in changes.items() if k != "betas"})
    if "betas" in changes:
        opts.beta1, opts.beta2 = changes["betas"]
    make = getattr(C, name)
    train(lambda run, module: make(run, module, opts),
          lambda network: theirs(network.parameters(), **changes))


@case
def sgd():
    for changes in (dict(lr=0.1), dict(lr=0.1, weight_decay=0.1), dict(lr=0.05, momentum=0.9),
                    dict(lr=0.05, momentum=0.9, dampening=0.3),
                    dict(lr=0.05, momentum=0.9, nesterov=True),
                    dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)):
        compare("sgd", C.sgd_defaults, torch.optim.SGD, **changes)


@case
def adam():
    for changes in (dict(lr=0.01), dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.01, eps=1e-3),
                    dict(lr=0.01, weight_decay=0.1)):
        compare("adam", C.adam_defaults, torch.optim.Adam, **changes)


@case
def adamw():
    for changes in (dict(lr=0.01), dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.01, eps=1e-3),
                    dict(lr=0.01, weight_decay=0.1)):
        compare("adamw", C.adamw_defaults, torch.optim.AdamW, **changes)


@case
def groups():
    """No decay, and another rate, for biases."""
    def make(run, module):
        optim = C.adamw(run, module, choir.options(C.adamw_defaults, lr=0.01, weight_decay=0.3))
        run.group(optim, lambda name: name.endswith("bias"), 0.02, 0)
        return optim

    def make_theirs(network):
        named = list(network.named_parameters())
        return torch.optim.AdamW([
            {"params": [p for n, p in named if not n.endswith("bias")]},
            {"params": [p for n, p in named if n.endswith("bias")], "lr": 0.02, "weight_decay": 0}],
            lr=0.01, weight_decay=0.3)
    train(make, make_theirs)


@case
def clipping():
    for clip in (0.05, 0.5, 1e6, 0):
        train(lambda run, m: C.sgd(run, m, choir.options(C.sgd_defaults, lr=0.1, momentum=0.9)),
              lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9), clip=clip)


@case
def another_rate():
    """The rate set by hand between steps."""
    def before(t, optim, theirs):
        C.optim_set_lr(optim, 0.01 * (t + 1))
        theirs.param_groups[0]["lr"] = 0.01 * (t + 1)
    train(lambda run, m: C.adam(run, m, C.adam_defaults()), lambda n: torch.optim.Adam(n.parameters()),
          before=before)


if __name__ == "__main__":
    main()
