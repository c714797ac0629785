/* Distributions as people write them: "log(1e-5, 0.1)", "int(1, 8, step=2)", "choice(a, b)".
 *
 * A text is a name with arguments in parentheses, separated by commas, or a single value. The
 * kinds are in one table. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/map.h"
#include "base/named.h"
#include "base/options.h"
#include "base/number.h"
#include "tune/space/space.h"

enum { MOST_CHOICES = 10000 };

typedef struct kind {
    const char *name;
    choir__dist_kind kind;
    const char *arguments; /* for messages */
} kind;

static const kind kinds[] = {
    {"uniform", CHOIR__UNIFORM, "(low, high)"},
    {"log", CHOIR__LOG, "(low, high)"},
    {"int", CHOIR__INTEGER, "(low, high[, step=K][, log])"},
    {"choice", CHOIR__CHOICE, "(x, y, ...)"},
    {"normal", CHOIR__NORMAL, "(mean, deviation)"},
};
static const choir__name_table names = CHOIR__NAME_TABLE(kinds);

/* A distribution that is being read. */
typedef struct reader {
    const char *name; /* name of the parameter */
    const char *text, *end;
    choir__dist *dist;
    const kind *kind;
    int numbers;      /* read so far */
    choir__map words; /* the choices */
} reader;

static choir_status refuse(const reader *r, const char *expected)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "parameter %s: expected %s, got '%.*s'", r->name,
        expected, (int)(r->end - r->text), r->text);
}

static bool number_of(const char *text, double *value)
{
    return choir__parse_float(text, -1e300, 1e300, value);
}

/* --- arguments --- */

/* Takes text (bytes) as a choice. */
static choir_status add_choice(reader *r, const char *text, size_t bytes, bool quoted)
{
    choir__dist *d = r->dist;
    if (d->choice_count == MOST_CHOICES)
        return choir__error(CHOIR_ERR_ARGUMENT, "parameter %s: expected at most %d choices",
            r->name, MOST_CHOICES);
    choir__choice c = {.text = choir__format("%.*s", (int)bytes, text)};
    c.is_number = !quoted && number_of(c.text, &c.number);
    if (choir__map_find(&r->words, c.text) >= 0) {
        choir_status status =
            choir__error(CHOIR_ERR_ARGUMENT, "parameter %s: '%s' is there twice in '%.*s'",
                r->name, c.text, (int)(r->end - r->text), r->text);
        free(c.text);
        return status;
    }
    CHOIR__GROW(d->choices, d->choice_count);
    choir__map_put(&r->words, c.text, d->choice_count);
    d->choices[d->choice_count++] = c;
    return CHOIR_OK;
}

static choir_status add_number(reader *r, const char *text)
{
    choir__dist *d = r->dist;
    if (r->kind->kind == CHOIR__INTEGER && !strcmp(text, "log")) {
        d->log = true;
        return CHOIR_OK;
    }
    if (r->kind->kind == CHOIR__INTEGER && !strncmp(text, "step=", 5)) {
        if (number_of(text + 5, &d->step) && d->step >= 1 && d->step == floor(d->step))
            return CHOIR_OK;
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parameter %s: expected a whole step of 1 or more, got '%s'", r->name, text + 5);
    }
    if (r->numbers < 2 && number_of(text, r->numbers ? &d->high : &d->low)) {
        r->numbers++;
        return CHOIR_OK;
    }
    char *expected = choir__format("%s%s", r->kind->name, r->kind->arguments);
    choir_status status = refuse(r, expected);
    free(expected);
    return status;
}

/* Quotes enclose a whole value, or have no place in it: a single one would hide all commas
 * behind it. */
static choir_status check_quotes(const reader *r, const char *from, const char *to)
{
    char quote = *from == '\'' || *from == '"' ? *from : 0;
    const char *first = quote ? memchr(from + 1, quote, (size_t)(to - from - 1)) : NULL;
    if (quote && first == to - 1)
        return CHOIR_OK;
    if (!quote && !memchr(from, '\'', (size_t)(to - from)) &&
        !memchr(from, '"', (size_t)(to - from)))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "parameter %s: expected quotes around a whole value, got '%.*s'", r->name,
        (int)(to - from), from);
}

/* Returns the end of the argument at `at`: the next comma outside of quotes, or `end`. */
static const char *argument_end(const char *at, const char *end)
{
    for (char quote = 0; at < end; at++) {
        if (quote ? *at == quote : *at == '\'' || *at == '"')
            quote = quote ? 0 : *at;
        else if (!quote && *at == ',')
            break;
    }
    return at;
}

static choir_status add_argument(reader *r, const char *from, const char *to)
{
    while (from < to && isspace((unsigned char)*from))
        from++;
    while (to > from && isspace((unsigned char)to[-1]))
        to--;
    if (from == to)
        return refuse(r, "a value between the commas");
    if (r->kind->kind == CHOIR__CHOICE) {
        bool quoted = *from == '\'' || *from == '"';
        choir_status status = check_quotes(r, from, to);
        return status == CHOIR_OK ? add_choice(r, from + quoted,
                                        (size_t)(to - from) - 2 * (size_t)quoted, quoted)
                                  : status;
    }
    char *text = choir__format("%.*s", (int)(to - from), from);
    choir_status status = add_number(r, text);
    free(text);
    return status;
}

