/* Which of several ranks is wrong, when they say otherwise about one number. */
#ifndef CHOIR_AUDIT_VOTE_H
#define CHOIR_AUDIT_VOTE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* A rank's finding of a number. Two ranks that answer one question, and a rank that
 * answers it twice, must give the same value. */
typedef struct choir__testimony {
    uint64_t question, value;
    int32_t rank, nothing; /* nothing: 1: no testimony, but the place of one */
} choir__testimony;

typedef enum choir__agreement {
    CHOIR__VOTE_AGREED,
    CHOIR__VOTE_SHARED, /* all ranks have changed their answers alike: a thing that they share
                         * was wrong
                         */
    CHOIR__VOTE_TIED,   /* the named ranks differ, and no other one decides between them */
    CHOIR__VOTE_DECIDED /* the named ranks are wrong */
} choir__agreement;

enum { CHOIR__VERDICT_NAMES = 64 };

typedef struct choir__judgement {
    choir__agreement how;
    uint64_t question;                      /* the lowest one behind it */
    int ranks[CHOIR__VERDICT_NAMES], count; /* the ranks that it names, ascending */
} choir__judgement;

/* Returns whether the judgement names the rank. */
bool choir__judgement_names(const choir__judgement *v, int rank);
/* Returns the ranks that it names, as "rank 0, rank 1 and rank 3"; the caller frees it.
 * machines: the name of each rank's machine, `room` bytes each, as in "rank 0 on a"; or NULL.
 */
char *choir__judgement_ranks(const choir__judgement *v, const char *machines, size_t room);

/* Judges the testimonies (count), in any order.
 *
 *     a rank that answers one question in two ways is wrong, unless all ranks do
 *     else the value that the most ranks have given is right, and the other ranks are wrong
 *     else the question is tied
 *
 * One question that is decided outweighs others that are tied, since a rank that is wrong may
 * be in all of them. */
void choir__vote(const choir__testimony *list, int64_t count, choir__judgement *verdict);

#endif
