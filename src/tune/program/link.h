/* A trial that runs in a fork, and the process that has its study.
 *
 * The fork has a copy of the study, which it never changes for others: reports, attributes and
 * values go through a socket, and each message is answered, with whether the trial is to stop.
 *
 *     fork     report(step, value) ->          <- answer(status, stop)
 *     parent   choir_trial_report, choir_trial_should_stop
 *
 * The parent never waits for a fork: it collects bytes until a message is whole. */
#ifndef CHOIR_TUNE_LINK_H
#define CHOIR_TUNE_LINK_H

#include "launch/store/bytes.h"
#include "tune/trial.h"

typedef struct choir__trial_link {
    int fd;
} choir__trial_link;

/* --- messages --- */

typedef enum choir__link_kind {
    CHOIR__LINK_REPORT,
    CHOIR__LINK_ATTRIBUTE,
    CHOIR__LINK_END
} choir__link_kind;

/* Texts follow: key and json of an attribute, the message of an end. */
typedef struct choir__link_message {
    choir__link_kind kind;
    choir_status status;
    int64_t step;
    double values[CHOIR_STUDY_OBJECTIVES]; /* values; a report has one, the first */
    uint64_t first, second;                /* bytes of the texts */
} choir__link_message;

typedef struct choir__link_answer {
    choir_status status;
    bool stop;
    char text[256]; /* text of an error */
} choir__link_answer;

/* Sends bytes; false: the other side is gone. */
bool choir__link_send(int fd, const void *from, size_t bytes);

/* --- in the fork (link.c) --- */

choir_status choir__link_report(choir_trial *t, int64_t step, double value);
choir_status choir__link_set_attribute(choir_trial *t, const char *key, const char *json);
/* Sends how the trial ended. */
void choir__link_end(
    choir_trial *t, choir_status status, const double *values, const char *message);
/* Returns CHOIR_ERR_STATE: a fork cannot change the study. */
choir_status choir__link_refuses(const char *function);

/* --- in the parent (inbox.c) --- */

/* A fork's messages. */
typedef struct choir__link_inbox {
    choir__bytes come; /* not yet taken */
    bool ended;        /* the trial's end is in the members below */
    choir_status status;
    double values[CHOIR_STUDY_OBJECTIVES];
    char *message;
} choir__link_inbox;

/* Reads once, and answers whole messages. Returns the bytes that were read; 0: none has come;
 * -1: the fork has closed its end. */
int64_t choir__link_read(choir__link_inbox *in, int fd, choir_trial *t);
void choir__link_free(choir__link_inbox *in);

#endif
