/* Tiles of attention on tensor cores: rows of a head in shared memory, and products of tiles whose
 * sums stay in a warp's registers. A warp has M fragments of 16 rows, which share each fragment of
 * the other operand: mma.sync takes its second operand from shared memory, an instruction of 4096
 * FLOP reads 256 bytes of it, and a multiprocessor delivers 128 per clock, half of what its tensor
 * cores need. */
#ifndef CHOIR_CUDA_ATTENTION_MMA_CUH
#define CHOIR_CUDA_ATTENTION_MMA_CUH

#include "device/cuda/attention/attention.cuh"
#include "device/cuda/attention/mma.cuh"

/* elements between rows in shared memory, so that rows are in different banks */
enum { GAP = 8 };

static const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* Loads rows [first, first + ROWS) of a head into a tile, with zeros beyond `count` rows and d
 * columns. */
template <int D, int ROWS, class T>
static __device__ inline void fill_tile(
    T *tile, const T *head, int64_t stride, int first, int count, int d, bool aligned)
{
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += blockDim.x) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        bool there = first + row < count;
        T *to = tile + row * (D + GAP) + col;
        const T *from = head + (int64_t)(first + row) * stride + col;
        if (aligned) {
            copy16(to, there && col < d ? from : head, there && col < d);
            continue;
        }
        for (int e = 0; e < 8; e++)
            put(to + e, there && col + e < d ? get(from + e) : 0);
    }
}

/* Writes a warp's 16 rows of sums, times a factor for rows g and g + 8, to rows [first, ...) of
 * a head, through its own 16 rows of a tile. */
template <int D, class T>
static __device__ inline void put_rows(T *tile, const float (&sum)[D / 8][4], float low,
    float high, T *head, int64_t stride, int first, int count, int d, bool aligned)
{
    int lane = lane_id(), g = lane / 4, q = lane % 4 * 2;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        T *at = tile + g * (D + GAP) + n * 8 + q;
        *(uint32_t *)at = pack<T>(sum[n][0] * low, sum[n][1] * low);
        *(uint32_t *)(at + 8 * (D + GAP)) = pack<T>(sum[n][2] * high, sum[n][3] * high);
    }
    __syncwarp();
    for (int i = lane; i < 16 * (D / 8); i += WARP) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        const T *from = tile + row * (D + GAP) + col;
        T *to = head + (int64_t)(first + row) * stride + col;
        if (first + row >= count || col >= d)
            continue;
        if (aligned)
            *(uint4 *)to = *(const uint4 *)from;
        else
            for (int e = 0; e < 8 && col + e < d; e++)
                to[e] = from[e];
    }
}

/* sum (16 M, COLS) += A (16 M, D) times the transpose of B (COLS, D), both in shared memory. */
template <int D, int COLS, int M, class T>
static __device__ inline void scores(float (&sum)[M][COLS / 8][4], const T *a, const T *b)
{
    uint32_t first[M][4], second[2][2];
#pragma unroll
    for (int k = 0; k < D; k += 16) {
#pragma unroll
        for (int m = 0; m < M; m++)
            load_first(first[m], a + 16 * m * (D + GAP) + k, D + GAP);
#pragma unroll
        for (int n = 0; n < COLS; n += 16) {
            load_second(second, b + n * (D + GAP) + k, D + GAP);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<T>(sum[m][n / 8], first[m], second[0]);
                multiply_add<T>(sum[m][n / 8 + 1], first[m], second[1]);
            }
        }
    }
}

/* sum (16 M, D) += P (16 M, COLS), in registers, times B (COLS, D). */
template <int D, int COLS, int M, class T>
static __device__ inline void weigh(
    float (&sum)[M][D / 8][4], const float (&p)[M][COLS / 8][4], const T *b)
{
    uint32_t first[M][4], second[2][2];
#pragma unroll
    for (int k = 0; k < COLS; k += 16) {
#pragma unroll
        for (int m = 0; m < M; m++)
            as_first<T>(first[m], p[m][k / 8], p[m][k / 8 + 1]);
#pragma unroll
        for (int n = 0; n < D; n += 16) {
            load_second_turned(second, b + k * (D + GAP) + n, D + GAP);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<T>(sum[m][n / 8], first[m], second[0]);
                multiply_add<T>(sum[m][n / 8 + 1], first[m], second[1]);
            }
        }
    }
}

template <int M, int COUNT> static __device__ inline void clear(float (&sum)[M][COUNT][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0;
}

/* --- which pairs see each other --- */

/* The columns, from low to below high, that a lane's rows g and g + 8 of a fragment see. They are
 * computed once, before the walk along the columns. */
struct limits {
    int low[2], high[2];
};

/* Rows are queries from t on, and columns keys. */
static __device__ inline limits keys_of(const choir__attention_shape &n, int t)
{
    limits l;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = t + lane_id() / 4 + 8 * half;
        l.low[half] = first_key(n, row);
        l.high[half] = row < n.t ? end_of_keys(n, row) : 0;
    }
    return l;
}

/* Rows are keys from s on, and columns queries. */
static __device__ inline limits queries_of(const choir__attention_shape &n, int s)
{
    limits l;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = s + lane_id() / 4 + 8 * half;
        l.low[half] = first_query(n, row);
        l.high[half] = row < n.s ? end_of_queries(n, row) : 0;
    }
    return l;
}

/* A bias that is added to the scores. *at is the bias of the fragment's row 0 and the tile's
 * column 0; NULL: no bias. Steps are in elements. */
template <class T> struct bias_tile {
    const T *at;
    int64_t row, col;
};

/* Hides the scores of pairs that do not see each other: they become -infinity. Adds the bias; the
 * scores are then in units of log 2. first: the tile's first column; all: nothing is hidden. */
template <int COLS, class T>
static __device__ inline void dress(float (&s)[COLS / 8][4], const limits &l, int first, bool all,
    bias_tile<T> bias, float scale)
{
    int g = lane_id() / 4, q = lane_id() % 4 * 2;
    if (bias.at) {
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = g + i / 2 * 8, col = n * 8 + q + i % 2;
                bool seen = first + col >= l.low[i / 2] && first + col < l.high[i / 2];
                float more = seen ? get(bias.at + row * bias.row + col * bias.col) : 0;
                s[n][i] = seen ? (s[n][i] * scale + more) * LOG2E : -INFINITY;
            }
    } else if (!all) {
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int col = first + n * 8 + q + i % 2;
                s[n][i] = col >= l.low[i / 2] && col < l.high[i / 2] ? s[n][i] : -INFINITY;
            }
    }
}

/* Returns the shared memory that a block of the backward needs at least, in bytes. */
size_t choir__attention_mma_backward_shared(int64_t d);

#endif
