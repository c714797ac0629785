/* Products on a warp's tensor cores, of tiles in shared memory: mma.sync's m16n8k16 with f32
 * sums, which every GPU since Ampere has.
 *
 * A fragment is a warp's share of a tile: each lane holds a few elements in registers. Unlike
 * with nvcuda::wmma it is known which ones, and attention relies on that: the product S = Q K^T
 * leaves a lane with the scores of rows lane / 4 and lane / 4 + 8, so the softmax works in
 * registers, and its result is already in the right lanes for the first operand of the next
 * product (as_first()).
 *
 *     C (16, 8):  c[0], c[1] in row g, columns 2q, 2q + 1; c[2], c[3] in row g + 8
 *     A (16, 16): a[0] in row g, a[1] in row g + 8, columns 2q, 2q + 1; a[2], a[3] 8 further
 *     B (16, 8):  b[0] in rows 2q, 2q + 1 of column g; b[1] 8 rows further
 *
 * with g = lane / 4, q = lane % 4. Tiles in shared memory have rows of `row` elements, a
 * multiple of 8 but not of 64: then the eight rows of 16 bytes that ldmatrix reads at a time
 * are in different banks. The soft GPU has plain versions of all functions. */
#ifndef CHOIR_MMA_CUH
#define CHOIR_MMA_CUH

#include "device/cuda/kit/kernel.cuh"

__device__ inline int lane_id()
{
    return threadIdx.x % WARP;
}

/* Packs two numbers of T into a register, the first one low. */
template <class T> __device__ inline uint32_t pack(float low, float high);

template <> __device__ inline uint32_t pack<bf16>(float low, float high)
{
    union {
        __nv_bfloat162 two;
        uint32_t bits;
    } both;
    both.two = __floats2bfloat162_rn(low, high);
    return both.bits;
}

template <> __device__ inline uint32_t pack<f16>(float low, float high)
{
    union {
        __half2 two;
        uint32_t bits;
    } both;
    both.two = __floats2half2_rn(low, high);
    return both.bits;
}

#ifdef CHOIR_SOFT_GPU

template <class T> struct soft_mma {
    float *c;
    const uint32_t *a, *b;

    static float part(uint32_t bits, int half)
    {
        union {
            uint16_t bits;
            T number;
        } x;
        x.bits = (uint16_t)(bits >> 16 * half);
        return get(&x.number);
    }

    /* Widens each element of a and b once. Terms of a sum are added in rising order of k. */
    static void act(void *const lanes[WARP])
    {
        float first[16][16], second[16][8], sum[16][8] = {};
        for (int lane = 0; lane < WARP; lane++) {
            const soft_mma *mine = (const soft_mma *)lanes[lane];
            int g = lane / 4, q = lane % 4 * 2;
            for (int half = 0; half < 2; half++) {
                for (int i = 0; i < 4; i++)
                    first[g + i % 2 * 8][q + i / 2 * 8 + half] = part(mine->a[i], half);
                for (int i = 0; i < 2; i++)
                    second[q + i * 8 + half][g] = part(mine->b[i], half);
            }
        }
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k++)
                for (int column = 0; column < 8; column++)
                    sum[row][column] += first[row][k] * second[k][column];
        for (int lane = 0; lane < WARP; lane++)
            for (int i = 0; i < 4; i++)
                ((const soft_mma *)lanes[lane])->c[i] +=
                    sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
};

/* c += a b */
template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
    soft_mma<T> mine = {c, a, b};
    softgpu_warp(0xffffffffu, &mine, soft_mma<T>::act, "mma");
}

template <class T> __device__ inline uint32_t two_of(const T *low, const T *high)
{
    return pack<T>(get(low), get(high));
}

/* Checks a tile as ldmatrix does: each of its rows begins at a multiple of 16 bytes. */
template <class T> __device__ inline void check_rows(const T *tile, int row)
{
    softgpu_aligned(tile, 16);
    softgpu_aligned(tile + row, 16);
}

/* Loads A from the tile's rows 0-15, columns 0-15. */
template <class T> __device__ inline void load_first(uint32_t (&a)[4], const T *tile, int row)
{
    check_rows(tile, row);
    int g = lane_id() / 4, q = lane_id() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const T *at = tile + (g + i % 2 * 8) * row + q + i / 2 * 8;
        a[i] = two_of(at, at + 1);
    }
}

/* Loads B, and the B of the next eight columns, from a tile (16 columns of B, 16 rows of B). */
template <class T>
__device__ inline void load_second(uint32_t (&b)[2][2], const T *tile, int row)
{
    check_rows(tile, row);
    int g = lane_id() / 4, q = lane_id() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const T *at = tile + (g + i / 2 * 8) * row + q + i % 2 * 8;
        b[i / 2][i % 2] = two_of(at, at + 1);
    }
}

/* Like load_second, from a tile that is stored as B is: (16 rows, 16 columns). */
template <class T>
__device__ inline void load_second_turned(uint32_t (&b)[2][2], const T *tile, int row)
{
    check_rows(tile, row);
    int g = lane_id() / 4, q = lane_id() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const T *at = tile + (q + i % 2 * 8) * row + g + i / 2 * 8;
        b[i / 2][i % 2] = two_of(at, at + row);
    }
}

/* 2^x by its hardware unit; results below 2^-126 are 0. */
__device__ inline float exp2_quick(float x)
{
    return exp2f(x);
}

/* Copies 16 bytes from device to shared memory, in the background; writes zeros if they are not
 * `there`. */
__device__ inline void copy16(void *to, const void *from, bool there)
{
    softgpu_async_copy(to, from, there);
}

__device__ inline void close_copies()
{
    softgpu_async_close();
}

template <int LEFT> __device__ inline void wait_copies()
{
    softgpu_async_wait(LEFT);
}

#else

template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b);

template <>
__device__ inline void multiply_add<bf16>(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ inline void multiply_add<f16>(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

template <class T> __device__ inline void load_first(uint32_t (&a)[4], const T *tile, int row)
{
    int lane = lane_id();
    uint32_t at = shared_address(tile + lane % 16 * row + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(at)
                 : "memory");
}

template <class T>
__device__ inline void load_second(uint32_t (&b)[2][2], const T *tile, int row)
{
    int lane = lane_id();
    uint32_t at = shared_address(tile + (lane / 16 * 8 + lane % 8) * row + lane / 8 % 2 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(at)
                 : "memory");
}

template <class T>
__device__ inline void load_second_turned(uint32_t (&b)[2][2], const T *tile, int row)
{
    int lane = lane_id();
    uint32_t at = shared_address(tile + lane % 16 * row + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"(at)
                 : "memory");
}

__device__ inline float exp2_quick(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline void copy16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ inline void close_copies()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until all groups of this thread's copies except the latest LEFT are complete. */
template <int LEFT> __device__ inline void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

#endif

/* Converts two neighbouring C's, 16 columns, to an A, rounded to T. */
template <class T>
__device__ inline void as_first(
    uint32_t (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack<T>(left[0], left[1]);
    a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]);
    a[3] = pack<T>(right[2], right[3]);
}

#endif
