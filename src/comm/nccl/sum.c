/* Sums of far data. The default is exact: slices go all-to-all, each rank adds its own in the
 * tree's order, and all ranks receive all slices, which moves as many bytes as a ring. `native`
 * is NCCL's own way.
 *
 *     data     | 0 | 1 | 2 |         scratch of rank 1   | 1 of rank 0 | 1 of rank 2 |
 *                    ^ mine, and the peers' copies of it: add, then to all
 *
 * Small data go whole to every rank, and every rank adds all of them: one exchange, not two. */
#include "comm/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE = 32 * 1024 /* bytes; below this a second exchange does not pay */ };

/* The tree's nodes that all ranks hold, rank by rank. */
typedef struct sources {
    choir__node nodes[CHOIR__NCCL_SOURCES];
    /* (world + 1) rank r's nodes are [first[r], first[r + 1]) */
    int first[CHOIR__NCCL_SOURCES + 1];
    int count;
} sources;

/* Returns false if there are too many nodes, or more leaves than the depth of add.cu's stack
 * allows. All reductions but the tree's have one node per rank. */
static bool find_sources(const choir__nccl *n, const choir__call *call, sources *s)
{
    choir__node nodes[CHOIR__MAX_NODES];
    int world = n->base.world;
    bool tree =
        call->stamp.kind == CHOIR__TREE_REDUCE || call->stamp.kind == CHOIR__TREE_SCATTER;
    s->count = 0;
    if (world >= CHOIR__NCCL_SOURCES || (tree && call->stamp.leaves >> CHOIR__NCCL_DEPTH))
        return false;
    for (int r = 0; r < world; r++) {
        int64_t lo, hi;
        int found = 1;
        nodes[0] = (choir__node){r, 1};
        if (call->stamp.kind == CHOIR__TREE_REDUCE) {
            choir__tree_run(call->stamp.leaves, r, world, &lo, &hi);
            found = choir__tree_nodes(lo, hi, nodes);
        } else if (call->stamp.kind == CHOIR__TREE_SCATTER) {
            found = choir__scatter_nodes(call->rows, r, world, nodes);
        }
        s->first[r] = s->count;
        if (s->count + found > CHOIR__NCCL_SOURCES)
            return false;
        memcpy(s->nodes + s->count, nodes, (size_t)found * sizeof *nodes);
        s->count += found;
    }
    s->first[world] = s->count;
    return true;
}

static int nodes_of(const sources *s, int rank)
{
    return s->first[rank + 1] - s->first[rank];
}

/* Plans which neighbors are joined after each source, in the way of choir__reduce. */
static void plan_merges(
    const choir__node *nodes, int count, uint8_t merges[CHOIR__NCCL_SOURCES])
{
    choir__node stack[CHOIR__NCCL_SOURCES];
    int top = 0;
    for (int i = 0; i < count; i++) {
        bool last = i == count - 1;
        stack[top++] = nodes[i];
        merges[i] = 0;
        while (top > 1 && (last || choir__tree_siblings(stack[top - 2], stack[top - 1]))) {
            stack[top - 2].leaves += stack[top - 1].leaves;
            top--;
            merges[i]++;
        }
    }
}

static choir_status add(choir__nccl *n, choir__nccl_addition *a, const choir__node *nodes)
{
    if (!a->n)
        return CHOIR_OK;
    plan_merges(nodes, a->sources, a->merges);
    return choir__nccl_cuda(n, choir__nccl_launch_add(a, n->stream), "a sum");
}

/* --- which calls --- */

static bool adds(choir__kind kind)
{
    return kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE ||
           kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__TREE_REDUCE ||
           kind == CHOIR__TREE_SCATTER;
}

