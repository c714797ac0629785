"""Layers: output, gradients, buffers and ten training steps of modules with the same weights."""
import ctypes

from check import C, agree, case, copy_weights, layer, main  # first: it skips without PyTorch
import choir
import numpy as np
import torch
import torch.nn as nn

from networks import Block, RmsNorm


@case
def linear():
    layer(lambda run: run.module(C.nn_linear, 24, 17), nn.Linear(24, 17), (5, 24))
    layer(lambda run: run.module(C.nn_linear_with, 24, 17, False, C.init_normal(0, 1)),
          nn.Linear(24, 17, bias=False), (2, 5, 24))


@case
def conv2d():
    for stride, padding, dilation, groups in ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 4)):
        opts = choir.options(C.conv_defaults, stride=stride, padding=padding, dilation=dilation,
                             groups=groups)
        layer(lambda run: run.module(C.nn_conv2d, 8, 12, 3, opts),
              nn.Conv2d(8, 12, 3, stride, padding, dilation, groups), (3, 8, 10, 9))


@case
def conv1d():
    for stride, padding, dilation, groups in ((1, 1, 1, 1), (2, 1, 1, 4), (1, 2, 2, 1)):
        opts = choir.options(C.conv_defaults, stride=stride, padding=padding, dilation=dilation,
                             groups=groups)
        layer(lambda run: run.module(C.nn_conv1d, 8, 12, 3, opts),
              nn.Conv1d(8, 12, 3, stride, padding, dilation, groups), (3, 8, 19))


@case
def conv3d():
    for stride, padding, dilation, groups in ((1, 1, 1, 1), (2, 1, 1, 4), (1, 2, 2, 1)):
        three = {name: (ctypes.c_int * 3)(value, value, value)
                 for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation))}
        opts = choir.options(C.conv3d_defaults, groups=groups, **three)
        layer(lambda run: run.module(C.nn_conv3d, 8, 12, 3, opts),
              nn.Conv3d(8, 12, 3, stride, padding, dilation, groups), (2, 8, 6, 5, 7))


@case
def pools():
    layer(lambda run: run.module(C.nn_max_pool2d, 3, 2), nn.MaxPool2d(3, 2), (2, 4, 9, 11))
    layer(lambda run: run.module(C.nn_avg_pool2d, 2, 2), nn.AvgPool2d(2, 2), (2, 4, 8, 6))


@case
def embedding():
    layer(lambda run: run.module(C.nn_embedding, 11, 6, C.init_normal(0, 1)), nn.Embedding(11, 6),
          ((4, 5), 11), lr=1)


@case
def layer_norm():
    layer(lambda run: run.module(C.nn_layer_norm, 33), nn.LayerNorm(33), (4, 7, 33))


@case
def rms_norm():
    layer(lambda run: run.module(C.nn_rms_norm, 33, 1e-6), RmsNorm(33, 1e-6), (4, 7, 33))


@case
def batch_norm():
    layer(lambda run: run.module(C.nn_batch_norm, 6), nn.BatchNorm2d(6), (4, 6, 5, 3))
    layer(lambda run: run.module(C.nn_batch_norm, 6), nn.BatchNorm1d(6), (8, 6))


@case
def batch_norm_eval():
    theirs = nn.BatchNorm2d(6)
    theirs.running_mean.normal_()
    theirs.running_var.uniform_(0.5, 2)
    x = torch.randn(4, 6, 5, 3)
    with choir.Run() as run:
        module = run.module(C.nn_batch_norm, 6)
        copy_weights(module, theirs)
        module.train(False)
        theirs.eval()
        with run.step() as step:
            agree("forward", module(step.tensor(x.numpy())), theirs(x))
        agree("running mean", module.tensors()["running_mean"], theirs.running_mean)


@case
def dropout_eval():
    with choir.Run() as run:
        module = run.module(C.nn_dropout, 0.5).train(False)
        x = torch.randn(5, 7)
        with run.step() as step:
            agree("forward", module(step.tensor(x.numpy())), x, bound=0)


@case
def activations():
    for ours, theirs in ((C.nn_relu, nn.ReLU()), (C.nn_gelu, nn.GELU()), (C.nn_tanh, nn.Tanh()), (C.nn_silu, nn.SiLU()),
                         (C.nn_gelu_tanh, nn.GELU(approximate="tanh")), (C.nn_flatten, nn.Flatten())):
        layer(lambda run: run.module(ours), theirs, (3, 5, 7))


@case
def transformer_block():
    layer(lambda run: run.module(C.nn_transformer_block, 32, 4, True, 0, 0.02), Block(32, 4), (2, 9, 32))


