/* Writing and hashing a stream: see writer.h.
 *
 * The caller fills chunk `filled`, and each stage counts the chunks that it has done; a chunk
 * number modulo RING is its place. One lock guards the counts. A stage without a thread,
 * because none could be started, runs in the caller. */
#include "checkpoint/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/board/board.h"
#include "base/hold_signals.h"

enum {
    CHUNK = 2 << 20,
    RING = 8,
    DIRECT_UNIT = 4096, /* bytes; positions and sizes of writes past the page cache */
    STAGES = 2
};

typedef struct stage {
    choir__writer *writer;
    void (*work)(choir__writer *w, const char *data, size_t bytes);
    int64_t done; /* chunks */
    bool aside;   /* thread runs */
    pthread_t thread;
} stage;

struct choir__writer {
    int fd;
    bool direct; /* fd writes past the page cache */
    choir__sha256_state hash;
    char *ring;         /* (RING, CHUNK) */
    size_t sizes[RING]; /* bytes of each chunk in the ring */
    size_t used;        /* bytes of the chunk that the caller fills */
    int64_t bytes;      /* bytes of the stream before that chunk */
    int64_t filled;     /* chunks passed to the stages */
    stage stages[STAGES];
    int stage_count;
    bool started, ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int error; /* errno of the first write that failed */
};

/* --- the stages' work --- */

static void set_direct(choir__writer *w, bool direct)
{
    int flags = fcntl(w->fd, F_GETFL);
    w->direct = flags >= 0 &&
                fcntl(w->fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 &&
                direct;
}

static void put(choir__writer *w, const char *data, size_t bytes)
{
    while (bytes && !w->error) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINVAL && w->direct) /* another unit, or after half a write */
            set_direct(w, false);
        else if (n < 0 && errno != EINTR)
            w->error = errno;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
}

static void write_chunk(choir__writer *w, const char *data, size_t bytes)
{
    size_t whole = w->direct ? bytes / DIRECT_UNIT * DIRECT_UNIT : bytes;
    put(w, data, whole);
    if (whole < bytes) { /* the stream's end */
        set_direct(w, false);
        put(w, data + whole, bytes - whole);
    }
    if (w->started && !w->direct) /* a hint: lets the disk begin before the final sync */
        sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static void hash_chunk(choir__writer *w, const char *data, size_t bytes)
{
    choir__sha256_update(&w->hash, data, bytes);
}

/* --- threads --- */

static void work_on(stage *s)
{
    int place = (int)(s->done % RING);
    s->work(s->writer, s->writer->ring + (size_t)place * CHUNK, s->writer->sizes[place]);
    choir__board_beat();
}

static void *run(void *arg)
{
    stage *s = arg;
    choir__writer *w = s->writer;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (s->done == w->filled && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (s->done == w->filled)
            break;
        pthread_mutex_unlock(&w->lock);
        work_on(s);
        pthread_mutex_lock(&w->lock);
        s->done++;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void start(choir__writer *w)
{
    w->started = true;
    if (w->fd >= 0)
        set_direct(w, true);
    madvise(w->ring, (size_t)RING * CHUNK, MADV_HUGEPAGE);
    for (stage *s = w->stages; s < w->stages + w->stage_count; s++)
        s->aside = choir__background_thread_start(&s->thread, run, s);
}

/* Returns the number of chunks that all stages have done. Call it under the lock. */
static int64_t all_done(const choir__writer *w)
{
    int64_t done = w->stages->done;
    for (int i = 1; i < w->stage_count; i++)
        done = choir__min(done, w->stages[i].done);
    return done;
}

/* Passes the chunk on, and returns when there is room for another. */
static void pass_on(choir__writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->sizes[w->filled % RING] = w->used;
    w->bytes += (int64_t)w->used;
    w->used = 0;
    w->filled++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (stage *s = w->stages; s < w->stages + w->stage_count; s++)
        if (!s->aside) {
            work_on(s);
            pthread_mutex_lock(&w->lock);
            s->done++;
            pthread_mutex_unlock(&w->lock);
        }
    pthread_mutex_lock(&w->lock);
    while (w->filled - all_done(w) == RING)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* --- the caller --- */

choir__writer *choir__writer_new(int fd)
{
    choir__writer *w = choir__calloc(1, sizeof *w);
    *w = (choir__writer){.fd = fd,
        .stage_count = fd < 0 ? 1 : STAGES,
        .stages = {{.writer = w, .work = hash_chunk}, {.writer = w, .work = write_chunk}}};
    w->ring = mmap(
        NULL, (size_t)RING * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->ring == MAP_FAILED) {
        free(w);
        return NULL;
    }
    choir__sha256_init(&w->hash);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    return w;
}

void *choir__writer_room(choir__writer *w, size_t *bytes)
{
    if (w->used == CHUNK) { /* only now: a stream of one chunk needs no threads */
        if (!w->started)
            start(w);
        pass_on(w);
    }
    *bytes = CHUNK - w->used;
    return w->ring + (size_t)(w->filled % RING) * CHUNK + w->used;
}

void choir__writer_filled(choir__writer *w, size_t bytes)
{
    w->used += bytes;
}

int choir__writer_add(choir__writer *w, const void *data, size_t bytes)
{
    const char *at = data;
    for (size_t n; bytes && !w->error; at += n, bytes -= n) {
        void *room = choir__writer_room(w, &n);
        n = bytes < n ? bytes : n;
        memcpy(room, at, n);
        choir__writer_filled(w, n);
    }
    return w->error;
}

int choir__writer_end(choir__writer *w, choir__digest *digest)
{
    if (w->used)
        pass_on(w);
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (stage *s = w->stages; s < w->stages + w->stage_count; s++)
        if (s->aside)
            pthread_join(s->thread, NULL);
    int error = w->error;
    digest->bytes = w->bytes;
    choir__sha256_final(&w->hash, digest->sha256);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    munmap(w->ring, (size_t)RING * CHUNK);
    free(w);
    return error;
}

/* --- threads ---
 *
 * Threads start with all signals blocked, which are for the program's own threads. A thread
 * that yields runs at nice 19, and its work starts no further threads. */

enum { LOWEST_PRIORITY = 19 };

static _Thread_local bool yields;

bool choir__background_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    return !yields && choir__thread_start(thread, work, arg) == 0;
}

void choir__background_thread_yield(void)
{
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY);
    yields = true;
}
