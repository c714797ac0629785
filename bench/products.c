/* Times products of our own beside oneDNN's, at the shapes of the registry's models, forward
 * and both gradients, on one core:
 *
 *     choir_bench_products [--isa avx2|amx] [--dtype bf16] [--filter gpt2] [--list]
 *                          [--cut OUTER,LEAVES] [--shape M,N,K,NN]
 *
 * The two run in turns. A line has the shape, its layout (N: rows, T: transposed), and the
 * lower quartile of the processor time of a call of each, in microseconds; 0: not built in.
 * --list prints the shapes alone, for a peer that times the same. --cut times our own product
 * with a cut of K in oneDNN's place, and adds the ratio of the fastest calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <choir/device.h>
#include "device/cpu/context.h"
#include "device/cpu/product/amx.h"
#include "device/cpu/product/product.h"
#include "median.h"

enum { ROUNDS = 25, FEWEST = 3 };
static const double enough = 0.3; /* seconds of all rounds of a shape, from FEWEST on */

typedef void matmul_fn(const choir__k_matmul *k);
matmul_fn choir__cpu_own_matmul_baseline, choir__cpu_own_matmul_avx2,
    choir__cpu_own_matmul_avx512;
void choir__cpu_product_pairs_avx512(const choir__k_matmul *k, const choir__operands *other);

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    const char *layout;
} shape;

static const shape shapes[] = {
    {"gpt2.qkv", 256, 2304, 768, "NN"},
    {"gpt2.fc", 256, 3072, 768, "NN"},
    {"gpt2.proj", 256, 768, 3072, "NN"},
    {"gpt2.qkv.gx", 256, 768, 2304, "NT"},
    {"gpt2.fc.gx", 256, 768, 3072, "NT"},
    {"gpt2.proj.gx", 256, 3072, 768, "NT"},
    {"gpt2.fc.gw", 768, 3072, 256, "TN"},
    {"gpt2.proj.gw", 3072, 768, 256, "TN"},
    {"gpt2.head", 256, 50257, 768, "NT"},
    {"gpt2.head.gx", 256, 768, 50257, "NN"},
    {"gpt2.head.gw", 50257, 768, 256, "TN"},
    {"bert.qkv", 1024, 768, 768, "NT"},
    {"bert.fc", 1024, 3072, 768, "NT"},
    {"bert.fc.gx", 1024, 768, 3072, "NN"},
    {"bert.fc.gw", 3072, 768, 1024, "TN"},
    {"resnet50.64-64", 25088, 64, 64, "NT"},
    {"resnet50.64-256", 25088, 256, 64, "NT"},
    {"resnet50.256-64", 25088, 64, 256, "NT"},
    {"resnet50.256-64.gx", 25088, 256, 64, "NN"},
    {"resnet50.256-64.gw", 64, 256, 25088, "TN"},
    {"resnet50.512-128", 6272, 128, 512, "NT"},
    {"resnet50.1024-256", 1568, 256, 1024, "NT"},
    {"resnet50.2048-512", 392, 512, 2048, "NT"},
    {"resnet50.2048-512.gw", 512, 2048, 392, "TN"},
    {"resnet50.fc", 8, 1000, 2048, "NT"},
    {"resnet50.fc.gx", 8, 2048, 1000, "NN"},
    {"resnet50.fc.gw", 1000, 2048, 8, "TN"},
    {"lstm.ih", 2048, 4096, 1024, "NT"},
    {"lstm.hh", 32, 4096, 1024, "NT"},
    {"lstm.hh.gx", 32, 1024, 4096, "NN"},
    {"lstm.gw", 4096, 1024, 2048, "TN"},
    {"nano.qkv", 768, 384, 128, "NN"},
    {"nano.fc", 768, 512, 128, "NN"},
    {"nano.proj", 768, 128, 512, "NN"},
    {"nano.fc.gx", 768, 128, 512, "NT"},
    {"nano.fc.gw", 128, 512, 768, "TN"},
    {"nano.head", 768, 65, 128, "NT"},
    {"nano.head.gx", 768, 128, 65, "NN"},
    {"nano.head.gw", 65, 128, 768, "TN"},
};

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *numbers(int64_t n, choir_dtype dtype)
{
    size_t size = choir_dtype_size(dtype);
    char *p = aligned_alloc(64, ((size_t)n * size + 63) & ~(size_t)63);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(state >> 8) / 0x1p23f - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits >>= dtype == CHOIR_BF16 ? 16 : 0;
        memcpy(p + (size_t)i * size, &bits, size);
    }
    return p;
}

static double time_of(matmul_fn *multiply, const choir__k_matmul *k, int calls)
{
    double start = processor_time();
    for (int i = 0; i < calls; i++)
        multiply(k);
    return (processor_time() - start) / calls;
}

