/* The users of a tensor queue, and the detection of their deaths.
 *
 * Ranks get a place in shared memory before they are forked, so that a queue whose users have
 * yet to start does not look deserted. A rank takes its place when it starts and leaves it when
 * its function returns. A process that ends without leaving has died; its pidfd wakes all
 * waiters at once. */
#include "parallel/tensor_queue/tensor_queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/process/watch.h"
#include "launch/process/process.h"

enum { LOOK_MS = 2 }; /* a leaving process checks for released loans at this interval */

static bool is_there(int32_t state)
{
    return state == CHOIR__EXPECTED || state == CHOIR__USING || state == CHOIR__DONE;
}

/* Takes a place for rank, in `state`; -1: no place is free. */
static int take_place(choir_tensor_queue *q, int rank, choir__queue_state state)
{
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++) {
        choir__queue_user *u = &q->control->users[i];
        int32_t old = atomic_load(&u->state);
        if ((old == CHOIR__NOBODY || old == CHOIR__LEFT) &&
            atomic_compare_exchange_strong(&u->state, &old, CHOIR__TAKEN)) {
            atomic_store(&u->rank, rank);
            atomic_store(&u->family, (int32_t)getpid());
            atomic_store(&u->pid, state == CHOIR__EXPECTED ? 0 : (int32_t)getpid());
            atomic_store(&u->state, state);
            return i;
        }
    }
    return -1;
}

choir_status choir__queue_use(choir_tensor_queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->me < 0)
        q->me = take_place(q, -1, CHOIR__USING);
    bool found = q->me >= 0;
    pthread_mutex_unlock(&q->lock);
    return found ? CHOIR_OK
                 : choir__error(CHOIR_ERR_ARGUMENT,
                       "tensor queue: more than %d processes use it", CHOIR__QUEUE_USERS);
}

bool choir__queue_others(const choir_tensor_queue *q, bool getters)
{
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++) {
        int32_t state = atomic_load(&q->control->users[i].state);
        if (i != q->me && is_there(state) && (getters || state != CHOIR__DONE))
            return true;
    }
    return false;
}

void choir_tensor_queue_done(choir_tensor_queue *q)
{
    if (choir__lacks(q, __func__, "tensor queue"))
        return;
    if (choir__queue_use(q) == CHOIR_OK)
        atomic_store(&q->control->users[q->me].state, CHOIR__DONE);
}

/* --- deaths --- */

static void close_pidfd(choir_tensor_queue *q, int i)
{
    if (q->pidfds[i] >= 0)
        close(q->pidfds[i]);
    q->pidfds[i] = -1;
}

static void forget_pidfds(choir_tensor_queue *q)
{
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++)
        close_pidfd(q, i);
}

/* Returns the pidfd of user i, who is present. -1: not started yet, or this process; -2:
 * gone. */
static int pidfd_of(choir_tensor_queue *q, int i)
{
    int pid = atomic_load(&q->control->users[i].pid);
    if (i == q->me || !pid)
        return -1;
    if (q->pidfds[i] >= 0 && q->pids[i] != pid) /* pidfd of a previous user of this place */
        close_pidfd(q, i);
    q->pids[i] = pid;
    if (q->pidfds[i] < 0)
        q->pidfds[i] = choir__process_watch(pid);
    return q->pidfds[i] >= 0 ? q->pidfds[i] : errno == ESRCH ? -2 : -1;
}

static bool has_died(choir_tensor_queue *q, int i)
{
    choir__queue_user *u = &q->control->users[i];
    if (!is_there(atomic_load(&u->state)))
        return atomic_load(&u->state) == CHOIR__DIED;
    int fd = pidfd_of(q, i), pid = q->pids[i];
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    if (fd == -1 || (fd >= 0 && poll(&polled, 1, 0) != 1))
        return false;
    /* Otherwise the user left before it ended; another one may have its place by now. */
    return is_there(atomic_load(&u->state)) && atomic_load(&u->pid) == pid;
}

