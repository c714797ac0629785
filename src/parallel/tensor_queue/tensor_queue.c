/* A queue of tensors between processes: a Unix socket and two counters of the kernel.
 *
 *     put    take a place (room - 1)    send the item
 *     get    receive an item            give its place back (room + 1)
 *
 * An item is one message of a socket pair, whose ends all processes hold: the kernel delivers
 * each message, with the descriptors of its memory, whole to one receiver. No process holds a
 * lock during these operations, so a process can be killed at any instant and the calls of the
 * others continue. At most, a place stays taken; the others learn of the death anyway
 * (users.c). */
#include "parallel/tensor_queue/tensor_queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/shm/socket.h"
#include "tensor/handle.h"

enum { LOOK_MS = 50 }; /* a waiter notices within this time that another user is done */

/* --- open and close --- */

static choir_status open_socket(choir_tensor_queue *q, int capacity)
{
    int ends[2], bytes = capacity * 2 * (int)sizeof(choir__queue_item);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
        return choir__error(CHOIR_ERR_IO, "tensor queue: no socket: %s", strerror(errno));
    q->in = ends[0];
    q->out = ends[1];
    setsockopt(q->in, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    q->room = eventfd((unsigned)capacity, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
    q->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->room < 0 || q->over < 0)
        return choir__error(CHOIR_ERR_IO, "tensor queue: no eventfd: %s", strerror(errno));
    return CHOIR_OK;
}

choir_status choir_tensor_queue_new(int capacity, choir_tensor_queue **queue)
{
    if (!queue)
        return choir__missing(__func__, "queue");
    char why[200];
    if (capacity < 1 || capacity > CHOIR_TENSOR_QUEUE_CAPACITY)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor queue of %d items: from 1 to %d make sense", capacity,
            CHOIR_TENSOR_QUEUE_CAPACITY);
    choir__mapping *m = choir__mapping_new(sizeof(choir__queue_control), why);
    if (!m)
        return choir__error(CHOIR_ERR_MEMORY, "tensor queue: %s", why);
    choir_tensor_queue *q = choir__calloc(1, sizeof *q);
    *q = (choir_tensor_queue){
        .mapping = m, .control = (void *)m->at, .in = -1, .out = -1, .room = -1, .over = -1};
    choir__queue_users_open(q);
    choir_status status = open_socket(q, capacity);
    if (status == CHOIR_OK)
        *queue = q;
    else
        choir_tensor_queue_free(q);
    return status;
}

void choir_tensor_queue_free(choir_tensor_queue *q)
{
    if (!q)
        return;
    choir__queue_users_close(q);
    int fds[] = {q->in, q->out, q->room, q->over};
    for (size_t i = 0; i < CHOIR_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    choir__mapping_unref(q->mapping);
    free(q);
}

static void count_up(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void choir_tensor_queue_close(choir_tensor_queue *q)
{
    if (choir__lacks(q, __func__, "tensor queue"))
        return;
    if (!atomic_exchange(&q->control->closed, 1))
        count_up(q->over);
}

/* --- waiting --- */

/* Waits until fd is ready, the queue is closed, a user ends, or LOOK_MS have passed; then the
 * caller checks again. */
static choir_status wait_a_moment(
    choir_tensor_queue *q, int fd, short events, double deadline, const char *what)
{
    struct pollfd polled[CHOIR__QUEUE_USERS + 2] = {{.fd = fd, .events = events}};
    int count = 1, left = LOOK_MS;
    if (deadline >= 0) {
        double more = deadline - choir__now();
        if (more <= 0)
            return choir__error(CHOIR_ERR_TIMEOUT, "tensor queue: timed out; %s", what);
        left = more * 1e3 < LOOK_MS ? 1 + (int)(more * 1e3) : LOOK_MS;
    }
    if (!atomic_load(&q->control->closed))
        polled[count++] = (struct pollfd){.fd = q->over, .events = POLLIN};
    poll(polled, (nfds_t)choir__queue_poll(q, polled, count), left);
    return CHOIR_OK;
}

static double deadline_of(double timeout_s)
{
    return timeout_s < 0 ? -1 : choir__now() + timeout_s;
}

static choir_status check_call(choir_tensor_queue *q, int count)
{
    if (count < 1 || count > CHOIR_TENSOR_QUEUE_ITEM)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor queue: an item of %d tensors; from 1 to %d make sense", count,
            CHOIR_TENSOR_QUEUE_ITEM);
    if (choir__recording_active())
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "tensor queue: a recorded step neither puts nor gets; run it by choir_step_open");
    choir__loans_collect(q);
    return choir__queue_use(q);
}

/* --- put --- */

