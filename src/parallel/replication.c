/* Looks for strategies in a tree of modules: through wrappers, modules with one nameless child
 * whose strategy places work, and among all children. */
#include "parallel/replication.h"

/* Returns the module that a wrapper wraps; NULL: m is not a wrapper. */
static const choir_module *wrapped(const choir_module *m)
{
    const choir__strategy *s = m->inside->strategy;
    const choir__module_entry *e = m->inside->entries;
    bool wraps = s && s->places && e && !e->next && e->kind == CHOIR__CHILD && !*e->name;
    return wraps ? e->child : NULL;
}

choir__strategy *choir__strategy_within(const choir_module *m)
{
    for (; m; m = wrapped(m))
        if (m->inside->strategy && m->inside->strategy->ops->replicate)
            return m->inside->strategy;
    return NULL;
}

const choir_module *choir__strategy_module(const choir_module *m)
{
    const choir__strategy *s = m->inside->strategy;
    const choir_module *found = s && s->places ? m : NULL;
    for (const choir__module_entry *e = m->inside->entries; e && !found; e = e->next)
        if (e->kind == CHOIR__CHILD)
            found = choir__strategy_module(e->child);
    return found;
}