static double quartile(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    return times[n / 4] * 1e6;
}

static double least(const double *times, int n)
{
    double x = times[0];
    for (int i = 1; i < n; i++)
        x = times[i] < x ? times[i] : x;
    return x;
}

/* cut.leaves 0: `other` computes the same product. */
static void measure(
    const shape *s, choir_dtype dtype, matmul_fn *own, matmul_fn *other, choir__cut cut)
{
    const bool ta = s->layout[0] == 'T', tb = s->layout[1] == 'T';
    choir__k_matmul k = {.a = numbers(s->m * s->k, dtype),
        .b = numbers(s->k * s->n, dtype),
        .c = numbers(s->m * s->n, dtype),
        .batch0 = 1,
        .batch1 = 1,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a_row = ta ? 1 : s->k,
        .a_col = ta ? s->m : 1,
        .b_row = tb ? 1 : s->n,
        .b_col = tb ? s->k : 1,
        .c_row = s->n,
        .dtype = dtype};
    choir__k_matmul second = k;
    second.cut = cut;
    double ours[ROUNDS], theirs[ROUNDS] = {0};
    double once = time_of(own, &k, 1);
    int calls = once < 5e-4 ? (int)(5e-4 / once) + 1 : 1;
    if (other)
        other(&second);
    double start = processor_time();
    int n = 0;
    for (; n < ROUNDS && (n < FEWEST || processor_time() - start < enough); n++) {
        ours[n] = time_of(own, &k, calls);
        if (other)
            theirs[n] = time_of(other, &second, calls);
    }
    const double ratio = least(theirs, n) / least(ours, n);
    printf("%-22s %6lld %6lld %6lld %s %10.1f %10.1f", s->name, (long long)s->m,
        (long long)s->n, (long long)s->k, s->layout, quartile(ours, n), quartile(theirs, n));
    if (cut.leaves)
        printf(" %6.3f", ratio);
    printf("\n");
    fflush(stdout);
    free((void *)k.a);
    free((void *)k.b);
    free(k.c);
}

#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
static void by_amx(const choir__k_matmul *k)
{
    choir__cpu_product_pairs_avx512(k, NULL);
}
#endif

static matmul_fn *own_of(const char *isa)
{
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
    if (!strcmp(isa, "amx"))
        return by_amx;
    if (!strcmp(isa, "avx512"))
        return choir__cpu_own_matmul_avx512;
#endif
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
    if (!strcmp(isa, "avx2"))
        return choir__cpu_own_matmul_avx2;
#endif
    (void)isa;
    return choir__cpu_own_matmul_baseline;
}

int main(int argc, char **argv)
{
    const char *filter = "", *isa = choir_cpu_isa();
    choir_dtype dtype = CHOIR_F32;
    bool list = false;
    choir__cut cut = {0, 0};
    shape given = {"", 0, 0, 0, "NN"};
    char layout[3] = "NN";
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--list"))
            list = true;
        else if (more && !strcmp(argv[i], "--filter"))
            filter = argv[++i];
        else if (more && !strcmp(argv[i], "--cut"))
            sscanf(argv[++i], "%" PRId64 ",%" PRId64, &cut.outer, &cut.leaves);
        else if (more && !strcmp(argv[i], "--shape"))
            sscanf(argv[++i], "%" PRId64 ",%" PRId64 ",%" PRId64 ",%2s", &given.m, &given.n,
                &given.k, layout);
        else if (more && !strcmp(argv[i], "--isa"))
            isa = argv[++i];
        else if (more && !strcmp(argv[i], "--dtype"))
            dtype = !strcmp(argv[++i], "bf16") ? CHOIR_BF16 : CHOIR_F32;
    }
    setenv("CHOIR_MATH", "onednn", 0); /* the table's products, beside which ours are timed */
    const bool amx = !strcmp(isa, "amx") && choir__amx_here();
    const choir__kernels *kernels = choir__cpu_kernels(amx ? "avx512" : isa);
    if (!kernels) {
        fprintf(stderr, "this processor, or this build, lacks '%s'\n", isa);
        return 1;
    }
    bool alone = !strncmp(choir__cpu_multiplier(), "own", 3);
    matmul_fn *own = own_of(isa), *other = cut.leaves ? own : alone ? NULL : kernels->matmul;
    given.layout = layout;
    for (size_t i = 0; i < (given.m ? 1 : CHOIR_COUNT(shapes)); i++) {
        const shape *s = given.m ? &given : &shapes[i];
        if (!strstr(s->name, filter))
            continue;
        if (list)
            printf("%s %lld %lld %lld %s\n", s->name, (long long)s->m, (long long)s->n,
                (long long)s->k, s->layout);
        else
            measure(s, dtype, own, other, cut);
    }
    return 0;
}
