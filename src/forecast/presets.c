/* Kinds of devices and links, from public data sheets.
 *
 * FLOPs are of dense products (data sheets often print the double, "with sparsity"),
 * links have the rate of one direction (data sheets often print the sum of both). The shares
 * are what large kernels of public libraries reach on a single card:
 *
 * - products: 0.69 on an H100 or H200, as one bf16 product of 8192 x 8192 x 8192 by cuBLASLt on
 *   an H200 had 678 to 691 TFLOPS (docs/benchmarks.md). The others are estimates.
 * - attention: on an H100 cuDNN and FlashAttention-3 have about 600 TFLOPS forward, heads of
 * 128 (Shah et al., 2024, figure 5), less backward: 0.5 for both. FlashAttention-2 has 50 to 73
 * % of an A100 (Dao, 2023). The others are estimates.
 * - memory: 0.9 of the data sheet, an estimate.
 *
 * Alpha of GPUs' links is the latency of a step by NCCL's own tables ("Simple" in its
 * tuner: 3.4 us over NVLink, 5.7 over PCIe, 14 over a network); and of Ethernet an estimate. Of
 * a link's rate large messages reach 0.8 (NVLink: NCCL's rings of 8 H100 have about 360 GB/s of
 * 450; PCIe) or 0.9 (networks). No figure here was fitted to a training. */
#include "forecast/cluster.h"

#include <string.h>

#include "base/base.h"
#include "base/named.h"

#define GB_S   1e9
#define TFLOPS 1e12
#define GIB    ((int64_t)1 << 30)

static const struct device_preset {
    const char *kind;
    double f32, tf32, bf16; /* TFLOPS */
    double memory_gb_s;
    int64_t memory_gib;
    double product, attention; /* shares */
    const char *within, *between;
    int ports; /* per node, between nodes */
} devices[] = {
    /* NVIDIA A100 Tensor Core GPU data sheet, 2021 (SXM4) */
    {"A100", 19.5, 156, 312, 2039, 80, 0.85, 0.62, "NVLink3", "HDR200", 8},
    {"A100-40G", 19.5, 156, 312, 1555, 40, 0.85, 0.62, "NVLink3", "HDR200", 8},
    /* NVIDIA HGX B200 data sheet, 2025: 8 GPUs have 36 PFLOPS of sparse bf16, 1.4 TB, 62 TB/s
     */
    {"B200", 75, 1125, 2250, 7700, 180, 0.69, 0.45, "NVLink5", "NDR400", 8},
    /* NVIDIA H100 Tensor Core GPU data sheet, 2023 */
    {"H100", 66.9, 494.7, 989.4, 3350, 80, 0.69, 0.50, "NVLink4", "NDR400", 8},
    {"H100-PCIe", 51.2, 378, 756, 2000, 80, 0.65, 0.45, "PCIe5", "NDR400", 1},
    /* NVIDIA H200 Tensor Core GPU data sheet, 2024 (SXM) */
    {"H200", 66.9, 494.7, 989.4, 4800, 141, 0.69, 0.50, "NVLink4", "NDR400", 8},
    /* NVIDIA L4 and L40S data sheets, 2023 */
    {"L4", 30.3, 60, 121, 300, 24, 0.60, 0.45, "PCIe4", "Ethernet100", 1},
    {"L40S", 91.6, 183, 362, 864, 48, 0.75, 0.50, "PCIe4", "Ethernet100", 2},
    /* AMD Instinct MI300X data sheet, 2023 */
    {"MI300X", 163.4, 653.7, 1307.4, 5300, 192, 0.50, 0.30, "InfinityFabric3", "NDR400", 8},
    /* NVIDIA Ada GPU Architecture, appendix A, 2023: bf16 with sums in f32 */
    {"RTX4090", 82.6, 82.6, 165.2, 1008, 24, 0.90, 0.75, "PCIe4", "Ethernet10", 1},
    /* NVIDIA V100 data sheet, 2020 (SXM2): f16 */
    {"V100", 15.7, 0, 125, 900, 32, 0.75, 0.40, "NVLink2", "EDR100", 4},
    /* One core of a server: two AVX2 units at 2.5 GHz, and Choir's products reach 0.8 of that;
     * its part of six channels of DDR4, all estimates. 16-bit operands are widened while panels
     * are packed, so they have the rate of f32. A calibration replaces these. */
    {"cpu", 0.08, 0, 0.08, 8, 4, 0.80, 0.40, "memory", "Ethernet10", 1},
};

