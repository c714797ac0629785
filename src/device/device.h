/* A device as seen by the layers above: memory, a queue, a kernel table.
 *
 * Backends fill in `struct choir_device` (see cpu/cpu.c) and are listed in the registry of
 * device.c. */
#ifndef CHOIR_DEVICE_INTERNAL_H
#define CHOIR_DEVICE_INTERNAL_H

#include <stdatomic.h>

#include <choir/device.h>
#include "device/kernels.h"
#include "device/libraries.h"
#include "device/queue.h"

typedef struct choir__pool choir__pool;

/* Gets memory from the system for one device, and returns it; provided by the backend. */
typedef struct choir__memory_ops {
    void *(*get)(void *arg, size_t bytes); /* NULL: out of memory */
    void (*put)(void *arg, void *p, size_t bytes);
} choir__memory_ops;

/* Carries bytes between devices that no queue of this process can serve: between a device that
 * has a carrier and any other device. At least one of the two may belong to another rank. */
typedef struct choir__carrier choir__carrier;
struct choir__carrier {
    /* Moves bytes from x on `from`, whose device has this carrier, to y on `to`, in order. The
     * bytes at x are valid from event `ready` on, and tasks issued to `to` afterwards find them
     * at y. Until the event *read they are needed at x (an event without a queue: not
     * needed). */
    void (*carry)(choir__carrier *carrier, choir_device *from, const void *x, choir_device *to,
        void *y, size_t bytes, choir__event ready, choir__event *read);
    /* Returns true if `to` reads the memory of `from` directly. NULL: no device does. */
    bool (*reads)(const choir_device *to, const choir_device *from);
};

/* A driver's information on a device. A text is "" if it is unknown, a figure -1. */
enum { CHOIR__VERSION_TEXT = 32 };
typedef struct choir__device_facts {
    int gpu; /* the driver's index: several devices may be on one GPU */
    char model[256], capability[16], bus[64], driver[64];
    char cublaslt[CHOIR__VERSION_TEXT], cudnn[CHOIR__VERSION_TEXT];
    int multiprocessors;
    size_t bytes, used_bytes; /* size of the GPU's memory; bytes in use */
    int busy_percent, celsius, watts, sm_mhz;
} choir__device_facts;

struct choir_device {
    char name[16];
    const char *kind;
    int index;
    choir__queue *queue;
    choir__pool *pool;
    /* f32, and the other dtypes that the backend computes fast */
    const choir__kernels *kernels;
    const choir__kernels *reference; /* every dtype; the only table for f64 */
    bool half;      /* all kernels take bf16 and f16 as in kernels.h, not only products */
    bool epilogues; /* products have the additional results of choir__k_matmul */
    bool chunks;    /* attention takes chunks and pairs: kernels/attention.h */
    /* products of 16 bits are fastest with rows at multiples of this number of bytes; 0: all
     * are equally fast */
    int row_bytes;
    void *backend;
    const struct choir__far *far; /* access to its memory (far.h); NULL: host memory */
    /* NULL: any queue here reads its memory. See choir__carrier_of */
    choir__carrier *carrier;
    /* device of another process: it has addresses here, but no memory, and runs nothing */
    bool away;
    choir__gauges *gauges; /* figures on the board; NULL: none */
    atomic_int runs;       /* open runs that use it */
    double born;           /* choir__now() */
    choir_device *next;
};

/* Returns the carrier that brings bytes of `from` to `to`, or NULL if `to` reads them
 * directly, as its own. */
static inline choir__carrier *choir__carrier_of(
    const choir_device *from, const choir_device *to)
{
    choir__carrier *c = from->carrier;
    return from == to || (c && c->reads && c->reads(to, from)) ? NULL : c;
}

/* Returns the kernel table for tensors of a dtype. */
static inline const choir__kernels *choir__device_kernels(
    const choir_device *device, choir_dtype dtype)
{
    return dtype == CHOIR_F64 ? device->reference : device->kernels;
}

/* Returns whether products of dtype read an operand that is held in fewer bits, as
 * choir__k_matmul.b_held says. */
bool choir__device_reads_blocks(const choir_device *device, choir_dtype dtype);

/* Enqueues a kernel with its arguments: choir__launch(device, dtype, relu, &args). */
#define choir__launch(device, dtype, kernel, args)                                             \
    choir__queue_issue((device)->queue,                                                        \
        (choir__queue_task *)choir__device_kernels(device, dtype)->kernel, args,               \
        sizeof *(args))

/* Work of the host's, in `count` parts that do not depend on each other. */
typedef struct choir__device_work {
    int64_t count, least; /* least: parts from which on another core gains */
    void (*part)(const void *arg, int64_t first, int64_t count);
    const void *arg;
} choir__device_work;

/* Does the work on the device's cores, or on the caller's if the device has none; returns when
 * all of it is done. Not while a step is recorded. */
void choir__device_divide(choir_device *device, const choir__device_work *work);

/* Returns the device of a rank on this machine. CHOIR_DEVICE names a kind (cpu, cuda, or auto:
 * GPUs if there are any) or one device; the default is cpu. If there are more ranks than
 * devices of the kind, ranks share them in turn. Returns NULL, with a message, if no device
 * exists. */
choir_device *choir__device_assigned(int local_rank);

/* Like choir_device_count, but also says why there are no devices. If counting would make this
 * process unfit to fork, a child process counts. Only one thread may call it at a time. */
int choir__device_look(const char *kind, char *why, size_t bytes);

