/* A stream of tokens between one reader and the ranks: choir/stream.h.
 *
 *     tokens     ... done |= = = = = = = = = =| written         a ring of `room` tokens
 *
 * The reader, a thread of the process that opened the stream, writes behind `written` while
 * there is room behind the sample that the slowest rank still needs. Lock and conditions are in
 * the shared memory. The end of the stream is a number of tokens, so all ranks find the same
 * last step. */
#include <choir/stream.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "data/text/corpus.h"
#include "data/records.h"

enum { MOST_RANKS = 1024, LEAST_ROOM = 1 << 20, STEPS_AHEAD = 4 };
/* samples of a stream, whose end is not known */
static const int64_t endless = INT64_C(1) << 46;

/* In memory that all ranks share. */
typedef struct ring {
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    int64_t written, room;
    bool ended, finished; /* no more tokens come; the reader uses nothing any more */
    choir_status status;  /* status of reading */
    char message[512];
    int ranks;
    int64_t done[MOST_RANKS]; /* tokens that a rank no longer needs */
    int32_t tokens[];         /* (room) see choir__document_encode */
} ring;

typedef struct stream_dataset {
    choir_dataset base;
    struct choir_stream *stream;
} stream_dataset;

struct choir_stream {
    stream_dataset train, validation;
    choir_stream_opts opts;
    choir_tokenizer *tokenizer;
    bool fixed, chats; /* the tokenizer: gets no more tokens; has the markers of chats */
    int32_t end;       /* the token that ends a text */
    choir__data_records records;
    choir__document_parts parts;
    choir__ids ids; /* ids of the current record */
    size_t used;    /* ids that are already in the ring */
    int32_t *kept;  /* tokens for validation (validation * context + 1) */
    int64_t kept_count;
    ring *ring;
    size_t bytes;
    pthread_mutex_t encoding; /* held by the reader while it uses the tokenizer */
    _Atomic bool left;        /* this process reads no more */
    bool reads;               /* the reader has begun */
    pid_t owner;              /* the reader's process */
};

/* --- reading --- */

/* Encodes the next record or line into s->ids; *more: false at the end. */
static choir_status read_record(choir_stream *s, bool *more)
{
    const choir__json *record;
    choir_status status = choir__data_records_next(&s->records, &record);
    *more = status == CHOIR_OK && record;
    s->ids.count = s->used = 0;
    if (!*more)
        return status;
    pthread_mutex_lock(&s->encoding);
    if (s->left)
        *more = false;
    else if (record->type == CHOIR__JSON_STRING)
        status = choir__tokenizer_encode(
            s->tokenizer, NULL, record->text, record->bytes, CHOIR__CONTINUED, &s->ids);
    else if ((status = choir__settle_chat(&s->records.at, record, s->fixed, &s->tokenizer,
                  &s->chats, &s->parts)) == CHOIR_OK)
        status = choir__document_encode(
            &s->records.at, record, s->tokenizer, s->end, &s->parts, &s->ids);
    pthread_mutex_unlock(&s->encoding);
    return status == CHOIR_OK || record->type != CHOIR__JSON_STRING
               ? status
               : choir__data_record_wrong(&s->records.at, "%s", choir__message());
}

static int64_t slowest(const ring *r)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < r->ranks; i++)
        least = choir__min(least, r->done[i]);
    return least;
}

/* Writes the ids to the ring, and waits for room. Caller holds the lock. */
static void write_ids(choir_stream *s)
{
    ring *r = s->ring;
    while (s->used < s->ids.count && !s->left && !r->ended) {
        int64_t room = slowest(r) + r->room - r->written;
        if (!room) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        for (; room && s->used < s->ids.count; room--)
            r->tokens[r->written++ % r->room] = s->ids.id[s->used++];
        pthread_cond_broadcast(&r->changed);
    }
}

