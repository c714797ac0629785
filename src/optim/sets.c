/* Sets of an optimizer's state, for workers that take turns with one model (DiLoCo, local SGD).
 *
 * Each worker has moments, norms and a count of skipped steps of its own. While a worker waits,
 * a set holds these, with the tables of their addresses, so that a turn exchanges pointers and
 * copies nothing. Options belong to the optimizer: rates, groups, the schedule and the number
 * of steps are common to all workers. */
#include <stdlib.h>
#include <string.h>

#include "device/offload_store.h"
#include "optim/optim.h"
#include "tensor/launch.h"

struct choir__optim_set {
    choir_optim
        own; /* the members that exchange lists belong to the set; the others are unused */
};

choir__optim_set *choir__optim_set_new(const choir_optim *o)
{
    choir__optim_set *set = choir__calloc(1, sizeof *set);
    choir_optim *own = &set->own;
    own->run = o->run;
    own->states = choir__calloc((size_t)o->count + 1, sizeof *own->states);
    own->count = o->count;
    memcpy(own->states, o->states, (size_t)o->count * sizeof *own->states);
    for (int i = 0; i < o->count; i++) {
        choir__optim_state *s = &own->states[i];
        s->m = s->v = s->top = s->m_most = s->v_most = s->average = NULL;
    }
    if (o->offload.whole)
        own->offload = (choir__optim_offload){
            .store = choir__offload_store_ref(o->offload.store), .whole = true};
    return set;
}

/* Norms are made where the optimizer has them: --clip, or a scaler. */
static void make_norm(choir_optim *own, const choir_optim *o)
{
    own->norm.most = o->norm.most;
    if (!o->norm.value || own->norm.value)
        return;
    own->norm.value = choir_full(o->run, CHOIR_F32, CHOIR_SCALAR, 0);
    own->norm.clip = choir_full(o->run, CHOIR_F32, choir_dims(CHOIR__CLIP_COUNT), 0);
}

#define SWAP(member)                                                                           \
    do {                                                                                       \
        choir_optim one_ = {.member = o->member};                                              \
        o->member = own->member;                                                               \
        own->member = one_.member;                                                             \
    } while (0)

void choir__optim_exchange(choir_optim *o, choir__optim_set *set)
{
    choir_optim *own = &set->own;
    make_norm(own, o);
    for (int i = 0; i < o->count; i++)
        own->states[i].group = o->states[i].group;
    SWAP(states);
    SWAP(offload);
    SWAP(unscaled);
    SWAP(parts);
    SWAP(part_count);
    SWAP(layout);
    SWAP(norm);
}

void choir__optim_set_free(choir__optim_set *set)
{
    if (!set)
        return;
    choir__optim_forget(&set->own);
    choir__offload_free(&set->own);
    free(set->own.states);
    free(set);
}

/* --- copies --- */

void choir__visited_add(const char *name, choir_tensor *t, const choir__param *param, void *to)
{
    choir__visited *l = to;
    (void)name, (void)param;
    CHOIR__GROW(l->tensors, l->count);
    l->tensors[l->count++] = t;
}

static choir__visited list_state(choir_optim *o)
{
    choir__visited l = {NULL, 0};
    choir__optim_visit_own(o, choir__visited_add, &l);
    return l;
}

void choir__optim_set_copy(choir_optim *o, choir__optim_set *set)
{
    choir__visited from = list_state(o);
    choir__optim_exchange(o, set);
    choir__visited to = list_state(o);
    choir__optim_exchange(o, set);
    for (int i = 0; i < from.count; i++)
        if (!from.tensors[i]->poisoned && !to.tensors[i]->poisoned)
            choir__launch_copy(to.tensors[i], from.tensors[i]);
    free(from.tensors);
    free(to.tensors);
}
