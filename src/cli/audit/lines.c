/* Two lines of one step. Their kinds are compared in the order in which a step's numbers depend
 * on each other: inputs, batch, losses, gradients, results. */
#include "cli/audit/audit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

choir__parting choir__parting_none(void)
{
    return (choir__parting){.step = -1,
        .exact_step = -1,
        .microbatch = -1,
        .operand = -1,
        .index = -1,
        .value = {(double)NAN, (double)NAN}};
}

void choir__parting_free(choir__parting *p)
{
    free(p->module);
    free(p->op);
    free(p->op_module);
    free(p->tensor);
    free(p->note);
    *p = choir__parting_none();
}

/* --- kinds --- */

typedef struct kind {
    const char *key, *name;
    bool read, micro;
} kind;

static const kind kinds[] = {
    {.key = "read_weights", .name = "weight", .read = true},
    {.key = "read_state", .name = "state", .read = true},
    {.key = "key", .name = "key"},
    {.key = "samples", .name = "batch", .micro = true},
    {.key = "batch", .name = "batch", .micro = true},
    {.key = "losses", .name = "loss", .micro = true},
    {.key = "loss", .name = "loss"},
    {.key = "gradients", .name = "gradient"},
    {.key = "weights", .name = "weight"},
    {.key = "state", .name = "state"},
};

/* Returns whether two values are known and differ. */
static bool differ(const json_t *a, const json_t *b)
{
    return json_is_string(a) && json_is_string(b) && !json_equal(a, b);
}

/* Compares two lists of hashes. Returns the first position that differs, or -1. */
static int first_other(const json_t *a, const json_t *b, int *more)
{
    int first = -1;
    size_t most = json_array_size(a);
    *more = 0;
    for (size_t i = 0; i < most; i++) {
        if (!differ(json_array_get(a, i), json_array_get(b, i)))
            continue;
        *more += first >= 0;
        first = first < 0 ? (int)i : first;
    }
    return first;
}

static bool compare_kind(
    const kind *k, const json_t *a, const json_t *b, const json_t *modules, choir__parting *p)
{
    const json_t *x = json_object_get(a, k->key), *y = json_object_get(b, k->key);
    if (k->micro && json_array_size(x) != json_array_size(y))
        return false; /* the micro-batches are other ones */
    int at = json_is_array(x) ? first_other(x, y, &p->more) : -1;
    if (at < 0 && !differ(x, y))
        return false;
    p->found = true;
    p->step = json_integer_value(json_object_get(a, "step"));
    p->kind = k->name;
    p->read = k->read;
    if (at >= 0 && k->micro)
        p->microbatch = at;
    else if (at >= 0)
        p->module = choir__strdup(json_string_value(json_array_get(modules, (size_t)at)));
    return true;
}

void choir__lines_compare(
    const json_t *a, const json_t *b, const json_t *modules, choir__parting *p)
{
    size_t cut_a = json_array_size(json_object_get(a, "samples")),
           cut_b = json_array_size(json_object_get(b, "samples"));
    for (size_t i = 0; i < CHOIR_COUNT(kinds) && !p->found; i++)
        compare_kind(&kinds[i], a, b, modules, p);
    if (p->found && cut_a && cut_b && cut_a != cut_b && !p->note)
        p->note = choir__format(
            "the batch is cut into %zu and %zu micro-batches, whose samples are not compared: "
            "another cut rounds sums otherwise",
            cut_a, cut_b);
}

/* --- modules --- */

static bool has(const json_t *list, const json_t *name)
{
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        if (json_equal(entry, name))
            return true;
    }
    return false;
}

/* Returns the first name of a list that another one lacks, or NULL. */
static const char *lacking(const json_t *list, const json_t *other)
{
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        if (!has(other, entry))
            return json_string_value(entry);
    }
    return NULL;
}

choir_status choir__lines_same_modules(
    const char *path_a, const choir__chain *a, const char *path_b, const choir__chain *b)
{
    const json_t *x = json_object_get(a->begin, "modules"),
                 *y = json_object_get(b->begin, "modules");
    const char *of_a = lacking(x, y), *of_b = lacking(y, x);
    if (!of_a && !of_b)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "the runs have different models: %s has a module '%.200s', which %s lacks",
        of_a ? path_a : path_b, of_a ? of_a : of_b, of_a ? path_b : path_a);
}
