/* A program's own recorder: see own.h.
 *
 *     log --row, event--> own recorder --> choir_job_recorder             one process
 *                                      --> message | packets | message --> ranks are forks
 *
 * A message is a head, numbers, and texts that end with '\0'. It travels in packets, of which
 * the first and the last are marked: a rank that is killed leaves a message without its end,
 * which the first packet of the next message removes. */
#include "job/report/own.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text.h"
#include "launch/spawn.h"

typedef enum call_kind { STEP, EVENT, NOTE } call_kind;

typedef struct head {
    call_kind kind;
    int count; /* numbers */
    int64_t step;
    double time;
} head;

enum { FIRST = 1, LAST = 2, PACKET = 60000 };

struct choir__relay {
    const choir_job_recorder *own;
    int ends[2]; /* the program's, the ranks' */
    choir__spawn_watcher watcher;
    choir__text_buffer message; /* the packets received so far */
};

typedef struct own_recorder {
    choir__recorder base;
    const choir_job_recorder *own;
    choir__relay *relay; /* NULL: this is the program's process */
    choir__text_buffer message;
    choir_job_number *numbers; /* (room) */
    int room;
} own_recorder;

/* --- calls --- */

static void call_step(const choir_job_recorder *own, const head *h, const choir_job_number *all)
{
    choir_job_step s = {.step = h->step,
        .time = h->time,
        .loss = (double)NAN,
        .count = h->count,
        .numbers = all};
    for (int i = 0; i < h->count; i++)
        if (!strcmp(all[i].name, CHOIR__KEY(step, loss)))
            s.loss = all[i].value;
    if (own->step)
        own->step(own->arg, &s);
}

static void call_text(const choir_job_recorder *own, int64_t step, const json_t *fields)
{
    const char *name = json_string_value(json_object_get(fields, CHOIR__KEY(text, name))),
               *text = json_string_value(json_object_get(fields, CHOIR__KEY(text, text)));
    if (name && text)
        own->text(own->arg, step, name, text);
}

static void call_event(
    const choir_job_recorder *own, int64_t step, const char *kind, const char *json)
{
    if (own->text && !strcmp(kind, choir__kind_text.name)) {
        json_t *fields = json_loads(json, 0, NULL);
        call_text(own, step, fields);
        json_decref(fields);
    } else if (own->event) {
        own->event(own->arg, step, kind, json);
    }
}

static void call_note(const choir_job_recorder *own, const char *sentence)
{
    if (own->note)
        own->note(own->arg, sentence);
}

/* --- the relay: in the ranks --- */

static void put_head(choir__text_buffer *message, head h)
{
    choir__text_buffer_clear(message);
    choir__text_buffer_add(message, (const char *)&h, sizeof h);
}

static void put_text(choir__text_buffer *message, const char *text)
{
    choir__text_buffer_add(message, text, strlen(text) + 1);
}

static choir_status send_message(const choir__relay *r, const choir__text_buffer *message)
{
    for (size_t at = 0; at < message->used;) {
        size_t bytes = (size_t)choir__min(PACKET, (int64_t)(message->used - at));
        unsigned char mark =
            (unsigned char)((at ? 0 : FIRST) | (at + bytes == message->used ? LAST : 0));
        struct iovec parts[] = {{&mark, 1}, {message->bytes + at, bytes}};
        const struct msghdr packet = {.msg_iov = parts, .msg_iovlen = CHOIR_COUNT(parts)};
        if (sendmsg(r->ends[1], &packet, MSG_NOSIGNAL) >= 0)
            at += bytes;
        else if (errno != EINTR)
            return choir__error(CHOIR_ERR_IO, "the program's recorder: %s", choir__why(errno));
    }
    return CHOIR_OK;
}

/* --- the relay: in the program --- */

/* Makes the call that a message describes. */
static void call(const choir__relay *r)
{
    head h;
    memcpy(&h, r->message.bytes, sizeof h);
    const char *at = r->message.bytes + sizeof h;
    choir_job_number *numbers = choir__calloc((size_t)h.count + 1, sizeof *numbers);
    for (int i = 0; i < h.count; i++, at += sizeof(double))
        memcpy(&numbers[i].value, at, sizeof(double));
    for (int i = 0; i < h.count; i++, at += strlen(at) + 1)
        numbers[i].name = at;
    switch (h.kind) {
    case STEP: call_step(r->own, &h, numbers); break;
    case EVENT: call_event(r->own, h.step, at, at + strlen(at) + 1); break;
    case NOTE: call_note(r->own, at); break;
    }
    free(numbers);
}

