/* Which parts of a model hold the memory of a strategy's fullest device. The parts that a
 * rehearsal noted are joined by kind and by name, with numbers of layers replaced by '*',
 * and sorted by bytes; `choir plan` prints the largest ones, and names the first in a
 * sentence. */
#include "cli/plan/holders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/plan/plan.h"

enum { MOST_LINES = 8, NAME = sizeof((choir__plan_holder *)0)->name };

/* Writes a name with '*' for numbers, and a parameter's without its last word. */
static void roll_up(const choir__rehearsed_part *part, char name[NAME])
{
    const bool results = !strcmp(part->kind, "activations");
    const char *c = part->name, *last = c && *c != '(' && !results ? strrchr(c, '.') : NULL,
               *end = last ? last : c + (c ? strlen(c) : 0);
    if (!c || !*c) {
        snprintf(name, NAME, "%s",
            c         ? "(the model itself)"
            : results ? "(batches and losses)"
                      : "(all modules)");
        return;
    }
    for (size_t used = 0; c < end && used < NAME; c += *c == '.') {
        const size_t word = strcspn(c, "."), digits = strspn(c, "0123456789");
        used += (size_t)snprintf(name + used, NAME - used, "%s%.*s", used ? "." : "",
            digits == word ? 1 : (int)word, digits == word ? "*" : c);
        c += word;
    }
}

static int by_name(const void *a, const void *b)
{
    const choir__plan_holder *x = a, *y = b;
    const int kinds = strcmp(x->kind, y->kind);
    return kinds ? kinds : strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b)
{
    const choir__plan_holder *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_name(a, b);
}

choir__plan_holder *choir__plan_holders(
    const choir__rehearsed_part *parts, int part_count, int *count)
{
    choir__plan_holder *all = choir__calloc((size_t)part_count + 1, sizeof *all);
    for (int i = 0; i < part_count; i++) {
        all[i].kind = parts[i].kind;
        all[i].bytes = (double)parts[i].bytes;
        roll_up(&parts[i], all[i].name);
    }
    qsort(all, (size_t)part_count, sizeof *all, by_name);
    *count = 0;
    for (int i = 0; i < part_count; i++)
        if (*count && !by_name(&all[*count - 1], &all[i]))
            all[*count - 1].bytes += all[i].bytes;
        else
            all[(*count)++] = all[i];
    qsort(all, (size_t)*count, sizeof *all, by_bytes);
    return all;
}

/* Returns the kind that has most bytes. */
static const char *largest_kind(const choir__plan_holder *all, int count)
{
    const char *largest = "nothing";
    double most = 0;
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < count; k++)
            sum += strcmp(all[i].kind, all[k].kind) ? 0 : all[k].bytes;
        if (sum > most) {
            most = sum;
            largest = all[i].kind;
        }
    }
    return largest;
}

void choir__plan_say_holder(const choir__rehearsal *r, char *text, size_t bytes)
{
    int count, first = 0;
    choir__plan_holder *all = choir__plan_holders(r->parts, r->part_count, &count);
    const char *kind = largest_kind(all, count);
    while (first < count && strcmp(all[first].kind, kind))
        first++;
    snprintf(text, bytes, "most of it is %s, above all of %s",
        !strcmp(kind, "optimizer") ? "the optimizer's state" : kind,
        first < count ? all[first].name : "no one");
    free(all);
}

void choir__plan_print_holders(const choir__plan_entry *e)
{
    int count;
    choir__plan_holder *all =
        choir__plan_holders(e->rehearsal.parts, e->rehearsal.part_count, &count);
    double sum = 0, rest = 0;
    for (int i = 0; i < count; i++)
        sum += all[i].bytes;
    printf("\nWhat holds the memory of the fullest device of %s:\n\n", e->text);
    for (int i = 0; i < count && i < MOST_LINES; i++)
        printf("%10.1f MiB %3.0f %%  %-12s %s\n", all[i].bytes / 1048576,
            100 * all[i].bytes / sum, all[i].kind, all[i].name);
    for (int i = MOST_LINES; i < count; i++)
        rest += all[i].bytes;
    if (rest > 0)
        printf("%10.1f MiB %3.0f %%  %-12s %d more\n", rest / 1048576, 100 * rest / sum,
            "the rest", count - MOST_LINES);
    free(all);
}
