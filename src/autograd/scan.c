/* The look at a graph before the walk: the entries on which the root depends, the books of
 * their parameters, and the number of uses of each parameter, in forward order. */
#include "autograd/scan.h"
#include "tensor/sequence.h"

#include <stdlib.h>

const choir__op choir__consumed_op = {.name = "consumed"};

static void unmark(choir__walk *w)
{
    for (choir_scope *s = w->root->scope; s != w->end; s = s->parent)
        for (choir__tape_entry *r = s->tape; r; r = r->next)
            r->reached = false;
}

/* True if operand i lies outside its piece of the batch. A piece may depend only on parameters
 * and on its own inputs, since there is no way back into the batch's tape. */
static bool leads_out(const choir__walk *w, const choir__tape_entry *r, int i)
{
    const choir_tensor *t = r->in[i];
    return w->end && choir__wanted(r, i) && !t->param && t->scope != w->root->scope;
}

choir_status choir__scan_reached(choir__walk *w)
{
    w->root->producer->reached = true;
    for (choir_scope *s = w->root->scope; s != w->end; s = s->parent)
        for (choir__tape_entry *r = s->tape_tail; r; r = r->previous)
            for (int i = 0; r->reached && i < r->count; i++) {
                choir__tape_entry *producer = r->in[i] ? r->in[i]->producer : NULL;
                if (leads_out(w, r, i)) {
                    unmark(w);
                    return choir__error(CHOIR_ERR_SCOPE,
                        "backward: operand %d of %s comes from outside of its piece of the batch; "
                        "make it an input of the module",
                        i, r->op->name);
                }
                if (producer && producer->op == &choir__consumed_op) {
                    unmark(w);
                    return choir__error(CHOIR_ERR_STATE,
                        "backward: operand %d of %s is part of a graph that was walked before",
                        i, r->op->name);
                }
                if (producer)
                    producer->reached = true;
            }
    return CHOIR_OK;
}

bool choir__look_turn(const choir__walk *w, const choir__tape_entry *r)
{
    return r->reached && (w->stage < 0 || r->owner == w->stage);
}

/* Calls fn for each use of a parameter by an entry whose turn has come, in forward order: outer
 * scopes first. */
static void each_use(choir__walk *w, choir_scope *scope,
    void (*fn)(choir__walk *w, choir__tape_entry *r, int i, choir__param *p))
{
    if (scope->parent != w->end)
        each_use(w, scope->parent, fn);
    for (choir__tape_entry *r = scope->tape; r; r = r->next)
        for (int i = 0; choir__look_turn(w, r) && i < r->count; i++)
            if (choir__wanted(r, i) && r->in[i]->param)
                fn(w, r, i, r->in[i]->param);
}

void choir__scan_book_rest(choir_scope *run)
{
    int count = 0;
    for (choir__param *p = choir__run_of(run)->params; p; p = p->next)
        count += !p->book;
    if (!count)
        return;
    choir__param **rest = choir__calloc((size_t)count, sizeof(choir__param *));
    int at = count; /* the list begins with the newest */
    for (choir__param *p = choir__run_of(run)->params; p; p = p->next)
        if (!p->book)
            rest[--at] = p;
    choir__books_make(run, rest, count);
    free(rest);
}

void choir__scan_touch(choir__walk *w, choir__tape_entry *r, int i, choir__param *p)
{
    (void)r;
    (void)i;
    for (int b = 0; b < w->book_count; b++)
        if (w->books[b] == p->book)
            return;
    choir__book **old = w->books;
    w->books = choir__arena_get(
        &w->root->scope->arena, (size_t)(w->book_count + 1) * sizeof(choir__book *));
    for (int b = 0; b < w->book_count; b++)
        w->books[b] = old[b];
    w->books[w->book_count++] = p->book;
}

/* Returns the rows of the entry's result in the whole micro-batch: ranks may have chunks of
 * its sequences. */
static int64_t rows_of(const choir__tape_entry *r)
{
    const choir__sequence *s = r->scope->sequence;
    int64_t rows = choir__rows(r->out);
    return s && s->by ? rows / s->leaves * s->chunks : rows;
}

static void number(choir__walk *w, choir__tape_entry *r, int i, choir__param *p)
{
    (void)w;
    if (p->uses < 32) {
        const choir__sequence *s = r->scope->sequence;
        bool rows = r->op->rows_in >> i & 1;
        p->rows_of_ranks |= rows && s && s->by;
        p->rows_uses |= (uint32_t)rows << p->uses;
        p->rows_given = rows ? choir__max(p->rows_given, rows_of(r)) : p->rows_given;
        p->part_uses |= (r->op->parts_in >> i & 1) << p->uses;
    }
    r->use[i] = p->uses++;
}

choir_status choir__scan_uses(choir__walk *w)
{
    w->books = NULL;
    w->book_count = 0;
    each_use(w, w->root->scope, choir__scan_touch);
    for (int b = 0; b < w->book_count; b++)
        for (int i = 0; i < w->books[b]->count; i++) {
            choir__param *p = w->books[b]->params[i];
            p->uses = 0;
            p->rows_uses = p->part_uses = 0;
            p->rows_given = 0;
            p->rows_of_ranks = false;
        }
    each_use(w, w->root->scope, number);
    choir_status status = CHOIR_OK;
    for (int b = 0; b < w->book_count && status == CHOIR_OK; b++)
        status = choir__book_check(w->books[b]);
    return status;
}

choir_status choir__scan_open_leaves(choir__walk *w)
{
    choir_status status = CHOIR_OK;
    for (int b = 0; b < w->book_count && status == CHOIR_OK; b++)
        status = choir__book_begin_leaf(w->books[b]);
    return status;
}

choir_status choir__scan_close_leaves(choir__walk *w)
{
    choir_status status = CHOIR_OK;
    for (int b = 0; b < w->book_count && status == CHOIR_OK; b++)
        status = choir__book_end_leaf(w->books[b], w->parts);
    return status;
}
