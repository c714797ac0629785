#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_table.h: the properties of Unicode that the tokenizers need.

    script/unicode_tables.py > src/data/tokenizer/unicode_table.h

Ranges [first, last] of letters, numbers, white space, punctuation and control characters; the lower
case of a character; and its canonical decomposition without non-spacing marks (Hangul apart, which
is arithmetic). The script needs only unicodedata, a part of Python.
"""
import unicodedata as u

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def category(c):
    return u.category(chr(c))


def ranges(name, test):
    found = []
    for c in ALL:
        if not test(c):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    table(name, "choir__code_range", ["{0x%X, 0x%X}" % (a, b) for a, b in found])


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


def mapping(name, function):
    entries = []
    for c in ALL:
        to = [ord(x) for x in function(chr(c))]
        if to == [c] or 0xAC00 <= c <= 0xD7A3:
            continue
        assert len(to) <= 4, (hex(c), to)
        entries.append("{0x%X, %d, {%s}}" % (c, len(to), ", ".join("0x%X" % x for x in to) or "0"))
    table(name, "choir__code_map", entries)


print("/* Written by script/unicode_tables.py from Unicode %s: change that, not this. */" %
      u.unidata_version)
print("/* clang-format off */")
ranges("letters", lambda c: category(c)[0] == "L")
ranges("numbers", lambda c: category(c)[0] == "N")
ranges("spaces", lambda c: c in (9, 10, 11, 12, 13, 0x20, 0x85) or category(c)[0] == "Z")
ranges("punctuation", lambda c: category(c)[0] == "P" or
       (33 <= c < 127 and not chr(c).isalnum()))
ranges("controls", lambda c: category(c) in ("Cc", "Cf", "Co"))
mapping("lower", lambda s: s.lower())
mapping("bare", lambda s: "".join(x for x in u.normalize("NFD", s) if u.category(x) != "Mn"))
