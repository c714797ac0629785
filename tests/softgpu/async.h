/* Copies from device to shared memory in the background, cp.async: each thread has its own, and
 * waits for them itself (async.c). */
#ifndef SOFTGPU_ASYNC_H
#define SOFTGPU_ASYNC_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Issues a copy of 16 bytes to shared memory; of zeros if they are not `there`. */
void softgpu_async_copy(void *to, const void *from, bool there);
/* Closes the group of the thread's copies since the last call. */
void softgpu_async_close(void);
/* Waits until at most the `left` latest closed groups are under way. */
void softgpu_async_wait(int left);
/* A thread has ended; ends the program if it has copies under way. For block.c. */
void softgpu_async_end(int thread);

#ifdef __cplusplus
}
#endif
#endif
