/* Runs a world of dry ranks as threads that take turns. The turn is a mutex: a living rank
 * holds it except while it waits in a collective for the others. If all ranks that are not
 * done wait, or one has failed, all waits end with an error, so ranks that differ in their
 * collectives never hang. */
#include "comm/dry/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hold_signals.h"

struct choir__dry_world {
    int count, living;
    int *stands_for; /* (count); NULL: itself, or `only` */
    int only;        /* the rank that stands for all; -1: there are several */
    choir__dry_room *rooms;
    pthread_mutex_t turn;
    pthread_cond_t changed;
    int running; /* living ranks that are neither done nor waiting */
    choir_status failed;
    char sentence[512];
    choir__dry_rank *fn;
    void *arg;
};

typedef struct place {
    choir__dry_world *world;
    int rank;
} place;

static _Thread_local place here;

choir__dry_world *choir__dry_here(int *rank)
{
    *rank = here.rank;
    return here.world;
}

int choir__dry_count(const choir__dry_world *world)
{
    return world->count;
}

static int speaker_of(const choir__dry_world *w, int rank)
{
    return w->only >= 0 ? w->only : w->stands_for ? w->stands_for[rank] : rank;
}

static choir__dry_world *new_world(int count, const int *stands_for, int only)
{
    choir__dry_world *w = choir__calloc(1, sizeof *w);
    w->count = count;
    w->only = only;
    if (stands_for) {
        w->stands_for = choir__alloc((size_t)count * sizeof *stands_for);
        memcpy(w->stands_for, stands_for, (size_t)count * sizeof *stands_for);
    }
    for (int r = 0; r < count; r++)
        w->living += speaker_of(w, r) == r;
    pthread_mutex_init(&w->turn, NULL);
    pthread_cond_init(&w->changed, NULL);
    return w;
}

static void free_world(choir__dry_world *w)
{
    pthread_mutex_destroy(&w->turn);
    pthread_cond_destroy(&w->changed);
    free(w->stands_for);
    free(w);
}

choir__dry_world *choir__dry_alone(int rank, int world)
{
    return new_world(world, NULL, rank);
}

/* --- rooms --- */

static choir__dry_room *find(
    const choir__dry_world *w, const choir__dry_room *parent, int split, int color)
{
    choir__dry_room *r = w->rooms;
    while (r && (r->parent != parent || r->split != split || r->color != color))
        r = r->next;
    return r;
}

/* Lets each member speak for itself, or be represented by the rank that stands for it, or where
 * that is no member, by any that lives. Few of many members live. */
static void find_speakers(choir__dry_room *room)
{
    for (int i = 0; i < room->count; i++)
        if (speaker_of(room->world, room->ranks[i]) == room->ranks[i]) {
            CHOIR__GROW(room->members, room->living);
            room->members[room->living++] = i;
        }
    for (int i = 0, last = 0; i < room->count; i++) {
        const int speaker = speaker_of(room->world, room->ranks[i]);
        /* neighbors are often of one class */
        for (int k = 0; k < room->living && room->ranks[room->members[last]] != speaker; k++)
            last = (last + 1) % room->living;
        const bool found = room->ranks[room->members[last]] == speaker;
        room->speaker[i] = found ? last : 0;
    }
}

choir__dry_room *choir__dry_enter(choir__dry_world *world, choir__dry_room *parent,
    const int *ranks, int count, int split, int color)
{
    choir__dry_room *room = find(world, parent, split, color);
    if (!room) {
        size_t n = (size_t)count;
        room = choir__calloc(1, sizeof *room);
        *room = (choir__dry_room){.world = world,
            .count = count,
            .ranks = choir__calloc(n, sizeof *room->ranks),
            .speaker = choir__calloc(n, sizeof *room->speaker),
            .calls = choir__calloc(n, sizeof(choir__call *)),
            .parent = parent,
            .next = world->rooms,
            .split = split,
            .color = color};
        for (int i = 0; i < count; i++)
            room->ranks[i] = parent ? parent->ranks[ranks[i]] : i;
        find_speakers(room);
        world->rooms = room;
    }
    room->users++;
    return room;
}

