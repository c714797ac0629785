/* Statements: the tags of a template and the text between them. */
#include <string.h>

#include "data/jinja/tree.h"

static choir__jinja_node *statements(choir__jinja_reader *p, const char *const *ends);

/* Returns whether the tag at this place has one of these names, and steps over `{% NAME`. */
static const char *at_end(choir__jinja_reader *p, const char *const *ends)
{
    for (; p->at->kind == CHOIR__JINJA_OPENS_TAG && *ends; ends++)
        if (p->at[1].kind == CHOIR__JINJA_NAME && choir__jinja_is_text(p->at[1].value, *ends)) {
            p->at += 2;
            return *ends;
        }
    return NULL;
}

static void close_tag(choir__jinja_reader *p)
{
    if (p->at->kind != CHOIR__JINJA_CLOSES_TAG)
        choir__jinja_unexpected(p, "'%}'");
    p->at++;
}

/* Reads the rest of a tag and a body up to an end tag, whose own `%}` stays. *end, if not NULL,
 * becomes the name of the end tag. */
static choir__jinja_node *body(
    choir__jinja_reader *p, const char *const *ends, const char **end)
{
    int line = p->at->line;
    choir__jinja_skip(p, ":");
    close_tag(p);
    choir__jinja_node *first = statements(p, ends);
    const char *found = at_end(p, ends);
    if (!found) {
        p->r->line = line;
        choir__jinja_fail(p->r, "a tag has no end {%% %s %%}", ends[0]);
    }
    if (end)
        *end = found;
    return first;
}

static choir__jinja_node *simple_body(choir__jinja_reader *p, const char *end)
{
    return body(p, (const char *const[]){end, NULL}, NULL);
}

/* --- set, for, if --- */

static choir__jinja_node *target_part(choir__jinja_reader *p, bool with_field)
{
    static const char *const words[] = {"true", "false", "none", "True", "False", "None"};
    if (choir__jinja_skip(p, "(")) {
        choir__jinja_deeper(p->r);
        choir__jinja_node *first = NULL, **last = &first;
        while (!choir__jinja_sees(p, ")")) {
            *last = choir__jinja_node_new(
                p, CHOIR__JINJA_E_ARGUMENT, target_part(p, with_field), NULL);
            last = &(*last)->next;
            if (!choir__jinja_sees(p, ")"))
                choir__jinja_expect(p, ",");
        }
        choir__jinja_expect(p, ")");
        p->r->depth--;
        return first && !first->next
                   ? first->a
                   : choir__jinja_node_new(p, CHOIR__JINJA_E_TUPLE, first, NULL);
    }
    for (size_t i = 0; i < CHOIR_COUNT(words); i++)
        if (choir__jinja_sees_name(p, words[i]))
            choir__jinja_unexpected(p, "a variable");
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_E_NAME, NULL, NULL);
    node->value = choir__jinja_expect_name(p);
    if (with_field && choir__jinja_skip(p, ".")) {
        node->kind = CHOIR__JINJA_E_FIELD;
        node->name = choir__jinja_expect_name(p);
    }
    return node;
}

/* Parses one target, or several with commas between them. */
static choir__jinja_node *target(choir__jinja_reader *p, bool with_field)
{
    choir__jinja_node *first = target_part(p, with_field);
    if (!choir__jinja_sees(p, ","))
        return first;
    choir__jinja_node *parts = choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, first, NULL),
                      *last = parts;
    while (choir__jinja_skip(p, ",") && p->at->kind == CHOIR__JINJA_NAME &&
           !choir__jinja_sees_name(p, "in"))
        last = last->next =
            choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, target_part(p, with_field), NULL);
    return choir__jinja_node_new(p, CHOIR__JINJA_E_TUPLE, parts, NULL);
}

static choir__jinja_node *set(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_SET, NULL, NULL);
    node->a = target(p, true);
    if (choir__jinja_skip(p, "=")) {
        node->b = choir__jinja_tuple(p, true);
        return node;
    }
    node->kind = CHOIR__JINJA_S_SET_BLOCK;
    node->c = choir__jinja_filters(p, NULL, false);
    node->b = simple_body(p, "endset");
    return node;
}

