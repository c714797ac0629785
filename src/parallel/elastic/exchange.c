/* Ranks bring those that are behind or new up to date.
 *
 * All ranks tell how far they are. The furthest one, the lowest of several, is the source. If
 * all have its state, nothing more is sent. Otherwise its tensors go to all ranks through host
 * memory, one after another; ranks that need none throw them away.
 *
 * A rank that is one step behind may be the only one left when the source dies in the middle.
 * So it first receives everything, and changes its own tensors only then. A rank that is new
 * has nothing to lose, and writes at once. */
#include "parallel/elastic/elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A rank's position, which all ranks exchange. */
typedef struct place {
    int64_t steps, optim_steps;
    int32_t whole, in_step; /* in_step: it has done the program's work after these steps */
} place;

static bool is_further(const place *a, const place *b)
{
    return a->steps != b->steps ? a->steps > b->steps : a->in_step > b->in_step;
}

/* A tensor whose new values wait until all have come. */
typedef struct waiting {
    choir_tensor *tensor;
    void *values;
    size_t bytes;
    struct waiting *next;
} waiting;

typedef struct sending {
    choir_group *group;
    int source;
    bool sends, takes, careful; /* careful: this rank has a state of its own */
    void *host;
    size_t room;
    waiting *waiting;
    choir_status status;
} sending;

static choir_status make_room(sending *s, size_t bytes)
{
    void *more = bytes > s->room ? realloc(s->host, bytes) : s->host;
    if (bytes && !more)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot send %zu bytes of a rank's state", bytes);
    s->host = more;
    s->room = choir__max(s->room, bytes);
    return CHOIR_OK;
}

static void keep_for_later(sending *s, choir_tensor *t, size_t bytes)
{
    waiting *w = choir__alloc(sizeof *w);
    *w = (waiting){t, choir__alloc(bytes), bytes, s->waiting};
    memcpy(w->values, s->host, bytes);
    s->waiting = w;
}

static void send_tensor(const char *name, choir_tensor *t, void *arg)
{
    sending *s = arg;
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    (void)name;
    if (s->status != CHOIR_OK || !bytes)
        return;
    s->status = make_room(s, bytes);
    if (s->status == CHOIR_OK && s->sends)
        s->status = choir_read(t, s->host, bytes);
    if (s->status == CHOIR_OK)
        s->status =
            choir_group_broadcast(s->group, s->host, (int64_t)bytes, CHOIR_U8, s->source, NULL);
    if (s->status != CHOIR_OK || !s->takes)
        return;
    if (s->careful)
        keep_for_later(s, t, bytes);
    else
        s->status = choir_write(t, s->host, bytes);
}

static void write_waiting(sending *s)
{
    while (s->waiting) {
        waiting *w = s->waiting;
        if (s->status == CHOIR_OK)
            s->status = choir_write(w->tensor, w->values, w->bytes);
        s->waiting = w->next;
        free(w->values);
        free(w);
    }
}

/* Sends the gradient scaler's state. */
static choir_status send_rest(choir_elastic *e, const sending *s)
{
    choir_scaler_state scale = {0};
    choir_status status = CHOIR_OK;
    if (e->t.scaler)
        status = choir_scaler_get(e->t.scaler, &scale);
    if (status == CHOIR_OK)
        status =
            choir_group_broadcast(s->group, &scale, sizeof scale, CHOIR_U8, s->source, NULL);
    if (status == CHOIR_OK && s->takes && e->t.scaler)
        status = choir_scaler_set(e->t.scaler, e->t.optim, scale);
    return status;
}

/* The program's own state goes to all ranks: between two steps, too, one may be further. own: a
 * copy of this rank's, which receives the source's. */
static choir_status send_own(const choir_elastic *e, int source, void *own)
{
    size_t bytes = e->opts.state_bytes;
    if (!bytes)
        return CHOIR_OK;
    memcpy(own, e->opts.state, bytes);
    return choir_group_broadcast(e->env->group, own, (int64_t)bytes, CHOIR_U8, source, NULL);
}

static choir_status send_state(choir_elastic *e, sending *s, const place *from)
{
    choir_module_visit(e->t.module, true, send_tensor, s);
    if (e->t.optim && s->status == CHOIR_OK)
        choir_optim_visit(e->t.optim, send_tensor, s);
    if (s->status == CHOIR_OK)
        s->status = send_rest(e, s);
    write_waiting(s);
    free(s->host);
    if (s->status == CHOIR_OK && s->takes) {
        e->steps = from->steps;
        e->optim_steps = from->optim_steps;
        e->whole = true;
    }
    return s->status;
}

choir_status choir__elastic_exchange(choir_elastic *e, int *from)
{
    int world = e->env->world, rank = e->env->rank, source = -1, behind = 0;
    place mine = {e->steps, e->optim_steps, e->whole, e->in_step};
    place *all = choir__calloc((size_t)world, sizeof *all);
    choir_status status =
        choir_group_all_gather(e->env->group, &mine, all, sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < world; r++)
        if (all[r].whole && (source < 0 || is_further(&all[r], &all[source])))
            source = r;
    *from = source;
    for (int r = 0; r < world && source >= 0; r++)
        behind += !all[r].whole || all[r].steps < all[source].steps;
    if (status == CHOIR_OK && source < 0)
        status = choir__error(/* no other try helps */
            CHOIR_ERR_STATE, "no rank is left that has the state of the training");
    void *own = choir__alloc(e->opts.state_bytes + 1);
    if (status == CHOIR_OK)
        status = send_own(e, source, own);
    if (status == CHOIR_OK && behind) {
        bool takes = !mine.whole || mine.steps < all[source].steps;
        sending s = {.group = e->env->group,
            .source = source,
            .sends = rank == source,
            .takes = takes,
            .careful = takes && mine.whole};
        status = send_state(e, &s, &all[source]);
    }
    if (status == CHOIR_OK && e->opts.state_bytes)
        memcpy(e->opts.state, own, e->opts.state_bytes);
    if (status == CHOIR_OK)
        choir__crew_settled();
    free(own);
    free(all);
    return status;
}
