/* NCCL for soft GPUs: the part that src/comm/nccl/ uses, with the real header.
 *
 * All ranks of a communicator map one memory file, which rank 0 created and which the id names
 * (/proc/PID/fd/N, so nothing is left behind). For each two ranks and each direction the file
 * has a mailbox for one letter; an exchange sends letters of a fixed size until all data are
 * through:
 *
 *     stream   | copy data to send from the GPU | host: letters | copy received data to it |
 *
 * The host's part waits for the peers without a limit, as NCCL's kernels do; ncclCommAbort ends
 * it. Each way to end a communicator waits until no graph is left that captured one of its
 * calls, as NCCL's does. A sum adds all ranks' data in the order of ranks.
 *
 * SOFTGPU_NCCL_SLOW=n: after each group of calls, n queries of its state find it in progress.
 * SOFTGPU_NCCL_FAIL=n: from the n-th group of calls on, a communicator reports a system error;
 * =id: ncclGetUniqueId fails. */
#include "gpu.h"

#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"

enum { MAX_RANKS = 8, LETTER = 16384, MAX_OPS = 4096 };

typedef struct mailbox {
    _Atomic uint64_t written, read;
    char letter[LETTER];
} mailbox;

typedef struct segment {
    atomic_int joined, finalized;
    mailbox from_to[MAX_RANKS][MAX_RANKS];
} segment;

typedef struct identity {
    uint32_t magic;
    int32_t process, fd;
} identity;

/* Communicators stay until the process ends: work that was never waited for refers to them. */
struct ncclComm {
    segment *shared;
    int rank, world, fd;
    atomic_bool aborted;
    bool finalizing, finalized;
    atomic_int groups;
    atomic_int slow; /* queries that are still answered with "in progress" */
    struct ncclComm *next;
};

static _Atomic(struct ncclComm *) all_comms;

/* One message of a job: its device memory, and its host memory on the way. */
typedef struct letter_op {
    bool sends;
    int peer;
    char *far, *near;
    size_t bytes, at;
} letter_op;

/* The work of a group of calls on a stream. It is kept, as a graph may run it again. */
typedef struct job {
    ncclComm_t comm;
    letter_op *ops;
    int count;
    /* a sum: near of op i is rank i's; into `sum` */
    char *sum;
    size_t sum_count;
    ncclDataType_t type;
    ncclRedOp_t op;
    struct job *next;
} job;

static _Atomic(job *) all_jobs;

static _Thread_local struct {
    int depth, count;
    letter_op *ops;
    ncclComm_t comm;
    cudaStream_t stream;
} group;

/* --- communicators --- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    identity id = {.magic = 0x50f7, .process = getpid()};
    const char *when = getenv("SOFTGPU_NCCL_FAIL");
    if (when && strcmp(when, "id") == 0)
        return ncclSystemError;
    id.fd = memfd_create("softnccl", MFD_CLOEXEC);
    if (id.fd < 0 || ftruncate(id.fd, sizeof(segment)))
        return ncclSystemError;
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *out, int world, ncclUniqueId unique, int rank, ncclConfig_t *config)
{
    identity id;
    char path[64];
    memcpy(&id, &unique, sizeof id);
    if (id.magic != 0x50f7 || world > MAX_RANKS || config->blocking)
        return ncclInvalidArgument;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", id.process, id.fd);
    int fd = id.process == getpid() ? id.fd : open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return ncclSystemError;
    struct ncclComm *c = calloc(1, sizeof *c);
    c->shared = p;
    c->rank = rank;
    c->world = world;
    c->fd = fd;
    c->next = atomic_load(&all_comms);
    while (!atomic_compare_exchange_weak(&all_comms, &c->next, c))
        ;
    atomic_fetch_add(&c->shared->joined, 1);
    *out = c;
    return ncclInProgress;
}

static bool fails_now(const struct ncclComm *c)
{
    const char *when = getenv("SOFTGPU_NCCL_FAIL");
    return when && atomic_load(&c->groups) >= atoi(when);
}

static bool captured(struct ncclComm *c);

/* Completes a finalization once no graph needs the communicator any more. Status queries call
 * it, as ncclCommFinalize does not wait. */
