/* Expressions, by descent through Jinja's levels of precedence, from the loosest:
 *
 *     a if b else c    or    and    not    == != < in ...    + -    ~    * / // %    **
 *     -a    a.b a[b] a(b)    a|filter  a is test */
#include <stdio.h>
#include <string.h>

#include "data/jinja/tree.h"

choir__jinja_node *choir__jinja_node_new(choir__jinja_reader *p, choir__jinja_node_kind kind,
    choir__jinja_node *a, choir__jinja_node *b)
{
    choir__jinja_node *node = choir__jinja_get(p->r, sizeof *node);
    node->kind = kind;
    node->line = p->at->line;
    node->a = a;
    node->b = b;
    return node;
}

static choir__jinja_node *signed_node(choir__jinja_reader *p, choir__jinja_node_kind kind,
    const char *sign, choir__jinja_node *a, choir__jinja_node *b)
{
    choir__jinja_node *node = choir__jinja_node_new(p, kind, a, b);
    strcpy(node->sign, sign);
    return node;
}

/* --- tokens --- */

bool choir__jinja_sees(const choir__jinja_reader *p, const char *sign)
{
    return p->at->kind == CHOIR__JINJA_SIGN && !strcmp(p->at->sign, sign);
}

bool choir__jinja_sees_name(const choir__jinja_reader *p, const char *name)
{
    return p->at->kind == CHOIR__JINJA_NAME && choir__jinja_is_text(p->at->value, name);
}

bool choir__jinja_skip(choir__jinja_reader *p, const char *sign)
{
    bool is = choir__jinja_sees(p, sign);
    p->at += is;
    return is;
}

bool choir__jinja_skip_name(choir__jinja_reader *p, const char *name)
{
    bool is = choir__jinja_sees_name(p, name);
    p->at += is;
    return is;
}

void choir__jinja_unexpected(choir__jinja_reader *p, const char *what)
{
    const choir__jinja_token *t = p->at;
    static const char *const kinds[] = {[CHOIR__JINJA_END] = "the end of the template",
        [CHOIR__JINJA_DATA] = "text",
        [CHOIR__JINJA_OPENS_TAG] = "'{%'",
        [CHOIR__JINJA_CLOSES_TAG] = "'%}'",
        [CHOIR__JINJA_OPENS_PRINT] = "'{{'",
        [CHOIR__JINJA_CLOSES_PRINT] = "'}}'",
        [CHOIR__JINJA_CONST] = "a text or number"};
    p->r->line = t->line;
    if (t->kind == CHOIR__JINJA_NAME)
        choir__jinja_fail(p->r, "expected %s, got '%.*s'", what,
            (int)choir__min(t->value.as.text->bytes, 60), t->value.as.text->data);
    if (t->kind == CHOIR__JINJA_SIGN)
        choir__jinja_fail(p->r, "expected %s, got '%s'", what, t->sign);
    choir__jinja_fail(p->r, "expected %s, got %s", what, kinds[t->kind]);
}

void choir__jinja_expect(choir__jinja_reader *p, const char *sign)
{
    char what[8];
    if (choir__jinja_skip(p, sign))
        return;
    snprintf(what, sizeof what, "'%.2s'", sign);
    choir__jinja_unexpected(p, what);
}

choir__jinja_value choir__jinja_expect_name(choir__jinja_reader *p)
{
    if (p->at->kind != CHOIR__JINJA_NAME)
        choir__jinja_unexpected(p, "a name");
    return p->at++->value;
}

/* --- literals --- */

/* A part of a list, since an expression has no `next`. */
static choir__jinja_node *part(choir__jinja_reader *p, choir__jinja_node *of)
{
    return choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, of, NULL);
}

/* Items up to the closing bracket, a comma between them; it may end with one. */
static choir__jinja_node *items(choir__jinja_reader *p, const char *closes, bool pairs)
{
    choir__jinja_node *first = NULL, **last = &first;
    while (!choir__jinja_sees(p, closes)) {
        choir__jinja_node *item = part(p, choir__jinja_expression(p, true));
        if (pairs) {
            choir__jinja_expect(p, ":");
            item->b = choir__jinja_expression(p, true);
        }
        *last = item;
        last = &item->next;
        if (!choir__jinja_sees(p, closes))
            choir__jinja_expect(p, ",");
    }
    choir__jinja_expect(p, closes);
    return first;
}

static choir__jinja_node *constant(choir__jinja_reader *p, choir__jinja_value value)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_CONST, NULL, NULL);
    node->value = value;
    p->at++;
    return node;
}