static void deliver(void *relay)
{
    choir__relay *r = relay;
    char packet[PACKET + 1];
    ssize_t bytes;
    while ((bytes = recv(r->ends[0], packet, sizeof packet, MSG_DONTWAIT)) > 0) {
        if (packet[0] & FIRST)
            choir__text_buffer_clear(&r->message);
        choir__text_buffer_add(&r->message, packet + 1, (size_t)bytes - 1);
        if (packet[0] & LAST)
            call(r);
    }
}

choir_status choir__relay_open(const choir_job_recorder *own, choir__relay **made)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return choir__error(CHOIR_ERR_IO, "the program's recorder: %s", choir__why(errno));
    choir__relay *r = choir__calloc(1, sizeof *r);
    *r = (choir__relay){.own = own, .ends = {ends[0], ends[1]}};
    r->watcher = (choir__spawn_watcher){.fd = ends[0], .heard = deliver, .arg = r};
    choir__spawn_watch(&r->watcher);
    *made = r;
    return CHOIR_OK;
}

void choir__relay_deliver(choir__relay *r)
{
    if (r)
        deliver(r);
}

void choir__relay_close(choir__relay *r)
{
    if (!r)
        return;
    choir__spawn_unwatch(&r->watcher);
    close(r->ends[0]);
    close(r->ends[1]);
    choir__text_buffer_free(&r->message);
    free(r);
}

/* --- the recorder of the log --- */

static choir_status step(choir__recorder *base, const choir__row *row)
{
    own_recorder *o = (own_recorder *)base;
    const head h = {STEP, row->count, row->step, row->time};
    if (o->relay) {
        put_head(&o->message, h);
        for (int i = 0; i < row->count; i++)
            choir__text_buffer_add(
                &o->message, (const char *)&row->numbers[i].value, sizeof(double));
        for (int i = 0; i < row->count; i++)
            put_text(&o->message, row->numbers[i].name);
        return send_message(o->relay, &o->message);
    }
    if (row->count > o->room) {
        o->room = row->count;
        o->numbers = choir__realloc(o->numbers, (size_t)o->room * sizeof *o->numbers);
    }
    for (int i = 0; i < row->count; i++)
        o->numbers[i] = (choir_job_number){row->numbers[i].name, row->numbers[i].value};
    call_step(o->own, &h, o->numbers);
    return CHOIR_OK;
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    own_recorder *o = (own_recorder *)base;
    char *json = json_dumps(e->fields, JSON_COMPACT | JSON_PRESERVE_ORDER);
    choir_status status = CHOIR_OK;
    if (o->relay) {
        put_head(&o->message, (head){EVENT, 0, e->step, e->time});
        put_text(&o->message, e->kind);
        put_text(&o->message, json);
        status = send_message(o->relay, &o->message);
    } else {
        call_event(o->own, e->step, e->kind, json);
    }
    free(json);
    return status;
}

static choir_status end(choir__recorder *base, bool good)
{
    own_recorder *o = (own_recorder *)base;
    (void)good; /* the program learns it from choir_job_train */
    choir__text_buffer_free(&o->message);
    free(o->numbers);
    free(o);
    return CHOIR_OK;
}

static const choir__recorder_ops ops = {
    .name = "own", .step = step, .event = event, .end = end};

choir__recorder *choir__own_recorder(const choir__job_records *r)
{
    own_recorder *o = choir__calloc(1, sizeof *o);
    *o = (own_recorder){.base.ops = &ops, .own = r->own, .relay = r->relay};
    return &o->base;
}

/* --- sentences --- */

void choir__own_note(const choir__job_records *records, const char *sentence)
{
    const choir__relay *r = records->relay;
    choir__text_buffer message = {0};
    if (!records->own)
        return;
    if (!r) {
        call_note(records->own, sentence);
        return;
    }
    put_head(&message, (head){.kind = NOTE});
    put_text(&message, sentence);
    char *why = choir__strdup(choir__message());
    (void)!send_message(r, &message); /* a note that is lost costs nothing else */
    choir__set_message(why);
    free(why);
    choir__text_buffer_free(&message);
}
