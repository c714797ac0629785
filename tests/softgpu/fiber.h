/* Fibers for a GPU's threads: as src/base/fiber.h, but a switch is a few instructions, for a
 * block of 256 threads makes thousands of them. */
#ifndef SOFTGPU_FIBER_H
#define SOFTGPU_FIBER_H

typedef struct softgpu_fiber softgpu_fiber;

/* fn never returns: it yields when it has nothing left to do. */
softgpu_fiber *softgpu_fiber_new(void (*fn)(void *arg), void *arg);
void softgpu_fiber_free(softgpu_fiber *fiber);

/* Goes on until the fiber yields; and from inside one, back to whoever resumed it. */
void softgpu_fiber_resume(softgpu_fiber *fiber);
void softgpu_fiber_yield(softgpu_fiber *fiber);

#endif
