/* Measures training steps on a GPU: their rate, their share of the card's matrix rate, and
 * their memory.
 *
 *   choir_bench_gpu [--tiny] [--seconds S] [--json] [--count] DEVICE
 *                   [WORKLOAD=BATCH[,BATCH...]]...
 *
 * Workloads: gpt2 (124M, 1024 tokens), resnet50 (224 x 224), bert (base, 512 tokens), toy,
 * gpt2-50257 (with GPT-2's own vocabulary, which is odd), llama (1B, 2048 tokens); bf16 by
 * autocast, toy in f32; AdamW; one recorded step after another on random data that reside on
 * the device. --tiny makes the models and the yardstick small, for a CPU or a test.
 * --seconds is the approximate time for each batch size. bench/peers/gpu.py measures the same
 * in PyTorch, and bench/gpu.sh runs both. --count measures no time: it counts the calls of a
 * recorded step and their memory traffic (gpu/count.c).
 *
 * A time is the duration of a run of steps of 0.2 s between two waits for the device, divided
 * by their number; the program reports the median of several runs. The loss is that after the
 * first steps, WARM_UP of them, beside which another program's shows whether the numbers are
 * right. Products without a library are those that were issued and for which cuBLASLt had no
 * algorithm: Choir's own kernel computes them, slowly. Model FLOPs are 6 per
 * parameter and token (without the embeddings that are only looked up) and attention's 12 T C
 * per layer and token, half of it if it is causal; for ResNet-50, three forward passes of
 * 4.089 G multiply-adds. The yardstick is one bf16 product of 8192 x 8192 x 8192 random
 * numbers through the kernel table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "base/base.h"
#include "gpu/count.h"
#include "median.h"
#include "tensor/scope.h"

enum { WARM_UP = 5, MOST_RUNS = 15, LEAST_RUNS = 3, MOST_STEPS = 2000 };
static const double RUN_SECONDS = 0.2, RESNET_FLOPS = 3 * 2 * 4.089e9;

typedef struct workload {
    const char *name, *model, *tiny;
    const char *batches, *tiny_batches;
    struct {
        int64_t layers, width;
    } size[2]; /* of transformers: full, tiny */
    bool causal, half;
} workload;

static const workload workloads[] = {
    {"gpt2", "gpt2:vocab=50304", "gpt2:layers=2,heads=2,width=32,context=16,vocab=64",
        "64,32,16", "2", {{12, 768}, {2, 32}}, true, true},
    {"resnet50", "resnet50", "resnet50:image=32,width=8,stages=2,blocks=1,classes=10", "256",
        "2", {{0}}, false, true},
    {"bert", "bert:context=512,vocab=30528",
        "bert:layers=2,heads=2,width=32,context=16,vocab=64", "64", "2", {{12, 768}, {2, 32}},
        false, true},
    {"toy", "toy", "toy", "20", "20", {{0}}, false, false},
    {"gpt2-50257", "gpt2:vocab=50257", "gpt2:layers=2,heads=2,width=32,context=16,vocab=515",
        "32", "2", {{12, 768}, {2, 32}}, true, true},
    {"llama",
        "llama:layers=16,heads=32,kv_heads=8,width=2048,hidden=8192,context=2048,vocab=128256",
        "llama:layers=2,heads=2,width=32,context=16,vocab=64", "4", "2", {{16, 2048}, {2, 32}},
        true, true},
};

static struct settings {
    bool tiny, json, count;
    double seconds;
    choir_device *device;
} set = {.seconds = 5};

typedef struct job {
    choir_model_info info;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    choir_dataset *data;
    choir_tensor *x, *y;
    int64_t parameters, looked_up;
    double loss;  /* after WARM_UP steps */
    long without; /* products without a library */
} job;

/* --- the yardstick --- */

