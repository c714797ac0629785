/* The ledger as Raft's state machine: a command writes entry n + 1, or does nothing; its result
 * says whether the entry is the caller's own text. The newest entries alone are kept, and they
 * are the snapshot. */
#include "launch/raft/entries.h"

#include <stdlib.h>
#include <string.h>

#include "launch/raft/wire.h"

static void keep(choir__entries *e, int64_t n, const char *text, size_t bytes)
{
    char **slot = &e->kept[n % CHOIR__ENTRIES_KEPT];
    free(*slot);
    *slot = choir__alloc(bytes + 1);
    memcpy(*slot, text, bytes);
    (*slot)[bytes] = '\0';
    if (n > e->head)
        e->head = n;
}

const char *choir__entries_at(const choir__entries *e, int64_t n)
{
    if (n < 1 || n > e->head || n <= e->head - CHOIR__ENTRIES_KEPT)
        return NULL;
    return e->kept[n % CHOIR__ENTRIES_KEPT];
}

static struct raft_buffer given_away(choir__bytes *b)
{
    struct raft_buffer buf = {raft_malloc(b->to), b->to};
    memcpy(buf.base, b->data, b->to);
    choir__bytes_free(b);
    return buf;
}

struct raft_buffer choir__entries_command(int64_t n, const char *text, size_t bytes)
{
    choir__bytes b = {0};
    choir__write_number(&b, (uint64_t)n);
    choir__write_text(&b, text, bytes);
    return given_away(&b);
}

static int apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    choir__entries *e = fsm->data;
    choir__reader r = {buf->base, (const uint8_t *)buf->base + buf->len, false};
    int64_t n = (int64_t)choir__read_number(&r);
    size_t bytes;
    const char *text = choir__read_text(&r, &bytes);
    *result = NULL;
    if (r.bad)
        return RAFT_MALFORMED;
    if (n == e->head + 1) {
        keep(e, n, text, bytes);
        e->changed(e->arg);
    }
    const char *there = choir__entries_at(e, n);
    if (there && strlen(there) == bytes && !memcmp(there, text, bytes))
        *result = CHOIR__ENTRY_MINE;
    return 0;
}

/* A snapshot is the number of its first entry, and the entries. */
static int take_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *count)
{
    choir__entries *e = fsm->data;
    choir__bytes b = {0};
    int64_t first = e->head - CHOIR__ENTRIES_KEPT + 1;
    if (first < 1 || !choir__entries_at(e, first))
        for (first = e->head + 1; choir__entries_at(e, first - 1);)
            first--;
    choir__write_number(&b, (uint64_t)first);
    choir__write_number(&b, (uint64_t)(e->head - first + 1));
    for (int64_t n = first; n <= e->head; n++)
        choir__write_text(&b, choir__entries_at(e, n), strlen(choir__entries_at(e, n)));
    *bufs = raft_malloc(sizeof **bufs);
    **bufs = given_away(&b);
    *count = 1;
    return 0;
}

static int restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    choir__entries *e = fsm->data;
    choir__reader r = {buf->base, (const uint8_t *)buf->base + buf->len, false};
    int64_t first = (int64_t)choir__read_number(&r);
    int64_t count = (int64_t)choir__read_number(&r);
    for (int64_t n = first; n < first + count && !r.bad; n++) {
        size_t bytes;
        const char *text = choir__read_text(&r, &bytes);
        if (!r.bad)
            keep(e, n, text, bytes);
    }
    if (r.bad)
        return RAFT_MALFORMED;
    raft_free(buf->base);
    e->changed(e->arg);
    return 0;
}

void choir__entries_init(choir__entries *e)
{
    *e = (choir__entries){.fsm = {.version = 1,
                              .data = e,
                              .apply = apply,
                              .snapshot = take_snapshot,
                              .restore = restore}};
}

void choir__entries_free(choir__entries *e)
{
    for (int i = 0; i < CHOIR__ENTRIES_KEPT; i++)
        free(e->kept[i]);
}