/* Says to all ranks that no more tokens come, and why, if reading has failed. */
static void end_reading(ring *r, choir_status status)
{
    pthread_mutex_lock(&r->lock);
    if (r->ended) /* a rank waits for no more */
        status = CHOIR_OK;
    r->ended = r->finished = true;
    r->status = status;
    strncpy(r->message, status == CHOIR_OK ? "" : choir__message(), sizeof r->message - 1);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *read_stream(void *arg)
{
    choir_stream *s = arg;
    ring *r = s->ring;
    bool more = true;
    choir_status status = CHOIR_OK;
    while (more && status == CHOIR_OK) {
        pthread_mutex_lock(&r->lock);
        write_ids(s);
        more = !r->ended;
        pthread_mutex_unlock(&r->lock);
        if (!more)
            break;
        status = read_record(s, &more);
    }
    end_reading(r, status);
    return NULL;
}

/* --- samples --- */

static int64_t length(const choir_dataset *self)
{
    const stream_dataset *d = (const stream_dataset *)self;
    return d == &d->stream->train ? endless : d->stream->opts.validation;
}

/* Writes a window; token(t) is entry t of the ring, or of those for validation. */
static void fill(const choir_stream *s, const int32_t *tokens, int64_t room, int64_t from,
    int64_t *x, int64_t *y)
{
    for (int64_t t = 0; t <= s->opts.context; t++) {
        int32_t token = tokens[(from + t) % room];
        if (t < s->opts.context)
            x[t] = choir__document_token(token);
        if (t)
            y[t - 1] = token < 0 ? CHOIR_IGNORED : token;
    }
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    choir_stream *s = ((stream_dataset *)self)->stream;
    ring *r = s->ring;
    int64_t from = index * s->opts.context, last = from + s->opts.context;
    if (self == &s->validation.base) {
        fill(s, s->kept, s->kept_count, from, x, y);
        return CHOIR_OK;
    }
    pthread_mutex_lock(&r->lock);
    while (r->written <= last && !r->ended && !s->left)
        pthread_cond_wait(&r->changed, &r->lock);
    bool there = r->written > last && from >= r->written - r->room;
    if (there)
        fill(s, r->tokens, r->room, from, x, y);
    pthread_mutex_unlock(&r->lock);
    return there ? CHOIR_OK
                 : choir__error(CHOIR_ERR_STATE,
                       "%s: sample %lld is not there: the stream has ended, or gone on",
                       s->records.at.path, (long long)index);
}

static bool ignores(const choir_dataset *self)
{
    return ((const stream_dataset *)self)->stream->end >= 0;
}

static const choir_dataset_ops ops = {.length = length, .get = get, .ignores = ignores};

/* --- life --- */

choir_stream_opts choir_stream_defaults(void)
{
    return (choir_stream_opts){.context = 1024, .batch_size = 32, .validation = 128};
}

static choir_status make_ring(choir_stream *s)
{
    int64_t step = s->opts.batch_size * s->opts.context;
    int64_t room = STEPS_AHEAD * step + LEAST_ROOM;
    s->bytes = sizeof(ring) + (size_t)room * sizeof(int32_t);
    s->ring = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->ring == MAP_FAILED) {
        s->ring = NULL;
        return choir__error(
            CHOIR_ERR_MEMORY, "no memory for a stream of %lld tokens", (long long)room);
    }
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->ring->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&s->ring->changed, &condition);
    pthread_condattr_destroy(&condition);
    s->ring->room = room;
    return CHOIR_OK;
}

/* Reads the tokens of the samples for validation; those behind them stay in s->ids. */
static choir_status keep_first(choir_stream *s)
{
    int64_t want = s->opts.validation * s->opts.context + 1;
    bool more = true;
    choir_status status = CHOIR_OK;
    s->kept = choir__calloc((size_t)want, sizeof *s->kept);
    while (status == CHOIR_OK && more && s->kept_count < want) {
        for (; s->used < s->ids.count && s->kept_count < want; s->used++)
            s->kept[s->kept_count++] = s->ids.id[s->used];
        if (s->kept_count < want)
            status = read_record(s, &more);
    }
    int64_t target = 1;
    while (target < s->kept_count && s->kept[target] < 0)
        target++;
    if (status == CHOIR_OK && s->kept_count > 1 && target == s->kept_count)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s, line %lld: up to here no conversation has words of the role 'assistant', which "
            "alone are learned: expected answers to learn from",
            s->records.at.path, (long long)s->records.at.line);
    if (status == CHOIR_OK && s->kept_count < want)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s ended after %lld tokens, before the %lld samples of %lld tokens to validate on",
            s->records.at.path, (long long)s->kept_count, (long long)s->opts.validation,
            (long long)s->opts.context);
    return status;
}

