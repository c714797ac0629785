/* Units: the parameters that are reduced together. A parameter belongs to the innermost unit
 * around it; parameters outside all units form unit 0. */
#include <string.h>

#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"

typedef struct policy {
    const choir_fsdp_opts *opts;
    int found;
} policy;

void choir_fsdp_unit(choir_module *module)
{
    if (choir__use_module(module, __func__) != CHOIR_OK)
        return;
    module->inside->unit = true;
}

static int count_marked(const choir_module *m)
{
    int count = m->inside->unit;
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            count += count_marked(e->child);
    return count;
}

static void mark_class(choir_module *m, policy *p)
{
    if (!strcmp(m->type->name, p->opts->unit_class)) {
        m->inside->unit = true;
        p->found++;
    }
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            mark_class(e->child, p);
}

/* Returns the number of elements of m's parameters that are in no unit inside m. */
static int64_t mark_size(choir_module *m, policy *p)
{
    int64_t left = 0;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            left += mark_size(e->child, p);
        if (e->kind == CHOIR__PARAM)
            left += e->tensor->count;
    }
    if (left < p->opts->unit_params)
        return left;
    m->inside->unit = true;
    p->found++;
    return 0;
}

static void mark_block(choir_module *block, void *arg)
{
    block->inside->unit = true;
    ((policy *)arg)->found++;
}

/* Numbers m's units; *units is the number of units so far. */
static void number(choir_module *m, int unit, int *units)
{
    if (m->inside->unit)
        unit = ++*units;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            number(e->child, unit, units);
        if (e->kind == CHOIR__PARAM)
            e->tensor->param->unit = unit;
    }
}

choir_status choir__fsdp_units(choir__fsdp *f)
{
    policy p = {&f->opts, count_marked(f->module)};
    int units = 0;
    if (!p.found && f->opts.unit_class) {
        mark_class(f->module, &p);
        if (!p.found)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "fsdp: no module of the model is a '%s'; unit_class is the name of a module class",
                f->opts.unit_class);
    }
    if (!p.found && f->opts.unit_params > 0)
        mark_size(f->module, &p);
    else if (!p.found)
        choir__module_blocks(f->module, mark_block, &p);
    number(f->module, 0, &units);
    return CHOIR_OK;
}
