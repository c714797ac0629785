"""Random numbers: the order of samples, and initial values, that PyTorch draws from the same seed."""
import ctypes
import itertools
import tempfile

from check import C, agree, case, main, same  # first: it skips without PyTorch
import choir
import command
import networks
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DistributedSampler


def sequential(run, *parts):
    return run.module(C.nn_sequential_n, [choir.Module(p) for p in parts], len(parts))


def ids_of(loader, run, count):
    """The sample ids of the next micro-batches: the data set's x is the sample's own number."""
    ids = []
    for _ in range(count):
        with run.step() as step:
            batch = choir.HEADER.structs["choir_batch"]()
            C.loader_next(loader, step, ctypes.addressof(batch))
            ids += choir.Tensor(batch.x).numpy()[:, 0].tolist()
    return ids


class Numbers:
    """A text whose sample i begins with token i: 256 different bytes."""

    def __init__(self, count):
        self.text = bytes(range(256))[:count + 1]
        assert count + 1 <= 256
        tokenizer, dataset = ctypes.c_void_p(), ctypes.c_void_p()
        C.tokenizer_bytes(ctypes.addressof(tokenizer))
        # a tenth is the validation split, so the text is longer by that
        text = (self.text + bytes(256))[:-(-(count + 1) * 10 // 9)]
        C.dataset_text_memory("numbers", text, len(text), 1, choir.E.CHOIR_TRAIN,
                              ctypes.addressof(tokenizer), ctypes.addressof(dataset))
        self.tokenizer, self.dataset = tokenizer, dataset
        self.count = C.dataset_length(dataset)

    def close(self):
        C.dataset_free(self.dataset)
        C.tokenizer_free(self.tokenizer)


@case
def randperm():
    """One replica, whole epochs: torch.randperm seeded with seed + epoch."""
    numbers = Numbers(200)
    for seed in (0, 1, 42, 2**31 + 5):
        with choir.Run() as run:
            opts = choir.options(C.loader_defaults, batch_size=10, seed=seed)
            loader = C.loader_new(run, numbers.dataset, opts)
            batches = numbers.count // 10
            for epoch in range(3):
                generator = torch.Generator()
                generator.manual_seed(seed + epoch)
                expected = torch.randperm(numbers.count, generator=generator)[:10 * batches]
                same("epoch %d of seed %d" % (epoch, seed), np.array(ids_of(loader, run, batches)),
                     expected.numpy())
    numbers.close()


@case
def distributed_sampler():
    """Micro-batch m of M is replica m's; the last batch filled up as the sampler pads."""
    for length, world, batch in ((200, 4, 8), (101, 3, 6), (37, 5, 5), (11, 4, 4)):
        numbers = Numbers(length)
        for replica in range(world):
            sampler = DistributedSampler(range(numbers.count), world, replica, seed=3)
            sampler.set_epoch(0)
            expected = list(sampler)
            with choir.Run() as run:
                opts = choir.options(C.loader_defaults, batch_size=batch, microbatches=world,
                                     micro_first=replica, micro_count=1, seed=3, drop_last=False)
                loader = C.loader_new(run, numbers.dataset, opts)
                count = C.loader_batches(loader)
                ids = ids_of(loader, run, count)
                same("replica %d of %d" % (replica, world), np.array(ids[:len(expected)]), np.array(expected))
        numbers.close()


def initial(make, theirs, seed, bound=None):
    """Our parameters after choir_module_init_torch, those of theirs(), built after manual_seed: the same
    bits, or within bound of each other."""
    torch.manual_seed(seed)
    expected = theirs().state_dict()
    with choir.Run(seed=5) as run:
        module = make(run)
        C.module_init_torch(module, seed)
        ours = module.tensors(buffers=False)
        for name, t in ours.items():
            if bound is None or "weight" not in name:
                same("%s of seed %d" % (name, seed), t.numpy(), expected[name].numpy())
            else:
                agree("%s of seed %d" % (name, seed), t, expected[name], bound)


@case
def initial_uniform():
    """Layers whose values are uniform: bit for bit."""
    same_padding = choir.options(C.conv_defaults, padding=1)
    grouped = choir.options(C.conv_defaults, groups=4)
    for seed in (0, 1, 42, 2**31 + 7, 2**40 + 3):
        initial(lambda run: sequential(run, C.nn_linear(run, 10, 10), C.nn_relu(run), C.nn_linear(run, 10, 5)),
                lambda: nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)), seed)
        initial(lambda run: run.module(C.nn_linear, 777, 33), lambda: nn.Linear(777, 33), seed)
        initial(lambda run: run.module(C.nn_conv2d, 8, 12, 3, grouped),
                lambda: nn.Conv2d(8, 12, 3, groups=4), seed)
        initial(lambda run: run.module(C.nn_conv1d, 8, 12, 5, grouped),
                lambda: nn.Conv1d(8, 12, 5, groups=4), seed)
        initial(lambda run: run.module(C.nn_conv3d, 3, 5, 2, C.conv3d_defaults()),
                lambda: nn.Conv3d(3, 5, 2), seed)
        initial(lambda run: sequential(
                    run, C.nn_conv2d(run, 1, 8, 3, same_padding), C.nn_batch_norm(run, 8),
                    C.nn_relu(run), C.nn_max_pool2d(run, 2, 2), C.nn_conv2d(run, 8, 16, 3, same_padding),
                    C.nn_batch_norm(run, 16), C.nn_relu(run), C.nn_max_pool2d(run, 2, 2),
                    C.nn_flatten(run), C.nn_dropout(run, 0), C.nn_linear(run, 256, 10)),
                lambda: networks.cnn(8, 16, 10), seed)