/* Takes all moves, and sums and means of floats. Other reductions go through the host. */
bool choir__nccl_takes(const choir__engine *engine, const choir__call *call)
{
    const choir__stamp *s = &call->stamp;
    sources all;
    if (s->kind == CHOIR__BARRIER || s->kind == CHOIR__SHARE)
        return false;
    if (!adds((choir__kind)s->kind))
        return true;
    bool floats = s->dtype == CHOIR_F32 || s->dtype == CHOIR_F64 || s->dtype == CHOIR_BF16 ||
                  s->dtype == CHOIR_F16;
    return floats && (s->op == CHOIR_SUM || s->op == CHOIR_MEAN) &&
           find_sources((const choir__nccl *)engine, call, &all);
}

/* --- the exact exchange --- */

typedef struct job {
    choir__nccl *n;
    const choir__call *call;
    sources all;
    const char *in;
    size_t stride; /* bytes between this rank's nodes */
    size_t size;
    int64_t count;
    double scale;
} job;

static choir__nccl_addition addition(const job *j, void *out, int64_t count)
{
    return (choir__nccl_addition){.out = out,
        .n = count,
        .scale = j->scale,
        .sources = j->all.count,
        .dtype = j->call->stamp.dtype};
}

/* Adds up elements [lo, lo + each) of all ranks' nodes into out. This rank's nodes are read in
 * place, the others' from scratch, rank by rank. */
static choir_status add_slice(
    const job *j, const char *scratch, int64_t lo, int64_t each, void *out)
{
    int rank = j->n->base.rank;
    size_t at = 0;
    choir__nccl_addition a = addition(j, out, each);
    for (int r = 0; r < j->n->base.world; r++)
        for (int k = 0; k < nodes_of(&j->all, r); k++) {
            bool mine = r == rank;
            a.from[j->all.first[r] + k] =
                mine ? j->in + (size_t)k * j->stride + (size_t)lo * j->size : scratch + at;
            at += mine ? 0 : (size_t)each * j->size;
        }
    return add(j->n, &a, j->all.nodes);
}

/* Sends all nodes of all ranks to each; then each adds all of them, or only the rank with
 * `here`. */
static choir_status sum_whole(const job *j, void *out, bool here)
{
    choir__nccl *n = j->n;
    int rank = n->base.rank, others = j->all.count - nodes_of(&j->all, rank);
    size_t bytes = (size_t)j->count * j->size, at = 0;
    char *scratch = choir__nccl_scratch(n, (size_t)others * bytes + 1);
    if (!scratch)
        return choir__nccl_stopped(n);
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world; r++) {
        if (r == rank)
            continue;
        for (int k = 0; k < nodes_of(&j->all, rank); k++)
            choir__nccl_send(n, j->in + (size_t)k * j->stride, bytes, r);
        for (int k = 0; k < nodes_of(&j->all, r); k++, at += bytes)
            choir__nccl_receive(n, scratch + at, bytes, r);
    }
    if (choir__nccl_end(n) != CHOIR_OK)
        return choir__nccl_stopped(n);
    return here ? add_slice(j, scratch, 0, j->count, out) : CHOIR_OK;
}

/* Returns the size of the slice that `rank` adds, and sets *lo to its start. */
static int64_t slice_of(const job *j, int rank, int64_t *lo)
{
    int64_t hi;
    choir__reduce_slice(j->count, j->size, rank, j->n->base.world, lo, &hi);
    return hi - *lo;
}

