/* Tensors in memory that processes share, and a queue that passes them on
 * (torch.multiprocessing.Queue).
 *
 *     choir_check(choir_tensor_queue_new(4, &queue));   // before choir_spawn
 *     ...
 *     choir_check(choir_tensor_queue_put(queue, (choir_tensor *[]){x, y}, 2, -1));  // one rank
 *     choir_check(choir_tensor_queue_get(queue, step, pair, 2, -1));                // another
 *
 * What is put are handles: a tensor in shared memory is not copied, and whoever gets it sees
 * the same memory; writes by one are seen by the other. A tensor in a device's own memory is
 * copied once, into shared memory made for it, and read from there where it is got. Shared
 * memory is a sealed memfd: it goes with the last handle, in a process or under way, however
 * that ends.
 *
 * GPUs' tensors stay on their GPU: what is passed is a handle of CUDA's, of the tensor's memory
 * if it is shared, else of a copy on the same GPU. They are got on that GPU, in any process.
 * The memory is counted where it was put; it is free again when all who got it have let go of
 * it, or died, and who put it calls the queue again. It does not outlive who put it: a rank
 * that returns, or frees the queue, waits for those who may still get or have it.
 *
 * A queue is made before choir_spawn; the ranks inherit it, and any of them may put and get,
 * several at a time. A rank leaves the queue when its function returns. One that dies before is
 * an error for those who wait, which names it, and not a hang: what was put so far can still be
 * got. When everybody who could put has left, or said that it is done, the queue ends.
 *
 * Threads: any, for the queue; those of their scopes, for tensors. */
#ifndef CHOIR_TENSOR_QUEUE_H
#define CHOIR_TENSOR_QUEUE_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Moves t to shared memory, in place, so that queues pass it without copying (torch's
 * t.share_memory_()), with its views in its own scope. Again: nothing happens. Not counted in
 * its device's memory. Parameters: choir_module_share_memory. Errors: state (a backward or
 * another scope knows its memory), memory, the scope's. A GPU's memory stays where it is, and
 * is counted. */
choir_status choir_tensor_share_memory(choir_tensor *t);
bool choir_tensor_is_shared(const choir_tensor *t);

typedef struct choir_tensor_queue choir_tensor_queue;

enum {
    CHOIR_TENSOR_QUEUE_CAPACITY = 64, /* items at most */
    CHOIR_TENSOR_QUEUE_ITEM = 8       /* tensors in an item, at most */
};

/** Holds `capacity` items, from 1 to 64. Errors: argument, memory, io (no descriptors left). */
choir_status choir_tensor_queue_new(int capacity, choir_tensor_queue **queue);
/** This process leaves the queue. NULL is fine. */
void choir_tensor_queue_free(choir_tensor_queue *queue);

/**
 * Puts count tensors, as one item, once there is room; their values are there when it returns.
 *
 * A tensor in shared memory must not be written to while who gets it still reads. timeout_s:
 * how long to wait, at most; < 0: for ever. Not part of a recorded step.
 *
 * Errors: argument, state (closed; nobody is left to get it), timed out, peer lost (naming it),
 * unsupported (recording), memory, io, those of the tensors' scopes and devices.
 */
choir_status choir_tensor_queue_put(
    choir_tensor_queue *queue, choir_tensor *const *t, int count, double timeout_s);

/**
 * Gets the next item, of count tensors, on scope's device: handles of scope, with which their
 * memory goes. A GPU's tensors are got on that GPU only, others on CPUs.
 *
 * Errors: end (it is empty, and nobody will put), timed out, peer lost (naming it; the queue is
 * empty then), shape (the item has another count; it is lost), device (its memory is none of
 * this device's; it is lost), unsupported (recording), memory, io.
 */
choir_status choir_tensor_queue_get(choir_tensor_queue *queue, choir_scope *scope,
    choir_tensor **t, int count, double timeout_s);

/** This process will put no more. Those who only get say so where several do, so that the queue
 * ends when the others have left. */
void choir_tensor_queue_done(choir_tensor_queue *queue);
/** Nobody may put any more; what is there can still be got. */
void choir_tensor_queue_close(choir_tensor_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