@case
def initial_transposed():
    for seed, groups in ((0, 1), (3, 2)):
        opts = choir.options(C.conv_defaults, groups=groups)
        initial(lambda run: run.module(C.nn_conv_transpose2d, 6, 10, 3, opts),
                lambda: nn.ConvTranspose2d(6, 10, 3, groups=groups), seed)


@case
def initial_recurrent():
    """Each cell, deep, in both directions, with and without biases, and the layer behind it."""
    kinds = ((C.nn_lstm, nn.LSTM), (C.nn_gru, nn.GRU), (C.nn_rnn, nn.RNN))
    for seed, (make, theirs), layers, both, bias in itertools.product(
            (0, 2**31 + 7), kinds, (1, 3), (False, True), (True, False)):
        opts = choir.options(C.recurrent_defaults, layers=layers, bidirectional=both, bias=bias)
        # 13: 1/sqrt is no power of two
        initial(lambda run: sequential(run, make(run, 7, 13, opts),
                                       C.nn_linear(run, 13 * (1 + both), 5)),
                lambda: nn.ModuleList([theirs(7, 13, layers, bias=bias, bidirectional=both),
                                       nn.Linear(13 * (1 + both), 5)]), seed)


@case
def initial_normal():
    """Embeddings: the same uniform numbers, but PyTorch's logarithm and cosine are vectorised ones. Sizes
    below 16, a multiple of 16, and neither; what is drawn afterwards is in step."""
    for seed in (0, 1, 42):
        for rows, width in ((3, 5), (4, 4), (11, 7), (100, 64), (1, 1), (5, 3)):
            initial(lambda run: sequential(run, C.nn_embedding(run, rows, width, C.init_normal(0, 1)),
                                           C.nn_linear(run, width, 3)),
                    lambda: nn.Sequential(nn.Embedding(rows, width), nn.Linear(width, 3)), seed, 1e-6)


@case
def initial_as_the_model_wants():
    """A layer's other distribution is drawn once all layers have drawn their own."""
    def theirs():
        network = nn.Sequential(nn.Embedding(40, 9), nn.Linear(9, 3))
        nn.init.normal_(network[0].weight, 0, 0.02)
        return network

    for seed in (0, 5):
        initial(lambda run: sequential(run, C.nn_embedding(run, 40, 9, C.init_normal(0, 0.02)),
                                       C.nn_linear(run, 9, 3)), theirs, seed, 1e-6)


@case
def initial_uniform_as_the_model_wants():
    def theirs():
        network = nn.Sequential(nn.Linear(9, 4, bias=False), nn.Linear(4, 3))
        nn.init.uniform_(network[0].weight, -0.75, 0.5)
        return network

    initial(lambda run: sequential(run, C.nn_linear_with(run, 9, 4, False, C.init_uniform(-0.75, 0.5)),
                                   C.nn_linear(run, 4, 3)), theirs, 3)


@case
def initial_by_the_command():
    """--init torch, of the models by name."""
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = command.image_data(folder, 12)
        for model, theirs in (("mlp:hidden=48", lambda: nn.Sequential(nn.Flatten(), *networks.mlp(144, 48, 10))),
                              ("cnn:width=8,dropout=0", lambda: networks.cnn(8, 12, 10))):
            ours = command.initial_weights(model, path, folder, "--init", "torch")
            torch.manual_seed(command.SEED)
            for name, p in theirs().named_parameters():
                same("%s %s" % (model, name), ours[name], p.detach().numpy())
        ours = command.initial_weights("toy", "random", folder, "--init", "torch")
        torch.manual_seed(command.SEED)
        for name, p in nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).named_parameters():
            same("toy " + name, ours[name], p.detach().numpy())


@case
def initial_lstm_by_the_command():
    """As in a typical script: nn.LSTM, then nn.Linear."""
    with tempfile.TemporaryDirectory() as folder:
        for cell, theirs in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)):
            ours = command.initial_weights("lstm:cell=%s,in=24,hidden=50,out=7,context=6" % cell,
                                           "random", folder, "--init", "torch")
            torch.manual_seed(command.SEED)
            network = nn.ModuleDict({"rnn": theirs(24, 50, 2)})
            network["decoder"] = nn.Linear(50, 7)
            for name, p in network.named_parameters():
                same("%s %s" % (cell, name), ours[name], p.detach().numpy())


@case
def initial_image_networks_by_the_command():
    """AlexNet is its layers' defaults; of a ResNet, convolutions are drawn again, as torchvision does."""
    with tempfile.TemporaryDirectory() as folder:
        path, _, _ = command.image_data(folder, 64)
        ours = command.initial_weights("alexnet:width=4,hidden=32", path, folder, "--init", "torch")
        torch.manual_seed(command.SEED)
        for name, p in networks.AlexNet(4, 32, 1, 10).named_parameters():
            same("alexnet " + name, ours[name], p.detach().numpy())
        for text, bottleneck, blocks in (("resnet18:width=8", False, (2, 2, 2, 2)),
                                         ("resnet50:width=4,stages=2,blocks=2", True, (2, 2))):
            ours = command.initial_weights(text, path, folder, "--init", "torch")
            torch.manual_seed(command.SEED)
            network = networks.ResNet(bottleneck, blocks, 4 if bottleneck else 8, 1, 10)
            for m in network.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            for name, p in network.named_parameters():
                if p.ndim == 4:
                    agree("%s %s" % (text, name), ours[name], p, 1e-6)
                else:
                    same("%s %s" % (text, name), ours[name], p.detach().numpy())


if __name__ == "__main__":
    main()
