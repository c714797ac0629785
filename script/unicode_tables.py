#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_table.h: the properties of Unicode that the tokenizers need.

    python3 -m pip install tokenizers
    script/unicode_tables.py > src/data/tokenizer/unicode_table.h

The ids of a published tokenizer depend on the versions of Unicode inside Hugging Face's tokenizers,
which are several: one for patterns, an old one for punctuation and accents, a new one for lower
case. So each table is what that library does with each character: its ranges [first, last], or what
a character becomes. The script takes a few minutes.
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)  # arithmetic in unicode.c
COMPATIBLE = range(0xF900, 0xFB00)  # ideographs that are others: a block needs no search
MORE_COMPATIBLE = range(0x2F800, 0x2FA1E)


# --- the form of the tables ---

def table(name, kind, entries):
    print("\nstatic const %s %s[] = {" % (kind, name))
    line = "   "
    for e in entries:
        if len(line) + len(e) + 2 > 96:
            print(line)
            line = "   "
        line += " " + e + ","
    print(line)
    print("};")


def ranges(name, test):
    found = []
    for c in ALL:
        if not test(chr(c)):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    table(name, "choir__code_range", ["{0x%X, 0x%X}" % (a, b) for a, b in found])


def results(function):
    """The characters that the function changes, and the list of characters that each becomes."""
    changed = {c: [ord(x) for x in function(chr(c))] for c in ALL if c not in HANGUL}
    return {c: to for c, to in changed.items() if to != [c]}


def several(name, changed):
    entries = []
    for c, to in changed.items():
        assert len(to) <= 4, (hex(c), to)
        if len(to) > 1:
            row = (c, len(to), ", ".join("0x%X" % x for x in to))
            entries.append("{0x%X, %d, {%s}}" % row)
    table(name, "code_parts", entries)


def shifts(name, changed):
    """Runs of characters that move by one number, each character or every second one."""
    found = []  # [first, last, step, shift]
    for c, to in changed.items():
        if len(to) != 1:
            continue
        run = found[-1] if found else None
        step = c - run[1] if run else 0
        if run and run[3] == to[0] - c and (step == run[2] or step <= 2 and run[0] == run[1]):
            run[1:3] = [c, step]
        else:
            found.append([c, c, 1, to[0] - c])
    table(name, "code_shift", ["{0x%X, 0x%X, %d, %d}" % tuple(run) for run in found])


def pairs(name, changed):
    table(name, "code_pair", ["{0x%X, 0x%X}" % pair for pair in changed.items()])


def block(name, codes, changed):
    table(name, "uint32_t", ["0x%X" % changed.get(c, [c])[0] for c in codes])


def classes():
    """The combining class of each mark. This Python may know less of Unicode than the library, or
    more: the library's order of two marks tells the classes of newer ones, and which are no marks
    to it."""
    known = {c: unicodedata.combining(chr(c)) for c in ALL if unicodedata.combining(chr(c))}
    order = normalizers.NFD().normalize_str
    one = {level: chr(c) for c, level in known.items() if order("a" + chr(c)) == "a" + chr(c)}
    for c in list(known):
        x, other = chr(c), one[1] if known[c] > 1 else one[230]
        low, high = sorted((x, other), key=unicodedata.combining)
        if len(order(x)) == 1 and order("a" + high + low) != "a" + order(low) + order(high):
            del known[c]
    for c in ALL:
        x = chr(c)
        if unicodedata.category(x) == "Cn" and order("a" + x + one[1]) == "a" + one[1] + x:
            known[c] = next(level for level in sorted(one) if level > 1 and
                            order("a" + x + one[level]) == "a" + x + one[level])
    return dict(sorted(known.items()))


def joins(name, decomposed):
    """(first, second, to), by first and second: what canonical composition joins."""
    whole = normalizers.NFC().normalize_str
    found = []
    for c, to in decomposed.items():
        if len(to) > 1 and whole(chr(c)) == chr(c):
            first = whole("".join(map(chr, to[:-1])))
            assert len(first) == 1, hex(c)
            found.append((ord(first), to[-1], c))
    table(name, "code_join", ["{0x%X, 0x%X, 0x%X}" % row for row in sorted(found)])


# --- questions to the library ---

def bert(**steps):
    names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    every = {name: steps.get(name, False) for name in names}
    return normalizers.BertNormalizer(**every).normalize_str