/* Checks that a put may still wait or send. */
static choir_status may_put(choir_tensor_queue *q)
{
    if (atomic_load(&q->control->closed))
        return choir__error(CHOIR_ERR_STATE, "tensor queue: it is closed");
    choir_status status = choir__queue_check(q);
    if (status == CHOIR_OK && !choir__queue_others(q, true))
        status = choir__error(
            CHOIR_ERR_STATE, "tensor queue: it is full, and no rank is left to get from it");
    return status;
}

static choir_status take_room(choir_tensor_queue *q, double deadline)
{
    uint64_t one;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && read(q->room, &one, sizeof one) != sizeof one) {
        status = may_put(q);
        if (status == CHOIR_OK)
            status = wait_a_moment(q, q->room, POLLIN, deadline, "it is full");
    }
    return status;
}

static choir_status send_item(choir_tensor_queue *q, const choir__queue_item *item,
    choir__mapping *const *mapping, double deadline)
{
    int fds[CHOIR_TENSOR_QUEUE_ITEM];
    choir_status status = CHOIR_OK;
    for (int i = 0; i < item->memories; i++)
        fds[i] = mapping[i]->fd;
    while (status == CHOIR_OK &&
           !choir__socket_send(q->in, item, sizeof *item, fds, item->memories)) {
        if (errno != EAGAIN)
            return choir__error(
                CHOIR_ERR_IO, "tensor queue: sending an item: %s", strerror(errno));
        status = may_put(q); /* there is a place, but the socket has no memory for it yet */
        if (status == CHOIR_OK)
            status = wait_a_moment(q, q->in, POLLOUT, deadline, "the socket is full");
    }
    return status;
}

choir_status choir_tensor_queue_put(
    choir_tensor_queue *q, choir_tensor *const *t, int count, double timeout_s)
{
    if (!q)
        return choir__missing(__func__, "tensor queue");
    if (!t)
        return choir__missing(__func__, "t");
    choir__queue_item item = {.count = 0};
    choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM];
    double deadline = deadline_of(timeout_s);
    choir_status status = check_call(q, count);
    if (status == CHOIR_OK && atomic_load(&q->control->closed))
        status = may_put(q);
    if (status == CHOIR_OK)
        status = take_room(q, deadline);
    if (status != CHOIR_OK)
        return status;
    status = choir__queue_pack(q, t, count, &item, mapping);
    if (status == CHOIR_OK)
        status = send_item(q, &item, mapping, deadline);
    if (status != CHOIR_OK)
        count_up(q->room);
    for (int i = 0; i < item.memories; i++)
        choir__mapping_unref(mapping[i]);
    return status;
}

/* --- get --- */

/* Returns the reason if no item can come any more; CHOIR_OK if one may. */
static choir_status may_get(choir_tensor_queue *q)
{
    choir_status status = choir__queue_check(q);
    if (status != CHOIR_OK)
        return status;
    if (atomic_load(&q->control->closed))
        return choir__error(CHOIR_ERR_END, "tensor queue: it is empty, and closed");
    if (!choir__queue_others(q, false))
        return choir__error(
            CHOIR_ERR_END, "tensor queue: it is empty, and no rank is left to put");
    return CHOIR_OK;
}

static choir_status receive_item(
    choir_tensor_queue *q, choir__queue_item *item, int *fds, int *fd_count, double deadline)
{
    for (bool looked = false;; looked = true) {
        /* Check first, then receive: if the socket is empty now, users who were gone at the
         * check have not put an item. */
        choir_status hope = looked ? may_get(q) : CHOIR_OK;
        errno = 0;
        if (choir__socket_receive(
                q->out, item, sizeof *item, fds, CHOIR_TENSOR_QUEUE_ITEM, fd_count)) {
            count_up(q->room);
            return CHOIR_OK;
        }
        if (errno != EAGAIN)
            return choir__error(
                CHOIR_ERR_IO, "tensor queue: receiving an item: %s", strerror(errno));
        if (hope == CHOIR_OK && looked)
            hope = wait_a_moment(q, q->out, POLLIN, deadline, "it is empty");
        if (hope != CHOIR_OK)
            return hope;
    }
}

choir_status choir_tensor_queue_get(
    choir_tensor_queue *q, choir_scope *scope, choir_tensor **t, int count, double timeout_s)
{
    if (!q)
        return choir__missing(__func__, "tensor queue");
    choir_status use_scope = choir__use_scope(scope, __func__);
    if (use_scope != CHOIR_OK)
        return use_scope;
    if (!t)
        return choir__missing(__func__, "t");
    choir__queue_item item;
    int fds[CHOIR_TENSOR_QUEUE_ITEM], fd_count = 0;
    choir_status status = check_call(q, count);
    if (status == CHOIR_OK)
        status = choir__scope_status(scope);
    if (status == CHOIR_OK)
        status = receive_item(q, &item, fds, &fd_count, deadline_of(timeout_s));
    return status == CHOIR_OK ? choir__queue_unpack(&item, fds, fd_count, scope, t, count)
                              : status;
}