/* Sends the slices to their owners, and adds up this rank's slice into place(). */
static choir_status sum_slices(const job *j, int64_t *lo, int64_t *mine, char **scratch,
    char *(*place)(const job *j, char *scratch, int64_t lo))
{
    choir__nccl *n = j->n;
    int rank = n->base.rank, others = j->all.count - nodes_of(&j->all, rank);
    size_t at = 0;
    *mine = slice_of(j, rank, lo);
    size_t own = (size_t)*mine * j->size;
    *scratch = choir__nccl_scratch(n, (size_t)(others + 1) * own + 64);
    if (!*scratch)
        return choir__nccl_stopped(n);
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world; r++) {
        int64_t theirs, each = slice_of(j, r, &theirs);
        if (r == rank)
            continue;
        for (int k = 0; k < nodes_of(&j->all, rank); k++)
            choir__nccl_send(n, j->in + (size_t)k * j->stride + (size_t)theirs * j->size,
                (size_t)each * j->size, r);
        for (int k = 0; k < nodes_of(&j->all, r); k++, at += own)
            choir__nccl_receive(n, *scratch + at, own, r);
    }
    if (choir__nccl_end(n) != CHOIR_OK)
        return choir__nccl_stopped(n);
    return add_slice(j, *scratch, *lo, *mine, place(j, *scratch + at, *lo));
}

static char *in_place(const job *j, char *scratch, int64_t lo)
{
    (void)scratch;
    return (char *)j->call->out + (size_t)lo * j->size;
}

static char *aside(const job *j, char *scratch, int64_t lo)
{
    (void)j, (void)lo;
    return scratch;
}

static choir_status all_reduce(const job *j)
{
    choir__nccl *n = j->n;
    char *out = j->call->out, *scratch;
    int64_t lo, mine;
    if ((size_t)j->count * j->size <= WHOLE)
        return sum_whole(j, out, true);
    if (sum_slices(j, &lo, &mine, &scratch, in_place) != CHOIR_OK)
        return choir__nccl_stopped(n);
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world; r++) {
        int64_t theirs, each = slice_of(j, r, &theirs);
        if (r == n->base.rank)
            continue;
        choir__nccl_send(n, out + (size_t)lo * j->size, (size_t)mine * j->size, r);
        choir__nccl_receive(n, out + (size_t)theirs * j->size, (size_t)each * j->size, r);
    }
    return choir__nccl_end(n);
}

/* The other ranks' data remain unchanged. */
static choir_status reduce(const job *j)
{
    choir__nccl *n = j->n;
    int root = j->call->stamp.root;
    bool here = n->base.rank == root;
    char *out = j->call->out, *scratch;
    int64_t lo, mine;
    if ((size_t)j->count * j->size <= WHOLE)
        return sum_whole(j, out, here);
    if (sum_slices(j, &lo, &mine, &scratch, here ? in_place : aside) != CHOIR_OK)
        return choir__nccl_stopped(n);
    int others = j->all.count - nodes_of(&j->all, n->base.rank);
    char *sum = scratch + (size_t)others * (size_t)mine * j->size;
    choir__nccl_calls.GroupStart();
    if (!here)
        choir__nccl_send(n, sum, (size_t)mine * j->size, root);
    for (int r = 0; r < n->base.world && here; r++) {
        int64_t theirs, each = slice_of(j, r, &theirs);
        if (r != root)
            choir__nccl_receive(n, out + (size_t)theirs * j->size, (size_t)each * j->size, r);
    }
    return choir__nccl_end(n);
}

/* The slices are the parts: one per rank, of `count` elements each. */
static choir_status reduce_scatter(job *j)
{
    choir__nccl *n = j->n;
    int rank = n->base.rank;
    size_t bytes = (size_t)j->count * j->size, at = 0;
    char *scratch = choir__nccl_scratch(n, (size_t)n->base.world * bytes + 1);
    if (!scratch)
        return choir__nccl_stopped(n);
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world; r++) {
        if (r == rank)
            continue;
        choir__nccl_send(n, j->in + (size_t)r * bytes, bytes, r);
        choir__nccl_receive(n, scratch + at, bytes, r);
        at += bytes;
    }
    if (choir__nccl_end(n) != CHOIR_OK)
        return choir__nccl_stopped(n);
    return add_slice(j, scratch, (int64_t)rank * j->count, j->count, j->call->out);
}

/* --- rows --- */

/* Adds up one cut: this rank's rows of all nodes, into its place in the result. Results that
 * are several nodes of the tree are stored apart. */
