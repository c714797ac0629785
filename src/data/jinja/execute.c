/* Executes statements: a recursion over the parsed tree, which appends to the text at work.
 * Loops, blocks and macros open scopes of names as Jinja does; break and continue are a jump
 * that each list of statements passes up to the loop. */
#include <string.h>

#include "data/jinja/eval.h"

/* --- names --- */

static void assign(
    choir__jinja_state *s, const choir__jinja_node *target, choir__jinja_value v);

static void unpack(choir__jinja_state *s, const choir__jinja_node *parts, choir__jinja_value v)
{
    const choir__jinja_list *items = choir__jinja_items(s->r, v);
    size_t count = 0;
    for (const choir__jinja_node *part = parts; part; part = part->next)
        count++;
    if (count != items->count)
        choir__jinja_fail(
            s->r, "expected %zu values for as many variables, got %zu", count, items->count);
    for (size_t i = 0; parts; parts = parts->next)
        assign(s, parts->a, items->item[i++]);
}

static void assign(choir__jinja_state *s, const choir__jinja_node *target, choir__jinja_value v)
{
    if (target->kind == CHOIR__JINJA_E_TUPLE) {
        unpack(s, target->a, v);
        return;
    }
    if (target->kind == CHOIR__JINJA_E_NAME) {
        choir__jinja_dict_set(s->r, &s->scope->names, target->value, v);
        return;
    }
    const choir__jinja_value *space = choir__jinja_find_name(s, target->value);
    if (!space || space->kind != CHOIR__JINJA_NAMESPACE)
        choir__jinja_fail(s->r, "'%.*s' is no namespace, so its parts cannot be set",
            (int)choir__min(target->value.as.text->bytes, 60), target->value.as.text->data);
    choir__jinja_dict_set(s->r, space->as.dict, target->name, v);
}

/* --- bodies --- */

static choir__jinja_value capture(
    choir__jinja_state *s, const choir__jinja_node *first, choir__jinja_scope *scope)
{
    choir__jinja_out own = {0}, *out = s->out;
    choir__jinja_scope *before = s->scope;
    choir__jinja_jump jump = s->jump;
    choir__jinja_deeper(s->r);
    s->out = &own;
    s->scope = scope;
    choir__jinja_execute(s, first);
    s->out = out;
    s->scope = before;
    s->jump = jump;
    s->r->depth--;
    return choir__jinja_taken(s->r, &own);
}

static void in_own_scope(choir__jinja_state *s, const choir__jinja_node *first)
{
    choir__jinja_scope *before = s->scope;
    s->scope = choir__jinja_scope_new(s, before);
    choir__jinja_execute(s, first);
    s->scope = before;
}

/* --- loops --- */

/* Returns the items for which the loop's condition holds. */
static choir__jinja_list *chosen(
    choir__jinja_state *s, const choir__jinja_node *node, choir__jinja_value over)
{
    choir__jinja_list *all = choir__jinja_items(s->r, over);
    if (!node->c)
        return all;
    choir__jinja_list *some = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST).as.list;
    choir__jinja_scope *before = s->scope;
    for (size_t i = 0; i < all->count; i++) {
        s->scope = choir__jinja_scope_new(s, before);
        assign(s, node->a, all->item[i]);
        if (choir__jinja_truth(choir__jinja_eval(s, node->c)))
            choir__jinja_append(s->r, some, all->item[i]);
    }
    s->scope = before;
    return some;
}

static void run_loop(
    choir__jinja_state *s, const choir__jinja_node *node, choir__jinja_value over, int depth)
{
    choir__jinja_scope *before = s->scope;
    choir__jinja_loop *loop = choir__jinja_get(s->r, sizeof *loop);
    *loop = (choir__jinja_loop){.list = chosen(s, node, over),
        .depth = depth,
        .recursive = node->recursive ? node : NULL,
        .scope = before};
    choir__jinja_value itself = {CHOIR__JINJA_LOOP, {.loop = loop}};
    for (; loop->index < loop->list->count && s->jump != CHOIR__JINJA_BREAKS; loop->index++) {
        s->jump = CHOIR__JINJA_GOES_ON;
        s->scope = choir__jinja_scope_new(s, before);
        choir__jinja_set(s, s->scope, "loop", itself);
        s->r->line = node->line;
        assign(s, node->a, loop->list->item[loop->index]);
        choir__jinja_execute(s, node->d);
    }
    s->jump = CHOIR__JINJA_GOES_ON;
    s->scope = before;
    if (!loop->list->count)
        in_own_scope(s, node->e);
}

static choir__jinja_value loop_again(
    choir__jinja_state *s, choir__jinja_loop *loop, choir__jinja_value over)
{
    choir__jinja_out own = {0}, *out = s->out;
    choir__jinja_scope *before = s->scope;
    choir__jinja_deeper(s->r);
    s->out = &own;
    s->scope = loop->scope;
    run_loop(s, loop->recursive, over, loop->depth + 1);
    s->out = out;
    s->scope = before;
    s->r->depth--;
    return choir__jinja_taken(s->r, &own);
}