static const struct link_preset {
    const char *kind;
    double alpha_us, beta_gb_s, share;
} links[] = {
    {"EDR100", 14, 12.5, 0.9},        /* InfiniBand, 100 Gb/s */
    {"Ethernet10", 30, 1.25, 0.9},    /* 10 Gb/s over TCP */
    {"Ethernet100", 20, 12.5, 0.9},   /* 100 Gb/s, RoCE */
    {"HDR200", 14, 25, 0.9},          /* InfiniBand, 200 Gb/s */
    {"InfinityFabric3", 5, 448, 0.8}, /* MI300X: 7 links of 128 GB/s both ways */
    {"memory", 1, 5, 1},              /* shared memory of cores */
    {"NDR400", 14, 50, 0.9},          /* InfiniBand, 400 Gb/s */
    {"NVLink2", 3.4, 150, 0.8},       /* 300 GB/s both ways */
    {"NVLink3", 3.4, 300, 0.8},       /* 600 GB/s both ways */
    {"NVLink4", 3.4, 450, 0.8},       /* 900 GB/s both ways */
    {"NVLink5", 3.4, 900, 0.8},       /* 1.8 TB/s both ways */
    {"PCIe4", 5.7, 32, 0.8},          /* x16 */
    {"PCIe5", 5.7, 64, 0.8},          /* x16 */
    {"XDR800", 14, 100, 0.9},         /* InfiniBand, 800 Gb/s */
};

static const choir__name_table device_names = CHOIR__NAME_TABLE(devices);
static const choir__name_table link_names = CHOIR__NAME_TABLE(links);

choir_status choir__device_preset(const char *kind, choir__device_model *device)
{
    int at = choir__find_named(&device_names, kind);
    if (at < 0)
        return choir__unknown_name(&device_names, "kind of device", kind);
    const struct device_preset *d = &devices[at];
    *device = (choir__device_model){.f32_flops = d->f32 * TFLOPS,
        .tf32_flops = d->tf32 * TFLOPS,
        .bf16_flops = d->bf16 * TFLOPS,
        .memory_bytes_s = d->memory_gb_s * GB_S,
        .memory_bytes = d->memory_gib * GIB,
        .product_share = d->product,
        .attention_share = d->attention,
        .memory_share = 0.9,
        .launch_s = strcmp(kind, "cpu") == 0 ? 1e-6 : 3e-6,
        .source = strcmp(kind, "cpu") == 0 ? CHOIR__FROM_ESTIMATES : CHOIR__FROM_DATA_SHEET};
    strcpy(device->kind, d->kind);
    return CHOIR_OK;
}

choir_status choir__link_preset(const char *kind, choir__link *link)
{
    int at = choir__find_named(&link_names, kind);
    if (at < 0)
        return choir__unknown_name(&link_names, "kind of link", kind);
    *link = (choir__link){.alpha_s = links[at].alpha_us * 1e-6,
        .beta_bytes_s = links[at].beta_gb_s * GB_S,
        .share = links[at].share,
        .ports = 1,
        .source = CHOIR__FROM_DATA_SHEET};
    strcpy(link->kind, links[at].kind);
    return CHOIR_OK;
}

void choir__links_preset(const char *kind, choir__link to[CHOIR__LEVELS])
{
    const struct device_preset *d = &devices[choir__find_named(&device_names, kind)];
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        bool inside = level < CHOIR__LEVEL_NODE;
        choir__link_preset(inside ? d->within : d->between, &to[level]);
        if (!inside)
            to[level].ports = d->ports;
    }
}

const char *choir__device_kinds(char *text, unsigned long bytes)
{
    return choir__list_names(&device_names, text, bytes);
}
