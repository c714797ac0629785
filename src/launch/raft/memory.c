/* libraft's storage, in memory: everything that libraft would write succeeds, and is answered
 * before the next message is read. The snapshot is kept here, and the entries of the log by
 * libraft itself. */
#include "launch/raft/server_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef enum kind { SENT, APPENDED, SNAPSHOT_PUT, SNAPSHOT_GOT, CLOSED } kind;

typedef struct choir__raft_done {
    struct choir__raft_done *next;
    kind kind;
    int status;
    void *request;
} done;

static void later(choir__raft_memory *m, kind k, int status, void *request)
{
    done *d = choir__calloc(1, sizeof *d);
    *d = (done){.kind = k, .status = status, .request = request};
    *(m->last ? &m->last->next : &m->first) = d;
    m->last = d;
}

/* --- snapshots --- */

static struct raft_buffer joined(const struct raft_buffer *bufs, unsigned count)
{
    struct raft_buffer all = {0};
    for (unsigned i = 0; i < count; i++)
        all.len += bufs[i].len;
    all.base = raft_malloc(all.len + 1);
    size_t used = 0;
    for (unsigned i = 0; all.base && i < count; i++) {
        memcpy((char *)all.base + used, bufs[i].base, bufs[i].len);
        used += bufs[i].len;
    }
    return all;
}

static int copy_configuration(
    const struct raft_configuration *from, struct raft_configuration *to)
{
    int error = 0;
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n && !error; i++)
        error = raft_configuration_add(
            to, from->servers[i].id, from->servers[i].address, from->servers[i].role);
    return error;
}

static void forget_snapshot(choir__raft_memory *m)
{
    if (m->snapshot.index)
        raft_configuration_close(&m->snapshot.configuration);
    raft_free(m->snapshot_data.base);
    m->snapshot = (struct raft_snapshot){0};
    m->snapshot_data = (struct raft_buffer){0};
}

static int put_snapshot(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *r,
    const struct raft_snapshot *s, raft_io_snapshot_put_cb cb)
{
    choir__raft_memory *m = io->impl;
    (void)trailing; /* trailing entries of libraft's own log */
    forget_snapshot(m);
    m->snapshot_data = joined(s->bufs, s->n_bufs);
    m->snapshot = *s;
    int error = copy_configuration(&s->configuration, &m->snapshot.configuration);
    r->cb = cb;
    later(m, SNAPSHOT_PUT, error, r);
    return 0;
}

static int get_snapshot(
    struct raft_io *io, struct raft_io_snapshot_get *r, raft_io_snapshot_get_cb cb)
{
    r->cb = cb;
    later(io->impl, SNAPSHOT_GOT, 0, r);
    return 0;
}

/* libraft frees the copy. */
static void give_snapshot(choir__raft_memory *m, struct raft_io_snapshot_get *r)
{
    struct raft_snapshot *copy = raft_malloc(sizeof *copy);
    *copy = m->snapshot;
    copy->bufs = raft_malloc(sizeof *copy->bufs);
    copy->bufs[0] = joined(&m->snapshot_data, 1);
    copy->n_bufs = 1;
    int error = copy_configuration(&m->snapshot.configuration, &copy->configuration);
    r->cb(r, copy, error);
}

/* --- the log --- */

static int append(struct raft_io *io, struct raft_io_append *r,
    const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    (void)entries;
    (void)n;
    r->cb = cb;
    later(io->impl, APPENDED, 0, r);
    return 0;
}

static int cut(struct raft_io *io, raft_index index)
{
    (void)io;
    (void)index;
    return 0;
}

static int bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    choir__raft_memory *m = io->impl;
    return raft_configuration_encode(conf, &m->founding);
}

/* The first entry of a new cluster is its configuration, in term 1. */
static int load(struct raft_io *io, raft_term *term, raft_id *voted_for,
    struct raft_snapshot **snapshot, raft_index *start, struct raft_entry **entries,
    size_t *count)
{
    choir__raft_memory *m = io->impl;
    bool founds = m->founding.base;
    *term = founds ? 1 : 0;
    *voted_for = 0;
    *snapshot = NULL;
    *start = 1;
    *count = founds ? 1 : 0;
    *entries = founds ? raft_calloc(1, sizeof **entries) : NULL;
    if (founds)
        **entries = (struct raft_entry){.term = 1,
            .type = RAFT_CHANGE,
            .buf = m->founding,
            .batch = m->founding.base}; /* libraft's from now on */
    m->founding = (struct raft_buffer){0};
    return 0;
}

static int recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_IOERR; /* never called */
}

static int set_term(struct raft_io *io, raft_term term)
{
    (void)io;
    (void)term;
    return 0;
}

static int set_vote(struct raft_io *io, raft_id id)
{
    (void)io;
    (void)id;
    return 0;
}

/* --- the rest --- */

static int init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io;
    (void)id;
    (void)address;
    return 0;
}

static int start(
    struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive)
{
    choir__raft_memory *m = io->impl;
    (void)msecs;
    m->tick = tick;
    m->receive = receive;
    return 0;
}

static int post(struct raft_io *io, struct raft_io_send *r, const struct raft_message *message,
    raft_io_send_cb cb)
{
    choir__raft_memory *m = io->impl;
    bool sent = m->send(m->arg, message);
    r->cb = cb;
    later(m, SENT, sent ? 0 : RAFT_NOCONNECTION, r);
    return 0;
}

static void close_io(struct raft_io *io, raft_io_close_cb cb)
{
    choir__raft_memory *m = io->impl;
    m->closed = cb;
    later(m, CLOSED, 0, NULL);
}

static raft_time now(struct raft_io *io)
{
    (void)io;
    return (raft_time)(choir__now() * 1e3);
}

static int draw(struct raft_io *io, int low, int high)
{
    (void)io;
    return low + rand() % (high - low > 0 ? high - low : 1);
}

bool choir__raft_memory_answer(choir__raft_memory *m)
{
    done *d = m->first;
    bool any = d;
    m->first = m->last = NULL; /* callbacks may add more */
    for (done *next; d; d = next) {
        next = d->next;
        switch (d->kind) {
        case SENT: {
            struct raft_io_send *r = d->request;
            if (r->cb)
                r->cb(r, d->status);
            break;
        }
        case APPENDED: {
            struct raft_io_append *r = d->request;
            r->cb(r, d->status);
            break;
        }
        case SNAPSHOT_PUT: {
            struct raft_io_snapshot_put *r = d->request;
            r->cb(r, d->status);
            break;
        }
        case SNAPSHOT_GOT: give_snapshot(m, d->request); break;
        case CLOSED: m->closed(&m->io); break;
        }
        free(d);
    }
    return any;
}

void choir__raft_memory_init(choir__raft_memory *m)
{
    m->io = (struct raft_io){.version = 1,
        .impl = m,
        .init = init,
        .close = close_io,
        .load = load,
        .start = start,
        .bootstrap = bootstrap,
        .recover = recover,
        .set_term = set_term,
        .set_vote = set_vote,
        .send = post,
        .append = append,
        .truncate = cut,
        .snapshot_put = put_snapshot,
        .snapshot_get = get_snapshot,
        .time = now,
        .random = draw};
}

void choir__raft_memory_free(choir__raft_memory *m)
{
    for (done *d = m->first, *next; d; d = next) {
        next = d->next;
        free(d);
    }
    forget_snapshot(m);
    raft_free(m->founding.base);
}
