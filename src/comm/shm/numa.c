/* Machines with several memory nodes.
 *
 * A rank's staging area is on the rank's own node. Data that all ranks map are added on two
 * levels: the ranks of a node add the data on their node, chunk by chunk, and stage the sums
 * (the nodes of the fixed tree that their run of ranks covers); then each reads its slice of
 * all nodes' sums, finishes the tree, and writes the result to the buffers of its own node. So
 * only a node's sums travel between memory nodes, instead of every rank's data, and no stores
 * do. The tree is the same, so the bits are the same.
 *
 *   ranks 0 1 2 3 on two nodes:   stage (0 + 1), (2 + 3)   ->   (0 + 1) + (2 + 3) on both
 *
 * CHOIR_SHM_NODES=N makes the ranks assume N nodes, for tests on machines with one node, and
 * use two levels for data of any size. */
#include "comm/shm/numa.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MPOL_PREFERRED
#define MPOL_PREFERRED 1
#endif

enum { TWO_LEVELS_FROM = 128 * 1024 }; /* bytes; from here on, the extra step pays off */

int choir__numa_node(int rank, int world)
{
    const char *text = getenv("CHOIR_SHM_NODES");
    int count = text ? atoi(text) : 0;
    unsigned cpu, node;
    if (count > 0)
        return rank * count / world;
    return syscall(SYS_getcpu, &cpu, &node, NULL) ? 0 : (int)node;
}

/* Only a hint: if the kernel does not follow it, memory is slower, but nothing else changes. */
void choir__numa_place(void *at, size_t bytes, int node)
{
    unsigned long mask = node >= 0 && node < 64 ? 1UL << node : 0;
    if (mask)
        syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, &mask, 65UL, 0UL);
}

/* Two levels require that the ranks of a node are neighbors and that all nodes have the same
 * number of ranks, as mpirun, srun and `choir run` place them. Otherwise all ranks count as one
 * node. */
void choir__numa_levels(choir__shm *shm, const int nodes[CHOIR__MAX_WORLD])
{
    int world = shm->base.world, each = 1;
    while (each < world && nodes[each] == nodes[0])
        each++;
    bool regular = world % each == 0;
    for (int r = 0; r < world && regular; r++) {
        regular = nodes[r] == nodes[r / each * each];
        for (int q = 0; q < r / each && regular; q++)
            regular = nodes[q * each] != nodes[r];
    }
    shm->per_node = regular ? each : world;
    shm->levels_from = getenv("CHOIR_SHM_NODES") ? 1 : TWO_LEVELS_FROM;
}

/* --- two levels --- */

/* A memory node's part of the tree: sources [first, first + sources) make up `blocks` nodes of
 * it. */
typedef struct run {
    int first, sources, blocks;
    choir__node nodes[CHOIR__MAX_NODES];
} run;

typedef struct levels {
    choir__shm *shm;
    const choir__reduce_task *whole;
    /* Memory nodes, ranks per node; this rank's node, and its place there. */
    int runs, each, mine, local;
    run *list;          /* (runs) */
    int blocks;         /* over all nodes */
    choir__node *nodes; /* (blocks) */
    const char **from;  /* (the larger of sources and blocks) */
    size_t room;        /* bytes of a block's part in a staging area */
} levels;

static void plan(levels *l, const int *owners)
{
    const choir__reduce_task *w = l->whole;
    int most = 1;
    for (int q = 0, i = 0; q < l->runs; q++) {
        run *at = &l->list[q];
        at->first = i;
        while (i < w->sources && owners[i] / l->each == q)
            i++;
        at->sources = i - at->first;
        if (at->sources) {
            const choir__node *last = &w->nodes[i - 1];
            at->blocks = choir__tree_nodes(
                w->nodes[at->first].start, last->start + last->leaves, at->nodes);
        }
        l->blocks += at->blocks;
        most = at->blocks > most ? at->blocks : most;
    }
    l->room = (size_t)CHOIR__CHUNK / (size_t)most / 64 * 64;
    l->nodes = choir__calloc((size_t)l->blocks, sizeof *l->nodes);
    l->from = choir__calloc((size_t)choir__max(l->blocks, w->sources), sizeof *l->from);
    for (int q = 0, b = 0; q < l->runs; q++)
        for (int k = 0; k < l->list[q].blocks; k++)
            l->nodes[b++] = l->list[q].nodes[k];
}

