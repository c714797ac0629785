/* Times products, convolutions, attention and recurrent layers where they are used: in training
 * steps of the registry's models, on one core.
 *
 *     choir_bench_shapes [--amp bf16|fp16] [--filter gpt2] [--steps 3]
 *     choir_bench_shapes --small [--amp bf16|fp16]
 *
 * A line has the model, the kernel, its operands' sizes, the calls of a step, the microseconds
 * of a call, the best of the steps' means, and GFLOP/s. Layers of a transformer have the same
 * shapes, so one is enough. --small takes models of tens of milliseconds, and prints one line
 * per kernel, over all of its shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "base/base.h"

typedef struct sized {
    const char *name; /* in the registry */
    const char *text;
    int64_t batch;
} sized;

#define AS(other) other, 0 /* another model has the same shapes */

/* Each model of the registry. */
static const sized models[] = {
    {"toy", "toy", 32},
    {"mlp", "mlp", 64},
    {"cnn", "cnn", 32},
    {"lenet", "lenet", 64},
    {"resnet18", "resnet18", 4},
    {"resnet34", AS("resnet18")},
    {"resnet50", "resnet50", 4},
    {"resnet101", AS("resnet50")},
    {"resnet152", AS("resnet50")},
    {"alexnet", "alexnet", 4},
    {"vit", "vit:layers=1", 4},
    {"gpt2", "gpt2:layers=1,context=64", 4},
    {"llama", "llama:layers=1,context=64", 4},
    {"mistral", "mistral:layers=1,context=64,window=32", 4},
    {"qwen2", AS("llama")},
    {"qwen3", "qwen3:layers=1,context=64", 4},
    {"gemma", "gemma:layers=1,context=64", 4},
    {"gemma2", AS("gemma")},
    {"gemma3", AS("gemma")},
    {"phi3", "phi3:layers=1,context=64", 4},
    {"smollm3", AS("llama")},
    {"donut", "donut:height=640,image_width=320,depths=1-1-1-1,layers=1,context=64", 1},
    {"lstm", "lstm", 32},
    {"bert", "bert:layers=1,context=128", 4},
    {"roberta", AS("bert")},
    {"xlm-roberta", AS("bert")},
    {"camembert", AS("bert")},
    {"distilbert", AS("bert")},
};
static const sized small_models[] = {
    {"gpt2", "gpt2:layers=1,heads=4,width=128,context=64,vocab=65", 12},
    {"resnet18", "resnet18:small=1,image=16,width=16,classes=10", 8},
    {"lstm", "lstm:layers=1,hidden=128,in=64,out=64,context=32", 8},
};

typedef struct seen {
    char name[32], shape[64];
    int64_t calls;
    double us, flops; /* per call */
} seen;

static seen *kernels;
static int kernel_count;

static void note(const choir_trace_line *l)
{
    double us = 1e6 * l->seconds / (double)l->calls;
    for (int i = 0; i < kernel_count; i++)
        if (!strcmp(kernels[i].name, l->name) && !strcmp(kernels[i].shape, l->shape)) {
            if (us < kernels[i].us)
                kernels[i].us = us;
            return;
        }
    CHOIR__GROW(kernels, kernel_count);
    seen *s = &kernels[kernel_count++];
    *s = (seen){.calls = l->calls, .us = us, .flops = l->flops / (double)l->calls};
    snprintf(s->name, sizeof s->name, "%s", l->name);
    snprintf(s->shape, sizeof s->shape, "%s", l->shape);
}

