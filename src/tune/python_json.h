/* JSON as Python writes it, which JSON's readers refuse in part. */
#ifndef CHOIR_TUNE_PYTHON_JSON_H
#define CHOIR_TUNE_PYTHON_JSON_H

#include <stdbool.h>

#include <jansson.h>

/* Reads an object or a list; NULL: neither. A whole number beyond an int64_t becomes a real
 * one. A number beyond a double, NaN, Infinity and -Infinity become null, or strings which
 * strtod reads. The caller releases it. */
json_t *choir__python_json(const char *text, bool as_null);

#endif
