/* A stream of bytes into a file, with their number and SHA-256.
 *
 *     the caller   copies its data into a ring of chunks
 *     a thread     hashes full chunks, in order
 *     a thread     writes full chunks, in order
 *
 * So copying, hashing and the disk overlap, and data stay in the processor's cache from the
 * copy to the hash. Chunks are written past the system's page cache where the file system can
 * do so: a checkpoint would displace pages that training reads, and the final sync would find
 * all of its data still unwritten. A stream that fits one chunk needs no threads. */
#ifndef CHOIR_WRITER_H
#define CHOIR_WRITER_H

#include "base/base.h"
#include "checkpoint/format/sha256.h"

#include <pthread.h>

typedef struct choir__writer choir__writer;

/* The stream begins at the start of fd, an empty file, which stays the caller's; -1: it is only
 * hashed. Returns NULL, with errno, if there is no memory. */
choir__writer *choir__writer_new(int fd);
/* Returns 0, or the errno of a write that failed; the failed write may be an earlier one. */
int choir__writer_add(choir__writer *writer, const void *data, size_t bytes);
/* Returns memory for data that come next, at least one byte, for callers that make them there;
 * choir__writer_filled then adds the first `bytes` bytes of it. */
void *choir__writer_room(choir__writer *writer, size_t *bytes);
void choir__writer_filled(choir__writer *writer, size_t bytes);
/* Writes the rest and frees the writer. Returns 0, or the errno of the first write that failed.
 */
int choir__writer_end(choir__writer *writer, choir__digest *digest);

/* Threads that work aside: they receive no signals, which are for the threads of the program.
 */

/* Returns false if no thread can be started, or the calling thread yields: the caller then does
 * the work itself. */
bool choir__background_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg);
/* Gives the calling thread the lowest priority. A busy core still runs it for 1.5 % of the
 * time, so it starts no threads of its own: three threads of a save took 5 % of each core from
 * ranks that computed on all. (Idle priority is a fifth of that, but lasts until the thread's
 * end.) */
void choir__background_thread_yield(void);

#endif
