/* Reading other processes' flight recorders.
 *
 * A foreign board may contain anything: texts are made printable, numbers used as indices are
 * checked, and entries that were written to during the reading are left out. */
#include "comm/flight/flight.h"

#include <stdlib.h>
#include <string.h>

#include "comm/flight/flight_layout.h"
#include "device/gauges.h"

/* Converts a time from the other process's log; 0 if it is impossible. */
static double seconds(int64_t ns, double now)
{
    double s = (double)ns * 1e-9;
    return s <= 0 ? 0 : s > now ? now : s; /* the writer's clock may be read later */
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const choir__seen_call *)a)->number;
    uint64_t y = ((const choir__seen_call *)b)->number;
    return (x > y) - (x < y);
}

static bool read_entry(const choir__board *board, const choir__flight_page *page, int slot,
    double now, choir__seen_call *call)
{
    const choir__flight_entry *e = &page->entries[slot];
    uint64_t number = e->number;
    if (number == 0 || (number - 1) % CHOIR__FLIGHT_ENTRIES != (uint64_t)slot ||
        !choir__board_settled(board, e, sizeof *e) || e->stamp.kind >= CHOIR__KIND_COUNT ||
        e->stamp.dtype >= CHOIR_DTYPE_COUNT || e->stamp.op >= CHOIR_REDUCE_OP_COUNT)
        return false;
    *call = (choir__seen_call){.number = number,
        .stamp = e->stamp,
        .issued = seconds(e->issued_ns, now),
        .begun = seconds(e->begun_ns, now),
        .ended = seconds(e->ended_ns, now),
        .status = (choir_status)e->status};
    return true;
}

static uint64_t backlog(const choir__queue_gauges *queue)
{
    uint64_t issued = queue->issued, finished = queue->finished;
    return issued > finished ? issued - finished : 0;
}

static void read_group(const choir__board *board, const choir__flight_page *page, double now,
    choir__seen_group *group)
{
    *group = (choir__seen_group){.rank = page->rank,
        .world = page->world,
        .begun = page->begun,
        .ended = page->ended,
        .queued = backlog(&page->queue)};
    choir__board_text(group->name, sizeof group->name, page->name, sizeof page->name);
    choir__board_text(
        group->backend, sizeof group->backend, page->backend, sizeof page->backend);
    for (int slot = 0; slot < CHOIR__FLIGHT_ENTRIES; slot++)
        group->count += read_entry(board, page, slot, now, &group->calls[group->count]);
    qsort(group->calls, (size_t)group->count, sizeof *group->calls, by_number);
    const choir__seen_call *call = choir__seen_current(group);
    group->aside = page->aside;
    group->waited_s = 1e-9 * (double)page->waited_ns;
    if (call && !call->ended && call->begun > 0)
        group->waited_s += now - call->begun;
}

static void read_device(const choir__gauges *gauges, double now, choir__seen_device *device)
{
    const choir__pool_gauges *pool = &gauges->pool;
    const choir__queue_gauges *queue = &gauges->queue;
    double since = seconds(queue->busy_since_ns, now);
    *device = (choir__seen_device){.now = pool->now,
        .peak = pool->peak,
        .reserved = pool->reserved,
        .limit = pool->limit,
        .queued = backlog(queue),
        .finished = queue->finished,
        .busy_s = (double)queue->busy_ns * 1e-9 + (since > 0 ? now - since : 0)};
    choir__board_text(device->name, sizeof device->name, gauges->name, sizeof gauges->name);
    for (int k = 0; k < CHOIR__MEMORY_KINDS; k++)
        device->of_kind[k] = pool->of_kind[k];
}

static void read_machines(const choir__board *board, choir__seen *seen)
{
    const choir__machines_page *page =
        choir__board_record(board, CHOIR__BOARD_MACHINES, 0, sizeof *page);
    int count =
        page && page->count > 0 && page->count <= CHOIR__FLIGHT_MACHINES ? page->count : 0;
    seen->machines = choir__calloc((size_t)count + 1, sizeof *seen->machines);
    for (; seen->machine_count < count; seen->machine_count++)
        choir__board_text(seen->machines[seen->machine_count], sizeof *seen->machines,
            page->names[seen->machine_count], sizeof page->names[0]);
}

