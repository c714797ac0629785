/* Devices of other ranks, and the copies between them and this rank's.
 *
 * A message waits for the event that its bytes are complete, and the receiver's device waits
 * for the message; nothing waits on the host. Both ends of a pair queue their messages in the
 * order of the program, which is the same on all ranks. Messages of other pairs and of the
 * other direction should not wait for them, so each pair has two groups, shared with pairs of
 * equal distance that have no rank in common with it:
 *
 *     neighbours    0-1  2-3  4-5 ...   and   1-2  3-4 ...
 *     distance 2    0-2  1-3  4-6  5-7 ...
 *
 * A group is made when the first copy needs it, at the same point of the program on all ranks.
 * All groups consist of all ranks, so a rank has the same number in each.
 *
 * A failure that one group finds aborts all groups, on this rank and thereby on every rank. */
#include "parallel/pipeline/remote.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "device/dry/dry.h"
#include "parallel/pipeline/pipeline.h"
#include "tensor/launch.h"

struct choir__remote {
    choir__carrier carrier; /* first member: the carrier is cast to its remote */
    choir_scope *run;
    choir_group *whole;
    choir_group *_Atomic *between; /* (4 world) see between(); NULL: no copy has needed it */
    choir_group *_Atomic *wanted;  /* the entry of `between` to open */
    choir_device *devices;         /* (world) */
    int rank, world, chunks;
    int replica;                      /* which of several; -1: the pipeline has no replicas */
    choir__remote_on_abort *on_abort; /* NULL: the pipeline has no replicas */
    void *on_abort_arg;
    _Atomic int aborted; /* 1: being written; 2: status and sentence say why */
    choir_status status;
    char sentence[600];
};

enum { PATIENCE_US = 1 }; /* the host that sends does not wait for the send */

static choir__on_failure on_failure;
static void write_role(void *arg, int rank, char *text, size_t room);

/* --- devices of other ranks --- */

static void *get_addresses(void *arg, size_t bytes)
{
    (void)arg;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void put_addresses(void *arg, void *p, size_t bytes)
{
    (void)arg;
    munmap(p, bytes);
}

static const choir__memory_ops addresses = {.get = get_addresses, .put = put_addresses};

/* This rank's entry is the run's device under another name, with the same queue and memory. */
static void make_device(choir__remote *r, int rank)
{
    choir_device *d = &r->devices[rank];
    *d = *r->run->device;
    d->kind = "rank";
    d->index = rank;
    d->next = NULL;
    d->carrier = &r->carrier;
    snprintf(d->name, sizeof d->name, "rank:%u", (unsigned)rank);
    if (rank == r->rank)
        return;
    d->away = true;
    d->gauges = NULL;
    d->queue = choir__queue_new((choir__queue_opts){.name = d->name, .null = true});
    d->pool = choir__pool_new(
        choir_device_is_dry(r->run->device) ? &choir__dry_memory : &addresses, NULL, NULL);
}

static void free_devices(void *arg)
{
    choir__remote *r = arg;
    for (int i = 0; i < r->world; i++)
        if (r->devices[i].away) {
            choir__queue_free(r->devices[i].queue);
            choir__pool_free(r->devices[i].pool);
        }
}

/* --- copies --- */

static choir_status open_group(choir__remote *r, choir_group *parent, choir_group **group)
{
    choir_status status = choir_group_split(parent, 0, r->rank, group);
    if (status != CHOIR_OK)
        return status;
    choir__group_watch(*group, on_failure, r, (choir__role){write_role, r});
    choir__queue_set_patience(choir__group_queue(*group), PATIENCE_US);
    return CHOIR_OK;
}

static choir_status open_wanted(void *arg)
{
    choir__remote *r = arg;
    choir_group *group;
    if (*r->wanted)
        return CHOIR_OK;
    choir_status status = open_group(r, r->whole, &group);
    *r->wanted = group;
    /* an abort that ran before this group was listed did not reach it */
    if (group && atomic_load(&r->aborted) == 2)
        choir__group_abort(group, r->status, r->sentence);
    return status;
}

/* Returns the group for a pair and direction. Collective if the group is new. NULL: an error of
 * the run. */
static choir_group *between(choir__remote *r, int from, int to)
{
    int low = from < to ? from : to, apart = from < to ? to - from : from - to;
    choir_group *_Atomic *group = &r->between[4 * apart + 2 * (low / apart % 2) + (from > to)];
    if (*group)
        return *group;
    r->wanted = group;
    choir_status status = choir__host_call(open_wanted, r); /* not part of a recording */
    if (status != CHOIR_OK) {
        choir__remote_abort(r, status, choir__message());
        choir__scope_fail(r->run, status);
    }
    return *group;
}

static choir__event event_of(choir_work work)
{
    return (choir__event){work.queue, work.place};
}

static void group_waits(choir_group *group, choir__event event)
{
    choir__queue_wait_event(choir__group_queue(group), event);
}

/* Broadcasts x of rank `root` into y, on a device that every rank has. */
static void broadcast(choir__remote *r, int root, const void *x, choir_device *to, void *y,
    size_t bytes, choir__event ready, choir__event *read)
{
    choir_work work;
    bool mine = root == r->rank;
    void *data = mine ? (void *)(uintptr_t)x : y;
    group_waits(r->whole, mine ? ready : choir__queue_record(to->queue));
    (void)!choir_group_broadcast(r->whole, data, (int64_t)bytes, CHOIR_U8, root, &work);
    if (mine) {
        choir__queue_wait_event(to->queue, ready);
        choir__launch_bytes(to, y, x, bytes);
        *read = event_of(work);
    } else {
        choir__queue_wait_event(to->queue, event_of(work));
        choir__queue_moved(to->queue, r->devices[root].queue, bytes);
    }
}

static void carry(choir__carrier *carrier, choir_device *from, const void *x, choir_device *to,
    void *y, size_t bytes, choir__event ready, choir__event *read)
{
    choir__remote *r = (choir__remote *)carrier;
    choir_work work;
    if (to->carrier != carrier) {
        broadcast(r, from->index, x, to, y, bytes, ready, read);
        return;
    }
    choir_group *group = between(r, from->index, to->index);
    if (!group)
        return;
    /* queues of other ranks' devices count nothing */
    choir__queue_moved(to->queue, from->queue, bytes);
    if (from->index == r->rank) {
        group_waits(group, ready);
        (void)!choir_group_send(group, x, (int64_t)bytes, CHOIR_U8, to->index, &work);
        *read = event_of(work);
    } else if (to->index == r->rank) {
        /* earlier users of y must be done */
        group_waits(group, choir__queue_record(to->queue));
        (void)!choir_group_receive(group, y, (int64_t)bytes, CHOIR_U8, from->index, &work);
        choir__queue_wait_event(to->queue, event_of(work));
    }
}

void choir__remote_join(choir__remote *r)
{
    for (int i = 0; i < 4 * r->world; i++)
        if (r->between[i])
            choir__queue_wait_event(
                r->run->device->queue, choir__queue_record(choir__group_queue(r->between[i])));
    choir__queue_wait_event(
        r->run->device->queue, choir__queue_record(choir__group_queue(r->whole)));
}

/* --- failures --- */

void choir__remote_abort(choir__remote *r, choir_status status, const char *sentence)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&r->aborted, &none, 1))
        return;
    r->status = status;
    snprintf(r->sentence, sizeof r->sentence, "%s", sentence);
    atomic_store(&r->aborted, 2);
    for (int i = 0; i < 4 * r->world; i++)
        if (r->between[i])
            choir__group_abort(r->between[i], status, r->sentence);
    if (r->whole)
        choir__group_abort(r->whole, status, r->sentence);
    if (r->on_abort)
        r->on_abort(r->on_abort_arg, status, r->sentence);
}