/* Returns TFLOP/s; 0 after a failure, which it has reported. */
static double matrix_rate(void)
{
    int64_t n = set.tiny ? 64 : 8192;
    choir_scope *run = choir_scope_open(set.device, 1);
    choir_tensor *a = choir_cast(choir_randn(run, choir_dims(n, n), "a"), CHOIR_BF16);
    choir_tensor *b = choir_cast(choir_randn(run, choir_dims(n, n), "b"), CHOIR_BF16);
    choir_tensor *c = choir_zeros(run, CHOIR_BF16, choir_dims(n, n));
    choir_status status = choir_scope_status(run);
    double times[MOST_RUNS];
    choir__k_matmul args = {.a = choir__data(a),
        .b = choir__data(b),
        .c = choir__data(c),
        .batch0 = 1,
        .batch1 = 1,
        .m = n,
        .n = n,
        .k = n,
        .a_row = n,
        .a_col = 1,
        .b_row = n,
        .b_col = 1,
        .c_row = n,
        .dtype = CHOIR_BF16};
    for (int i = -3; i < MOST_RUNS && status == CHOIR_OK; i++) {
        enum { TOGETHER = 10 };
        double start = choir__now();
        for (int j = 0; j < TOGETHER; j++)
            choir__launch(set.device, CHOIR_BF16, matmul, &args);
        status = choir_device_sync(set.device);
        if (i >= 0)
            times[i] = (choir__now() - start) / TOGETHER;
    }
    (void)!choir_scope_close(run);
    choir__pool_trim(set.device);
    if (status != CHOIR_OK)
        fprintf(stderr, "matrix product: %s\n", choir_error_message());
    return status == CHOIR_OK ? 2e-12 * (double)(n * n * n) / median(times, MOST_RUNS) : 0;
}

/* --- a model, its data and its step --- */

static void count(const char *name, choir_tensor *t, void *arg)
{
    job *j = arg;
    int64_t n = choir_tensor_count(t);
    j->parameters += n;
    if (strstr(name, "wpe") || strstr(name, "position_emb") || strstr(name, "token_type_emb"))
        j->looked_up += n;
}

