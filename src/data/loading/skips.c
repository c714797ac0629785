/* A sorted list of ranges of batches, and the arithmetic between steps and batches. Adjacent
 * ranges are joined, so that two lists of the same batches have the same text. */
#include "data/loading/skips.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"

static const int64_t most = INT64_C(1) << 52; /* sums of steps and batches do not overflow */

static int ascending(const void *a, const void *b)
{
    const choir__skips_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the ranges, and joins neighbours. */
static void settle(choir__skips *s)
{
    int kept = 0;
    if (!s->count)
        return;
    qsort(s->ranges, (size_t)s->count, sizeof *s->ranges, ascending);
    for (int i = 1; i < s->count; i++) {
        choir__skips_range *before = &s->ranges[kept];
        if (s->ranges[i].first <= before->last + 1)
            before->last = choir__max(before->last, s->ranges[i].last);
        else
            s->ranges[++kept] = s->ranges[i];
    }
    s->count = kept + 1;
}

static void push(choir__skips *s, choir__skips_range range)
{
    CHOIR__GROW(s->ranges, s->count);
    s->ranges[s->count++] = range;
}

void choir__skips_add_range(choir__skips *s, int64_t first, int64_t last)
{
    push(s, (choir__skips_range){choir__min(first, most), choir__min(last, most)});
    settle(s);
}

/* Reads "412:416", batches 412 to 415, or "500" for a single batch. */
static choir_status add_word(choir__skips *s, char *word)
{
    choir__skips_range r;
    char *colon = strchr(word, ':'), *end = colon ? colon + 1 : word;
    if (colon)
        *colon = '\0';
    bool numbers =
        choir__parse_int(word, 1, most, &r.first) && choir__parse_int(end, 1, most, &r.last);
    if (colon)
        *colon = ':';
    if (!numbers)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected numbers of batches from 1, such as 412:416,500, got '%s'", word);
    if (colon && r.first >= r.last)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected a range FIRST:END of batches before END, got '%s'", word);
    r.last -= colon != NULL;
    push(s, r);
    return CHOIR_OK;
}

choir_status choir__skips_add(choir__skips *s, const char *text)
{
    char *list = choir__strdup(text ? text : ""), *rest = text ? list : NULL, *word;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (word = strsep(&rest, ",")))
        status = add_word(s, word);
    free(list);
    settle(s);
    return status;
}

void choir__skips_free(choir__skips *s)
{
    free(s->ranges);
    *s = (choir__skips){0};
}

int64_t choir__skips_batch(const choir__skips *s, int64_t step)
{
    int64_t batch = step;
    for (int i = 0; i < s->count && s->ranges[i].first <= batch; i++)
        batch += s->ranges[i].last - s->ranges[i].first + 1;
    return batch;
}

char *choir__skips_text(const choir__skips *s, int64_t last)
{
    choir__text_buffer text = {0};
    for (int i = 0; i < s->count && s->ranges[i].first <= last; i++) {
        long long from = (long long)s->ranges[i].first,
                  to = (long long)choir__min(s->ranges[i].last, last);
        choir__text_format(&text, "%s%lld", i ? "," : "", from);
        if (from != to)
            choir__text_format(&text, ":%lld", to + 1);
    }
    char *made = text.used ? choir__strdup(text.bytes) : NULL;
    choir__text_buffer_free(&text);
    return made;
}
