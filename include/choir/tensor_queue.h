/* Tensors in memory that processes share, and a queue that passes them between processes
 * (torch.multiprocessing.Queue).
 *
 *     choir_check(choir_tensor_queue_new(4, &queue));   // before choir_spawn
 *     ...
 *     choir_check(choir_tensor_queue_put(queue, (choir_tensor *[]){x, y}, 2, -1));  // one rank
 *     choir_check(choir_tensor_queue_get(queue, step, pair, 2, -1));                // another
 *
 * The queue passes handles. A tensor in shared memory is not copied: sender and receiver see
 * the same memory, and each sees the other's writes. A tensor in a device's own memory is
 * copied once, into new shared memory, from which the receiver reads. Shared memory is a
 * sealed memfd: it is freed with the last handle, in a process or in the queue, however that
 * process ends.
 *
 * A GPU's tensors stay on their GPU: the queue passes a CUDA handle of the tensor's memory if
 * it is shared, else of a copy on the same GPU. Any process can receive them, on that GPU. The
 * memory counts as the sender's. It is freed when all receivers have released it or died and
 * the sender then calls the queue. The memory does not outlive its sender: a rank that returns,
 * or frees the queue, waits for all receivers that may still get or hold it.
 *
 * A queue is made before choir_spawn; the ranks inherit it, and several ranks may put and get
 * at a time. A rank leaves the queue when its function returns. If a rank dies before that,
 * waiting ranks do not hang but get an error that names it; items that were put before can
 * still be got. The queue ends when all ranks that could put have left or called
 * choir_tensor_queue_done.
 *
 * Threads: any thread for the queue; the scope's thread for tensors. */
#ifndef CHOIR_TENSOR_QUEUE_H
#define CHOIR_TENSOR_QUEUE_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Moves t and its views in its own scope to shared memory, in place, so that queues pass it
 * without copying (torch's t.share_memory_()). A second call does nothing. CPU memory no longer
 * counts as its device's. A GPU's memory stays in place and still counts as the GPU's. For
 * parameters, use choir_module_share_memory. Errors: state (a backward or another scope refers
 * to its memory), memory, the scope's. */
CHOIR_CHECKED choir_status choir_tensor_share_memory(choir_tensor *t);
bool choir_tensor_is_shared(const choir_tensor *t);

typedef struct choir_tensor_queue choir_tensor_queue;

enum {
    CHOIR_TENSOR_QUEUE_CAPACITY = 64, /* items in a queue, at most */
    CHOIR_TENSOR_QUEUE_ITEM = 8       /* tensors per item, at most */
};

/** Makes a queue with room for `capacity` items, from 1 to 64. Errors: argument, memory, io (no
 * descriptors left). */
CHOIR_CHECKED choir_status choir_tensor_queue_new(int capacity, choir_tensor_queue **queue);
/** Makes this process leave the queue. NULL is fine. */
void choir_tensor_queue_free(choir_tensor_queue *queue);

/**
 * Puts count tensors, as one item, once the queue has room; their values are complete when the
 * call returns.
 *
 * A tensor in shared memory must not be written while a receiver still reads it. timeout_s
 * limits the wait in seconds; < 0: no limit. Not allowed in a recorded step.
 *
 * Errors: argument, state (the queue is closed; no rank is left to get the item), timed out,
 * peer lost (naming it), unsupported (recording), memory, io, errors of the tensors' scopes and
 * devices.
 */
CHOIR_CHECKED choir_status choir_tensor_queue_put(
    choir_tensor_queue *queue, choir_tensor *const *t, int count, double timeout_s);

/**
 * Gets the next item, of count tensors, on scope's device. The tensors are handles of scope,
 * which frees their memory. A GPU's tensors can be got on that GPU only, others on CPUs.
 *
 * Errors: end (the queue is empty, and no rank will put), timed out, peer lost (naming it; the
 * queue is then empty), shape (the item has another count, and is lost), device (the item's
 * memory is on another device, and the item is lost), unsupported (recording), memory, io.
 */
CHOIR_CHECKED choir_status choir_tensor_queue_get(choir_tensor_queue *queue, choir_scope *scope,
    choir_tensor **t, int count, double timeout_s);

/** Declares that this process will put no more. If several ranks only receive, each must
 * declare this, so that the queue ends when the others have left. */
void choir_tensor_queue_done(choir_tensor_queue *queue);
/** Closes the queue for putting, in all processes; its items can still be got. */
void choir_tensor_queue_close(choir_tensor_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
