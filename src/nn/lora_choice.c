/* The layers of a choir_lora, by ends of paths: "q_proj" is each module of that name. Names
 * that fit nothing are answered with the names there are. */
#include <stdlib.h>
#include <string.h>

#include "base/named.h"
#include "nn/lora.h"

/* Layers for queries and values, or for these and keys together, by the names that published
 * models give them: peft's choice for all of their families. */
static const char *const usual[] = {"q_proj", "v_proj", "query", "value", "c_attn", "qkv_proj",
    "q_lin", "v_lin", "query_key_value", NULL};
/* Layers whose results are the model's. */
static const char *const outputs[] = {"lm_head", "classifier", "score", NULL};

/* Returns whether a path is `name`, or ends with it behind a dot. */
static bool path_ends(const char *path, const char *name)
{
    size_t n = strlen(path), m = strlen(name);
    return n >= m && !strcmp(path + n - m, name) && (n == m || path[n - m - 1] == '.');
}

static bool ends_with_one(const char *path, const char *const *names)
{
    for (; *names; names++)
        if (path_ends(path, *names))
            return true;
    return false;
}

/* --- all modules --- */

typedef struct modules {
    choir_module **list;
    int count;
} modules;

static void add_module(choir_module *m, void *arg)
{
    modules *all = arg;
    CHOIR__GROW(all->list, all->count);
    all->list[all->count++] = m;
}

static bool is_linear(choir_module *m)
{
    bool in_out;
    return choir__linear_of_module(m, &in_out) != NULL;
}

/* --- names that fit nothing --- */

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Refuses a name, with a list of the last names of the linear layers, or of all modules. */
static choir_status unknown(const modules *all, bool linear, const char *kind, const char *name)
{
    const char **names = choir__calloc((size_t)all->count + 1, sizeof *names);
    choir__name_table table = {names, 0, sizeof *names, false};
    for (int i = 0; i < all->count; i++) {
        const char *last = last_name(all->list[i]->path);
        if (*last && (!linear || is_linear(all->list[i])) &&
            strspn(last, "0123456789") < strlen(last) && choir__find_named(&table, last) < 0)
            names[table.count++] = last;
    }
    choir_status status =
        table.count ? choir__unknown_name(&table, kind, name)
                    : choir__error(CHOIR_ERR_ARGUMENT,
                          "unknown %s '%s': the model has no linear layer", kind, name);
    free(names);
    return status;
}

/* --- choosing --- */

typedef struct choosing {
    modules all;
    bool *layer, *whole; /* (all.count) */
} choosing;

/* Marks the module whose parameter t is. */
static void take_owner(choosing *c, const choir_tensor *t)
{
    for (int i = 0; i < c->all.count; i++)
        for (const choir__module_entry *e = c->all.list[i]->inside->entries; e; e = e->next)
            c->whole[i] |= e->kind == CHOIR__PARAM && e->tensor == t;
}

/* A module that is only another name of a weight, as a tied "lm_head", stands for the weight.
 * Returns a weight with such a name, or NULL; whole: marks the modules of all of them. */
static const choir_tensor *find_tied(choosing *c, const char *name, bool whole)
{
    const choir_tensor *weight = NULL;
    for (int i = 0; i < c->all.count; i++)
        for (const choir__module_entry *e = c->all.list[i]->inside->entries; e; e = e->next) {
            const char *dot = e->kind == CHOIR__TIED ? strrchr(e->name, '.') : NULL;
            if (!dot)
                continue;
            char *path = choir__format("%s%s%.*s", c->all.list[i]->path,
                *c->all.list[i]->path ? "." : "", (int)(dot - e->name), e->name);
            bool is = path_ends(path, name);
            weight = is ? e->tensor : weight;
            if (is && whole)
                take_owner(c, e->tensor);
            free(path);
        }
    return weight;
}

static choir_status take_target(choosing *c, const char *name)
{
    const choir_module *other = NULL;
    const choir_tensor *tied = find_tied(c, name, false);
    bool found = false;
    for (int i = 0; i < c->all.count; i++) {
        choir_module *m = c->all.list[i];
        if (!path_ends(m->path, name))
            continue;
        if (is_linear(m))
            found = c->layer[i] = true;
        else
            other = m;
    }
    if (found)
        return CHOIR_OK;
    if (other)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "LoRA: the target '%s' is a module '%s'; adapters are of linear layers", name,
            other->type->name);
    if (tied)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "LoRA: the target '%s' is '%s' once more (the model ties them), which is no linear "
            "layer; modules_to_save=%s trains it whole",
            name, tied->param->name, name);
    return unknown(&c->all, true, "LoRA target", name);
}

