/* Meeting in a store that rank 0 serves: the parts that all methods of meeting share.
 *
 *   meet.c   the methods by name      file.c     file://path, note.c its text
 *   call.c   serving and calling      store.c    rank 0 leads the meeting, the others follow
 *   member.c a rank's own line        launched.c ranks of mpirun and srun
 *   torchrun.c  ranks of a torchrun that serves a store of its own */
#ifndef CHOIR_LAUNCH_MEET_MEET_H
#define CHOIR_LAUNCH_MEET_MEET_H

#include "launch/meet/meeting.h"
#include "launch/process/job.h"
#include "launch/store/store.h"

/* One rank's attempt to join a meeting. */
typedef struct choir__joining {
    choir__meeting *meeting; /* rank, world, timeout_s; gets the store, and rank 0 the server */
    choir__meet_need need;
    const char *job; /* the job's name, so that two jobs do not mix; NULL: none */
    double deadline; /* time of choir__now */
    char where[300]; /* "127.0.0.1:29500", for messages */
    /* Rank 0 calls these, unless NULL, when its server listens, and when all have joined. */
    choir_status (*listening)(struct choir__joining *joining, const choir__store_key *key);
    void (*all_joined)(struct choir__joining *joining);
    const char *path; /* path of file:// */
    bool placed;      /* this rank wrote the file */
    char root[400];   /* rank 0's member line, once it is known */
    bool joined;      /* the store has this rank's name */
} choir__joining;

/* Rank 0 serves the store at opts.bind and opts.port and leads the meeting. Errors: as
 * choir_store_serve; timed out, peer lost, mismatch: the same sentence on all ranks. */
choir_status choir__meet_host(
    choir__joining *joining, choir_store_opts opts, const choir__store_key *key);

/* Like choir__meet_host, but at all addresses of this machine, whatever opts.bind says. */
choir_status choir__meet_host_everywhere(
    choir__joining *joining, choir_store_opts opts, const choir__store_key *key);

/* Rank 0 listens at the address `name` that the others call, and with a key, where the name may
 * mean another address than the one that others reach, at all addresses. port 0: a free one. */
choir_status choir__meet_host_at(
    choir__joining *joining, const char *name, int port, const choir__store_key *key);

/* Joins by the store that torchrun's agent serves at MASTER_ADDR and MASTER_PORT. host: where
 * rank 0 listens, at a port of its own. */
choir_status choir__meet_torchrun(
    choir__joining *joining, const char *host, const choir__store_key *key);

/* Reads MASTER_ADDR and MASTER_PORT. Errors: argument. */
choir_status choir__meet_master(char host[CHOIR__HOST_TEXT], int *port);

/* Sets joining->where. */
void choir__meet_set_where(choir__joining *joining, const char *host, int port);

/* The other ranks call host:port until a store answers there, and follow the meeting. */
choir_status choir__meet_call(
    choir__joining *joining, const char *host, int port, const choir__store_key *key);

typedef enum choir__meet_result {
    CHOIR__MEET_DONE,
    CHOIR__MEET_UNREACHED, /* no store there, or not this one */
    CHOIR__MEET_MISSED,    /* a store that rank 0 is about to close: retry */
    CHOIR__MEET_FAILED,
} choir__meet_result;

/* Makes one attempt to join. Unless the result is DONE, *status and the message say why. */
choir__meet_result choir__meet_try(choir__joining *joining, const char *host, int port,
    double timeout_s, const choir__store_key *key, choir_status *status);

/* Joins by the method file://path. */
choir_status choir__meet_file(choir__joining *joining);

/* The meeting itself, on a connection to the store. Rank 0 leads it, and the others follow.
 * *again: the store belongs to an earlier meeting of this rank, which is over. */
choir_status choir__meet_lead(choir__joining *joining, const choir__member *self);
choir_status choir__meet_follow(
    choir__joining *joining, const choir__member *self, bool *again);

/* --- member.c --- */

enum { CHOIR__MEMBER_TEXT = 400 };

/* Fills in this process's location: its host's name, and an id that identifies the machine. */
void choir__meet_self(choir__member *self);

void choir__member_write(const choir__member *member, char text[CHOIR__MEMBER_TEXT]);
bool choir__member_read(const char *text, choir__member *member);

/* Reads all members from "go SECRET" and one line per rank, and derives nodes and local
 * ranks. */
bool choir__members_read(choir__meeting *meeting, const char *go);

/* Returns this thread's message without the rank's label, to be embedded in another message. */
const char *choir__plain_message(int rank);

#endif
