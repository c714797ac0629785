/* Inside elastic trainings.
 *
 *    elastic.c     the step, and the way from one group to the next
 *    exchange.c    ranks bring those that are behind or new up to date
 *    copies.c      copies of the state for ranks that are rebuilt or started again; copies_*.c
 *                  find, read and send them
 *
 * launch/crew/crew.h says who decides which processes are the ranks; this folder moves the
 * training's objects to the group that they form. */
#ifndef CHOIR_ELASTIC_PRIVATE_H
#define CHOIR_ELASTIC_PRIVATE_H

#include <choir/elastic.h>
#include "launch/crew/crew.h"

/* Mapped memory of a copy: copies.h. */
typedef struct choir__copy_memory {
    char *at;
    size_t bytes;
} choir__copy_memory;

struct choir_elastic {
    choir_env *env;
    choir_training t;
    choir_elastic_opts opts;
    choir_scope *run;
    bool crewed;  /* ranks can be lost */
    bool rebuild; /* after a change the program makes all objects again */
    bool kept;    /* an agent keeps copies, and starts all ranks again */
    bool over;    /* this rank has left its generation, and its objects must be rebuilt */
    bool whole;   /* this rank has the job's state */
    bool in_step; /* inside choir_elastic_step: the work after the last step is done */
    int64_t steps, optim_steps;   /* steps done by the run; steps done by the optimizer */
    uint64_t running;             /* the step that runs; CHOIR__NO_STEP: none */
    struct choir__copies *copies; /* NULL: no copies */
    /* --- the last change (choir__crew_membership) --- */
    int64_t changed_at; /* steps */
    bool untold, resumed;
    double resumed_at;
};

/* Says that this rank's state is wrong, so that the ranks continue from a checkpoint and not
 * from copies of it. NULL is fine. */
void choir__elastic_withdraw(choir_elastic *elastic);

/* The restart that follows the end of all ranks. */
typedef enum choir__ending {
    CHOIR__END_AGAIN,   /* one by the supervisor, from a checkpoint */
    CHOIR__END_HERE,    /* none by the supervisor, perhaps one by an agent */
    CHOIR__END_FOR_GOOD /* none */
} choir__ending;

/* Says that all ranks end by an error. */
void choir__elastic_end_all(choir__ending how);

/* Meets the members of the generation that this process has joined. opts: the timeout and the
 * engine. Error: peer lost, if one of them is lost before. */
choir_status choir__elastic_meet(choir_group_opts opts, choir_group **group);

/* Gives all ranks the state of the rank that is furthest: weights, optimizer, scaler,
 * the program's own state, and the numbers of steps. Collective over env's group. If it fails,
 * a rank that had the state of a step has it still. *source: the furthest rank. */
choir_status choir__elastic_exchange(choir_elastic *elastic, int *source);

#endif
