/* Sending copies to the next machine. Each rank has a thread and a group of its own with the
 * others, so that the training continues meanwhile. A copy is sent in one message; when all
 * have arrived, which a barrier tells, the next ones may be written.
 *
 * The ranks of machine m send to the ranks of machine m + 1, and the last machine to the first:
 * local rank l to local rank l, or where that machine has fewer ranks to l modulo their number.
 * The one that receives writes into memory that its machine's agent keeps. */
#include "parallel/elastic/copies_layout.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/hold_signals.h"
#include "comm/group.h"
#include "comm/flight/flight.h"

/* Where a rank works. */
typedef struct seat {
    int32_t node, local_rank, local_world;
} seat;

/* A rank of the machine before, which sends its copies here. */
typedef struct sender {
    int rank, slot;
    choir__copy_memory memory[2];
} sender;

struct choir__courier {
    choir__copies *copies;
    choir_group *group;
    int world, to; /* to: the rank to which this one sends */
    sender *senders;
    int sender_count;
    int slots;      /* slots of this machine to which ranks send */
    int64_t *bytes; /* (world) bytes of each rank's copy under way */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* the rest under the lock */
    const char *copy; /* to be sent; NULL: there is nothing to do */
    bool closing;
    choir_status status;
    char *message; /* message of the failure; NULL: none */
};

/* --- who sends to whom --- */

/* Returns the rank on `node` whose local rank is l modulo the number of ranks there. */
static int find_rank(const seat *seats, int world, int node, int l)
{
    for (int r = 0; r < world; r++)
        if (seats[r].node == node && seats[r].local_rank == l % seats[r].local_world)
            return r;
    return -1;
}

/* Returns the next machine that has ranks; -1: there is no other. */
static int next_node(const seat *seats, int world, int node)
{
    int above = -1, lowest = -1;
    for (int r = 0; r < world; r++) {
        int n = seats[r].node;
        if (n > node && (above < 0 || n < above))
            above = n;
        if (n < node && (lowest < 0 || n < lowest))
            lowest = n;
    }
    return above >= 0 ? above : lowest;
}

static int receiver_of(const seat *seats, int world, int rank)
{
    int next = next_node(seats, world, seats[rank].node);
    return next < 0 ? -1 : find_rank(seats, world, next, seats[rank].local_rank);
}

/* Notes the senders of this rank, and the slots to which any rank sends on this machine. */
static void find_senders(choir__courier *k, const seat *seats, int rank)
{
    const choir__copies *c = k->copies;
    k->senders = choir__calloc((size_t)k->world, sizeof *k->senders);
    for (int r = 0; r < k->world; r++)
        if (next_node(seats, k->world, seats[r].node) == seats[rank].node)
            k->slots = seats[r].local_world;
    for (int r = 0; r < k->world; r++)
        if (receiver_of(seats, k->world, r) == rank)
            k->senders[k->sender_count++] =
                (sender){.rank = r, .slot = c->keeper.own + seats[r].local_rank};
}

/* --- the thread --- */

/* Prepares the memory of the incoming copies; no copy is complete now. */
static choir_status make_ready(choir__courier *k)
{
    choir_status status = CHOIR_OK;
    const choir__copies *c = k->copies;
    for (int i = 0; i < k->sender_count && status == CHOIR_OK; i++) {
        sender *s = &k->senders[i];
        int half = c->next[s->slot];
        status = choir__copy_make_room(
            &s->memory[half], c->fds[s->slot][half], (size_t)k->bytes[s->rank]);
        if (status == CHOIR_OK)
            atomic_store(&((choir__copy_head *)s->memory[half].at)->complete, 0);
    }
    return status;
}

/* Sends everything but `complete`, which each side writes for itself. */
static choir_status exchange(choir__courier *k, const char *copy)
{
    enum { SKIPPED = offsetof(choir__copy_head, complete) + sizeof(uint64_t) };
    const choir__copies *c = k->copies;
    choir_status status = CHOIR_OK;
    choir_group_batch_begin(k->group);
    for (int i = 0; i < k->sender_count && status == CHOIR_OK; i++) {
        const sender *s = &k->senders[i];
        status = choir_group_receive(k->group, s->memory[c->next[s->slot]].at + SKIPPED,
            k->bytes[s->rank] - SKIPPED, CHOIR_U8, s->rank, NULL);
    }
    if (status == CHOIR_OK)
        status = choir_group_send(k->group, copy + SKIPPED,
            k->bytes[c->elastic->env->rank] - SKIPPED, CHOIR_U8, k->to, NULL);
    choir_status ended = choir_group_batch_end(k->group, NULL);
    return status == CHOIR_OK ? ended : status;
}

/* The copies that have come contain the boxes of the senders' parts alone. */
static void complete(choir__courier *k)
{
    choir__copies *c = k->copies;
    for (int i = 0; i < k->sender_count; i++) {
        const sender *s = &k->senders[i];
        choir__copy_head *head = (choir__copy_head *)s->memory[c->next[s->slot]].at;
        head->boxes = head->parts;
        head->bytes = head->parts_bytes;
        atomic_store(&head->complete, 1);
        c->next[s->slot] = (uint8_t)(1 - c->next[s->slot]);
    }
}

