/* The contents of the page: see overview.h.
 *
 * Readers take turns at looking, each once per second. The files are asked, rather than the
 * kernel to report changes: a run may write to a network's file system from another machine,
 * and then there are no reports. */
#include "cli/watch/overview.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/watch/shown.h"
#include "record/json_value.h"
#include "tune/storage/backend.h"

/* --- ranks ---
 *
 * The ranks in view as JSON for the page: jobs with their ranks, devices, memory and current
 * calls, the newest collectives that the training's thread waits for, the slowest rank, and
 * machines in trouble. The numbers of calls and processes are bounded. */

enum { MOST_CALLS = 24, MOST_PROCESSES = 256 };

typedef struct call_at {
    const choir__seen_call *call;
    bool kept;
} call_at;

static int newest_first(const void *a, const void *b)
{
    double x = ((const call_at *)a)->call->begun, y = ((const call_at *)b)->call->begun;
    return (x < y) - (x > y);
}

/* The newest collectives of all groups for which the training's thread waits. */
static json_t *calls_of(const choir__seen *seen)
{
    call_at *all = NULL;
    int count = 0;
    json_t *calls = json_array();
    for (int g = 0; g < seen->group_count; g++)
        count += seen->groups[g].aside ? 0 : seen->groups[g].count;
    all = choir__calloc((size_t)count + 1, sizeof *all);
    count = 0;
    for (int g = 0; g < seen->group_count; g++)
        for (int i = 0; i < seen->groups[g].count && !seen->groups[g].aside; i++)
            all[count++].call = &seen->groups[g].calls[i];
    qsort(all, (size_t)count, sizeof *all, newest_first);
    for (int i = 0; i < count && i < MOST_CALLS; i++) {
        const choir__seen_call *c = all[i].call;
        double end = c->ended > 0 ? c->ended : seen->at;
        json_array_append_new(
            calls, json_pack("[s, f, f, b]", choir__kind_name((choir__kind)c->stamp.kind),
                       seen->at - c->begun, end - c->begun, c->ended > 0));
    }
    free(all);
    return calls;
}

static json_t *rank_of(const choir__seen *seen, const choir__seen *earlier)
{
    char doing[400];
    json_t *devices = json_array();
    choir__snapshot_doing(seen, doing, sizeof doing);
    for (int i = 0; i < seen->device_count; i++) {
        const choir__seen_device *d = &seen->devices[i];
        json_array_append_new(
            devices, json_pack("{s:o, s:I, s:I, s:I, s:f, s:I}", "device",
                         choir__json_string(d->name), "bytes", (json_int_t)d->now, "peak",
                         (json_int_t)d->peak, "limit", (json_int_t)d->limit, "busy",
                         choir__seen_busy(seen, earlier, i), "queue", (json_int_t)d->queued));
    }
    return json_pack("{s:i, s:i, s:o, s:I, s:o, s:o, s:o}", "rank", seen->who.rank, "pid",
        seen->pid, "host", choir__json_string(seen->who.host), "steps",
        (json_int_t)seen->who.steps, "doing", choir__json_string(doing), "devices", devices,
        "calls", calls_of(seen));
}

static json_t *job_of(const choir__ranks_view *view, int from)
{
    const choir__seen *first = view->now.seen[from];
    char job[24] = "";
    if (first->who.job)
        snprintf(job, sizeof job, "%08" PRIx64, first->who.job >> 32);
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:f, s:[]}", "job", job, "world",
        first->who.world, "generation", first->who.generation, "machines",
        choir__view_machines(view, from), "command",
        choir__json_string(*first->command ? first->command : first->who.program), "host",
        choir__json_string(first->who.host), "age_s", first->at - first->who.started, "ranks");
    choir__slow_rank slow = choir__snapshot_slow(&view->now, from, &view->before);
    if (slow.rank >= 0)
        json_object_set_new(o, "slow",
            json_pack("{s:i, s:f, s:f}", "rank", slow.rank, "share", slow.share, "per_step_s",
                slow.per_step));
    return o;
}

static json_t *troubles_of(const choir__machines *machines)
{
    char text[CHOIR__TROUBLE_TEXT];
    json_t *all = json_array();
    for (int i = 0; machines && choir__machines_trouble(machines, i, text); i++)
        if (*text)
            json_array_append_new(all, choir__json_string(text));
    return all;
}

/* Adds {"jobs":[{"job":...,"world":...,"slow":{...},"ranks":[...]}],"troubles":[...]}. A rank
 * has its machine, its devices, its activity, and its last collectives as [name, seconds ago,
 * seconds long]. troubles: sentences about machines that are not seen. */