static choir__jinja_node *loop(choir__jinja_reader *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const char *end;
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_FOR, NULL, NULL);
    node->a = target(p, false);
    if (!choir__jinja_skip_name(p, "in"))
        choir__jinja_unexpected(p, "'in'");
    node->b = choir__jinja_tuple(p, false);
    if (choir__jinja_skip_name(p, "if"))
        node->c = choir__jinja_expression(p, true);
    node->recursive = choir__jinja_skip_name(p, "recursive");
    p->loops++;
    node->d = body(p, ends, &end);
    p->loops--;
    if (!strcmp(end, "else"))
        node->e = simple_body(p, "endfor");
    return node;
}

static choir__jinja_node *branches(choir__jinja_reader *p)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    const char *end;
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_IF, NULL, NULL),
                      **last = &node->a;
    do {
        *last =
            choir__jinja_node_new(p, CHOIR__JINJA_S_BRANCH, choir__jinja_tuple(p, false), NULL);
        (*last)->b = body(p, ends, &end);
        last = &(*last)->next;
    } while (!strcmp(end, "elif"));
    if (!strcmp(end, "else")) {
        *last = choir__jinja_node_new(p, CHOIR__JINJA_S_BRANCH, NULL, NULL);
        (*last)->b = simple_body(p, "endif");
    }
    return node;
}

/* --- macros --- */

/* Parameters in brackets, with defaults. */
static choir__jinja_node *parameters(choir__jinja_reader *p)
{
    choir__jinja_node *first = NULL, **last = &first;
    bool defaults = false;
    choir__jinja_expect(p, "(");
    while (!choir__jinja_sees(p, ")")) {
        choir__jinja_node *node =
            choir__jinja_node_new(p, CHOIR__JINJA_E_PARAMETER, NULL, NULL);
        node->value = choir__jinja_expect_name(p);
        if (choir__jinja_skip(p, "=")) {
            node->a = choir__jinja_expression(p, true);
            defaults = true;
        } else if (defaults)
            choir__jinja_unexpected(p, "a default, as those before it have");
        *last = node;
        last = &node->next;
        if (!choir__jinja_sees(p, ")"))
            choir__jinja_expect(p, ",");
    }
    choir__jinja_expect(p, ")");
    return first;
}

/* A body that is a function's, in which break and continue find no loop outside. */
static choir__jinja_node *own_body(choir__jinja_reader *p, const char *end)
{
    int loops = p->loops;
    p->loops = 0;
    choir__jinja_node *first = simple_body(p, end);
    p->loops = loops;
    return first;
}

static choir__jinja_node *macro(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_MACRO, NULL, NULL);
    node->value = choir__jinja_expect_name(p);
    node->a = parameters(p);
    node->b = own_body(p, "endmacro");
    return node;
}

static choir__jinja_node *call(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_CALL, NULL, NULL);
    if (choir__jinja_sees(p, "("))
        node->b = parameters(p);
    node->a = choir__jinja_expression(p, true);
    if (node->a->kind != CHOIR__JINJA_E_CALL)
        choir__jinja_unexpected(p, "the call of a macro");
    node->c = own_body(p, "endcall");
    return node;
}

/* --- the rest --- */

static choir__jinja_node *filtered(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_FILTER, NULL, NULL);
    node->c = choir__jinja_filters(p, NULL, true);
    node->b = simple_body(p, "endfilter");
    return node;
}

static choir__jinja_node *with(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_WITH, NULL, NULL),
                      **last = &node->a;
    while (p->at->kind != CHOIR__JINJA_CLOSES_TAG) {
        if (node->a)
            choir__jinja_expect(p, ",");
        *last = choir__jinja_node_new(p, CHOIR__JINJA_E_ARGUMENT, target_part(p, false), NULL);
        choir__jinja_expect(p, "=");
        (*last)->b = choir__jinja_expression(p, true);
        last = &(*last)->next;
    }
    node->b = simple_body(p, "endwith");
    return node;
}

