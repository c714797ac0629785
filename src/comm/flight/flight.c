/* Writing the flight recorder.
 *
 * A small all-reduce takes 0.4 us, and reading the clock costs a twentieth of that, so the
 * recorder shares the queue's readings. A call begins at the last reading of the queue's runner
 * (when it took up its work, or when the previous call ended), and ends with a reading that the
 * runner then reuses. The queue records the time of issue with the resolution of a clock
 * tick. */
#include "comm/flight/flight.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "comm/flight/flight_layout.h"
#include "device/queue.h"

struct choir__flight_log {
    choir__flight_page *page;
    uint64_t begun, ended; /* calls */
    int64_t since_ns;      /* when the first of the calls that run now began */
};

/* nanoseconds that this process waited in its groups, without groups that are aside */
static _Atomic int64_t waited_ns;

void choir__flight_job(const char *job, int rank, int world, int generation)
{
    uint64_t id = 0;
    static const unsigned char purpose[] = "choir: a job's name on the board";
    crypto_generichash_state state;
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash_init(&state, purpose, sizeof purpose, sizeof hash);
    crypto_generichash_update(&state, (const unsigned char *)job, strlen(job));
    crypto_generichash_final(&state, hash, sizeof hash);
    memcpy(&id, hash, sizeof id);
    choir__board_job(id ? id : 1, rank, world, generation);
}

void choir__flight_machines(const char (*names)[64], int count)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static choir__machines_page *shown; /* under lock */
    pthread_mutex_lock(&lock);
    choir__board_give_back(shown);
    shown = count ? choir__board_take(CHOIR__BOARD_MACHINES, sizeof *shown) : NULL;
    if (shown) {
        shown->count = (int32_t)choir__min(count, CHOIR__FLIGHT_MACHINES);
        memcpy(shown->names, names, (size_t)shown->count * sizeof *names);
        choir__board_show(shown);
    }
    pthread_mutex_unlock(&lock);
}

choir__flight_log *choir__flight_log_open(
    const char *name, const char *backend, int rank, int world)
{
    choir__flight_page *page = choir__board_take(CHOIR__BOARD_GROUP, sizeof *page);
    if (!page)
        return NULL;
    strncpy(page->name, name, sizeof page->name - 1);
    strncpy(page->backend, backend, sizeof page->backend - 1);
    page->rank = rank;
    page->world = world;
    choir__board_show(page);
    choir__flight_log *log = choir__calloc(1, sizeof *log);
    log->page = page;
    return log;
}

void choir__flight_log_close(choir__flight_log *log)
{
    if (!log)
        return;
    choir__board_give_back(log->page);
    free(log);
}

static int64_t ns(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

choir__queue_gauges *choir__flight_log_gauges(choir__flight_log *log)
{
    return log ? &log->page->queue : NULL;
}

void choir__flight_log_begin(choir__flight_log *log, const choir__stamp *stamp)
{
    if (!log)
        return;
    int64_t now = ns(choir__queue_looked());
    if (log->begun == log->ended)
        log->since_ns = now;
    uint64_t n = log->begun++;
    choir__flight_entry *e = &log->page->entries[n % CHOIR__FLIGHT_ENTRIES];
    atomic_store_explicit(&e->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    e->stamp = *stamp;
    e->issued_ns = ns(choir__queue_issued());
    e->begun_ns = now;
    atomic_store_explicit(&e->ended_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&e->number, n + 1, memory_order_release);
    atomic_store_explicit(&log->page->begun, n + 1, memory_order_release);
}

/* Returns the newest running entry with this stamp: calls of a batch may overlap. */
static choir__flight_entry *running(choir__flight_log *log, const choir__stamp *stamp)
{
    for (uint64_t n = log->begun; n > 0 && log->begun - n < CHOIR__FLIGHT_ENTRIES; n--) {
        choir__flight_entry *e = &log->page->entries[(n - 1) % CHOIR__FLIGHT_ENTRIES];
        if (!atomic_load_explicit(&e->ended_ns, memory_order_relaxed) &&
            !memcmp(&e->stamp, stamp, sizeof *stamp))
            return e;
    }
    return NULL;
}

void choir__flight_log_end(
    choir__flight_log *log, const choir__stamp *stamp, choir_status status)
{
    if (!log)
        return;
    choir__flight_entry *e = running(log, stamp);
    int64_t now = ns(choir__queue_now());
    if (e) {
        e->status = status;
        atomic_store_explicit(&e->ended_ns, now, memory_order_release);
    }
    atomic_store_explicit(&log->page->ended, ++log->ended, memory_order_release);
    if (log->begun != log->ended)
        return;
    atomic_fetch_add_explicit(&log->page->waited_ns, now - log->since_ns, memory_order_relaxed);
    if (!log->page->aside)
        atomic_fetch_add_explicit(&waited_ns, now - log->since_ns, memory_order_relaxed);
}

void choir__flight_log_aside(choir__flight_log *log)
{
    if (log)
        log->page->aside = true;
}

double choir__flight_waited(void)
{
    return 1e-9 * (double)atomic_load_explicit(&waited_ns, memory_order_relaxed);
}
