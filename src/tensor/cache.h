/* A cache of the tokens that a language model has read, so that the next one costs one row.
 *
 * In the scopes of a cache a forward gets only the tokens that follow those already read. The
 * ops that look back find the rest here: causal attention has a slot of keys and values for
 * each of its calls, in the order of the forward, and a recurrent module has one of its states.
 * Modules need not know: they ask for positions, which begin where the last forward ended
 * (choir__cache_positions), and may leave out all rows but the last before the head
 * (choir__cache_last).
 *
 * No query's result depends on the rows computed beside it: products are chains over k,
 * and attention's sums begin with the first key that the query sees. So a forward with the
 * cache has the bits of one over all tokens (generate/README.md).
 *
 * The cache has rows, one per text; a forward names the row of each of its samples. Texts may
 * have different lengths. */
#ifndef CHOIR_CACHE_H
#define CHOIR_CACHE_H

#include "device/kernels.h"
#include "tensor/scope.h"

/* Attention has keys and values (rows, G, room, D), a recurrent layer h and c (rows, H). */
typedef struct choir__cache_slot {
    struct choir__storage *part[2];
} choir__cache_slot;

typedef struct choir__cache {
    choir_scope *scope;
    int64_t rows, room;
    int64_t *length; /* (rows) tokens that were read */
    int64_t *row;    /* (samples) row of the cache for each sample of the present forward */
    int64_t samples, tokens;
    bool *outgrown; /* (samples) of the present forward: see choir__cache_outgrow */
    choir__cache_slot *slots;
    int count, at, space; /* at: the next call's slot */
} choir__cache;

/* Makes a cache of `rows` texts of up to `room` tokens in an open scope, whose children are
 * then the scopes of forwards. Casts of parameters live as long as that scope, since weights do
 * not change. It ends with the scope. */
choir__cache *choir__cache_new(choir_scope *scope, int64_t rows, int64_t room);

/* Begins a forward of the next `tokens` tokens of the texts row[0, samples), and ends it. */
void choir__cache_begin(
    choir__cache *cache, const int64_t *row, int64_t samples, int64_t tokens);
void choir__cache_end(choir__cache *cache);

/* Returns the number of cached tokens of a sample of the present forward. */
static inline int64_t choir__cache_before(const choir_scope *scope, int64_t sample)
{
    return scope->cache->length[scope->cache->row[sample]];
}

/* Notes that what the cache has of a sample's text is not what a forward over its tokens would
 * have, as a model's positions depend on its length. The caller of the forward forgets the text
 * (choir__cache_forget), and reads it again as a whole. */
void choir__cache_outgrow(choir_scope *scope, int64_t sample);
void choir__cache_forget(choir__cache *cache, int64_t row);

/* Returns the positions of the present forward's tokens, (B, T) i64. */
choir_tensor *choir__cache_positions(choir_scope *scope);

/* Returns the last of x's tokens, (B, 1, C) of (B, T, C), in a scope with a cache; else x. */
choir_tensor *choir__cache_last(choir_tensor *x);

/* Runs causal attention of the new tokens over all of their texts. */
void choir__cache_attend(choir_scope *scope, choir_device *device, choir__k_attention *args);

/* A recurrent layer's states (B, H). begin: stores the states before the new tokens, or NULL
 * where the texts begin; has_c: there is a second one. end: takes the last ones, whose rows are
 * h_row and H elements apart; c may be NULL. begin returns false if the scope has an error. */
typedef struct choir__cache_states {
    choir_tensor *h, *c;
} choir__cache_states;
bool choir__cache_states_begin(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t width, bool has_c, choir__cache_states *states);
void choir__cache_states_end(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t width, void *h, int64_t h_row, void *c);

/* Returns the scope in which casts of parameters are made for the ops of `scope`. */
static inline choir_scope *choir__cache_casts(choir_scope *scope)
{
    return scope->cache ? scope->cache->scope : scope;
}

#endif