static choir_status check(const choir_stream_opts *o)
{
    if (o->context < 1 || o->batch_size < 1 || o->validation < 1 || o->context > 1 << 24 ||
        o->batch_size > (INT64_C(1) << 32) / o->context || o->validation > 1 << 20)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a stream: expected a context, a batch size and samples for validation of 1 or more, "
            "got %lld, %lld and %lld; begin with choir_stream_defaults()",
            (long long)o->context, (long long)o->batch_size, (long long)o->validation);
    return CHOIR_OK;
}

/* Looks at the first character: documents, or a text. */
static choir_status find_kind(choir_stream *s, choir_tokenizer **tokenizer)
{
    bool documents;
    choir_status status = choir__data_records_look(&s->records, &documents);
    s->end = -1;
    if (status == CHOIR_OK && documents) {
        status = choir__settle_end_of_text(s->records.at.path, s->fixed, tokenizer);
        s->end = (int32_t)choir__end_of_text(*tokenizer);
    }
    s->tokenizer = *tokenizer;
    return status;
}

static void init_dataset(choir_stream *s, stream_dataset *d)
{
    d->stream = s;
    d->base = (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(s->opts.context),
        .y_shape = choir_dims(s->opts.context),
        .classes = choir_tokenizer_size(s->tokenizer)};
}

choir_status choir__gpu_stream_open(int fd, const char *name, choir_tokenizer **tokenizer,
    bool fixed, const choir_stream_opts *opts, choir_stream **stream)
{
    choir_status status = check(opts);
    if (status != CHOIR_OK)
        return status;
    choir_stream *s = choir__calloc(1, sizeof *s);
    s->opts = *opts;
    s->fixed = fixed;
    s->owner = getpid();
    pthread_mutex_init(&s->encoding, NULL);
    choir__data_records_take(&s->records, fd, name ? name : "the stream");
    status = choir__columns_parse(opts->columns, &s->parts.columns);
    if (status == CHOIR_OK)
        status = find_kind(s, tokenizer);
    if (status == CHOIR_OK)
        status = make_ring(s);
    if (status == CHOIR_OK)
        status = keep_first(s);
    *tokenizer = s->tokenizer;
    s->chats |= !fixed; /* later ones are text: the model has these tokens, and no weights */
    init_dataset(s, &s->train);
    init_dataset(s, &s->validation);
    if (status == CHOIR_OK)
        *stream = s;
    else
        choir_stream_free(s);
    return status;
}

choir_status choir_stream_open(int fd, const char *name, const choir_tokenizer *tokenizer,
    choir_stream_opts opts, choir_stream **stream)
{
    if (!tokenizer || !stream)
        return choir__missing(__func__, tokenizer ? "stream" : "tokenizer");
    choir_tokenizer *fixed = (choir_tokenizer *)(uintptr_t)tokenizer; /* stays as it is */
    return choir__gpu_stream_open(fd, name, &fixed, true, &opts, stream);
}

choir_dataset *choir_stream_data(choir_stream *stream)
{
    return choir__lacks(stream, __func__, "stream") ? NULL : &stream->train.base;
}

choir_dataset *choir_stream_validation(choir_stream *stream)
{
    return choir__lacks(stream, __func__, "stream") ? NULL : &stream->validation.base;
}

choir_status choir_stream_start(choir_stream *s, int ranks)
{
    if (!s)
        return choir__missing(__func__, "stream");
    if (ranks < 1 || ranks > MOST_RANKS || s->ring->ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            s->ring->ranks ? "a stream is started once, got %d ranks again"
                           : "a stream: expected 1 to 1024 ranks, got %d",
            ranks);
    s->ring->ranks = ranks;
    return ranks == 1 ? choir_stream_read(s) : CHOIR_OK;
}

