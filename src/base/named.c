/* Lookup by name in a table: see named.h. A name is read through the first member of its entry,
 * so no function here knows what a table's entries are otherwise. */
#include "base/named.h"

#include <stdio.h>
#include <string.h>

const char *choir__name_at(const choir__name_table *table, size_t at)
{
    const void *entry = (const char *)table->entries + at * table->size;
    if (table->pointers)
        entry = *(const void *const *)entry;
    return *(const char *const *)entry;
}

int choir__find_named(const choir__name_table *table, const char *name)
{
    for (size_t at = 0; at < table->count; at++)
        if (strcmp(choir__name_at(table, at), name) == 0)
            return (int)at;
    return -1;
}

const char *choir__list_names(const choir__name_table *table, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (size_t at = 0; at < table->count; at++) {
        const char *name = choir__name_at(table, at), *comma = at ? ", " : "";
        size_t length = strlen(comma) + strlen(name);
        if (used + length >= bytes)
            break;
        snprintf(text + used, bytes - used, "%s%s", comma, name);
        used += length;
    }
    return text;
}

choir_status choir__unknown_name(
    const choir__name_table *table, const char *kind, const char *name)
{
    char list[512];
    return choir__error(CHOIR_ERR_ARGUMENT, "unknown %s '%s': choose one of %s", kind, name,
        choir__list_names(table, list, sizeof list));
}
