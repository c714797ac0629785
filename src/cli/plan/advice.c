/* The advice of a plan: the fastest strategy that fits, among those with the bits of one
 * device; where times are unknown, the one whose fullest device holds least. */
#include "cli/plan/plan.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static size_t fullest(const choir__plan_entry *e)
{
    size_t most = 0;
    for (int i = 0; i < e->rehearsal.device_count; i++)
        most = choir__max(most, e->rehearsal.devices[i].counts.bytes_peak);
    return most;
}

static bool is_better(const choir__plan_entry *a, const choir__plan_entry *b)
{
    if (a->apart != b->apart) /* advice changes no numbers */
        return b->apart;
    if (isfinite(a->price.ms) && isfinite(b->price.ms))
        return a->price.ms < b->price.ms;
    return fullest(a) < fullest(b);
}

const choir__plan_entry *choir__plan_best(const choir__planning *p)
{
    const choir__plan_entry *best = NULL;
    for (int i = 0; i < p->count; i++) {
        const choir__plan_entry *e = &p->entries[i];
        if (e->planned && e->fits && (!best || is_better(e, best)))
            best = e;
    }
    return best;
}

/* Names the two mildest remedies. */
static char *sentence_of_remedies(const choir__planning *p)
{
    char size[2][32];
    const choir__plan_remedy *r = p->remedies;
    choir__plan_size(r->bytes, size[0]);
    if (p->remedy_count == 1)
        return choir__format("No strategy fits. %s would fit with %s (%s).", p->nearest->text,
            r[0].words, size[0]);
    return choir__format("No strategy fits. %s would fit with %s (%s), or with %s (%s).",
        p->nearest->text, r[0].words, size[0], r[1].words,
        choir__plan_size(r[1].bytes, size[1]));
}

char *choir__plan_sentence(const choir__planning *p, const choir__plan_entry *best)
{
    char size[32], time[32];
    if (!best) {
        bool any = false;
        for (int i = 0; i < p->count; i++)
            any |= p->entries[i].planned;
        if (any && p->remedy_count)
            return sentence_of_remedies(p);
        return choir__strdup(
            any ? "No strategy fits, nor would recomputation, smaller micro-batches, "
                  "adapters or more machines be enough."
                : "No strategy can run this job on these devices.");
    }
    choir__plan_size((double)fullest(best), size);
    return isfinite(best->price.ms)
               ? choir__format(
                     "Take %s: it fits with %s on its fullest device, and a step of %s "
                     "is the shortest of all that fit.",
                     best->text, size, choir__plan_time(best->price.ms, time))
               : choir__format("Take %s: of the strategies that fit, its fullest device holds "
                               "least, %s.",
                     best->text, size);
}

/* --- the command line --- */

/* Adds a word as a shell reads it. */
static char *with_word(char *line, const char *word)
{
    bool plain = *word != '\0';
    for (const char *c = word; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("-_=.,:/+@%", *c));
    char *longer = choir__format(plain ? "%s %s" : "%s '%s'", line, word);
    free(line);
    return longer;
}

static char *with_option(char *line, const char *name, const char *value)
{
    char *option = choir__format("--%s=%s", name, value);
    line = with_word(line, option);
    free(option);
    return line;
}

char *choir__plan_command(
    const choir__planning *p, const choir__plan_entry *e, const char *more)
{
    char number[24];
    char *line = with_option(choir__strdup("choir train"), "strategy", e->text);
    if (*e->mesh)
        line = with_option(line, "mesh", e->mesh);
    line = with_option(line, "devices", p->devices);
    snprintf(number, sizeof number, "%lld", (long long)e->microbatches);
    line = with_option(line, "microbatches", number);
    char *longer = choir__format("%s%s", line, more);
    free(line);
    return choir__plan_with_args(p, longer);
}

char *choir__plan_with_args(const choir__planning *p, char *line)
{
    for (int i = 0; i < p->arg_count; i++)
        line = with_word(line, p->args[i]);
    return line;
}