static choir__jinja_node *name(choir__jinja_reader *p)
{
    choir__jinja_value v = p->at->value;
    for (int is = 0; is < 2; is++)
        if (choir__jinja_is_text(v, is ? "true" : "false") ||
            choir__jinja_is_text(v, is ? "True" : "False"))
            return constant(p, choir__jinja_bool(is));
    if (choir__jinja_is_text(v, "none") || choir__jinja_is_text(v, "None"))
        return constant(p, choir__jinja_none());
    choir__jinja_node *node = constant(p, v);
    node->kind = CHOIR__JINJA_E_NAME;
    p->any_arguments |= choir__jinja_is_text(v, "varargs") || choir__jinja_is_text(v, "kwargs");
    return node;
}

/* Texts beside one another are one. */
static choir__jinja_node *literal(choir__jinja_reader *p)
{
    choir__jinja_node *node = constant(p, p->at->value);
    if (node->value.kind != CHOIR__JINJA_TEXT)
        return node;
    choir__jinja_out out = {0};
    bool more = false;
    for (; p->at->kind == CHOIR__JINJA_CONST && p->at->value.kind == CHOIR__JINJA_TEXT;
         p->at++) {
        if (!more)
            choir__jinja_print(p->r, &out, node->value);
        choir__jinja_print(p->r, &out, p->at->value);
        more = true;
    }
    if (more)
        node->value = choir__jinja_taken(p->r, &out);
    choir__jinja_hash(p->r, node->value);
    return node;
}

static choir__jinja_node *in_brackets(choir__jinja_reader *p)
{
    if (choir__jinja_skip(p, ")")) /* the empty tuple */
        return choir__jinja_node_new(p, CHOIR__JINJA_E_TUPLE, NULL, NULL);
    choir__jinja_node *node = choir__jinja_tuple(p, true);
    choir__jinja_expect(p, ")");
    return node;
}

static choir__jinja_node *primary(choir__jinja_reader *p)
{
    if (p->at->kind == CHOIR__JINJA_NAME)
        return name(p);
    if (p->at->kind == CHOIR__JINJA_CONST)
        return literal(p);
    if (choir__jinja_skip(p, "("))
        return in_brackets(p);
    if (choir__jinja_skip(p, "["))
        return choir__jinja_node_new(p, CHOIR__JINJA_E_LIST, items(p, "]", false), NULL);
    if (choir__jinja_skip(p, "{"))
        return choir__jinja_node_new(p, CHOIR__JINJA_E_DICT, items(p, "}", true), NULL);
    choir__jinja_unexpected(p, "an expression");
}

/* --- attributes, calls, filters, tests --- */

static choir__jinja_node *argument(choir__jinja_reader *p)
{
    const choir__jinja_token *behind = p->at + 1;
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, NULL, NULL);
    if (choir__jinja_skip(p, "*"))
        node->kind = CHOIR__JINJA_E_STAR;
    else if (choir__jinja_skip(p, "**"))
        node->kind = CHOIR__JINJA_E_STARS;
    else if (p->at->kind == CHOIR__JINJA_NAME && behind->kind == CHOIR__JINJA_SIGN &&
             !strcmp(behind->sign, "=")) {
        node->kind = CHOIR__JINJA_E_KEYWORD;
        node->value = p->at->value;
        p->at += 2;
    }
    node->a = choir__jinja_expression(p, true);
    return node;
}

/* The arguments behind a bracket, up to its end. */
static choir__jinja_node *arguments(choir__jinja_reader *p)
{
    choir__jinja_node *first = NULL, **last = &first;
    choir__jinja_node_kind most = CHOIR__JINJA_E_ARGUMENT;
    while (!choir__jinja_sees(p, ")")) {
        choir__jinja_node *node = argument(p);
        if (node->kind == CHOIR__JINJA_E_ARGUMENT && most != CHOIR__JINJA_E_ARGUMENT)
            choir__jinja_unexpected(p, "a named argument behind a named one");
        most = node->kind;
        *last = node;
        last = &node->next;
        if (!choir__jinja_sees(p, ")"))
            choir__jinja_expect(p, ",");
    }
    choir__jinja_expect(p, ")");
    return first;
}

static bool ends_slice(const choir__jinja_reader *p)
{
    return choir__jinja_sees(p, "]") || choir__jinja_sees(p, ",") || choir__jinja_sees(p, ":");
}

