"""Optimizers: ten steps of a small network with each option, its weights afterwards, and clipping."""
from check import LOSSES, C, Missing, agree, case, copy_weights, main, refuses, ten_steps  # first: it may skip
import choir
import torch
import torch.nn as nn


def network():
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 9), nn.LayerNorm(9), nn.Linear(9, 4))


def ours(run):
    parts = [C.nn_linear(run, 12, 20), C.nn_tanh(run), C.nn_linear(run, 20, 9), C.nn_layer_norm(run, 9),
             C.nn_linear(run, 9, 4)]
    return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], len(parts))


def train(make, make_theirs, group=None, clip=None, before=None, steps=10, bound=None):
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
            agree("weights " + name, t, theirs.state_dict()[name], bound or LOSSES)


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
                    dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
                    dict(lr=0.001, maximize=True), dict(lr=0.001, momentum=0.9, maximize=True)):
        compare("sgd", C.sgd_defaults, torch.optim.SGD, **changes)


@case
def adam():
    for changes in (dict(lr=0.01), dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.01, eps=1e-3),
                    dict(lr=0.01, weight_decay=0.1), dict(lr=0.01, amsgrad=True),
                    dict(lr=0.01, betas=(0.5, 0.6), amsgrad=True, weight_decay=0.1),
                    dict(lr=0.001, maximize=True)):
        compare("adam", C.adam_defaults, torch.optim.Adam, **changes)


@case
def adamw():
    for changes in (dict(lr=0.01), dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.01, eps=1e-3),
                    dict(lr=0.01, weight_decay=0.1), dict(lr=0.01, amsgrad=True),
                    dict(lr=0.01, betas=(0.5, 0.6), amsgrad=True, weight_decay=0.1),
                    dict(lr=0.001, maximize=True)):
        compare("adamw", C.adamw_defaults, torch.optim.AdamW, **changes)


class Lamb(torch.optim.Optimizer):
    """You et al. (2020) with the options of Apex's FusedLAMB, written out."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01,
                 max_grad_norm=1.0, bias_correction=True, grad_averaging=True, decoupled=True,
                 trust_always=False, maximize=False):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay))
        self.betas, self.eps, self.max_grad_norm = betas, eps, max_grad_norm
        self.bias_correction, self.grad_averaging = bias_correction, grad_averaging
        self.decoupled, self.trust_always, self.maximize = decoupled, trust_always, maximize
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        grads = [p.grad for g in self.param_groups for p in g["params"]]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        over = float(norm) / self.max_grad_norm if 0 < self.max_grad_norm < float(norm) else 1
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad / over, group["lr"], group["weight_decay"], b1, b2)

    def update(self, p, g, lr, decay, b1, b2):
        state = self.state[p]
        if not state:
            state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
        g = -g if self.maximize else g
        g = g if self.decoupled else g + decay * p
        m = state["m"].mul_(b1).add_(g, alpha=1 - b1 if self.grad_averaging else 1)
        v = state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
        if self.bias_correction:
            m, v = m / (1 - b1 ** self.t), v / (1 - b2 ** self.t)
        u = m / (v.sqrt() + self.eps) + (decay * p if self.decoupled else 0)
        ratio = 1.0
        if (decay != 0 or self.trust_always) and p.norm() != 0 and u.norm() != 0:
            ratio = p.norm() / u.norm()
        p.sub_(lr * ratio * u)


@case
def lamb():
    for changes in (dict(), dict(betas=(0.8, 0.95)), dict(eps=1e-3), dict(weight_decay=0.0),
                    dict(weight_decay=0.0, trust_always=True), dict(decoupled=False),
                    dict(bias_correction=False), dict(grad_averaging=False), dict(max_grad_norm=0.1),
                    dict(max_grad_norm=0.0), dict(maximize=True, lr=0.001)):
        compare("lamb", C.lamb_defaults, Lamb, **dict(dict(lr=0.01), **changes))


class Lion(torch.optim.Optimizer):
    """Chen et al. (2023), Algorithm 2, written out in f64."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay))
        self.betas, self.maximize = betas, maximize

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for group in self.param_groups:
            for p in group["params"]:
                g = (-p.grad if self.maximize else p.grad).double()
                m = self.state[p].setdefault("m", torch.zeros_like(g))
                x = p.double()
                x -= group["lr"] * ((b1 * m + (1 - b1) * g).sign() + group["weight_decay"] * x)
                m.mul_(b2).add_(g, alpha=1 - b2)
                p.copy_(x)


