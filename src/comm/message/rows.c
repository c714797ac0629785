/* Collectives on rows over messages: packed, moved piece by piece, unpacked.
 *
 * A rank's rows of all cuts, concatenated, are its part. A piece is the same range of every
 * rank's part, so only a few MiB are in flight between two ranks' memories, however large the
 * parts are:
 *
 *      part of rank 0   | piece 0 | piece 1 | p |      all ranks have as many pieces as the
 *      part of rank 1   | piece 0 | piece 1 |          longest part; some are shorter, or empty
 */
#include "comm/message/message.h"

#include <stdlib.h>
#include <string.h>

#include "comm/rows.h"

enum { STAGED = 16 << 20 /* bytes per piece, over all ranks */ };

typedef struct job {
    choir__engine *engine;
    const choir__call *call;
    choir__rows_mover *carry;
    const choir__rows_cut *cuts;
    int cut_count, rank, world;
    size_t size;  /* bytes of an element */
    int64_t each; /* elements per piece */
    char *in, *out, *scratch;
} job;

/* Returns the elements of a rank's piece that begins at `first` of its part. */
static int64_t piece(const job *j, int rank, int64_t first)
{
    int64_t part = choir__cuts_part(j->cuts, j->cut_count, rank, j->world);
    return choir__max(0, choir__min(part - first, j->each));
}

static int64_t longest(const job *j)
{
    int64_t most = 0;
    for (int r = 0; r < j->world; r++)
        most = choir__max(most, choir__cuts_part(j->cuts, j->cut_count, r, j->world));
    return most;
}

/* A contiguous run of elements of a piece: it begins at `at` in the piece, at `in_block` in the
 * cut's block, and at `in_part` in the rank's rows of that cut. */
typedef struct stretch {
    const choir__rows_cut *cut;
    int64_t at, in_block, in_part, count;
} stretch;

/* Finds cut i's stretch of [first, first + n) of a rank's part; *begin is where the cut begins
 * in that part. */
static bool stretch_of(
    const job *j, int rank, int i, int64_t first, int64_t n, int64_t *begin, stretch *s)
{
    int64_t lo, count = choir__cut_part(&j->cuts[i], rank, j->world, &lo);
    int64_t from = choir__max(*begin, first), to = choir__min(*begin + count, first + n);
    *s = (stretch){&j->cuts[i], from - first, lo + from - *begin, from - *begin, to - from};
    *begin += count;
    return s->count > 0;
}

/* Lets the engine move the data in j->in. count: elements; per rank in an all-gather. */
static choir_status move(
    const job *j, uint64_t count, const int64_t *in_counts, const int64_t *out_counts)
{
    choir__call call = {.stamp = j->call->stamp,
        .in = j->in,
        .out = j->out,
        .in_counts = in_counts,
        .out_counts = out_counts};
    call.stamp.count = count;
    return j->carry(j->engine, &call);
}

static choir_status settle(job *j, int64_t elements_in, int64_t elements_out)
{
    /* Never 0, which would mean in place. */
    size_t in = ((size_t)elements_in * j->size + 127) / 64 * 64;
    size_t out = ((size_t)elements_out * j->size + 63) / 64 * 64;
    j->scratch = choir__executor_staging(j->engine, CHOIR__REDUCE_SCRATCH + in + out);
    if (!j->scratch)
        return j->engine->failed;
    j->in = j->scratch + CHOIR__REDUCE_SCRATCH;
    j->out = j->in + in;
    return CHOIR_OK;
}

/* Returns the elements per piece of each rank's part if a rank buffers `times` copies of
 * them. */
static int64_t piece_elements(const job *j, int64_t times)
{
    int64_t each = STAGED / ((int64_t)j->size * j->world * times) / 16 * 16;
    return choir__min(choir__max(each, 1024), choir__max(longest(j), 1));
}

/* --- tree_scatter --- */

/* All ranks' nodes in the tree's order, and their owners. */
typedef struct sources {
    choir__node *nodes;
    const char **from;
    int *owners, *numbers; /* source i is node numbers[i] of rank owners[i] */
    int *first;            /* (world + 1) rank r's are [first[r], first[r + 1]) */
    int count;
} sources;

static sources sources_of(const choir__tree_scatter *a, int world)
{
    choir__node nodes[CHOIR__MAX_NODES];
    sources s = {.first = choir__calloc((size_t)world + 1, sizeof(int))};
    for (int r = 0; r < world; r++)
        s.first[r + 1] = s.first[r] + choir__scatter_nodes(a, r, world, nodes);
    s.count = s.first[world];
    s.nodes = choir__calloc((size_t)s.count, sizeof *s.nodes);
    s.from = choir__calloc((size_t)s.count, sizeof *s.from);
    s.owners = choir__calloc((size_t)s.count, sizeof *s.owners);
    s.numbers = choir__calloc((size_t)s.count, sizeof *s.numbers);
    for (int r = 0; r < world; r++) {
        int n = choir__scatter_nodes(a, r, world, nodes);
        memcpy(s.nodes + s.first[r], nodes, (size_t)n * sizeof *nodes);
        for (int k = 0; k < n; k++) {
            s.owners[s.first[r] + k] = r;
            s.numbers[s.first[r] + k] = k;
        }
    }
    return s;
}

static void sources_free(sources *s)
{
    free(s->nodes);
    free(s->from);
    free(s->owners);
    free(s->numbers);
    free(s->first);
}

static const char *node_at(const choir__tree_scatter *a, int k, int64_t element)
{
    return (const char *)a->nodes + (size_t)k * a->node_stride +
           (size_t)element * choir_dtype_size(a->dtype);
}

