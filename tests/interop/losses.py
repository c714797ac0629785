"""Losses, with their options and the gradients of both arguments where both have one."""
from check import C, case, function, main  # first: it skips without PyTorch
import choir
import torch
import torch.nn.functional as F


@case
def mse():
    function(C.mse_loss, F.mse_loss, (7, 5), (7, 5))


@case
def nll():
    function(C.nll_loss, F.nll_loss, torch.randn(9, 12).log_softmax(-1), ((9,), 12))


def cross_entropy_case(shape, classes, their=None, **changes):
    opts = choir.options(C.cross_entropy_defaults, **changes)
    names = {"ignore_index", "label_smoothing"}
    target = torch.randint(classes, shape)
    if "ignore_index" in changes:
        target.view(-1)[::3] = changes["ignore_index"]
    function(lambda x, y: C.cross_entropy_with(x, y, opts),
             lambda x, y: F.cross_entropy(x.reshape(-1, classes), y.reshape(-1),
                                          **{k: v for k, v in changes.items() if k in names}),
             shape + (classes,), target)


@case
def cross_entropy():
    for shape, classes in (((9,), 12), ((3, 5), 65), ((64,), 1000)):
        cross_entropy_case(shape, classes)
        cross_entropy_case(shape, classes, label_smoothing=0.1)
        cross_entropy_case(shape, classes, ignore_index=3)
        cross_entropy_case(shape, classes, ignore_index=-1, label_smoothing=0.2)


@case
def cross_entropy_of_large_scores():
    function(C.cross_entropy, F.cross_entropy, 300 * torch.randn(9, 12), ((9,), 12))


if __name__ == "__main__":
    main()
