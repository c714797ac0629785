/* Options as people write them: "gpt2:layers=4,width=128". A name, then key=value pairs; every
 * key must be known, and a value that does not parse is an error that names it. */
#ifndef CHOIR_OPTIONS_H
#define CHOIR_OPTIONS_H

#include "base/named.h"

typedef enum choir__option_type {
    CHOIR__INT,    /* int64_t */
    CHOIR__FLOAT,  /* double */
    CHOIR__SINGLE, /* float */
    CHOIR__BYTES,  /* int64_t, with K, M or G behind the number */
    CHOIR__FLAG,   /* bool: 1, true, 0 or false */
    CHOIR__WORD,   /* char[64] */
    CHOIR__TEXT,   /* char[256] */
    CHOIR__STRING, /* const char *: the text itself, which must outlive the value */
} choir__option_type;

/* A known key, and the place of its value, whose C type follows from the option's type. */
typedef struct choir__option {
    const char *key;
    choir__option_type type;
    void *value;
    double low, high; /* range of numbers, [low, high] */
} choir__option;

/* Sets the option's value from text; false if the text is no such value. */
bool choir__option_set(const choir__option *option, const char *text);

enum { CHOIR__EXPECTED_TEXT = 96 };

/* Writes what the option expects, such as "a whole number from 1 to 64", into text and returns
 * it: for messages of the form "expected ..., got ...". */
const char *choir__option_expected(
    const choir__option *option, char text[CHOIR__EXPECTED_TEXT]);

/* The name before the colon, into name. Error: argument, longer than `bytes`. */
choir_status choir__options_name(const char *text, char *name, size_t bytes);
/* Finds the entry that the text names. Error: argument, also if the table has none: see
 * choir__unknown_name. */
choir_status choir__options_find(
    const char *text, const choir__name_table *table, const char *kind, int *at);

/* Sets the values that text gives. known ends with a NULL key; messages begin with what, such
 * as "model gpt2". */
choir_status choir__options_parse(
    const char *text, const char *what, const choir__option *known);

/* Returns "NAME:key=value,..." with the values of all known keys, which reads back the same;
 * the caller frees it. Values that may not be given, such as an empty word, are left out. */
char *choir__options_text(const char *name, const choir__option *known);

/* Reads the whole text as a number; false if it is not a number in [low, high]. */
bool choir__parse_int(const char *text, int64_t low, int64_t high, int64_t *value);
bool choir__parse_float(const char *text, double low, double high, double *value);
/* Reads an integer that K, M or G (powers of 1024) may follow; false if it is negative. Tests
 * call it, too. */
bool choir__parse_bytes(const char *text, int64_t *value);

#endif
