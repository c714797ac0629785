/* Options as people write them: "gpt2:layers=4,width=128". A name, then key=value pairs; every
 * key must be known, and a value that does not parse is an error that names it. */
#ifndef CHOIR_OPTIONS_H
#define CHOIR_OPTIONS_H

#include "base/base.h"

typedef enum choir__option_type {
    CHOIR__INT,
    CHOIR__FLOAT,
    CHOIR__FLAG,
    CHOIR__WORD,
    CHOIR__TEXT
} choir__option_type;

/* One known key, and where its value goes: int64_t, double, bool, char[64] or
 * char[256]. */
typedef struct choir__option {
    const char *key;
    choir__option_type type;
    void *value;
    double low, high; /* numbers must lie in [low, high] */
} choir__option;

/* The name before the colon, into name. Error: argument, longer than `bytes`. */
choir_status choir__options_name(const char *text, char *name, size_t bytes);

/* Sets the values that text gives. known ends with a NULL key. what: "model gpt2", for
 * messages. */
choir_status choir__options_parse(
    const char *text, const char *what, const choir__option *known);

/* Whole text as a number; false if it is none or lies outside [low, high]. */
bool choir__parse_int(const char *text, int64_t low, int64_t high, int64_t *value);
bool choir__parse_float(const char *text, double low, double high, double *value);
/* As an integer with K, M or G behind it (powers of 1024). */
bool choir__parse_bytes(const char *text, int64_t *value);

#endif
