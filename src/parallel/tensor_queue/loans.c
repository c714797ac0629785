/* Device memory that other processes read and write, lent by the process that owns it.
 *
 *     owner                        message                 borrower
 *     loan: storage, end of pipe   handle, the other end   mapping: opened, the other end
 *
 * Every loan has a pipe to which no process writes. The other end travels with the device's
 * handle and stays with each process that opens the handle or passes it on. When the last of
 * them has closed it or died, or the message is dropped with its queue, the kernel reports a
 * hang-up to the owner. The owner then returns the memory to its pool: at its next call on a
 * queue, or when it leaves one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parallel/tensor_queue/tensor_queue.h"

typedef struct loan loan;
struct loan {
    uint64_t number;
    int end; /* end of the pipe; hung up: no other process has the memory any more */
    choir__storage *storage;
    const choir_tensor_queue *queue;
    bool back; /* no process has it open; only then is its GPU told */
    loan *next;
};

static struct {
    pthread_mutex_t lock;
    uint64_t count;
    loan *list;
} loans = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A mapping whose descriptor keeps a loan alive. */
typedef struct borrowed {
    choir__mapping mapping;
    choir__queue_memory memory;
    const choir__far *far;
    void *opened; /* NULL: memory of this process */
} borrowed;

/* --- borrowed --- */

static void drop(choir__mapping *m)
{
    borrowed *b = (borrowed *)m;
    if (b->opened)
        b->far->close(b->opened);
    close(m->fd); /* from now on the owner may reuse the memory */
    free(b);
}

static choir__mapping *borrow(
    const choir__queue_memory *memory, int fd, const choir__far *far, void *opened, void *at)
{
    borrowed *b = choir__alloc(sizeof *b);
    *b = (borrowed){.memory = *memory, .far = far, .opened = opened};
    b->mapping = (choir__mapping){
        .refs = 1, .fd = fd, .at = at, .bytes = (size_t)memory->bytes, .drop = drop};
    return &b->mapping;
}

choir__mapping *choir__loan_open(
    choir_device *device, const choir__queue_memory *memory, int fd)
{
    char *opened = device->far->open(device, &memory->handle);
    if (opened)
        return borrow(memory, fd, device->far, opened, opened + memory->at);
    close(fd);
    return NULL;
}

/* --- lent --- */

static choir_status lend(choir_tensor_queue *q, choir__storage *storage,
    choir__queue_memory *memory, choir__mapping **mapping)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return choir__error(CHOIR_ERR_IO, "tensor queue: no pipe: %s", strerror(errno));
    loan *l = choir__alloc(sizeof *l);
    pthread_mutex_lock(&loans.lock);
    *l = (loan){.number = ++loans.count,
        .end = ends[0],
        .storage = choir__storage_ref(storage),
        .queue = q,
        .next = loans.list};
    loans.list = l;
    pthread_mutex_unlock(&loans.lock);
    memory->loan = l->number;
    *mapping = borrow(memory, ends[1], storage->device->far, NULL, storage->data);
    return CHOIR_OK;
}

choir_status choir__loan_new(choir_tensor_queue *q, choir__storage *storage,
    choir__queue_memory *memory, choir__mapping **mapping)
{
    size_t at = 0;
    if (storage->mapping) { /* another process's memory: passes its loan on */
        *memory = ((borrowed *)storage->mapping)->memory;
        *mapping = choir__mapping_ref(storage->mapping);
        return CHOIR_OK;
    }
    *memory = (choir__queue_memory){.owner = (int32_t)getpid(), .bytes = storage->bytes};
    choir_status status = storage->device->far->show(storage->data, &memory->handle, &at);
    memory->at = at;
    if (status != CHOIR_OK)
        return status;
    status = lend(q, storage, memory, mapping);
    if (status != CHOIR_OK)
        storage->device->far->hide(storage->data);
    return status;
}

choir__storage *choir__loan_find(uint64_t number)
{
    choir__storage *found = NULL;
    pthread_mutex_lock(&loans.lock);
    for (loan *l = loans.list; l && !found; l = l->next)
        if (l->number == number)
            found = choir__storage_ref(l->storage);
    pthread_mutex_unlock(&loans.lock);
    return found;
}

static bool is_back(const loan *l)
{
    struct pollfd polled = {.fd = l->end};
    return poll(&polled, 1, 0) == 1;
}

/* Takes back the loans that have been released and, if all is set, all loans of q. Returns true
 * if q still has some. */
static bool collect(const choir_tensor_queue *q, bool all)
{
    bool some = false;
    loan *back = NULL, *l;
    pthread_mutex_lock(&loans.lock);
    for (loan **link = &loans.list; (l = *link);) {
        l->back = is_back(l);
        if (l->back || (all && l->queue == q)) {
            *link = l->next;
            l->next = back;
            back = l;
        } else {
            some |= l->queue == q;
            link = &l->next;
        }
    }
    pthread_mutex_unlock(&loans.lock);
    while ((l = back)) {
        back = l->next;
        if (l->back)
            l->storage->device->far->hide(l->storage->data);
        choir__storage_unref(l->storage);
        close(l->end);
        free(l);
    }
    return some;
}

bool choir__loans_collect(const choir_tensor_queue *q)
{
    return collect(q, false);
}

void choir__loans_end(const choir_tensor_queue *q)
{
    collect(q, true);
}
