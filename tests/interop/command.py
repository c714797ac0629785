"""`choir train` beside PyTorch: the model by name, its data, order, optimizer and checkpoint, as a user
runs them. The command trains and prints its losses; the same network in PyTorch starts from the
command's initial weights, and takes the same samples in DistributedSampler's order."""
import itertools
import json
import os
import struct
import subprocess
import tempfile

import numpy as np
import torch
from torch.utils.data import DistributedSampler

import choir
from check import LOSSES, STEPS, agree

CHOIR = os.environ.get("CHOIR", os.path.join(choir.ROOT, "build", "choir"))
SEED, BATCH = 7, 8


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "I64": "<i8"}
    return {name: np.frombuffer(data[slice(*e["data_offsets"])], types[e["dtype"]]).reshape(e["shape"])
            for name, e in header.items()}


def run(model, data, folder, *options):
    """-> the losses of the steps, and the weights saved at the end."""
    save = os.path.join(folder, "save%d" % len(os.listdir(folder)))
    done = subprocess.run(
        [CHOIR, "train", "--json", "--model", model, "--seed", str(SEED), "--batch-size", str(BATCH),
         "--eval-batches", "1", "--save", save, *options, data], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=120)
    if done.returncode:
        raise AssertionError("choir train: %s" % done.stderr.decode())
    events = [json.loads(line) for line in done.stdout.splitlines()]
    losses = [e["loss"] for e in events if e["event"] == "step"]
    weights = os.path.join(save, "step-%08d" % len(losses), "model.safetensors")
    if not os.path.exists(weights):  # ranks have saved their parts
        weights = os.path.join(save, "whole.safetensors")
        subprocess.run([CHOIR, "checkpoint", "convert", save, weights], check=True, stdout=subprocess.PIPE)
    return losses, read_safetensors(weights)


def initial_weights(model, data, folder, *options):
    """Initial weights: saved after a step at rate 0 (which changes running statistics)."""
    return run(model, data, folder, "--steps", "1", "--optimizer", "sgd", "--lr", "0", *options)[1]


def order(length):
    """The samples of each step, epoch after epoch."""
    sampler = DistributedSampler(range(length), num_replicas=1, rank=0, seed=SEED)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        ids = list(sampler)
        for first in range(0, len(ids) - BATCH + 1, BATCH):
            yield ids[first:first + BATCH]
        epoch += 1


def steps(network, loss, optim, batches):
    """Trains the network on whole batches -> the losses of the steps."""
    losses = []
    for x, y in batches:
        optim.zero_grad()
        losses.append(loss(network(x), y))
        losses[-1].backward()
        optim.step()
    return losses


def compare(model, data, sample, length, network, loss, optim, *options, null=(), bound=LOSSES, cuts=(1,)):
    """sample(i) -> x, y. optim(network) goes with options. Losses of ten steps, then the weights, in each
    number of micro-batches in cuts. null: endings of weights' names that are not compared."""
    with tempfile.TemporaryDirectory() as folder:
        start = initial_weights(model, data, folder)
        theirs = dict(network.named_parameters())
        assert set(theirs) <= set(start), set(theirs) ^ set(start)
        with torch.no_grad():
            for name, p in theirs.items():
                p.copy_(torch.from_numpy(start[name].copy()))
        batches = ([torch.stack(z) for z in zip(*[sample(i) for i in ids])]
                   for ids in itertools.islice(order(length), STEPS))
        expected = steps(network, loss, optim(network), batches)
        for m in cuts:
            losses, weights = run(model, data, folder, "--steps", str(STEPS), "--microbatches", str(m), *options)
            assert len(losses) == STEPS
            for mine, theirs in zip(losses, expected):
                agree("ten losses, M = %d" % m, np.array(mine), theirs, bound)
            for name, value in network.state_dict().items():
                if name in weights and not name.endswith(tuple(null)):
                    agree("weights " + name, weights[name], value, LOSSES)


def text_data(folder, context, letters="abcdefgh \n", count=3000):
    """-> path, sample, length of the training split, size of the vocabulary"""
    ids = torch.randint(len(letters), (count,))
    path = os.path.join(folder, "text")
    with open(path, "w") as file:
        file.write("".join(letters[i] for i in ids))
    rank = {letter: i for i, letter in enumerate(sorted(letters))}
    ids = torch.tensor([rank[letters[i]] for i in ids])
    train = count - count // 10

    def sample(i):
        return ids[i:i + context], ids[i + 1:i + context + 1]
    return path, sample, train - context, len(letters)


def image_data(folder, size, classes=10, count=200):
    """A folder of IDX files -> path, sample, length of the training split"""
    images, labels = torch.randint(256, (count, size, size)), torch.randint(classes, (count,))
    labels[:classes] = torch.arange(classes)
    for split, x, y in (("train", images, labels), ("t10k", images[:50], labels[:50])):
        with open(os.path.join(folder, split + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, len(x), size, size) + x.to(torch.uint8).numpy().tobytes())
        with open(os.path.join(folder, split + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, len(y)) + y.to(torch.uint8).numpy().tobytes())
    x = images.double() / 255
    x = ((x - x.mean()) / x.std(unbiased=False)).float()[:, None]
    return folder, lambda i: (x[i], labels[i]), count
