/* Evaluates expressions: a recursion over the parsed tree, one small function per kind of
 * node. */
#include <string.h>

#include "data/jinja/eval.h"

static choir__jinja_value name(choir__jinja_state *s, choir__jinja_value of)
{
    const choir__jinja_value *found = choir__jinja_find_name(s, of);
    if (found)
        return *found;
    const choir__jinja_builtin *f = choir__jinja_find_function(s, of);
    if (!f)
        return choir__jinja_undefined(s->r, "'%.*s' is undefined",
            (int)choir__min(of.as.text->bytes, 100), of.as.text->data);
    choir__jinja_bound *bound = choir__jinja_get(s->r, sizeof *bound);
    bound->of = f;
    return (choir__jinja_value){CHOIR__JINJA_FUNCTION, {.bound = bound}};
}

static choir__jinja_value list(
    choir__jinja_state *s, const choir__jinja_node *first, choir__jinja_kind kind)
{
    choir__jinja_value v = choir__jinja_list_of(s->r, kind);
    for (; first; first = first->next)
        choir__jinja_append(s->r, v.as.list, choir__jinja_eval(s, first->a));
    return v;
}

static choir__jinja_value dict(choir__jinja_state *s, const choir__jinja_node *first)
{
    choir__jinja_value v = choir__jinja_dict_of(s->r);
    for (; first; first = first->next) {
        choir__jinja_value key = choir__jinja_eval(s, first->a);
        choir__jinja_dict_set(s->r, v.as.dict, key, choir__jinja_eval(s, first->b));
    }
    return v;
}

static choir__jinja_value maybe(choir__jinja_state *s, const choir__jinja_node *node)
{
    return node ? choir__jinja_eval(s, node) : (choir__jinja_value){CHOIR__JINJA_ABSENT, {0}};
}

static choir__jinja_value item(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value of = choir__jinja_eval(s, node->a);
    const choir__jinja_node *key = node->b;
    if (key->kind != CHOIR__JINJA_E_SLICE)
        return choir__jinja_item(s, of, choir__jinja_eval(s, key));
    choir__jinja_value from = maybe(s, key->a), to = maybe(s, key->b);
    return choir__jinja_slice(s, of, from, to, maybe(s, key->c));
}

static choir__jinja_value call(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value f = choir__jinja_eval(s, node->a);
    choir__jinja_arguments a = choir__jinja_arguments_of(s, (choir__jinja_value){0}, node->b);
    s->r->line = node->line;
    return choir__jinja_call(s, f, &a);
}

static choir__jinja_value filter(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_arguments a =
        choir__jinja_arguments_of(s, choir__jinja_eval(s, node->a), node->b);
    s->r->line = node->line;
    return choir__jinja_filter(s, node->value, &a);
}

static choir__jinja_value test(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_arguments a =
        choir__jinja_arguments_of(s, choir__jinja_eval(s, node->a), node->b);
    s->r->line = node->line;
    return choir__jinja_bool(choir__jinja_test(s, node->value, &a));
}

static choir__jinja_value negate(choir__jinja_state *s, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_REAL)
        return choir__jinja_real(-v.as.real);
    return choir__jinja_binary(s->r, "-", choir__jinja_int(0), v);
}

static choir__jinja_value concat(choir__jinja_state *s, const choir__jinja_node *part)
{
    choir__jinja_out out = {0};
    for (; part; part = part->next)
        choir__jinja_print(s->r, &out, choir__jinja_eval(s, part->a));
    return choir__jinja_taken(s->r, &out);
}

static bool holds(
    choir__jinja_run *r, const char *sign, choir__jinja_value a, choir__jinja_value b)
{
    if (!strcmp(sign, "=="))
        return choir__jinja_equal(r, a, b);
    if (!strcmp(sign, "!="))
        return !choir__jinja_equal(r, a, b);
    if (!strcmp(sign, "in"))
        return choir__jinja_contains(r, b, a);
    if (!strcmp(sign, "!i"))
        return !choir__jinja_contains(r, b, a);
    int order = choir__jinja_compare(r, a, b, sign);
    return (sign[0] == '<' ? order < 0 : order > 0) || (sign[1] == '=' && !order);
}