static choir__jinja_node *subscript(choir__jinja_reader *p)
{
    choir__jinja_node *from =
        choir__jinja_sees(p, ":") ? NULL : choir__jinja_expression(p, true);
    if (!choir__jinja_skip(p, ":"))
        return from;
    choir__jinja_node *slice = choir__jinja_node_new(p, CHOIR__JINJA_E_SLICE, from, NULL);
    if (!ends_slice(p))
        slice->b = choir__jinja_expression(p, true);
    if (choir__jinja_skip(p, ":") && !ends_slice(p))
        slice->c = choir__jinja_expression(p, true);
    return slice;
}

static choir__jinja_node *attribute(choir__jinja_reader *p, choir__jinja_node *of)
{
    bool index = p->at->kind == CHOIR__JINJA_CONST && p->at->value.kind == CHOIR__JINJA_INT;
    if (index)
        return choir__jinja_node_new(p, CHOIR__JINJA_E_ITEM, of, constant(p, p->at->value));
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_ATTR, of, NULL);
    node->value = choir__jinja_expect_name(p);
    return node;
}

/* Adds .b, [b] and (b), as often as they follow. */
static choir__jinja_node *postfix(choir__jinja_reader *p, choir__jinja_node *node)
{
    for (;;) {
        if (choir__jinja_skip(p, "."))
            node = attribute(p, node);
        else if (choir__jinja_skip(p, "[")) {
            node = choir__jinja_node_new(p, CHOIR__JINJA_E_ITEM, node, subscript(p));
            choir__jinja_expect(p, "]");
        } else if (choir__jinja_skip(p, "(")) {
            node = choir__jinja_node_new(p, CHOIR__JINJA_E_CALL, node, NULL);
            node->b = arguments(p);
        } else
            return node;
    }
}

choir__jinja_node *choir__jinja_filters(
    choir__jinja_reader *p, choir__jinja_node *of, bool inside)
{
    while (inside || choir__jinja_skip(p, "|")) {
        of = choir__jinja_node_new(p, CHOIR__JINJA_E_FILTER, of, NULL);
        of->value = choir__jinja_expect_name(p);
        if (choir__jinja_skip(p, "("))
            of->b = arguments(p);
        inside = false;
    }
    return of;
}

/* Returns whether a test's only argument stands behind it without brackets. */
static bool has_bare_argument(const choir__jinja_reader *p)
{
    if (p->at->kind == CHOIR__JINJA_NAME)
        return !choir__jinja_sees_name(p, "else") && !choir__jinja_sees_name(p, "or") &&
               !choir__jinja_sees_name(p, "and");
    return p->at->kind == CHOIR__JINJA_CONST || choir__jinja_sees(p, "[") ||
           choir__jinja_sees(p, "{");
}

static choir__jinja_node *test(choir__jinja_reader *p, choir__jinja_node *of)
{
    bool negated = choir__jinja_skip_name(p, "not");
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_TEST, of, NULL);
    node->value = choir__jinja_expect_name(p);
    if (choir__jinja_skip(p, "("))
        node->b = arguments(p);
    else if (choir__jinja_sees_name(p, "is"))
        choir__jinja_unexpected(p, "one test");
    else if (has_bare_argument(p)) {
        node->b = choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, NULL, NULL);
        node->b->a = postfix(p, primary(p));
    }
    return negated ? choir__jinja_node_new(p, CHOIR__JINJA_E_NOT, node, NULL) : node;
}

static choir__jinja_node *unary(choir__jinja_reader *p, bool with_filters)
{
    choir__jinja_node *node;
    choir__jinja_deeper(p->r);
    if (choir__jinja_skip(p, "-"))
        node = choir__jinja_node_new(p, CHOIR__JINJA_E_MINUS, unary(p, false), NULL);
    else if (choir__jinja_skip(p, "+"))
        node = choir__jinja_node_new(p, CHOIR__JINJA_E_PLUS, unary(p, false), NULL);
    else
        node = primary(p);
    node = postfix(p, node);
    while (with_filters) {
        if (choir__jinja_sees(p, "|"))
            node = choir__jinja_filters(p, node, false);
        else if (choir__jinja_skip_name(p, "is"))
            node = test(p, node);
        else if (choir__jinja_sees(p, "("))
            node = postfix(p, node);
        else
            break;
    }
    p->r->depth--;
    return node;
}

/* --- operators --- */

static choir__jinja_node *power(choir__jinja_reader *p)
{
    choir__jinja_node *left = unary(p, true);
    while (choir__jinja_skip(p, "**"))
        left = signed_node(p, CHOIR__JINJA_E_BINARY, "**", left, unary(p, true));
    return left;
}

