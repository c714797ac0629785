/* A device as the layers above see it: memory, a queue, a kernel table.
 *
 * Backends fill in `struct choir_device` (see cpu/cpu.c) and stand in the registry of device.c.
 */
#ifndef CHOIR_DEVICE_INTERNAL_H
#define CHOIR_DEVICE_INTERNAL_H

#include <choir/device.h>
#include "device/kernels.h"
#include "device/queue.h"

typedef struct choir__pool choir__pool;

/* How a backend gets memory from the system, for one of its devices. */
typedef struct choir__memory_ops {
    void *(*get)(void *arg, size_t bytes); /* NULL: none left */
    void (*put)(void *arg, void *p, size_t bytes);
} choir__memory_ops;

/* Carries bytes where no queue of this process can: between a device that has a carrier and any
 * other, at least one of which may be another rank's. */
typedef struct choir__carrier choir__carrier;
struct choir__carrier {
    /* Moves bytes at x on `from`, whose device has this carrier, to y on `to`, in order: from
     * event `ready` on they are there, what `to` is given later finds them. Until *read they
     * are needed at x (no queue: not at all). */
    void (*carry)(choir__carrier *carrier, choir_device *from, const void *x, choir_device *to,
        void *y, size_t bytes, choir__event ready, choir__event *read);
    /* Whether `to` reads the memory of `from` by itself. NULL: no device does. */
    bool (*reads)(const choir_device *to, const choir_device *from);
};

struct choir_device {
    char name[16];
    const char *kind;
    int index;
    choir__queue *queue;
    choir__pool *pool;
    const choir__kernels *kernels;   /* f32, and what else the backend is fast at */
    const choir__kernels *reference; /* every dtype; f64 */
    bool half; /* all its kernels take bf16 and f16 as kernels.h says, not products alone */
    void *backend;
    const struct choir__far *far; /* how its memory is reached (far.h); NULL: as the host's */
    choir__carrier *carrier;      /* NULL: any queue here reads its memory. choir__carrier_of */
    bool away;             /* in another process: here it has addresses, no memory, and runs
                              nothing */
    choir__gauges *gauges; /* on the board; NULL: there is none */
    double born;           /* choir__now() */
    choir_device *next;
};

/* What brings bytes of `from` to `to`; NULL: it reads them. */
static inline choir__carrier *choir__carrier_of(
    const choir_device *from, const choir_device *to)
{
    choir__carrier *c = from->carrier;
    return c && c->reads && c->reads(to, from) ? NULL : c;
}

/* The table that serves tensors of a dtype. */
static inline const choir__kernels *choir__device_kernels(
    const choir_device *device, choir_dtype dtype)
{
    return dtype == CHOIR_F64 ? device->reference : device->kernels;
}

/* Enqueues a kernel with its arguments: choir__launch(device, dtype, relu, &args). */
#define choir__launch(device, dtype, kernel, args)                                             \
    choir__queue_issue((device)->queue,                                                        \
        (choir__task *)choir__device_kernels(device, dtype)->kernel, args, sizeof *(args))

/* The device of a rank on this machine, around the list where there are more ranks: of the kind
 * that CHOIR_DEVICE names (cpu, cuda, or auto: GPUs if there are any), or the very one; cpu
 * where it is not set. NULL, with a message, if there is none. */
choir_device *choir__device_assigned(int local_rank);

/* choir_device_count, and why there are none, asked in a process of its own where asking alone
 * would make this one unfit to fork. From one thread at a time. */
int choir__device_look(const char *kind, char *why, size_t bytes);

/* Whether there is such a device; else choir_device_find's message. Opens none: looks. */
bool choir__device_is_there(const char *name);

/* "auto" -> "cuda" where there are GPUs, else "cpu"; what else is wanted as it is. Looks. */
const char *choir__device_kind(const char *wanted);

/* The device new work goes to when nobody says: that of the first rank. */
choir_device *choir__device_default(void);

/* The device's worker, which does not run, will run where device `index`'s does: in a fork, so
 * that processes which inherited one device do not crowd on its cores. */
void choir__device_place(choir_device *device, int index);

/* What a device can say about memory that it does not have, for messages: "", or "; 3 of 80 GiB
 * of the GPU are free". */
void choir__device_memory_note(const choir_device *device, char *text, size_t bytes);

/* What the driver says of device `index` of a kind, as members of a JSON object; "" if nothing.
 */
void choir__device_describe(const char *kind, int index, char *json, size_t bytes);

/* Devices of a kind whose backend is loaded, and at work: processes may not fork then. */
bool choir__device_forbids_fork(void);

/* Another stream on the device, for a queue that is not its own; NULL: it has none. */
struct choir__stream *choir__device_stream(choir_device *device);

/* What decides the bits of its results besides the program, "cpu avx512, oneDNN 2.6.3, 1
 * thread(s)": ranks compare it. */
enum { CHOIR__SIGNATURE = 128 };
void choir__device_signature(const choir_device *device, char text[CHOIR__SIGNATURE]);

/* --- memory: a stream-ordered caching pool (pool.c) --- */

/* A block of a pool. Freed blocks are given out again at once: the device's queue is in order,
 * so a later user's work runs after the earlier one's. A block that other queues read carries
 * their events and returns to the pool only after them. */
typedef struct choir__block choir__block;

/* arg: what ops are called with. gauges: kept up to date for others to see; NULL: nobody looks.
 */
choir__pool *choir__pool_new(
    const choir__memory_ops *ops, void *arg, choir__pool_gauges *gauges);
void choir__pool_free(choir__pool *pool);

/* Memory of somebody else's that stands for the device's, as what ranks share does: counts it
 * among the device's bytes, or takes it off. False, and nothing changes, if the limit forbids
 * it. */
bool choir__pool_charge(choir_device *device, ptrdiff_t bytes);

/* Gives what the device's pool has cached back to the system. */
void choir__pool_trim(choir_device *device);

/* A pool that hands out no more, but some of whose blocks are still in use; freed with the
 * list. */
void choir__pool_retire(choir__pool *pool, choir__pool **list);
void choir__pools_free(choir__pool **list);

/* NULL when the system or the cap refuses; the caller writes the message. 64-byte aligned. */
choir__block *choir__block_new(choir_device *device, size_t bytes);
void choir__block_free(choir__block *block);
void *choir__block_data(const choir__block *block);

/* queue will have read the block by event: it is not given out again before. */
void choir__block_used_by(choir__block *block, choir__event event);
/* Such a queue may yet read it: the device's own must not write over what is there ... */
bool choir__block_read_elsewhere(const choir__block *block);
/* ... unless it, `queue`, waits for them first. */
void choir__block_wait_readers(choir__block *block, choir__queue *queue);

/* Makes pool the device's; NULL: a fresh one that shares the old one's counters. Returns the
 * old one. While a recording is made, blocks come from a pool that belongs to it: see
 * choir_step. */
choir__pool *choir__pool_swap(choir_device *device, choir__pool *pool);

#endif