/* Packs the rows of this rank's nodes for every other rank's piece, rank by rank. */
static void pack_nodes(
    const job *j, const choir__tree_scatter *a, int nodes, int64_t first, int64_t *counts)
{
    char *to = j->in;
    for (int r = 0; r < j->world; r++) {
        int64_t n = r == j->rank ? 0 : piece(j, r, first);
        counts[r] = n * nodes;
        for (int k = 0; k < nodes && n; k++, to += (size_t)n * j->size)
            for (int64_t i = 0, begin = 0; i < j->cut_count; i++) {
                stretch s;
                if (stretch_of(j, r, (int)i, first, n, &begin, &s))
                    memcpy(to + (size_t)s.at * j->size, node_at(a, k, s.cut->at + s.in_block),
                        (size_t)s.count * j->size);
            }
    }
}

/* Adds this rank's piece of all ranks' nodes: its own in place, the others' in j->out. */
static void add_piece(
    const job *j, const choir__tree_scatter *a, sources *all, int64_t first, int64_t n)
{
    int before = all->first[j->rank], own = all->first[j->rank + 1] - before;
    for (int64_t c = 0, begin = 0; c < j->cut_count; c++) {
        stretch s;
        if (!stretch_of(j, j->rank, (int)c, first, n, &begin, &s))
            continue;
        for (int i = 0; i < all->count; i++) {
            int64_t place = (i < before ? i : i - own) * n + s.at;
            all->from[i] = all->owners[i] == j->rank
                               ? node_at(a, all->numbers[i], s.cut->at + s.in_block)
                               : j->out + (size_t)place * j->size;
        }
        char *to = (char *)a->out + (size_t)(s.cut->out + s.in_part) * j->size;
        choir__scatter_add(a, all->nodes, all->from, all->count, to, s.count, j->scratch);
    }
}

static choir_status tree_scatter(job *j, const choir__tree_scatter *a)
{
    sources all = sources_of(a, j->world);
    int mine = all.first[j->rank + 1] - all.first[j->rank];
    int64_t *counts = choir__calloc(2 * (size_t)j->world, sizeof *counts), end = longest(j);
    int64_t *got = counts + j->world;
    int most = 1;
    for (int r = 0; r < j->world; r++)
        most = choir__max(most, all.first[r + 1] - all.first[r]);
    j->each = piece_elements(j, most);
    choir_status status = settle(j, j->each * j->world * mine, j->each * all.count);
    for (int64_t first = 0; first < choir__max(end, 1) && status == CHOIR_OK;
         first += j->each) {
        int64_t n = piece(j, j->rank, first);
        pack_nodes(j, a, mine, first, counts);
        for (int r = 0; r < j->world; r++)
            got[r] = r == j->rank ? 0 : n * (all.first[r + 1] - all.first[r]);
        status = move(j, j->call->stamp.count, counts, got);
        if (status == CHOIR_OK)
            add_piece(j, a, &all, first, n);
    }
    free(counts);
    sources_free(&all);
    return status;
}

/* --- gather_rows --- */

/* Returns the address of this rank's rows: in a->mine, or in place in a->all. */
static const char *own_rows(const job *j, const choir__gather_rows *a, const stretch *s)
{
    return a->mine ? (const char *)a->mine + (size_t)(s->cut->out + s->in_part) * j->size
                   : (const char *)a->all + (size_t)(s->cut->at + s->in_block) * j->size;
}

static void unpack(const job *j, const choir__gather_rows *a, int rank, int64_t first)
{
    int64_t n = piece(j, rank, first);
    const char *from = j->out + (size_t)(rank * j->each) * j->size;
    for (int64_t i = 0, begin = 0; i < j->cut_count; i++) {
        stretch s;
        if (!stretch_of(j, rank, (int)i, first, n, &begin, &s))
            continue;
        char *to = (char *)a->all + (size_t)(s.cut->at + s.in_block) * j->size;
        const char *rows = rank == j->rank ? own_rows(j, a, &s) : from + (size_t)s.at * j->size;
        if (to != rows)
            memmove(to, rows, (size_t)s.count * j->size);
    }
}

static choir_status gather_rows(job *j, const choir__gather_rows *a)
{
    int64_t end = longest(j);
    j->each = piece_elements(j, 1);
    if (settle(j, 0, j->each * j->world) != CHOIR_OK)
        return j->engine->failed;
    /* The rank's place in the gathered piece. */
    j->in = j->out + (size_t)(j->rank * j->each) * j->size;
    for (int64_t first = 0; first < choir__max(end, 1); first += j->each) {
        int64_t n = piece(j, j->rank, first);
        for (int64_t i = 0, begin = 0; i < j->cut_count; i++) {
            stretch s;
            if (stretch_of(j, j->rank, (int)i, first, n, &begin, &s))
                memcpy(j->in + (size_t)s.at * j->size, own_rows(j, a, &s),
                    (size_t)s.count * j->size);
        }
        if (move(j, (uint64_t)j->each, NULL, NULL) != CHOIR_OK)
            return j->engine->failed;
        for (int r = 0; r < j->world; r++)
            unpack(j, a, r, first);
    }
    return CHOIR_OK;
}

choir_status choir__rows_run(
    choir__engine *engine, const choir__call *call, choir__rows_mover *carry)
{
    job j = {.engine = engine,
        .call = call,
        .carry = carry,
        .rank = engine->rank,
        .world = engine->world,
        .size = choir_dtype_size((choir_dtype)call->stamp.dtype)};
    if (call->stamp.kind == CHOIR__TREE_SCATTER) {
        const choir__tree_scatter *a = call->rows;
        j.cuts = a->cuts;
        j.cut_count = a->cut_count;
        return tree_scatter(&j, a);
    }
    const choir__gather_rows *a = call->rows;
    j.cuts = a->cuts;
    j.cut_count = a->cut_count;
    return gather_rows(&j, a);
}
