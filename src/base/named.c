/* Lookup by name in a table of entries, and the sentence about an unknown name, which lists
 * the table's names and suggests the nearest one. Only the first member of an entry, its
 * name, is read, so one function serves all registries. */
#include "base/named.h"

#include <limits.h>
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

enum { LONGEST = 100, OTHERS = 32 }; /* bytes of a name, and of the number of others */

/* Returns the bytes of a name in a list; a long name loses its end. */
static size_t listed_bytes(const char *name)
{
    size_t bytes = strnlen(name, LONGEST + 1);
    return bytes > LONGEST ? LONGEST + strlen("...") : bytes;
}

const char *choir__list_names(const choir__name_table *table, char *text, size_t bytes)
{
    size_t used = 0, all = 0;
    for (size_t at = 0; at < table->count && all < bytes; at++)
        all += (at ? strlen(", ") : 0) + listed_bytes(choir__name_at(table, at));
    bool counts = all >= bytes && bytes > 2 * OTHERS;
    size_t room = counts ? bytes - OTHERS : bytes;
    *text = '\0';
    for (size_t at = 0; at < table->count; at++) {
        const char *name = choir__name_at(table, at), *comma = at ? ", " : "";
        size_t length = listed_bytes(name);
        if (used + strlen(comma) + length >= room) {
            if (counts)
                snprintf(text + used, bytes - used, " and %zu more", table->count - at);
            break;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*s%s", comma, LONGEST, name,
            length > LONGEST ? "..." : "");
    }
    return text;
}

/* Returns the number of letters to insert, delete, replace or swap with the next one, to make a
 * of b (Damerau and Levenshtein's distance without overlaps); at most MOST_LETTERS letters
 * count. */
static int distance(const char *a, const char *b)
{
    enum { MOST_LETTERS = 40 };
    int d[MOST_LETTERS + 1][MOST_LETTERS + 1];
    int n = (int)strnlen(a, MOST_LETTERS), m = (int)strnlen(b, MOST_LETTERS);
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = (int)choir__min(best, choir__min(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = (int)choir__min(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    return d[n][m];
}

bool choir__is_nearer(const char *name, const char *word, int *best)
{
    int length = (int)strlen(word), apart = distance(name, word);
    bool begins = length > 2 && !strncmp(name, word, (size_t)length);
    if (begins)
        apart = 1;
    int far = 2 * apart + ((int)strlen(name) != length); /* dpp may rather be ddp than dp */
    if (far >= *best || (!begins && apart > (length + 1) / 3))
        return false;
    *best = far;
    return true;
}

choir_status choir__unknown_name(
    const choir__name_table *table, const char *kind, const char *name)
{
    char list[512];
    const char *near = NULL;
    int best = INT_MAX;
    for (size_t at = 0; at < table->count; at++)
        if (choir__is_nearer(choir__name_at(table, at), name, &best))
            near = choir__name_at(table, at);
    return choir__error(CHOIR_ERR_ARGUMENT, "unknown %s '%s'%s%s%s: choose one of %s", kind,
        name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
        choir__list_names(table, list, sizeof list));
}
