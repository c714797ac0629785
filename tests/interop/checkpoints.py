"""Sharded checkpoints read by PyTorch: its tool for distributed checkpoints in this format joins our
parts into the same whole tensors as our own tool."""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import types

import need  # first: it skips without PyTorch

try:
    import torch
    from torch.distributed.checkpoint._consolidate_hf_safetensors import (
        consolidate_safetensors_files,
    )
except ImportError as missing:
    print(f"skipped: this PyTorch is too old for its tool for checkpoints, 2.8 has it: {missing}")
    sys.exit(77)


TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64}
if importlib.util.find_spec("safetensors") is None:  # the tool uses only this table of it
    stand_in = types.ModuleType("safetensors.torch")
    stand_in._getdtype = TYPES.__getitem__
    sys.modules["safetensors"] = types.ModuleType("safetensors")
    sys.modules["safetensors.torch"] = stand_in


def read(path):
    """name -> (dtype, shape, bytes)"""
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    at = 8 + length
    return {
        name: (t["dtype"], t["shape"], data[at + t["data_offsets"][0] : at + t["data_offsets"][1]])
        for name, t in header.items()
    }


def choir(*args):
    subprocess.run([os.environ["CHOIR"], *args], check=True, stdout=subprocess.DEVNULL)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for strategy in sys.argv[1:] or ["fsdp", "tp"]:
            saved, parts, theirs = strategy, strategy + ".parts", strategy + ".theirs"
            choir("train", "--json", "--model", "gpt2:layers=2,heads=3,width=24,context=16",
                  "--batch-size", "12", "--microbatches", "6", "--steps", "2", "--no-eval",
                  "--strategy", strategy, "--nproc", "3", "--save", saved)
            choir("checkpoint", "convert", saved, strategy + ".safetensors")
            ours = read(strategy + ".safetensors")
            os.mkdir(parts)
            os.mkdir(theirs)
            for name in os.listdir(saved + "/latest"):
                if name.startswith("model-"):
                    os.link(f"{saved}/latest/{name}", f"{parts}/{name}")
            consolidate_safetensors_files(parts, theirs, dict.fromkeys(ours, 1))
            files = [name for name in os.listdir(theirs) if name.endswith(".safetensors")]
            assert len(files) == 1, files
            whole = read(f"{theirs}/{files[0]}")
            assert whole.keys() == ours.keys(), whole.keys() ^ ours.keys()
            for name, tensor in ours.items():
                assert whole[name] == tensor, (strategy, name)
            print(f"{strategy}: {len(ours)} tensors out of {len(os.listdir(parts))} files")


main()
