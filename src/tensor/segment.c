/* Segments of the tape: the ops of a module whose activations are recomputed (recompute.c).
 * While forward runs, the ops are noted here. At a segment's end all tensors that they made are
 * released, with these exceptions: the result; kept copies, which have their own memory;
 * tensors that a hook has seen; and tensors that were changed in place and cannot be computed
 * again. */
#include "tensor/segment.h"

choir__segment *choir__segment_begin(choir_scope *scope)
{
    if (!scope->grad || scope->kind == CHOIR__RUN)
        return NULL;
    choir__segment *s = choir__arena_get(&scope->arena, sizeof *s);
    *s = (choir__segment){.outer = scope->segment, .scope = scope, .open = true};
    return scope->segment = s;
}

bool choir__segment_open(const choir__segment *segment)
{
    return !segment || segment->open;
}

void choir__segment_add(choir__segment *segment, choir__tape_entry *r)
{
    r->segment = segment;
    for (choir__segment *s = segment; s; s = s->outer) {
        if (!s->first)
            s->first = r;
        s->last = r;
    }
}

void choir__segment_drop(choir__tape_entry *r)
{
    for (choir__segment *s = r->segment; s; s = s->outer) {
        if (s->first == s->last)
            s->first = s->last = NULL;
        else if (s->first == r)
            s->first = r->next;
        else if (s->last == r)
            s->last = r->previous;
    }
}

choir__released *choir__released_of(choir_tensor *t)
{
    if (!t->released)
        t->released = choir__arena_get(&t->scope->arena, sizeof *t->released);
    return t->released;
}

static void release(choir__segment *s, choir_tensor *t)
{
    choir__tensor_release(t);
    choir__released_of(t)->segment = s;
}

void choir__segment_end(choir__segment *s, choir_tensor *result)
{
    if (!s)
        return;
    s->scope->segment = s->outer;
    s->open = false;
    if (result->poisoned || choir__scope_status(s->scope) != CHOIR_OK)
        return;
    for (choir__tape_entry *r = s->first; r; r = choir__segment_after(s, r)) {
        choir_tensor *t = r->out;
        if (!choir__can_make(r))
            continue;
        for (int i = 0; i < CHOIR__MAX_SAVED; i++) {
            choir_tensor *along = choir__made_along(r, i);
            if (along && along->storage && !along->kept)
                release(s, along);
        }
        if (t->storage && t != result && !t->kept && !t->watched && !t->hooks &&
            t->storage->version == r->out_version)
            release(s, t);
    }
}