/* Adds this node's n elements from `first` on into this rank's staging area. */
static void add_node(levels *l, int64_t first, int64_t n, uint32_t buffer)
{
    const run *mine = &l->list[l->mine];
    choir__reduce_task part = *l->whole;
    char *to = choir__shm_staging(l->shm, l->shm->base.rank, buffer);
    part.from = l->from;
    part.to = &to;
    part.outputs = 1;
    part.scale = 1;
    part.divisor = 1;
    part.stream = false;
    for (int b = 0, i = mine->first; b < mine->blocks; b++, to += l->room) {
        int64_t end = mine->nodes[b].start + mine->nodes[b].leaves;
        part.nodes = &l->whole->nodes[i];
        for (part.sources = 0; i < mine->first + mine->sources; i++, part.sources++) {
            if (l->whole->nodes[i].start >= end)
                break;
            l->from[part.sources] = l->whole->from[i] + (size_t)first * part.arith->size;
        }
        choir__reduce(&part, l->shm->scratch, 0, n);
    }
}

/* Adds those elements of all nodes' sums into the buffers of this node. */
static void add_all(levels *l, int64_t first, int64_t n, uint32_t buffer)
{
    choir__reduce_task rest = *l->whole;
    char *to[CHOIR__MAX_WORLD];
    for (int q = 0, b = 0; q < l->runs; q++)
        for (int k = 0; k < l->list[q].blocks; k++)
            l->from[b++] = choir__shm_staging(l->shm, q * l->each + l->local, buffer) +
                           (size_t)k * l->room;
    for (int i = 0; i < l->each; i++) /* this rank's buffer first */
        to[i] = l->whole->to[l->mine * l->each + (l->local + i) % l->each] +
                (size_t)first * rest.arith->size;
    rest.nodes = l->nodes;
    rest.from = l->from;
    rest.to = to;
    rest.sources = l->blocks;
    rest.outputs = l->each;
    choir__reduce(&rest, l->shm->scratch, 0, n);
}

bool choir__numa_helps(const choir__shm *shm, const choir__reduce_task *r, int64_t count)
{
    bool several = shm->per_node > 1 && shm->per_node < shm->base.world;
    return several && !r->arith->wide && (size_t)count * r->arith->size >= shm->levels_from;
}

choir_status choir__numa_reduce(
    choir__shm *shm, const choir__reduce_task *r, const int *owners, int64_t count)
{
    levels l = {.shm = shm, .whole = r, .each = shm->per_node};
    size_t size = r->arith->size;
    l.runs = shm->base.world / l.each;
    l.mine = shm->base.rank / l.each;
    l.local = shm->base.rank % l.each;
    l.list = choir__calloc((size_t)l.runs, sizeof *l.list);
    plan(&l, owners);
    int64_t chunk = (int64_t)(l.room / size) * l.each, done = 0;
    for (int64_t first = 0; first < count && shm->base.failed == CHOIR_OK; first += chunk) {
        int64_t lo, hi;
        uint32_t buffer = shm->turns++ % 2;
        choir__reduce_slice(choir__min(chunk, count - first), size, l.local, l.each, &lo, &hi);
        add_node(&l, first + lo, hi - lo, buffer);
        if (choir__shm_barrier(shm) != CHOIR_OK)
            break;
        add_all(&l, first + lo, hi - lo, buffer);
        done += hi - lo;
    }
    choir__shm_count(shm, (size_t)done * size * (size_t)(2 * (l.each - 1) + l.runs - 1));
    free(l.list);
    free(l.nodes);
    free(l.from);
    return shm->base.failed != CHOIR_OK ? shm->base.failed : choir__shm_barrier(shm);
}