static choir_status make_data(job *j, int64_t batch)
{
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = batch;
    bool tokens = j->info.task == CHOIR_LANGUAGE;
    bool values = j->info.task == CHOIR_REGRESSION;
    choir_status status = tokens ? choir_dataset_random_tokens(batch, j->info.input.dim[0],
                                       j->info.classes, 5, &j->data)
                                 : choir_dataset_random(batch, j->info.input,
                                       values ? j->info.output : CHOIR_SCALAR,
                                       values ? 0 : j->info.classes, 5, &j->data);
    if (status != CHOIR_OK)
        return status;
    choir_batch b;
    choir_loader *loader = choir_loader_new(j->run, j->data, opts);
    choir_scope *step = choir_step_open(j->run, 0);
    status = choir_loader_next(loader, step, &b);
    if (status == CHOIR_OK) {
        j->x = choir_keep(j->run, choir_contiguous(b.x));
        j->y = choir_keep(j->run, choir_contiguous(b.y));
    }
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

static choir_status open_job(job *j, const workload *w, int64_t batch)
{
    const char *model = set.tiny ? w->tiny : w->model;
    choir_status status = choir_model_describe(model, &j->info);
    if (status != CHOIR_OK)
        return status;
    j->net = choir_model_build(j->run, &j->info);
    if (w->half)
        choir_autocast(j->run, CHOIR_BF16);
    j->optim = choir_adamw(j->run, j->net, choir_adamw_defaults());
    choir_module_visit(j->net, false, count, j);
    status = make_data(j, batch);
    return status == CHOIR_OK ? choir_scope_status(j->run) : status;
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_tensor *out = choir_forward(j->net, choir_in(step, j->x));
    choir_status status = choir_backward(choir_model_loss(&j->info, out, choir_in(step, j->y)));
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

/* --- measuring --- */

static choir_status steps(job *j, int64_t n, double *seconds)
{
    choir_status status = choir_device_sync(set.device);
    double start = choir__now();
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++)
        status = choir_step(j->run, body, j);
    choir_status last = choir_device_sync(set.device);
    *seconds = (choir__now() - start) / (double)n;
    return status == CHOIR_OK ? last : status;
}

/* Computes the loss as it is now. */
static choir_status see_loss(job *j)
{
    choir_scope *s = choir_step_open(j->run, 0);
    choir_tensor *out = choir_forward(j->net, choir_in(s, j->x));
    j->loss = choir_item(choir_model_loss(&j->info, out, choir_in(s, j->y)));
    choir_status status = choir_scope_status(s), closed = choir_scope_close(s);
    return status == CHOIR_OK ? closed : status;
}

static long products_without(void)
{
    choir__library_use use[CHOIR__LIBRARIES];
    (void)!choir_device_sync(set.device);
    choir__device_libraries(set.device, use);
    return use[CHOIR__CUBLASLT].without;
}

/* *step: the median of a step's times */
static choir_status measure(job *j, double *step)
{
    double times[MOST_RUNS], once = 0, began = choir__now();
    int runs = 0;
    choir_status status = steps(j, WARM_UP, &once); /* recorded on the way */
    if (status == CHOIR_OK)
        status = see_loss(j);
    if (status == CHOIR_OK && !set.tiny)
        status = steps(j, 1, &once);
    int64_t together = choir__min(choir__max((int64_t)(RUN_SECONDS / once), 1), MOST_STEPS);
    while (status == CHOIR_OK && runs < MOST_RUNS &&
           (runs < LEAST_RUNS || choir__now() - began < set.seconds))
        status = steps(j, set.tiny ? 1 : together, &times[runs++]);
    if (status == CHOIR_OK)
        *step = median(times, runs);
    return status;
}

/* Returns the model FLOPs of an item (a token, an image); 0: unknown. */
static double flops_of(const workload *w, const job *j)
{
    double t = (double)j->info.input.dim[0];
    double wide = (double)(w->size[set.tiny].layers * w->size[set.tiny].width);
    if (j->info.task == CHOIR_LANGUAGE)
        return 6 * (double)(j->parameters - j->looked_up) + (w->causal ? 6 : 12) * wide * t;
    return !strcmp(w->name, "resnet50") && !set.tiny ? RESNET_FLOPS : 0;
}

static void print(const workload *w, const job *j, int64_t batch, double step, double rate)
{
    choir_device_stats stats;
    choir_device_get_stats(set.device, &stats);
    double items = (double)(batch * choir__max(j->info.items, 1)) / step;
    double tflops = items * flops_of(w, j) * 1e-12, mib = 1024 * 1024;
    if (set.json) {
        printf("{\"workload\":\"%s\",\"batch\":%lld,\"step_ms\":%.5f,\"items_per_s\":%.1f,"
               "\"tflops\":%.3f,\"mfu\":%.4f,\"peak_mib\":%.1f,\"reserved_mib\":%.1f,"
               "\"parameters\":%lld,\"loss\":%.5f,\"products_without_library\":%ld,"
               "\"epilogues\":%s}\n",
            w->name, (long long)batch, step * 1e3, items, tflops, rate > 0 ? tflops / rate : 0,
            (double)stats.bytes_peak / mib, (double)stats.bytes_reserved / mib,
            (long long)j->parameters, j->loss, j->without,
            set.device->epilogues ? "true" : "false");
        fflush(stdout);
        return;
    }
    printf("%-9s %6lld %11.3f ms %12.0f items/s", w->name, (long long)batch, step * 1e3, items);
    if (tflops > 0)
        printf(" %7.1f TFLOP/s %5.1f %%", tflops, rate > 0 ? 100 * tflops / rate : 0);
    printf("  %.0f MiB, %.0f reserved; loss %.4f; products without a library: %ld\n",
        (double)stats.bytes_peak / mib, (double)stats.bytes_reserved / mib, j->loss,
        j->without);
    fflush(stdout);
}

/* Counts a step that is replayed, then the same step task by task. */
static choir_status count_step(const workload *w, job *j, int64_t batch)
{
    double seconds;
    choir_status status = steps(j, WARM_UP, &seconds);
    long before = choir__count_launches();
    if (status == CHOIR_OK)
        status = steps(j, 1, &seconds);
    long launches = choir__count_launches() - before;
    choir__count_begin(set.device, j->parameters);
    if (status == CHOIR_OK)
        status = steps(j, 1, &seconds);
    choir__count_end(w->name, batch, launches, set.json);
    return status;
}

static bool one(const workload *w, int64_t batch, double rate)
{
    job j = {0};
    double step = 0;
    long before = products_without();
    choir_device_reset_peak(set.device);
    j.run = choir_scope_open(set.device, 1);
    choir_status status = open_job(&j, w, batch);
    if (status == CHOIR_OK)
        status = set.count ? count_step(w, &j, batch) : measure(&j, &step);
    j.without = products_without() - before;
    if (status == CHOIR_OK && !set.count)
        print(w, &j, batch, step, rate);
    else if (status != CHOIR_OK)
        fprintf(
            stderr, "%s, batch %lld: %s\n", w->name, (long long)batch, choir_error_message());
    (void)!choir_scope_close(j.run);
    choir_dataset_free(j.data);
    choir__pool_trim(set.device);
    return status == CHOIR_OK;
}

/* Runs "gpt2", or "gpt2=64,32"; false after a failure, which it has reported. */
static bool all_of(const char *text, double rate)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    bool fine = true;
    for (size_t i = 0; i < CHOIR_COUNT(workloads); i++) {
        const workload *w = &workloads[i];
        if (strlen(w->name) != length || strncmp(w->name, text, length) != 0)
            continue;
        char *at = (char *)(equals ? equals + 1 : set.tiny ? w->tiny_batches : w->batches);
        for (int64_t batch; (batch = strtoll(at, &at, 10)) > 0; at += *at == ',')
            fine = one(w, batch, rate) && fine;
        return fine;
    }
    fprintf(stderr, "there is no workload '%s'; choose one of", text);
    for (size_t i = 0; i < CHOIR_COUNT(workloads); i++)
        fprintf(stderr, " %s", workloads[i].name);
    fputc('\n', stderr);
    return false;
}

