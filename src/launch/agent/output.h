/* Output forwards what workers write to the agent's standard output and error, to log files, or
 * to both.
 *
 * Each worker's stdout and stderr is a pipe to the agent, unless it goes only to a file. Lines
 * of several workers never mix: the agent holds a line until it is complete, then forwards it
 * with a prefix that names its worker. The output of a single worker is forwarded unchanged.
 * The last lines are kept for the report of a failure.
 *
 * Threads: one. */
#ifndef CHOIR_LAUNCH_AGENT_OUTPUT_H
#define CHOIR_LAUNCH_AGENT_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/base.h"
#include "base/text.h"

/* The routes of one worker. Bit 0 is stdout and bit 1 is stderr, as in torchrun. */
typedef struct choir__routes {
    unsigned char file;  /* bits that go to a log file */
    unsigned char shown; /* bits that go to the terminal, possibly in addition */
} choir__routes;

typedef struct choir__output choir__output;

/* Opens the output of `count` workers. Log files are FOLDER/RANK/stdout.log; the folder is
 * created if a route needs it. prefix: what stands before a line, NULL "[rank${rank}]:"; it may
 * name ${rank}, ${local_rank}, ${role_name} and ${hostname}. */
choir_status choir__output_open(const choir__routes *routes, int count, int first_rank,
    const char *prefix, const char *role, const char *folder, choir__output **output);
void choir__output_close(choir__output *output); /* accepts NULL */

/* Sets descriptors 1 and 2. Called in the worker's child process. */
void choir__output_redirect(const choir__output *output, int worker);
/* Closes the descriptors that only children need. Called in the agent, once all have
 * started. */
void choir__output_started(choir__output *output);

/* Returns the number of pollfds: two per worker, and two for the terminal. */
int choir__output_polls(int workers);
void choir__output_poll(choir__output *output, struct pollfd *polled);
void choir__output_pump(choir__output *output, const struct pollfd *polled);
/* Writes a line of the agent's own to standard output (1) or standard error (2), after
 * everything forwarded so far. */
void choir__output_say(choir__output *output, int descriptor, const char *text);
/* Reads what one worker has written so far, without blocking. */
void choir__output_drain(choir__output *output, int worker);
/* Forwards all that is left, unfinished lines included, and waits until the terminal has
 * accepted it; no more output will come. Error: I/O, if standard output did not accept all. */
choir_status choir__output_finish(choir__output *output);

/* Appends the last lines of a worker's stderr (of its stdout, if stderr is empty), each
 * prefixed with `indent`. */
void choir__output_tail(
    const choir__output *output, int worker, const char *indent, char *text, size_t bytes);
/* Returns the path of a worker's log file, of stderr or else of stdout; NULL if it has none. */
const char *choir__output_log(const choir__output *output, int worker);

/* A console is standard output or standard error. It buffers text that the descriptor cannot
 * accept yet, so the agent never blocks on it. */

typedef struct choir__console {
    int fd;
    int lost; /* errno, once it accepts no more; 0: it still does */
    bool colour;
    choir__text_buffer pending; /* freed by the owner */
} choir__console;

void choir__console_open(choir__console *console, int fd);
void choir__console_put(choir__console *console, const char *text, size_t bytes);

/* Writes part of the pending text. Does not block if poll has reported room. */
void choir__console_write(choir__console *console);
void choir__console_flush(choir__console *console); /* blocks until all is written */

#endif
