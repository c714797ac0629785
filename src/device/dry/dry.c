/* Dry devices: the program of CPU devices, without the work.
 *
 * A dry device has the pool of all devices over addresses without memory, a queue that runs
 * tasks as they are issued, and a table of kernels that only count. What else depends on the
 * kind of device is as on CPU devices. */
#include "device/dry/dry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/backend.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#include "device/cpu/room.h"
#include "device/dry/ledger.h"
#include "device/queue_run.h"
#include "device/work.h"

enum { MOST = 1 << 20 };

typedef struct dry {
    choir_dry_counts counts; /* without the bytes, which the pool has */
    choir__cpu_room room;    /* what kernels of CPU devices would keep */
    bool stands_in;
    double value;
    choir_device *notes; /* the device itself, if it notes its memory; else NULL */
    choir__dry_moment *moments;
    int64_t moment_count;
} dry;

static const char *const kind_names[CHOIR__DRY_KINDS] = {
    "parameters", "gradients", "optimizer", "activations", "workspace", "messages"};

/* --- addresses --- */

static _Atomic uint64_t given = UINT64_C(1) << 60;

void *choir__dry_addresses(size_t bytes)
{
    const uint64_t page = 4096;
    return (void *)(uintptr_t)atomic_fetch_add(&given, (bytes + page - 1) / page * page);
}

static void *get(void *arg, size_t bytes)
{
    (void)arg;
    return choir__dry_addresses(bytes);
}

static void put(void *arg, void *p, size_t bytes)
{
    (void)arg, (void)p, (void)bytes;
}

const choir__memory_ops choir__dry_memory = {.get = get, .put = put};

/* --- kernels --- */

/* The device whose queue this thread runs. */
static _Thread_local dry *running;

static void enter(void *arg)
{
    running = arg;
}

static void note(dry *d)
{
    choir_device_stats now;
    choir_device_get_stats(d->notes, &now);
    CHOIR__GROW(d->moments, d->moment_count);
    const size_t *use = choir__dry_ledger_uses(choir__pool_ledger(d->notes));
    d->moments[d->moment_count++] =
        (choir__dry_moment){{now.bytes_weights, now.bytes_gradients, now.bytes_optimizer,
            use[CHOIR__FOR_ACTIVATIONS], use[CHOIR__FOR_WORK], use[CHOIR__FOR_MESSAGES]}};
}

static void count(choir__kernel_id id, const void *args)
{
    if (running->notes && choir__recording_active())
        note(running);
    choir__kernel_work work = choir__kernel_work_by(id, args);
    running->counts.launches++;
    running->counts.flops += work.flops;
    running->counts.traffic += work.bytes;
    if (choir__cpu_own_products())
        choir__cpu_room_for(id, args, &running->room);
}

#define X(name)                                                                                \
    static void name##_counted(const choir__k_##name *args)                                    \
    {                                                                                          \
        count(CHOIR__KERNEL_##name, args);                                                     \
    }
CHOIR__KERNEL_LIST(X)
#undef X

static const choir__kernels kernels = {
#define X(name) .name = name##_counted,
    CHOIR__KERNEL_LIST(X)
#undef X
};

/* --- the backend --- */

static int count_devices(char *why, size_t bytes)
{
    (void)why, (void)bytes;
    return MOST;
}

static choir_status open_dry(choir_device *device)
{
    dry *own = choir__calloc(1, sizeof *own);
    device->backend = own;
    device->kernels = device->reference = &kernels;
    device->chunks = true;
    device->pool = choir__pool_new(
        &choir__dry_memory, NULL, device->gauges ? &device->gauges->pool : NULL);
    choir__pool_keep_ledger(device->pool);
    device->queue = choir__queue_new(
        (choir__queue_opts){.name = device->name, .enter = enter, .arg = own, .blames = true});
    choir__queue_run_as_issued(device->queue);
    return CHOIR_OK;
}

static choir_status set_threads(choir_device *device, int threads)
{
    return threads > 0
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "expected 1 or more threads for %s, got %d",
                     device->name, threads);
}

static bool multiplies(choir_dtype dtype)
{
    return choir__cpu_backend.multiplies(dtype);
}

static bool reads_blocks(choir_dtype dtype)
{
    return choir__cpu_backend.reads_blocks(dtype);
}

static void signature(const choir_device *device, char *text, size_t bytes)
{
    (void)device;
    snprintf(text, bytes, "nothing: dry devices compute no values");
}

/* --- its memory, for functions that take memory of any kind --- */

static bool owns(const void *p)
{
    return choir__is_dry(p);
}

/* Bytes have no dtype, and so no stand-in. */
static choir_status get_bytes(void *host, const void *far, size_t bytes)
{
    (void)far;
    memset(host, 0, bytes);
    return CHOIR_OK;
}

static choir_status put_bytes(void *far, const void *host, size_t bytes)
{
    (void)far, (void)host, (void)bytes;
    return CHOIR_OK;
}

static const choir__far memory = {
    .owns = owns, .get = get_bytes, .put = put_bytes, .move = put_bytes};

const choir__backend choir__dry_backend = {
    .kind = "dry",
    .count = count_devices,
    .open = open_dry,
    .set_threads = set_threads,
    .multiplies = multiplies,
    .reads_blocks = reads_blocks,
    .signature = signature,
    .far = &memory,
    .dry = true,
};

