/* Writes and reads Raft's messages as bytes. Counts in a message are compared with the bytes
 * that are there before memory is allocated for them, so a stranger's message cannot ask for
 * more memory than it has bytes. */
#include "launch/raft/wire.h"

#include "launch/store/protocol.h"

enum { ENTRY_LEAST = 24, SERVER_LEAST = 24 }; /* bytes of a message for one of them */

/* --- numbers and texts --- */

uint64_t choir__read_number(choir__reader *r)
{
    if (r->end - r->at < 8) {
        r->bad = true;
        return 0;
    }
    r->at += 8;
    return choir__get64(r->at - 8);
}

const char *choir__read_text(choir__reader *r, size_t *bytes)
{
    uint64_t length = choir__read_number(r);
    *bytes = 0;
    if (r->bad || length > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return "";
    }
    *bytes = (size_t)length;
    r->at += length;
    return (const char *)r->at - length;
}

void choir__copy_text(choir__reader *r, char *to, size_t room)
{
    size_t bytes;
    const char *text = choir__read_text(r, &bytes);
    r->bad |= bytes >= room;
    if (bytes >= room)
        bytes = 0;
    memcpy(to, text, bytes);
    to[bytes] = '\0';
}

void choir__write_number(choir__bytes *b, uint64_t value)
{
    uint8_t bytes[8];
    choir__put64(bytes, value);
    choir__bytes_put(b, bytes, sizeof bytes);
}

void choir__write_text(choir__bytes *b, const void *text, size_t bytes)
{
    choir__write_number(b, bytes);
    choir__bytes_put(b, text, bytes);
}

