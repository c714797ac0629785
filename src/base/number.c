/* Numbers as the shortest texts that read back as the same number: 15 to 17 digits for doubles,
 * 6 to 9 for floats are tried in turn. Whole numbers have no exponent. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"

static locale_t plain; /* the C locale; 0: it could not be made */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Gives this thread the C locale, and returns the one that it had. */
static locale_t speak_plainly(void)
{
    static pthread_once_t made = PTHREAD_ONCE_INIT;
    pthread_once(&made, make_plain);
    return uselocale(plain);
}

double choir__number_read(const char *text, char **end)
{
    CHOIR__DEFAULT_FLOATS;
    locale_t before = speak_plainly();
    double x = strtod(text, end);
    uselocale(before);
    return x;
}

int choir__number_vprint(char *text, size_t bytes, const char *format, va_list args)
{
    CHOIR__DEFAULT_FLOATS;
    locale_t before = speak_plainly();
    int length = vsnprintf(text, bytes, format, args);
    uselocale(before);
    return length;
}

int choir__number_print(char *text, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = choir__number_vprint(text, bytes, format, args);
    va_end(args);
    return length;
}

int choir__number_vformat(char **text, const char *format, va_list args)
{
    CHOIR__DEFAULT_FLOATS;
    locale_t before = speak_plainly();
    int length = vasprintf(text, format, args);
    uselocale(before);
    return length;
}

static int write_infinite(double x, char text[CHOIR__NUMBER_TEXT])
{
    const char *word = isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
    return snprintf(text, CHOIR__NUMBER_TEXT, "%s", word);
}

int choir__number_text(double x, char text[CHOIR__NUMBER_TEXT])
{
    CHOIR__DEFAULT_FLOATS;
    if (!isfinite(x))
        return write_infinite(x, text);
    if (fabs(x) <= 0x1p53 && x == (double)(int64_t)x && !(x == 0 && signbit(x)))
        return snprintf(text, CHOIR__NUMBER_TEXT, "%lld", (long long)x);
    locale_t before = speak_plainly();
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, CHOIR__NUMBER_TEXT, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    uselocale(before);
    return length;
}

int choir__single_text(float x, char text[CHOIR__NUMBER_TEXT])
{
    if (!isfinite(x))
        return write_infinite((double)x, text);
    locale_t before = speak_plainly();
    int length = 0;
    for (int digits = 6; digits <= 9; digits++) {
        length = snprintf(text, CHOIR__NUMBER_TEXT, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    uselocale(before);
    return length;
}

int choir__by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
