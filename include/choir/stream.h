/* A stream of text, such as standard input, as the data of a language model: it is read while
 * the model trains, once, and may never end.
 *
 *     choir_check(choir_stream_open(0, "standard input", tokenizer, opts, &stream));
 *     choir_check(choir_stream_start(stream, 1));
 *     loader options: shuffle = false; loader over choir_stream_data(stream)
 *     for (bool whole; ; step++) {
 *         choir_check(choir_stream_wait(stream, 0, step, &whole));
 *         if (!whole)
 *             break;                                   the stream has ended
 *         ...
 *     }
 *     choir_stream_leave(stream); close the run; choir_stream_free(stream);
 *
 * The process that opens the stream reads it. Its forked ranks read the tokens from a ring in
 * shared memory, which the reader fills as far as the slowest rank allows. Sample i is the i-th
 * window of the stream, so the samples of a step do not depend on the number of ranks.
 *
 * A stream whose first character is { has documents, one JSON object per line
 * (choir_dataset_corpus). Other streams are text; each line is encoded by itself.
 *
 * Threads: choir_stream_wait, choir_stream_wait_while and choir_stream_leave are for the run's
 * thread. */
#ifndef CHOIR_STREAM_H
#define CHOIR_STREAM_H

#include <choir/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_stream choir_stream;

typedef struct choir_stream_opts {
    int64_t context;    /* tokens per sample; default 1024 */
    int64_t batch_size; /* samples per step; default 32 */
    int64_t validation; /* samples at the beginning that are for validation; default 128 */
    const char
        *columns; /* names of documents' columns (choir_corpus_opts.columns); default NULL */
} choir_stream_opts;

choir_stream_opts choir_stream_defaults(void);

/** Opens a stream on a descriptor, which stays the caller's, and reads the samples for
 * validation. Borrows the tokenizer. Documents need a tokenizer with a token that ends a text.
 * name: for messages. Errors: argument; io; format; range. */
CHOIR_CHECKED choir_status choir_stream_open(int fd, const char *name,
    const choir_tokenizer *tokenizer, choir_stream_opts opts, choir_stream **stream);

/** Return the training and the validation split, which the stream owns; NULL if stream is NULL.
 * The training split's length is a very large number. */
choir_dataset *choir_stream_data(choir_stream *stream);
choir_dataset *choir_stream_validation(choir_stream *stream);

/** Sets the number of ranks that read the stream; for one rank, begins to read. Call it once,
 * before ranks are forked. Errors: argument, memory. */
CHOIR_CHECKED choir_status choir_stream_start(choir_stream *stream, int ranks);

/** Begins to read for several ranks. Call it in the process that has forked all ranks
 * (choir_spawn_opts.started), because a rank that is forked while the reader works would
 * inherit the locks that the reader holds. Errors: state (before choir_stream_start, or twice),
 * memory. */
CHOIR_CHECKED choir_status choir_stream_read(choir_stream *stream);

/**
 * Waits until all samples of a step have been read, or the stream has ended. *whole is true in
 * the first case, and equal on all ranks. The samples of earlier steps can no longer be read.
 * Errors: errors of reading the stream.
 */
CHOIR_CHECKED choir_status choir_stream_wait(
    choir_stream *stream, int rank, int64_t step, bool *whole);

/** Returns whether to continue waiting for samples. */
typedef bool choir_stream_goes_on_fn(void *arg);

/**
 * Like choir_stream_wait, but calls goes_on(arg) about ten times a second while it waits. If
 * that returns false, the stream ends for all ranks after its last token. Errors: errors of
 * reading the stream.
 */
CHOIR_CHECKED choir_status choir_stream_wait_while(choir_stream *stream, int rank, int64_t step,
    choir_stream_goes_on_fn *goes_on, void *arg, bool *whole);

/** Returns the number of tokens that have been read for training. */
int64_t choir_stream_tokens(const choir_stream *stream);

/** Ends reading in this process; loaders that wait for samples fail. */
void choir_stream_leave(choir_stream *stream);
/** Frees the stream, after the loaders. NULL is fine. */
void choir_stream_free(choir_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