/* a < b < c holds if both do; b is evaluated once. */
static choir__jinja_value compare(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value left = choir__jinja_eval(s, node->a);
    for (const choir__jinja_node *operand = node->b; operand; operand = operand->next) {
        choir__jinja_value right = choir__jinja_eval(s, operand->a);
        s->r->line = node->line;
        if (!holds(s->r, operand->sign, left, right))
            return choir__jinja_bool(false);
        left = right;
    }
    return choir__jinja_bool(true);
}

static choir__jinja_value choose(choir__jinja_state *s, const choir__jinja_node *node)
{
    if (choir__jinja_truth(choir__jinja_eval(s, node->b)))
        return choir__jinja_eval(s, node->a);
    if (node->c)
        return choir__jinja_eval(s, node->c);
    return choir__jinja_undefined(s->r, "an inline if without else is undefined");
}

static choir__jinja_value operation(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value a = choir__jinja_eval(s, node->a);
    if (node->kind == CHOIR__JINJA_E_AND || node->kind == CHOIR__JINJA_E_OR) {
        bool decided = choir__jinja_truth(a) == (node->kind == CHOIR__JINJA_E_OR);
        return decided ? a : choir__jinja_eval(s, node->b);
    }
    choir__jinja_value b = choir__jinja_eval(s, node->b);
    s->r->line = node->line;
    return choir__jinja_binary(s->r, node->sign, a, b);
}

static choir__jinja_value value_of(choir__jinja_state *s, const choir__jinja_node *node)
{
    switch (node->kind) {
    case CHOIR__JINJA_E_CONST: return node->value;
    case CHOIR__JINJA_E_NAME: return name(s, node->value);
    case CHOIR__JINJA_E_LIST: return list(s, node->a, CHOIR__JINJA_LIST);
    case CHOIR__JINJA_E_TUPLE: return list(s, node->a, CHOIR__JINJA_TUPLE);
    case CHOIR__JINJA_E_DICT: return dict(s, node->a);
    case CHOIR__JINJA_E_ATTR:
        return choir__jinja_attribute(s, choir__jinja_eval(s, node->a), node->value);
    case CHOIR__JINJA_E_ITEM: return item(s, node);
    case CHOIR__JINJA_E_CALL: return call(s, node);
    case CHOIR__JINJA_E_FILTER: return filter(s, node);
    case CHOIR__JINJA_E_TEST: return test(s, node);
    case CHOIR__JINJA_E_AND:
    case CHOIR__JINJA_E_OR:
    case CHOIR__JINJA_E_BINARY: return operation(s, node);
    case CHOIR__JINJA_E_NOT:
        return choir__jinja_bool(!choir__jinja_truth(choir__jinja_eval(s, node->a)));
    case CHOIR__JINJA_E_MINUS: return negate(s, choir__jinja_eval(s, node->a));
    case CHOIR__JINJA_E_PLUS:
        return choir__jinja_binary(
            s->r, "+", choir__jinja_int(0), choir__jinja_eval(s, node->a));
    case CHOIR__JINJA_E_CONCAT: return concat(s, node->a);
    case CHOIR__JINJA_E_COMPARE: return compare(s, node);
    case CHOIR__JINJA_E_IF: return choose(s, node);
    default: choir__jinja_fail(s->r, "a slice has no value outside of [ ]");
    }
}

choir__jinja_value choir__jinja_eval(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_deeper(s->r);
    choir__jinja_step(s->r, 1);
    s->r->line = node->line;
    choir__jinja_value v = value_of(s, node);
    s->r->depth--;
    return v;
}
