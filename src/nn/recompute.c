/* Recomputation by modules: selects the modules that release their results. tensor/recompute.c
 * computes them again. */
#include <string.h>

#include "nn/module.h"
#include "tensor/segment.h"

void choir_module_recompute(choir_module *m, bool on)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return;
    m->inside->recompute = on;
}

choir__segment *choir__recompute_begin(choir_tensor *const *in, int count)
{
    choir_tensor *innermost = in[0];
    for (int i = 1; i < count; i++)
        if (in[i] && in[i]->scope->depth > innermost->scope->depth)
            innermost = in[i];
    return choir__segment_begin(innermost->scope);
}

/* --- blocks --- */

/* Returns whether a name is like "3" or "layer1.3". */
static bool numbered(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot ? dot + 1 : name;
    return *last && strspn(last, "0123456789") == strlen(last);
}

static bool has_children(const choir_module *m)
{
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            return true;
    return false;
}

static int numbered_blocks(
    choir_module *m, void (*each)(choir_module *block, void *arg), void *arg)
{
    int count = 0;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind != CHOIR__CHILD)
            continue;
        int inner = numbered_blocks(e->child, each, arg);
        if (!inner && numbered(e->name) && has_children(e->child)) {
            each(e->child, arg);
            inner = 1;
        }
        count += inner;
    }
    return count;
}

int choir__module_blocks(
    choir_module *m, void (*each)(choir_module *block, void *arg), void *arg)
{
    int count = numbered_blocks(m, each, arg);
    if (count)
        return count;
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD) {
            each(e->child, arg);
            count++;
        }
    return count;
}

static void set_recompute(choir_module *block, void *on)
{
    choir_module_recompute(block, *(const bool *)on);
}

int choir_module_recompute_blocks(choir_module *m, bool on)
{
    if (choir__use_module(m, __func__) != CHOIR_OK)
        return 0;
    return choir__module_blocks(m, set_recompute, &on);
}
