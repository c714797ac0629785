/* A server of a few pages over HTTP, by libmicrohttpd, which is opened when it is first needed.
 *
 * One function answers all requests. It calls choir__http_reply, or choir__http_stream for an
 * answer that continues while things happen.
 *
 * Threads: without streams one thread of the server answers, with them one per connection. */
#ifndef CHOIR_RECORD_HTTP_H
#define CHOIR_RECORD_HTTP_H

#include "base/base.h"

#include <stdbool.h>

typedef struct choir__http choir__http;
typedef struct choir__http_request choir__http_request;

/* Answers a GET or a HEAD of `path`, such as "/metrics", with its %XX decoded. */
typedef void choir__http_answer(void *arg, const char *path, choir__http_request *request);

typedef struct choir__http_opts {
    /* the option that asks for the server, for messages: "log 'metrics::1'" */
    const char *what;
    const char *place; /* HOST:PORT, or :PORT on the loopback address */
    bool any_port;     /* true: port 0 means any free port; false: port 0 is refused */
    bool streams;      /* requests may be answered by choir__http_stream */
    bool local_only;   /* addresses outside loopback are refused */
    bool keyless;      /* the paths hold no secret: a loopback address answers no other names */
    choir__http_answer *answer;
    void *arg;
} choir__http_opts;

/* Checks the form of a place: :PORT or HOST:PORT, with port 0 only if any_port is true. Error:
 * argument, "expected ...". */
choir_status choir__http_check_place(const char *place, bool any_port);

/* Begins to listen and to answer. Errors: argument (a malformed place), io (a port that is
 * taken, an unknown host), unsupported (a build without libmicrohttpd). */
choir_status choir__http_open(const choir__http_opts *opts, choir__http **made);
/* Ends all connections, and waits for streams to end. NULL is fine. */
void choir__http_close(choir__http *server);

/* Returns the address as in a URL, "127.0.0.1:8080". */
const char *choir__http_address(const choir__http *server);

/* Replies with a copy of `bytes`. headers: (count) pairs of names and values. */
void choir__http_reply(choir__http_request *request, unsigned status, const char *bytes,
    size_t count, const char *const (*headers)[2], int header_count);

/* Returns the next bytes of a stream, at least one and at most `room`, or 0 at its end. It may
 * wait, but no longer than a few seconds, so that ended connections are noticed. */
typedef size_t choir__http_read(void *arg, char *bytes, size_t room);

/* Replies with all that `read` returns; `done` frees arg. */
void choir__http_stream(choir__http_request *request, choir__http_read *read,
    void (*done)(void *arg), void *arg, const char *const (*headers)[2], int header_count);

/* The door of a server: who is inside, since when, and whether the server knows them.
 *
 * Strangers can connect, too, and hold their connections open as long as they like. So there is
 * always room for one more: where all places are taken, the connection that has been unknown
 * for the longest time is closed. And a request has a time limit as a whole, not only for
 * silence.
 *
 * Threads: all functions may be called from any thread. */

typedef struct choir__door choir__door;
typedef struct choir__guest choir__guest;

/* Returns a door for up to `places` connections; one that is unknown for limit_s seconds is
 * closed. NULL: no thread can be started. */
choir__door *choir__door_open(int places, double limit_s);
/* Closes the door after all guests have left. NULL is fine. */
void choir__door_close(choir__door *door);

/* Makes room for a connection that waits to be let in; returns false if all guests are known.
 */
bool choir__door_make_room(choir__door *door);

/* Notes a connection by its socket, and its end, after which the socket may be closed. Returns
 * NULL if there is no place. */
choir__guest *choir__door_enter(choir__door *door, int fd);
void choir__door_leave(choir__door *door, choir__guest *guest);

/* Notes that a request was answered: the guest is known from now on, or its time begins again.
 */
void choir__door_answered(choir__door *door, choir__guest *guest, bool known);

#endif
