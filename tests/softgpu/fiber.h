/* Fibers for a GPU's threads: like src/base/fiber.h, but a switch takes a few instructions, as
 * a block of 256 threads makes thousands of switches. */
#ifndef SOFTGPU_FIBER_H
#define SOFTGPU_FIBER_H

typedef struct softgpu_fiber softgpu_fiber;

/* Creates a fiber. fn never returns: it yields when it has nothing left to do. */
softgpu_fiber *softgpu_fiber_new(void (*fn)(void *arg), void *arg);
void softgpu_fiber_free(softgpu_fiber *fiber);

/* resume runs the fiber until it yields; yield, called from inside it, returns to its
 * resumer. */
void softgpu_fiber_resume(softgpu_fiber *fiber);
void softgpu_fiber_yield(softgpu_fiber *fiber);

#endif
