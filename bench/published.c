/* Predicted beside published: trainings of Llama-type models on 8 to 16,384 H100, from data
 * sheets and figures of single kernels alone (src/forecast/presets.c).
 *
 *     choir_bench_published [--csv]
 *
 * The set-ups were chosen, and the constants written down, before the first comparison. What a
 * source does not say is as its program's documentation has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "published/setup.h"

static const model llama2_7b = {"Llama 2 7B", 32, 4096, 32, 32, 11008, 32000, true},
                   llama2_13b = {"Llama 2 13B", 40, 5120, 40, 40, 13824, 32000, true},
                   llama2_70b = {"Llama 2 70B", 80, 8192, 64, 8, 28672, 32000, true},
                   llama3_8b = {"Llama 3 8B", 32, 4096, 32, 8, 14336, 128256, true},
                   llama3_70b = {"Llama 3 70B", 80, 8192, 64, 8, 28672, 128256, true},
                   llama3_405b = {"Llama 3 405B", 128, 16384, 128, 8, 53248, 128256, true},
                   mpt_7b = {"MPT 7B", 32, 4096, 32, 32, 16384, 50368, false},
                   mpt_13b = {"MPT 13B", 40, 5120, 40, 40, 20480, 50368, false},
                   mpt_30b = {"MPT 30B", 48, 7168, 56, 56, 28672, 50368, false},
                   mpt_70b = {"MPT 70B", 80, 8192, 64, 64, 32768, 50368, false};

/* Sources:
 *   torchtitan  benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan: FSDP and
 *               torch.compile, tables 1 and 3; cards with 2.4 TB/s, limited to 500 W
 *   NeMo        docs/source/performance/performance_summary.md of NVIDIA/NeMo, container 24.07
 *   Bridge      docs/performance-summary.md of NVIDIA-NeMo/Megatron-Bridge, container 25.11
 *   Meta        "The Llama 3 Herd of Models" (2024), table 4: 430 and 400 TFLOPS per GPU at
 *               8,192 tokens. Its 126 layers are 128 here, so that 16 stages are equal.
 *   Mosaic      scripts/train/benchmarking/README.md of mosaicml/llm-foundry, H100 BF16. MPT
 * has no gates in its feed-forward layers and is here for FSDP on 8 to 64 cards */
static const setup setups[] = {
    /* source, model, gpus, tensor, pipeline, context, virtual, sequence, global, micro, fsdp,
     * gradient_bytes, recompute, eight_bits, overlaps, memory_tb_s, tokens_s */
    {"torchtitan", &llama3_8b, 8, 1, 1, 1, 1, 8192, 16, 2, true, 4, HALF_OF_PRODUCTS, false,
        false, 2.4, 6667},
    {"torchtitan", &llama3_8b, 128, 1, 1, 1, 1, 8192, 256, 2, true, 4, HALF_OF_PRODUCTS, false,
        false, 2.4, 6514},
    {"NeMo", &llama2_7b, 8, 1, 1, 1, 1, 4096, 128, 1, false, 2, KEEP, true, true, 0, 16847},
    {"NeMo", &llama2_13b, 16, 1, 4, 1, 10, 4096, 128, 1, false, 2, KEEP, true, true, 0, 8646},
    {"NeMo", &llama2_70b, 64, 4, 4, 1, 20, 4096, 128, 1, false, 2, KEEP, true, true, 0, 1707},
    {"NeMo", &llama3_8b, 8, 1, 1, 2, 1, 8192, 128, 1, false, 2, KEEP, true, true, 0, 12036},
    {"NeMo", &llama3_70b, 64, 4, 4, 2, 5, 8192, 128, 1, false, 2, KEEP, true, true, 0, 1533},
    {"Bridge", &llama3_8b, 8, 1, 1, 1, 1, 8192, 128, 1, true, 2, KEEP, true, true, 0, 14451},
    {"Bridge", &llama3_70b, 64, 4, 8, 1, 5, 8192, 128, 1, false, 2, KEEP, true, true, 0, 1602},
    {"Bridge", &llama3_405b, 1024, 8, 8, 2, 8, 8192, 512, 1, false, 2, KEEP, true, true, 0,
        292},
    {"Meta", &llama3_405b, 8192, 8, 16, 1, 8, 8192, 2048, 1, false, 4, KEEP, false, true, 0,
        -430e12},
    {"Meta", &llama3_405b, 16384, 8, 16, 1, 8, 8192, 2048, 1, false, 4, KEEP, false, true, 0,
        -400e12},
    {"Mosaic", &mpt_7b, 8, 1, 1, 1, 1, 2048, 48, 6, true, 2, KEEP, false, false, 0, 10643},
    {"Mosaic", &mpt_13b, 64, 1, 1, 1, 1, 2048, 128, 2, true, 2, KEEP, false, false, 0, 4800},
    {"Mosaic", &mpt_30b, 32, 1, 1, 1, 1, 2048, 1344, 14, true, 2, ALL, false, false, 0, 2308},
    {"Mosaic", &mpt_70b, 64, 1, 1, 1, 1, 2048, 2048, 8, true, 2, ALL, false, false, 0, 1039},
};

