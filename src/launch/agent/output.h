/* What workers write: to this agent's standard output and error, to log files, or both.
 *
 * Each worker's stdout and stderr is a pipe to the agent, unless it goes to a file alone. Lines
 * of several workers are never torn: a line is held until its end has come, then passed on with
 * a prefix that says whose it is. One worker's output alone passes through as it is. The last
 * lines are remembered for the report of a failure.
 *
 * Threads: one. */
#ifndef CHOIR_LAUNCH_AGENT_OUTPUT_H
#define CHOIR_LAUNCH_AGENT_OUTPUT_H

#include <poll.h>
#include "base/base.h"

/* Of one worker: bit 0 says stdout, bit 1 stderr, as torchrun counts. */
typedef struct choir__routes {
    unsigned char file;  /* goes to a log file */
    unsigned char shown; /* and, or instead, to the terminal */
} choir__routes;

typedef struct choir__output choir__output;

/* folder: of log files, FOLDER/RANK/stdout.log, made here if any route wants them. */
choir_status choir__output_open(const choir__routes *routes, int count, int first_rank,
    const char *folder, choir__output **output);
void choir__output_close(choir__output *output); /* NULL is fine */

/* In the worker's child process: its descriptors 1 and 2. */
void choir__output_redirect(const choir__output *output, int worker);
/* In the agent, once all have started: closes what only children need. */
void choir__output_started(choir__output *output);

/* Two entries a worker and two for the terminal. */
int choir__output_polls(int workers);
void choir__output_poll(choir__output *output, struct pollfd *polled);
void choir__output_pump(choir__output *output, const struct pollfd *polled);
/* The agent's own words, a line on standard error behind what was passed on before. */
void choir__output_say(choir__output *output, const char *text);
/* Takes what is there of one worker, without waiting. */
void choir__output_drain(choir__output *output, int worker);
/* No more will come: passes on all that is left, unfinished lines included, and waits for the
 * terminal to take it. Error: I/O, if standard output did not take all. */
choir_status choir__output_finish(choir__output *output);

/* Adds the last lines of a worker's stderr (or, if it wrote none there, stdout), each behind
 * `indent`. */
void choir__output_tail(
    const choir__output *output, int worker, const char *indent, char *text, size_t bytes);
/* The log file of a worker's stderr, or of stdout; NULL if it has none. */
const char *choir__output_log(const choir__output *output, int worker);

#endif
