#!/usr/bin/env python3
"""Validation samples of an image folder against torchvision's Resize and CenterCrop.

    images.py LIBCHOIR FOLDER          FOLDER/CLASS/*.JPEG or FOLDER/*.JPEG

Prints the mean and largest absolute difference in 8-bit levels; exit status 1 if the mean is more
than rounding explains (PIL rounds twice, to whole levels; we do not round), 77 to skip.
"""
import ctypes
import glob
import os
import sys
import tempfile

try:
    import numpy as np
    import torch
    from PIL import Image
    from torchvision import transforms
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

I64, F32, INT = ctypes.c_int64, ctypes.c_float, ctypes.c_int
SIZE, LIMIT = 224, 0.5  # levels


class Opts(ctypes.Structure):
    _fields_ = [("height", INT), ("width", INT), ("crop", INT), ("scale_min", F32),
                ("scale_max", F32), ("ratio_min", F32), ("ratio_max", F32), ("padding", INT),
                ("resize", INT), ("flip", ctypes.c_bool), ("dct_scaling", ctypes.c_bool),
                ("mean", F32 * 3), ("std", F32 * 3), ("max_pixels", I64),
                ("seed", ctypes.c_uint64)]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.choir_image_defaults.restype = Opts
    lib.choir_dataset_images.argtypes = [ctypes.c_char_p, INT, Opts, ctypes.c_void_p]
    lib.choir_error_message.restype = ctypes.c_char_p
    files = sorted(glob.glob(os.path.join(sys.argv[2], "*.JPEG")))
    if not files:
        print("skipped: there are no photos in", sys.argv[2])
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "val"):
            os.makedirs(os.path.join(folder, split, "all"))
            for path in files:
                os.symlink(os.path.abspath(path),
                           os.path.join(folder, split, "all", os.path.basename(path)))
        for scaled in (False, True):
            for size, resize in ((SIZE, 256), (96, 110), (320, 0)):
                opts = lib.choir_image_defaults()
                opts.height = opts.width = size
                opts.resize = resize
                opts.crop = 1
                opts.dct_scaling = scaled
                opts.mean[:] = [0, 0, 0]
                opts.std[:] = [1 / 255] * 3
                data = ctypes.c_void_p()
                if lib.choir_dataset_images(folder.encode(), 1, opts, ctypes.byref(data)):
                    print(lib.choir_error_message().decode())
                    return 1
                theirs = transforms.Compose([
                    transforms.Resize(resize or round(size * 256 / 224)),
                    transforms.CenterCrop(size)])
                x, y, means, most = np.zeros((size, size, 3), np.float32), I64(), [], 0
                for i, path in enumerate(files):
                    lib.choir_dataset_get(data, I64(i), x.ctypes.data_as(ctypes.c_void_p),
                                          ctypes.byref(y))
                    with Image.open(path) as image:
                        want = np.asarray(theirs(image.convert("RGB"))).astype(np.float32)
                    off = np.abs(x - want)
                    means.append(off.mean())
                    most = max(most, off.max())
                worst = max(means)
                failed |= not scaled and worst > LIMIT
                print(f"{size} x {size}{', JPEG scaling' if scaled else ''}: mean difference "
                      f"{np.mean(means):.3f} levels, worst image {worst:.3f}, most {most:.2f}")
                lib.choir_dataset_free(data)
    return 1 if failed else 0


sys.exit(main())
