/* Meeting in a store: what the methods (meet.c, meet_file.c) have in common (meet_store.c). */
#ifndef CHOIR_COMM_MEET_H
#define CHOIR_COMM_MEET_H

#include "launch/meet/meeting.h"
#include "launch/store/store.h"

/* One rank's way to a meeting. */
typedef struct choir__venue {
    choir__meeting *meeting; /* rank, world, timeout_s; gets the store, and rank 0 the server */
    const char *job;         /* its name, if it has one: two jobs shall not mix */
    double deadline;         /* of choir__now */
    char where[300];         /* "127.0.0.1:29500", for messages */
    /* Rank 0, if not NULL: the others can call; nobody has to come any more. */
    choir_status (*doors_open)(struct choir__venue *venue, const choir__key *key);
    void (*all_here)(struct choir__venue *venue);
    const char *path; /* of file:// */
    bool placed;      /* the file is ours */
    char root[400];   /* who rank 0 is, once it is known */
    bool seated;      /* the store has our name */
} choir__venue;

/* Rank 0 serves at opts.bind and opts.port, and decides. Errors: as choir_store_serve; timed
 * out, peer lost, mismatch: the same sentence on all ranks. */
choir_status choir__meet_host(
    choir__venue *venue, choir_store_opts opts, const choir__key *key);

/* At all addresses of this machine, whatever opts.bind says. */
choir_status choir__meet_host_everywhere(
    choir__venue *venue, choir_store_opts opts, const choir__key *key);

/* The others call, until somebody answers. */
choir_status choir__meet_call(
    choir__venue *venue, const char *host, int port, const choir__key *key);

typedef enum choir__attendance {
    CHOIR__MET,
    CHOIR__UNREACHED, /* no store there, or not this one */
    CHOIR__MISSED,    /* one that was just being left: try again */
    CHOIR__FAILED,
} choir__attendance;

/* One try to be at a meeting. Unless it is MET, *status and the message say why. */
choir__attendance choir__meet_try(choir__venue *venue, const char *host, int port,
    double timeout_s, const choir__key *key, choir_status *status);

/* file://path */
choir_status choir__meet_file(choir__venue *venue);

/* The meeting itself, once there is a connection to the store: for rank 0, and for the others.
 * *again: it is one they have been at, which is over. */
choir_status choir__meet_preside(choir__venue *venue, const choir__member *self);
choir_status choir__meet_attend(choir__venue *venue, const choir__member *self, bool *again);

/* Rank 0: until nobody is left in its store but itself. */
void choir__meeting_stay(const choir__meeting *meeting, double at_most_s);

/* --- meet_member.c --- */

enum { CHOIR__MEMBER_TEXT = 400 };

/* Where this process is: its host's name, and what tells machines apart. */
void choir__meet_self(choir__member *self);

void choir__member_write(const choir__member *member, char text[CHOIR__MEMBER_TEXT]);
bool choir__member_read(const char *text, choir__member *member);

/* All members out of "go SECRET" and a line a rank; and with them nodes and local ranks. */
bool choir__members_read(choir__meeting *meeting, const char *go);

/* This thread's message without the rank's label, to be told within another. */
const char *choir__plain_message(int rank);

#endif
