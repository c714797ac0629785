/* Reading "name:key=value,..." by a table of keys: numbers within limits, bytes with K, M or G,
 * flags, words. A wrong value is answered by the expected form and range, an unknown key by the
 * nearest known one and the list. */
#include "base/options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/named.h"
#include "base/number.h"

bool choir__parse_int(const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < low || n > high)
        return false;
    *value = n;
    return true;
}

bool choir__parse_float(const char *text, double low, double high, double *value)
{
    char *end;
    double x = choir__number_read(text, &end);
    if (end == text || *end || !isfinite(x) || x < low || x > high)
        return false;
    *value = x;
    return true;
}

bool choir__parse_bytes(const char *text, int64_t *value)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || n < 0)
        return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1]))
        return false;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (n > INT64_MAX >> shift)
        return false;
    *value = (int64_t)n << shift;
    return true;
}

choir_status choir__options_name(const char *text, char *name, size_t bytes)
{
    size_t length = strcspn(text, ":");
    if (length + 1 > bytes)
        return choir__error(CHOIR_ERR_ARGUMENT, "'%s' is too long a name", text);
    memcpy(name, text, length);
    name[length] = '\0';
    return CHOIR_OK;
}

choir_status choir__options_find(
    const char *text, const choir__name_table *table, const char *kind, int *at)
{
    char name[64];
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    *at = choir__find_named(table, name);
    return *at < 0 ? choir__unknown_name(table, kind, name) : CHOIR_OK;
}

static choir_status unknown_key(const char *what, const char *key, const choir__option *known)
{
    char list[512] = "";
    const char *near = NULL;
    int best = INT_MAX;
    for (const choir__option *o = known; o->key; o++) {
        snprintf(
            list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", o->key);
        if (choir__is_nearer(o->key, key, &best))
            near = o->key;
    }
    return choir__error(CHOIR_ERR_ARGUMENT, "%s: unknown option '%s'%s%s%s%s%s", what, key,
        near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
        *list ? ": choose one of " : "; it has no options", list);
}

/* A limit as an integer. */
static int64_t limit(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

bool choir__option_set(const choir__option *o, const char *text)
{
    switch (o->type) {
    case CHOIR__INT: return choir__parse_int(text, limit(o->low), limit(o->high), o->value);
    case CHOIR__FLOAT: return choir__parse_float(text, o->low, o->high, o->value);
    case CHOIR__SINGLE: {
        double x;
        if (!choir__parse_float(text, o->low, o->high, &x))
            return false;
        *(float *)o->value = (float)x;
        return true;
    }
    case CHOIR__BYTES: {
        int64_t bytes;
        if (!choir__parse_bytes(text, &bytes) || bytes < limit(o->low) ||
            bytes > limit(o->high))
            return false;
        *(int64_t *)o->value = bytes;
        return true;
    }
    case CHOIR__FLAG:
        *(bool *)o->value = !strcmp(text, "1") || !strcmp(text, "true");
        return *(bool *)o->value || !strcmp(text, "0") || !strcmp(text, "false");
    case CHOIR__WORD: return snprintf(o->value, 64, "%s", text) < 64;
    case CHOIR__TEXT: return snprintf(o->value, 256, "%s", text) < 256;
    case CHOIR__STRING: *(const char **)o->value = text; return true;
    }
    return false;
}

/* Beyond this number a range is described without its upper end. */
static const double no_limit = 1e12;

const char *choir__option_expected(const choir__option *o, char text[CHOIR__EXPECTED_TEXT])
{
    const char *kind = o->type == CHOIR__INT ? "a whole number" : "a number";
    switch (o->type) {
    case CHOIR__BYTES:
        snprintf(text, CHOIR__EXPECTED_TEXT,
            "a whole number of bytes of at least %g, as 500M or 2G", o->low);
        break;
    case CHOIR__INT:
    case CHOIR__FLOAT:
    case CHOIR__SINGLE:
        if (o->high >= no_limit)
            snprintf(text, CHOIR__EXPECTED_TEXT, "%s of at least %g", kind, o->low);
        else
            snprintf(
                text, CHOIR__EXPECTED_TEXT, "%s from %.12g to %.12g", kind, o->low, o->high);
        break;
    case CHOIR__FLAG: snprintf(text, CHOIR__EXPECTED_TEXT, "true or false"); break;
    default:
        snprintf(text, CHOIR__EXPECTED_TEXT, "a text of at most %d bytes",
            o->type == CHOIR__WORD ? 63 : 255);
    }
    return text;
}

static choir_status parse_pair(char *pair, const char *what, const choir__option *known)
{
    char *value = strchr(pair, '=');
    if (!value)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: expected key=value, got '%s'", what, pair);
    *value++ = '\0';
    for (const choir__option *o = known; o->key; o++) {
        if (strcmp(o->key, pair))
            continue;
        if (choir__option_set(o, value))
            return CHOIR_OK;
        char expected[CHOIR__EXPECTED_TEXT];
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: %s=%s: expected %s", what, pair, value,
            choir__option_expected(o, expected));
    }
    return unknown_key(what, pair, known);
}

choir_status choir__options_parse(
    const char *text, const char *what, const choir__option *known)
{
    const char *colon = strchr(text, ':');
    if (!colon || !colon[1])
        return CHOIR_OK;
    char *copy = choir__strdup(colon + 1), *rest = copy, *pair;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (pair = strsep(&rest, ",")))
        status = parse_pair(pair, what, known);
    free(copy);
    return status;
}

/* --- writing --- */

/* Writes the option's value; returns false if it may not be given. */
static bool write_value(const choir__option *o, char text[256])
{
    double x = o->low;
    switch (o->type) {
    case CHOIR__INT:
    case CHOIR__BYTES:
        x = (double)*(const int64_t *)o->value;
        snprintf(text, 256, "%lld", (long long)*(const int64_t *)o->value);
        break;
    case CHOIR__FLOAT:
        x = *(const double *)o->value;
        choir__number_text(x, text);
        break;
    case CHOIR__SINGLE:
        x = (double)*(const float *)o->value;
        choir__single_text((float)x, text);
        break;
    case CHOIR__FLAG:
        snprintf(text, 256, "%s", *(const bool *)o->value ? "true" : "false");
        break;
    case CHOIR__WORD:
    case CHOIR__TEXT: snprintf(text, 256, "%s", (const char *)o->value); break;
    case CHOIR__STRING: snprintf(text, 256, "%s", *(const char *const *)o->value); break;
    }
    return *text && x >= o->low && x <= o->high;
}

char *choir__options_text(const char *name, const choir__option *known)
{
    char *all = choir__strdup(name), value[256];
    for (const char *space = ":"; known->key; known++) {
        if (!write_value(known, value))
            continue;
        char *longer = choir__format("%s%s%s=%s", all, space, known->key, value);
        free(all);
        all = longer;
        space = ",";
    }
    return all;
}
