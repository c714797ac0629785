/* Numbers as texts that read back as the same number. A program may have set a locale in which
 * a comma stands before the decimals; files, options and hashes have a point all the same. */
#ifndef CHOIR_NUMBER_H
#define CHOIR_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

enum { CHOIR__NUMBER_TEXT = 32 };

/* strtod, snprintf, vsnprintf and vasprintf of the C locale. */
double choir__number_read(const char *text, char **end);
__attribute__((format(printf, 3, 4))) int choir__number_print(
    char *text, size_t bytes, const char *format, ...);
int choir__number_vprint(char *text, size_t bytes, const char *format, va_list args);
int choir__number_vformat(char **text, const char *format, va_list args);

/* Writes the shortest of 15, 16 or 17 digits that strtod reads as x; all
 * digits of a whole number up to 2^53; "nan", "inf" or "-inf" if x is not finite. Returns the
 * length. */
int choir__number_text(double x, char text[CHOIR__NUMBER_TEXT]);

/* Writes the shortest of 6 to 9 digits that strtof reads as x. Returns the length. */
int choir__single_text(float x, char text[CHOIR__NUMBER_TEXT]);

/* Compares two doubles, for qsort: the smaller one first. */
int choir__by_number(const void *a, const void *b);

#endif
