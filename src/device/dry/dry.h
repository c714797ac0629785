/* The inside of dry devices. Their memory is a range of addresses that no process can have, so
 * a read or write there by mistake ends the process at once. */
#ifndef CHOIR_DEVICE_DRY_INTERNAL_H
#define CHOIR_DEVICE_DRY_INTERNAL_H

#include <choir/dry.h>
#include "device/device.h"

/* Returns whether p is in the memory of a dry device. */
static inline bool choir__is_dry(const void *p)
{
    return (uintptr_t)p >> 60 == 1;
}

/* pool.c: stores the bytes of each kind at a device's peak, which is their sum. */
void choir__pool_peak(choir_device *device, size_t of[CHOIR__MEMORY_KINDS]);

/* The most memory of a pool since choir_device_reset_peak: bytes of blocks that it takes
 * from the system, and bytes that requests use in the blocks. */
typedef struct choir__pool_taken {
    size_t reserved, used;
} choir__pool_taken;

/* pool.c. */
choir__pool_taken choir__pool_most_taken(choir_device *device);

/* pool.c: makes a pool, and the ones that are split from it, keep a ledger; returns it with the
 * holders at the device's peak. */
struct choir__dry_ledger;
void choir__pool_keep_ledger(choir__pool *pool);
const struct choir__dry_ledger *choir__pool_ledger(choir_device *device);

/* The kinds of memory that dry devices tell apart: CHOIR__MEMORY_KINDS, and the uses of the
 * kind other. */
enum { CHOIR__DRY_KINDS = CHOIR__MEMORY_KINDS - 1 + CHOIR__MEMORY_USES };

/* Memory at the launch of a kernel. */
typedef struct choir__dry_moment {
    size_t of[CHOIR__DRY_KINDS]; /* bytes of each kind */
} choir__dry_moment;

/* Gives the device the name of the one that it stands for, in errors, until
 * choir_dry_restart. */
void choir__dry_stands_for(choir_device *device, const char *name);

/* From now on the device notes its memory at each kernel that is recorded. */
void choir__dry_note(choir_device *device);
/* Returns the moments, in the order of the recorded kernels, and their number; the device owns
 * them until choir_dry_restart. */
const choir__dry_moment *choir__dry_moments(const choir_device *device, int64_t *count);

/* Returns addresses for `bytes` bytes that no other call has returned. */
void *choir__dry_addresses(size_t bytes);

/* A source of addresses, for pools. */
extern const choir__memory_ops choir__dry_memory;

/* Writes `count` stand-ins of a dtype to host memory. what: the caller, for the error if the
 * program has given none. Errors: state. */
choir_status choir__dry_read(
    const choir_device *device, choir_dtype dtype, void *data, int64_t count, const char *what);

#endif
