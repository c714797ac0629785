/* Reductions that keep the fixed tree: every rank receives all ranks' values of its slice
 * (all-to-all), adds them in the order of the tree, and the slices are gathered.
 *
 * A reduction over ranks is the tree over micro-batches with one micro-batch per rank, so both
 * share their code: a rank holds some nodes of the tree, stored one after another. */
#include "comm/mpi/mpi.h"

#include <string.h>

/* bytes of all peers; below this size, every rank adds everything */
enum { REPLICATED_BYTES = 64 << 10 };

/* One reduction: where this rank's nodes are stored, and how many each rank has. */
typedef struct job {
    const choir__call *call;
    size_t size, stride; /* bytes of an element; bytes from one node of this rank to the next */
    int64_t leaves, count;
    /* numbers of nodes: this rank's, the largest of a rank (at least 1), all ranks' */
    int mine, most, all;
    choir__reduction reduction;
} job;

static int nodes_of(const job *j, const choir__mpi *m, int rank, choir__node *nodes)
{
    int64_t lo, hi;
    choir__tree_run(j->leaves, rank, m->base.world, &lo, &hi);
    return choir__tree_nodes(lo, hi, nodes);
}

static void job_init(job *j, choir__mpi *m, const choir__call *call)
{
    bool tree = call->stamp.kind == CHOIR__TREE_REDUCE;
    bool mean = call->stamp.op == CHOIR_MEAN;
    choir__node nodes[CHOIR__MAX_NODES];
    *j = (job){.call = call,
        .size = choir_dtype_size((choir_dtype)call->stamp.dtype),
        .stride = call->node_stride,
        .most = 1,
        .leaves = tree ? call->stamp.leaves : m->base.world,
        .count = (int64_t)call->stamp.count};
    for (int r = 0; r < m->base.world; r++) {
        int n = nodes_of(j, m, r, nodes);
        if (j->all + n > m->nodes_room) {
            m->nodes_room = 2 * (j->all + n);
            m->nodes = choir__realloc(m->nodes, (size_t)m->nodes_room * sizeof *m->nodes);
            m->from = choir__realloc(m->from, (size_t)m->nodes_room * sizeof *m->from);
        }
        memcpy(m->nodes + j->all, nodes, (size_t)n * sizeof *nodes);
        j->all += n;
        j->most = n > j->most ? n : j->most;
        j->mine = r == m->base.rank ? n : j->mine;
    }
    j->reduction = (choir__reduction){.arith = choir__arith_find((choir_dtype)call->stamp.dtype,
                                          (choir_reduce_op)call->stamp.op),
        .nodes = m->nodes,
        .from = m->from,
        .sources = j->all,
        .outputs = 1,
        .scale = tree   ? (double)call->scale
                 : mean ? 1.0 / m->base.world
                        : 1,
        .divisor = mean ? m->base.world : 1};
}

/* Returns the address of element i of this rank's node k. */
static const char *own(const job *j, int k, int64_t i)
{
    return (const char *)j->call->in + (size_t)k * j->stride + (size_t)i * j->size;
}

/* Returns elements [first, first + n) of this rank's nodes, one node after another. */
static const char *pack(const job *j, int64_t first, int64_t n, char *to)
{
    if (j->mine <= 1)
        return own(j, 0, first);
    for (int k = 0; k < j->mine; k++)
        memcpy(to + (size_t)(k * n) * j->size, own(j, k, first), (size_t)n * j->size);
    return to;
}

/* to (n) = the tree over all ranks' nodes. The n elements of each of rank r's nodes are packed
 * at part(m, how, r); this rank's own stay where the caller has them, from `first` on. */
static void add_up(choir__mpi *m, job *j, int64_t first, int64_t n, char *to,
    const char *(*part)(const choir__mpi *m, const void *how, int rank), const void *how)
{
    choir__node nodes[CHOIR__MAX_NODES];
    for (int r = 0, i = 0; r < m->base.world; r++) {
        int count = nodes_of(j, m, r, nodes);
        for (int k = 0; k < count; k++)
            m->from[i++] = r == m->base.rank ? own(j, k, first)
                                             : part(m, how, r) + (size_t)(k * n) * j->size;
    }
    j->reduction.to = &to;
    choir__reduce(&j->reduction, m->scratch, 0, n);
}

