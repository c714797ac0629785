/* Cuts by hand: the caller names the op with which each stage begins, by its module's path or
 * by its number. Paths are checked when the pipeline is made, ops when they are known. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"

/* --- names --- */

bool choir__pipeline_is_inside(const char *path, const char *name, size_t length)
{
    return !strncmp(path, name, length) && (path[length] == '\0' || path[length] == '.');
}

int choir__pipeline_cut_path(const char *cut, size_t *length)
{
    char *end;
    long number = strtol(cut, &end, 10);
    if (end != cut && *end == '\0')
        return number < 0 ? -2 : -1;
    const char *plus = strchr(cut, '+');
    *length = plus ? (size_t)(plus - cut) : strlen(cut);
    if (!plus)
        return 0;
    number = strtol(plus + 1, &end, 10);
    return end == plus + 1 || *end != '\0' || number < 0 || number > INT_MAX ? -2 : (int)number;
}

struct search {
    const char *name;
    size_t length;
    bool found;
    char choices[200];
};

static void search_in(struct search *s, const choir_module *m)
{
    s->found |= choir__pipeline_is_inside(m->path, s->name, s->length);
    for (const choir__module_entry *e = m->inside->entries; e && !s->found; e = e->next)
        if (e->kind == CHOIR__CHILD)
            search_in(s, e->child);
}

static void add_choice(choir_module *block, void *arg)
{
    struct search *s = arg;
    size_t used = strlen(s->choices);
    if (used + strlen(block->path) + 8 < sizeof s->choices)
        snprintf(
            s->choices + used, sizeof s->choices - used, "%s%s", used ? ", " : "", block->path);
    else if (strcmp(s->choices + used - 3, "..."))
        snprintf(s->choices + used, sizeof s->choices - used, ", ...");
}

choir_status choir__pipeline_check_cuts(const choir__pipeline *p)
{
    for (int s = 1; s < p->stages; s++) {
        struct search search = {.name = p->cut_names[s - 1]};
        int ops = choir__pipeline_cut_path(search.name, &search.length);
        if (ops == -2 || !*search.name)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d: expected the path of a module, maybe with '+' and a number "
                "of ops, or the number of an op, got '%s'",
                s, search.name);
        if (ops >= 0)
            search_in(&search, p->module);
        if (ops < 0 || search.found)
            continue;
        choir__module_blocks(p->module, add_choice, &search);
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: stage %d is to begin at unknown module '%.*s': choose one of %s, or a "
            "module in them",
            s, (int)search.length, search.name, search.choices);
    }
    return CHOIR_OK;
}

/* --- ops --- */

/* Returns the op that "layer2.0+3" or "170" names; -1: none. */
static int named_op(const choir__pipeline *p, const char *name)
{
    size_t length;
    int later = choir__pipeline_cut_path(name, &length);
    if (later == -1)
        return strtol(name, NULL, 10) < p->ops ? (int)strtol(name, NULL, 10) : -1;
    for (int i = 0; i < p->ops; i++)
        if (choir__pipeline_is_inside(p->paths[i], name, length))
            return later < p->ops - i ? i + later : -1;
    return -1;
}

static bool has_param(const choir__pipeline *p, int from, int to)
{
    for (int u = 0; u < p->use_count; u++)
        if (p->uses[u].tensor->param && p->uses[u].op >= from && p->uses[u].op < to)
            return true;
    return false;
}

choir_status choir__pipeline_cut_by_hand(choir__pipeline *p)
{
    for (int s = 1; s < p->stages; s++) {
        const char *name = p->cut_names[s - 1];
        p->first[s] = named_op(p, name);
        if (p->first[s] < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d: expected an op of the forward pass (a module's path, "
                "maybe with '+' and a number of ops, or a number below %d), got '%s'",
                s, p->ops, name);
        if (p->first[s] <= p->first[s - 1])
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d is to begin at '%s', op %d, where stage %d begins at op %d",
                s, name, p->first[s], s - 1, p->first[s - 1]);
    }
    for (int s = 0; s < p->stages; s++)
        if (!has_param(p, p->first[s], p->first[s + 1]))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d, ops %d to %d, has no parameters: give it a layer, or let "
                "the cuts be found",
                s, p->first[s], p->first[s + 1] - 1);
    return CHOIR_OK;
}
