/* Finding parts of a model by name: modules by path, parameters by pattern. */
#include <fnmatch.h>
#include <string.h>

#include "nn/module.h"

choir_module *choir_module_at(choir_module *module, const char *path)
{
    if (choir__use_module(module, __func__) != CHOIR_OK || choir__lacks(path, __func__, "path"))
        return NULL;
    if (!*path)
        return module;
    for (choir__module_entry *e = module->inside->entries; e; e = e->next) {
        size_t length = strlen(e->name);
        if (e->kind != CHOIR__CHILD || strncmp(path, e->name, length) != 0)
            continue;
        /* a wrapper's child has no name, and names may contain dots */
        const char *rest = path + length;
        bool whole = !length || !*rest || *rest == '.';
        choir_module *found =
            whole ? choir_module_at(e->child, rest + (length && *rest == '.')) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

struct pattern {
    const char *text;
    const bool *frozen; /* to be set; NULL: only counts */
    int count;
};

static void match(const char *name, choir_tensor *t, void *arg)
{
    struct pattern *p = arg;
    if (fnmatch(p->text, name, 0) != 0)
        return;
    p->count++;
    if (p->frozen)
        choir__param_freeze(t, *p->frozen);
}

static int match_all(choir_module *module, const char *pattern, const bool *frozen)
{
    struct pattern p = {pattern, frozen, 0};
    choir__module_visit_named(module, false, match, &p); /* values are not drawn yet */
    return p.count;
}

static bool usable(const choir_module *module, const char *pattern, const char *function)
{
    return choir__use_module(module, function) == CHOIR_OK &&
           !choir__lacks(pattern, function, "pattern");
}

int choir_module_freeze_matching(choir_module *module, const char *pattern, bool frozen)
{
    return usable(module, pattern, __func__) ? match_all(module, pattern, &frozen) : 0;
}

int choir_module_count_matching(choir_module *module, const char *pattern)
{
    return usable(module, pattern, __func__) ? match_all(module, pattern, NULL) : 0;
}

/* --- other values for a model's parameters --- */

struct change {
    const char *pattern;
    choir_init init;
    int count;
};

static void change(const char *name, choir_tensor *t, void *arg)
{
    struct change *c = arg;
    choir_init init = c->init;
    if (fnmatch(c->pattern, name, 0) != 0)
        return;
    c->count++;
    if (t->param->initialised) {
        choir__poison(t->scope, CHOIR_ERR_STATE,
            "choir_module_init: parameter '%s' has its values: call it before the module's first "
            "use",
            name);
        return;
    }
    if (!choir__init_resolve(t->scope, name, t->param->whole, &init))
        return;
    t->param->init_kind = (int)init.kind;
    t->param->init_a = init.a;
    t->param->init_b = init.b;
}

int choir_module_init(choir_module *module, const char *pattern, choir_init init)
{
    if (choir__use_module(module, __func__) != CHOIR_OK ||
        choir__lacks(pattern, __func__, "pattern"))
        return 0;
    struct change c = {pattern, init, 0};
    choir__module_visit_named(module, false, change, &c);
    return c.count;
}
