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
    for (choir__link_message m; choir__bytes_left(&in->come) >= sizeof m;) {
        const char *front = (const char *)choir__bytes_front(&in->come);
        memcpy(&m, front, sizeof m);
        size_t bytes = sizeof m + (size_t)m.first + (size_t)m.second;
        if (choir__bytes_left(&in->come) < bytes)
            return;
        take(in, &m, front + sizeof m, fd, t);
        choir__bytes_skip(&in->come, bytes);
    }
}

int64_t choir__link_read(choir__link_inbox *in, int fd, choir_trial *t)
{
    enum { AT_ONCE = 8192 };
    uint8_t *room = choir__bytes_grow(&in->come, AT_ONCE);
    ssize_t n;
    do
        n = recv(fd, room, AT_ONCE, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0)
        return -1;
    in->come.to += (size_t)n;
    take_whole(in, fd, t);
    return n;
}

void choir__link_free(choir__link_inbox *in)
{
    choir__bytes_free(&in->come);
    free(in->message);
    *in = (choir__link_inbox){.ended = false};
}
