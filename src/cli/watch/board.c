/* The contents of the page: see board.h.
 *
 * Readers take turns at looking, each once per second. The files are asked, rather than the
 * kernel to report changes: a run may write to a network's file system from another machine,
 * and then there are no reports. */
#include "cli/watch/board.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/watch/ranks.h"
#include "cli/watch/study.h"

static const double pass_s = 1, find_s = 1, ranks_s = 2; /* from one to the next, at least */
static const double times = 200; /* and this many times what the last one took */
static const double end_s = 3;   /* for slow readers */
enum { DEPTH = 3, MOST_ENTRIES = 4096, SIGN_S = 5 };

struct choir__watch_board {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* ends is set, or a reader has gone */
    bool ends;
    int readers;
    char *const *paths;
    int path_count;
    choir__watch_run *runs[CHOIR__WATCH_RUNS];
    int run_count, left_out; /* left_out: runs for which there was no room */
    choir__watch_study *studies[CHOIR__WATCH_STUDIES];
    int study_count;
    double find_at, look_at; /* choir__now(), when runs and ranks are looked for again */
    choir__looks before;
    choir__text ranks;
    int64_t rounds; /* of ranks */
};

struct choir__watch_reader {
    choir__watch_board *board;
    choir__watch_known known[CHOIR__WATCH_RUNS];
    choir__text out;
    size_t sent;                                   /* bytes of out */
    int next;                                      /* run of this pass */
    bool more;                                     /* something was left to read in this pass */
    bool last_pass;                                /* it began after the board's end */
    double began_at;                               /* the pass; choir__now() */
    int64_t rounds, studies[CHOIR__WATCH_STUDIES]; /* versions that were sent */
    int counted[3]; /* runs, left_out and studies as they were sent last; -1: not yet */
    double told_at;
    bool said_end;
};

/* --- finding runs --- */

static void add_run(choir__watch_board *b, const char *path)
{
    for (int i = 0; i < b->run_count; i++)
        if (!strcmp(b->runs[i]->path, path))
            return;
    if (b->run_count == CHOIR__WATCH_RUNS)
        b->left_out++;
    else
        b->runs[b->run_count++] = choir__watch_run_new(path);
}

static void add_study(choir__watch_board *b, const char *path)
{
    for (int i = 0; i < b->study_count; i++)
        if (!strcmp(b->studies[i]->path, path))
            return;
    if (b->study_count < CHOIR__WATCH_STUDIES)
        b->studies[b->study_count++] = choir__watch_study_new(path);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK);
}

/* Adds a run, or the runs in a folder and the folders in it. */
static void find_runs(choir__watch_board *b, const char *path, int depth, int *entries)
{
    if (choir__watch_is_study(path))
        add_study(b, path); /* its folder may hold runs, too */
    if (choir__watch_is_run(path)) {
        add_run(b, path);
        return;
    }
    struct dirent **list;
    int count = depth ? scandir(path, &list, is_visible, alphasort) : -1;
    for (int i = 0; i < count; i++) {
        if ((*entries)++ < MOST_ENTRIES) {
            char *inner = strcmp(path, ".") ? choir__format("%s/%s", path, list[i]->d_name)
                                            : choir__strdup(list[i]->d_name);
            find_runs(b, inner, depth - 1, entries);
            free(inner);
        }
        free(list[i]);
    }
    if (count >= 0)
        free(list);
}

static void find_all(choir__watch_board *b, double now)
{
    int entries = 0;
    if (now < b->find_at)
        return;
    b->left_out = 0;
    for (int i = 0; i < b->path_count; i++)
        find_runs(b, b->paths[i], DEPTH, &entries);
    b->find_at = now + fmax(find_s, times * (choir__now() - now));
}

/* --- the ranks --- */

static void look_at_ranks(choir__watch_board *b, double now)
{
    if (now < b->look_at)
        return;
    choir__looks looks = choir__looks_read(NULL, 0);
    choir__text_clear(&b->ranks);
    choir__text_put(&b->ranks, "event: ranks\ndata: ");
    choir__watch_ranks(&looks, &b->before, &b->ranks);
    choir__text_put(&b->ranks, "\n\n");
    if (looks.count || b->before.count || !b->rounds)
        b->rounds++;
    choir__looks_free(&b->before);
    b->before = looks;
    b->look_at = now + fmax(ranks_s, times * (choir__now() - now));
}

/* --- telling --- */

