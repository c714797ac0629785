/* Tables of things that have names: the lookup by name, and the sentence for a name that is in
 * none. A registry calls these, so that all of them answer a wrong name alike:
 *
 *     static const choir__engine_entry entries[] = {{"shm", ...}, {"ucx", ...}};
 *     static const choir__name_table table = CHOIR__NAME_TABLE(entries);
 *     int at = choir__find_named(&table, name);
 *     if (at < 0)
 *         return choir__unknown_name(&table, "backend", name);
 */
#ifndef CHOIR_NAMED_H
#define CHOIR_NAMED_H

#include "base/base.h"

/* The entries are structs whose first member is the `const char *` name, or the names
 * themselves; `pointers` says that they are pointers to such structs. */
typedef struct choir__name_table {
    const void *entries;
    size_t count, size; /* size: bytes of one entry */
    bool pointers;
} choir__name_table;

/* A choir__name_table of an array of structs or of names. */
#define CHOIR__NAME_TABLE(array)                                                               \
    {                                                                                          \
        array, CHOIR_COUNT(array), sizeof *(array), false                                      \
    }
/* A choir__name_table of an array of pointers to structs. */
#define CHOIR__NAME_TABLE_OF_POINTERS(array)                                                   \
    {                                                                                          \
        array, CHOIR_COUNT(array), sizeof *(array), true                                       \
    }

/* Returns the name of entry `at`, which must be below the table's count. */
const char *choir__name_at(const choir__name_table *table, size_t at);

/* Returns the index of the entry called `name`, or -1 if the table has none. */
int choir__find_named(const choir__name_table *table, const char *name);

/* Writes the table's names as "a, b, c" into text and returns it. Where not all fit into
 * `bytes`, and these are at least 65, the others are counted: "a, b and 998 more". */
const char *choir__list_names(const choir__name_table *table, char *text, size_t bytes);

/* Returns whether a user who wrote `word` may have meant name, and whether name is nearer to it
 * than *best, which then becomes its distance: two for each letter that differs, and one if the
 * lengths differ. Begin with INT_MAX. */
bool choir__is_nearer(const char *name, const char *word, int *best);

/* Returns CHOIR_ERR_ARGUMENT with the message "unknown <kind> '<name>': choose one of a, b, c",
 * after the name that may have been meant: "unknown backend 'shn' (did you mean 'shm'?): choose
 * one of". kind is the noun for an entry, such as "backend". */
choir_status choir__unknown_name(
    const choir__name_table *table, const char *kind, const char *name);

#endif
