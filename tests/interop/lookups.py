"""Ops that compare, choose, look up, order and reduce along a dimension."""
import ctypes
import math

from check import C, case, function, main, same  # first: it skips without PyTorch
import choir
import numpy as np
import torch
import torch.nn.functional as F


def scope_of(x):
    return choir.Scope(C.tensor_scope(x))


def constant(x, values):
    """A tensor of ours in x's scope."""
    return scope_of(x).tensor(values.numpy())


@case
def elementwise():
    wide = torch.randn(7, 33) * 100
    for name in ("sin", "cos"):
        function(getattr(C, name), getattr(torch, name), wide.clone())
        function(getattr(C, name), getattr(torch, name), torch.tensor([0.0, -0.0, 8191.9, 8192.1, -1e6, 1e30]))
    for exponent in (2, 0.5, 3, -1, -2.5, 0, 1):
        function(lambda x: C.pow(x, exponent), lambda x: x ** exponent, torch.rand(5, 7) + 0.1)
    for exponent in (2, 3, -1, 0):
        function(lambda x: C.pow(x, exponent), lambda x: x ** exponent, torch.randn(5, 7))
    for least, most in ((-0.5, 0.7), (-math.inf, 0.1), (0.2, math.inf), (0.5, -0.5)):
        function(lambda x: C.clamp(x, least, most), lambda x: x.clamp(least, most), (7, 33))


@case
def comparisons():
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool):
        a, b = (torch.randint(0, 3, s).to(dtype) for s in ((4, 1, 5), (3, 1)))
        with choir.Run() as run, run.step() as step:
            x, y = step.tensor(a.numpy()), step.tensor(b.numpy())
            for name in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
                same(name, getattr(C, name)(x, y).numpy(), getattr(torch, name)(a, b).numpy())
            same("not", C.logical_not(x).numpy(), torch.logical_not(a).numpy())
            for how, name in enumerate("eq ne lt le gt ge".split()):
                for number in (1, 0.5, -0.5, -1.5, math.nan, math.inf, -math.inf, 1e30, 300):
                    with_number = a if dtype.is_floating_point else a.double()
                    same("%s %g %s" % (name, number, dtype), C.compare(x, how, number).numpy(),
                         getattr(torch, name)(with_number, number).numpy())


@case
def choices():
    mask = torch.rand(4, 1, 5) > 0.5
    function(lambda a, b: C.where(constant(a, mask), a, b), lambda a, b: torch.where(mask, a, b), (3, 5), (4, 3, 1))
    function(lambda x: C.masked_fill(x, constant(x, mask), -2), lambda x: x.masked_fill(mask, -2), (4, 3, 5))


def with_index(ours, *arguments):
    """The two results of one of our ops."""
    index = ctypes.c_void_p()
    y = ours(*arguments, ctypes.addressof(index))
    return y, choir.Tensor(index.value)


@case
def in_order():
    for shape, dim in (((3, 5, 65), 0), ((3, 5, 65), 1), ((3, 5, 65), -1), ((2, 3000), 1), ((300, 7), 0)):
        for descending in (False, True):
            x = torch.randint(-4, 5, shape).float() / 4  # most entries have equals
            x[torch.rand(shape) < 0.02] = math.nan
            for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool):
                t = x.nan_to_num().mul(4).abs().to(dtype) if not dtype.is_floating_point else x.to(dtype)
                with choir.Run() as run, run.step() as step:
                    y, index = with_index(C.sort, step.tensor(t.numpy()), dim, descending)
                    expected = torch.sort(t, dim=dim, descending=descending, stable=True)
                    same("sorted", y.numpy(), expected.values.numpy())
                    same("index", index.numpy(), expected.indices.numpy())
                    mine = C.argsort(step.tensor(t.numpy()), dim, descending)
                    same("argsort", mine.numpy(), expected.indices.numpy())
                    y, index = with_index(C.topk, step.tensor(t.numpy()), 3, dim, descending)
                    same("topk", y.numpy(), expected.values.narrow(dim, 0, 3).numpy())
                    same("topk's index", index.numpy(), expected.indices.narrow(dim, 0, 3).numpy())
            function(lambda x: C.sort(x, dim, descending, None), lambda x: x.sort(dim, descending).values, shape)
            function(lambda x: C.topk(x, 2, dim, descending, None),
                     lambda x: x.topk(2, dim, descending).values, shape)


def both(name):
    """Values times their indices."""
    def ours(x, dim, keep):
        index = ctypes.c_void_p()
        y = getattr(C, name + "_dim")(x, dim, keep, ctypes.addressof(index))
        return C.mul(y, C.cast(choir.Tensor(index.value), choir.E.CHOIR_F32))

    def theirs(x, dim, keep):
        y = getattr(torch, name)(x, dim, keep)
        return y.values * y.indices
    return ours, theirs


@case
def along_a_dimension():
    for dim in (0, 1, -1):
        for keep in (False, True):
            for name in ("max", "min"):
                ours, theirs = both(name)
                function(lambda x: ours(x, dim, keep), lambda x: theirs(x, dim, keep), (3, 5, 65))
                function(lambda x: getattr(C, "arg%s_dim" % name)(x, dim, keep),
                         lambda x: getattr(x, "arg" + name)(dim, keep), (3, 5, 65))
            for correction in (0, 1):
                function(lambda x: C.var_dim(x, dim, correction, keep),
                         lambda x: x.var(dim, correction=correction, keepdim=keep), (3, 5, 65))
            for p in (2, 1, 3, 0.5, -1, math.inf, -math.inf):
                function(lambda x: C.norm_dim(x, p, dim, keep),
                         lambda x: torch.linalg.vector_norm(x, p, dim, keep), (3, 5, 65))
            ties = torch.randint(-2, 3, (3, 5, 65)).float()
            for p in (0, math.inf, -math.inf):
                function(lambda x: C.norm_dim(x, p, dim, keep),
                         lambda x: torch.linalg.vector_norm(x, p, dim, keep), ties.clone(),
                         fixed=(0,) if p == 0 else ())  # ours has a gradient of zeros
        function(lambda x: C.cumsum(x, dim), lambda x: x.cumsum(dim), (3, 5, 65))


@case
def lookups():
    for dim, shape in ((0, (6, 4, 2)), (1, (3, 9, 5)), (-1, (2, 4, 7))):
        index = torch.randint((3, 4, 5)[dim], shape)
        function(lambda x: C.gather_dim(x, dim, constant(x, index)), lambda x: x.gather(dim, index), (3, 4, 5))
        function(lambda x, y: C.scatter_add(x, dim, constant(x, index), y),
                 lambda x, y: x.scatter_add(dim, index, y), (3, 4, 5) if dim else (3, 4, 2), shape)
        ids = torch.randint((3, 4, 5)[dim], (11,))
        function(lambda x: C.index_select(x, dim, constant(x, ids)), lambda x: x.index_select(dim, ids), (3, 4, 5))
    ids = torch.randint(7, (3, 4))
    with choir.Run() as run, run.step() as step:
        same("one hot", C.one_hot(step.tensor(ids.numpy()), 7).numpy(), F.one_hot(ids, 7).numpy())


@case
def pad():
    for widths in ((1, 2), (0, 3, 2, 0), (1, -1, -2, 2, 3, 1)):
        array = (ctypes.c_int64 * len(widths))(*widths)
        function(lambda x: C.pad(x, ctypes.addressof(array), len(widths), 1.5),
                 lambda x: F.pad(x, widths, value=1.5), (3, 4, 5))


if __name__ == "__main__":
    main()
