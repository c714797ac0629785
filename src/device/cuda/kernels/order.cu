/* The order of a line's entries. Keys with their places are all different, so each algorithm
 * gives the same result. A block sorts a tile in shared memory (bitonic; Batcher, 1968). Longer
 * lines are merged from sorted runs: an entry's place is its own rank plus the number of entries
 * of the other run before it. Runs keep only the entries that the result can contain. */
#include "device/cuda/kit/integers.cuh"

typedef choir__sort_entry entry;

enum { TILE = 1024 };

/* Returns the key of a float's bits: sign is its highest bit, infinity the bits of +inf. */
__device__ inline uint64_t float_key(uint64_t bits, uint64_t sign, uint64_t infinity)
{
    uint64_t size = bits & (sign - 1), all = sign | (sign - 1);
    uint64_t key = size == 0 ? sign : bits & sign ? ~bits & all : bits | sign;
    return size > infinity ? all : key;
}

__device__ inline uint64_t key_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return float_key(bits, UINT64_C(1) << 31, 0x7f800000);
}
__device__ inline uint64_t key_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return float_key(bits, UINT64_C(1) << 63, UINT64_C(0x7ff) << 52);
}
__device__ inline uint64_t key_of(int64_t value) { return (uint64_t)value ^ UINT64_C(1) << 63; }
__device__ inline uint64_t key_of(int32_t value) { return key_of((int64_t)value); }
__device__ inline uint64_t key_of(uint8_t value) { return value; }

__device__ inline bool is_before(entry a, entry b)
{
    return a.key < b.key || (a.key == b.key && a.at < b.at);
}

/* Lines [first, first + lines) of k, sorted from one buffer of n entries per line into the
 * other. */
struct sorting {
    choir__k_sort k;
    const entry *from;
    entry *to; /* NULL: the result's first entries are written to the index */
    int64_t first, lines;
    int64_t run; /* entries of a sorted run; a tile is one */
};

__device__ inline void put_place(const choir__k_sort &k, int64_t line, int64_t rank, int64_t at)
{
    k.index[(line / k.inner * k.top + rank) * k.inner + line % k.inner] = at;
}

__device__ inline void sort_tile(entry *e, int size)
{
    for (int half = 1; half < size; half *= 2)
        for (int step = half; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                int low = 2 * i - (i & (step - 1));
                entry a = e[low], b = e[low + step];
                if (is_before(b, a) == !(low & 2 * half)) {
                    e[low] = b;
                    e[low + step] = a;
                }
            }
            __syncthreads();
        }
}

template <class T> __global__ void sort_tiles(sorting s)
{
    __shared__ entry e[TILE];
    const choir__k_sort &k = s.k;
    int64_t tiles = (k.n + s.run - 1) / s.run;
    for (int64_t t = blockIdx.x; t < s.lines * tiles; t += gridDim.x) {
        int64_t line = s.first + t / tiles, begin = t % tiles * s.run;
        const T *x = (const T *)k.x + line / k.inner * k.n * k.inner + line % k.inner;
        for (int i = threadIdx.x; i < s.run; i += blockDim.x) {
            e[i].key = UINT64_MAX; /* beyond the line */
            e[i].at = INT64_MAX;
            if (begin + i >= k.n)
                continue;
            uint64_t key = key_of(get(x + (begin + i) * k.inner));
            e[i].key = k.descending ? ~key : key;
            e[i].at = begin + i;
        }
        __syncthreads();
        sort_tile(e, (int)s.run);
        for (int64_t i = threadIdx.x; i < s.run && i < k.top && begin + i < k.n;
             i += blockDim.x)
            if (s.to)
                s.to[t / tiles * k.n + begin + i] = e[i];
            else
                put_place(k, line, i, e[i].at);
        __syncthreads();
    }
}

/* Merges pairs of runs: one thread per entry. */
__global__ void merge_runs(sorting s)
{
    const choir__k_sort &k = s.k;
    for (int64_t t = first_thread(); t < s.lines * k.n; t += all_threads()) {
        int64_t l = t / k.n, i = t % k.n, rank = i % s.run, pair = i / s.run / 2 * 2 * s.run;
        if (rank >= k.top)
            continue;
        int64_t other = i < pair + s.run ? pair + s.run : pair; /* begins there */
        int64_t low = 0, high = s.run < k.top ? s.run : k.top; /* range of its entries, if kept */
        high = high < k.n - other ? high : k.n - other;
        const entry *run = s.from + l * k.n + other;
        entry e = s.from[t];
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (is_before(run[middle], e))
                low = middle + 1;
            else
                high = middle;
        }
        if (rank + low >= k.top)
            continue;
        if (s.to)
            s.to[l * k.n + pair + rank + low] = e;
        else
            put_place(k, s.first + l, rank + low, e.at);
    }
}

/* Sorts the tiles of some lines, and merges them. The buffers are the halves of the scratch
 * memory. */
static void sort_lines(sorting s)
{
    int64_t n = s.k.n, half = s.k.room / 2, tiles = (n + s.run - 1) / s.run;
    unsigned threads = (unsigned)choir__max(WARP, choir__min(BLOCK, s.run / 2));
    s.to = s.run < n ? s.k.scratch : NULL;
    choose_any(s.k.dtype, [&](auto t) {
        launch(sort_tiles<decltype(t)>, grid_for(s.lines * tiles, 1), threads, 0, s);
    });
    for (; s.run < n; s.run *= 2) {
        s.from = s.to;
        s.to = 2 * s.run >= n ? NULL : s.from == s.k.scratch ? s.k.scratch + half : s.k.scratch;
        launch(merge_runs, grid_for(s.lines * n), BLOCK, 0, s);
    }
}

extern "C" void choir__cuda_sort(const choir__k_sort *k)
{
    int64_t lines = k->outer * k->inner, tile = 2;
    if (lines <= 0 || k->n <= 0 || k->top <= 0)
        return;
    while (tile < TILE && tile < k->n)
        tile *= 2;
    int64_t most = k->n <= tile ? lines : k->room / 2 / k->n; /* lines at a time */
    for (int64_t first = 0; first < lines; first += most) {
        sorting s = {};
        s.k = *k;
        s.run = tile;
        s.first = first;
        s.lines = choir__min(most, lines - first);
        sort_lines(s);
    }
}