choir_status choir__queue_check(choir_tensor_queue *q)
{
    choir_status status = CHOIR_OK;
    pthread_mutex_lock(&q->lock);
    for (int i = 0; i < CHOIR__QUEUE_USERS && status == CHOIR_OK; i++) {
        const choir__queue_user *u = &q->control->users[i];
        int rank = atomic_load(&u->rank), pid = atomic_load(&u->pid);
        if (!has_died(q, i))
            continue;
        const char *how =
            choir__wait_status(q->pidfds[i]) == 0 ? "has ended without closing it" : "has died";
        if (rank >= 0)
            status = choir__error(CHOIR_ERR_PEER_LOST,
                "tensor queue: rank %d (pid %d), which uses it, %s", rank, pid, how);
        else
            status = choir__error(
                CHOIR_ERR_PEER_LOST, "tensor queue: process %d, which uses it, %s", pid, how);
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

int choir__queue_poll(choir_tensor_queue *q, struct pollfd *polled, int count)
{
    pthread_mutex_lock(&q->lock);
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++)
        if (is_there(atomic_load(&q->control->users[i].state)) && pidfd_of(q, i) >= 0)
            polled[count++] = (struct pollfd){.fd = q->pidfds[i], .events = POLLIN};
    pthread_mutex_unlock(&q->lock);
    return count;
}

/* --- leaving --- */

/* Returns true if another user may still receive or release this process's loans. The process
 * that started this one does not count, since it waits for this one to end. */
static bool somebody_borrows(choir_tensor_queue *q)
{
    bool found = false;
    pthread_mutex_lock(&q->lock);
    for (int i = 0; i < CHOIR__QUEUE_USERS && !found; i++) {
        choir__queue_user *u = &q->control->users[i];
        found = i != q->me && is_there(atomic_load(&u->state)) && !has_died(q, i) &&
                atomic_load(&u->pid) != q->family;
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

static void leave(choir_tensor_queue *q)
{
    if (q->me >= 0)
        atomic_store(&q->control->users[q->me].state, CHOIR__LEFT);
    q->me = -1;
}

/* Waits until others have released this process's loans, since its device memory ends with the
 * process. */
static void await_loans(choir_tensor_queue *q)
{
    while (choir__loans_collect(q) && somebody_borrows(q))
        poll(NULL, 0, LOOK_MS);
    choir__loans_end(q);
}

/* --- choir_spawn --- */

static void expect(void *arg, int first_rank, int count)
{
    for (int i = 0; i < count; i++)
        take_place(arg, first_rank + i, CHOIR__EXPECTED);
}

/* Takes the place that was reserved for this rank, and drops the parent's pidfds. */
static void arrive(void *arg, int rank)
{
    choir_tensor_queue *q = arg;
    pthread_mutex_init(&q->lock, NULL);
    forget_pidfds(q);
    q->me = -1;
    for (int i = 0; i < CHOIR__QUEUE_USERS && q->me < 0; i++) {
        choir__queue_user *u = &q->control->users[i];
        if (atomic_load(&u->state) != CHOIR__EXPECTED || atomic_load(&u->rank) != rank ||
            atomic_load(&u->family) != (int32_t)getppid())
            continue;
        atomic_store(&u->pid, (int32_t)getpid());
        atomic_store(&u->state, CHOIR__USING);
        q->me = i;
        q->family = getppid();
    }
}

static void depart(void *arg, int rank)
{
    (void)rank;
    leave(arg);
}

/* Runs after the process has left all queues, so that no user waits for it. */
static void gone(void *arg)
{
    await_loans(arg);
}

/* All ranks have ended: a rank that still has a place has died, even if it did so before its
 * first call. */
static void bury(void *arg)
{
    choir_tensor_queue *q = arg;
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++) {
        choir__queue_user *u = &q->control->users[i];
        if (atomic_load(&u->rank) >= 0 && atomic_load(&u->family) == (int32_t)getpid() &&
            is_there(atomic_load(&u->state)))
            atomic_store(&u->state, CHOIR__DIED);
    }
}

void choir__queue_users_open(choir_tensor_queue *q)
{
    pthread_mutex_init(&q->lock, NULL);
    q->me = q->family = -1;
    for (int i = 0; i < CHOIR__QUEUE_USERS; i++)
        q->pidfds[i] = -1;
    q->spawns = (choir__spawn_watcher){.before = expect,
        .child = arrive,
        .leaving = depart,
        .left = gone,
        .after = bury,
        .arg = q};
    choir__spawn_watch(&q->spawns);
}

void choir__queue_users_close(choir_tensor_queue *q)
{
    choir__spawn_unwatch(&q->spawns);
    leave(q);
    await_loans(q);
    forget_pidfds(q);
    pthread_mutex_destroy(&q->lock);
}
