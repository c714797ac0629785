/* Memory that processes share: sealed memfds, and counted mappings of them.
 *
 * A memfd has no name in any file system: it goes with the last process that maps it or holds
 * its descriptor, however that process ends. Its pages are allocated before anybody may touch
 * them and it can't shrink: no access ever ends in SIGBUS, and memory that is not to be had is
 * an error, before the kernel has to kill someone for it. */
#ifndef CHOIR_MAPPING_H
#define CHOIR_MAPPING_H

#include "base/base.h"

/* A sealed memfd of which `allocated` of its `bytes` are there, after `place` (NULL: nothing)
 * has had its say on where. On failure -1 and why. */
typedef void choir__memfd_placement(void *arg, char *at);
int choir__memfd_new(
    size_t allocated, size_t bytes, choir__memfd_placement *place, void *arg, char why[200]);

/* Maps so many bytes of fd to be shared; NULL and errno on failure. */
void *choir__memfd_map(int fd, size_t bytes);

/* Memory that this process maps, with the descriptor by which others can. Forked children have
 * it, too, at the same address. */
typedef struct choir__mapping choir__mapping;
struct choir__mapping {
    _Atomic int refs;
    int fd;
    char *at;
    size_t bytes;
    void (*drop)(choir__mapping *mapping); /* where set: `at` is no memory of a processor's, and
                                              this undoes all, with the last reference */
};

/* Zero-filled; NULL and why. One reference is the caller's. */
choir__mapping *choir__mapping_new(size_t bytes, char why[200]);
/* All of another process's, out of its descriptor, which becomes the mapping's, or is closed.
 */
choir__mapping *choir__mapping_adopt(int fd, char why[200]);
choir__mapping *choir__mapping_ref(choir__mapping *mapping);
void choir__mapping_unref(choir__mapping *mapping); /* NULL is fine */

#endif