static void *copy_of(const char *text, size_t bytes)
{
    char *copy = raft_malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

/* --- entries --- */

static void write_entries(choir__bytes *to, const struct raft_append_entries *a)
{
    choir__write_number(to, a->n_entries);
    for (unsigned i = 0; i < a->n_entries; i++) {
        choir__write_number(to, a->entries[i].term);
        choir__write_number(to, a->entries[i].type);
        choir__write_text(to, a->entries[i].buf.base, a->entries[i].buf.len);
    }
}

/* The data of all entries are one batch, which libraft frees with the last of them. */
static void read_entries(choir__reader *r, struct raft_append_entries *a)
{
    uint64_t count = choir__read_number(r);
    size_t room = (size_t)(r->end - r->at), used = 0;
    if (r->bad || count > room / ENTRY_LEAST) {
        r->bad = true;
        return;
    }
    if (!count)
        return;
    a->entries = raft_calloc(count, sizeof *a->entries);
    char *batch = raft_malloc(room + 8 * count);
    if (!a->entries || !batch) {
        raft_free(a->entries);
        raft_free(batch);
        a->entries = NULL;
        r->bad = true;
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct raft_entry *e = &a->entries[i];
        size_t bytes;
        e->term = choir__read_number(r);
        e->type = (unsigned short)choir__read_number(r);
        const char *text = choir__read_text(r, &bytes);
        memcpy(batch + used, text, bytes);
        e->buf = (struct raft_buffer){batch + used, bytes};
        e->batch = batch;
        used += (bytes + 7) & ~(size_t)7; /* libraft reads some as numbers */
        r->bad |= e->type < RAFT_COMMAND || e->type > RAFT_CHANGE;
    }
    a->n_entries = (unsigned)count;
}

static void free_entries(struct raft_append_entries *a)
{
    if (a->n_entries)
        raft_free(a->entries[0].batch);
    raft_free(a->entries);
}

/* --- snapshots --- */

static void write_snapshot(choir__bytes *to, const struct raft_install_snapshot *s)
{
    choir__write_number(to, s->last_index);
    choir__write_number(to, s->last_term);
    choir__write_number(to, s->conf_index);
    choir__write_number(to, s->conf.n);
    for (unsigned i = 0; i < s->conf.n; i++) {
        const struct raft_server *server = &s->conf.servers[i];
        choir__write_number(to, server->id);
        choir__write_number(to, (uint64_t)server->role);
        choir__write_text(to, server->address, strlen(server->address));
    }
    choir__write_text(to, s->data.base, s->data.len);
}

static void read_snapshot(choir__reader *r, struct raft_install_snapshot *s)
{
    size_t bytes;
    char address[256];
    s->last_index = choir__read_number(r);
    s->last_term = choir__read_number(r);
    s->conf_index = choir__read_number(r);
    uint64_t count = choir__read_number(r);
    raft_configuration_init(&s->conf);
    if (count > (uint64_t)(r->end - r->at) / SERVER_LEAST)
        r->bad = true;
    for (uint64_t i = 0; i < count && !r->bad; i++) {
        uint64_t id = choir__read_number(r);
        uint64_t role = choir__read_number(r);
        choir__copy_text(r, address, sizeof address);
        r->bad |=
            role > RAFT_SPARE || raft_configuration_add(&s->conf, id, address, (int)role) != 0;
    }
    const char *data = choir__read_text(r, &bytes);
    s->data = (struct raft_buffer){copy_of(data, bytes), bytes};
    r->bad |= !s->data.base;
}

static void free_snapshot(struct raft_install_snapshot *s)
{
    raft_configuration_close(&s->conf);
    raft_free(s->data.base);
}

/* --- messages --- */

void choir__raft_write(choir__bytes *to, const struct raft_message *m)
{
    choir__write_number(to, m->type);
    switch (m->type) {
    case RAFT_IO_APPEND_ENTRIES:
        choir__write_number(to, m->append_entries.term);
        choir__write_number(to, m->append_entries.prev_log_index);
        choir__write_number(to, m->append_entries.prev_log_term);
        choir__write_number(to, m->append_entries.leader_commit);
        write_entries(to, &m->append_entries);
        break;
    case RAFT_IO_APPEND_ENTRIES_RESULT:
        choir__write_number(to, m->append_entries_result.term);
        choir__write_number(to, m->append_entries_result.rejected);
        choir__write_number(to, m->append_entries_result.last_log_index);
        break;
    case RAFT_IO_REQUEST_VOTE:
        choir__write_number(to, m->request_vote.term);
        choir__write_number(to, m->request_vote.candidate_id);
        choir__write_number(to, m->request_vote.last_log_index);
        choir__write_number(to, m->request_vote.last_log_term);
        choir__write_number(to, m->request_vote.disrupt_leader);
        choir__write_number(to, m->request_vote.pre_vote);
        break;
    case RAFT_IO_REQUEST_VOTE_RESULT:
        choir__write_number(to, m->request_vote_result.term);
        choir__write_number(to, m->request_vote_result.vote_granted);
        choir__write_number(to, m->request_vote_result.pre_vote);
        break;
    case RAFT_IO_INSTALL_SNAPSHOT:
        choir__write_number(to, m->install_snapshot.term);
        write_snapshot(to, &m->install_snapshot);
        break;
    case RAFT_IO_TIMEOUT_NOW:
        choir__write_number(to, m->timeout_now.term);
        choir__write_number(to, m->timeout_now.last_log_index);
        choir__write_number(to, m->timeout_now.last_log_term);
        break;
    }
}

static void read_vote(choir__reader *r, struct raft_request_vote *v)
{
    v->term = choir__read_number(r);
    v->candidate_id = choir__read_number(r);
    v->last_log_index = choir__read_number(r);
    v->last_log_term = choir__read_number(r);
    v->disrupt_leader = choir__read_number(r);
    v->pre_vote = choir__read_number(r);
}

static void read_vote_result(choir__reader *r, struct raft_request_vote_result *v)
{
    v->term = choir__read_number(r);
    v->vote_granted = choir__read_number(r);
    uint64_t pre_vote = choir__read_number(r);
    r->bad |= pre_vote > raft_tribool_false;
    v->pre_vote = (raft_tribool)pre_vote;
}

bool choir__raft_read(choir__reader *r, struct raft_message *m)
{
    m->type = (unsigned short)choir__read_number(r);
    switch (m->type) {
    case RAFT_IO_APPEND_ENTRIES:
        m->append_entries = (struct raft_append_entries){.term = choir__read_number(r)};
        m->append_entries.prev_log_index = choir__read_number(r);
        m->append_entries.prev_log_term = choir__read_number(r);
        m->append_entries.leader_commit = choir__read_number(r);
        read_entries(r, &m->append_entries);
        if (r->bad)
            free_entries(&m->append_entries);
        break;
    case RAFT_IO_APPEND_ENTRIES_RESULT:
        m->append_entries_result.term = choir__read_number(r);
        m->append_entries_result.rejected = choir__read_number(r);
        m->append_entries_result.last_log_index = choir__read_number(r);
        break;
    case RAFT_IO_REQUEST_VOTE: read_vote(r, &m->request_vote); break;
    case RAFT_IO_REQUEST_VOTE_RESULT: read_vote_result(r, &m->request_vote_result); break;
    case RAFT_IO_INSTALL_SNAPSHOT:
        m->install_snapshot = (struct raft_install_snapshot){.term = choir__read_number(r)};
        read_snapshot(r, &m->install_snapshot);
        if (r->bad)
            free_snapshot(&m->install_snapshot);
        break;
    case RAFT_IO_TIMEOUT_NOW:
        m->timeout_now.term = choir__read_number(r);
        m->timeout_now.last_log_index = choir__read_number(r);
        m->timeout_now.last_log_term = choir__read_number(r);
        break;
    default: r->bad = true;
    }
    return !r->bad;
}