void choir__dry_leave(choir__dry_room *room)
{
    choir__dry_world *w = room->world;
    choir__dry_room **at = &w->rooms;
    if (--room->users)
        return;
    while (*at != room)
        at = &(*at)->next;
    *at = room->next;
    free(room->ranks);
    free(room->speaker);
    free(room->members);
    free(room->calls);
    free(room);
    if (w->only >= 0 && !w->rooms)
        free_world(w);
}

/* --- meeting --- */

static void fail(choir__dry_world *w, choir_status status, const char *sentence)
{
    if (w->failed == CHOIR_OK) {
        w->failed = status;
        snprintf(w->sentence, sizeof w->sentence, "%s", sentence);
    }
    pthread_cond_broadcast(&w->changed);
}

static void await(choir__dry_room *room)
{
    choir__dry_world *w = room->world;
    uint64_t round = room->round;
    if (--w->running == 0)
        fail(w, CHOIR_ERR_MISMATCH,
            "the planned ranks wait for each other: they differ in their collectives");
    while (room->round == round && w->failed == CHOIR_OK)
        pthread_cond_wait(&w->changed, &w->turn);
}

choir_status choir__dry_meet(choir__dry_room *room, int member, const choir__call *call,
    void (*perform)(const choir__dry_room *room), char sentence[512])
{
    choir__dry_world *w = room->world;
    room->calls[member] = call;
    if (++room->arrived == room->living) {
        perform(room);
        room->arrived = 0;
        room->round++;
        w->running += room->living - 1;
        pthread_cond_broadcast(&w->changed);
    } else {
        await(room);
    }
    if (w->failed != CHOIR_OK)
        snprintf(sentence, 512, "%s", w->sentence);
    return w->failed;
}

/* --- running a world --- */

static choir_status run_rank(choir__dry_world *w, int rank)
{
    here = (place){w, rank};
    choir_status status = w->fn(rank, w->arg);
    here = (place){0};
    return status;
}

static void *run_thread(void *arg)
{
    const place *p = arg;
    choir__dry_world *w = p->world;
    pthread_mutex_lock(&w->turn);
    choir_status status = w->failed == CHOIR_OK ? run_rank(w, p->rank) : CHOIR_OK;
    w->running--;
    if (status != CHOIR_OK)
        fail(w, status, choir__message());
    pthread_mutex_unlock(&w->turn);
    return NULL;
}

static void run_threads(choir__dry_world *w)
{
    pthread_t *threads = choir__calloc((size_t)w->count, sizeof *threads);
    place *places = choir__calloc((size_t)w->count, sizeof *places);
    bool *started = choir__calloc((size_t)w->count, sizeof *started);
    pthread_mutex_lock(&w->turn);
    for (int r = 0; r < w->count; r++) {
        places[r] = (place){w, r};
        if (speaker_of(w, r) != r)
            continue;
        started[r] = choir__thread_start(&threads[r], run_thread, &places[r]) == 0;
        w->running += started[r];
        if (!started[r])
            fail(w, CHOIR_ERR_MEMORY, "no thread for a planned rank");
    }
    pthread_mutex_unlock(&w->turn);
    for (int r = 0; r < w->count; r++)
        if (started[r])
            pthread_join(threads[r], NULL);
    free(started);
    free(places);
    free(threads);
}

choir_status choir__dry_world_run(
    int world, const int *stands_for, choir__dry_rank *fn, void *arg)
{
    choir__dry_world *w = new_world(world, stands_for, -1);
    w->fn = fn;
    w->arg = arg;
    if (w->living == 1) {
        w->running = 1;
        w->failed = run_rank(w, speaker_of(w, 0));
    } else {
        run_threads(w);
        if (w->failed != CHOIR_OK)
            choir__set_message(w->sentence);
    }
    choir_status status = w->failed;
    free_world(w);
    return status;
}
