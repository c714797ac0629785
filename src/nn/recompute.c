/* Recomputation by modules: which of them let go of what they compute. How it is made again is
 * tensor/again.c's. */
#include <string.h>

#include "nn/module.h"

void choir_module_recompute(choir_module *m, bool on)
{
    m->recompute = on;
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

/* "3", or "layer1.3". */
static bool numbered(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot ? dot + 1 : name;
    return *last && strspn(last, "0123456789") == strlen(last);
}

static bool has_children(const choir_module *m)
{
    for (const choir__module_entry *e = m->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            return true;
    return false;
}

static int set_blocks(choir_module *m, bool on)
{
    int count = 0;
    for (choir__module_entry *e = m->entries; e; e = e->next) {
        if (e->kind != CHOIR__CHILD)
            continue;
        int inner = set_blocks(e->child, on);
        if (!inner && numbered(e->name) && has_children(e->child)) {
            choir_module_recompute(e->child, on);
            inner = 1;
        }
        count += inner;
    }
    return count;
}

int choir_module_recompute_blocks(choir_module *m, bool on)
{
    int count = set_blocks(m, on);
    if (count)
        return count;
    for (choir__module_entry *e = m->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD) {
            choir_module_recompute(e->child, on);
            count++;
        }
    return count;
}
