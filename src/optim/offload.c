/* Optimizer state in a file, which is in the process's memory only during the update.
 *
 * The file has no name once it is open, so it disappears with the process. It is allocated
 * whole, so that a full disk is an error and not a SIGBUS in the middle of a step. It is
 * mapped: state tensors reside in it as they would in memory. After the update of a run of
 * parameters, a task in the device's queue makes the kernel start writing their pages to the
 * disk, and unmaps the pages from the process:
 *
 *     device   | update 32 MiB of state | release | update the next | release | ...
 *
 * The next step reads them back, from the page cache if they are still in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"
#include "optim/optim.h"

enum { PAGE = 4096, TOGETHER = 32 << 20 /* bytes of state that are updated together */ };

struct choir__offload {
    int fd;
    char *folder, *at; /* at: NULL until there is state */
    size_t bytes, used;
};

/* --- the file --- */

static int open_unnamed(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char *path = choir__format("%s/choir-state.XXXXXX", folder); /* NFS has no O_TMPFILE */
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

choir_status choir_optim_offload(choir_optim *o, const char *folder)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!folder)
        return choir__missing(__func__, "folder");
    if (o->offload || o->steps)
        return choir__error(CHOIR_ERR_STATE,
            "the optimizer's state has a place already: offload it once, before the first step");
    for (int i = 0; i < o->count; i++)
        if (o->states[i].m || o->states[i].v)
            return choir__error(CHOIR_ERR_STATE,
                "the optimizer has state of '%s' already: offload it before it is restored",
                o->states[i].param->name);
    int fd = open_unnamed(folder);
    if (fd < 0)
        return choir__error(CHOIR_ERR_IO, "optimizer state cannot go to a file in '%s': %s",
            folder, strerror(errno));
    o->offload = choir__calloc(1, sizeof *o->offload);
    *o->offload = (struct choir__offload){.fd = fd, .folder = choir__strdup(folder)};
    return CHOIR_OK;
}

static size_t room(const choir_tensor *t)
{
    return ((size_t)t->count * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static choir_status map_file(choir_optim *o, int each)
{
    struct choir__offload *f = o->offload;
    for (int i = 0; i < o->count; i++)
        f->bytes += (size_t)each * room(o->states[i].param->local);
    int why = f->bytes ? posix_fallocate(f->fd, 0, (off_t)f->bytes) : 0;
    if (why)
        return choir__error(CHOIR_ERR_IO,
            "no %zu bytes for the optimizer's state in '%s': %s%s", f->bytes, f->folder,
            strerror(why), why == ENOSPC ? "; choose a folder on another disk" : "");
    f->at = mmap(NULL, f->bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (f->at != MAP_FAILED)
        return CHOIR_OK;
    f->at = NULL;
    return choir__error(CHOIR_ERR_MEMORY, "mapping %zu bytes of a file in '%s': %s", f->bytes,
        f->folder, strerror(errno));
}

choir_tensor *choir__offload_tensor(choir_optim *o, const choir_tensor *param, int each)
{
    struct choir__offload *f = o->offload;
    choir_device *device = choir__device_of(param);
    choir_status status = CHOIR_OK;
    if (strncmp(choir_device_name(device), "cpu", 3))
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "optimizer state in a file: %s cannot compute with host memory",
            choir_device_name(device));
    if (status == CHOIR_OK && !f->at)
        status = map_file(o, each);
    if (status != CHOIR_OK) {
        choir__scope_fail(o->run, status);
        return choir__tensor_like(o->run, param);
    }
    choir_tensor *t = choir__tensor_bare(o->run, CHOIR_F32, param->shape);
    memcpy(t->stride, param->stride, sizeof t->stride);
    t->storage = choir__storage_wrap(device, f->at + f->used, (size_t)t->count * sizeof(float));
    f->used += room(param);
    return t; /* the file is new: zeros */
}

void choir__offload_free(choir_optim *o)
{
    struct choir__offload *f = o->offload;
    if (!f)
        return;
    if (f->at)
        munmap(f->at, f->bytes + PAGE);
    close(f->fd);
    free(f->folder);
    free(f);
    o->offload = NULL;
}

/* --- letting go --- */

typedef struct letting {
    const struct choir__offload *file;
    float *state[3];
    size_t bytes;
} letting;

static void let_go(const void *args)
{
    const letting *l = args;
    for (int i = 0; i < 3; i++) {
        size_t at = (size_t)((char *)l->state[i] - l->file->at);
        /* no such state, or it has moved with its parameter */
        if (!l->state[i] || at >= l->file->bytes)
            continue;
        sync_file_range(
            l->file->fd, (off_t)at, (off_t)l->bytes, SYNC_FILE_RANGE_WRITE); /* begins */
        madvise(l->state[i], l->bytes, MADV_DONTNEED); /* the file has the values */
    }
}

int choir__offload_run(const choir__optim_part *part, int first)
{
    size_t bytes = 0;
    int count = 0;
    while (first + count < part->entry_count && (!count || bytes < TOGETHER)) {
        const choir__opt_entry *e = &part->table[first + count++];
        bytes += (size_t)e->n * sizeof(float) * (size_t)(!!e->m + !!e->v + !!e->top);
    }
    return count;
}

void choir__offload_let_go(
    const choir_optim *o, const choir__optim_part *part, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        const choir__opt_entry *e = &part->table[i];
        letting l = {o->offload, {e->m, e->v, e->top}, (size_t)e->n * sizeof(float)};
        if (e->n)
            choir__queue_issue(part->device->queue, let_go, &l, sizeof l);
    }
}