static void put_counts(choir__watch_reader *r)
{
    const choir__watch_board *b = r->board;
    struct timespec now;
    char text[160];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text,
        "event: board\ndata: {\"runs\":%d,\"left_out\":%d,\"studies\":%d,\"now\":%.3f,"
        "\"places\":[",
        b->run_count, b->left_out, b->study_count,
        (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    choir__text_put(&r->out, text);
    for (int i = 0; i < b->path_count; i++) {
        choir__text_put(&r->out, i ? "," : "");
        choir__text_json(&r->out, b->paths[i]);
    }
    choir__text_put(&r->out, "]}\n\n");
    r->counted[0] = b->run_count;
    r->counted[1] = b->left_out;
    r->counted[2] = b->study_count;
}

/* A pass goes over all runs, then the ranks, and stops wherever there is something to tell, so
 * that little is held for a slow reader. */
static void begin_pass(choir__watch_reader *r)
{
    choir__watch_board *b = r->board;
    r->began_at = choir__now();
    r->last_pass = b->ends;
    r->more = false;
    r->next = 0;
    find_all(b, r->began_at);
    look_at_ranks(b, r->began_at);
    if (r->counted[0] != b->run_count || r->counted[1] != b->left_out ||
        r->counted[2] != b->study_count)
        put_counts(r);
}

/* Goes on with the pass until something is in `out`; false: the pass is done. */
static bool go_on(choir__watch_reader *r)
{
    const choir__watch_board *b = r->board;
    for (; r->next < b->run_count && !r->out.used; r->next++) {
        r->more |= choir__watch_run_look(b->runs[r->next]);
        choir__watch_run_news(b->runs[r->next], r->next, &r->known[r->next], &r->out);
    }
    for (int i = 0; i < b->study_count && !r->out.used; i++) {
        choir__watch_study_look(b->studies[i], i);
        if (r->studies[i] != b->studies[i]->version) {
            choir__text_put(&r->out, b->studies[i]->news.bytes);
            r->studies[i] = b->studies[i]->version;
        }
    }
    if (!r->out.used && r->rounds != b->rounds) {
        choir__text_put(&r->out, b->ranks.bytes);
        r->rounds = b->rounds;
    }
    if (!r->out.used && choir__now() - r->told_at >= SIGN_S)
        put_counts(r); /* a sign of life, which also finds out whether the reader is there */
    if (r->out.used)
        r->told_at = choir__now();
    return r->out.used > 0;
}

static struct timespec in_seconds(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t ns = at.tv_nsec + (int64_t)(1e9 * fmax(seconds, 0));
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

/* Waits until a second after the pass began, or until the end. */
static void wait_for_more(choir__watch_reader *r)
{
    choir__watch_board *b = r->board;
    struct timespec until = in_seconds(pass_s - (choir__now() - r->began_at));
    while (!b->ends && pthread_cond_timedwait(&b->ended, &b->lock, &until) != ETIMEDOUT)
        ;
}

/* Fills in `out` with what comes next; leaves it empty at the end. */
static void fill(choir__watch_reader *r)
{
    choir__text_clear(&r->out);
    r->sent = 0;
    pthread_mutex_lock(&r->board->lock);
    while (!r->said_end && !go_on(r)) {
        if (r->last_pass) { /* everything before the end has been sent */
            choir__text_put(&r->out, "event: end\ndata: {}\n\n");
            r->said_end = true;
            break;
        }
        if (!r->more)
            wait_for_more(r);
        begin_pass(r);
    }
    pthread_mutex_unlock(&r->board->lock);
}

size_t choir__watch_reader_read(void *reader, char *bytes, size_t room)
{
    choir__watch_reader *r = reader;
    if (r->sent == r->out.used)
        fill(r);
    size_t count = (size_t)choir__min((int64_t)(r->out.used - r->sent), (int64_t)room);
    if (count)
        memcpy(bytes, r->out.bytes + r->sent, count);
    r->sent += count;
    return count;
}

/* --- making --- */

choir__watch_reader *choir__watch_reader_new(choir__watch_board *b)
{
    choir__watch_reader *r = choir__calloc(1, sizeof *r);
    r->board = b;
    r->counted[0] = -1;
    pthread_mutex_lock(&b->lock);
    b->readers++;
    begin_pass(r);
    pthread_mutex_unlock(&b->lock);
    return r;
}

void choir__watch_reader_free(void *reader)
{
    choir__watch_reader *r = reader;
    pthread_mutex_lock(&r->board->lock);
    r->board->readers--;
    pthread_cond_broadcast(&r->board->ended);
    pthread_mutex_unlock(&r->board->lock);
    choir__text_free(&r->out);
    free(r);
}

choir__watch_board *choir__watch_board_new(char *const *paths, int count)
{
    choir__watch_board *b = choir__calloc(1, sizeof *b);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->ended, &steady);
    pthread_condattr_destroy(&steady);
    b->paths = paths;
    b->path_count = count;
    return b;
}

void choir__watch_board_free(choir__watch_board *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->run_count; i++)
        choir__watch_run_free(b->runs[i]);
    for (int i = 0; i < b->study_count; i++)
        choir__watch_study_free(b->studies[i]);
    choir__looks_free(&b->before);
    choir__text_free(&b->ranks);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void choir__watch_board_end(choir__watch_board *b)
{
    struct timespec until = in_seconds(end_s);
    pthread_mutex_lock(&b->lock);
    b->ends = true;
    pthread_cond_broadcast(&b->ended);
    while (b->readers && pthread_cond_timedwait(&b->ended, &b->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&b->lock);
}
