/* Segments of the tape: results that are released in forward and computed again in backward.
 *
 * segment.c notes the ops of a segment while forward runs; recompute.c computes results again.
 */
#ifndef CHOIR_SEGMENT_INTERNAL_H
#define CHOIR_SEGMENT_INTERNAL_H

#include "tensor/op.h"

/* A segment is the sequence of a scope's ops from begin to end. At its end all results except
 * the given one are released; they are computed again when they are read. Segments nest.
 * choir__segment_begin returns NULL if no gradients are needed. */
typedef struct choir__segment choir__segment;
choir__segment *choir__segment_begin(choir_scope *scope);
void choir__segment_end(choir__segment *segment, choir_tensor *result);
/* True if segment is NULL or has not ended yet. */
bool choir__segment_open(const choir__segment *segment);
/* Makes r the latest op of the segment and of the segments around it. segment NULL: r is in
 * none. */
void choir__segment_add(choir__segment *segment, choir__tape_entry *r);
/* Takes an entry that is about to leave the tape out of its segments. */
void choir__segment_drop(choir__tape_entry *r);

/* The state of a tensor whose memory is released until it is computed again. */
typedef struct choir__released {
    /* the segment that released it; NULL: none, or released for good */
    choir__segment *segment;
    /* While this tensor, or one that is computed from it, is computed again: */
    choir__tape_entry *until; /* the last entry that needs it */
    bool passing;             /* released again after `until` */
    choir_tensor *waiting;    /* the tensor that is computed from it next */
} choir__released;

/* Returns t's choir__released, which is empty if t had none before. */
choir__released *choir__released_of(choir_tensor *t);

/* Returns the segment that released t's memory, or NULL if none did. */
static inline choir__segment *choir__released_by(const choir_tensor *t)
{
    return t->released ? t->released->segment : NULL;
}

/* If t's values were released, computes them again, and only them; for the forward pass. */
choir_status choir__bring_back(choir_tensor *t);
/* Computes again the values that r's backward reads and those that its segments read after it;
 * for backward. */
choir_status choir__restore_read(choir__tape_entry *r);
/* True if backward may compute r's result again from t: then t's values must not change. */
bool choir__made_of(const choir__tape_entry *r, const choir_tensor *t);
/* Copies operand i into saved[i], which may have another memory order; for an op's `again`.
 * When the op computes its values for the first time, saved[i] has them. */
void choir__copy_again(const choir__tape_entry *r, int i);

/* The data that segment.c gathers while forward runs, and recompute.c reads. */
struct choir__segment {
    choir__segment *outer;
    choir_scope *scope;
    choir__tape_entry *first, *last; /* entries that are still on the tape; NULL: none */
    bool open;
};

/* Returns the entry of the segment after r, or NULL if r is the last. */
static inline choir__tape_entry *choir__segment_after(
    const choir__segment *s, const choir__tape_entry *r)
{
    return r == s->last ? NULL : r->next;
}

static inline bool choir__can_make(const choir__tape_entry *r)
{
    return r->op->recompute || r->op->view;
}

static inline bool choir__is_operand(const choir__tape_entry *r, const choir_tensor *t)
{
    for (int i = 0; i < r->count; i++)
        if (r->in[i] == t)
            return true;
    return false;
}

/* Returns saved[i] if the op computes it again along with its result; else NULL. */
static inline choir_tensor *choir__made_along(const choir__tape_entry *r, int i)
{
    choir_tensor *t = r->saved[i];
    bool made = t && r->op->recompute_saved >> i & 1 && t != r->out && !choir__is_operand(r, t);
    return made ? t : NULL;
}

#endif
