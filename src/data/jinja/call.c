/* Calls: of macros, of the library's functions, filters and tests.
 *
 * A builtin states its parameters as a text, "old new count?", where ? may be missing; its
 * arguments are bound to them by place and by name, so it finds one value for each. "..." takes
 * all arguments as they come. */
#include <stdio.h>
#include <string.h>

#include "data/jinja/eval.h"

static void add(choir__jinja_run *r, choir__jinja_arguments *a, choir__jinja_value v)
{
    CHOIR__JINJA_GROW(r, a->item, a->count, a->room);
    a->item[a->count++] = v;
}

static void add_dict(choir__jinja_run *r, choir__jinja_arguments *a, choir__jinja_value dict)
{
    if (dict.kind != CHOIR__JINJA_DICT)
        choir__jinja_fail(r, "'**': expected a dict, got '%s'", choir__jinja_type(dict));
    for (size_t i = 0; i < dict.as.dict->count; i++)
        choir__jinja_dict_set(r, &a->named, dict.as.dict->key[i], dict.as.dict->value[i]);
}

choir__jinja_arguments choir__jinja_arguments_of(
    choir__jinja_state *s, choir__jinja_value self, const choir__jinja_node *node)
{
    choir__jinja_arguments a = {.self = self};
    for (; node; node = node->next) {
        choir__jinja_value v = s->engine->eval(s, node->a);
        if (node->kind == CHOIR__JINJA_E_KEYWORD)
            choir__jinja_dict_set(s->r, &a.named, node->value, v);
        else if (node->kind == CHOIR__JINJA_E_STARS)
            add_dict(s->r, &a, v);
        else if (node->kind == CHOIR__JINJA_E_STAR) {
            const choir__jinja_list *all = choir__jinja_items(s->r, v);
            for (size_t i = 0; i < all->count; i++)
                add(s->r, &a, all->item[i]);
        } else
            add(s->r, &a, v);
    }
    return a;
}

/* --- builtins --- */

/* Reads the next parameter; returns the place behind it, or NULL. */
static const char *parameter(const char *at, char name[32], bool *needed)
{
    int n = 0;
    while (*at == ' ')
        at++;
    for (; *at && *at != ' ' && *at != '?' && n < 31; at++)
        name[n++] = *at;
    name[n] = '\0';
    *needed = *at != '?';
    return n ? at + (*at == '?') : NULL;
}

static choir__jinja_arguments bind(
    choir__jinja_run *r, const choir__jinja_builtin *f, const choir__jinja_arguments *given)
{
    choir__jinja_arguments a = {.self = given->self};
    char name[32];
    bool needed;
    size_t named = 0;
    for (const char *at = f->parameters; (at = parameter(at, name, &needed));) {
        choir__jinja_value *by_name =
            given->named.count ? choir__jinja_dict_named(r, &given->named, name) : NULL;
        named += by_name != NULL;
        if (a.count < given->count && by_name)
            choir__jinja_fail(r, "%s: the argument '%s' is given twice", f->name, name);
        if (a.count >= given->count && !by_name && needed)
            choir__jinja_fail(r, "%s: missing the argument '%s'", f->name, name);
        add(r, &a,
            by_name                  ? *by_name
            : a.count < given->count ? given->item[a.count]
                                     : (choir__jinja_value){0});
    }
    if (a.count < given->count || named < given->named.count)
        choir__jinja_fail(
            r, "%s: expected the arguments '%s', got others", f->name, f->parameters);
    add(r, &a, (choir__jinja_value){0}); /* an array even without parameters */
    return a;
}

static choir__jinja_value call_builtin(
    choir__jinja_state *s, const choir__jinja_builtin *f, choir__jinja_arguments *a)
{
    if (!strcmp(f->parameters, "..."))
        return f->fn(s, a);
    choir__jinja_arguments bound = bind(s->r, f, a);
    return f->fn(s, &bound);
}

static void unknown(choir__jinja_run *r, const char *what, choir__jinja_value name)
    __attribute__((noreturn));
static void unknown(choir__jinja_run *r, const char *what, choir__jinja_value name)
{
    const choir__jinja_text *text = choir__jinja_str(r, name);
    choir__jinja_fail(
        r, "unknown %s '%.*s'", what, (int)choir__min(text->bytes, 60), text->data);
}

choir__jinja_value choir__jinja_filter(
    choir__jinja_state *s, choir__jinja_value name, choir__jinja_arguments *a)
{
    const choir__jinja_builtin *f = choir__jinja_find_filter(s, name);
    if (!f)
        unknown(s->r, "filter", name);
    return call_builtin(s, f, a);
}

