"""Each test here imports this first: without PyTorch and NumPy the test exits with 77, skipped, and
says what to install."""
import importlib.util
import sys

missing = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]
if missing:
    print("skipped: %s has no %s (install python3-torch python3-numpy, or name "
          "another Python with -DCHOIR_PYTHON=...)" % (sys.executable, " and no ".join(missing)))
    sys.exit(77)
