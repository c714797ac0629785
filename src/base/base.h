/* The ground floor: errors, the clock and host memory. Nothing here knows of machine learning.
 *
 * Errors are a code (choir_status) and one sentence; choir__error writes the sentence where the
 * failure is first noticed and returns the code, so that a failing function reads
 *
 *     return choir__error(CHOIR_ERR_SHAPE, "matmul: (%d, %d) by (%d, %d)", ...);
 */
#ifndef CHOIR_BASE_H
#define CHOIR_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <choir/status.h>

/* Like strerror, but where the process has no descriptors left, the text names the limit. It is
 * valid until this thread's next call. */
const char *choir__why(int error);

/* Stores the sentence for choir_error_message() on this thread and returns status. If the
 * process has a rank, the sentence begins with "rank 3: ". */
choir_status choir__error(choir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
choir_status choir__verror(choir_status status, const char *format, va_list args);

/* Returns this thread's message, as choir_error_message does, without counting as a reader. */
const char *choir__message(void);
/* Returns how often the program has read this thread's message, by choir_error_message or by
 * choir_check. */
uint64_t choir__message_reads(void);

/* Reports that a public function was called without an object: "choir_relu: missing tensor
 * (NULL)". Returns CHOIR_ERR_ARGUMENT. */
choir_status choir__missing(const char *function, const char *thing);

/* Returns whether p is NULL, and reports it as choir__missing does. */
static inline bool choir__lacks(const void *p, const char *function, const char *thing)
{
    if (!p)
        choir__missing(function, thing);
    return !p;
}

/* Makes text this thread's message without a change; repeats a sentence that was written on
 * another thread. */
void choir__set_message(const char *text);

/* Sets the rank that this process's messages begin with; rank < 0 removes it. */
void choir__set_rank_label(int rank);

/* Returns the time on the monotonic clock, in seconds. */
double choir__now(void);
/* Returns the seconds since 1970. */
double choir__wall_time(void);
/* Returns the time on the monotonic clock that is `seconds` >= 0 from now. */
struct timespec choir__in_seconds(double seconds);
/* Makes a condition whose waits end at times of that clock. */
void choir__cond_init(pthread_cond_t *condition);

/* These functions end the process when memory is exhausted. They are for small host-side
 * bookkeeping, never for sizes that come from a user's data. */
void *choir__alloc(size_t bytes);
void *choir__calloc(size_t count, size_t size);
void *choir__realloc(void *p, size_t bytes);
/* Returns the array, perhaps at another address, with room for one item more than its `count`.
 * The room doubles, and follows from the count, so that no member has to keep it. An array
 * grows by this function alone, starting from NULL: one that was allocated otherwise has
 * another room.
 */
void *choir__grow(void *items, size_t count, size_t item_bytes);
#define CHOIR__GROW(items, count)                                                              \
    ((items) = choir__grow((items), (size_t)(count), sizeof *(items)))
char *choir__strdup(const char *text);
/* Replaces the control characters of a text, but neither '\n' nor '\t', by '?': text out of a
 * file must not command a terminal. Returns text. */
char *choir__clean(char *text);
/* Cuts the middle out of a text of more than `most` (at least 100) bytes, so that a sentence
 * keeps its beginning and its way out, whatever it quotes. Returns text. */
char *choir__shorten(char *text, size_t most);
char *choir__format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Marks functions that the kernels of GPUs use, too. */
#ifdef __CUDACC__
#define CHOIR__BOTH __host__ __device__
#else
#define CHOIR__BOTH
#endif

#define CHOIR_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline int64_t choir__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t choir__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
