"""torchvision's changes of an image of 224 x 224 on one thread: "name milliseconds ms", CPU time, the
least of several."""
import time

import torch
from torchvision.transforms.v2 import functional as F

torch.set_num_threads(1)
x = torch.rand(3, 224, 224)
CHANGES = {
    "brightness": lambda: F.adjust_brightness(x, 1.3), "contrast": lambda: F.adjust_contrast(x, 1.3),
    "saturation": lambda: F.adjust_saturation(x, 1.3), "hue": lambda: F.adjust_hue(x, 0.1),
    "sharpness": lambda: F.adjust_sharpness(x, 1.3), "posterize": lambda: F.posterize(x, 4),
    "solarize": lambda: F.solarize(x, 0.5), "autocontrast": lambda: F.autocontrast(x),
    "equalize": lambda: F.equalize(x),
    "shear": lambda: F.affine(x, 0, [0, 0], 1, [5.71, 0], center=[0, 0]),
    "rotate": lambda: F.rotate(x, 9)}
for name, change in CHANGES.items():
    least = 1e9
    for _ in range(40):
        start = time.thread_time()
        change()
        least = min(least, time.thread_time() - start)
    print("%-14s %7.3f ms" % (name, 1e3 * least))