static const char *in_entries(const choir__mpi *m, const void *how, int rank)
{
    (void)how;
    return choir__mpi_parcel_of(m, rank);
}

/* how of in_work: (world) offsets in m->work, in elements of `size` bytes. */
typedef struct places {
    const int *at;
    size_t size;
} places;

static const char *in_work(const choir__mpi *m, const void *how, int rank)
{
    const places *p = how;
    return m->work + (size_t)p->at[rank] * p->size;
}

/* Every rank receives everything and adds all of it: one exchange. */
static choir_status replicated(choir__mpi *m, job *j)
{
    int *counts = m->counts, *at = counts + m->base.world, n = (int)j->count, sum = 0;
    MPI_Datatype type = choir__mpi_carrier(j->size);
    size_t whole = (size_t)j->all * (size_t)j->count * j->size;
    choir__node nodes[CHOIR__MAX_NODES];
    if (choir__mpi_room(m, whole + (size_t)j->mine * (size_t)j->count * j->size) != CHOIR_OK)
        return m->base.failed;
    for (int r = 0; r < m->base.world; r++) {
        counts[r] = nodes_of(j, m, r, nodes) * n;
        at[r] = sum;
        sum += counts[r];
    }
    const char *mine = pack(j, 0, j->count, m->work + whole);
    if (CHOIR__MPI_RUN(m, MPI_Iallgatherv(mine, counts[m->base.rank], type, m->work, counts, at,
                              type, m->comm, &request_)) != CHOIR_OK)
        return m->base.failed;
    add_up(m, j, 0, j->count, j->call->out, in_work, &(places){at, j->size});
    choir__mpi_count_bytes(
        m, (size_t)(m->base.world - 1) * (size_t)counts[m->base.rank] * j->size);
    return CHOIR_OK;
}

/* Cuts n elements into one slice per rank. */
static void cut(const choir__mpi *m, const job *j, int64_t n, int *counts, int *at)
{
    for (int r = 0; r < m->base.world; r++) {
        int64_t lo, hi;
        choir__reduce_slice(n, j->size, r, m->base.world, &lo, &hi);
        counts[r] = (int)(hi - lo);
        at[r] = (int)lo;
    }
}

/* Reduces the chunk [first, first + n) slice by slice.
 *
 * work: | peers' nodes of my slice | my nodes, packed by slice | my sum, if it has no place |
 */
static choir_status sliced(choir__mpi *m, job *j, int64_t first, int64_t n)
{
    int world = m->base.world, me = m->base.rank;
    int *counts = m->counts, *at = counts + world, *got = at + world, *got_at = got + world;
    choir__node nodes[CHOIR__MAX_NODES];
    MPI_Datatype type = choir__mpi_carrier(j->size);
    bool all = j->call->stamp.kind != CHOIR__REDUCE;
    char *out = (char *)j->call->out + (size_t)first * j->size;
    cut(m, j, n, counts, at);
    int slice = counts[me], sum = 0;
    int64_t lo = at[me];
    for (int r = 0; r < world; r++) {
        got[r] = r == me ? 0 : nodes_of(j, m, r, nodes) * slice;
        got_at[r] = sum;
        sum += got[r];
    }
    size_t peers = (size_t)sum * j->size, packed = (size_t)(j->mine * n) * j->size;
    if (choir__mpi_room(m, peers + packed + (size_t)slice * j->size) != CHOIR_OK)
        return m->base.failed;
    char *place = m->work + peers;
    const char *from = j->mine == 1 ? own(j, 0, first) : place;
    for (int r = 0; r < world; r++) { /* the data that go to r */
        if (j->mine > 1)
            pack(j, first + at[r], counts[r], place + (size_t)(j->mine * at[r]) * j->size);
        counts[r] *= r == me ? 0 : j->mine;
        at[r] *= j->mine;
    }
    if (CHOIR__MPI_RUN(m, MPI_Ialltoallv(from, counts, at, type, m->work, got, got_at, type,
                              m->comm, &request_)) != CHOIR_OK)
        return m->base.failed;
    bool root = all || me == j->call->stamp.root;
    char *to = root ? out + (size_t)lo * j->size : m->work + peers + packed;
    add_up(m, j, first + lo, slice, to, in_work, &(places){got_at, j->size});
    cut(m, j, n, counts, at);
    choir__mpi_count_bytes(m, (size_t)(j->mine * (n - slice)) * j->size +
                                  (size_t)(all ? world - 1 : !root) * (size_t)slice * j->size);
    if (all)
        return CHOIR__MPI_RUN(m,
            MPI_Iallgatherv(MPI_IN_PLACE, 0, type, out, counts, at, type, m->comm, &request_));
    return CHOIR__MPI_RUN(m, MPI_Igatherv(root ? MPI_IN_PLACE : to, slice, type, out, counts,
                                 at, type, j->call->stamp.root, m->comm, &request_));
}