/* Stores predicted tokens per second and GPU. */
static choir_status predict(const setup *s, double *tokens_s)
{
    choir__cluster cluster;
    choir__step step;
    choir__forecast f;
    choir_status status = choir__cluster_preset("H100", (s->gpus + 7) / 8, 8, &cluster);
    if (status)
        return status;
    if (s->memory_tb_s > 0)
        cluster.device.memory_bytes_s = s->memory_tb_s * 1e12;
    setup_step(s, &step);
    status = choir__replay(&step, &cluster, NULL, (choir__replay_opts){0}, &f);
    if (!status)
        *tokens_s = (double)s->global_batch * s->sequence / s->gpus / f.seconds;
    choir__forecast_free(&f);
    choir__step_free(&step);
    return status;
}

int main(int argc, char **argv)
{
    const bool csv = argc > 1 && strcmp(argv[1], "--csv") == 0;
    double errors[CHOIR_COUNT(setups)], worst = 0, sum = 0;
    int within = 0;
    printf(csv ? "source,model,gpus,published,predicted,error\n"
               : "| source | model | GPUs | T x P x C | tokens/s/GPU | predicted | error |\n"
                 "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < CHOIR_COUNT(setups); i++) {
        const setup *s = &setups[i];
        double predicted, published = s->tokens_s;
        if (published < 0)
            published = -published / model_flops(s->model, s->sequence);
        if (predict(s, &predicted)) {
            fprintf(stderr, "%s, %s: %s\n", s->source, s->model->name, choir_error_message());
            return EXIT_FAILURE;
        }
        errors[i] = predicted / published - 1;
        const double size = errors[i] < 0 ? -errors[i] : errors[i];
        worst = size > worst ? size : worst;
        sum += size;
        within += size <= 0.25;
        printf(csv ? "%s,%s,%d,%.0f,%.0f,%.3f\n" : "| %s | %s | %d |", s->source,
            s->model->name, s->gpus, published, predicted, errors[i]);
        if (!csv)
            printf(" %d x %d x %d | %.0f | %.0f | %+.0f %%%s |\n", s->tensor, s->pipeline,
                s->context, published, predicted, 100 * errors[i],
                size > 0.25 ? ", a miss" : "");
    }
    choir__device_model h100;
    if (choir__device_preset("H100", &h100))
        return EXIT_FAILURE;
    fprintf(stderr, "figures of the H100: %s\n", choir__figure_source_name(h100.source));
    fprintf(stderr, "%d of %zu within 25 %%, mean %.0f %%, worst %.0f %%\n", within,
        CHOIR_COUNT(setups), 100 * sum / CHOIR_COUNT(setups), 100 * worst);
    return EXIT_SUCCESS;
}
