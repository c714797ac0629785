/* Lookup of a table's rows, which may be blocks of few bits, and the gradient.
 *
 * The gradient gathers, for each id, the rows that named it. One pass links all rows of all
 * leaves into one list per id, in order; then each id's list is added along the fixed tree over
 * the leaves, whose absent nodes are 0. */
#include "base/half.h"
#include "device/cpu/isa/isa.h"
#include "device/cpu/product/runs.h"
#include "device/queue.h"

/* Returns the row of an id: -1: another part of the table has it; -2: no part, and the queue
 * has failed. */
static int64_t row_of(int64_t id, int64_t at, int64_t first, int64_t rows, int64_t whole)
{
    int64_t own = id - (whole ? first : 0), all = whole ? whole : rows;
    if (id >= 0 && id < all)
        return own >= 0 && own < rows ? own : -1;
    choir__queue_fail(CHOIR_ERR_RANGE,
        "embedding: id %lld at position %lld is outside [0, %lld); the table is too small or the "
        "data was tokenized otherwise",
        (long long)id, (long long)at, (long long)all);
    return -2;
}

INLINE void copy_row(float *y, const float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c += W)
        v_put(y + c, v_get(x + c, n - c), n - c);
}

/* y += x. x NULL: y += 0, which turns -0 into 0, as adding an absent node does. */
INLINE void add_row(float *y, const float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c += W)
        v_put(y + c, v_get(y + c, n - c) + (x ? v_get(x + c, n - c) : (vec){0}), n - c);
}

void KERNEL(embedding)(const choir__k_embedding *k)
{
    F32_ONLY(embedding, k);
    for (int64_t i = 0; i < k->n; i++) {
        int64_t row = row_of(k->ids[i], i, k->first, k->rows, k->whole);
        float *y = (float *)k->y + i * k->cols;
        if (row >= 0)
            copy_row(y, (const float *)k->table + row * k->cols, k->cols);
        else if (row == -1)
            memset(y, 0, (size_t)k->cols * sizeof *y);
        else
            return;
    }
}

/* --- tables in blocks --- */

/* A row of whole blocks, in the vectors of this instruction set. */
static void expand_row(choir__quant type, float *y, const uint8_t *b, int64_t n)
{
    if (choir__quant_types[type].values > 1)
        expand_runs(type, y, b, 0, n / RUN);
    else
        choir__quant_decode(type, y, b, 0, n);
}

/* A row in 16 bits, by way of a part in f32. A 16-bit row of the same type is copied. */
static void expand_half(const choir__k_expand *k, uint16_t *y, const uint8_t *b)
{
    enum { SOME = 512 }; /* a multiple of every block */
    const choir__quant same = k->dtype == CHOIR_BF16 ? CHOIR__BF16 : CHOIR__F16;
    float part[SOME];
    if (k->type == same) {
        memcpy(y, b, (size_t)k->cols * sizeof *y);
        return;
    }
    for (int64_t i = 0; i < k->cols; i += SOME) {
        const int64_t n = choir__min(SOME, k->cols - i);
        expand_row(k->type, part, b + choir__quant_bytes(k->type, i), n);
        (k->dtype == CHOIR_BF16 ? choir__narrow_bf16 : choir__narrow_f16)(y + i, part, n);
    }
}

void KERNEL(expand)(const choir__k_expand *k)
{
    const size_t size = choir_dtype_size(k->dtype);
    if (k->dtype == CHOIR_F64) {
        CHOIR__BY_REFERENCE(expand, k);
        return;
    }
    for (int64_t i = 0; i < k->n; i++) {
        int64_t row = k->ids ? row_of(k->ids[i], i, k->first, k->rows, k->whole) : i;
        void *y = (char *)k->y + (size_t)(i * k->cols) * size;
        const uint8_t *b = (const uint8_t *)k->x + row * k->row_bytes;
        if (row < -1)
            return;
        if (row < 0)
            memset(y, 0, (size_t)k->cols * size);
        else if (k->dtype == CHOIR_F32)
            expand_row(k->type, y, b, k->cols);
        else
            expand_half(k, y, b);
    }
}

/* --- gradients --- */

typedef struct entry {
    const float *row;
    int64_t leaf, next; /* next: next entry of this id; -1: none */
} entry;

typedef struct gather {
    const entry *entries;
    int64_t at, cols; /* at: the first entry not yet added */
    float *nodes;     /* one row per level of the tree */
} gather;

/* Adds leaves [lo, hi) into out; returns false if none of them has the id. */
static bool node(gather *g, int64_t lo, int64_t hi, float *out, float *spare)
{
    if (g->at < 0 || g->entries[g->at].leaf >= hi)
        return false;
    if (hi - lo == 1) {
        copy_row(out, g->entries[g->at].row, g->cols);
        for (g->at = g->entries[g->at].next; g->at >= 0 && g->entries[g->at].leaf == lo;
             g->at = g->entries[g->at].next)
            add_row(out, g->entries[g->at].row, g->cols);
        return true;
    }
    int64_t half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    bool left = node(g, lo, lo + half, out, spare);
    float *other = left ? spare : out;
    bool right = node(g, lo + half, hi, other, left ? spare + g->cols : spare);
    add_row(out, left && right ? other : NULL, g->cols);
    return true;
}

/* Links the rows into lists, last row first, so that each list is in order. */
static void thread_rows(const choir__k_embedding_backward *k, int64_t *heads, entry *entries)
{
    memset(heads, 0xff, (size_t)k->rows * sizeof *heads);
    int64_t at = 0;
    for (int64_t l = k->leaves - 1; l >= 0; l--)
        for (int64_t i = k->counts[l] - 1; i >= 0; i--) {
            int64_t id = k->ids[l][i];
            if (id < k->first || id - k->first >= k->rows || id == k->padding)
                continue; /* another rank's row, or none; otherwise the forward has failed */
            id -= k->first;
            entries[at] = (entry){(const float *)k->grads[l] + i * k->cols, l, heads[id]};
            heads[id] = at++;
        }
}

void KERNEL(embedding_backward)(const choir__k_embedding_backward *k)
{
    F32_ONLY(embedding_backward, k);
    int64_t total = 0, levels = 2, cols = k->cols;
    for (int64_t l = 0; l < k->leaves; l++)
        total += k->counts[l];
    for (int64_t l = 1; l < k->leaves; l *= 2)
        levels++;
    size_t entry_bytes = (size_t)total * sizeof(entry), head_bytes = (size_t)k->rows * 8;
    char *scratch = choir__cpu_scratch(choir__cpu_context_current(),
        entry_bytes + head_bytes + (size_t)(levels * cols) * sizeof(float));
    entry *entries = (entry *)scratch;
    int64_t *heads = (int64_t *)(scratch + entry_bytes);
    float *nodes = (float *)(scratch + entry_bytes + head_bytes);
    thread_rows(k, heads, entries);

    for (int64_t id = 0; id < k->rows; id++) {
        float *y = (float *)k->y + id * cols;
        gather g = {.entries = entries, .at = heads[id], .cols = cols, .nodes = nodes};
        if (!node(&g, 0, k->leaves, nodes, nodes + cols)) {
            if (k->accumulate)
                add_row(y, NULL, cols);
            else
                memset(y, 0, (size_t)cols * sizeof *y);
            continue;
        }
        for (int64_t c = 0; c < cols; c += W) {
            vec sum = v_get(nodes + c, cols - c) * k->scale;
            v_put(y + c, k->accumulate ? v_get(y + c, cols - c) + sum : sum, cols - c);
        }
    }
}
