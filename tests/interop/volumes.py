"""Signals, images and volumes: convolutions along one and three dimensions, and other sizes."""
import ctypes

from check import C, case, function, main  # first: it skips without PyTorch
import choir
import torch
import torch.nn.functional as F


@case
def conv1d():
    for length, kernel, stride, padding, dilation, groups in (
            (13, 3, 1, 0, 1, 1), (13, 3, 1, 1, 1, 8), (20, 5, 3, 4, 2, 2), (7, 1, 2, 0, 1, 4), (3, 5, 1, 2, 1, 1)):
        opts = choir.options(C.conv_defaults, stride=stride, padding=padding, dilation=dilation, groups=groups)
        function(lambda x, w, b: C.conv1d(x, w, b, opts),
                 lambda x, w, b: F.conv1d(x, w, b, stride, padding, dilation, groups),
                 (2, 8, length), (16, 8 // groups, kernel), (16,))
    opts = C.conv_defaults()
    function(lambda x, v, w: C.conv1d(C.relu(C.conv1d(x, v, None, opts)), w, None, opts),
             lambda x, v, w: F.conv1d(F.conv1d(x, v).relu(), w), (2, 3, 17), (5, 3, 4), (2, 5, 3))


def triple(a, b, c):
    return (ctypes.c_int * 3)(a, b, c)


@case
def conv3d():
    for kernel, stride, padding, dilation, groups in (
            ((3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1), ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 8),
            ((2, 3, 1), (2, 1, 3), (1, 0, 2), (1, 1, 1), 2), ((3, 2, 2), (2, 2, 1), (3, 1, 0), (2, 3, 1), 4),
            ((1, 3, 3), (1, 2, 2), (0, 1, 1), (1, 1, 1), 1), ((2, 1, 1), (5, 1, 1), (0, 0, 0), (3, 1, 1), 1)):
        opts = choir.options(C.conv3d_defaults, stride=triple(*stride), padding=triple(*padding),
                             dilation=triple(*dilation), groups=groups)
        function(lambda x, w, b: C.conv3d(x, w, b, opts),
                 lambda x, w, b: F.conv3d(x, w, b, stride, padding, dilation, groups),
                 (2, 8, 7, 6, 5), (16, 8 // groups, *kernel), (16,))
    opts = C.conv3d_defaults()
    function(lambda x, v, w: C.conv3d(C.relu(C.conv3d(x, v, None, opts)), w, None, opts),
             lambda x, v, w: F.conv3d(F.conv3d(x, v).relu(), w), (2, 3, 6, 5, 7), (5, 3, 2, 2, 2), (2, 5, 3, 2, 3))


@case
def interpolate():
    cubic = {2: "bicubic"}
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    for old, new in (((7,), (16,)), ((16,), (7,)), ((5, 9), (10, 18)), ((13, 8), (5, 21)), ((1, 6), (4, 1)),
                     ((3, 4, 5), (6, 2, 5)), ((224, 3), (97, 331))):
        sizes = (ctypes.c_int64 * len(new))(*new)

        def ours(x, how, corners):
            return C.interpolate(x, ctypes.addressof(sizes), len(new), how, corners)
        function(lambda x: ours(x, choir.E.CHOIR_NEAREST, False), lambda x: F.interpolate(x, new), (2, 3, *old))
        # PyTorch computes places in f32: among hundreds of entries they are off by 1e-5
        bound = 1e-5 if max(old + new) < 100 else 1e-4
        for how, names in ((choir.E.CHOIR_LINEAR, linear), (choir.E.CHOIR_CUBIC, cubic)):
            for corners in (False, True):
                if len(old) in names:
                    function(lambda x: ours(x, how, corners),
                             lambda x: F.interpolate(x, new, mode=names[len(old)], align_corners=corners),
                             (2, 3, *old), bound=bound)


@case
def pixels():
    for r in (1, 2, 3):
        function(lambda x: C.pixel_shuffle(x, r), lambda x: F.pixel_shuffle(x, r), (2, 2 * r * r, 3, 5))
        function(lambda x: C.pixel_unshuffle(x, r), lambda x: F.pixel_unshuffle(x, r), (2, 2, 3 * r, 5 * r))
    function(lambda x, g, b: C.instance_norm(x, g, b, 1e-5),
             lambda x, g, b: F.instance_norm(x, weight=g, bias=b), (2, 3, 4, 5), (3,), (3,))


@case
def windows():
    for stride, padding, dilation, kernel in ((1, 0, 1, (2, 3)), (2, 1, 1, (3, 3)), (1, 2, 2, (3, 2))):
        opts = choir.options(C.conv_defaults, stride=stride, padding=padding, dilation=dilation)
        more = dict(stride=stride, padding=padding, dilation=dilation)
        function(lambda x: C.unfold(x, *kernel, opts), lambda x: F.unfold(x, kernel, **more), (2, 3, 7, 6))
        columns = F.unfold(torch.randn(2, 3, 7, 6), kernel, **more)
        function(lambda x: C.fold(x, 7, 6, *kernel, opts), lambda x: F.fold(x, (7, 6), kernel, **more), columns)


@case
def grid_sample():
    for how, name in ((choir.E.CHOIR_LINEAR, "bilinear"), (choir.E.CHOIR_NEAREST, "nearest")):
        for border in (False, True):
            for corners in (False, True):
                function(lambda x, g: C.grid_sample(x, g, how, border, corners),
                         lambda x, g: F.grid_sample(x, g, name, "border" if border else "zeros", corners),
                         (2, 3, 5, 4), torch.rand(2, 4, 3, 2) * 2.6 - 1.3,
                         fixed=() if name == "bilinear" else (1,))


if __name__ == "__main__":
    main()