int main(int argc, char **argv)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++)
        if (!strcmp(argv[at], "--tiny"))
            set.tiny = true;
        else if (!strcmp(argv[at], "--json"))
            set.json = true;
        else if (!strcmp(argv[at], "--count"))
            set.count = true;
        else if (!strcmp(argv[at], "--seconds") && at + 1 < argc)
            set.seconds = atof(argv[++at]);
        else
            at = argc;
    if (at >= argc) {
        fprintf(stderr, "usage: choir_bench_gpu [--tiny] [--seconds S] [--json] [--count] "
                        "DEVICE [WORKLOAD=BATCH,...]...\n");
        return 2;
    }
    set.device = choir_device_find(argv[at++]);
    if (!set.device) {
        fprintf(stderr, "%s\n", choir_error_message());
        return 1;
    }
    double rate = set.count ? 1 : matrix_rate();
    if (!set.count)
        printf(
            set.json ? "{\"matmul_tflops\":%.3f}\n" : "a bf16 product: %.1f TFLOP/s\n", rate);
    bool fine = rate > 0;
    for (int i = at; i < argc; i++)
        fine = all_of(argv[i], rate) && fine;
    for (size_t i = 0; at == argc && i < CHOIR_COUNT(workloads); i++)
        fine = all_of(workloads[i].name, rate) && fine;
    return fine ? 0 : 1;
}
