"""Random numbers: the order of samples, and initial values, that PyTorch draws from the same seed."""
import ctypes

from check import C, case, main, same  # first: it skips without PyTorch
import choir
import numpy as np
import torch
from torch.utils.data import DistributedSampler


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
        # a tenth is the validation split, so the text is that much longer
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


if __name__ == "__main__":
    main()
