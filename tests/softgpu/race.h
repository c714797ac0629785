/* Finds races between a kernel's threads: what block.c and async.c tell the checker (race.c),
 * and what the hooks of instrumented kernels (race_hooks.c) tell it.
 *
 * The functions do nothing unless the program has loaded kernels that were compiled with
 * -fsanitize=thread: the target choir_cuda_race, or a build with CHOIR_SANITIZE=race. The
 * thread of the host that runs the kernel calls them. */
#ifndef SOFTGPU_RACE_H
#define SOFTGPU_RACE_H

#include <stdbool.h>

#include "block.h"

/* A launch; shared memory is set. */
void softgpu_race_begin(const softgpu_kernel *kernel, const void *args);
void softgpu_race_block(int threads); /* a block begins */
void softgpu_race_thread(int number); /* this thread of the block runs now */
void softgpu_race_barrier(void);      /* all threads of the block have met */
/* These lanes have met at __syncwarp; `first` is the number of the warp's first thread. */
void softgpu_race_lanes(int first, void *const lanes[SOFTGPU_WARP]);
void softgpu_race_end(void);

/* Instrumented code has been loaded. */
void softgpu_race_enable(void);

/* The running thread reads or writes memory. place: the address to which the call returns that
 * stands for the access. */
void softgpu_race_see(
    const volatile void *at, size_t bytes, bool writes, bool atomic, const void *place);

#endif
