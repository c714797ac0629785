/* JSON in place, for records that are read once, at the speed of memory.
 *
 * A text is parsed to a list of nodes, in the text's order; a value's inner values follow it.
 * Strings stay where they are: escapes are replaced there, and '\0' takes the place of the
 * closing quote. The list is reused from one text to the next, so nothing is allocated per
 * value.
 *
 *     {"a": [1, "b"]}      object(2 nodes follow per member)  "a"  array(2)  1  "b" */
#ifndef CHOIR_DATA_JSON_H
#define CHOIR_DATA_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum choir__json_type {
    CHOIR__JSON_NULL,
    CHOIR__JSON_FALSE,
    CHOIR__JSON_TRUE,
    CHOIR__JSON_INTEGER,
    CHOIR__JSON_REAL,
    CHOIR__JSON_STRING,
    CHOIR__JSON_ARRAY,
    CHOIR__JSON_OBJECT
} choir__json_type;

typedef struct choir__json {
    choir__json_type type;
    uint32_t count;   /* entries of an array, members of an object */
    uint32_t nodes;   /* nodes of the value, itself included: node + nodes is its sibling */
    const char *text; /* text of a string, ended by '\0', or of a number, without '\0' */
    size_t bytes;
} choir__json;

typedef struct choir__json_nodes {
    choir__json *node; /* (count) the first one is the text's value */
    size_t count, room;
} choir__json_nodes;

/* Parses [text, end), which is changed. Returns NULL, or a fault and its place in *at. nodes:
 * zeroed at first. */
const char *choir__json_parse(choir__json_nodes *nodes, char *text, char *end, const char **at);
void choir__json_nodes_free(choir__json_nodes *nodes);

/* Adds a node without inner values, for tables whose rows become objects. */
choir__json *choir__json_add(choir__json_nodes *nodes, choir__json node);

/* Returns the value of the last member of this name, or NULL if the member is missing or the
 * value is not an object. value may be NULL. */
const choir__json *choir__json_get(const choir__json *value, const char *name);

/* Returns whether the value is of the type; false for NULL. */
bool choir__json_is(const choir__json *value, choir__json_type type);

/* Returns the first inner value of an array, or the first name of an object. */
const choir__json *choir__json_first(const choir__json *value);
/* Returns the value behind this one. */
const choir__json *choir__json_next(const choir__json *value);

/* Stores the number; false if the value is no integer, or too large for one. */
bool choir__json_integer(const choir__json *value, int64_t *number);
double choir__json_real(const choir__json *value); /* value of a number */

#endif
