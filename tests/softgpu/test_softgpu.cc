/* The soft GPU itself: calls that it allows, and calls that it refuses. The file is compiled
 * like the .cu files. */
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

#include "fail.h"

#define ok(call) assert_int_equal(call, cudaSuccess)

template <class T> static T *device(size_t n)
{
    void *p;
    ok(cudaMalloc(&p, n * sizeof(T)));
    return (T *)p;
}

template <class T> static void fetch(T *host, const T *from, size_t n)
{
    ok(cudaDeviceSynchronize());
    ok(cudaMemcpy(host, from, n * sizeof(T), cudaMemcpyDeviceToHost));
}

static cudaStream_t stream_of(void)
{
    cudaStream_t s;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

/* --- kernels --- */

struct ints {
    int *y;
    const int *x;
    int n;
};

__global__ void turn_around(ints k) /* by way of shared memory: a barrier lost shows */
{
    __shared__ int all[1024];
    int i = threadIdx.x, n = blockDim.x;
    all[i] = k.x ? k.x[blockIdx.x * n + i] : (int)(blockIdx.x * n + i);
    __syncthreads();
    k.y[blockIdx.x * n + i] = all[n - 1 - i];
}

static void barriers(void **)
{
    enum { BLOCKS = 7, THREADS = 96, N = BLOCKS * THREADS };
    int out[N];
    cudaStream_t s = stream_of();
    ints k = {device<int>(N), NULL, N};
    for (int again = 0; again < 2; again++) {
        ok(softgpu_launch(turn_around, dim3(BLOCKS), dim3(THREADS), 0, s, k));
        fetch(out, k.y, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(out[i], i / THREADS * THREADS + THREADS - 1 - i % THREADS);
        ok(cudaMemset(k.y, 0, sizeof out));
    }
    ok(cudaFree(k.y));
    ok(cudaStreamDestroy(s));
}

__global__ void shuffles(ints k)
{
    int lane = threadIdx.x % 32, v = 100 + lane;
    int *y = k.y + threadIdx.x * 8;
    y[0] = __shfl_sync(0xffffffffu, v, 5);
    y[1] = __shfl_xor_sync(0xffffffffu, v, 16);
    y[2] = __shfl_down_sync(0xffffffffu, v, 3);
    y[3] = __shfl_up_sync(0xffffffffu, v, 3);
    y[4] = __shfl_sync(0xffffffffu, v, 1, 8);
    y[5] = (int)__ballot_sync(0xffffffffu, lane % 2);
    y[6] = __all_sync(0xffffffffu, lane < 31) * 2 + __any_sync(0xffffffffu, lane == 7);
    if (lane < 16)
        y[7] = __shfl_xor_sync(0x0000ffffu, v, 1);
    else
        y[7] = __shfl_xor_sync(0xffff0000u, v, 2);
}

static void lanes(void **)
{
    enum { N = 64 };
    int out[N][8];
    cudaStream_t s = stream_of();
    ints k = {device<int>(N * 8), NULL, N};
    ok(softgpu_launch(shuffles, dim3(1), dim3(N), 0, s, k));
    fetch(&out[0][0], k.y, N * 8);
    for (int i = 0; i < N; i++) {
        int lane = i % 32;
        assert_int_equal(out[i][0], 105);
        assert_int_equal(out[i][1], 100 + (lane ^ 16));
        assert_int_equal(out[i][2], lane + 3 < 32 ? 103 + lane : 100 + lane);
        assert_int_equal(out[i][3], lane >= 3 ? 97 + lane : 100 + lane);
        assert_int_equal(out[i][4], 100 + lane / 8 * 8 + 1);
        assert_int_equal((unsigned)out[i][5], 0xaaaaaaaau);
        assert_int_equal(out[i][6], 1);
        assert_int_equal(out[i][7], 100 + (lane < 16 ? lane ^ 1 : lane ^ 2));
    }
    ok(cudaFree(k.y));
    ok(cudaStreamDestroy(s));
}

/* --- what ends the program --- */

__global__ void half_at_the_barrier(ints k)
{
    if (threadIdx.x < 16)
        __syncthreads();
    k.y[0] = 1;
}

__global__ void two_barriers(ints k)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    k.y[0] = 1;
}

__global__ void lanes_that_left(ints k)
{
    if (threadIdx.x >= 20)
        return;
    k.y[0] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

__global__ void beyond(ints k)
{
    k.y[k.n] = 1;
}

/* Runs the kernel in a process of its own, whose output is stored in text. Returns whether it
 * ended normally. */
static bool ends_well(void (*kernel)(ints), bool with_host_memory, char *text, size_t bytes)
{
    int status, said[2], host[64] = {0};
    assert_int_equal(pipe(said), 0);
    pid_t child = fork(); /* before CUDA is used: main sees to it */
    if (child == 0) {
        dup2(said[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        setenv("SOFTGPU_STRICT", "1", 1);
        setenv("SOFTGPU_POINTERS", "1", 1);
        ints k = {with_host_memory ? host : device<int>(64), NULL, 64};
        if (softgpu_launch(kernel, dim3(1), dim3(64), 0, stream_of(), k) == cudaSuccess)
            cudaDeviceSynchronize();
        cudaFree(k.y);
        _exit(0);
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

static void must_end(void (*kernel)(ints), bool with_host_memory, const char *sentence)
{
    char text[16384];
    assert_false(ends_well(kernel, with_host_memory, text, sizeof text));
    if (!strstr(text, sentence))
        fail_msg("'%s' is not in '%s'", sentence, text);
}

static void wrong_kernels(void **)
{
    char text[16384];
    must_end(half_at_the_barrier, false, "waits for it at");
    must_end(two_barriers, false, "it waits at");
    must_end(lanes_that_left, false, "lanes that never come");
#ifdef __SANITIZE_ADDRESS__
    must_end(beyond, false, "AddressSanitizer");
#else
    must_end(beyond, false, "behind device memory");
#endif
    must_end(turn_around, true, "pointer to the host's pageable memory");
    assert_true(ends_well(turn_around, false, text, sizeof text));
}

/* --- streams --- */

struct add_to {
    int *y;
    int factor, term;
};

__global__ void change(add_to k)
{
    *k.y = *k.y * k.factor + k.term;
}

static void change_by(cudaStream_t s, int *y, int factor, int term)
{
    add_to k = {y, factor, term};
    ok(softgpu_launch(change, dim3(1), dim3(1), 0, s, k));
}

/* Pinned memory shows when an operation was done: not before a thread waits, and no more than
 * it waits for. */
static void laziness(void **)
{
    int *y;
    cudaEvent_t e;
    cudaStream_t s = stream_of(), t = stream_of();
    ok(cudaMallocHost((void **)&y, sizeof *y));
    ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    *y = 1;
    change_by(s, y, 1, 1);
    ok(cudaEventRecord(e, s));
    change_by(s, y, 10, 0);
    assert_int_equal(*y, 1);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    assert_int_equal(*y, 2);
    ok(cudaEventSynchronize(e));
    assert_int_equal(*y, 2);
    ok(cudaStreamWaitEvent(t, e, 0));
    change_by(t, y, 100, 0);
    ok(cudaStreamSynchronize(t));
    assert_int_equal(*y, 200); /* no thread waited for the second operation of s */
    ok(cudaStreamSynchronize(s));
    assert_int_equal(*y, 2000);
    ok(cudaEventDestroy(e));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(t));
    ok(cudaFreeHost(y));
}

/* The legacy stream waits for blocking streams only. */
static void legacy_stream(void **)
{
    int *y, *z;
    cudaStream_t blocking, free_one = stream_of();
    ok(cudaMallocHost((void **)&y, sizeof *y));
    ok(cudaMallocHost((void **)&z, sizeof *z));
    ok(cudaStreamCreate(&blocking));
    *y = *z = 1;
    change_by(blocking, y, 1, 1);
    change_by(free_one, z, 1, 1);
    change_by(NULL, y, 3, 0);
    ok(cudaStreamSynchronize(NULL));
    assert_int_equal(*y, 6);
    assert_int_equal(*z, 1);
    change_by(NULL, y, 1, 1);
    change_by(blocking, y, 2, 0);
    ok(cudaStreamSynchronize(blocking));
    assert_int_equal(*y, 14);
    ok(cudaStreamDestroy(blocking));
    ok(cudaStreamDestroy(free_one));
    ok(cudaFreeHost(y));
    ok(cudaFreeHost(z));
}

static void copies(void **)
{
    int host[2] = {1, 2}, back[2] = {0, 0}, *pinned, *p = device<int>(2);
    cudaStream_t s = stream_of();
    ok(cudaMallocHost((void **)&pinned, sizeof host));
    ok(cudaMemcpyAsync(p, host, sizeof host, cudaMemcpyHostToDevice, s));
    host[0] = 7; /* too late: the copy took its bytes at once */
    ok(cudaMemcpyAsync(pinned, p, sizeof host, cudaMemcpyDeviceToHost, s));
    assert_int_not_equal(pinned[0], 1);
    ok(cudaMemcpyAsync(back, p, sizeof back, cudaMemcpyDeviceToHost, s));
    assert_int_equal(back[0], 1); /* it was waited for */
    assert_int_equal(pinned[0], 1);
    pinned[0] = 3;
    ok(cudaMemcpyAsync(p, pinned, sizeof host, cudaMemcpyHostToDevice, s));
    pinned[0] = 4; /* read when it is run */
    ok(cudaMemcpyAsync(back, p, sizeof back, cudaMemcpyDefault, s));
    assert_int_equal(back[0], 4);
    assert_int_equal(cudaMemcpyAsync(p, host, sizeof host, cudaMemcpyDeviceToDevice, s),
        cudaErrorInvalidMemcpyDirection);
    assert_int_equal(
        cudaMemcpyAsync(p + 1, host, sizeof host, cudaMemcpyDefault, s), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ok(cudaFree(p));
    ok(cudaFreeHost(pinned));
    ok(cudaStreamDestroy(s));
}

/* --- graphs --- */

static void graphs(void **)
{
    int *y;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t fork_event, join_event;
    cudaStream_t s = stream_of(), t = stream_of();
    ok(cudaMallocHost((void **)&y, 2 * sizeof *y));
    ok(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
    ok(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
    y[0] = y[1] = 1;
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    change_by(s, y, 1, 1);
    ok(cudaEventRecord(fork_event, s));
    ok(cudaStreamWaitEvent(t, fork_event, 0));
    change_by(t, y + 1, 10, 0);
    ok(cudaEventRecord(join_event, t));
    change_by(s, y, 2, 0);
    ok(cudaStreamWaitEvent(s, join_event, 0));
    change_by(s, y, 1, 5);
    ok(cudaStreamEndCapture(s, &graph));
    ok(cudaGraphInstantiate(&exec, graph, 0));
    ok(cudaGraphDestroy(graph));
    ok(cudaStreamSynchronize(s));
    assert_int_equal(y[0], 1); /* captured, and not run */
    for (int i = 0; i < 3; i++)
        ok(cudaGraphLaunch(exec, s));
    ok(cudaGraphExecDestroy(exec)); /* what was launched is still run */
    ok(cudaStreamSynchronize(s));
    assert_int_equal(y[0], ((((1 + 1) * 2 + 5) + 1) * 2 + 5 + 1) * 2 + 5);
    assert_int_equal(y[1], 1000);
    ok(cudaEventDestroy(fork_event));
    ok(cudaEventDestroy(join_event));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(t));
    ok(cudaFreeHost(y));
}

/* Calls that CUDA refuses during a capture. */
static void captures(void **)
{
    int *y, value = 3;
    void *p;
    cudaGraph_t graph;
    cudaEvent_t e, outside;
    cudaStream_t s = stream_of(), t = stream_of();
    y = device<int>(1);
    ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    ok(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
    ok(cudaEventRecord(outside, t));
    for (int what = 0; what < 6; what++) {
        static const cudaError_t ends[] = {cudaErrorStreamCaptureUnjoined,
            cudaErrorStreamCaptureInvalidated, cudaErrorStreamCaptureInvalidated,
            cudaErrorStreamCaptureInvalidated, cudaErrorStreamCaptureInvalidated,
            cudaErrorStreamCaptureInvalidated};
        ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        change_by(s, y, 1, 1);
        ok(cudaEventRecord(e, s));
        if (what == 0) {
            ok(cudaStreamWaitEvent(t, e, 0));
            change_by(t, y, 1, 1);
        } else if (what == 1) {
            assert_int_equal(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
        } else if (what == 2) {
            assert_int_equal(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
        } else if (what == 3) {
            assert_int_equal(
                cudaStreamWaitEvent(s, outside, 0), cudaErrorStreamCaptureIsolation);
        } else if (what == 4) {
            assert_int_equal(cudaEventQuery(e), cudaErrorCapturedEvent);
        } else {
            assert_int_equal(cudaMemcpyAsync(y, &value, sizeof value, cudaMemcpyDefault, s),
                cudaErrorStreamCaptureUnsupported);
        }
        assert_int_equal(cudaStreamEndCapture(s, &graph), ends[what]);
        assert_null(graph);
        (void)cudaGetLastError();
    }
    ok(cudaFree(y));
    ok(cudaEventDestroy(e));
    ok(cudaEventDestroy(outside));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(t));
}

/* --- failures --- */

static void failures(void **)
{
    int *y = device<int>(1);
    void *p;
    cudaStream_t s = stream_of();
    softgpu_fail_next(SOFTGPU_FAIL_MALLOC, 2);
    ok(cudaMalloc(&p, 16));
    ok(cudaFree(p));
    assert_int_equal(cudaMalloc(&p, 16), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, (size_t)1 << 50), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    add_to k = {y, 1, 1};
    assert_int_equal(
        softgpu_launch(change, dim3(1), dim3(2048), 0, s, k), cudaErrorInvalidConfiguration);
    assert_int_equal(
        softgpu_launch(change, dim3(1), dim3(1), 49 << 10, s, k), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    softgpu_fail_next(SOFTGPU_FAIL_KERNEL, 2);
    change_by(s, y, 1, 1);
    change_by(s, y, 1, 1);
    ok(cudaPeekAtLastError());
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&p, 16), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress); /* it sticks */
    softgpu_heal();
    ok(cudaFree(y));
    ok(cudaStreamDestroy(s));
}

/* Fresh memory is NaN of every floating type. */
static void fresh_memory(void **)
{
    float f;
    float *p = device<float>(1);
    fetch(&f, p, 1);
    assert_true(f != f);
    ok(cudaFree(p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_kernels), /* first: it forks */
        cmocka_unit_test(barriers),
        cmocka_unit_test(lanes),
        cmocka_unit_test(laziness),
        cmocka_unit_test(legacy_stream),
        cmocka_unit_test(copies),
        cmocka_unit_test(graphs),
        cmocka_unit_test(captures),
        cmocka_unit_test(failures),
        cmocka_unit_test(fresh_memory),
    };
    return cmocka_run_group_tests_name("the soft GPU", tests, NULL, NULL);
}