/* Makes a step, with its kernels' times if `timed`. */
static void step(choir_scope *run, uint64_t number, const choir_model_info *info,
    choir_module *net, choir_optim *optim, choir_loader *loader, bool timed)
{
    choir_trace *trace = choir_trace_new(1);
    if (timed)
        choir_trace_device(trace, choir_scope_device(run));
    choir_scope *scope = choir_step_open(run, number);
    choir_batch batch;
    choir_check(choir_loader_next(loader, scope, &batch));
    choir_check(choir_backward(
        choir_model_loss(info, choir_model_forward(info, net, batch.x, batch.y), batch.y)));
    choir_check(choir_optim_step(optim));
    choir_check(choir_scope_close(scope));
    choir_check(choir_device_sync(choir_scope_device(run)));
    int count;
    const choir_trace_line *line = choir_trace_profile(trace, &count);
    for (int i = 0; i < count; i++)
        if (line[i].flops > 0)
            note(&line[i]);
    choir_trace_free(trace);
}

static void train(const sized *m, choir_dtype amp, int steps)
{
    choir_env env;
    choir_model_info info;
    choir_data data;
    choir_check(choir_env_init(&env));
    choir_check(choir_model_data(m->text, "random", choir_data_defaults(), &info, &data));
    choir_scope *run = choir_run_open(&env, 42);
    if (amp != CHOIR_F32)
        choir_autocast(run, amp);
    choir_module *net = choir_model_build(run, &info);
    choir_optim *optim = choir_sgd(run, net, choir_sgd_defaults());
    choir_loader *loader = choir_env_loader(run, &env, data.train, m->batch);
    choir_check(choir_scope_status(run));
    for (int i = 0; i <= steps; i++) /* the first step also builds lasting state */
        step(run, (uint64_t)i, &info, net, optim, loader, i > 0);
    choir_check(choir_scope_close(run));
    choir_data_free(&data);
    choir_env_free(&env);
}

static void print_shapes(const char *model)
{
    for (int i = 0; i < kernel_count; i++) {
        const seen *s = &kernels[i];
        printf("%-10s %-22s %-34s %6lld %10.1f %8.1f\n", model, s->name, s->shape,
            (long long)s->calls, s->us, s->flops / s->us * 1e-3);
    }
    fflush(stdout);
    kernel_count = 0;
    free(kernels);
    kernels = NULL;
}

/* A line per kernel: its FLOPs over its time, in all shapes. */
static void print_kernels(void)
{
    for (int i = 0; i < kernel_count; i++) {
        double flops = 0, us = 0;
        bool first = true;
        for (int j = 0; j < kernel_count; j++) {
            if (strcmp(kernels[i].name, kernels[j].name) != 0)
                continue;
            first &= j >= i;
            flops += (double)kernels[j].calls * kernels[j].flops;
            us += (double)kernels[j].calls * kernels[j].us;
        }
        if (first)
            printf("%s %.2f\n", kernels[i].name, flops / us * 1e-3);
    }
}

static bool is_here(const char *model)
{
    for (size_t i = 0; i < CHOIR_COUNT(models); i++)
        if (!strcmp(models[i].name, model))
            return true;
    return false;
}

static void all_are_here(void)
{
    for (int i = 0; choir_model_name(i, NULL); i++)
        if (!is_here(choir_model_name(i, NULL))) {
            fprintf(stderr, "the model '%s' needs a size here\n", choir_model_name(i, NULL));
            exit(1);
        }
}

int main(int argc, char **argv)
{
    const char *filter = "";
    choir_dtype amp = CHOIR_F32;
    int steps = 3;
    bool small = false;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--small"))
            small = true;
        else if (more && !strcmp(argv[i], "--amp"))
            amp = !strcmp(argv[++i], "bf16") ? CHOIR_BF16 : CHOIR_F16;
        else if (more && !strcmp(argv[i], "--filter"))
            filter = argv[++i];
        else if (more && !strcmp(argv[i], "--steps"))
            steps = atoi(argv[++i]);
    }
    all_are_here();
    for (size_t i = 0; small && i < CHOIR_COUNT(small_models); i++)
        train(&small_models[i], amp, steps);
    if (small) {
        print_kernels();
        return 0;
    }
    for (size_t i = 0; i < CHOIR_COUNT(models); i++)
        if (models[i].batch && strstr(models[i].name, filter)) {
            train(&models[i], amp, steps);
            print_shapes(models[i].name);
        }
    return 0;
}
