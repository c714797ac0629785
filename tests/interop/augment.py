"""Augmentation against torchvision.transforms.v2: each change of an image with the same amount,
RandAugment's table of magnitudes, mixtures and erasing with the same numbers."""
import ctypes
import sys
import tempfile

from check import C, agree, case, main  # first: it skips without PyTorch
import choir
import numpy as np
import torch

try:
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as F
except ImportError as error:  # transforms.v2 is newer than Debian 12's torchvision
    print("skipped: %s has no torchvision.transforms.v2: %s" % (sys.executable, error))
    sys.exit(77)

E = choir.E
SIZES = ((37, 52), (224, 224), (28, 28))


def pictures(h, w, channels):
    """Noise, a smooth image of few levels, and one with large areas of one colour."""
    random = np.random.RandomState(h * w + channels)
    yield random.rand(h, w, channels).astype("f4")
    y, x = np.mgrid[:h, :w].astype("f4")
    smooth = np.stack([np.floor(40 * (x + c * y) / (w + c * h)) / 40 for c in range(channels)], -1)
    yield smooth.astype("f4")
    yield np.repeat(np.repeat(random.rand(3, 4, channels), h // 3 + 1, 0), w // 4 + 1,
                    1)[:h, :w].astype("f4")


def ours(image, op, amount):
    x = image.transpose(2, 0, 1).copy()
    C.image_change(x.ctypes.data, *x.shape, op, amount)
    return x.transpose(1, 2, 0)


def tensor(image):
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def array(t):
    return t.numpy().transpose(1, 2, 0)


def compare(what, op, amount, theirs, moves=False):
    for h, w in SIZES:
        for channels in (3, 1):
            for image in pictures(h, w, channels):
                got, want = ours(image, op, amount), array(theirs(tensor(image)))
                if moves:  # a place between two pixels is rounded to either
                    share = (np.abs(got - want) > 1e-6).any(-1).mean()
                    assert share <= 2e-3, "%s %g: %.4f of the pixels differ" % (what, amount, share)
                else:
                    agree(what, got, want, 2e-6)


@case
def colours():
    for amount in (0.0, 0.3, 1.0, 1.7):
        compare("brightness", E.CHOIR_IMAGE_BRIGHTNESS, amount, lambda x: F.adjust_brightness(x, amount))
        compare("contrast", E.CHOIR_IMAGE_CONTRAST, amount, lambda x: F.adjust_contrast(x, amount))
        compare("saturation", E.CHOIR_IMAGE_SATURATION, amount, lambda x: F.adjust_saturation(x, amount))
        compare("sharpness", E.CHOIR_IMAGE_SHARPNESS, amount, lambda x: F.adjust_sharpness(x, amount))
    for amount in (-0.5, -0.2, 0.0, 0.1, 0.5):
        compare("hue", E.CHOIR_IMAGE_HUE, amount, lambda x: F.adjust_hue(x, amount))


@case
def levels():
    for bits in (1, 4, 7, 8):
        compare("posterize", E.CHOIR_IMAGE_POSTERIZE, bits, lambda x: F.posterize(x, bits))
    for threshold in (0.0, 0.25, 1.0):
        compare("solarize", E.CHOIR_IMAGE_SOLARIZE, threshold, lambda x: F.solarize(x, threshold))
    compare("autocontrast", E.CHOIR_IMAGE_AUTOCONTRAST, 0, F.autocontrast)
    compare("equalize", E.CHOIR_IMAGE_EQUALIZE, 0, F.equalize)


def randaugment(name):
    """The op of this name as RandAugment applies it, with its sign."""
    transform = v2.RandAugment()
    return lambda amount: lambda x: transform._apply_image_or_video_transform(
        x, name, amount, interpolation=transform.interpolation, fill=transform._fill)


@case
def moves():
    for name, op, amounts in (("ShearX", E.CHOIR_IMAGE_SHEAR_X, (0.09, -0.3)),
                              ("ShearY", E.CHOIR_IMAGE_SHEAR_Y, (0.09, -0.3)),
                              ("TranslateX", E.CHOIR_IMAGE_TRANSLATE_X, (3.7, -8.0)),
                              ("TranslateY", E.CHOIR_IMAGE_TRANSLATE_Y, (3.7, -8.0)),
                              ("Rotate", E.CHOIR_IMAGE_ROTATE, (9.0, -30.0, 0.0))):
        for amount in amounts:
            compare(name, op, amount, randaugment(name)(amount), moves=True)


NAMES = ("Identity ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness "
         "Posterize Solarize AutoContrast Equalize").split()


@case
def magnitudes():
    table = v2.RandAugment._AUGMENTATION_SPACE
    assert sorted(table) == sorted(NAMES), list(table)
    for op, name in enumerate(NAMES):
        for bins, height, width in ((31, 224, 224), (11, 37, 52)):
            values, signed = table[name][0](bins, height, width), table[name][1]
            plus = 1.0 if name in ("Brightness", "Color", "Contrast", "Sharpness") else 0.0
            got = [C.randaugment_amount(op, m, bins, height, width) for m in range(bins)]
            want = np.zeros(bins) if values is None else np.asarray(torch.as_tensor(values).double()) + plus
            agree(name, np.array(got), want, 1e-6, scale=max(1.0, float(np.abs(want).max())))


@case
def applied():
    """Each op of RandAugment does to an image what ours of this number does."""
    for op, name in enumerate(NAMES[6:], 6):
        magnitude = C.randaugment_amount(op, 9, 31, 28, 28)
        plus = 1.0 if op < 10 else 0.0
        compare(name, op, magnitude, randaugment(name)(magnitude - plus))


class Pictures:
    """An IDX folder in which image i has class i."""

    def __init__(self, folder, n, side):
        images = np.random.RandomState(4).randint(0, 256, (n, side, side)).astype("u1")
        for split in ("train", "t10k"):
            with open("%s/%s-images-idx3-ubyte" % (folder, split), "wb") as f:
                f.write(np.array([0x803, n, side, side], ">u4").tobytes() + images.tobytes())
            with open("%s/%s-labels-idx1-ubyte" % (folder, split), "wb") as f:
                f.write(np.array([0x801, n], ">u4").tobytes() + np.arange(n).astype("u1").tobytes())
        self.folder, self.n, self.side = folder, n, side

    def read(self, text, epoch):
        data, opts = ctypes.c_void_p(), C.augment_defaults()
        C.dataset_idx(self.folder, E.CHOIR_TRAIN, ctypes.addressof(data))
        if text:
            C.augment_parse(text, ctypes.addressof(opts))
            C.dataset_augmented(data, opts, ctypes.addressof(data))
        x = np.zeros((self.n, 1, self.side, self.side), "f4")
        y = np.zeros((self.n, self.n), "f4") if text else np.zeros(self.n, "i8")
        for i in range(self.n):
            C.dataset_get_epoch(data, epoch, i, x[i].ctypes.data, y[i].ctypes.data if text else
                                y[i:].ctypes.data)
        C.dataset_free(data)
        return x, y


@case
def mixtures():
    """A sample, its partner and lam, mixed by torchvision as a batch of two that is rolled by one."""
    with tempfile.TemporaryDirectory() as folder:
        set_ = Pictures(folder, 20, 28)
        plain, labels = set_.read("", 0)
        for text, kind in (("mixup:alpha=0.7", v2.MixUp), ("cutmix", v2.CutMix)):
            x, y = set_.read(text, 2)
            for i in range(set_.n):
                others = [c for c in np.flatnonzero(y[i]) if c != i]
                if not others:
                    continue
                k, lam = others[0], float(y[i, i])
                pair = torch.from_numpy(plain[[i, k]])
                mix = kind(num_classes=set_.n)
                params = dict(labels=torch.tensor([i, k]), batch_size=2, lam=lam)
                if kind is v2.CutMix:
                    where = np.argwhere(x[i, 0] != plain[i, 0])
                    (y1, x1), (y2, x2) = where.min(0), where.max(0) + 1
                    params = dict(labels=torch.tensor([i, k]), batch_size=2, box=(x1, y1, x2, y2),
                                  lam_adjusted=1 - (x2 - x1) * (y2 - y1) / (28 * 28))
                agree(text, x[i], mix.transform(pair, params)[0], 1e-6)
                agree("classes", y[i], mix.transform(params["labels"], params)[0], 1e-2)


if __name__ == "__main__":
    main()