choir_status choir__mpi_reduce(choir__mpi *m, const choir__call *call)
{
    job j;
    job_init(&j, m, call);
    size_t bytes = (size_t)j.count * j.size;
    bool all = call->stamp.kind != CHOIR__REDUCE;
    bool mine = all || call->stamp.root == m->base.rank;
    bool small = bytes * (size_t)j.most <= choir__mpi_parcel_room(m, false);
    char packed[CHOIR__MPI_SMALL];
    choir__mpi_parcel parcel = {NULL, small ? bytes * (size_t)j.mine : 0, 0};
    if (parcel.bytes)
        parcel.data = pack(&j, 0, j.count, packed);
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    if (small) {
        if (mine && bytes)
            add_up(m, &j, 0, j.count, call->out, in_entries, NULL);
        return CHOIR_OK;
    }
    if (all && bytes * (size_t)j.all <= REPLICATED_BYTES)
        return replicated(m, &j);
    int64_t step = (int64_t)(CHOIR__MPI_CHUNK / j.size / (size_t)j.most);
    for (int64_t first = 0, n; first < j.count; first += n) {
        n = choir__min(step, j.count - first);
        if (sliced(m, &j, first, n) != CHOIR_OK)
            return m->base.failed;
    }
    return CHOIR_OK;
}

/* Adds up every rank's part for this rank. */
choir_status choir__mpi_reduce_scatter(choir__mpi *m, const choir__call *call)
{
    job j;
    job_init(&j, m, call);
    int world = m->base.world, me = m->base.rank;
    int *counts = m->counts, *at = counts + world, *got = at + world, *got_at = got + world;
    MPI_Datatype type = choir__mpi_carrier(j.size);
    size_t bytes = (size_t)j.count * j.size;
    bool small = bytes <= choir__mpi_parcel_room(m, true);
    choir__mpi_parcel parcel = {call->in, small ? bytes : 0, bytes};
    int64_t mine = me * j.count;
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    if (small) {
        if (bytes)
            add_up(m, &j, mine, j.count, call->out, in_entries, NULL);
        return CHOIR_OK;
    }
    if (choir__mpi_check_total(m, call->stamp.count) != CHOIR_OK)
        return m->base.failed;
    int64_t step = choir__max(1, (int64_t)CHOIR__MPI_CHUNK / (int64_t)j.size / world);
    for (int64_t first = 0, n; first < j.count; first += n) {
        n = choir__min(step, j.count - first);
        if (choir__mpi_room(m, (size_t)(world * n) * j.size) != CHOIR_OK)
            return m->base.failed;
        for (int r = 0; r < world; r++) {
            counts[r] = got[r] = r == me ? 0 : (int)n;
            at[r] = (int)(r * j.count + first);
            got_at[r] = (int)(r * n);
        }
        if (CHOIR__MPI_RUN(m, MPI_Ialltoallv(call->in, counts, at, type, m->work, got, got_at,
                                  type, m->comm, &request_)) != CHOIR_OK)
            return m->base.failed;
        add_up(m, &j, mine + first, n, (char *)call->out + (size_t)first * j.size, in_work,
            &(places){got_at, j.size});
    }
    choir__mpi_count_bytes(m, (size_t)(world - 1) * bytes);
    return CHOIR_OK;
}
