"""Comparisons of Choir with PyTorch: the measure of an error, its bounds, and checks built from them.

A file of tests is a list of calls under @case; `python3 FILE.py [NAME]` runs those whose name begins
with NAME. Without PyTorch it exits with 77, skipped (need.py).

    @case
    def linear():
        layer(lambda run: run.module(C.nn_linear, 24, 17), nn.Linear(24, 17), (5, 24))
"""
import os
import sys
import traceback

os.environ.setdefault("OPENBLAS_CORETYPE", "SKYLAKEX")  # otherwise Debian's build picks slow kernels

import need  # first: it skips without PyTorch
import numpy as np
import torch

import choir
from choir import C

LAYER, LOSSES = 1e-5, 1e-4  # bounds on a layer's numbers, and on the losses of ten steps
STEPS = 10
torch.set_num_threads(1)
CASES = []
worst = {}  # the measurements of the running case, by name


def case(function):
    CASES.append(function)
    return function


def relative(ours, theirs, scale=None):
    """|ours - theirs| / |theirs|, Euclidean norms in f64; scale replaces |theirs| where that is rounding
    noise about zero. Values that are not finite must be so in both."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        raise AssertionError("shapes differ: %s, PyTorch's %s" % (ours.shape, theirs.shape))
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return np.inf
    distance = np.linalg.norm((ours - theirs)[finite])
    size = scale if scale is not None else np.linalg.norm(theirs[finite])
    return 0.0 if distance == 0 else distance / size if size else np.inf


def agree(what, ours, theirs, bound=LAYER, scale=None):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    ours = ours.numpy() if isinstance(ours, choir.Tensor) else ours
    error = relative(ours, theirs, scale)
    worst[what] = max(worst.get(what, 0), error)
    if not error <= bound:
        raise AssertionError("%s: off by %.3g (bound %g)\nours     %s\nPyTorch's %s" % (
            what, error, bound, np.ravel(ours)[:6], np.ravel(theirs)[:6]))


def same(what, ours, theirs):
    """Bit for bit."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or ours.tobytes() != np.ascontiguousarray(theirs, ours.dtype).tobytes():
        at = np.flatnonzero(np.ravel(ours) != np.ravel(theirs)) if ours.shape == theirs.shape else []
        raise AssertionError("%s: %d of %d differ, from %s on\nours     %s\nPyTorch's %s" % (
            what, len(at), ours.size, at[:1], np.ravel(ours)[at[:6]] if len(at) else ours.shape,
            np.ravel(theirs)[at[:6]] if len(at) else theirs.shape))
    worst.setdefault(what, 0)


def refuses(what, words, function):
    """Checks that function fails with all these words in its message."""
    try:
        function()
    except choir.Error as error:
        missing = [w for w in words if w not in str(error)]
        if missing:
            raise AssertionError("%s: the message lacks %s: %s" % (what, missing, error))
    else:
        raise AssertionError("%s was accepted" % what)


def draw(spec):
    """A shape: normal values. (shape, n): class ids below n. An array or tensor: itself."""
    if isinstance(spec, (np.ndarray, torch.Tensor)):
        return torch.as_tensor(spec)
    if len(spec) == 2 and isinstance(spec[0], tuple):
        return torch.randint(spec[1], spec[0])
    return torch.randn(spec)


def leaves(inputs, fixed):
    values = [draw(x) for x in inputs]
    for i, x in enumerate(values):
        if x.is_floating_point() and i not in fixed:
            x.requires_grad_(True)
    return values


def function(ours, theirs, *inputs, fixed=(), bound=LAYER):
    """Ops of the same arguments: values, and gradients of all floating inputs but those numbered in
    fixed, for a random gradient of the result."""
    values = leaves(inputs, fixed)
    expected = theirs(*values)
    with choir.Run() as run, run.step() as step:
        x = [step.tensor(v.detach().numpy(), grad=v.requires_grad) for v in values]
        y = ours(*x)
        agree("forward", y, expected, bound)
        if not expected.requires_grad:
            return
        gradient = torch.randn(expected.shape)
        expected.backward(gradient)
        C.backward(C.sum(C.mul(y, step.tensor(gradient.numpy()))))
        for i, (mine, v) in enumerate(zip(x, values)):
            if v.requires_grad:
                agree("grad %d" % i, C.grad(mine), v.grad, bound)