/* Returns true if the device exists; otherwise sets the message of choir_device_find. It opens
 * no device. */
bool choir__device_is_there(const char *name);

/* Maps "auto" to "cuda" if there are GPUs, else to "cpu"; returns other kinds unchanged. It
 * opens no device. */
const char *choir__device_kind(const char *wanted);

/* Returns the device of new work unless specified: the first rank's. */
choir_device *choir__device_default(void);

/* Returns cpu:0, which is there whatever the environment asks for. */
choir_device *choir__device_always(void);

/* Returns whether this thread's last choir_device_find found nothing and the program has not
 * read the message since, so that a NULL device may be that result. True once per failure. */
bool choir__device_missed(void);

/* Makes the device's worker, which must not have started, run on the cores of device `index`.
 * Called after a fork, so that processes which inherited one device do not share its cores. */
void choir__device_place(choir_device *device, int index);

/* For messages about missing memory: writes the device's note, such as "; 3 of 80 GiB of the
 * GPU are free", or "". */
void choir__device_memory_note(const choir_device *device, char *text, size_t bytes);

/* Stores the driver's information on device `index` of a kind. Returns false if it has none. */
bool choir__device_describe(const char *kind, int index, choir__device_facts *facts);

/* Writes what the libraries of the device have done so far; waits for no task, so the caller
 * does. Zeros: it has none. */
void choir__device_libraries(
    const choir_device *device, choir__library_use use[CHOIR__LIBRARIES]);

/* Returns true if a loaded backend has far memory (GPUs). Processes may not fork then. */
bool choir__device_forbids_fork(void);

/* Returns another stream on the device, for a queue other than the device's own; NULL if the
 * device has no streams. */
struct choir__gpu_stream *choir__device_stream(choir_device *device);

/* Returns the class of bits of the device's products: choir_cpu_bits(), or "cuda". */
const char *choir__device_bits(const choir_device *device);

/* Writes what determines the bits of the device's results apart from the program, such as "cpu
 * avx512, oneDNN 2.6.3, 1 thread(s)". Ranks compare it. */
enum { CHOIR__SIGNATURE = 128 };
void choir__device_signature(const choir_device *device, char text[CHOIR__SIGNATURE]);

/* --- memory: a stream-ordered caching pool (pool.c) --- */

/* A block of a pool. A freed block may be reused at once: the device's queue is in order, so
 * the next user's work runs after the previous user's. A block that other queues read carries
 * their events and returns to the pool only after them. */
typedef struct choir__pool_block choir__pool_block;

/* Creates a pool. arg is passed to ops. gauges receives the pool's figures for other processes;
 * NULL: none. */
choir__pool *choir__pool_new(
    const choir__memory_ops *ops, void *arg, choir__pool_gauges *gauges);
void choir__pool_free(choir__pool *pool);

/* Counts memory that is not from the pool, such as memory that ranks share, among the device's
 * bytes; a negative number subtracts. If the limit forbids it, releases cached blocks; returns
 * false and changes nothing if it still does. holder: its name in the ledger of a dry device,
 * as in choir__block_tell. */
bool choir__pool_charge(
    choir_device *device, ptrdiff_t bytes, choir__memory_kind kind, const char *holder);

/* Returns the memory that the device's pool has cached to the system. */
void choir__pool_trim(choir_device *device);

/* Retires a pool from which no more blocks are taken, but some of whose blocks are still in
 * use. choir__pools_free frees the list. */
void choir__pool_retire(choir__pool *pool, choir__pool **list);
void choir__pools_free(choir__pool **list);

/* Returns a block, 64-byte aligned, or NULL if the system or the limit refuses it. The caller
 * writes the message. */
choir__pool_block *choir__block_new(choir_device *device, size_t bytes);
/* Returns the size of the block that holds `bytes` bytes: the size of its class. */
size_t choir__block_size(size_t bytes);
void choir__block_free(choir__pool_block *block);
/* Sets the kind of a block, for figures of memory; a new one is of the kind other. */
void choir__block_holds(choir__pool_block *block, choir__memory_kind kind);
choir__memory_kind choir__block_kind(const choir__pool_block *block);
/* The purpose of a block of the kind other. */
typedef enum choir__memory_use {
    CHOIR__FOR_WORK, /* work space; a new block's */
    CHOIR__FOR_ACTIVATIONS,
    CHOIR__FOR_MESSAGES, /* buffers of communication */
    CHOIR__MEMORY_USES
} choir__memory_use;
/* Tells the ledger of a dry device (dry/ledger.h) what a block is for, and whose it is: the
 * name of a parameter, the path of a module, or NULL. Other devices keep no ledger. */
void choir__block_tell(choir__pool_block *block, choir__memory_use use, const char *name);
void *choir__block_data(const choir__pool_block *block);

/* Notes that a queue reads the block until event; the block is not reused before. */
void choir__block_used_by(choir__pool_block *block, choir__event event);
/* Returns true if another queue may still read the block. The device's own queue must not
 * overwrite it then ... */
bool choir__block_read_elsewhere(const choir__pool_block *block);
/* ... unless it, `queue`, first waits for these readers with this call. */
void choir__block_wait_readers(choir__pool_block *block, choir__queue *queue);

/* Makes pool the device's pool; NULL: a new one that shares the old one's counters. Returns the
 * old one. While a step is recorded, blocks come from a pool that belongs to the recording: see
 * choir_step. */
choir__pool *choir__pool_swap(choir_device *device, choir__pool *pool);

#endif