static void add_ranks(const choir__ranks_view *view, choir__text_buffer *json)
{
    const choir__snapshot *now = &view->now;
    json_t *root = json_pack("{s:[], s:o}", "jobs", "troubles", troubles_of(view->machines)),
           *jobs = json_object_get(root, "jobs"), *job = NULL;
    for (int i = 0; i < now->count && i < MOST_PROCESSES; i++) {
        const choir__seen *seen = now->seen[i];
        bool new_job = !i || !seen->who.job || seen->who.job != now->seen[i - 1]->who.job;
        if (new_job) {
            job = job_of(view, i);
            json_array_append_new(jobs, job);
        }
        json_array_append_new(json_object_get(job, "ranks"),
            rank_of(seen, choir__snapshot_earlier(&view->before, seen)));
    }
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    choir__text_buffer_put(json, text);
    free(text);
    json_decref(root);
}

/* Least time from one pass to the next, in seconds and as a multiple of the last one's. */
static const double pass_s = 1, find_s = 1, ranks_s = 2, times = 200;
static const double news_s = 3; /* for news, after the end */
static const double end_s = 4;  /* for slow readers */
enum { SIGN_S = 5 };

struct choir__watch_overview {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* ends is set, or a reader has gone */
    bool ends;
    double end_at; /* choir__now(), until when readers get news */
    int readers;
    char *const *paths;
    int path_count;
    choir__watch_shown shown;
    double find_at, look_at; /* choir__now(), when runs and ranks are looked for again */
    choir__ranks_view view;
    bool any_ranks; /* were seen at the last look */
    choir__text_buffer ranks;
    int64_t rounds; /* rounds of ranks */
};

struct choir__watch_reader {
    choir__watch_overview *overview;
    choir__watch_known known[CHOIR__WATCH_RUNS];
    choir__text_buffer out;
    size_t sent;                 /* bytes of out */
    int next;                    /* run of this pass */
    bool more;                   /* something was left to read in this pass */
    bool last_pass;              /* the pass began after the overview's end */
    double began_at;             /* the pass; choir__now() */
    int64_t rounds;              /* number of the last round that was sent */
    choir__watch_told told;      /* versions that were sent */
    choir__watch_counts counted; /* the counts that were sent last */
    double told_at;
    bool said_end;
};

static void find_all(choir__watch_overview *b, double now)
{
    if (now < b->find_at)
        return;
    choir__watch_shown_find(&b->shown, b->paths, b->path_count);
    b->find_at = now + fmax(find_s, times * (choir__now() - now));
}

/* --- looking at ranks --- */

static void look_at_ranks(choir__watch_overview *b, double now)
{
    if (now < b->look_at)
        return;
    choir__view_look(&b->view, NULL, 0);
    choir__text_buffer_clear(&b->ranks);
    choir__text_buffer_put(&b->ranks, "event: ranks\ndata: ");
    add_ranks(&b->view, &b->ranks);
    choir__text_buffer_put(&b->ranks, "\n\n");
    bool any = b->view.now.count || b->view.machines;
    if (any || b->any_ranks || !b->rounds)
        b->rounds++;
    b->any_ranks = any;
    b->look_at = now + fmax(ranks_s, times * (choir__now() - now));
}

/* --- telling --- */

