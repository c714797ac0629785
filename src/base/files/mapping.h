/* Memory that processes share: sealed memfds, and reference-counted mappings of them.
 *
 * A memfd has no name in any file system. It disappears with the last process that maps it or
 * holds its descriptor, however that process ends. Its pages are allocated before any process
 * may touch them, and it cannot shrink. So no access ends in SIGBUS, and missing memory is
 * reported as an error instead of making the kernel kill a process later. */
#ifndef CHOIR_MAPPING_H
#define CHOIR_MAPPING_H

#include "base/base.h"

/* Creates a sealed memfd of `bytes` bytes; the first `allocated` bytes get pages. `place`
 * (may be NULL) runs before the allocation and may choose where the pages go (NUMA). On failure
 * it returns -1 and writes the reason to `why`. */
typedef void choir__memfd_placement(void *arg, char *at);
int choir__memfd_new(
    size_t allocated, size_t bytes, choir__memfd_placement *place, void *arg, char why[200]);

/* Maps `bytes` bytes of fd as shared memory; returns NULL and sets errno on failure. */
void *choir__memfd_map(int fd, size_t bytes);

/* Memory that this process maps, with the descriptor that lets other processes map it.
 * Forked children have it too, at the same address. */
typedef struct choir__mapping choir__mapping;
struct choir__mapping {
    _Atomic int refs;
    int fd;
    char *at;
    size_t bytes;
    /* If set, `at` is not host memory, and this function releases everything with the last
     * reference */
    void (*drop)(choir__mapping *mapping);
};

/* Creates a zero-filled mapping; the caller owns one reference. On failure it returns NULL and
 * writes the reason to `why`. */
choir__mapping *choir__mapping_new(size_t bytes, char why[200]);
/* Maps all of another process's memory through its descriptor. The mapping owns the descriptor,
 * which is closed on failure. */
choir__mapping *choir__mapping_adopt(int fd, char why[200]);
choir__mapping *choir__mapping_ref(choir__mapping *mapping);
void choir__mapping_unref(choir__mapping *mapping); /* NULL is fine */

#endif