/* --- the interface --- */

bool choir_device_is_dry(const choir_device *device)
{
    return !choir__lacks(device, __func__, "device") && device->kernels == &kernels;
}

/* Returns the inside of a dry device; NULL, with a message, if it is of another kind. */
static dry *inside(const choir_device *device, const char *function)
{
    if (choir__lacks(device, function, "device"))
        return NULL;
    if (device->kernels == &kernels)
        return device->backend;
    choir__error(
        CHOIR_ERR_ARGUMENT, "%s: expected a dry device, got %s", function, device->name);
    return NULL;
}

/* Adds the uses of the memory of no other kind. */
static void count_uses(choir_device *device, choir_dry_counts *counts)
{
    int rows;
    const choir__dry_ledger_row *row =
        choir__dry_ledger_peak(choir__pool_ledger(device), &rows);
    for (int i = 0; i < rows; i++) {
        counts->peak_workspace += row[i].of_use[CHOIR__FOR_WORK];
        counts->peak_activations += row[i].of_use[CHOIR__FOR_ACTIVATIONS];
        counts->peak_messages += row[i].of_use[CHOIR__FOR_MESSAGES];
    }
}

choir_status choir_dry_count(choir_device *device, choir_dry_counts *counts)
{
    const dry *own = inside(device, __func__);
    size_t of[CHOIR__MEMORY_KINDS];
    if (!own)
        return CHOIR_ERR_ARGUMENT;
    if (!counts)
        return choir__missing(__func__, "counts");
    choir__pool_peak(device, of);
    *counts = own->counts;
    counts->peak_weights = of[CHOIR__MEMORY_WEIGHTS];
    counts->peak_gradients = of[CHOIR__MEMORY_GRADIENTS];
    counts->peak_optimizer = of[CHOIR__MEMORY_OPTIMIZER];
    counts->peak_other = of[CHOIR__MEMORY_OTHER];
    for (int k = 0; k < CHOIR__MEMORY_KINDS; k++)
        counts->bytes_peak += of[k];
    count_uses(device, counts);
    const choir__pool_taken taken = choir__pool_most_taken(device);
    counts->bytes_reserved = taken.reserved;
    counts->bytes_resident = taken.used + own->room.workspace + own->room.packed;
    return CHOIR_OK;
}

choir_status choir_dry_parts(choir_device *device, choir_dry_part_fn *each, void *arg)
{
    int rows;
    if (!inside(device, __func__))
        return CHOIR_ERR_ARGUMENT;
    if (!each)
        return choir__missing(__func__, "function");
    const choir__dry_ledger_row *row =
        choir__dry_ledger_peak(choir__pool_ledger(device), &rows);
    for (int i = 0; i < rows; i++) {
        const size_t bytes[CHOIR__DRY_KINDS] = {row[i].of_kind[CHOIR__MEMORY_WEIGHTS],
            row[i].of_kind[CHOIR__MEMORY_GRADIENTS], row[i].of_kind[CHOIR__MEMORY_OPTIMIZER],
            row[i].of_use[CHOIR__FOR_ACTIVATIONS], row[i].of_use[CHOIR__FOR_WORK],
            row[i].of_use[CHOIR__FOR_MESSAGES]};
        for (int k = 0; k < CHOIR__DRY_KINDS; k++)
            if (bytes[k])
                each(&(choir_dry_part){row[i].name, kind_names[k], bytes[k]}, arg);
    }
    return CHOIR_OK;
}

choir_status choir_dry_restart(choir_device *device)
{
    dry *own = inside(device, __func__);
    if (!own)
        return CHOIR_ERR_ARGUMENT;
    own->counts = (choir_dry_counts){0};
    own->room = (choir__cpu_room){0};
    free(own->moments);
    own->moments = NULL;
    own->moment_count = 0;
    own->notes = NULL;
    snprintf(device->name, sizeof device->name, "%s:%d", device->kind, device->index);
    choir__pool_trim(device); /* an earlier program has cached blocks */
    choir_device_reset_peak(device);
    return CHOIR_OK;
}

void choir__dry_stands_for(choir_device *device, const char *name)
{
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, name);
}

void choir__dry_note(choir_device *device)
{
    ((dry *)device->backend)->notes = device;
}

const choir__dry_moment *choir__dry_moments(const choir_device *device, int64_t *count)
{
    const dry *own = device->backend;
    *count = own->moment_count;
    return own->moments;
}

choir_status choir_dry_stand_in(choir_device *device, double value)
{
    dry *own = inside(device, __func__);
    if (!own)
        return CHOIR_ERR_ARGUMENT;
    own->stands_in = true;
    own->value = value;
    return CHOIR_OK;
}

choir_status choir__dry_read(
    const choir_device *device, choir_dtype dtype, void *data, int64_t count, const char *what)
{
    const dry *own = device->backend;
    if (!own->stands_in)
        return choir__error(CHOIR_ERR_STATE,
            "%s: %s computes no values; choir_dry_stand_in names one that reads give instead",
            what, device->name);
    choir__k_fill fill = {.y = data, .n = count, .value = own->value, .dtype = dtype};
    choir__cpu_reference.fill(&fill);
    return CHOIR_OK;
}
