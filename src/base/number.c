/* Numbers as texts: see number.h. */
#include "base/number.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int choir__number_text(double x, char text[CHOIR__NUMBER_TEXT])
{
    if (!isfinite(x))
        return snprintf(text, CHOIR__NUMBER_TEXT, "%s",
            isnan(x) ? "nan"
            : x < 0  ? "-inf"
                     : "inf");
    if (fabs(x) <= 0x1p53 && x == (double)(int64_t)x && !(x == 0 && signbit(x)))
        return snprintf(text, CHOIR__NUMBER_TEXT, "%lld", (long long)x);
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, CHOIR__NUMBER_TEXT, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    char *comma = strchr(text, ','); /* of a program's locale */
    if (comma)
        *comma = '.';
    return length;
}
