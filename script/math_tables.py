#!/usr/bin/env python3
"""Writes src/base/math/tables.c: the numbers that the functions of src/base/math/ start from.

    script/math_tables.py | clang-format >src/base/math/tables.c

Each number is the sum of a series, in Python's decimal arithmetic, and is rounded to the nearest
double. Where one double is too few, a second one has the rest. It takes a few seconds.
"""
from decimal import Decimal, getcontext, localcontext
from math import frexp

DIGITS = 90
getcontext().prec = DIGITS
ONE, TWO = Decimal(1), Decimal(2)


# --- the functions, from their series ---

def series(first, ratio):
    """The sum of terms, each of which is the one before times ratio(n)."""
    least = Decimal(10) ** -getcontext().prec
    total, term, n = Decimal(0), first, 0
    while abs(term) > least * abs(total) or not n:
        total, n = total + term, n + 1
        term *= ratio(n)
    return total


def atan(x):
    """Euler's series, whose terms have one sign."""
    part = x * x / (1 + x * x)
    return series(x / (1 + x * x), lambda n: part * 2 * n / (2 * n + 1)) if x else x


def sin(x):
    return series(x, lambda n: -x * x / (2 * n * (2 * n + 1))) if x else x


def pi():
    return 16 * atan(ONE / 5) - 4 * atan(ONE / 239)


def erfcx(x, count):
    """The Taylor coefficients at x of f = exp(x^2) erfc(x): f' = 2 x f - 2 / sqrt(pi)."""
    with localcontext() as c:
        c.prec = 800  # 1 - erf x loses 350 digits at x = 29, and so does the recurrence
        slope = 2 / pi().sqrt()
        # erf x = 2 / sqrt(pi) exp(-x^2) sum of 2^n x^(2n+1) / (1 3 5 ... (2n+1))
        a = [(x * x).exp() - slope * series(x, lambda n: 2 * x * x / (2 * n + 1))]
        a.append(2 * x * a[0] - slope)
        for n in range(1, count - 1):
            a.append((2 * x * a[n] + 2 * a[n - 1]) / (n + 1))
    return [+value for value in a]


def polynomial(taylor, radius, degree):
    """The coefficients of the polynomial that has the function's values at Chebyshev's points."""
    n = degree + 1
    points = [radius * sin(PI / 2 - PI * (2 * i + 1) / (2 * n)) for i in range(n)]
    newton = [sum(a * p ** k for k, a in enumerate(taylor)) for p in points]
    for step in range(1, n):  # divided differences
        for i in range(n - 1, step - 1, -1):
            newton[i] = (newton[i] - newton[i - 1]) / (points[i] - points[i - step])
    found = [Decimal(0)] * n
    for value, p in zip(reversed(newton), reversed(points)):  # found * (x - p) + value
        higher = [Decimal(0)] + found[:-1]
        found = [a - p * b for a, b in zip(higher, found)]
        found[0] += value
    return found


# --- the form of the tables ---

def text(x):
    mantissa, exponent = float(x).hex().split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return "0" if not x else "%sp%d" % (mantissa, int(exponent))


def pair(x, unit):
    """The multiple of unit next to x, and the rest."""
    first = round(x / unit) * unit
    return "{%s, %s}" % (text(first), text(x - first))


def of_26_bits(x):
    return pair(x, TWO ** (frexp(x)[1] - 26))


def double(x):
    return pair(x, TWO ** (frexp(x)[1] - 53))


def table(comment, declaration, entries):
    print("\n/* %s */\nconst %s = {" % (comment, declaration))
    line = "   "
    for e in entries:
        if len(line) + len(e) + 2 > 96:
            print(line)
            line = "   "
        line += " " + e + ","
    print(line)
    print("};")


def fitted(interval):
    """Centre, rest of the first coefficient, coefficients: for x + 1 in eighths of a binade."""
    binade, eighth = divmod(interval, 8)
    radius = TWO ** (binade - 4)
    centre = TWO ** binade + (2 * eighth + 1) * radius - 1
    a = polynomial(erfcx(centre, 40), radius, DEGREE)
    worst = max(abs(sum(a[k] * p ** k for k in range(DEGREE + 1)) / sum(
        t * p ** k for k, t in enumerate(erfcx(centre, 40))) - 1) for p in (radius, -radius))
    assert worst < TWO ** -58, (interval, worst)
    return "{%s, %s, {%s}}" % (
        text(centre), text(a[0] - Decimal(float(a[0]))), ",\n    ".join(text(x) for x in a))


PI, DEGREE, INTERVALS = pi(), 11, 39
with localcontext() as long:
    long.prec = 400
    inverse = int(TWO ** 1216 / (2 * pi()))
print("""/* Written by script/math_tables.py: change that, not this. */
#include "base/math/tables.h\"""")
table("2^(i/128), which begins with 26 bits", "dd choir__exp_table[128]",
      [of_26_bits(TWO ** (i * ONE / 128)) for i in range(128)])
table("c, the multiple of 2^-12 next to 128 / (i + 91), and -ln c, which begins with a multiple of "
      "2^-42", "log_entry choir__log_table[91]",
      ["{%s, %s}" % (text(c), pair(-c.ln(), TWO ** -42)) for c in (
          Decimal(round(Decimal(2 ** 19) / i)) / 4096 for i in range(91, 182))])
table("sin(i pi/128), which begins with 26 bits", "dd choir__sin_table[65]",
      [of_26_bits(sin(i * PI / 128)) for i in range(65)])
table("atan(i/16)", "dd choir__atan_table[17]",
      [double(atan(ONE * i / 16)) for i in range(17)])
table("the bits of 1 / (2 pi), 64 of zeros before them", "uint64_t choir__turn_bits[20]",
      ["0x%016x" % (inverse >> 64 * (19 - i) & (1 << 64) - 1) for i in range(20)])
table("exp(x^2) erfc(x) near c", "erfc_entry choir__erfc_table[%d]" % INTERVALS,
      [fitted(i) for i in range(INTERVALS)])
