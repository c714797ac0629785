/* The registry of backends, and of the devices found in them.
 *
 * A backend counts its devices and opens one by index; devices are opened when first asked for
 * and live as long as the process. */
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/board.h"
#include "device/backend.h"

static const choir__backend *const backends[] = {
    &choir__cpu_backend,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static choir_device *opened;

static const choir__backend *backend_named(const char *kind, size_t length)
{
    for (size_t i = 0; i < CHOIR_COUNT(backends); i++)
        if (strlen(backends[i]->kind) == length && !strncmp(backends[i]->kind, kind, length))
            return backends[i];
    return NULL;
}

static const choir__backend *backend_of(const choir_device *device)
{
    return backend_named(device->kind, strlen(device->kind));
}

int choir_device_count(const char *kind)
{
    const choir__backend *backend = backend_named(kind, strlen(kind));
    return backend ? backend->count() : 0;
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

choir_device *choir_device_find(const char *name)
{
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    const choir__backend *backend = backend_named(name, length);
    if (!backend) {
        choir__error(CHOIR_ERR_DEVICE,
            "no devices of kind '%.*s' here: 'choir info' lists them", (int)length, name);
        return NULL;
    }
    char *end = "";
    long index = colon ? strtol(colon + 1, &end, 10) : 0;
    if (*end || (colon && end == colon + 1) || index < 0 || index >= backend->count()) {
        choir__error(CHOIR_ERR_DEVICE, "no device '%s': there are %d, %s:0 to %s:%d", name,
            backend->count(), backend->kind, backend->kind, backend->count() - 1);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    choir_device *device = open_device(backend, (int)index);
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
    backend_of(device)->place(device, index);
}

void choir__device_bind_thread(choir_device *device)
{
    backend_of(device)->bind_thread(device);
}

void choir__device_signature(const choir_device *device, char text[CHOIR__SIGNATURE])
{
    backend_of(device)->signature(device, text, CHOIR__SIGNATURE);
}
