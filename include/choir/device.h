/* Devices: memory, an in-order queue of work, and a table of kernels.
 *
 * cpu:0 ... cpu:N-1 are groups of cores (one core each unless choir_device_set_threads sets
 * more), each with a queue, a worker thread, a caching allocator and statistics. Work is
 * enqueued with its arguments by value, and the call returns at once; reading a value on the
 * host waits. The environment variable CHOIR_CPU_DEVICES=8 makes eight devices even if there
 * are fewer cores, so everything about many devices can be tried on a laptop.
 *
 * cuda:0 ... cuda:N-1 are NVIDIA GPUs in the order of CUDA_VISIBLE_DEVICES, each with a
 * stream. CHOIR_CUDA_DEVICES=n makes n devices and distributes them over the GPUs. They exist
 * where the plug-in choir_cuda.so and a driver are installed; a process that has found one
 * must not fork.
 *
 * Numbers are computed in the default floating-point environment, whatever the caller's is
 * (rounding, denormals, enabled exceptions); each call gives the caller's back. The program's
 * own functions that Choir calls run in the default one.
 *
 * Threads: any thread may call these; one thread at a time should issue work to one device. */
#ifndef CHOIR_DEVICE_H
#define CHOIR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <choir/dtype.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_device choir_device;

/** Live figures of one device. Bytes count memory that the device's allocator has handed out.
 */
typedef struct choir_device_stats {
    size_t bytes_now;      /* bytes of live tensors */
    size_t bytes_peak;     /* maximum of bytes_now since choir_device_reset_peak */
    size_t bytes_reserved; /* bytes taken from the system: live and cached */
    size_t bytes_limit;    /* cap on bytes_reserved; 0: none */
    /* Parts of bytes_now; the rest is activations, batches and work space. */
    size_t bytes_weights; /* parameters and buffers of modules */
    size_t bytes_gradients;
    size_t bytes_optimizer; /* optimizers' state */
    double busy_s; /* seconds spent in kernels; on a GPU, seconds from issue to the next wait */
    double age_s;  /* seconds since the device started */
    uint64_t queue_depth; /* tasks issued and not yet finished */
    uint64_t tasks;       /* tasks finished */
    uint64_t bytes_moved; /* copied from and to other devices, in tasks issued so far */
} choir_device_stats;

/** Returns the number of devices of a kind ("cpu", "cuda"); 0 if this machine or build lacks
 * the kind. */
int choir_device_count(const char *kind);

/** Returns the device of a name such as "cpu:0" or "cuda:1"; NULL, with a message, if the
 * device does not exist. The library owns the device. */
choir_device *choir_device_find(const char *name);

/** Returns the device's name, such as "cpu:0". The device owns the string. */
const char *choir_device_name(const choir_device *device);

/** Sets the number of cores that a device uses; call it before the device's first work. Errors:
 * argument, state. */
CHOIR_CHECKED choir_status choir_device_set_threads(choir_device *device, int threads);

/** Caps the memory that a device takes from the system, in bytes; 0 lifts the cap. */
void choir_device_set_limit(choir_device *device, size_t bytes);

/** Waits until everything enqueued so far has run; returns the queue's sticky error, if any. */
CHOIR_CHECKED choir_status choir_device_sync(choir_device *device);

/** Binds the calling thread to the device's cores, in a process that has this device to itself.
 * Does nothing for a GPU. */
void choir_device_bind_thread(choir_device *device);

/** Fills in the current figures. */
void choir_device_get_stats(choir_device *device, choir_device_stats *stats);

/** Starts a new peak measurement at the bytes now live. */
void choir_device_reset_peak(choir_device *device);

/** Returns whether the device multiplies matrices of dtype faster than f32 matrices; always
 * true for f32. GPUs multiply bf16 and f16 faster; CPUs multiply bf16 faster if they have AMX
 * or AVX-512 BF16. Other devices multiply 16-bit matrices in f32. */
bool choir_device_multiplies(const choir_device *device, choir_dtype dtype);

/**
 * Lists the kernels of CPU devices that this process has run by their slow reference, because
 * there is no fast kernel for the operands' dtype: "sort in bf16, conv in f64".
 *
 * @param text   receives the list, cut after `bytes` bytes; may be NULL
 * @return the number of pairs of a kernel and a dtype; 0: everything ran fast
 *
 * Any thread may call it.  Errors: none.  Collective: no.
 */
int choir_slow_kernels(char *text, size_t bytes);

/**
 * Returns the class of bits of this process's products on CPU devices: "chain", whose results
 * are the same on every processor; "amx", which differs in products of bf16 and has the order
 * of AMX's instruction; or "onednn", whose results depend on its version and on the instruction
 * set. A job chooses it (--bits), else the variable CHOIR_MATH does.
 */
const char *choir_cpu_bits(void);

/** Returns the instruction set that the CPU kernels use: "avx512", "avx2" or "baseline" on
 * x86-64, "neon" on aarch64; the variable CHOIR_ISA may name a smaller one. */
const char *choir_cpu_isa(void);

#ifdef __cplusplus
}
#endif
#endif
