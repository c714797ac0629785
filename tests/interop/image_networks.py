"""Image networks: convolutions in all their options, pooling to a size, norms over channels, a residual
block with its fused ends, and ResNet and AlexNet by name."""
import tempfile

from check import C, case, function, layer, main  # before torch: it skips without PyTorch
import choir
import command
import networks
import torch
import torch.nn as nn
import torch.nn.functional as F


def sgd(network):  # a low rate: where two pixels are nearly the maximum, rounding decides which one learns
    return torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)


SGD = "--optimizer", "sgd:momentum=0.9", "--lr", "1e-3"


def by_name(model, size, network):
    with tempfile.TemporaryDirectory() as folder:
        path, sample, length = command.image_data(folder, size)
        command.compare(model, path, sample, length, network, F.cross_entropy, sgd, *SGD)


@case
def conv2d():
    for (h, w), stride, padding, dilation, groups in (
            ((3, 3), (1, 1), (1, 1), (1, 1), 8), ((3, 2), (2, 1), (1, 0), (1, 1), 1),
            ((1, 5), (1, 3), (0, 2), (1, 1), 2), ((2, 3), (1, 2), (2, 4), (2, 3), 4)):
        opts = choir.options(C.conv_defaults, stride=stride[0], stride_w=stride[1], padding=padding[0],
                             padding_w=padding[1] or -1, dilation=dilation[0], dilation_w=dilation[1],
                             groups=groups)
        function(lambda x, k, b: C.conv2d(x, k, b, opts),
                 lambda x, k, b: F.conv2d(x, k, b, stride, padding, dilation, groups),
                 (2, 8, 13, 11), (16, 8 // groups, h, w), (16,))


def transposed(stride, padding, extra, dilation, groups):
    return choir.options(C.conv_defaults, stride=stride, padding=padding, output_padding=extra,
                         dilation=dilation, groups=groups)


TRANSPOSED = ((1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 0, 2, 1, 2), (1, 2, 0, 2, 4), (1, 0, 1, 2, 1),
              (2, 1, 0, 1, 8))


@case
def conv_transpose2d():
    for stride, padding, extra, dilation, groups in TRANSPOSED:
        opts = transposed(stride, padding, extra, dilation, groups)
        function(lambda x, k, b: C.conv_transpose2d(x, k, b, opts),
                 lambda x, k, b: F.conv_transpose2d(x, k, b, stride, padding, extra, groups, dilation),
                 (2, 8, 7, 6), (8, 16 // groups, 3, 4), (16,))
    opts = choir.options(C.conv_defaults, stride=2, stride_w=3, padding=1, padding_w=-1,
                         output_padding_w=2)
    function(lambda x, k, b: C.conv_transpose2d(x, k, b, opts),
             lambda x, k, b: F.conv_transpose2d(x, k, b, (2, 3), (1, 0), (0, 2)),
             (2, 4, 5, 6), (4, 3, 3, 2), (3,))


@case
def convolution_layers():
    for stride, padding, extra, dilation, groups in TRANSPOSED[:4]:
        opts = transposed(stride, padding, extra, dilation, groups)
        layer(lambda run: run.module(C.nn_conv_transpose2d, 8, 12, 3, opts),
              nn.ConvTranspose2d(8, 12, 3, stride, padding, extra, groups, dilation=dilation),
              (3, 8, 5, 4))
    opts = choir.options(lambda: C.nn_conv_defaults(3), kernel_w=1, no_bias=True)
    layer(lambda run: run.module(C.nn_conv2d_with, 4, 6, opts), nn.Conv2d(4, 6, (3, 1), bias=False),
          (2, 4, 6, 5))


@case
def adaptive_pools():
    for size in ((1, 1), (2, 3), (6, 6), (5, 13)):
        function(lambda x: C.adaptive_avg_pool2d(x, *size), lambda x: F.adaptive_avg_pool2d(x, size),
                 (2, 5, 13, 9))
        function(lambda x: C.adaptive_max_pool2d(x, *size), lambda x: F.adaptive_max_pool2d(x, size),
                 (2, 5, 13, 9))
    layer(lambda run: run.module(C.nn_adaptive_avg_pool2d, 2, 2), nn.AdaptiveAvgPool2d(2), (2, 3, 7, 7))
    layer(lambda run: run.module(C.nn_adaptive_max_pool2d, 2, 2), nn.AdaptiveMaxPool2d(2), (2, 3, 7, 7))


@case
def group_norm():
    for groups in (1, 2, 12):
        layer(lambda run: run.module(C.nn_group_norm, groups, 12), nn.GroupNorm(groups, 12),
              (3, 12, 5, 4))
    layer(lambda run: run.module(C.nn_group_norm, 2, 8), nn.GroupNorm(2, 8), (5, 8))


class NormAddRelu(nn.BatchNorm2d):
    def forward(self, x, residual=None):
        y = super().forward(x)
        return F.relu(y if residual is None else y + residual)


@case
def batch_norm_fused():
    def make(run):
        return run.module(C.nn_batch_norm_with, 6, choir.options(C.batch_norm_defaults, relu=True))
    layer(make, NormAddRelu(6), (4, 6, 5, 3))
    layer(make, NormAddRelu(6), (4, 6, 5, 3), (4, 6, 5, 3))


@case
def resnet_basic_by_name():
    by_name("resnet18:width=8,stages=2,small=1", 16,
            networks.ResNet(False, (2, 2), 8, 1, 10, small=True))


@case
def resnet_bottleneck_by_name():
    by_name("resnet50:width=8,stages=2,blocks=1", 64, networks.ResNet(True, (1, 1), 8, 1, 10))


@case
def alexnet_by_name():
    by_name("alexnet:width=4,hidden=32,dropout=0", 64, networks.AlexNet(4, 32, 1, 10))


if __name__ == "__main__":
    main()