static choir_status add_rows(
    const job *j, const choir__tree_scatter *a, const choir__rows_cut *cut, const char *scratch)
{
    choir__nccl *n = j->n;
    choir__node results[CHOIR__MAX_NODES];
    int64_t lo, own = choir__cut_part(cut, n->base.rank, n->base.world, &lo);
    int count = choir__scatter_results(a, results), rank = n->base.rank;
    size_t at = 0;
    const void *from[CHOIR__NCCL_SOURCES];
    for (int r = 0; r < n->base.world; r++)
        for (int k = 0; k < nodes_of(&j->all, r); k++) {
            from[j->all.first[r] + k] =
                r == rank ? j->in + (size_t)k * j->stride + (size_t)(cut->at + lo) * j->size
                          : scratch + at;
            at += r == rank ? 0 : (size_t)own * j->size;
        }
    for (int k = 0, i = 0, end; k < count; k++, i = end) {
        int64_t last = results[k].start + results[k].leaves;
        choir__nccl_addition sum = addition(
            j, (char *)a->out + (size_t)cut->out * j->size + (size_t)k * a->out_stride, own);
        for (end = i; end < j->all.count && j->all.nodes[end].start < last;)
            end++;
        sum.sources = end - i;
        memcpy(sum.from, from + i, (size_t)(end - i) * sizeof *from);
        if (add(n, &sum, j->all.nodes + i) != CHOIR_OK)
            return choir__nccl_stopped(n);
    }
    return CHOIR_OK;
}

/* Cuts [first, end): sends every rank its rows of this rank's nodes, and receives this rank's
 * rows of theirs in scratch. */
static choir_status scatter_cuts(
    const job *j, const choir__tree_scatter *a, int first, int end, char *scratch)
{
    choir__nccl *n = j->n;
    int rank = n->base.rank, world = n->base.world;
    choir__nccl_calls.GroupStart();
    for (int i = first; i < end; i++)
        for (int r = 0; r < world; r++) {
            int64_t lo, theirs = choir__cut_part(&a->cuts[i], r, world, &lo), from;
            if (r == rank)
                continue;
            for (int k = 0; k < nodes_of(&j->all, rank); k++)
                choir__nccl_send(n,
                    j->in + (size_t)k * j->stride + (size_t)(a->cuts[i].at + lo) * j->size,
                    (size_t)theirs * j->size, r);
            size_t part = (size_t)choir__cut_part(&a->cuts[i], rank, world, &from) * j->size;
            for (int k = 0; k < nodes_of(&j->all, r); k++, scratch += part)
                choir__nccl_receive(n, scratch, part, r);
        }
    return choir__nccl_end(n);
}

choir_status choir__nccl_tree_scatter(choir__nccl *n, const choir__call *call)
{
    const choir__tree_scatter *a = call->rows;
    job j = {.n = n,
        .call = call,
        .in = a->nodes,
        .stride = a->node_stride,
        .size = choir_dtype_size(a->dtype),
        .scale = a->scale};
    int rank = n->base.rank, world = n->base.world;
    find_sources(n, call, &j.all);
    int others = j.all.count - nodes_of(&j.all, rank);
    size_t own = (size_t)choir__cuts_part(a->cuts, a->cut_count, rank, world) * j.size;
    char *scratch = choir__nccl_scratch(n, (size_t)others * own + 1);
    if (!scratch)
        return choir__nccl_stopped(n);
    for (int first = 0; first < a->cut_count; first += CHOIR__NCCL_CUTS) {
        int end = choir__min(first + CHOIR__NCCL_CUTS, a->cut_count);
        size_t before = (size_t)choir__cuts_part(a->cuts, first, rank, world) * j.size;
        if (scatter_cuts(&j, a, first, end, scratch + (size_t)others * before) != CHOIR_OK)
            return choir__nccl_stopped(n);
    }
    for (int i = 0; i < a->cut_count; i++) {
        int64_t lo, part = choir__cut_part(&a->cuts[i], rank, world, &lo);
        if (add_rows(&j, a, &a->cuts[i], scratch) != CHOIR_OK)
            return choir__nccl_stopped(n);
        scratch += (size_t)others * (size_t)part * j.size;
    }
    return CHOIR_OK;
}

