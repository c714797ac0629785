/* cuDNN's plans for the graphs of device/cuda/dnn/dnn_conv.c, made for a described H200. cuDNN
 * checks a graph, lists engines and finalizes a plan without a GPU, so errors in a graph appear
 * here; the values that the plans compute are not checked. The driver loads kernels that are
 * compiled at run time, such as those of attention. For these the test accepts engines that
 * take the graph and fail at loading (CMakeLists.txt substitutes the toolkit's libcuda, which
 * has no driver). */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cuda/dnn/dnn.h"
#include "device/cuda/dnn/dnn_attention.h"
#include "device/cuda/dnn/dnn_graph.h"
#include "device/cuda/kernels/matmul.h"

/* Stubs of the plug-in's functions that dnn/dnn_run.c calls; the test runs none. */

choir__cuda *choir__cuda_here(void)
{
    return NULL;
}

void *choir__cuda_scratch(int slot, size_t bytes)
{
    (void)slot, (void)bytes;
    return NULL;
}

void choir__cuda_scratch_done(int slot)
{
    (void)slot;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

bool choir__cuda_conv_tf32(void)
{
    return false;
}

void choir__cuda_copy(const choir__k_copy *k)
{
    (void)k;
}

static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,\"deviceVer\":900,"
    "\"multiProcessorCount\":132,\"driverVer\":13000,\"totalGlobalMem\":150000000000,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"l2CacheSize\":62914560,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"pciDeviceId\":590680286,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smCountOrigin\":0,\"oversizedSharedMemoryPerBlock\":0,"
    "\"memoryBusWidth\":6144}";

static choir__dnn_target described(void)
{
    choir__dnn_target t = {0};
    if (choir__cudnn.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &t.device) !=
            CUDNN_STATUS_SUCCESS ||
        choir__cudnn.BackendSetAttribute(t.device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
            CUDNN_TYPE_CHAR, sizeof h200, h200) != CUDNN_STATUS_SUCCESS ||
        choir__cudnn.BackendFinalize(t.device) != CUDNN_STATUS_SUCCESS) {
        char why[256] = "";
        choir__cudnn.GetLastErrorString(why, sizeof why);
        printf("skipped: this cuDNN takes no such description of a GPU: %s\n", why);
        exit(77);
    }
    return t;
}

/* loads: the plan's kernels are compiled, the last step possible without a driver. */
static void expect_plan(choir__dnn_target t, choir__dnn_build *build, choir__dnn_problem p,
    bool loads, const char *what, int i)
{
    char why[512] = "";
    int64_t space = -1;
    int engines = 0;
    choir__dnn_thing plan = choir__dnn_plan_new(t, build, &p, &space, &engines);
    if (!plan && !(loads && engines)) {
        choir__cudnn.GetLastErrorString(why, sizeof why);
        fail_msg("%s %d, kind %d, %s: no plan; %s", what, i, p.kind,
            choir_dtype_name((choir_dtype)p.dtype), why);
    }
    if (plan)
        choir__cudnn.BackendDestroyDescriptor(plan);
}

#define CONV(N, SIZE, C, O, K, STRIDE, PAD, OUT)                                               \
    {                                                                                          \
        .n = N, .h = SIZE, .w = SIZE, .c = C, .o = O, .kh = K, .kw = K, .groups = 1,           \
        .stride_h = STRIDE, .stride_w = STRIDE, .pad_h = PAD, .pad_w = PAD, .dilation_h = 1,   \
        .dilation_w = 1, .oh = OUT, .ow = OUT                                                  \
    }

static const choir__conv_shape convs[] = {/* resnet50's */
    CONV(64, 224, 3, 64, 7, 2, 3, 112), CONV(64, 56, 64, 64, 1, 1, 0, 56),
    CONV(64, 56, 64, 64, 3, 1, 1, 56), CONV(64, 56, 256, 512, 1, 2, 0, 28),
    CONV(64, 28, 128, 128, 3, 2, 1, 14), CONV(64, 7, 512, 2048, 1, 1, 0, 7)};

static void conv(void **state)
{
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
    choir__dnn_target t = described();
    (void)state;
    for (int i = 0; i < (int)CHOIR_COUNT(convs); i++)
        for (int d = 0; d < (int)CHOIR_COUNT(dtypes); d++)
            for (int kind = CHOIR__DNN_CONV; kind <= CHOIR__DNN_CONV_WEIGHT; kind++)
                expect_plan(t, choir__dnn_build_conv,
                    choir__dnn_conv_problem(kind, &convs[i], dtypes[d], false), false, "conv",
                    i);
    choir__cudnn.BackendDestroyDescriptor(t.device);
}

