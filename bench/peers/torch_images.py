#!/usr/bin/env python3
"""Images a second of CPU time with torchvision: one process, one thread.

    torch_images.py FOLDER [SIZE [EPOCHS]]      FOLDER/train/CLASS/*.jpg

Random resized crop, flip, to float, normalise: with PIL's decoder, and with torchvision's own
decode_jpeg and tensor transforms. A line each: name, milliseconds of CPU time an image.
"""
import os
import sys
import time

import torch
import torchvision
from torchvision import io
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def measure(name, get, count, epochs):
    best = float("inf")
    for epoch in range(epochs):
        start = time.thread_time()
        for i in range(count):
            get(i)
        took = 1e3 * (time.thread_time() - start) / count
        if epoch:  # the first one reads the disk
            best = min(best, took)
    print(f"{name} {best:.3f}", flush=True)


def main():
    folder = sys.argv[1]
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 224
    epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    torch.set_num_threads(1)
    from torchvision import transforms

    by_pil = torchvision.datasets.ImageFolder(
        os.path.join(folder, "train"),
        transforms.Compose([
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]))
    measure("pil", by_pil.__getitem__, len(by_pil), epochs)

    own = v2.Compose([
        v2.RandomResizedCrop(size, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ])
    paths = [path for path, _ in by_pil.samples]

    def get(i):
        return own(io.decode_jpeg(io.read_file(paths[i]), mode=io.ImageReadMode.RGB))

    measure("decode_jpeg", get, len(paths), epochs)


if __name__ == "__main__":
    main()