static choir__jinja_node *generation(choir__jinja_reader *p)
{
    choir__jinja_node *node = choir__jinja_node_new(p, CHOIR__JINJA_S_GENERATION, NULL, NULL);
    p->generates = true;
    node->b = own_body(p, "endgeneration");
    return node;
}

static choir__jinja_node *jump(choir__jinja_reader *p, choir__jinja_node_kind kind)
{
    if (!p->loops)
        choir__jinja_fail(p->r, "{%% %s %%} stands in no loop",
            kind == CHOIR__JINJA_S_BREAK ? "break" : "continue");
    return choir__jinja_node_new(p, kind, NULL, NULL);
}

static choir__jinja_node *leave_loop(choir__jinja_reader *p)
{
    return jump(p, CHOIR__JINJA_S_BREAK);
}

static choir__jinja_node *next_turn(choir__jinja_reader *p)
{
    return jump(p, CHOIR__JINJA_S_CONTINUE);
}

static choir__jinja_node *print(choir__jinja_reader *p)
{
    return choir__jinja_node_new(p, CHOIR__JINJA_S_PRINT, choir__jinja_tuple(p, true), NULL);
}

static const struct tag {
    const char *name;
    choir__jinja_node *(*parse)(choir__jinja_reader *p);
} tags[] = {{"if", branches}, {"for", loop}, {"set", set}, {"macro", macro}, {"call", call},
    {"filter", filtered}, {"with", with}, {"generation", generation}, {"break", leave_loop},
    {"continue", next_turn}, {"print", print}};

static choir__jinja_node *tag(choir__jinja_reader *p)
{
    if (p->at->kind != CHOIR__JINJA_NAME)
        choir__jinja_unexpected(p, "the name of a tag");
    p->r->line = p->at->line;
    for (size_t i = 0; i < CHOIR_COUNT(tags); i++)
        if (choir__jinja_skip_name(p, tags[i].name)) {
            choir__jinja_node *node = tags[i].parse(p);
            close_tag(p);
            return node;
        }
    choir__jinja_fail(p->r,
        "the tag {%% %.*s %%} is unknown: choose one of if, for, set, macro, call, filter, with, "
        "generation, break, continue, raw",
        (int)choir__min(p->at->value.as.text->bytes, 60), p->at->value.as.text->data);
}

static choir__jinja_node *statement(choir__jinja_reader *p)
{
    choir__jinja_node *node;
    if (p->at->kind == CHOIR__JINJA_DATA) {
        node = choir__jinja_node_new(p, CHOIR__JINJA_S_DATA, NULL, NULL);
        node->value = p->at++->value;
        return node;
    }
    if (p->at++->kind == CHOIR__JINJA_OPENS_TAG)
        return tag(p);
    node = choir__jinja_node_new(p, CHOIR__JINJA_S_PRINT, choir__jinja_tuple(p, true), NULL);
    if (p->at->kind != CHOIR__JINJA_CLOSES_PRINT)
        choir__jinja_unexpected(p, "'}}'");
    p->at++;
    return node;
}

/* Returns whether a tag with one of these names is at this place. */
static bool sees_end(const choir__jinja_reader *p, const char *const *ends)
{
    for (; p->at->kind == CHOIR__JINJA_OPENS_TAG && *ends; ends++)
        if (p->at[1].kind == CHOIR__JINJA_NAME && choir__jinja_is_text(p->at[1].value, *ends))
            return true;
    return false;
}

static choir__jinja_node *statements(choir__jinja_reader *p, const char *const *ends)
{
    choir__jinja_node *first = NULL, **last = &first;
    choir__jinja_deeper(p->r);
    while (p->at->kind != CHOIR__JINJA_END && !sees_end(p, ends)) {
        *last = statement(p);
        last = &(*last)->next;
    }
    p->r->depth--;
    return first;
}

choir__jinja_node *choir__jinja_parse(choir__jinja_reader *p)
{
    return statements(p, (const char *const[]){NULL});
}
