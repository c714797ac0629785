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

/* Returns addresses for `bytes` bytes that no other call has returned. */
void *choir__dry_addresses(size_t bytes);

/* A source of addresses, for pools. */
extern const choir__memory_ops choir__dry_memory;

/* Writes `count` stand-ins of a dtype to host memory. what: the caller, for the error if the
 * program has given none. Errors: state. */
choir_status choir__dry_read(
    const choir_device *device, choir_dtype dtype, void *data, int64_t count, const char *what);

#endif