bool choir__jinja_test(
    choir__jinja_state *s, choir__jinja_value name, choir__jinja_arguments *a)
{
    const choir__jinja_builtin *f = choir__jinja_find_test(s, name);
    if (!f)
        unknown(s->r, "test", name);
    return choir__jinja_truth(call_builtin(s, f, a));
}

choir__jinja_value choir__jinja_filter_block(
    choir__jinja_state *s, const choir__jinja_node *filters, choir__jinja_value text)
{
    if (!filters)
        return text;
    choir__jinja_arguments a = choir__jinja_arguments_of(
        s, choir__jinja_filter_block(s, filters->a, text), filters->b);
    s->r->line = filters->line;
    return choir__jinja_filter(s, filters->value, &a);
}

/* --- macros --- */

static const char *short_name(const choir__jinja_macro *m, char out[80])
{
    snprintf(
        out, 80, "%.*s", (int)choir__min(m->name.as.text->bytes, 60), m->name.as.text->data);
    return out;
}

/* Names given beyond the parameters: `caller`, and those that varargs and kwargs take. */
static void set_rest(choir__jinja_state *s, choir__jinja_scope *scope,
    const choir__jinja_macro *m, const choir__jinja_arguments *a, size_t taken)
{
    char name[80];
    choir__jinja_value rest = choir__jinja_list_of(s->r, CHOIR__JINJA_TUPLE);
    choir__jinja_value named = choir__jinja_dict_of(s->r);
    for (size_t i = taken; i < a->count; i++)
        choir__jinja_append(s->r, rest.as.list, a->item[i]);
    for (size_t i = 0; i < a->named.count; i++)
        if (choir__jinja_is_text(a->named.key[i], "caller"))
            choir__jinja_set(s, scope, "caller", a->named.value[i]);
        else if (!choir__jinja_dict_get(s->r, &scope->names, a->named.key[i]))
            choir__jinja_dict_set(s->r, named.as.dict, a->named.key[i], a->named.value[i]);
    if ((rest.as.list->count || named.as.dict->count) && !s->any_arguments)
        choir__jinja_fail(
            s->r, "macro '%s': got an argument without a parameter", short_name(m, name));
    if (s->any_arguments) {
        choir__jinja_set(s, scope, "varargs", rest);
        choir__jinja_set(s, scope, "kwargs", named);
    }
}

static choir__jinja_value call_macro(
    choir__jinja_state *s, const choir__jinja_macro *m, const choir__jinja_arguments *a)
{
    choir__jinja_scope *scope = choir__jinja_scope_new(s, m->scope), *before = s->scope;
    size_t taken = 0;
    for (const choir__jinja_node *p = m->parameters; p; p = p->next) {
        const choir__jinja_value *by_name = choir__jinja_dict_get(s->r, &a->named, p->value);
        if (taken < a->count)
            choir__jinja_dict_set(s->r, &scope->names, p->value, a->item[taken++]);
        else if (by_name)
            choir__jinja_dict_set(s->r, &scope->names, p->value, *by_name);
        else if (p->a) { /* a default sees the parameters before it */
            s->scope = scope;
            choir__jinja_value v = s->engine->eval(s, p->a);
            choir__jinja_dict_set(s->r, &scope->names, p->value, v);
            s->scope = before;
        } else
            choir__jinja_dict_set(s->r, &scope->names, p->value,
                choir__jinja_undefined(s->r, "parameter '%.*s' was not provided",
                    (int)choir__min(p->value.as.text->bytes, 60), p->value.as.text->data));
    }
    set_rest(s, scope, m, a, taken);
    return s->engine->capture(s, m->body, scope);
}

choir__jinja_value choir__jinja_call(
    choir__jinja_state *s, choir__jinja_value f, choir__jinja_arguments *a)
{
    if (f.kind == CHOIR__JINJA_MACRO)
        return call_macro(s, f.as.macro, a);
    if (f.kind == CHOIR__JINJA_FUNCTION) {
        a->self = f.as.bound->self;
        return call_builtin(s, f.as.bound->of, a);
    }
    if (f.kind == CHOIR__JINJA_LOOP && f.as.loop->recursive && a->count == 1)
        return s->engine->loop_again(s, f.as.loop, a->item[0]);
    if (f.kind == CHOIR__JINJA_JOINER)
        return f.as.list->turn++ ? f.as.list->item[0] : choir__jinja_borrow(s->r, "", 0);
    if (f.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s, and cannot be called", f.as.why);
    choir__jinja_fail(s->r, "a '%s' cannot be called", choir__jinja_type(f));
}
