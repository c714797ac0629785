/* Memory outside a device's pool that the device computes with: host memory, or the pages of a
 * file.
 *
 * A *place* is host memory or a file. A *piece* is an allocation in it; a file's pieces are
 * consecutive:
 *
 *     file     | weights | gradients | state of the optimizer |
 *
 * The file has no name once it is open, so it disappears with the process, and its folder may
 * be removed meanwhile. A piece is allocated whole, so that a full disk is an error and not a
 * SIGBUS in the middle of a step. Its pages are in the process's memory from their use until
 * they are let go; then they are in the page cache, as long as the system has room for them.
 *
 * A GPU reaches pinned host memory over its bus, but no file.
 *
 * Threads: places and pieces belong to the run's thread. */
#ifndef CHOIR_OUTSIDE_H
#define CHOIR_OUTSIDE_H

#include "device/device.h"

enum { CHOIR__OUTSIDE_PAGE = 4096 };

typedef struct choir__offload_store choir__offload_store;

/* Opens a file in the folder; NULL: takes host memory. `what` ("optimizer state") is the
 * subject of an error. The caller owns one reference to the place. Error: I/O. */
choir_status choir__offload_store_new(
    const char *folder, const char *what, choir__offload_store **place);
choir__offload_store *choir__offload_store_ref(choir__offload_store *place);
void choir__offload_store_unref(choir__offload_store *place); /* NULL is fine */
bool choir__offload_store_is_file(const choir__offload_store *place);

/* Sets *at to a piece of at least `bytes` zeros with which the device can compute. `what`: "the
 * optimizer's state". Errors: I/O (no room in the folder), memory, unsupported (a GPU, and a
 * file). */
choir_status choir__offload_store_get(choir__offload_store *place, const choir_device *device,
    size_t bytes, const char *what, void **at);
/* Returns a piece that no queue uses any more. NULL is fine. */
void choir__offload_store_put(choir__offload_store *place, void *at);

/* Lets the pages of CHOIR__OUTSIDE_PARTS parts of `bytes` bytes go, in queue order: begins to
 * write them to the disk and takes them out of the process's memory. Addresses that are not in
 * a file's piece are left alone. */
enum { CHOIR__OUTSIDE_PARTS = 5 };
void choir__offload_store_let_go(choir__offload_store *place, choir__queue *queue,
    const void *const at[CHOIR__OUTSIDE_PARTS], size_t bytes);

#endif