static int count_records(const choir__board *board, choir__board_kind kind, size_t bytes)
{
    int n = 0;
    while (choir__board_record(board, kind, n, bytes))
        n++;
    return n;
}

choir__seen *choir__flight_parse(const choir__board *board, int pid, double at)
{
    choir__seen *seen = choir__calloc(1, sizeof *seen);
    seen->who = choir__board_who_is(board);
    seen->pid = pid;
    seen->at = at;
    int devices = count_records(board, CHOIR__BOARD_DEVICE, sizeof(choir__gauges));
    int groups = count_records(board, CHOIR__BOARD_GROUP, sizeof(choir__flight_page));
    seen->devices = choir__calloc((size_t)devices + 1, sizeof *seen->devices);
    seen->groups = choir__calloc((size_t)groups + 1, sizeof *seen->groups);
    for (; seen->device_count < devices; seen->device_count++)
        read_device(choir__board_record(
                        board, CHOIR__BOARD_DEVICE, seen->device_count, sizeof(choir__gauges)),
            seen->at, &seen->devices[seen->device_count]);
    for (; seen->group_count < groups; seen->group_count++)
        read_group(board,
            choir__board_record(
                board, CHOIR__BOARD_GROUP, seen->group_count, sizeof(choir__flight_page)),
            seen->at, &seen->groups[seen->group_count]);
    read_machines(board, seen);
    return seen;
}

choir__seen *choir__flight_read(int pid)
{
    choir__board *board = choir__board_read(pid);
    if (!board)
        return NULL;
    choir__seen *seen = choir__flight_parse(board, pid, choir__now());
    choir__board_free(board);
    seen->state = choir__process_state(pid);
    choir__process_command(pid, seen->command, sizeof seen->command);
    return seen;
}

uint64_t choir__seen_progress(int pid, bool *waits)
{
    choir__board *board = choir__board_read(pid);
    choir__seen *seen = board ? choir__flight_parse(board, pid, choir__now()) : NULL;
    uint64_t sum = seen ? seen->who.beats : 0;
    *waits = false;
    for (int i = 0; seen && i < seen->device_count; i++)
        sum += seen->devices[i].finished;
    for (int i = 0; seen && i < seen->group_count; i++) {
        const choir__seen_group *g = &seen->groups[i];
        sum += g->begun + g->ended;
        *waits |= g->begun > g->ended;
    }
    choir__seen_free(seen);
    choir__board_free(board);
    return sum;
}

void choir__seen_free(choir__seen *seen)
{
    if (!seen)
        return;
    free(seen->devices);
    free(seen->groups);
    free(seen->machines);
    free(seen);
}

const choir__seen_call *choir__seen_current(const choir__seen_group *group)
{
    for (int i = 0; i < group->count; i++) /* the first running call of a batch */
        if (!group->calls[i].ended)
            return &group->calls[i];
    return group->count ? &group->calls[group->count - 1] : NULL;
}

double choir__seen_waited(const choir__seen *seen)
{
    double waited_s = 0;
    for (int i = 0; i < seen->group_count; i++)
        waited_s += seen->groups[i].aside ? 0 : seen->groups[i].waited_s;
    return waited_s;
}

double choir__seen_busy(const choir__seen *seen, const choir__seen *earlier, int i)
{
    const choir__seen_device *d = &seen->devices[i];
    double since = seen->who.started, before = 0;
    for (int k = 0; earlier && k < earlier->device_count; k++)
        if (!strcmp(earlier->devices[k].name, d->name)) {
            since = earlier->at;
            before = earlier->devices[k].busy_s;
        }
    double share = (d->busy_s - before) / (seen->at - since);
    return share > 1 ? 1 : share > 0 ? share : 0; /* NaN: 0 */
}
