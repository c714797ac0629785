#!/usr/bin/env python3
"""Our safetensors files against the format's specification, with an independent reader and writer.

    safetensors_files.py TEST_UNIT_SAFETENSORS

The program writes its sample file, which is taken apart here with struct and json alone; then a file
made here is read back by it. With the safetensors package installed, that reads the file too.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

SIZE = {"F64": 8, "F32": 4, "BF16": 2, "I32": 4, "BOOL": 1}
# name: dtype, shape, struct format, values
SAMPLES = {
    "scalar": ("F64", [], "<d", (2.5,)),
    "a.weight": ("F32", [3, 2], "<6f", (1, -2, 3.5, 0, struct.unpack("<f", struct.pack("<f", 1e-30))[0], 7)),
    "b.weight": ("F32", [2, 3], "<6f", (1, -2, 3.5, 0, struct.unpack("<f", struct.pack("<f", 1e-30))[0], 7)),
    "empty": ("I32", [4, 0, 2], "<", ()),
    'half "quoted" é': ("BF16", [3], "<3H", (0x3C00, 0xC000, 0x0001)),
    "mask": ("BOOL", [5], "<5B", (1, 0, 1, 1, 0)),
}


def check_ours(path):
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack("<Q", blob[:8])
    assert length % 8 == 0 and blob[8:9] == b"{", length
    header = json.loads(blob[8 : 8 + length].decode("utf-8"))
    data = blob[8 + length :]
    metadata = header.pop("__metadata__")
    assert metadata == {"format": "pt", "step": "12", "note": "café"}, metadata
    assert set(header) == set(SAMPLES), set(header)
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, layout, values = SAMPLES[name]
        begin, stop = entry["data_offsets"]
        assert (entry["dtype"], entry["shape"]) == (dtype, shape), name
        assert begin == end and begin % SIZE[dtype] == 0, name
        assert struct.unpack(layout, data[begin:stop]) == values, name
        end = stop
    assert end == len(data)


def write_theirs(path):
    header, data = {"__metadata__": {"format": "pt", "step": "12", "note": "café"}}, b""
    for name, (dtype, shape, layout, values) in SAMPLES.items():
        raw = struct.pack(layout, *values)
        header[name] = {"data_offsets": [len(data), len(data) + len(raw)], "shape": shape, "dtype": dtype}
        data += raw
    text = json.dumps(header, indent=1).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ours.safetensors")
        subprocess.run([program, "--write", path], check=True)
        check_ours(path)
        try:
            from safetensors import safe_open
        except ImportError:
            print("the safetensors package is not there: the format's text alone was the judge")
        else:
            with safe_open(path, framework="np") as file:
                assert set(file.keys()) == set(SAMPLES)
        path = os.path.join(folder, "theirs.safetensors")
        write_theirs(path)
        subprocess.run([program, "--read", path], check=True)


main()