static void go_on_finalizing(ncclComm_t c)
{
    if (!c->finalizing || c->finalized || captured(c))
        return;
    c->finalized = true;
    atomic_fetch_add(&c->shared->finalized, 1);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    go_on_finalizing(c);
    bool there = atomic_load(&c->shared->joined) == c->world;
    bool over = !c->finalizing || atomic_load(&c->shared->finalized) == c->world;
    bool done = there && over && atomic_fetch_sub(&c->slow, 1) <= 0;
    *error = fails_now(c) ? ncclSystemError : done ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

static void count_group(ncclComm_t c)
{
    const char *slow = getenv("SOFTGPU_NCCL_SLOW");
    atomic_fetch_add(&c->groups, 1);
    atomic_store(&c->slow, slow ? atoi(slow) : 0);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    c->finalizing = true;
    return ncclInProgress;
}

static ncclResult_t end(ncclComm_t c)
{
    atomic_store(&c->aborted, true);
    while (captured(c))
        usleep(1000);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    return end(c);
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    return end(c);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess       ? "no error"
           : result == ncclSystemError ? "unhandled system error"
           : result == ncclInProgress  ? "in progress"
                                       : "some error";
}

/* --- letters --- */

static bool post(struct ncclComm *c, letter_op *o)
{
    mailbox *box = &c->shared->from_to[c->rank][o->peer];
    uint64_t written = atomic_load(&box->written);
    if (written != atomic_load(&box->read))
        return false;
    size_t n = o->bytes - o->at < LETTER ? o->bytes - o->at : LETTER;
    memcpy(box->letter, o->near + o->at, n);
    o->at += n;
    atomic_store(&box->written, written + 1);
    return true;
}

static bool fetch(struct ncclComm *c, letter_op *o)
{
    mailbox *box = &c->shared->from_to[o->peer][c->rank];
    uint64_t read = atomic_load(&box->read);
    if (read == atomic_load(&box->written))
        return false;
    size_t n = o->bytes - o->at < LETTER ? o->bytes - o->at : LETTER;
    memcpy(o->near + o->at, box->letter, n);
    o->at += n;
    atomic_store(&box->read, read + 1);
    return true;
}

/* Returns whether an earlier message between the same ranks is unfinished. */
static bool behind(const job *j, int i)
{
    for (int k = 0; k < i; k++)
        if (j->ops[k].peer == j->ops[i].peer && j->ops[k].sends == j->ops[i].sends &&
            j->ops[k].at < j->ops[k].bytes)
            return true;
    return false;
}

static void exchange(void *arg)
{
    job *j = arg;
    struct ncclComm *c = j->comm;
    for (int i = 0; i < j->count; i++)
        j->ops[i].at = 0;
    for (int left = 1; left;) {
        bool moved = false;
        left = 0;
        for (int i = 0; i < j->count; i++) {
            letter_op *o = &j->ops[i];
            if (o->at == o->bytes)
                continue;
            left++;
            if (!behind(j, i))
                moved |= o->sends ? post(c, o) : fetch(c, o);
        }
        if (atomic_load(&c->aborted))
            return;
        if (left && !moved)
            sched_yield();
    }
}

static void call_exchange(const void *args)
{
    exchange(*(job *const *)args);
}

/* --- sums --- */

static double number(const char *at, size_t i, ncclDataType_t type)
{
    uint16_t half;
    switch (type) {
    case ncclFloat64: return ((const double *)(const void *)at)[i];
    case ncclFloat32: return (double)((const float *)(const void *)at)[i];
    case ncclUint8: return (double)((const uint8_t *)at)[i];
    default: break;
    }
    memcpy(&half, at + 2 * i, 2);
    return (
        double)(type == ncclBfloat16 ? choir__f32_from_bf16(half) : choir__f32_from_f16(half));
}

static void set_number(char *at, size_t i, ncclDataType_t type, double value)
{
    uint16_t half;
    switch (type) {
    case ncclFloat64: ((double *)(void *)at)[i] = value; return;
    case ncclFloat32: ((float *)(void *)at)[i] = (float)value; return;
    case ncclUint8: ((uint8_t *)at)[i] = (uint8_t)value; return;
    default: break;
    }
    half = type == ncclBfloat16 ? choir__bf16_from_f32((float)value)
                                : choir__f16_from_f32((float)value);
    memcpy(at + 2 * i, &half, 2);
}

static size_t size_of(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclUint8 ? 1 : 2;
}

static void add_up(const job *j)
{
    for (size_t i = 0; i < j->sum_count && !atomic_load(&j->comm->aborted); i++) {
        double sum = 0;
        for (int k = 0, seen = 0; k < j->count; k++) {
            if (j->ops[k].sends)
                continue;
            double x = number(j->ops[k].near, i, j->type);
            sum = !seen++ ? x : j->op == ncclMax ? (x > sum ? x : sum) : sum + x;
        }
        if (j->op == ncclAvg)
            sum /= j->comm->world;
        set_number(j->sum, i, j->type, sum);
    }
}

/* --- jobs --- */

static void take_out(const void *args)
{
    const job *j = *(job *const *)args;
    for (int i = 0; i < j->count; i++)
        if (j->ops[i].sends)
            memcpy(j->ops[i].near, j->ops[i].far, j->ops[i].bytes);
}

static void put_in(const void *args)
{
    const job *j = *(job *const *)args;
    if (atomic_load(&j->comm->aborted))
        return;
    for (int i = 0; i < j->count; i++)
        if (!j->ops[i].sends && j->ops[i].far)
            memcpy(j->ops[i].far, j->ops[i].near, j->ops[i].bytes);
    if (j->sum)
        add_up(j);
}

static void call_host(const void *args)
{
    call_exchange(args);
}

static bool is_of(const void *args, const void *comm)
{
    return (*(job *const *)args)->comm == comm;
}

static bool captured(struct ncclComm *c)
{
    softgpu_lock();
    bool found = softgpu_captured(take_out, is_of, c);
    softgpu_unlock();
    return found;
}

static ncclResult_t issue(job *j, cudaStream_t handle)
{
    int gpu = softgpu_current();
    cudaError_t error = softgpu_enter();
    cudaStream_t s = softgpu_stream(handle);
    unsigned touches = 1u << gpu;
    if (!error)
        error = softgpu_issue(s, SOFTGPU_TASK, take_out, &j, sizeof j, touches, false);
    if (!error)
        error = softgpu_issue(s, SOFTGPU_HOST, call_host, &j, sizeof j, 0, false);
    if (!error)
        error = softgpu_issue(s, SOFTGPU_TASK, put_in, &j, sizeof j, touches, false);
    return softgpu_leave(error) ? ncclUnhandledCudaError : ncclSuccess;
}

static job *take_job(void)
{
    job *j = calloc(1, sizeof *j);
    j->comm = group.comm;
    j->count = group.count;
    j->ops = group.ops;
    for (int i = 0; i < j->count; i++)
        j->ops[i].near = malloc(j->ops[i].bytes ? j->ops[i].bytes : 1);
    j->next = atomic_load(&all_jobs);
    while (!atomic_compare_exchange_weak(&all_jobs, &j->next, j))
        ;
    group.ops = NULL;
    group.count = 0;
    return j;
}

ncclResult_t ncclGroupStart(void); /* the header has them without prototypes */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--group.depth || !group.count)
        return ncclSuccess;
    ncclComm_t comm = group.comm;
    ncclResult_t result = issue(take_job(), group.stream);
    count_group(comm);
    return result ? result : ncclInProgress;
}

