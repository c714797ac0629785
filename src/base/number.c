/* Numbers as the shortest texts that read back as the same number: 15 to 17 digits for doubles,
 * 6 to 9 for floats are tried in turn. Whole numbers have no exponent, and a comma of the
 * program's locale becomes a point. */
#include "base/number.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_infinite(double x, char text[CHOIR__NUMBER_TEXT])
{
    const char *word = isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
    return snprintf(text, CHOIR__NUMBER_TEXT, "%s", word);
}

/* Replaces the comma of a program's locale. */
static void write_point(char *text)
{
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
}

int choir__number_text(double x, char text[CHOIR__NUMBER_TEXT])
{
    if (!isfinite(x))
        return write_infinite(x, text);
    if (fabs(x) <= 0x1p53 && x == (double)(int64_t)x && !(x == 0 && signbit(x)))
        return snprintf(text, CHOIR__NUMBER_TEXT, "%lld", (long long)x);
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, CHOIR__NUMBER_TEXT, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    write_point(text);
    return length;
}

int choir__single_text(float x, char text[CHOIR__NUMBER_TEXT])
{
    if (!isfinite(x))
        return write_infinite((double)x, text);
    int length = 0;
    for (int digits = 6; digits <= 9; digits++) {
        length = snprintf(text, CHOIR__NUMBER_TEXT, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    write_point(text);
    return length;
}

int choir__by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
