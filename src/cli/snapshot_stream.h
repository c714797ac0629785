/* The boards of a machine's processes (base/board/board.h) as a stream of bytes: how `choir
 * top` and `choir watch` see the processes of other machines (machines.h).
 *
 *     choir boards 1                          a line; the lines before it are a banner
 *     round BYTES                             a line, then BYTES bytes:
 *         process PID STATE AT BYTES COMMAND      a line, then the board's two reads
 *         ...
 *     round BYTES
 *     ...
 *
 * AT is the machine's choir__now() when the board was read: times on a board are of that clock.
 */
#ifndef CHOIR_CLI_BOARDS_H
#define CHOIR_CLI_BOARDS_H

#include "cli/snapshot.h"
#include "base/text.h"

/* choir __boards [SECONDS]: writes a round, and another one after each pause, until its reader
 * has gone. */
int choir__snapshot_stream_command(int argc, char **argv);

/* A complete round in the part of a stream that has arrived. */
typedef struct choir__round {
    const char *bytes; /* NULL: no complete round */
    size_t count;
    size_t end; /* offset of the stream after it */
} choir__round;

/* Finds the end of the stream's first line, the mark; 0: the line is not complete. Error: I/O
 * (the bytes are no such stream), also of the function below. */
choir_status choir__snapshot_stream_mark(const choir__text_buffer *stream, size_t *end);
/* Finds the first whole round from byte `from` on, which is behind the mark. */
choir_status choir__snapshot_stream_find(
    const choir__text_buffer *stream, size_t from, choir__round *found);

/* Interprets a round, which may hold anything: only processes are taken from it. */
choir__snapshot choir__snapshot_stream_parse(const char *bytes, size_t count);

#endif
