"""Images: validation samples against torchvision's Resize and CenterCrop on PIL's decoder; orders of
samples of the public sampler."""
import ctypes
import glob
import os
import tempfile

from check import C, case, main, same  # first: it skips without PyTorch
import choir
import numpy as np
import torch
from torch.utils.data import DistributedSampler

LEVELS = 0.5  # of 255: PIL rounds to whole levels twice, Choir never does


def split_of(folder, files):
    """One class, the same files in both splits."""
    for split in ("train", "val"):
        os.makedirs(os.path.join(folder, split, "all"))
        for path in files:
            os.symlink(os.path.abspath(path), os.path.join(folder, split, "all",
                                                           os.path.basename(path)))


def differences(folder, files, size, resize, scaled):
    """The mean difference of each image, in levels."""
    from PIL import Image
    from torchvision import transforms

    opts = choir.options(C.image_defaults, height=size, width=size, resize=resize, dct_scaling=scaled,
                         crop=choir.E.CHOIR_CROP_RESIZED, mean=(ctypes.c_float * 3)(0, 0, 0),
                         std=(ctypes.c_float * 3)(*[1 / 255] * 3))
    theirs = transforms.Compose([transforms.Resize(resize or round(size * 256 / 224)),
                                 transforms.CenterCrop(size)])
    data, y = ctypes.c_void_p(), ctypes.c_int64()
    C.dataset_images(folder, choir.E.CHOIR_VALIDATION, opts, ctypes.addressof(data))
    x, off = np.zeros((size, size, 3), np.float32), []
    for i, path in enumerate(files):
        C.dataset_get(data, i, x.ctypes.data, ctypes.addressof(y))
        with Image.open(path) as image:
            want = np.asarray(theirs(image.convert("RGB"))).astype(np.float32)
        off.append(float(np.abs(x - want).mean()))
    C.dataset_free(data)
    return off


@case
def validation():
    try:
        import PIL
        import torchvision
    except ImportError as error:
        print("without torchvision, not compared: %s" % error)
        return
    photos = os.path.join(os.environ.get("CHOIR_TEST_DATA", ""), "photos")
    files = sorted(glob.glob(os.path.join(photos, "*.JPEG")))
    if not files:
        print("without photos, not compared: none in %s" % photos)
        return
    with tempfile.TemporaryDirectory() as folder:
        split_of(folder, files)
        for size, resize in ((224, 256), (96, 110), (320, 0)):
            for scaled in (False, True):
                off = differences(folder, files, size, resize, scaled)
                print("  %d x %d%s: %.3f levels, worst image %.3f" % (
                    size, size, ", JPEG scaling" if scaled else "", np.mean(off), max(off)))
                if not scaled and max(off) > LEVELS:
                    raise AssertionError("an image is off by %.3f levels" % max(off))


@case
def image_folder():
    """Files in folders of a class have torchvision's labels and order, and its pixels by default."""
    try:
        from PIL import Image
        from torchvision import datasets, transforms
    except ImportError as error:
        print("without torchvision, not compared: %s" % error)
        return
    random = np.random.RandomState(2)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("b/1.png", "b/sub/2.png", "b/sub-x/3.jpg", "b/sub/deep/4.png", "a/z.jpg", "a/0/z.jpg"):
            for split in ("train", "val"):
                path = os.path.join(folder, split, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                smooth = Image.fromarray(random.randint(0, 256, (5, 5, 3)).astype("u1"))
                smooth.resize((100, 80), Image.BICUBIC).save(path, quality=95)
        theirs = datasets.ImageFolder(os.path.join(folder, "val"), transforms.Compose(
            [transforms.Resize(20), transforms.CenterCrop(16)]))
        opts = choir.options(C.image_defaults, height=16, width=16, resize=20,
                             mean=(ctypes.c_float * 3)(0, 0, 0), std=(ctypes.c_float * 3)(*[1 / 255] * 3))
        data, y = ctypes.c_void_p(), ctypes.c_int64()
        C.dataset_images(folder, choir.E.CHOIR_VALIDATION, opts, ctypes.addressof(data))
        x = np.zeros((16, 16, 3), np.float32)
        assert C.dataset_length(data) == len(theirs) == 6
        for i, (image, label) in enumerate(theirs):
            C.dataset_get(data, i, x.ctypes.data, ctypes.addressof(y))
            off = float(np.abs(x - np.asarray(image.convert("RGB"), np.float32)).mean())
            assert y.value == label and off < LEVELS, (theirs.imgs[i], y.value, label, off)
        C.dataset_free(data)


@case
def sampler():
    """choir_distributed_sampler and choir_randperm, bit for bit."""
    for n, world, seed, epoch, shuffle, drop_last in (
            (10, 4, 0, 0, True, False), (103, 8, 7, 3, True, True), (25000, 3, 42, 9, True, False),
            (11, 4, 0, 2, False, False), (3, 5, 1, 0, True, False)):
        for rank in range(world):
            theirs = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=shuffle,
                                        seed=seed, drop_last=drop_last)
            theirs.set_epoch(epoch)
            ours = ctypes.c_void_p()
            opts = choir.options(C.sampler_defaults, world=world, rank=rank, shuffle=shuffle,
                                 drop_last=drop_last, seed=seed)
            C.distributed_sampler(n, opts, ctypes.addressof(ours))
            C.sampler_set_epoch(ours, epoch)
            got = [C.sampler_at(ours, i) for i in range(C.sampler_length(ours))]
            C.sampler_free(ours)
            same("rank %d of %d" % (rank, world), np.array(got), np.array(list(theirs)))
    for seed, n in ((0, 1), (1, 1000), (2**40 + 3, 40000), (5, 1000000)):
        out = np.zeros(n, np.int64)
        C.randperm(seed, n, out.ctypes.data)
        generator = torch.Generator()
        generator.manual_seed(seed)
        same("randperm(%d)" % n, out, torch.randperm(n, generator=generator).numpy())


@case
def weighted():
    """The draws of WeightedRandomSampler, bit for bit."""
    from torch.utils.data import WeightedRandomSampler
    random = np.random.RandomState(3)
    for n, seed, weights in ((5, 0, [0.1, 0.9, 0.4, 0.7, 3.0]), (1000, 7, random.rand(1000)),
                             (3, 2**33 + 1, [0.0, 1.0, 0.0]), (40000, 42, random.rand(40000) ** 4)):
        weights = np.array(weights, np.float64)
        generator = torch.Generator()
        generator.manual_seed(seed)
        want = list(WeightedRandomSampler(weights, n, generator=generator))
        ours = ctypes.c_void_p()
        opts = choir.options(C.sampler_defaults, seed=seed, weights=weights.ctypes.data)
        C.distributed_sampler(n, opts, ctypes.addressof(ours))
        same("%d weights" % n, np.array([C.sampler_at(ours, i) for i in range(n)]), np.array(want))
        C.sampler_free(ours)


if __name__ == "__main__":
    main()
