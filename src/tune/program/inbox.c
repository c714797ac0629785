/* A trial in a fork, on the side of the process that has the study: bytes are collected until a
 * message is whole, so it never waits for a fork; each message is carried out on the study and
 * answered. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/base.h"
#include "tune/program/link.h"

static void take(choir__link_inbox *in, const choir__link_message *m, const char *texts, int fd,
    choir_trial *t)
{
    choir__link_answer a = {.status = CHOIR_OK};
    char *first = choir__format("%.*s", (int)m->first, texts);
    char *second = choir__format("%.*s", (int)m->second, texts + m->first);
    if (m->kind == CHOIR__LINK_REPORT)
        a.status = choir_trial_report(t, m->step, m->values[0]);
    if (m->kind == CHOIR__LINK_ATTRIBUTE)
        a.status = choir_trial_set_attribute(t, first, second);
    if (m->kind == CHOIR__LINK_END) {
        in->ended = true;
        in->status = m->status;
        memcpy(in->values, m->values, sizeof in->values);
        in->message = first;
        first = NULL;
    }
    a.stop = choir_trial_should_stop(t);
    if (a.status != CHOIR_OK)
        strncat(a.text, choir__message(), sizeof a.text - 1);
    free(first);
    free(second);
    choir__link_send(fd, &a, sizeof a); /* to a fork that is gone, as poll will say */
}

/* Takes the whole messages that have come. */
static void take_whole(choir__link_inbox *in, int fd, choir_trial *t)
{
    for (choir__link_message m; in->count >= sizeof m;) {
        memcpy(&m, in->bytes, sizeof m);
        size_t bytes = sizeof m + (size_t)m.first + (size_t)m.second;
        if (in->count < bytes)
            return;
        take(in, &m, in->bytes + sizeof m, fd, t);
        in->count -= bytes;
        memmove(in->bytes, in->bytes + bytes, in->count);
    }
}

int64_t choir__link_read(choir__link_inbox *in, int fd, choir_trial *t)
{
    ssize_t n;
    if (in->room - in->count < 4096) {
        in->room = 2 * in->room + 8192;
        in->bytes = choir__realloc(in->bytes, in->room);
    }
    do
        n = recv(fd, in->bytes + in->count, in->room - in->count, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0)
        return -1;
    in->count += (size_t)n;
    take_whole(in, fd, t);
    return n;
}

void choir__link_free(choir__link_inbox *in)
{
    free(in->bytes);
    free(in->message);
    *in = (choir__link_inbox){.count = 0};
}
