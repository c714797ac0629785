/* The race checker itself: kernels without a race run through, and kernels that lack a barrier,
 * or wait for less than they read, end with a sentence. The file is compiled like the .cu files
 * for the race checker. The faulty kernels are those of src/device/cuda with a line left out;
 * faults.sh leaves the lines out of the kernels themselves. */
#include "softgpu.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

enum { N = 256 };

/* fault: the line that the kernel leaves out, or 0. */
struct given {
    float *y;
    int fault;
};

/* The sum over a block, as block_sum in device/cuda/kit/kernel.cuh has it; twice. */
static void sums(given k)
{
    __shared__ float part[32];
    for (int again = 0; again < 2; again++) {
        float v = 1;
        for (int step = 16; step > 0; step /= 2)
            v += __shfl_xor_sync(0xffffffffu, v, step);
        if (k.fault != 1)
            __syncthreads(); /* an earlier call's readers are done */
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = v;
        if (k.fault != 2)
            __syncthreads();
        k.y[blockIdx.x * blockDim.x + threadIdx.x] = part[threadIdx.x % (blockDim.x / 32)];
    }
}

/* A warp turns its values around in shared memory. */
static void turn_lanes(given k)
{
    __shared__ float all[N];
    int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    all[first + lane] = (float)lane;
    if (k.fault == 1)
        __shfl_sync(0xffffffffu, lane, 0); /* all lanes meet, and memory is not ordered */
    else
        __syncwarp();
    k.y[blockIdx.x * blockDim.x + threadIdx.x] = all[first + 31 - lane];
}

/* Half of a warp meets; the other half must not read what it wrote. */
static void halves(given k)
{
    __shared__ float all[N];
    int first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    all[first + lane] = (float)lane;
    if (lane < 16)
        __syncwarp(0xffffu);
    else
        __syncwarp(0xffff0000u);
    int other = k.fault == 1 ? 31 - lane : lane / 16 * 16 + 15 - lane % 16;
    k.y[blockIdx.x * blockDim.x + threadIdx.x] = all[first + other];
}