def copy_weights(module, theirs, rename=lambda name: name):
    """Copies PyTorch's parameters and buffers into ours by name; PyTorch must have each of ours."""
    source = {rename(k): v for k, v in theirs.state_dict().items()}
    for name, t in module.tensors().items():
        t.write(source[name].detach().numpy())


def compare_gradients(module, theirs, rename, null):
    expected = {rename(n): p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    top = max(float(g.norm()) for g in expected.values()) if expected else None
    for name, t in module.tensors(buffers=False).items():
        if name in expected:
            agree("grad " + name, C.grad(t), expected[name], scale=top if name in null else None)


def first_output(y):
    return y[0] if isinstance(y, tuple) else y


def layer(make, theirs, *inputs, lr=0.05, null=(), fixed=(), rename=lambda name: name,
          forward=lambda module, *x: module(*x)):
    """A module: output, gradients of inputs and parameters, buffers, and the losses of ten steps of SGD
    with momentum towards a random target. null: parameters whose gradient is zero but for rounding (a
    bias before batch norm); make(run) gives ours."""
    theirs.train()
    values = leaves(inputs, fixed)
    with choir.Run() as run:
        module = make(run)
        copy_weights(module, theirs, rename)
        expected = first_output(theirs(*values))
        gradient = torch.randn(expected.shape)
        expected.backward(gradient)
        with run.step() as step:
            x = [step.tensor(v.detach().numpy(), grad=v.requires_grad) for v in values]
            y = forward(module, *x)
            agree("forward", y, expected)
            C.backward(C.sum(C.mul(y, step.tensor(gradient.numpy()))))
            for i, (mine, v) in enumerate(zip(x, values)):
                if v.requires_grad:
                    agree("grad %d" % i, C.grad(mine), v.grad)
            compare_gradients(module, theirs, rename, null)
        compare_buffers(module, theirs, rename)
        if module.tensors(buffers=False):
            optim = C.sgd(run, module, choir.options(C.sgd_defaults, lr=lr, momentum=0.9))
            target = torch.randn(expected.shape)
            ten_steps(run, module, theirs, [v.detach() for v in values], target, optim,
                      torch.optim.SGD(theirs.parameters(), lr=lr, momentum=0.9), forward=forward)
            compare_buffers(module, theirs, rename, LOSSES)


def compare_buffers(module, theirs, rename=lambda name: name, bound=LAYER):
    ours = module.tensors()
    for name, value in theirs.named_buffers():
        if rename(name) in ours:
            agree(rename(name), ours[rename(name)], value, bound)


def ten_steps(run, module, theirs, inputs, target, optim, their_optim, forward=lambda m, *x: m(*x),
              loss=C.mse_loss, their_loss=torch.nn.functional.mse_loss, before=lambda t: None,
              steps=STEPS):
    """Both train on the same batch, and their losses agree. before(t) is called ahead of step t."""
    for t in range(steps):
        before(t)
        their_optim.zero_grad()
        expected = their_loss(first_output(theirs(*inputs)), target)
        expected.backward()
        with run.step() as step:
            x = [step.tensor(v.numpy()) for v in inputs]
            value = loss(forward(module, *x), step.tensor(target.numpy()))
            agree("ten losses", value, expected, LOSSES)
            C.backward(value)
            C.optim_step(optim)
        their_optim.step()


class Missing(Exception):
    """Raised for features that this PyTorch is too old for."""


def main():
    prefix, failed = sys.argv[1] if len(sys.argv) > 1 else "", 0
    print("PyTorch %s, kernels %s" % (torch.__version__, C.cpu_isa()))
    for f in CASES:
        if not f.__name__.startswith(prefix):
            continue
        worst.clear()
        torch.manual_seed(1)
        try:
            f()
        except Missing as what:
            print("skipped: %s: %s" % (f.__name__, what))
        except Exception as error:  # an exception fails this test; the others still run
            failed += 1
            print("FAILED %s: %s" % (f.__name__, error))
            if not isinstance(error, AssertionError):
                traceback.print_exc(file=sys.stdout)
        else:
            top = max(worst, key=worst.get) if worst else "nothing"
            print("ok     %-28s %8.1e  %s" % (f.__name__, worst.get(top, 0), top))
    print("%d failed" % failed)
    sys.exit(1 if failed else 0)
