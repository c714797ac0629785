/* The registry of kinds of devices, and of the open devices of each kind.
 *
 * A kind's backend is built in or is a plug-in, which is loaded when a device of the kind is
 * first needed. The backend counts its devices and opens one by index. Devices are opened when
 * first needed and live as long as the process. */
#include "device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board/board.h"
#include "device/backend.h"
#include "device/plugin.h"

/* Kinds that are plug-ins are loaded when first needed. */
static struct kind {
    const char *name;
    const choir__backend *_Atomic backend; /* NULL: not loaded, or not available */
    bool tried, looked;
    int there;     /* number of devices that the child process found */
    char why[512]; /* why it is not available or has no devices */
} kinds[] = {{.name = "cpu", .backend = &choir__cpu_backend}, {.name = "cuda"},
    {.name = "dry", .backend = &choir__dry_backend}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static choir_device *opened;

static struct kind *kind_named(const char *name, size_t length)
{
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
        if (strlen(kinds[i].name) == length && !strncmp(kinds[i].name, name, length))
            return &kinds[i];
    return NULL;
}

/* Loading CUDA's libraries takes a second. Without the driver's device files they are useless,
 * so they are not loaded unless the environment names the plug-in's folder. */
static bool worth_loading(struct kind *k)
{
    if (getenv("CHOIR_PLUGIN_PATH") || access("/dev/nvidiactl", F_OK) == 0 ||
        access("/dev/dxg", F_OK) == 0)
        return true;
    snprintf(k->why, sizeof k->why,
        "CUDA finds no GPU, as the NVIDIA driver is missing: nvidia-smi shows whether one "
        "is installed");
    return false;
}

static const choir__backend *load(struct kind *k)
{
    pthread_mutex_lock(&loading);
    if (!k->backend && !k->tried) {
        k->tried = true;
        const choir__backend *backend = NULL;
        if (worth_loading(k) && choir__plugin_backend(k->name, &backend) != CHOIR_OK)
            snprintf(k->why, sizeof k->why, "%s", choir__message());
        k->backend = backend;
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
    d->far = backend->dry ? NULL : backend->far;
    snprintf(d->name, sizeof d->name, "%s:%d", backend->kind, index);
    if (!backend->dry) /* what other processes show is there */
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

/* Splits a device's name into kind and index; `there` counts the devices of a kind. Returns
 * NULL, with a message, if no device has that name. */
static struct kind *parse(const char *name, int (*there)(struct kind *), int *index)
{
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    struct kind *k = kind_named(name, length);
    if (!k) {
        choir__error(CHOIR_ERR_DEVICE,
            "no devices of kind '%.*s' here: 'choir info' lists them", (int)length, name);
        return NULL;
    }
    int n = there(k);
    char *end = "";
    long i = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!n)
        choir__error(CHOIR_ERR_DEVICE, "no device '%s': %s", name, k->why);
    else if (*end || (colon && end == colon + 1) || i < 0 || i >= n)
        choir__error(CHOIR_ERR_DEVICE, "no device '%s': expected %s:0 to %s:%d", name, k->name,
            k->name, n - 1);
    else
        return *index = (int)i, k;
    return NULL;
}

/* 1 + the number of messages that this thread had read when choir_device_find last found
 * nothing; 0: it found a device. */
static _Thread_local uint64_t missed;

bool choir__device_missed(void)
{
    bool unknown =
        missed == choir__message_reads() + 1 && strstr(choir__message(), "no device") != NULL;
    missed = 0;
    return unknown;
}

choir_device *choir_device_find(const char *name)
{
    if (choir__lacks(name, __func__, "name"))
        return NULL;
    int index;
    struct kind *k = parse(name, count, &index);
    missed = k ? 0 : choir__message_reads() + 1;
    const choir__backend *backend = k ? k->backend : NULL;
    if (!k || (backend->check && backend->check() != CHOIR_OK))
        return NULL;
    pthread_mutex_lock(&lock);
    choir_device *device = open_device(backend, index);
    pthread_mutex_unlock(&lock);
    return device;
}

choir_device *choir__device_always(void)
{
    pthread_mutex_lock(&lock);
    choir_device *device = open_device(&choir__cpu_backend, 0);
    pthread_mutex_unlock(&lock);
    return device;
}

/* --- counting devices without opening the driver --- */

/* A child process counts, since a process that has counted GPUs cannot have children that use
 * them: choir_spawn(choir_device_count("cuda"), ...) must work. */

/* In the child: sends the number of devices and the reason. */
static void tell(struct kind *k, int fd)
{
    int there = count(k);
    if (write(fd, &there, sizeof there) < 0 || write(fd, k->why, sizeof k->why) < 0)
        _exit(1);
    _exit(0);
}

static bool read_all(int fd, void *to, size_t bytes)
{
    for (size_t had = 0; had < bytes;) {
        ssize_t n = read(fd, (char *)to + had, bytes - had);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        had += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int ask_child(struct kind *k)
{
    int ends[2], there = 0;
    snprintf(k->why, sizeof k->why, "the process that looked for them died");
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(k->why, sizeof k->why, "no pipe to look for them: %s", choir__why(errno));
        return 0;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        snprintf(k->why, sizeof k->why, "no process to look for them: %s", choir__why(errno));
    if (child == 0)
        tell(k, ends[1]);
    close(ends[1]);
    if (child > 0) {
        if (!read_all(ends[0], &there, sizeof there) ||
            !read_all(ends[0], k->why, sizeof k->why))
            there = 0;
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return there;
}

static int look(struct kind *k)
{
    if (k->backend || k->tried || !worth_loading(k))
        return k->backend ? count(k) : 0;
    pthread_mutex_lock(&looking); /* a lock that the child does not need */
    if (!k->looked) {
        k->there = ask_child(k);
        k->looked = true;
    }
    pthread_mutex_unlock(&looking);
    return k->there;
}

int choir_device_count(const char *name)
{
    if (choir__lacks(name, __func__, "name"))
        return 0;
    struct kind *k = kind_named(name, strlen(name));
    return k ? look(k) : 0;
}

int choir__device_look(const char *kind, char *why, size_t bytes)
{
    struct kind *k = kind_named(kind, strlen(kind));
    int there = k ? look(k) : 0;
    if (why && k)
        snprintf(why, bytes, "%s", there ? "" : k->why);
    return there;
}

bool choir__device_is_there(const char *name)
{
    int index;
    return parse(name, look, &index) != NULL;
}

const char *choir__device_kind(const char *wanted)
{
    if (!strcmp(wanted, "auto"))
        return choir__device_look("cuda", NULL, 0) > 0 ? "cuda" : "cpu";
    return wanted;
}

choir_device *choir__device_assigned(int local_rank)
{
    const char *wanted = getenv("CHOIR_DEVICE");
    const char *kind = choir__device_kind(wanted && *wanted ? wanted : "cpu");
    char name[64];
    /* NULL: "cuda:1", the name of one device */
    struct kind *k = kind_named(kind, strlen(kind));
    int there = k ? count(k) : 0;
    if (!there) /* choir_device_find sets the message about a missing device */
        return choir_device_find(kind);
    snprintf(name, sizeof name, "%s:%d", kind, local_rank % there);
    return choir_device_find(name);
}

choir_device *choir__device_default(void)
{
    return choir__device_assigned(0);
}

const char *choir__device_bits(const choir_device *device)
{
    return device->far ? "cuda" : choir_cpu_bits();
}

const char *choir_device_name(const choir_device *device)
{
    return choir__lacks(device, __func__, "device") ? NULL : device->name;
}

choir_status choir_device_sync(choir_device *device)
{
    if (!device)
        return choir__missing(__func__, "device");
    return choir__queue_wait(device->queue);
}

choir_status choir_device_set_threads(choir_device *device, int threads)
{
    if (!device)
        return choir__missing(__func__, "device");
    const choir__backend *backend = backend_of(device);
    return backend ? backend->set_threads(device, threads)
                   : choir__error(CHOIR_ERR_ARGUMENT, "the threads of %s are set in its rank",
                         device->name);
}

bool choir_device_multiplies(const choir_device *device, choir_dtype dtype)
{
    if (choir__lacks(device, __func__, "device"))
        return false;
    const choir__backend *backend = backend_of(device);
    return dtype == CHOIR_F32 || (backend && backend->multiplies(dtype));
}

bool choir__device_reads_blocks(const choir_device *device, choir_dtype dtype)
{
    const choir__backend *backend = backend_of(device);
    return backend && backend->reads_blocks && backend->reads_blocks(dtype);
}

void choir__device_divide(choir_device *device, const choir__device_work *work)
{
    const choir__backend *backend = backend_of(device);
    if (backend && backend->divide)
        backend->divide(device, work);
    else
        work->part(work->arg, 0, work->count);
}

void choir__device_place(choir_device *device, int index)
{
    if (backend_of(device)->place)
        backend_of(device)->place(device, index);
}

void choir_device_bind_thread(choir_device *device)
{
    if (choir__lacks(device, __func__, "device"))
        return;
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

choir__gpu_stream *choir__device_stream(choir_device *device)
{
    const choir__backend *b = backend_of(device);
    return b && b->stream ? b->stream(device) : NULL;
}

bool choir__device_describe(const char *name, int index, choir__device_facts *facts)
{
    struct kind *k = kind_named(name, strlen(name));
    *facts = (choir__device_facts){0};
    return k && count(k) && k->backend->describe && k->backend->describe(index, facts);
}

void choir__device_libraries(
    const choir_device *device, choir__library_use use[CHOIR__LIBRARIES])
{
    const choir__backend *b = backend_of(device);
    memset(use, 0, CHOIR__LIBRARIES * sizeof *use);
    if (b && b->libraries)
        b->libraries(device, use);
}

bool choir__device_forbids_fork(void)
{
    bool forbids = false;
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++) {
        const choir__backend *b = kinds[i].backend;
        forbids |= b && b->far && !b->dry;
    }
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
