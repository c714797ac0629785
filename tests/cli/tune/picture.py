"""Looks for texts of gnuplot's SVG pictures that leave the frame, touch one another, or lie on a
point.

    picture.py FILE.svg...

Letters are taken as 0.6 times as wide as high, as those of DejaVu Sans are on the average."""

import re
import sys

TEXT = re.compile(r'translate\(([-\d.]+),([-\d.]+)\)( rotate\(-?\d+[.\d]*\))?"[^>]*'
                  r'font-size="([\d.]+)"\s+text-anchor="(\w+)">\s*<text>(.*?)</text>')
POINT = re.compile(r"gpPt\d+' transform='translate\(([-\d.]+),([-\d.]+)\)")
BEFORE = {"start": 0, "middle": 0.5, "end": 1}  # share of a text that lies before its place


def boxes(svg):
    """Yields (text, left, top, right, bottom) of each text."""
    for x, y, turn, size, anchor, text in TEXT.findall(svg):
        x, y, size = float(x), float(y), float(size)
        text = re.sub("<[^>]*>", "", text).strip()
        wide = len(text) * 0.6 * size
        before = BEFORE[anchor] * wide
        if turn:  # it is read from below
            yield text, x - 0.75 * size, y + before - wide, x, y + before
        else:
            yield text, x - before, y - 0.75 * size, x - before + wide, y


def faults(svg):
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    points = [(float(x), float(y)) for x, y in POINT.findall(svg)]
    texts = [box for box in boxes(svg) if box[0]]
    if not texts:
        yield "it has no text"
    for i, (text, left, top, right, bottom) in enumerate(texts):
        if left < 0 or top < 0 or right > width or bottom > height:
            yield f"'{text}' leaves the frame"
        for other, left2, top2, right2, bottom2 in texts[:i]:
            gap = 0.2 * (bottom - top) if bottom == bottom2 else 0  # between two on a line
            if left < right2 + gap and left2 < right + gap and top < bottom2 and top2 < bottom:
                yield f"'{text}' touches '{other}'"
        if any(left < x < right and top < y < bottom for x, y in points):
            yield f"'{text}' lies on a point"


def main():
    wrong = [f"{file}: {fault}" for file in sys.argv[1:]
             for fault in faults(open(file, encoding="utf-8").read())]
    print(*wrong[:5], sep="\n", end="\n" * bool(wrong))
    sys.exit(bool(wrong))


main()