static ncclResult_t add(
    bool sends, const void *far, size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream)
{
    if (group.count == MAX_OPS)
        return ncclInternalError;
    if (!group.ops)
        group.ops = calloc(MAX_OPS, sizeof *group.ops);
    group.comm = comm;
    group.stream = stream;
    group.ops[group.count++] = (letter_op){
        .sends = sends, .peer = peer, .far = (char *)(uintptr_t)far, .bytes = bytes};
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
    ncclComm_t comm, cudaStream_t stream)
{
    return add(true, data, count * size_of(type), peer, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t stream)
{
    return add(false, data, count * size_of(type), peer, comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
    int root, ncclComm_t comm, cudaStream_t stream)
{
    ncclGroupStart();
    for (int r = 0; r < comm->world && comm->rank == root; r++)
        add(true, in, count * size_of(type), r, comm, stream);
    add(false, out, count * size_of(type), root, comm, stream);
    return ncclGroupEnd();
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
    ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * size_of(type);
    ncclGroupStart();
    for (int r = 0; r < comm->world; r++)
        add(true, in, bytes, r, comm, stream);
    for (int r = 0; r < comm->world; r++)
        add(false, (char *)out + (size_t)r * bytes, bytes, r, comm, stream);
    return ncclGroupEnd();
}

/* Part r of `in` to rank r, unless stride is 0: all of it; the sum of what comes to out. */
static ncclResult_t sum(const void *in, size_t stride, void *out, size_t count,
    ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    bool here = root < 0 || root == comm->rank;
    for (int r = 0; r < comm->world; r++)
        if (root < 0 || r == root)
            add(true, (const char *)in + (size_t)r * stride, count * size_of(type), r, comm,
                stream);
    for (int r = 0; r < comm->world && here; r++)
        add(false, NULL, count * size_of(type), r, comm, stream);
    job *j = take_job();
    j->sum = here ? out : NULL;
    j->sum_count = here ? count : 0;
    j->type = type;
    j->op = op;
    count_group(comm);
    ncclResult_t result = issue(j, stream);
    return result ? result : ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return sum(in, 0, out, count, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return sum(in, 0, out, count, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return sum(in, count * size_of(type), out, count, type, op, -1, comm, stream);
}
