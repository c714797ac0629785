/* The registry of kinds of devices, and of the devices found in them.
 *
 * A kind's backend is built in or a plug-in, loaded when a device of it is asked for. It counts
 * its devices and opens one by index; devices are opened when first asked for and live as long
 * as the process. */
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/board.h"
#include "device/backend.h"
#include "device/plugin.h"

/* Kinds that are plug-ins are loaded when first asked for. */
static struct kind {
    const char *name;
    const choir__backend *backend; /* NULL: not loaded, or not to be had */
    bool tried;
    char why[512]; /* it is not to be had, or has no devices */
} kinds[] = {{.name = "cpu", .backend = &choir__cpu_backend}, {.name = "cuda"}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static choir_device *opened;

static struct kind *kind_named(const char *name, size_t length)
{
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
        if (strlen(kinds[i].name) == length && !strncmp(kinds[i].name, name, length))
            return &kinds[i];
    return NULL;
}

static const choir__backend *load(struct kind *k)
{
    pthread_mutex_lock(&loading);
    if (!k->backend && !k->tried) {
        k->tried = true;
        if (choir__plugin_backend(k->name, &k->backend) != CHOIR_OK)
            snprintf(k->why, sizeof k->why, "%s", choir_error_message());
    }
    pthread_mutex_unlock(&loading);
    return k->backend;
}

static const choir__backend *backend_of(const choir_device *device)
{
    struct kind *k = kind_named(device->kind, strlen(device->kind));
    return k ? k->backend : NULL;
}

static int count(struct kind *k)
{
    return load(k) ? k->backend->count(k->why, sizeof k->why) : 0;
}

int choir_device_count(const char *name)
{
    struct kind *k = kind_named(name, strlen(name));
    return k ? count(k) : 0;
}

/* Under lock. */
static choir_device *open_device(const choir__backend *backend, int index)
{
    for (choir_device *d = opened; d; d = d->next)
        if (d->kind == backend->kind && d->index == index)
            return d;
    choir_device *d = choir__calloc(1, sizeof *d);
    d->kind = backend->kind;
    d->index = index;
    d->born = choir__now();
    d->far = backend->far;
    snprintf(d->name, sizeof d->name, "%s:%d", backend->kind, index);
    d->gauges = choir__board_take(CHOIR__BOARD_DEVICE, sizeof *d->gauges);
    if (backend->open(d) != CHOIR_OK) {
        choir__board_give_back(d->gauges);
        free(d);
        return NULL;
    }
    if (d->gauges)
        memcpy(d->gauges->name, d->name, sizeof d->name);
    choir__board_show(d->gauges);
    d->next = opened;
    return opened = d;
}

/* There are none of this kind. */
static choir_device *none(const struct kind *k, const char *name)
{
    choir__error(CHOIR_ERR_DEVICE, "no device '%s': %s", name, k->why);
    return NULL;
}

choir_device *choir_device_find(const char *name)
{
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    struct kind *k = kind_named(name, length);
    if (!k) {
        choir__error(CHOIR_ERR_DEVICE,
            "no devices of kind '%.*s' here: 'choir info' lists them", (int)length, name);
        return NULL;
    }
    int there = count(k);
    if (!there)
        return none(k, name);
    char *end = "";
    long index = colon ? strtol(colon + 1, &end, 10) : 0;
    if (*end || (colon && end == colon + 1) || index < 0 || index >= there) {
        choir__error(CHOIR_ERR_DEVICE, "no device '%s': there are %d, %s:0 to %s:%d", name,
            there, k->name, k->name, there - 1);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    choir_device *device = open_device(k->backend, (int)index);
    pthread_mutex_unlock(&lock);
    return device;
}

choir_device *choir__device_default(void)
{
    return choir_device_find("cpu:0");
}

const char *choir_device_name(const choir_device *device)
{
    return device->name;
}

choir_status choir_device_sync(choir_device *device)
{
    return choir__queue_wait(device->queue);
}

choir_status choir_device_set_threads(choir_device *device, int threads)
{
    const choir__backend *backend = backend_of(device);
    return backend ? backend->set_threads(device, threads)
                   : choir__error(CHOIR_ERR_ARGUMENT, "the threads of %s are set in its rank",
                         device->name);
}

bool choir_device_multiplies(const choir_device *device, choir_dtype dtype)
{
    const choir__backend *backend = backend_of(device);
    return dtype == CHOIR_F32 || (backend && backend->multiplies(dtype));
}

void choir__device_place(choir_device *device, int index)
{
    if (backend_of(device)->place)
        backend_of(device)->place(device, index);
}

void choir__device_bind_thread(choir_device *device)
{
    if (backend_of(device)->bind_thread)
        backend_of(device)->bind_thread(device);
}

void choir__device_signature(const choir_device *device, char text[CHOIR__SIGNATURE])
{
    backend_of(device)->signature(device, text, CHOIR__SIGNATURE);
}

void choir__device_memory_note(const choir_device *device, char *text, size_t bytes)
{
    const choir__backend *b = backend_of(device);
    *text = '\0';
    if (b && b->memory_note)
        b->memory_note(device, text, bytes);
}

choir__stream *choir__device_stream(choir_device *device)
{
    const choir__backend *b = backend_of(device);
    return b && b->stream ? b->stream(device) : NULL;
}

void choir__device_describe(const char *name, int index, char *json, size_t bytes)
{
    struct kind *k = kind_named(name, strlen(name));
    *json = '\0';
    if (k && k->backend && k->backend->describe)
        k->backend->describe(index, json, bytes);
}

const char *choir__device_why_none(const char *name)
{
    struct kind *k = kind_named(name, strlen(name));
    return k && !count(k) ? k->why : "";
}

bool choir__device_forbids_fork(void)
{
    bool forbids = false;
    pthread_mutex_lock(&lock);
    for (const choir_device *d = opened; d; d = d->next)
        forbids |= d->far != NULL;
    pthread_mutex_unlock(&lock);
    return forbids;
}

/* --- far memory --- */

const choir__far *choir__far_of(const void *p)
{
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++) {
        const choir__backend *b = kinds[i].backend;
        if (b && b->far && b->far->owns(p))
            return b->far;
    }
    return NULL;
}