/* A bias is fused with the convolution, in 16 bits by an engine that is compiled at run time.
 * For a vision transformer's patches in bf16 there is none: the bias is then added after. */
static void conv_with_bias(void **state)
{
    static const choir__conv_shape patches = CONV(64, 224, 3, 768, 16, 16, 0, 14);
    choir__dnn_target t = described();
    (void)state;
    expect_plan(t, choir__dnn_build_conv,
        choir__dnn_conv_problem(CHOIR__DNN_CONV, &convs[2], CHOIR_F32, true), true,
        "conv with a bias", 2);
    expect_plan(t, choir__dnn_build_conv,
        choir__dnn_conv_problem(CHOIR__DNN_CONV, &patches, CHOIR_BF16, false), false, "patches",
        0);
    choir__cudnn.BackendDestroyDescriptor(t.device);
}

/* Heads of one packed (B, T, 3, H, D) tensor, as gpt2 has them, and grouped ones. */
static void attention(void **state)
{
    static const int64_t shapes[][5] = {/* b, h, g, t, d */
        {32, 12, 12, 1024, 64}, {2, 32, 8, 2048, 128}};
    choir__dnn_target t = described();
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    (void)state;
    if (!driver)
        skip();
    for (int i = 0; i < (int)CHOIR_COUNT(shapes); i++) {
        const int64_t *n = shapes[i], row = (n[1] + 2 * n[2]) * n[4];
        choir__heads of = {NULL, n[3] * row, n[4], row};
        choir__heads y = {NULL, n[3] * n[1] * n[4], n[4], n[1] * n[4]};
        choir__k_attention k = {
            .q = of, .k = of, .v = of, .y = y, .dtype = i ? CHOIR_F16 : CHOIR_BF16};
        k.n = (choir__attention_shape){.b = n[0],
            .h = n[1],
            .g = n[2],
            .t = n[3],
            .s = n[3],
            .d = n[4],
            .scale = 0.125f,
            .causal = !i};
        expect_plan(t, choir__dnn_build_attention, choir__dnn_attention_problem(&k), true,
            "attention", i);
        choir__k_attention_backward b = {.q = of,
            .k = of,
            .v = of,
            .y = y,
            .gy = y,
            .gq = of,
            .gk = of,
            .gv = of,
            .n = k.n,
            .dtype = k.dtype};
        expect_plan(t, choir__dnn_build_attention_backward,
            choir__dnn_attention_backward_problem(&b), true, "attention's backward", i);
    }
    dlclose(driver);
    choir__cudnn.BackendDestroyDescriptor(t.device);
}

static void known_faults(void **state)
{
    static const struct {
        size_t version;
        int64_t t, s;
        bool causal, sound;
    } cases[] = {{91900, 1024, 1024, true, true}, {91900, 192, 192, false, false},
        {91900, 192, 192, true, true}, {91900, 197, 197, false, true},
        {91900, 1, 128, false, false}, {91500, 197, 197, true, false},
        {91501, 197, 197, true, true}, {91500, 640, 640, true, true},
        {91001, 1024, 1024, true, false}, {91200, 1024, 1024, true, true}};
    (void)state;
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir__attention_shape n = {.b = 1,
            .h = 1,
            .g = 1,
            .t = cases[i].t,
            .s = cases[i].s,
            .d = 64,
            .scale = 1,
            .causal = cases[i].causal};
        assert_int_equal(
            choir__dnn_attention_backward_sound(cases[i].version, &n), cases[i].sound);
    }
}

/* A graph that no engine takes: it shows that the test above can fail. */
static void refused(void **state)
{
    choir__dnn_target t = described();
    choir__conv_shape s = CONV(64, 56, 64, 64, 3, 1, 1, 55); /* its output is 56 wide */
    choir__dnn_problem p = choir__dnn_conv_problem(CHOIR__DNN_CONV, &s, CHOIR_BF16, false);
    int64_t space = 0;
    int engines = 0;
    (void)state;
    assert_null(choir__dnn_plan_new(t, choir__dnn_build_conv, &p, &space, &engines));
    assert_int_equal(engines, 0);
    choir__cudnn.BackendDestroyDescriptor(t.device);
}

int main(void)
{
    if (choir__cudnn_open() != CHOIR_OK) {
        printf("skipped: %s\n", choir_error_message());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(conv),
        cmocka_unit_test(conv_with_bias),
        cmocka_unit_test(known_faults),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("cuDNN's plans", tests, NULL, NULL);
}