def matches(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return lambda s: not split.pre_tokenize_str(s)


def categories():
    """(first, last, even, odd): the categories of characters, which may take turns."""
    names, of = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn", {}
    every = "".join(map(chr, ALL))
    for i in range(0, len(names) // 2 - 1):
        runs = Regex(r"\p{%s}+" % names[2 * i:2 * i + 2])
        split = pre_tokenizers.Split(runs, "removed", invert=True)
        for run, _ in split.pre_tokenize_str(every):
            of.update((ord(x), i) for x in run)
    found = []
    for c in sorted(of):
        row = found[-1] if found else None
        alone = row and row[0] == row[1]
        if row and c == row[1] + 1 and (alone or row[2 + (c - row[0]) % 2] == of[c]):
            row[1] = c
            if alone:
                row[3] = of[c]
        else:
            found.append([c, c, of[c], of[c]])
    table("categories", "code_categories", ["{0x%X, 0x%X, %d, %d}" % tuple(row) for row in found])


def reordered(survivors):
    """The combining classes of characters that marks_removed keeps, by its order."""
    order = bert(strip_accents=True)
    levels = {}
    for c in survivors:
        level = unicodedata.combining(c)
        if any(order("a" + x + c) != "a" + x + c or order("a" + c + x) != "a" + c + x
               for x in survivors):
            levels[ord(c)] = level
    pairs("combining", levels)


def replacing(key):
    """A Precompiled normalizer that replaces one character by X: where it begins a short cluster,
    the cluster's marks vanish, which tells where clusters end. The table is a double array with a
    block of 256 units for each byte of the key."""
    units = [0] * 256 * (len(key.encode()) + 2)
    units[0] = 256 << 10
    place, block = 0, 256
    for byte in key.encode():
        place = block ^ byte
        block += 256
        units[place] = byte | (place ^ block) << 10
    units[place] |= 1 << 8
    units[block] = 1 << 31
    blob = struct.pack("<I%dI" % len(units), 4 * len(units), *units) + b"X\0"
    return normalizers.Precompiled.__new__(normalizers.Precompiled, blob).normalize_str


MARK = "\u0301"
plain, trade, letter = replacing("a"), replacing("\u2122"), replacing("\u0915")


def is_uncombined(s):
    """No mark joins it. Only short clusters tell, so characters of four bytes are left out; their
    longer clusters give the same text either way."""
    if s == "\0":
        return True
    return len(s.encode()) < 4 and replacing(s)(s + MARK) != "X"


def is_prepended(s):
    return plain(s + "a" + MARK) == s + "X" + MARK


print("/* Written by script/unicode_tables.py from tokenizers %s: change that, not this. */" %
      tokenizers.__version__)
print("/* clang-format off */")
ranges("letters", matches(r"\p{L}"))
ranges("numbers", matches(r"\p{N}"))
ranges("spaces", matches(r"\s"))
categories()
words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
ranges("punctuation", lambda s: len(words("a" + s + "a")) == 3)
clean = bert(clean_text=True)
ranges("controls", lambda s: clean(s) == "" and s not in "\0\ufffd")
chinese = bert(handle_chinese_chars=True)
ranges("ideographs", lambda s: len(chinese(s)) == 3)
lowered = results(normalizers.Lowercase().normalize_str)
shifts("lower", lowered)
several("lower_parts", lowered)
marks_removed = bert(strip_accents=True)
bared = results(marks_removed)
ranges("removed", lambda s: bared.get(ord(s)) == [])
block("compatible_f900", COMPATIBLE, bared)
block("compatible_2f800", MORE_COMPATIBLE, bared)
pairs("bare", {c: to[0] for c, to in bared.items()
               if len(to) == 1 and c not in COMPATIBLE and c not in MORE_COMPATIBLE})
several("bare_parts", bared)
reordered([chr(c) for c in ALL
           if unicodedata.combining(chr(c)) and marks_removed(chr(c)) == chr(c)])
sys.stdout.flush()
ranges("attached", lambda s: s not in "\n\r" and plain("a" + s) == "X")
ranges("prepended", is_prepended)
ranges("uncombined", is_uncombined)
ranges("pictographs", lambda s: trade(s + "\u200d\u2122" + MARK).endswith(MARK))
ranges("consonants", lambda s: letter(s + "\u094d\u0915" + MARK).endswith(MARK))
ranges("linkers", lambda s: not is_prepended(s) and
       letter("\u0915" + s + "\u0915" + MARK).endswith(MARK))
sys.stdout.flush()
decomposed = results(normalizers.NFD().normalize_str)
pairs("canonical", {c: to[0] for c, to in decomposed.items() if len(to) == 1})
several("canonical_parts", decomposed)
pairs("classes", classes())
joins("joined", decomposed)