void choir__remote_name(const choir__remote *r, int rank, int replica, char *text, size_t room)
{
    int used = snprintf(text, room, "stage%s %d", r->chunks > 1 ? "s" : "", rank);
    for (int c = 1; c < r->chunks && used + 60 < (int)room; c++)
        used += snprintf(text + used, room - (size_t)used, ", %d", rank + c * r->world);
    if (replica >= 0)
        used += snprintf(text + used, room - (size_t)used, " of replica %d", replica);
    snprintf(text + used, room - (size_t)used, " of the pipeline");
}

static void write_role(void *arg, int rank, char *text, size_t room)
{
    const choir__remote *r = arg;
    choir__remote_name(r, rank, r->replica, text, room);
}

static const char *on_failure(void *arg, choir_status status, const char *sentence)
{
    choir__remote *r = arg;
    choir__remote_abort(r, status, sentence);
    return atomic_load(&r->aborted) == 2 ? r->sentence : sentence;
}

/* --- agreement --- */

choir_status choir__ranks_have_same(
    choir_group *group, uint64_t mine, const char *who, const char *what)
{
    int world = choir_group_world(group);
    uint64_t *all = choir__calloc((size_t)world, sizeof *all);
    choir_status status = choir_group_all_gather(group, &mine, all, 1, CHOIR_I64, NULL);
    for (int i = 1; i < world && status == CHOIR_OK; i++)
        if (all[i] != all[0])
            status = choir__error(
                CHOIR_ERR_MISMATCH, "pipeline: %s 0 and %d have different %s", who, i, what);
    free(all);
    return status;
}

choir_status choir__remote_agree(choir__remote *r, uint64_t mine, const char *what)
{
    return choir__ranks_have_same(r->whole, mine, "ranks", what);
}

choir_status choir__remote_sum(choir__remote *r, double *numbers, int64_t count)
{
    return choir_group_all_reduce(r->whole, numbers, count, CHOIR_F64, CHOIR_SUM, NULL);
}

/* --- open and close --- */

int choir__remote_count(const choir__remote *r)
{
    return r->world;
}

int choir__remote_rank(const choir__remote *r)
{
    return r->rank;
}

choir_device *choir__remote_device(choir__remote *r, int rank)
{
    return &r->devices[rank];
}

void choir__remote_of_replica(
    choir__remote *r, int replica, choir__remote_on_abort *on_abort, void *arg)
{
    r->replica = replica;
    r->on_abort = on_abort;
    r->on_abort_arg = arg;
}

choir_status choir__remote_open(
    choir_scope *run, choir_group *group, int chunks, choir__remote **remote)
{
    choir__remote *r = choir__arena_get(&run->arena, sizeof *r);
    r->carrier.carry = carry;
    r->run = run;
    r->rank = choir_group_rank(group);
    r->world = choir_group_world(group);
    r->chunks = chunks;
    r->replica = -1;
    r->between = choir__arena_get(&run->arena, 4 * (size_t)r->world * sizeof(choir_group *));
    r->devices = choir__arena_get(&run->arena, (size_t)r->world * sizeof *r->devices);
    for (int i = 0; i < r->world; i++)
        make_device(r, i);
    choir__on_end(run, free_devices, r);
    *remote = r;
    return open_group(r, group, &r->whole);
}

void choir__remote_close(choir__remote *r)
{
    if (!r)
        return;
    for (int i = 0; i < 4 * r->world; i++)
        choir_group_free(r->between[i]);
    choir_group_free(r->whole);
    for (int i = 0; i < 4 * r->world; i++)
        r->between[i] = NULL;
    r->whole = NULL;
}
