/* Memory outside a pool: pieces of a file without a name, mapped and allocated whole; of a
 * memfd, whose pages are there before they are used; of pinned host memory for a GPU; or mere
 * addresses for a dry device. A place lives as long as its owners and its pieces. */
#include "device/offload_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files/mapping.h"
#include "device/dry/dry.h"
#include "device/far.h"

enum { PAGE = CHOIR__OUTSIDE_PAGE };

typedef struct piece piece;
struct piece {
    char *at;
    size_t bytes;
    off_t begins;          /* in the file */
    const choir__far *far; /* has pinned the memory; NULL: it is mapped */
    piece *next;
};

struct choir__offload_store {
    _Atomic int refs; /* the owners' and the pieces' */
    int fd;           /* -1: host memory */
    char *folder;
    off_t end; /* end of the file */
    piece *pieces;
};

/* --- places --- */

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

choir_status choir__offload_store_new(
    const char *folder, const char *what, choir__offload_store **place)
{
    int fd = folder ? open_unnamed(folder) : -1;
    if (folder && fd < 0)
        return choir__error(CHOIR_ERR_IO, "%s cannot go to a file in '%s': %s", what, folder,
            choir__why(errno));
    *place = choir__calloc(1, sizeof **place);
    (*place)->fd = fd;
    (*place)->folder = folder ? choir__strdup(folder) : NULL;
    (*place)->refs = 1;
    return CHOIR_OK;
}

choir__offload_store *choir__offload_store_ref(choir__offload_store *place)
{
    atomic_fetch_add_explicit(&place->refs, 1, memory_order_relaxed);
    return place;
}

void choir__offload_store_unref(choir__offload_store *place)
{
    if (!place || atomic_fetch_sub(&place->refs, 1) > 1)
        return;
    if (place->fd >= 0)
        close(place->fd);
    free(place->folder);
    free(place);
}

bool choir__offload_store_is_file(const choir__offload_store *place)
{
    return place->fd >= 0;
}

/* --- pieces --- */

static choir_status map_file(choir__offload_store *place, piece *p, const char *what)
{
    int why;
    do
        why = posix_fallocate(place->fd, place->end, (off_t)p->bytes);
    while (why == EINTR);
    if (why)
        return choir__error(CHOIR_ERR_IO, "cannot store %zu bytes for %s in '%s': %s%s",
            p->bytes, what, place->folder, choir__why(why),
            why == ENOSPC ? "; choose a folder on another disk" : "");
    p->at = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place->fd, place->end);
    if (p->at == MAP_FAILED)
        return choir__error(CHOIR_ERR_MEMORY, "mapping %zu bytes of a file in '%s': %s",
            p->bytes, place->folder, choir__why(errno));
    p->begins = place->end;
    place->end += (off_t)p->bytes;
    return CHOIR_OK;
}

/* Pages of a memfd are there before they are used; a mapping alone only promises them. */
static choir_status map_memory(piece *p, const char *what)
{
    char why[200];
    int fd = choir__memfd_new(p->bytes, p->bytes, NULL, NULL, why);
    if (fd < 0)
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for %s: %s", what, why);
    p->at = choir__memfd_map(fd, p->bytes);
    int error = errno;
    close(fd);
    return p->at
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_MEMORY, "no host memory for %s: mapping %zu bytes: %s",
                     what, p->bytes, choir__why(error));
}

static choir_status take_addresses(piece *p)
{
    p->at = choir__dry_addresses(p->bytes);
    return CHOIR_OK;
}

static choir_status pin(piece *p, const choir_device *device, const char *what)
{
    p->far = device->far;
    p->at = device->far->pinned ? device->far->pinned(p->bytes) : NULL;
    if (!p->at)
        return choir__error(CHOIR_ERR_MEMORY, "out of host memory: cannot pin %zu bytes for %s",
            p->bytes, what);
    memset(p->at, 0, p->bytes);
    return CHOIR_OK;
}

choir_status choir__offload_store_get(choir__offload_store *place, const choir_device *device,
    size_t bytes, const char *what, void **at)
{
    if (place->fd >= 0 && device->far)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s in a file: %s cannot compute with host memory that is a file's", what,
            choir_device_name(device));
    piece *p = choir__calloc(1, sizeof *p);
    p->bytes = bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
    choir_status status = choir_device_is_dry(device) ? take_addresses(p)
                          : place->fd >= 0            ? map_file(place, p, what)
                          : device->far               ? pin(p, device, what)
                                                      : map_memory(p, what);
    if (status != CHOIR_OK) {
        free(p);
        return status;
    }
    choir__offload_store_ref(place);
    p->next = place->pieces;
    place->pieces = p;
    *at = p->at;
    return CHOIR_OK;
}

void choir__offload_store_put(choir__offload_store *place, void *at)
{
    if (!at)
        return;
    piece **link = &place->pieces, *p;
    while ((*link)->at != at)
        link = &(*link)->next;
    p = *link;
    *link = p->next;
    const bool dry = choir__is_dry(p->at);
    if (p->far)
        p->far->unpin(p->at);
    else if (!dry)
        munmap(p->at, p->bytes);
    if (place->fd >= 0 && !dry) /* the room goes back to the disk, where that can be done */
        (void)!fallocate(
            place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->begins, (off_t)p->bytes);
    free(p);
    choir__offload_store_unref(place);
}

/* --- letting go --- */

typedef struct letting {
    int fd, count;
    struct part {
        char *at;
        off_t begins;
        size_t bytes;
    } part[CHOIR__OUTSIDE_PARTS];
} letting;

static void let_go(const void *args)
{
    const letting *l = args;
    for (int i = 0; i < l->count; i++) {
        const struct part *p = &l->part[i];
        sync_file_range(
            l->fd, p->begins, (off_t)p->bytes, SYNC_FILE_RANGE_WRITE); /* begins to write */
        madvise(p->at, p->bytes, MADV_DONTNEED);                       /* the file has it */
    }
}

void choir__offload_store_let_go(choir__offload_store *place, choir__queue *queue,
    const void *const at[CHOIR__OUTSIDE_PARTS], size_t bytes)
{
    letting l = {.fd = place->fd};
    for (int i = 0; i < CHOIR__OUTSIDE_PARTS && bytes && place->fd >= 0; i++)
        for (const piece *p = place->pieces; p; p = p->next) {
            const char *from = at[i];
            if (!from || choir__is_dry(from) || from < p->at || from >= p->at + p->bytes)
                continue;
            size_t first = (size_t)(from - p->at) / PAGE * PAGE;
            size_t end = ((size_t)(from - p->at) + bytes + PAGE - 1) / PAGE * PAGE;
            l.part[l.count++] =
                (struct part){p->at + first, p->begins + (off_t)first, end - first};
        }
    if (l.count)
        choir__queue_issue(queue, let_go, &l, sizeof l);
}
