/* A trial in a fork, on the fork's side: reports, attributes and the end are messages through a
 * socket, and each waits for its answer, which says whether the trial is to stop. The fork's
 * copy of the study takes reports, too, so that the trial sees them. */
#include "tune/program/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tune/study.h"

bool choir__link_send(int fd, const void *from, size_t bytes)
{
    for (const char *at = from; bytes;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

static bool receive(int fd, choir__link_answer *a)
{
    size_t have = 0;
    while (have < sizeof *a) {
        ssize_t n = recv(fd, (char *)a + have, sizeof *a - have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

/* Sends a message and takes the answer. */
static choir_status call(
    choir_trial *t, choir__link_message m, const char *first, const char *second)
{
    choir__link_answer a;
    int fd = t->link->fd;
    m.first = strlen(first);
    m.second = strlen(second);
    if (!choir__link_send(fd, &m, sizeof m) || !choir__link_send(fd, first, m.first) ||
        !choir__link_send(fd, second, m.second) || !receive(fd, &a))
        return choir__error(CHOIR_ERR_PEER_LOST,
            "trial %lld: the process that has its study is gone", (long long)t->number);
    t->stop = a.stop;
    if (a.status != CHOIR_OK)
        choir__set_message(a.text);
    return a.status;
}

/* The copy of the study takes the report, too, so that the trial sees it. */
choir_status choir__link_report(choir_trial *t, int64_t step, double value)
{
    choir__study_report(t->study, t, step, value);
    return call(t,
        (choir__link_message){.kind = CHOIR__LINK_REPORT, .step = step, .values = {value}}, "",
        "");
}

choir_status choir__link_set_attribute(choir_trial *t, const char *key, const char *json)
{
    choir__attribute_set(&t->attributes, false, key, json);
    return call(t, (choir__link_message){.kind = CHOIR__LINK_ATTRIBUTE}, key, json);
}

void choir__link_end(
    choir_trial *t, choir_status status, const double *values, const char *text)
{
    choir__link_message m = {.kind = CHOIR__LINK_END, .status = status};
    memcpy(m.values, values, sizeof m.values);
    (void)call(t, m, text, "");
}

choir_status choir__link_refuses(const char *function)
{
    return choir__error(CHOIR_ERR_STATE,
        "%s: expected the process that opened the study, not a trial's fork", function);
}
