"""Whole models: the public layers put together, and the models by name as `choir train` runs them, each
against a network written in PyTorch (networks.py)."""
import copy
import ctypes
import tempfile

import need  # first: it skips without PyTorch
import numpy as np

from check import C, LOSSES, STEPS, agree, case, copy_weights, layer, main  # first of these: it skips without PyTorch
import choir
import command
import networks
import torch
import torch.nn as nn
import torch.nn.functional as F


CUTS = 1, 2, 4, 8  # numbers of micro-batches of a batch in which targets are ignored


def sequential(run, *parts):
    return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], len(parts))


@case
def mlp():
    layer(lambda run: sequential(run, C.nn_linear(run, 50, 64), C.nn_relu(run), C.nn_linear(run, 64, 64),
                                 C.nn_relu(run), C.nn_linear(run, 64, 10)),
          networks.mlp(50, 64, 10), (16, 50))


@case
def cnn():
    same = choir.options(C.conv_defaults, padding=1)
    layer(lambda run: sequential(
            run, C.nn_conv2d(run, 1, 8, 3, same), C.nn_batch_norm(run, 8), C.nn_relu(run),
            C.nn_max_pool2d(run, 2, 2), C.nn_conv2d(run, 8, 16, 3, same), C.nn_batch_norm(run, 16),
            C.nn_relu(run), C.nn_max_pool2d(run, 2, 2), C.nn_flatten(run), C.nn_dropout(run, 0),
            C.nn_linear(run, 256, 10)),
          networks.cnn(8, 16, 10), (8, 1, 16, 16), null=("0.bias", "4.bias"))


def adamw(network):
    """An eps above the rounding of gradients, because Adam turns tiny gradients into whole steps."""
    return torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.1, eps=1e-6)


def adamw_options():
    return "--optimizer", "adamw:eps=1e-6", "--lr", "1e-3", "--weight-decay", "0.1"


def language_loss(scores, ids):
    return F.cross_entropy(scores.flatten(0, 1), ids.flatten())


def language_model(model, context, network, null=(), options=()):
    """network(vocab) is PyTorch's. null: endings of names whose gradient is rounding noise, which Adam
    makes steps of, as a key's bias (softmax takes no notice of it)."""
    with tempfile.TemporaryDirectory() as folder:
        path, sample, length, vocab = command.text_data(folder, context)
        command.compare(model, path, sample, length, network(vocab), language_loss, adamw,
                        *adamw_options(), *options, null=null)


def image_model(model, size, network, optim, *options, null=()):
    with tempfile.TemporaryDirectory() as folder:
        path, sample, length = command.image_data(folder, size)
        command.compare(model, path, sample, length, network, F.cross_entropy, optim, *options, null=null)


@case
def gpt2_by_name():
    language_model("gpt2:layers=2,heads=4,width=32,context=16,dropout=0", 16,
                   lambda vocab: networks.Gpt2(2, 4, 32, 16, vocab), null=("c_attn.bias",))


def masked(path, context, vocab):
    """sample(i) -> ids with some masked, and the original ids, as in `choir train`."""
    tokenizer, text, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    C.dataset_text(path, context, choir.E.CHOIR_TRAIN, ctypes.byref(tokenizer), ctypes.byref(text))
    C.dataset_masked(text, vocab, vocab, command.SEED, ctypes.byref(data))

    def sample(i):
        x, y = np.empty(context, np.int64), np.empty(context, np.int64)
        C.dataset_get(data, i, x.ctypes.data, y.ctypes.data)
        return torch.from_numpy(x), torch.from_numpy(y)
    return sample


@case
def bert_by_name():
    with tempfile.TemporaryDirectory() as folder:
        path, _, length, vocab = command.text_data(folder, 16)
        command.compare("bert:layers=2,heads=4,width=32,hidden=48,context=16", path, masked(path, 16, vocab),
                        length, networks.Bert(2, 4, 32, 48, 16, vocab + 1), language_loss, adamw,
                        *adamw_options(), null=("key.bias",), cuts=CUTS)


def padded_batch(vocab, context):
    """Ids whose ends are padding, and the next ids, of which padding and a prompt are ignored. The first
    samples have few targets, and some have none."""
    ids = torch.randint(vocab, (8, context + 1))
    y = ids[:, 1:].clone()
    for row in range(8):
        y[row, row * context // 8:] = -100
        y[row, :row // 2] = -100
    return ids[:, :-1].clone(), y


def padded_step(run, net, info, optim, x, y, m):
    """-> the mean of the losses of m micro-batches"""
    with run.step() as step:
        parts = [(step.tensor(a.numpy()), step.tensor(b.numpy())) for a, b in zip(x.chunk(m), y.chunk(m))]
        divisor = C.model_divisor(info, [b for _, b in parts], m)
        mean = 0
        for i, (a, b) in enumerate(parts):
            with choir.Scope(C.micro_open(step, i)) as micro:
                loss = C.model_loss_over(info, net(getattr(C, "in")(micro, a)), b, divisor)
                C.backward(loss)
                mean += loss.item() / m
        C.optim_step(optim)
        return mean


@case
def padded_text():
    info = choir.HEADER.structs["choir_model_info"]()
    info.padded, info.classes, info.input = True, 11, choir.shape((16,))
    C.model_describe("gpt2:layers=2,heads=4,width=32,context=16,dropout=0", ctypes.byref(info))
    start, batches = networks.Gpt2(2, 4, 32, 16, 11), [padded_batch(11, 16) for _ in range(STEPS)]
    network = copy.deepcopy(start)
    expected = command.steps(network, language_loss, torch.optim.SGD(network.parameters(), lr=0.1), batches)
    for m in CUTS:
        with choir.Run() as run:
            net = choir.Module(C.model_build(run, ctypes.byref(info)))
            copy_weights(net, start)
            optim = C.sgd(run, net, choir.options(C.sgd_defaults, lr=0.1))
            for (x, y), loss in zip(batches, expected):
                mine = padded_step(run, net, ctypes.byref(info), optim, x, y, m)
                agree("ten losses, M = %d" % m, np.array(mine), loss, LOSSES)
            for name, value in net.tensors().items():
                agree("weights " + name, value, network.state_dict()[name], LOSSES)


@case
def llama_by_name():
    language_model("llama:layers=2,heads=4,kv_heads=2,width=32,hidden=56,context=16", 16,
                   lambda vocab: networks.Llama(2, 4, 2, 32, 56, vocab))


@case
def mistral_by_name():
    language_model("mistral:layers=2,heads=4,kv_heads=1,width=32,hidden=48,context=24,window=5,tied=1", 24,
                   lambda vocab: networks.Llama(2, 4, 1, 32, 48, vocab, window=5, tied=True))


@case
def mlp_by_name():
    image_model("mlp:hidden=48", 12, nn.Sequential(nn.Flatten(), *networks.mlp(144, 48, 10)), adamw,
                *adamw_options())


@case
def cnn_by_name():
    image_model("cnn:width=8,dropout=0", 12, networks.cnn(8, 12, 10),
                lambda n: torch.optim.SGD(n.parameters(), lr=0.05, momentum=0.9),
                "--optimizer", "sgd:momentum=0.9", "--lr", "0.05")


if __name__ == "__main__":
    main()
