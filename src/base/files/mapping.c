/* Sealed memfds and their mappings. A memfd is allocated before it is sealed against shrinking,
 * and a mapping checks the size and the seal, so that no access to a peer's file ends in
 * SIGBUS. The kernel kills a process rather than refuse memory: large requests are compared
 * with the available memory first. */
#include "base/files/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { MUCH = 1 << 20 }; /* bytes below which the check costs more than it saves */

/* Returns MemAvailable in bytes, or if /proc is missing, the free memory, which is less. */
static size_t memory_available(void)
{
    char line[128];
    uint64_t kib = 0;
    bool known = false;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && !known && fgets(line, sizeof line, f))
        known = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1;
    if (f)
        fclose(f);
    struct sysinfo free;
    if (!known && sysinfo(&free) == 0)
        return (size_t)(free.freeram + free.bufferram) * free.mem_unit;
    return known ? (size_t)kib * 1024 : SIZE_MAX;
}

static int allocate(
    int fd, size_t allocated, size_t bytes, choir__memfd_placement *place, void *arg)
{
    int error;
    if (ftruncate(fd, (off_t)bytes))
        return errno;
    if (place) { /* the policy it sets stays with the file */
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            return errno;
        place(arg, p);
        munmap(p, bytes);
    }
    do
        error = posix_fallocate(fd, 0, (off_t)allocated);
    while (error == EINTR);
    if (!error && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL))
        error = errno;
    return error;
}

int choir__memfd_new(
    size_t allocated, size_t bytes, choir__memfd_placement *place, void *arg, char why[200])
{
    /* The kernel kills a process rather than refuse memory, so large requests are checked
     * first. */
    size_t available = allocated < MUCH ? SIZE_MAX : memory_available();
    if (allocated > available || bytes > (size_t)INT64_MAX) {
        snprintf(why, 200, "%zu bytes of shared memory requested, %zu available", allocated,
            available);
        return -1;
    }
    int fd = memfd_create("choir", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("choir", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? errno : allocate(fd, allocated, bytes, place, arg);
    if (!error)
        return fd;
    snprintf(why, 200, "%zu bytes of shared memory: %s", allocated, choir__why(error));
    if (fd >= 0)
        close(fd);
    return -1;
}

void *choir__memfd_map(int fd, size_t bytes)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &file) || (size_t)file.st_size < bytes || seals < 0 ||
        !(seals & F_SEAL_SHRINK)) {
        errno = EPROTO; /* a file that shrinks while it is mapped raises SIGBUS */
        return NULL;
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);       /* where the administrator allows it */
    madvise(p, bytes, MADV_POPULATE_WRITE); /* now rather than in the first step */
    return p;
}

/* --- mappings --- */

static choir__mapping *map(int fd, size_t bytes, char why[200])
{
    void *at = choir__memfd_map(fd, bytes);
    if (!at) {
        snprintf(why, 200, "mapping %zu bytes of shared memory: %s", bytes, choir__why(errno));
        close(fd);
        return NULL;
    }
    choir__mapping *m = choir__alloc(sizeof *m);
    *m = (choir__mapping){.refs = 1, .fd = fd, .at = at, .bytes = bytes};
    return m;
}

choir__mapping *choir__mapping_new(size_t bytes, char why[200])
{
    int fd = choir__memfd_new(bytes, bytes, NULL, NULL, why);
    return fd < 0 ? NULL : map(fd, bytes, why);
}

choir__mapping *choir__mapping_adopt(int fd, char why[200])
{
    struct stat file = {.st_size = 0};
    if (fstat(fd, &file) || file.st_size <= 0) {
        snprintf(why, 200, "expected a descriptor of shared memory");
        close(fd);
        return NULL;
    }
    return map(fd, (size_t)file.st_size, why);
}

choir__mapping *choir__mapping_ref(choir__mapping *mapping)
{
    atomic_fetch_add_explicit(&mapping->refs, 1, memory_order_relaxed);
    return mapping;
}

void choir__mapping_unref(choir__mapping *mapping)
{
    if (!mapping || atomic_fetch_sub(&mapping->refs, 1) > 1)
        return;
    if (mapping->drop) {
        mapping->drop(mapping);
        return;
    }
    munmap(mapping->at, mapping->bytes);
    close(mapping->fd);
    free(mapping);
}
