/* Checks that ops recompute their results exactly. The function's ops form one segment. Its
 * results are released and requested one by one, the last first; then all results that backward
 * reads at once. Each must have the bits that it had before. */
#ifndef CHOIR_AGAIN_FIXTURE_H
#define CHOIR_AGAIN_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include <choir/autograd.h>

#include "scopes_fixture.h"
#include "tensor/segment.h"

enum { AGAIN_MOST = 512 };

typedef struct again_note {
    choir__tape_entry *entry;
    int saved; /* index among the entry's saved tensors; -1: its result */
    choir_tensor *t;
    void *bytes;
} again_note;

static inline size_t again_bytes(const choir_tensor *t)
{
    return (size_t)t->count * choir_dtype_size(t->dtype);
}

static inline void again_take(again_note *n, choir__tape_entry *r, int saved, choir_tensor *t)
{
    *n = (again_note){r, saved, t, malloc(again_bytes(t) + 1)};
    choir_check(choir_read(t, n->bytes, again_bytes(t)));
}

static inline void again_compare(const again_note *n)
{
    void *now = malloc(again_bytes(n->t) + 1);
    choir_tensor copy = *n->t;
    assert_non_null(copy.storage);
    choir_check(choir_read(&copy, now, again_bytes(n->t)));
    if (memcmp(n->bytes, now, again_bytes(n->t)))
        fail_msg("%s: what it made again (%d) differs", n->entry->op->name, n->saved);
    free(now);
}

/* Returns how many results were released. */
static inline int check_again(choir_check_fn *f, choir_tensor **in, int count, void *arg)
{
    choir_scope *micro = choir_micro_open(in[0]->scope, 0);
    choir_tensor *lifted[CHOIR__MAX_IN];
    again_note notes[AGAIN_MOST];
    int n = 0, gone = 0;
    for (int i = 0; i < count; i++)
        lifted[i] = choir_in(micro, in[i]);
    choir__segment *segment = choir__segment_begin(micro);
    choir_tensor *y = f(lifted, count, arg);
    ok(choir_scope_status(micro));
    for (choir__tape_entry *r = micro->tape; r; r = r->next) {
        assert_true(n + 1 + CHOIR__MAX_SAVED < AGAIN_MOST);
        if (r->out->storage)
            again_take(&notes[n++], r, -1, r->out);
        for (int i = 0; i < CHOIR__MAX_SAVED; i++)
            if (r->saved[i] && r->saved[i]->storage)
                again_take(&notes[n++], r, i, r->saved[i]);
        r->reached = true;
        if (!r->op->recompute && !r->op->view && strcmp(r->op->name, "custom") &&
            strcmp(r->op->name, "to"))
            fail_msg("%s does not make its result again", r->op->name);
    }
    choir__segment_end(segment, y);
    for (int i = n - 1; i >= 0; i--) {
        gone += !notes[i].t->storage;
        if (notes[i].saved < 0) {
            choir_check(choir__bring_back(notes[i].t));
            again_compare(&notes[i]);
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        choir_check(choir__restore_read(notes[i].entry));
        again_compare(&notes[i]);
        free(notes[i].bytes);
    }
    choir_check(choir_scope_close(micro));
    return gone;
}

#endif
