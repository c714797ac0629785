/* Inside segments: the data that segment.c gathers while forward runs, and again.c reads. */
#ifndef CHOIR_AGAIN_H
#define CHOIR_AGAIN_H

#include "tensor/op.h"
#include "tensor/segment.h"

struct choir__segment {
    choir__segment *outer;
    choir_scope *scope;
    choir__record *first, *last; /* records that are still on the tape; NULL: none */
    bool open;
};

/* Returns the record of the segment after r, or NULL if r is the last. */
static inline choir__record *choir__segment_after(
    const choir__segment *s, const choir__record *r)
{
    return r == s->last ? NULL : r->next;
}

static inline bool choir__can_make(const choir__record *r)
{
    return r->op->again || r->op->view;
}

static inline bool choir__is_operand(const choir__record *r, const choir_tensor *t)
{
    for (int i = 0; i < r->count; i++)
        if (r->in[i] == t)
            return true;
    return false;
}

/* Returns saved[i] if the op computes it again along with its result; else NULL. */
static inline choir_tensor *choir__made_along(const choir__record *r, int i)
{
    choir_tensor *t = r->saved[i];
    bool made = t && r->op->again_saved >> i & 1 && t != r->out && !choir__is_operand(r, t);
    return made ? t : NULL;
}

#endif