/* --- the other statements --- */

static void branch(choir__jinja_state *s, const choir__jinja_node *first)
{
    for (; first; first = first->next)
        if (!first->a || choir__jinja_truth(choir__jinja_eval(s, first->a))) {
            choir__jinja_execute(s, first->b);
            return;
        }
}

static choir__jinja_value macro_of(choir__jinja_state *s, choir__jinja_value name,
    const choir__jinja_node *parameters, const choir__jinja_node *body)
{
    choir__jinja_macro *macro = choir__jinja_get(s->r, sizeof *macro);
    *macro = (choir__jinja_macro){name, parameters, body, s->scope};
    return (choir__jinja_value){CHOIR__JINJA_MACRO, {.macro = macro}};
}

static void call_with_body(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value f = choir__jinja_eval(s, node->a->a);
    choir__jinja_arguments a =
        choir__jinja_arguments_of(s, (choir__jinja_value){0}, node->a->b);
    choir__jinja_value name = choir__jinja_borrow(s->r, "caller", strlen("caller"));
    choir__jinja_dict_set(s->r, &a.named, name, macro_of(s, name, node->b, node->c));
    choir__jinja_print(s->r, s->out, choir__jinja_call(s, f, &a));
}

static void with(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_scope *before = s->scope, *own = choir__jinja_scope_new(s, before);
    for (const choir__jinja_node *part = node->a; part; part = part->next) {
        choir__jinja_value v = choir__jinja_eval(s, part->b); /* sees the outer names */
        s->scope = own;
        assign(s, part->a, v);
        s->scope = before;
    }
    s->scope = own;
    choir__jinja_execute(s, node->b);
    s->scope = before;
}

static void generation(choir__jinja_state *s, const choir__jinja_node *node)
{
    size_t from = s->out->bytes;
    in_own_scope(s, node->b);
    if (s->out != &s->main) {
        s->lost_span = true;
        return;
    }
    CHOIR__JINJA_GROW(s->r, s->span, s->spans, s->span_room);
    s->span[s->spans++] = (choir__jinja_span){from, s->out->bytes};
}

static void statement(choir__jinja_state *s, const choir__jinja_node *node)
{
    choir__jinja_value text;
    switch (node->kind) {
    case CHOIR__JINJA_S_DATA: choir__jinja_print(s->r, s->out, node->value); break;
    case CHOIR__JINJA_S_PRINT:
        choir__jinja_print(s->r, s->out, choir__jinja_eval(s, node->a));
        break;
    case CHOIR__JINJA_S_SET: assign(s, node->a, choir__jinja_eval(s, node->b)); break;
    case CHOIR__JINJA_S_SET_BLOCK:
        text = capture(s, node->b, choir__jinja_scope_new(s, s->scope));
        assign(s, node->a, choir__jinja_filter_block(s, node->c, text));
        break;
    case CHOIR__JINJA_S_FILTER:
        text = capture(s, node->b, choir__jinja_scope_new(s, s->scope));
        choir__jinja_print(s->r, s->out, choir__jinja_filter_block(s, node->c, text));
        break;
    case CHOIR__JINJA_S_FOR: run_loop(s, node, choir__jinja_eval(s, node->b), 0); break;
    case CHOIR__JINJA_S_IF: branch(s, node->a); break;
    case CHOIR__JINJA_S_MACRO:
        choir__jinja_dict_set(
            s->r, &s->scope->names, node->value, macro_of(s, node->value, node->a, node->b));
        break;
    case CHOIR__JINJA_S_CALL: call_with_body(s, node); break;
    case CHOIR__JINJA_S_WITH: with(s, node); break;
    case CHOIR__JINJA_S_GENERATION: generation(s, node); break;
    case CHOIR__JINJA_S_BREAK: s->jump = CHOIR__JINJA_BREAKS; break;
    case CHOIR__JINJA_S_CONTINUE: s->jump = CHOIR__JINJA_CONTINUES; break;
    default: choir__jinja_fail(s->r, "an expression stands where a statement should");
    }
}

/* A jump leaves the statements behind it out, up to the loop. */
void choir__jinja_execute(choir__jinja_state *s, const choir__jinja_node *first)
{
    choir__jinja_deeper(s->r);
    for (; first && s->jump == CHOIR__JINJA_GOES_ON; first = first->next) {
        choir__jinja_step(s->r, 1);
        s->r->line = first->line;
        statement(s, first);
    }
    s->r->depth--;
}

const choir__jinja_engine choir__jinja_engine_of_trees = {
    .eval = choir__jinja_eval, .capture = capture, .loop_again = loop_again};