/* Returns the sign at this place if it is one of the list, and steps over it; or NULL. */
static const char *one_of(choir__jinja_reader *p, const char *const *signs)
{
    for (; *signs; signs++)
        if (choir__jinja_skip(p, *signs))
            return *signs;
    return NULL;
}

static choir__jinja_node *product(choir__jinja_reader *p)
{
    static const char *const signs[] = {"*", "/", "//", "%", NULL};
    choir__jinja_node *left = power(p);
    for (const char *sign; (sign = one_of(p, signs));)
        left = signed_node(p, CHOIR__JINJA_E_BINARY, sign, left, power(p));
    return left;
}

static choir__jinja_node *joined(choir__jinja_reader *p)
{
    choir__jinja_node *first = product(p);
    if (!choir__jinja_sees(p, "~"))
        return first;
    choir__jinja_node *parts = part(p, first), *last = parts;
    while (choir__jinja_skip(p, "~"))
        last = last->next = part(p, product(p));
    return choir__jinja_node_new(p, CHOIR__JINJA_E_CONCAT, parts, NULL);
}

static choir__jinja_node *sum(choir__jinja_reader *p)
{
    static const char *const signs[] = {"+", "-", NULL};
    choir__jinja_node *left = joined(p);
    for (const char *sign; (sign = one_of(p, signs));)
        left = signed_node(p, CHOIR__JINJA_E_BINARY, sign, left, joined(p));
    return left;
}

/* Returns the comparison at this place and steps over it; "in" and "!i" (not in) are two. */
static const char *comparison(choir__jinja_reader *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", NULL};
    const char *sign = one_of(p, signs);
    if (sign)
        return sign;
    if (choir__jinja_skip_name(p, "in"))
        return "in";
    if (choir__jinja_sees_name(p, "not") && p->at[1].kind == CHOIR__JINJA_NAME &&
        choir__jinja_is_text(p->at[1].value, "in")) {
        p->at += 2;
        return "!i";
    }
    return NULL;
}

static choir__jinja_node *compared(choir__jinja_reader *p)
{
    choir__jinja_node *left = sum(p), *first = NULL, **last = &first;
    for (const char *sign; (sign = comparison(p));) {
        *last = signed_node(p, CHOIR__JINJA_E_OPERAND, sign, sum(p), NULL);
        last = &(*last)->next;
    }
    return first ? choir__jinja_node_new(p, CHOIR__JINJA_E_COMPARE, left, first) : left;
}

static choir__jinja_node *negated(choir__jinja_reader *p)
{
    if (!choir__jinja_skip_name(p, "not"))
        return compared(p);
    choir__jinja_deeper(p->r);
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_NOT, negated(p), NULL);
    p->r->depth--;
    return node;
}

static choir__jinja_node *both(choir__jinja_reader *p)
{
    choir__jinja_node *left = negated(p);
    while (choir__jinja_skip_name(p, "and"))
        left = choir__jinja_node_new(p, CHOIR__JINJA_E_AND, left, negated(p));
    return left;
}

static choir__jinja_node *either(choir__jinja_reader *p)
{
    choir__jinja_node *left = both(p);
    while (choir__jinja_skip_name(p, "or"))
        left = choir__jinja_node_new(p, CHOIR__JINJA_E_OR, left, both(p));
    return left;
}

choir__jinja_node *choir__jinja_expression(choir__jinja_reader *p, bool with_if)
{
    choir__jinja_deeper(p->r);
    choir__jinja_node *node = either(p);
    while (with_if && choir__jinja_skip_name(p, "if")) {
        node = choir__jinja_node_new(p, CHOIR__JINJA_E_IF, node, either(p));
        if (choir__jinja_skip_name(p, "else"))
            node->c = choir__jinja_expression(p, true);
    }
    p->r->depth--;
    return node;
}

static bool ends_tuple(const choir__jinja_reader *p)
{
    return p->at->kind == CHOIR__JINJA_CLOSES_TAG || p->at->kind == CHOIR__JINJA_CLOSES_PRINT ||
           choir__jinja_sees(p, ")") || choir__jinja_sees_name(p, "recursive");
}

choir__jinja_node *choir__jinja_tuple(choir__jinja_reader *p, bool with_if)
{
    choir__jinja_node *first = choir__jinja_expression(p, with_if), *last;
    if (!choir__jinja_sees(p, ","))
        return first;
    first = last = part(p, first);
    while (choir__jinja_skip(p, ",") && !ends_tuple(p))
        last = last->next = part(p, choir__jinja_expression(p, with_if));
    return choir__jinja_node_new(p, CHOIR__JINJA_E_TUPLE, first, NULL);
}