/* --- NCCL's own --- */

static ncclDataType_t type_of(choir_dtype dtype)
{
    return dtype == CHOIR_F64    ? ncclFloat64
           : dtype == CHOIR_BF16 ? ncclBfloat16
           : dtype == CHOIR_F16  ? ncclFloat16
                                 : ncclFloat32;
}

/* First adds up the tree's nodes on this rank into one array; the scale comes last. */
static choir_status native_tree(job *j)
{
    choir__nccl *n = j->n;
    int own = nodes_of(&j->all, n->base.rank), first = j->all.first[n->base.rank];
    double scale = j->scale;
    j->scale = 1;
    choir__nccl_addition mine = addition(j, j->call->out, j->count);
    mine.sources = own;
    for (int k = 0; k < own; k++)
        mine.from[k] = j->in + (size_t)k * j->stride;
    if (own != 1 && add(n, &mine, j->all.nodes + first) != CHOIR_OK)
        return choir__nccl_stopped(n);
    if (choir__nccl_done(n,
            choir__nccl_calls.AllReduce(j->call->out, j->call->out, (size_t)j->count,
                ncclFloat32, ncclSum, n->comm, n->stream),
            "an all-reduce") != CHOIR_OK)
        return choir__nccl_stopped(n);
    choir__nccl_addition scaled = addition(j, j->call->out, j->count);
    scaled.sources = 1;
    scaled.from[0] = j->call->out;
    scaled.scale = scale;
    return scale == 1 ? CHOIR_OK : add(n, &scaled, &(choir__node){0, 1});
}

static choir_status native(job *j)
{
    choir__nccl *n = j->n;
    const choir__call *call = j->call;
    ncclDataType_t type = type_of((choir_dtype)call->stamp.dtype);
    ncclRedOp_t op = call->stamp.op == CHOIR_MEAN ? ncclAvg : ncclSum;
    size_t count = (size_t)j->count;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__TREE_REDUCE: return native_tree(j);
    case CHOIR__REDUCE:
        return choir__nccl_done(n,
            choir__nccl_calls.Reduce(
                call->out, call->out, count, type, op, call->stamp.root, n->comm, n->stream),
            "a reduction");
    case CHOIR__REDUCE_SCATTER:
        return choir__nccl_done(n,
            choir__nccl_calls.ReduceScatter(
                call->in, call->out, count, type, op, n->comm, n->stream),
            "a reduce-scatter");
    default:
        return choir__nccl_done(n,
            choir__nccl_calls.AllReduce(
                call->out, call->out, count, type, op, n->comm, n->stream),
            "an all-reduce");
    }
}

choir_status choir__nccl_sum(choir__nccl *n, const choir__call *call)
{
    job j = {.n = n,
        .call = call,
        .in = call->in,
        .stride = call->node_stride,
        .size = choir_dtype_size((choir_dtype)call->stamp.dtype),
        .count = (int64_t)call->stamp.count,
        .scale = 1};
    if (call->stamp.op == CHOIR_MEAN)
        j.scale = 1.0 / n->base.world;
    if (call->stamp.kind == CHOIR__TREE_REDUCE)
        j.scale = (double)call->scale;
    find_sources(n, call, &j.all);
    if (!j.count)
        return CHOIR_OK;
    if (call->stamp.algorithm == CHOIR__NATIVE)
        return native(&j);
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__REDUCE: return reduce(&j);
    case CHOIR__REDUCE_SCATTER: return reduce_scatter(&j);
    default: return all_reduce(&j);
    }
}