static choir_status take_whole(choosing *c, const char *name)
{
    bool found = find_tied(c, name, true);
    for (int i = 0; i < c->all.count; i++)
        if (path_ends(c->all.list[i]->path, name))
            found = c->whole[i] = true;
    return found ? CHOIR_OK : unknown(&c->all, false, "module to save", name);
}

/* Calls take with each name of a list that '/' separates. */
static choir_status each_name(
    choosing *c, const char *list, choir_status (*take)(choosing *c, const char *name))
{
    choir_status status = CHOIR_OK;
    char *copy = choir__strdup(list), *rest = copy, *name;
    while (status == CHOIR_OK && (name = strsep(&rest, "/")))
        status = *name ? take(c, name)
                       : choir__error(CHOIR_ERR_ARGUMENT,
                             "LoRA: expected names separated by '/', got '%s'", list);
    free(copy);
    return status;
}

/* Returns whether module i is trained whole, or is in one that is. */
static bool in_whole(const choosing *c, int i)
{
    for (int w = 0; w < c->all.count; w++)
        for (const choir_module *m = c->all.list[i]; m && c->whole[w]; m = m->parent)
            if (m == c->all.list[w])
                return true;
    return false;
}

static void take_usual(choosing *c)
{
    for (int i = 0; i < c->all.count; i++)
        c->layer[i] = is_linear(c->all.list[i]) && !in_whole(c, i) &&
                      ends_with_one(c->all.list[i]->path, usual);
}

static void take_all_linear(choosing *c)
{
    int last = -1;
    bool attends = false;
    for (int i = 0; i < c->all.count; i++) {
        choir_module *m = c->all.list[i];
        bool linear = is_linear(m);
        c->layer[i] = linear && !in_whole(c, i) && !ends_with_one(m->path, outputs);
        last = linear ? i : last;
        attends |= linear && ends_with_one(m->path, usual);
    }
    if (!attends && last >= 0)
        c->layer[last] = false;
}

static bool any(const bool *chosen, int count)
{
    for (int i = 0; i < count; i++)
        if (chosen[i])
            return true;
    return false;
}

static choir_status choose(choosing *c, const choir_lora_opts *opts)
{
    choir_status status =
        opts->modules_to_save ? each_name(c, opts->modules_to_save, take_whole) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    if (!opts->targets)
        take_usual(c);
    else if (!strcmp(opts->targets, "all-linear"))
        take_all_linear(c);
    else
        status = each_name(c, opts->targets, take_target);
    if (status == CHOIR_OK && !any(c->layer, c->all.count))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            opts->targets ? "LoRA: the model has no linear layer but its output"
                          : "LoRA: the model has no attention whose layers were the usual "
                            "targets; name its layers, as targets=all-linear does");
    for (int i = 0; i < c->all.count && status == CHOIR_OK; i++)
        if (c->layer[i] && in_whole(c, i))
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "LoRA: '%s' is a target, and in a module that is trained whole: choose one of "
                "them",
                c->all.list[i]->path);
    return status;
}

choir_status choir__lora_choose(
    choir_module *module, const choir_lora_opts *opts, choir__lora_choice *choice)
{
    choosing c = {0};
    bool in_out;
    *choice = (choir__lora_choice){0};
    choir_module_each(module, add_module, &c.all);
    c.layer = choir__calloc((size_t)c.all.count + 1, sizeof *c.layer);
    c.whole = choir__calloc((size_t)c.all.count + 1, sizeof *c.whole);
    choir_status status = choose(&c, opts);
    for (int i = 0; i < c.all.count && status == CHOIR_OK; i++) {
        if (c.layer[i]) {
            CHOIR__GROW(choice->layers, choice->layer_count);
            choice->layers[choice->layer_count++] =
                choir__linear_of_module(c.all.list[i], &in_out);
        }
        if (c.whole[i]) {
            CHOIR__GROW(choice->whole, choice->whole_count);
            choice->whole[choice->whole_count++] = c.all.list[i];
        }
    }
    free(c.layer);
    free(c.whole);
    free(c.all.list);
    return status;
}

void choir__lora_choice_free(choir__lora_choice *choice)
{
    free(choice->layers);
    free(choice->whole);
    *choice = (choir__lora_choice){0};
}