/* Reads rows of the copies before the last ones, as attention does: fill, wait, meet, read. */
static void in_the_background(given k)
{
    enum { ROUNDS = 4 };
    __shared__ __attribute__((aligned(16))) float tile[2][4 * N];
    float *from = k.y + 4 * threadIdx.x, sum = 0;
    softgpu_async_copy(tile[0] + 4 * threadIdx.x, from, true);
    softgpu_async_close();
    for (int i = 0; i < ROUNDS; i++) {
        softgpu_async_copy(tile[(i + 1) % 2] + 4 * threadIdx.x, from, i + 1 < ROUNDS);
        softgpu_async_close();
        if (k.fault != 1)
            softgpu_async_wait(1);
        if (k.fault != 2)
            __syncthreads();
        sum += tile[i % 2][4 * ((threadIdx.x + 1) % blockDim.x)];
        if (k.fault != 3)
            __syncthreads();
    }
    if (k.fault != 4)
        softgpu_async_wait(0);
    if (sum != sum)
        softgpu_wrong("the sum is NaN");
    k.y[4 * N + blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* Blocks of one launch are not ordered, unless by atomics alone. */
static void blocks(given k)
{
    int *count = (int *)(k.y + 8 * N);
    if (threadIdx.x > 0)
        return;
    if (k.fault == 1)
        *count = 1;
    else if (k.fault == 2 && blockIdx.x == 1)
        k.y[4 * N] = (float)*count;
    else
        atomicAdd(count, 1);
}

/* Many threads read before one of their own warp writes. */
static void late_write(given k)
{
    __shared__ float one;
    if (threadIdx.x == 0)
        one = 3;
    __syncthreads();
    k.y[blockIdx.x * blockDim.x + threadIdx.x] = one;
    if (k.fault != 1)
        __syncthreads();
    if (threadIdx.x == blockDim.x - 1)
        one = 4;
}

/* A wide access at an address that is not a multiple of its width. */
static void wide(given k)
{
    uint4 *at = (uint4 *)(k.y + (k.fault == 1 ? 2 : 4) +
                          4 * (blockIdx.x * blockDim.x + threadIdx.x));
    *at = *(at + 8 * N / 4);
}

/* Memory of the host, and a kernel that takes it for a GPU's. */
static float *somewhere;

static void reads_given(given k)
{
    float *from = k.fault == 1 ? somewhere : k.y;
    float *to = k.fault == 2 ? somewhere : k.y + N;
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *to = *from;
}

/* Runs the kernel in a child; stores what it said. Returns whether it ended well. */
static bool runs(void (*kernel)(given), int fault, char *text, size_t bytes)
{
    int status, said[2];
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        void *y;
        cudaStream_t s;
        dup2(said[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        cudaMalloc(&y, 16 * N * sizeof(float));
        cudaMemset(y, 0, 16 * N * sizeof(float));
        given k = {(float *)y, fault};
        somewhere = (float *)calloc(1 << 14, 1);
        for (int order = 0; order < 3; order++)
            softgpu_launch(kernel, dim3(2), dim3(kernel == in_the_background ? 128 : N / 2), 0, s, k);
        _exit(cudaDeviceSynchronize() != cudaSuccess);
    }
    close(said[1]);
    size_t all = 0;
    for (ssize_t n = 1; n > 0 && all < bytes - 1; all += (size_t)(n > 0 ? n : 0))
        n = read(said[0], text + all, bytes - 1 - all);
    text[all] = 0;
    close(said[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void well(void (*kernel)(given))
{
    char text[4096];
    if (!runs(kernel, 0, text, sizeof text))
        fail_msg("expected no race, got '%s'", text);
}

static void wrong(void (*kernel)(given), int fault, const char *sentence, const char *more)
{
    char text[4096];
    if (runs(kernel, fault, text, sizeof text))
        fail_msg("fault %d was not found: expected '%s'", fault, sentence);
    if (!strstr(text, sentence) || !strstr(text, more))
        fail_msg("expected '%s' and '%s', got '%s'", sentence, more, text);
}

static void barriers(void **)
{
    well(sums);
    wrong(sums, 1, "a race in shared memory", "of the same block");
    wrong(sums, 2, "sums: a race in shared memory", "test_race.cc:");
    well(late_write);
    wrong(late_write, 1, "late_write: a race in shared memory", "reads it at test_race.cc:");
}

static void lanes(void **)
{
    well(turn_lanes);
    wrong(turn_lanes, 1, "a race in shared memory", "writes it at");
    well(halves);
    wrong(halves, 1, "a race in shared memory", "writes it at");
}

static void copies(void **)
{
    well(in_the_background);
    wrong(in_the_background, 1, "the sum is NaN", "");
    wrong(in_the_background, 2, "a race in shared memory", "reads it at");
    wrong(in_the_background, 3, "a race in shared memory", "reads it at");
    wrong(in_the_background, 4, "copies under way", "");
}

static void grids(void **)
{
    well(blocks);
    wrong(blocks, 1, "a race in device memory", "thread 0 of block ");
    wrong(blocks, 2, "a race in device memory", "changes atomically");
}

static void alignment(void **)
{
    well(wide);
    wrong(wide, 1, "expected an address that is a multiple of 16", "");
}

/* A constant of a test's, say, in memory that nobody has opened to the GPU. */
static void foreign_memory(void **)
{
    well(reads_given);
    wrong(reads_given, 1, "reads_given: thread 0 reads the host's pageable memory", "test_race.cc:");
    wrong(reads_given, 2, "reads_given: thread 0 writes the host's pageable memory", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers),
        cmocka_unit_test(lanes),
        cmocka_unit_test(copies),
        cmocka_unit_test(grids),
        cmocka_unit_test(alignment),
        cmocka_unit_test(foreign_memory),
    };
    return cmocka_run_group_tests_name("the race checker", tests, NULL, NULL);
}
