/* Reductions of several arrays in the fixed tree.
 *
 * Memory is read once and written once, in blocks of 8 KiB, with the partial results of a block
 * on a stack in L1. Nodes arrive in order; neighbors that are halves of one node merge
 * immediately, and the rest at the end is folded from the right. Each element undergoes the
 * same additions in the same order, whatever the number of ranks, the slice or the block, so
 * the bits equal choir__tree_sum's. */
#include "comm/reduce.h"

#include <string.h>

#include "base/past_caches.h"

/* --- one block --- */

/* An entry of the stack: a node and the address of its values (a source, or this level's
 * buffer). */
typedef struct partial {
    choir__node node;
    const char *at;
    bool wide;
} partial;

/* Widens p's values if partial results of this type are wide. */
static void widen(const choir__arith *arith, partial *p, char *level, int64_t n)
{
    if (!arith->wide || p->wide)
        return;
    arith->widen(level, p->at, n);
    p->at = level;
    p->wide = true;
}

/* Computes the tree over all sources at elements [first, first + n), without scaling, into
 * result. */
static void reduce_block(
    const choir__reduce_task *r, char *scratch, int64_t first, int64_t n, char *result)
{
    choir__combine *combine = (r->arith->wide ? r->arith->wide : r->arith)->combine;
    partial stack[CHOIR__REDUCE_LEVELS];
    size_t offset = (size_t)first * r->arith->size;
    int top = 0, left = r->sources - 1; /* combinations left; the last one writes the result */
    for (int i = 0; i < r->sources; i++) {
        stack[top++] = (partial){r->nodes[i], r->from[i] + offset, false};
        bool last = i == r->sources - 1;
        while (top > 1 &&
               (last || choir__tree_siblings(stack[top - 2].node, stack[top - 1].node))) {
            partial *p = &stack[top - 2];
            char *level = scratch + (size_t)(top - 2) * CHOIR__BLOCK;
            char *out = --left ? level : result;
            widen(r->arith, p, level, n);
            widen(r->arith, p + 1, level + CHOIR__BLOCK, n);
            combine(out, p->at, p[1].at, n);
            p->at = out;
            p->node.leaves += p[1].node.leaves;
            top--;
        }
    }
    if (r->sources > 1 || stack[0].at == result)
        return;
    if (r->arith->wide)
        r->arith->widen(result, stack[0].at, n);
    else
        memcpy(result, stack[0].at, (size_t)n * r->arith->size);
}

void choir__reduce(const choir__reduce_task *r, char *scratch, int64_t begin, int64_t end)
{
    const choir__arith *arith = r->arith, *wide = arith->wide ? arith->wide : arith;
    size_t size = arith->size;
    int64_t step = (int64_t)(CHOIR__BLOCK / wide->size);
    char *buffer = scratch + (size_t)CHOIR__REDUCE_LEVELS * CHOIR__BLOCK;
    for (int64_t first = begin; first < end; first += step) {
        int64_t n = choir__min(step, end - first);
        size_t offset = (size_t)first * size, bytes = (size_t)n * size;
        char *result = r->stream ? buffer : r->to[0] + offset;
        char *sum = arith->wide ? buffer + CHOIR__BLOCK : result;
        reduce_block(r, scratch, first, n, sum);
        if (r->scale != 1 || r->divisor != 1)
            wide->rescale(sum, n, r->scale, r->divisor);
        if (arith->wide)
            arith->narrow(result, sum, n);
        for (int i = !r->stream; i < r->outputs; i++) {
            if (r->stream)
                choir__copy_past_caches(r->to[i] + offset, result, bytes);
            else
                memcpy(r->to[i] + offset, result, bytes);
        }
    }
    if (r->stream)
        choir__past_caches_done(); /* before the step that announces the result */
}

void choir__reduce_slice(
    int64_t count, size_t size, int rank, int world, int64_t *lo, int64_t *hi)
{
    int64_t line = 64 / (int64_t)size, lines = (count + line - 1) / line;
    *lo = choir__min(lines * rank / world * line, count);
    *hi = choir__min(lines * (rank + 1) / world * line, count);
}