def missing_mask(shape):
    """Hides the last keys of each sample."""
    mask = torch.zeros(shape)
    mask[0, ..., -2:] = mask[1, ..., -1:] = -torch.inf
    return mask


@case
def multihead_attention():
    make = lambda run: run.module(C.nn_multihead_attention, 12, 3, C.multihead_defaults())

    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
            nn.init.normal_(self.attention.in_proj_bias)

        def forward(self, q, k=None, v=None, mask=None):
            k = q if k is None else k
            padding = None if mask is None else mask[:, 0, 0].isinf()
            return self.attention(q, k, k if v is None else v, key_padding_mask=padding, need_weights=False)[0]

    short = lambda name: name.removeprefix("attention.")
    layer(make, Alone(), (2, 5, 12), rename=short)
    layer(make, Alone(), (2, 5, 12), (2, 7, 12), rename=short)
    layer(make, Alone(), (2, 5, 12), (2, 7, 12), (2, 7, 12), missing_mask((2, 1, 1, 7)), fixed=(3,), rename=short)
    whole = missing_mask((2, 1, 1, 7))
    whole[1] = -torch.inf  # a sample without any key
    some = torch.randn(2, 7, 12)
    if not Alone()(some, some, some, whole).isnan().any():  # PyTorch 1.13's is NaN there
        layer(make, Alone(), (2, 5, 12), (2, 7, 12), (2, 7, 12), whole, fixed=(3,), rename=short)
    with choir.Run() as run:
        dropped = run.module(C.nn_multihead_attention, 12, 3, choir.options(C.multihead_defaults, dropout=0.5))
        with run.step() as step:
            x = step.tensor(torch.randn(2, 7, 12).numpy(), grad=True)
            y = dropped(x, x, x, step.tensor(whole.numpy()))
            assert not y.numpy()[1].any() and y.numpy()[0].any()  # the bias of out_proj begins with 0
            C.backward(C.sum(C.square(y)))
            assert np.isfinite(C.grad(x).numpy()).all()


@case
def transformer_layers():
    for gelu, first in ((False, False), (True, True)):
        opts = choir.options(C.transformer_defaults, hidden=20, dropout=0, gelu=gelu, norm_first=first)
        torch_opts = dict(dim_feedforward=20, dropout=0, activation="gelu" if gelu else "relu",
                          norm_first=first, batch_first=True)
        layer(lambda run: run.module(C.nn_transformer_encoder_layer, 12, 3, opts),
              nn.TransformerEncoderLayer(12, 3, **torch_opts), (2, 5, 12))
        layer(lambda run: run.module(C.nn_transformer_decoder_layer, 12, 3, opts),
              nn.TransformerDecoderLayer(12, 3, **torch_opts), (2, 5, 12), (2, 7, 12))


@case
def causal_decoder():
    opts = choir.options(C.transformer_defaults, hidden=20, dropout=0, causal=True)
    theirs = nn.TransformerDecoderLayer(12, 3, 20, 0, batch_first=True)

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = theirs

        def forward(self, x, memory):
            return self.layer(x, memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))
    layer(lambda run: run.module(C.nn_transformer_decoder_layer, 12, 3, opts), Causal(), (2, 5, 12), (2, 7, 12),
          rename=lambda name: name.removeprefix("layer."))


@case
def initial_values():
    """Distributions: bounds, deviations, orthogonality."""
    gain = C.init_gain(b"relu", 0)
    assert abs(gain - nn.init.calculate_gain("relu")) < 1e-12
    relu = {"nonlinearity": "relu"}
    for init, theirs in (
            (C.init_xavier_uniform(1), nn.init.xavier_uniform_), (C.init_xavier_normal(1), nn.init.xavier_normal_),
            (C.init_kaiming_uniform(gain, False), lambda w: nn.init.kaiming_uniform_(w, **relu)),
            (C.init_kaiming_normal(gain, True), lambda w: nn.init.kaiming_normal_(w, mode="fan_out", **relu))):
        with choir.Run() as run:
            ours = run.module(C.nn_linear_with, 300, 200, False, init).tensors()["weight"].numpy()
        expected = theirs(torch.empty(200, 300)).numpy()
        agree("deviation", ours.std(), expected.std(), 0.02)
        agree("greatest", abs(ours).max(), abs(expected).max(), 0.15)
        assert abs(ours.mean()) < 0.01 * ours.std() * 3
    for out, inputs in ((20, 50), (50, 20), (30, 30)):
        with choir.Run() as run:
            w = run.module(C.nn_linear_with, inputs, out, False, C.init_orthogonal(1.5)).tensors()["weight"].numpy()
        square = w @ w.T if out <= inputs else w.T @ w
        agree("orthogonal", square, 2.25 * torch.eye(min(out, inputs)), 1e-5)


if __name__ == "__main__":
    main()
