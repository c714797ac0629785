"""Turns a GGUF file's q4_0 blocks into q4_1 blocks of the same values: as_q4_1.py FROM TO.

q4_0 has d (code - 8), q4_1 has d code + m; with m = -8 d, which is exact in f16 and f32, each value keeps its bits.
"""
import struct
import sys

Q4_0, Q4_1, ALIGN = 2, 3, 32
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a number by GGUF's type
TEXT, LIST = 8, 9


def number(data, at, form):
    return struct.unpack_from("<" + form, data, at)[0], at + struct.calcsize("<" + form)


def skip_text(data, at):
    length, at = number(data, at, "Q")
    return at + length


def skip_value(data, at, kind):
    if kind == TEXT:
        return skip_text(data, at)
    if kind != LIST:
        return at + SIZES[kind]
    kind, at = number(data, at, "I")
    count, at = number(data, at, "Q")
    for _ in range(count):
        at = skip_value(data, at, kind)
    return at


def wider(blocks):
    """(n, 2 + 16) bytes as (n, 2 + 2 + 16)."""
    out = bytearray()
    for i in range(0, len(blocks), 18):
        scale = struct.unpack_from("<e", blocks, i)[0]
        out += blocks[i:i + 2] + struct.pack("<e", -8 * scale) + blocks[i + 2:i + 18]
    return bytes(out)


def main(source, target):
    data = open(source, "rb").read()
    tensors, at = number(data, 8, "Q")
    keys, at = number(data, at, "Q")
    for _ in range(keys):
        at = skip_text(data, at)
        kind, at = number(data, at, "I")
        at = skip_value(data, at, kind)
    infos = at
    table = []
    for _ in range(tensors):
        begin, at = at, skip_text(data, at)
        dims, at = number(data, at, "I")
        at += 8 * dims
        kind, _ = number(data, at, "I")
        offset, _ = number(data, at + 4, "Q")
        table.append((data[begin:at], kind, offset))
        at += 12
    start = (at + ALIGN - 1) // ALIGN * ALIGN
    ends = sorted(offset for _, _, offset in table)[1:] + [len(data) - start]
    ends = dict(zip(sorted(offset for _, _, offset in table), ends))
    changed, body, head = 0, bytearray(), bytearray()
    for name, kind, offset in table:
        values = data[start + offset:start + ends[offset]]
        if kind == Q4_0:
            values = wider(values[:len(values) // 18 * 18])
            kind, changed = Q4_1, changed + 1
        head += name + struct.pack("<IQ", kind, len(body))
        body += values + bytes(-len(values) % ALIGN)
    head = data[:infos] + head
    open(target, "wb").write(head + bytes(-len(head) % ALIGN) + body)
    print(changed)


main(*sys.argv[1:])
