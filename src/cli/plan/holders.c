/* The holders of a strategy's fullest device, as people read them: parts of equal layers are
 * one, as in "activations of blocks.*.attn". */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { MOST_LINES = 8, NAME = 128 };

typedef struct holder {
    const char *kind;
    char name[NAME];
    double bytes;
} holder;

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

static int by_bytes(const void *a, const void *b)
{
    const holder *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    const int kinds = strcmp(x->kind, y->kind);
    return kinds ? kinds : strcmp(x->name, y->name);
}

/* Returns them, the largest first; the caller frees the array. */
static holder *holders_of(const choir__rehearsal *r, int *count)
{
    holder *all = NULL;
    *count = 0;
    for (int i = 0; i < r->part_count; i++) {
        holder h = {.kind = r->parts[i].kind, .bytes = (double)r->parts[i].bytes};
        int k = 0;
        roll_up(&r->parts[i], h.name);
        while (k < *count && (strcmp(all[k].kind, h.kind) || strcmp(all[k].name, h.name)))
            k++;
        if (k < *count) {
            all[k].bytes += h.bytes;
            continue;
        }
        CHOIR__GROW(all, *count);
        all[(*count)++] = h;
    }
    if (all)
        qsort(all, (size_t)*count, sizeof *all, by_bytes);
    return all;
}

/* Returns the kind that has most bytes. */
static const char *largest_kind(const holder *all, int count)
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
    holder *all = holders_of(r, &count);
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
    holder *all = holders_of(&e->rehearsal, &count);
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
