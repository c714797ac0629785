"""Layers: output, gradients, buffers and ten training steps of modules with the same weights."""
import ctypes

from check import C, agree, case, copy_weights, layer, main  # first: it skips without PyTorch
import choir
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


if __name__ == "__main__":
    main()
