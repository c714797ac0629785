/* Builtins by name, in the tables that a render has been given. */
#include "data/jinja/eval.h"

static const choir__jinja_builtin *find(
    const choir__jinja_builtin *table, choir__jinja_value name)
{
    for (; table && table->name; table++)
        if (choir__jinja_is_text(name, table->name))
            return table;
    return NULL;
}

const choir__jinja_builtin *choir__jinja_find_filter(
    const choir__jinja_state *s, choir__jinja_value name)
{
    const choir__jinja_builtin *found = NULL;
    for (size_t i = 0; i < CHOIR_COUNT(s->known->filters) && !found; i++)
        found = find(s->known->filters[i], name);
    return found;
}

const choir__jinja_builtin *choir__jinja_find_test(
    const choir__jinja_state *s, choir__jinja_value name)
{
    return find(s->known->tests, name);
}

const choir__jinja_builtin *choir__jinja_find_function(
    const choir__jinja_state *s, choir__jinja_value name)
{
    return find(s->known->functions, name);
}

const choir__jinja_builtin *choir__jinja_find_method(
    const choir__jinja_state *s, choir__jinja_kind kind, choir__jinja_value name)
{
    return find(s->known->methods[kind], name);
}
