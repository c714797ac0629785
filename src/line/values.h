/* The values of options as JSON, for documents: files of jobs and of studies. A document that
 * is read has its values replaced by the texts that the command line would have, so that one
 * function sets them all: choir__line_set. */
#ifndef CHOIR_LINE_VALUES_H
#define CHOIR_LINE_VALUES_H

#include <jansson.h>

#include "line/command.h"

/* Returns the option of this name in a table, which an empty row ends, or NULL. */
const choir__line_option *choir__line_named(const choir__line_option *rows, const char *name);

/* Returns the option's value from its text as JSON of its type; NULL for NULL, but false for a
 * flag. */
json_t *choir__line_json(const choir__line_option *option, const char *text);

/* Returns a number, a boolean or a text as the command line would have it, on the heap; NULL:
 * it is something else. */
char *choir__line_scalar_text(const json_t *value);

/* Replaces the member `key` of an object by a text, if it is a number, a boolean or a text, and
 * returns the text, which lives as long as the member; NULL: it is something else. */
const char *choir__line_json_text(json_t *object, const char *key);

/* Replaces the option's value in `options` by its text, which a value of another type than the
 * option's is not. where: "job.json: option 'lr'". texts: numbers and flags may be texts
 * already. Error: argument. */
choir_status choir__line_json_check(
    json_t *options, const choir__line_option *option, bool texts, const char *where);

/* Sets the option in `values` to its text in `options`. Error: argument. */
choir_status choir__line_json_take(
    const json_t *options, const choir__line_option *option, void *values, const char *where);

/* Returns CHOIR_ERR_ARGUMENT with the message "where: expected what, got ...". */
choir_status choir__line_json_expected(const char *where, const char *what, const json_t *got);
/* Puts "where: " before the message of a failure, and returns its status. */
choir_status choir__line_json_located(const char *where, choir_status status);

#endif