static void put_counts(choir__watch_reader *r)
{
    const choir__watch_overview *b = r->overview;
    const choir__watch_counts *c = &b->shown.counts;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    choir__text_buffer_put(&r->out, "event: board\ndata: {");
    choir__text_value(&r->out, "runs", "%lld", (long long)c->shown[CHOIR__WATCH_RUN]);
    choir__text_value(&r->out, "left_out", "%lld", (long long)c->left_out[CHOIR__WATCH_RUN]);
    choir__text_value(&r->out, "studies", "%lld", (long long)c->shown[CHOIR__WATCH_STUDY]);
    choir__text_value(
        &r->out, "studies_left_out", "%lld", (long long)c->left_out[CHOIR__WATCH_STUDY]);
    choir__text_value(&r->out, "plans", "%lld", (long long)c->shown[CHOIR__WATCH_PLAN]);
    choir__text_value(
        &r->out, "plans_left_out", "%lld", (long long)c->left_out[CHOIR__WATCH_PLAN]);
    choir__text_value(&r->out, "folders_left_out", "%lld", (long long)c->folders_left_out);
    choir__text_value(&r->out, "now", "%.3f", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    choir__text_open(&r->out, "places", '[');
    for (int i = 0; i < b->path_count; i++) {
        char *place = choir__watch_is_storage(b->paths[i]) ? choir__backend_public(b->paths[i])
                                                           : choir__strdup(b->paths[i]);
        choir__text_string(&r->out, NULL, place);
        free(place);
    }
    choir__text_buffer_put(&r->out, "]}\n\n");
    r->counted = *c;
}

/* A pass goes over all runs, then the ranks, and stops wherever there is something to tell, so
 * that little is held for a slow reader. */
static void begin_pass(choir__watch_reader *r)
{
    choir__watch_overview *b = r->overview;
    r->began_at = choir__now();
    r->last_pass = b->ends;
    r->more = false;
    r->next = 0;
    find_all(b, r->began_at);
    look_at_ranks(b, r->began_at);
    if (memcmp(&r->counted, &b->shown.counts, sizeof r->counted) != 0)
        put_counts(r);
}

static void tell_others(choir__watch_reader *r)
{
    choir__watch_overview *b = r->overview;
    choir__watch_shown_news(&b->shown, &r->told, &r->out);
    if (!r->out.used && r->rounds != b->rounds) {
        choir__text_buffer_put(&r->out, b->ranks.bytes);
        r->rounds = b->rounds;
    }
    if (!r->out.used && choir__now() - r->told_at >= SIGN_S)
        put_counts(r); /* a sign of life, which also finds out whether the reader is there */
}

/* Goes on with the pass until something is in `out`, or until a run has more to read than a
 * turn takes; returns false when the pass is done. */
static bool go_on(choir__watch_reader *r)
{
    const choir__watch_shown *shown = &r->overview->shown;
    bool more = false;
    while (r->next < shown->count[CHOIR__WATCH_RUN] && !r->out.used && !more) {
        int at = r->next++;
        more = choir__watch_run_look(shown->runs[at]);
        choir__watch_run_news(shown->runs[at], at, &r->known[at], &r->out);
    }
    r->more |= more;
    if (!more)
        tell_others(r);
    if (r->out.used)
        r->told_at = choir__now();
    return more || r->out.used;
}

/* Waits until a second after the pass began, or until the end. */
static void wait_for_more(choir__watch_reader *r)
{
    choir__watch_overview *b = r->overview;
    struct timespec until = choir__in_seconds(pass_s - (choir__now() - r->began_at));
    while (!b->ends && pthread_cond_timedwait(&b->ended, &b->lock, &until) != ETIMEDOUT)
        ;
}

/* Lets the other readers look, and the processor rest, after a turn that told nothing: a file
 * may hold any number of bytes and not one line of a run. */
static void give_way(choir__watch_reader *r, double took)
{
    const struct timespec pause = {.tv_nsec = (long)(1e9 * fmin(0.002 + 2 * took, 0.02))};
    pthread_mutex_unlock(&r->overview->lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&r->overview->lock);
}

/* Returns whether everything before the overview's end has been sent, or the time for it is
 * over.
 */
static bool is_done(const choir__watch_reader *r)
{
    return r->last_pass && (!r->more || choir__now() > r->overview->end_at);
}

/* Fills in `out` with what comes next; leaves it empty at the end. */
static void fill(choir__watch_reader *r)
{
    choir__text_buffer_clear(&r->out);
    r->sent = 0;
    pthread_mutex_lock(&r->overview->lock);
    while (!r->said_end && !r->out.used) {
        double began = choir__now();
        if (go_on(r)) {
            if (!r->out.used)
                give_way(r, choir__now() - began);
        } else if (is_done(r)) {
            choir__text_buffer_put(&r->out, "event: end\ndata: {}\n\n");
            r->said_end = true;
        } else {
            if (!r->more)
                wait_for_more(r);
            begin_pass(r);
        }
    }
    pthread_mutex_unlock(&r->overview->lock);
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

choir__watch_reader *choir__watch_reader_new(choir__watch_overview *b)
{
    choir__watch_reader *r = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->readers < CHOIR__WATCH_READERS) {
        b->readers++;
        r = choir__calloc(1, sizeof *r);
        r->overview = b;
        r->counted.shown[CHOIR__WATCH_RUN] = -1; /* nothing has been sent */
        begin_pass(r);
    }
    pthread_mutex_unlock(&b->lock);
    return r;
}

void choir__watch_reader_free(void *reader)
{
    choir__watch_reader *r = reader;
    pthread_mutex_lock(&r->overview->lock);
    r->overview->readers--;
    pthread_cond_broadcast(&r->overview->ended);
    pthread_mutex_unlock(&r->overview->lock);
    choir__text_buffer_free(&r->out);
    free(r);
}

choir__watch_overview *choir__watch_overview_new(const choir__watch_shows *shows)
{
    choir__watch_overview *b = choir__calloc(1, sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    choir__cond_init(&b->ended);
    b->paths = shows->paths;
    b->path_count = shows->count;
    b->view.machines = shows->machines;
    return b;
}

void choir__watch_overview_free(choir__watch_overview *b)
{
    if (!b)
        return;
    choir__watch_shown_free(&b->shown);
    choir__view_free(&b->view);
    choir__text_buffer_free(&b->ranks);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void choir__watch_overview_end(choir__watch_overview *b)
{
    struct timespec until = choir__in_seconds(end_s);
    pthread_mutex_lock(&b->lock);
    b->ends = true;
    b->end_at = choir__now() + news_s;
    pthread_cond_broadcast(&b->ended);
    while (b->readers && pthread_cond_timedwait(&b->ended, &b->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&b->lock);
}
