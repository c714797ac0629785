/* Numbers as texts that read back as the same number. */
#ifndef CHOIR_NUMBER_H
#define CHOIR_NUMBER_H

enum { CHOIR__NUMBER_TEXT = 32 };

/* Writes the shortest of 15, 16 or 17 digits that strtod reads as x, in the C locale; all
 * digits of a whole number up to 2^53; "nan", "inf" or "-inf" if x is not finite. Returns the
 * length. */
int choir__number_text(double x, char text[CHOIR__NUMBER_TEXT]);

/* Writes the shortest of 6 to 9 digits that strtof reads as x. Returns the length. */
int choir__single_text(float x, char text[CHOIR__NUMBER_TEXT]);

/* Compares two doubles, for qsort: the smaller one first. */
int choir__by_number(const void *a, const void *b);

#endif