@case
def lion():
    for changes in (dict(lr=0.01), dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.01, weight_decay=0.3),
                    dict(lr=0.001, maximize=True)):
        compare("lion", C.lion_defaults, Lion, **changes)


@case
def rmsprop():
    for changes in (dict(), dict(lr=0.02, alpha=0.9), dict(lr=0.02, eps=1e-3), dict(weight_decay=0.1),
                    dict(momentum=0.9), dict(centered=True, eps=1e-4), dict(centered=True, momentum=0.5, eps=1e-3),
                    dict(lr=0.001, maximize=True)):
        compare("rmsprop", C.rmsprop_defaults, torch.optim.RMSprop, **changes)


def newest(name):
    if not hasattr(torch.optim, name):
        raise Missing("torch.optim." + name)


@case
def adafactor():
    newest("Adafactor")
    for changes in (dict(), dict(lr=1.0), dict(beta2_decay=-0.5), dict(eps2=0.1), dict(d=3.0),
                    dict(weight_decay=0.1), dict(lr=0.001, maximize=True)):
        theirs = dict(changes)
        if "eps2" in theirs:
            theirs["eps"] = (None, theirs.pop("eps2"))
        opts = choir.options(C.adafactor_defaults, **changes)
        train(lambda run, module: C.adafactor(run, module, opts),
              lambda network: torch.optim.Adafactor(network.parameters(), **theirs))


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon's formula in f64 for matrices, AdamW's for all else."""

    def __init__(self, network, exact=True, **changes):
        matrices = [p for p in network.parameters() if p.ndim == 2]
        others = [p for p in network.parameters() if p.ndim != 2]
        super().__init__(matrices, {})
        self.o = dict(dict(lr=1e-3, momentum=0.95, weight_decay=0.1, nesterov=True, ns_steps=5, eps=1e-7,
                           match_rms=True, maximize=False), **changes)
        self.exact = exact
        self.adam = torch.optim.AdamW(others, lr=self.o["lr"], weight_decay=self.o["weight_decay"],
                                      maximize=self.o["maximize"])
        if not exact:
            adjust = "match_rms_adamw" if self.o["match_rms"] else "original"
            known = {k: v for k, v in self.o.items() if k not in ("match_rms", "maximize")}
            self.theirs = torch.optim.Muon(matrices, adjust_lr_fn=adjust, **known)

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        self.adam.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self):
        self.adam.step()
        if not self.exact:
            self.theirs.step()
            return
        for p in self.param_groups[0]["params"]:
            self.update(p, **self.o)

    def update(self, p, lr, momentum, weight_decay, nesterov, ns_steps, eps, match_rms, maximize):
        g = (-p.grad if maximize else p.grad).double()
        m = self.state[p].setdefault("m", torch.zeros_like(g))
        m.lerp_(g, 1 - momentum)
        x = g.lerp(m, momentum) if nesterov else m
        rows, columns = p.shape
        x = x.T if rows > columns else x
        x = x / x.norm().clamp(min=eps)
        for _ in range(ns_steps):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        x = x.T if rows > columns else x
        factor = 0.2 * max(rows, columns) ** 0.5 if match_rms else max(1, rows / columns) ** 0.5
        p.copy_(p.double() * (1 - lr * weight_decay) - lr * factor * x)


def compare_muon(steps, exact, bound=None, **changes):
    opts = choir.options(C.muon_defaults, **changes)
    train(lambda run, module: C.muon(run, module, opts),
          lambda network: Muon(network, exact, **changes), steps=steps, bound=bound)


@case
def muon():
    for changes in (dict(), dict(lr=0.02), dict(lr=0.02, momentum=0.8), dict(lr=0.02, nesterov=False),
                    dict(lr=0.02, match_rms=False), dict(lr=0.02, ns_steps=3), dict(lr=0.02, weight_decay=0.5),
                    dict(maximize=True)):
        compare_muon(10, True, **changes)


@case
def muon_of_pytorch():
    """PyTorch computes the products in bf16, so a step is near, not equal."""
    newest("Muon")
    for changes in (dict(lr=0.02), dict(lr=0.02, match_rms=False), dict(lr=0.02, nesterov=False)):
        compare_muon(1, False, bound=1e-2, **changes)


@case
def eight_bits():
    """Small parameters have f32 state, so the bits are those of plain AdamW; tests/conformance has the codes."""
    compare("adamw", C.adamw_defaults, torch.optim.AdamW, lr=0.01)
    opts = choir.options(C.adamw_defaults, lr=0.01, eight_bits=True)
    train(lambda run, module: C.adamw(run, module, opts),
          lambda network: torch.optim.AdamW(network.parameters(), lr=0.01))


def averaged(opts, make_theirs, counts):
    """The averages of torch.optim.swa_utils, of which steps `counts` are a part; the weights stay."""
    theirs = network()
    average = make_theirs(theirs)
    x, y = torch.randn(16, 12), torch.randn(16, 4)
    with choir.Run() as run:
        module = ours(run)
        copy_weights(module, theirs)
        optim = C.adam(run, module, choir.options(C.adam_defaults, lr=0.01))
        C.optim_average(optim, opts)
        their_optim = torch.optim.Adam(theirs.parameters(), lr=0.01)
        for t in range(1, 9):
            ten_steps(run, module, theirs, [x], y, optim, their_optim, steps=1)
            if counts(t):
                average.update_parameters(theirs)
            for name, value in module.tensors().items():
                agree("weights " + name, value, theirs.state_dict()[name], LOSSES)
            C.optim_swap(optim)
            for name, value in module.tensors().items():
                expected = average.module if average.n_averaged > 0 else theirs
                agree("average " + name, value, expected.state_dict()[name], LOSSES)
            C.optim_swap(optim)


@case
def averages():
    from torch.optim.swa_utils import AveragedModel
    try:
        from torch.optim.swa_utils import get_ema_multi_avg_fn
    except ImportError as lacks:
        raise Missing("torch.optim.swa_utils.get_ema_multi_avg_fn") from lacks
    averaged(choir.options(C.average_defaults, decay=0.9),
             lambda n: AveragedModel(n, multi_avg_fn=get_ema_multi_avg_fn(0.9)), lambda t: True)
    averaged(choir.options(C.average_defaults, decay=0, start=3, every=2), AveragedModel,
             lambda t: t >= 3 and (t - 3) % 2 == 0)


@case
def lamb_groups():
    """The usual groups: no decay, and so no scaling, for biases and norms."""
    def make(run, module):
        optim = C.lamb(run, module, choir.options(C.lamb_defaults, lr=0.01, weight_decay=0.1))
        run.group(optim, lambda name: name.endswith("bias"), 0.01, 0)
        return optim

    def make_theirs(network):
        named = list(network.named_parameters())
        return Lamb([{"params": [p for n, p in named if not n.endswith("bias")]},
                     {"params": [p for n, p in named if n.endswith("bias")], "weight_decay": 0}],
                    lr=0.01, weight_decay=0.1)
    train(make, make_theirs)


@case
def bad_options():
    """The error names the option and its value."""
    def made(name, **changes):
        def attempt():
            with choir.Run() as run:
                opts = choir.options(getattr(C, name + "_defaults"), **changes)
                getattr(C, name)(run, run.module(C.nn_linear, 2, 2), opts)
                C.scope_status(run)
        return attempt
    for name, word, value, changes in (
            ("sgd", "learning rate", "got -1", dict(lr=-1)), ("sgd", "momentum", "got -0.5", dict(momentum=-0.5)),
            ("sgd", "Nesterov", "", dict(nesterov=True)), ("adam", "betas", "got 1 ", dict(beta1=1)),
            ("adam", "weight decay", "got -2", dict(weight_decay=-2)),
            ("adamw", "eps", "got nan", dict(eps=float("nan"))),
            ("lamb", "betas", "0.9 and 1.5", dict(beta2=1.5)),
            ("lamb", "max_grad_norm", "got -3", dict(max_grad_norm=-3)),
            ("lion", "betas", "got 1 ", dict(beta1=1)), ("rmsprop", "alpha", "got 2", dict(alpha=2)),
            ("rmsprop", "momentum", "got -1", dict(momentum=-1)),
            ("adafactor", "beta2_decay", "got 1", dict(beta2_decay=1)), ("adafactor", "a d of at least 1", "got 0.5", dict(d=0.5)),
            ("muon", "ns_steps", "got 0", dict(ns_steps=0)), ("muon", "momentum", "got 1", dict(momentum=1)),
            ("adamw", "amsgrad", "8-bit", dict(amsgrad=True, eight_bits=True))):
        refuses("%s %s" % (name, changes), [name + ":", word, value], made(name, **changes))


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