choir_status choir_stream_read(choir_stream *s)
{
    pthread_t reader;
    if (!s)
        return choir__missing(__func__, "stream");
    if (!s->ring->ranks || s->reads)
        return choir__error(CHOIR_ERR_STATE,
            "%s: a stream is read once, after choir_stream_start", s->records.at.path);
    if (pthread_create(&reader, NULL, read_stream, s) != 0) {
        choir_status status =
            choir__error(CHOIR_ERR_MEMORY, "%s: no thread to read it", s->records.at.path);
        end_reading(s->ring, status); /* the ranks wait for tokens */
        return status;
    }
    pthread_detach(reader);
    s->reads = true;
    return CHOIR_OK;
}

/* Waits for a change, for a tenth of a second at most. The caller holds the lock. */
static void wait_shortly(ring *r)
{
    static const long short_ns = 100 * 1000 * 1000, second_ns = 1000 * 1000 * 1000;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += short_ns;
    until.tv_sec += until.tv_nsec / second_ns;
    until.tv_nsec %= second_ns;
    pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

choir_status choir_stream_wait(choir_stream *s, int rank, int64_t step, bool *whole)
{
    return choir_stream_wait_while(s, rank, step, always, NULL, whole);
}

choir_status choir_stream_wait_while(choir_stream *s, int rank, int64_t step,
    choir_stream_goes_on_fn *goes_on, void *arg, bool *whole)
{
    if (!s || !goes_on || !whole)
        return choir__missing(__func__, !s ? "stream" : !goes_on ? "function" : "whole");
    if (rank < 0 || rank >= s->ring->ranks || step < 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "a stream of %d ranks: got rank %d, step %lld",
            s->ring->ranks, rank, (long long)step);
    ring *r = s->ring;
    int64_t tokens = s->opts.batch_size * s->opts.context;
    pthread_mutex_lock(&r->lock);
    r->done[rank] = choir__max(r->done[rank], step * tokens);
    pthread_cond_broadcast(&r->changed);
    while (r->written <= (step + 1) * tokens && !r->ended) {
        wait_shortly(r);
        if (goes_on(arg))
            continue;
        r->ended = true;
        pthread_cond_broadcast(&r->changed);
    }
    *whole = r->written > (step + 1) * tokens;
    choir_status status = *whole ? CHOIR_OK : r->status;
    pthread_mutex_unlock(&r->lock);
    if (status != CHOIR_OK)
        choir__set_message(r->message);
    return status;
}

int64_t choir_stream_tokens(const choir_stream *s)
{
    if (choir__lacks(s, __func__, "stream"))
        return 0;
    pthread_mutex_lock(&s->ring->lock);
    int64_t tokens = s->ring->written;
    pthread_mutex_unlock(&s->ring->lock);
    return tokens;
}

void choir_stream_leave(choir_stream *s)
{
    if (choir__lacks(s, __func__, "stream"))
        return;
    if (s->owner == getpid())
        pthread_mutex_lock(&s->encoding); /* the tokenizer is free afterwards */
    s->left = true;
    if (s->owner == getpid())
        pthread_mutex_unlock(&s->encoding);
    pthread_mutex_lock(&s->ring->lock);
    pthread_cond_broadcast(&s->ring->changed);
    pthread_mutex_unlock(&s->ring->lock);
}

/* A reader may wait for the descriptor forever. Its memory then stays until the process ends.
 */
void choir_stream_free(choir_stream *s)
{
    if (!s)
        return;
    bool reading = s->ring && s->reads;
    if (reading) {
        choir_stream_leave(s);
        pthread_mutex_lock(&s->ring->lock);
        reading = !s->ring->finished;
        pthread_mutex_unlock(&s->ring->lock);
    }
    if (reading)
        return;
    s->records.fd = -1; /* the caller's */
    choir__data_records_close(&s->records);
    choir__document_parts_free(&s->parts);
    if (s->ring)
        munmap(s->ring, s->bytes);
    pthread_mutex_destroy(&s->encoding);
    free(s->ids.id);
    free(s->kept);
    free(s);
}