static choir_status carry(choir__courier *k, const char *copy)
{
    int rank = k->copies->elastic->env->rank;
    choir_status status = choir_group_all_gather(
        k->group, &k->bytes[rank], k->bytes, (int64_t)sizeof *k->bytes, CHOIR_U8, NULL);
    if (status == CHOIR_OK)
        status = make_ready(k);
    if (status == CHOIR_OK)
        status = exchange(k, copy);
    if (status != CHOIR_OK)
        return status;
    complete(k);
    return choir_group_barrier(k->group, NULL);
}

static void *run(void *arg)
{
    choir__courier *k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->copy && !k->closing)
            pthread_cond_wait(&k->changed, &k->lock);
        if (!k->copy)
            break;
        const char *copy = k->copy;
        pthread_mutex_unlock(&k->lock);
        choir_status status = carry(k, copy);
        char *message = status == CHOIR_OK ? NULL : choir__strdup(choir_error_message());
        pthread_mutex_lock(&k->lock);
        k->copy = NULL;
        k->status = status;
        k->message = message;
        pthread_cond_broadcast(&k->changed);
        if (status != CHOIR_OK)
            break;
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

void choir__courier_send(choir__courier *k, const char *copy, size_t bytes)
{
    pthread_mutex_lock(&k->lock);
    k->bytes[k->copies->elastic->env->rank] = (int64_t)bytes;
    k->copy = copy;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

int choir__courier_slots(const choir__courier *k)
{
    return k->slots;
}

choir_status choir__courier_wait(choir__courier *k)
{
    pthread_mutex_lock(&k->lock);
    while (k->copy && k->status == CHOIR_OK)
        pthread_cond_wait(&k->changed, &k->lock);
    choir_status status = k->status;
    if (status != CHOIR_OK)
        choir__set_message(k->message);
    pthread_mutex_unlock(&k->lock);
    return status;
}

/* --- life --- */

choir_status choir__courier_lengths(choir__courier *k, size_t bytes)
{
    const choir_env *env = k->copies->elastic->env;
    int64_t mine = (int64_t)bytes;
    return choir_group_all_gather(
        env->group, &mine, k->bytes, (int64_t)sizeof mine, CHOIR_U8, NULL);
}

size_t choir__courier_lack(const choir__courier *k)
{
    size_t lack = 0;
    for (int i = 0; i < k->sender_count; i++) {
        const sender *s = &k->senders[i];
        lack += choir__copy_lack(k->copies->fds[s->slot], (size_t)k->bytes[s->rank]);
    }
    return lack;
}

choir_status choir__courier_start(choir__courier *k)
{
    const choir__copies *c = k->copies;
    for (int i = 0; i < k->sender_count; i++) {
        sender *s = &k->senders[i];
        choir_status status =
            choir__copy_make_slot(s->memory, c->fds[s->slot], (size_t)k->bytes[s->rank]);
        if (status != CHOIR_OK)
            return status;
    }
    int why = choir__thread_start(&k->thread, run, k);
    k->started = why == 0;
    return why ? choir__error(CHOIR_ERR_IO, "cannot start a thread that sends copies: %s",
                     choir__why(why))
               : CHOIR_OK;
}

choir_status choir__courier_new(choir__copies *c, choir__courier **made)
{
    const choir_env *env = c->elastic->env;
    int world = env->world;
    seat mine = {c->keeper.node, c->keeper.local_rank, c->keeper.own};
    seat *seats = choir__calloc((size_t)world, sizeof *seats);
    choir_status status =
        choir_group_all_gather(env->group, &mine, seats, sizeof mine, CHOIR_U8, NULL);
    int to = status == CHOIR_OK ? receiver_of(seats, world, env->rank) : -1;
    *made = NULL;
    if (to < 0) {
        free(seats);
        return status;
    }
    choir__courier *k = choir__calloc(1, sizeof *k);
    *k = (choir__courier){.copies = c, .world = world, .to = to};
    k->bytes = choir__calloc((size_t)world, sizeof *k->bytes);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->changed, NULL);
    find_senders(k, seats, env->rank);
    free(seats);
    status = choir_group_split(env->group, 0, env->rank, &k->group);
    if (status != CHOIR_OK) {
        choir__courier_free(k);
        return status;
    }
    choir__flight_log_aside(k->group->log);
    *made = k;
    return CHOIR_OK;
}

/* A copy that is still under way belongs to ranks that end by a failure. */
void choir__courier_free(choir__courier *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->closing = true;
    bool busy = k->copy != NULL && k->status == CHOIR_OK;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    if (busy)
        choir__group_abort(k->group, CHOIR_ERR_PEER_LOST, "the ranks' work has ended");
    if (k->started)
        pthread_join(k->thread, NULL);
    choir_group_free(k->group);
    for (int i = 0; i < 2 * k->sender_count; i++) {
        choir__copy_memory *m = &k->senders[i / 2].memory[i % 2];
        if (m->at)
            munmap(m->at, m->bytes);
    }
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k->senders);
    free(k->bytes);
    free(k->message);
    free(k);
}
