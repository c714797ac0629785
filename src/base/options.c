/* Parsing of name:key=value,...: see options.h. */
#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    double x = strtod(text, &end);
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

static choir_status unknown_key(const char *what, const char *key, const choir__option *known)
{
    char list[512] = "";
    for (const choir__option *o = known; o->key; o++)
        snprintf(
            list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", o->key);
    return choir__error(CHOIR_ERR_ARGUMENT, "%s has no option '%s'%s%s", what, key,
        *list ? "; it has " : "", list);
}

static bool set(const choir__option *o, const char *value)
{
    switch (o->type) {
    case CHOIR__INT:
        return choir__parse_int(value, (int64_t)o->low, (int64_t)o->high, o->value);
    case CHOIR__FLOAT: return choir__parse_float(value, o->low, o->high, o->value);
    case CHOIR__FLAG:
        *(bool *)o->value = !strcmp(value, "1") || !strcmp(value, "true");
        return *(bool *)o->value || !strcmp(value, "0") || !strcmp(value, "false");
    case CHOIR__WORD: return snprintf(o->value, 64, "%s", value) < 64;
    case CHOIR__TEXT: return snprintf(o->value, 256, "%s", value) < 256;
    }
    return false;
}

static choir_status parse_pair(char *pair, const char *what, const choir__option *known)
{
    char *value = strchr(pair, '=');
    if (!value)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: '%s' is not key=value", what, pair);
    *value++ = '\0';
    for (const choir__option *o = known; o->key; o++) {
        if (strcmp(o->key, pair))
            continue;
        if (set(o, value))
            return CHOIR_OK;
        if (o->type == CHOIR__INT || o->type == CHOIR__FLOAT)
            return choir__error(CHOIR_ERR_ARGUMENT, "%s: %s=%s is not a number from %g to %g",
                what, pair, value, o->low, o->high);
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: %s=%s makes no sense", what, pair, value);
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
