/* Names of variables: a chain of scopes, from the innermost to the template's. */
#include <string.h>

#include "data/jinja/eval.h"

choir__jinja_scope *choir__jinja_scope_new(choir__jinja_state *s, choir__jinja_scope *outer)
{
    choir__jinja_scope *scope = choir__jinja_get(s->r, sizeof *scope);
    scope->outer = outer;
    return scope;
}

void choir__jinja_set(
    choir__jinja_state *s, choir__jinja_scope *scope, const char *name, choir__jinja_value v)
{
    choir__jinja_dict_set(
        s->r, &scope->names, choir__jinja_borrow(s->r, name, strlen(name)), v);
}

choir__jinja_value *choir__jinja_find_name(choir__jinja_state *s, choir__jinja_value name)
{
    for (choir__jinja_scope *scope = s->scope; scope; scope = scope->outer) {
        choir__jinja_value *found = choir__jinja_dict_get(s->r, &scope->names, name);
        if (found)
            return found;
    }
    return NULL;
}