/* --- whole distributions --- */

/* Checks the numbers, and moves an int's end onto its grid. */
static choir_status check(reader *r)
{
    choir__dist *d = r->dist;
    d->step = d->kind == CHOIR__INTEGER ? d->step : 0;
    if (d->kind == CHOIR__CHOICE)
        return d->choice_count ? CHOIR_OK : refuse(r, "at least one choice");
    if (r->numbers < 2)
        return refuse(r, "two numbers");
    if (d->kind == CHOIR__NORMAL)
        return d->high > 0 ? CHOIR_OK : refuse(r, "a standard deviation above 0");
    if (d->low > d->high)
        return refuse(r, "a range that is not empty (low, then high)");
    if ((d->kind == CHOIR__LOG || d->log) && d->low <= 0)
        return refuse(r, "a range above 0, since its logarithm is taken");
    if (d->kind != CHOIR__INTEGER)
        return CHOIR_OK;
    if (d->low != floor(d->low) || d->high != floor(d->high) || fabs(d->low) > 0x1p53 ||
        fabs(d->high) > 0x1p53)
        return refuse(r, "whole numbers");
    if (d->log && d->step != 1)
        return refuse(r, "step=1 beside log");
    d->high = d->low + d->step * floor((d->high - d->low) / d->step);
    return CHOIR_OK;
}

/* The text before '(' is the name of a kind. */
static choir_status read_kind(reader *r, const char *open)
{
    const char *last = open;
    while (last > r->text && isspace((unsigned char)last[-1]))
        last--;
    char *word = choir__format("%.*s", (int)(last - r->text), r->text);
    int at = choir__find_named(&names, word);
    choir_status status = CHOIR_OK;
    if (at >= 0)
        r->kind = &kinds[at];
    else
        status = choir__unknown_name(&names, "distribution", word);
    free(word);
    return status;
}

static choir_status read_whole(reader *r)
{
    const char *text = r->text, *end = r->end;
    bool quoted = *text == '\'' || *text == '"';
    const char *open = quoted ? NULL : memchr(text, '(', (size_t)(end - text));
    if (!open) /* a single value */
        return add_argument(r, text, end);
    if (end[-1] != ')')
        return refuse(r, "')' at the end");
    choir_status status = read_kind(r, open);
    if (status == CHOIR_OK)
        r->dist->kind = r->kind->kind;
    const char *next = open;
    while (status == CHOIR_OK && next < end - 1 && end - open > 2) {
        const char *at = next + 1;
        next = argument_end(at, end - 1);
        status = add_argument(r, at, next);
    }
    return status == CHOIR_OK ? check(r) : status;
}

choir_status choir__dist_parse(
    const char *name, const char *text, const char *end, choir__dist *dist)
{
    while (text < end && isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *dist = (choir__dist){.kind = CHOIR__CHOICE, .step = 1};
    reader r = {.name = name, .text = text, .end = end, .dist = dist, .kind = &kinds[3]};
    if (text == end)
        return refuse(&r, "a distribution or a value");
    choir_status status = read_whole(&r);
    choir__map_free(&r.words);
    return status;
}

void choir__dist_free(choir__dist *d)
{
    for (int i = 0; i < d->choice_count; i++) {
        free(d->choices[i].text);
        free(d->choices[i].json);
    }
    free(d->choices);
    *d = (choir__dist){0};
}

/* --- values --- */

/* A number is one of the distribution's values if going there and back does not change it. */
choir_status choir__dist_read(
    const choir__dist *d, const char *name, const char *text, double *value)
{
    double x = 0;
    bool is_number = number_of(text, &x);
    for (int i = 0; i < d->choice_count; i++)
        if (!strcmp(d->choices[i].text, text) ||
            (is_number && d->choices[i].is_number && d->choices[i].number == x)) {
            *value = i;
            return CHOIR_OK;
        }
    bool whole = d->kind != CHOIR__INTEGER || fmod(x - d->low, d->step) == 0;
    bool inside = d->kind == CHOIR__NORMAL || (x >= d->low && x <= d->high);
    if (d->kind == CHOIR__CHOICE || !is_number || !whole || !inside)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parameter %s: '%s' is not a value of its distribution", name, text);
    *value = x;
    return CHOIR_OK;
}

char *choir__dist_write(const choir__dist *d, double value)
{
    if (d->kind == CHOIR__CHOICE)
        return choir__strdup(d->choices[(int)value].text);
    if (d->kind == CHOIR__INTEGER)
        return choir__format("%.0f", value);
    char text[CHOIR__NUMBER_TEXT];
    choir__number_text(value, text);
    return choir__strdup(text);
}
