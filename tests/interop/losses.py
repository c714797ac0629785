"""Losses, with their options and the gradients of both arguments where both have one."""
from check import C, case, function, main, refuses  # first: it skips without PyTorch
import warnings

import choir
import numpy as np
import torch
import torch.nn.functional as F


@case
def mse():
    function(C.mse_loss, F.mse_loss, (7, 5), (7, 5))


warnings.filterwarnings("ignore", message="reduction: 'mean'")  # of kl_div, which will change in a later version
REDUCTIONS = ("mean", "sum", "none")


def pairs(ours, theirs, x, y, *more, fixed=()):
    """Compares with each reduction. more: our arguments between the tensors and the reduction."""
    for number, name in enumerate(REDUCTIONS, 1):
        function(lambda x, y: ours(x, y, *more, number), lambda x, y: theirs(x, y, reduction=name),
                 x.clone(), y.clone(), fixed=fixed)


def with_equals(*shape):
    x, y = torch.randn(shape), torch.randn(shape)
    y.view(-1)[::4] = x.view(-1)[::4]
    return x, y


@case
def regression():
    pairs(C.l1_loss, F.l1_loss, *with_equals(7, 33))
    for size in (1.0, 0.3):
        pairs(C.smooth_l1_loss, lambda *a, **k: F.smooth_l1_loss(*a, beta=size, **k), *with_equals(7, 33), size)
        pairs(C.huber_loss, lambda *a, **k: F.huber_loss(*a, delta=size, **k), *with_equals(7, 33), size)
    pairs(C.smooth_l1_loss, lambda *a, **k: F.smooth_l1_loss(*a, beta=0, **k),
          torch.randn(7, 33), torch.randn(7, 33), 0)


@case
def bce():
    y = torch.rand(7, 33)
    pairs(C.bce_loss, F.binary_cross_entropy, torch.rand(7, 33), y, fixed=(1,))
    x = torch.tensor([0.0, 1, 0, 1, 1e-30, 1 - 6e-8, 0.5])
    pairs(C.bce_loss, F.binary_cross_entropy, x, torch.tensor([0.0, 1, 1, 0, 1, 0, 0.5]), fixed=(1,))


@case
def bce_with_logits():
    y, scores = (torch.rand(7, 33) > 0.5).float(), 5 * torch.randn(7, 33)
    pairs(lambda x, y, r: C.bce_with_logits_loss(x, y, None, r), F.binary_cross_entropy_with_logits,
          scores, y, fixed=(1,))
    pairs(lambda x, y, r: C.bce_with_logits_loss(x, y, None, r), F.binary_cross_entropy_with_logits,
          torch.tensor([-200.0, 200, 30, -30, 0]), torch.tensor([1.0, 0, 1, 0, 0.5]), fixed=(1,))
    for shape in ((33,), (1,), (7, 33)):
        weight = torch.rand(shape) * 3
        full = weight.expand(33) if shape == (1,) else weight
        for number, name in enumerate(REDUCTIONS, 1):
            function(lambda x, y, w: C.bce_with_logits_loss(x, y, w, number),
                     lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction=name),
                     scores.clone(), y, full.contiguous(), fixed=(1, 2))


@case
def kl_div():
    x, p = torch.randn(7, 33).log_softmax(-1), torch.randn(7, 33).softmax(-1)
    p[:, ::5] = 0
    for number, name in enumerate(REDUCTIONS + ("batchmean",), 1):
        function(lambda x, y: C.kl_div_loss(x, y, False, number),
                 lambda x, y: F.kl_div(x, y, reduction=name), x.clone(), p, fixed=(1,))
        function(lambda x, y: C.kl_div_loss(x, y, True, number),
                 lambda x, y: F.kl_div(x, y, log_target=True, reduction=name),
                 x.clone(), torch.randn(7, 33).log_softmax(-1), fixed=(1,))


@case
def ctc():
    """Through log_softmax: torch's gradient of the log-probabilities is that of scores. Its f32 loses digits
    in long sequences, so it computes in f64."""
    for steps, batch, classes, most in ((12, 3, 5, 4), (50, 4, 28, 12), (7, 1, 3, 2), (300, 2, 9, 40)):
        for blank in (0, classes - 1):
            targets = torch.randint(classes - 1, (batch, most))
            targets += targets >= blank
            inputs = torch.randint(2 * most, steps + 1, (batch,)) if steps > 2 * most else torch.full((batch,), steps)
            lengths = torch.randint(1, most + 1, (batch,))
            for zero in (False, True):
                if zero:
                    lengths[0], inputs[-1] = 0, 1  # silent; too short
                    lengths[-1] = most if batch > 1 else lengths[-1]
                for number, name in enumerate(REDUCTIONS, 1):
                    opts = choir.options(C.ctc_loss_defaults, blank=blank, reduction=number, zero_infinity=zero)
                    function(lambda x, *ids: C.ctc_loss_with(C.log_softmax(x), *ids, opts),
                             lambda x, *ids: F.ctc_loss(x.double().log_softmax(-1), *ids, blank=blank,
                                                        reduction=name, zero_infinity=zero).float(),
                             (steps, batch, classes), targets, inputs, lengths)


@case
def bad_arguments():
    def loss(call, *arrays):
        def attempt():
            with choir.Run() as run, run.step() as step:
                try:
                    call(*[step.tensor(a.numpy()) for a in arrays]).numpy()
                finally:
                    C.scope_clear(step)  # the device continues
        return attempt
    x, y = torch.rand(3, 4), torch.rand(3, 5)
    refuses("shapes", ["l1_loss", "(3, 4)", "(3, 5)"], loss(lambda x, y: C.l1_loss(x, y, 1), x, y))
    refuses("beta", ["beta of at least 0, got -1"], loss(lambda x: C.smooth_l1_loss(x, x, -1, 1), x))
    refuses("delta", ["delta above 0, got 0"], loss(lambda x: C.huber_loss(x, x, 0, 1), x))
    refuses("reduction", ["reduction 9"], loss(lambda x: C.l1_loss(x, x, 9), x))
    refuses("weights", ["last dimensions"], loss(lambda x, w: C.bce_with_logits_loss(x, x, w, 1), x, y))
    refuses("probability", ["bce_loss: expected a probability, got 7", "bce_with_logits_loss"],
            loss(lambda x: C.bce_loss(x, x, 1), torch.tensor([0.5, 7])))
    refuses("integers", ["l1_loss"], loss(lambda x: C.l1_loss(x, x, 1), torch.arange(3)))


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


def counted(classes, shape, ignored):
    target = torch.randint(classes, shape)
    target.view(-1)[::4] = ignored
    return target


@case
def cross_entropy_weights_and_reductions():
    """Every reduction, with class weights and without, smoothed and not; the targets ids or distributions."""
    for classes, rows in ((12, 9), (65, 15)):
        ids, soft = counted(classes, (rows,), -1), torch.randn(rows, classes).softmax(-1)
        for weight in (None, torch.rand(classes) * 3):
            more = [] if weight is None else [weight]
            for smoothing in (0, 0.1):
                for number, name in enumerate(REDUCTIONS, 1):
                    def ours(x, y, *w):
                        return C.cross_entropy_with(x, y, choir.options(
                            C.cross_entropy_defaults, ignore_index=-1, label_smoothing=smoothing,
                            reduction=number, **({"weight": w[0].handle} if w else {})))

                    def theirs(x, y, *w):
                        ignore = {} if y.is_floating_point() else {"ignore_index": -1}
                        return F.cross_entropy(x, y, weight=w[0] if w else None, reduction=name,
                                               label_smoothing=smoothing, **ignore)
                    for target in (ids, soft):
                        function(ours, theirs, (rows, classes), target, *more, fixed=(1, 2))


@case
def cross_entropy_refuses():
    def loss(weight, wants=False, **changes):
        def attempt():
            with choir.Run() as run, run.step() as step:
                w = None if weight is None else step.tensor(weight.numpy(), grad=wants)
                opts = choir.options(C.cross_entropy_defaults, weight=w and w.handle, **changes)
                try:
                    C.cross_entropy_with(step.tensor(np.zeros((2, 3), np.float32)),
                                         step.tensor(np.array([1, 2])), opts).numpy()
                finally:
                    C.scope_clear(step)
        return attempt
    refuses("length", ["cross_entropy", "f32 (4)", "class weights"], loss(torch.rand(4)))
    refuses("dimensions", ["f32 (1, 3)", "class weights"], loss(torch.rand(1, 3)))
    refuses("type", ["i64 (3)", "class weights"], loss(torch.arange(3)))
    refuses("gradient", ["class weights that require no gradient"], loss(torch.rand(3), wants=True))
    for number in (0, 4, 9, -1):
        refuses("reduction", ["reduction %d" % number], loss(None, reduction=number))


@case
def cross_entropy_of_probabilities():
    """Targets that are distributions, as mixed or distilled labels have them."""
    for shape, classes in (((9,), 12), ((3, 5), 65)):
        for smoothing in (0, 0.1):
            opts = choir.options(C.cross_entropy_defaults, label_smoothing=smoothing)
            function(lambda x, y: C.cross_entropy_with(x, y, opts),
                     lambda x, y: F.cross_entropy(x.reshape(-1, classes), y.reshape(-1, classes),
                                                  label_smoothing=smoothing),
                     shape + (classes,), torch.randn(shape + (classes,)).softmax(-1), fixed=(1,))


@case
def cross_entropy_of_large_scores():
    function(C.cross_entropy, F.cross_entropy, 300 * torch.randn(9, 12), ((9,), 12))


if __name__ == "__main__":
    main()
