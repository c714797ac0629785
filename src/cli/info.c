/* choir info: the features of this build, and the devices of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin/build_id.h"
#include "base/plugin/plugin.h"
#include "base/text.h"
#include "line/command.h"
#include "cli/kernels.h"
#include "data/tokenizer/regex.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#include "device/device.h"
#include "record/recorder.h"

/* Adds a name to a list of JSON, or of words for people. */
static void add(choir__text_buffer *list, const char *name, bool json)
{
    if (json)
        choir__text_string(list, NULL, name);
    else
        choir__text_format(list, "%s%s", list->used ? ", " : "", name);
}

/* Lists the formats of images that are built in. */
static void add_images(choir__text_buffer *list, bool json)
{
    (void)list, (void)json; /* there may be none */
#ifdef CHOIR_HAVE_JPEG
    add(list, "jpeg", json);
#endif
#ifdef CHOIR_HAVE_PNG
    add(list, "png", json);
#endif
}

/* Lists the storages of studies. */
static void add_studies(choir__text_buffer *list, bool json)
{
    add(list, "journal", json);
#ifdef CHOIR_HAVE_SQLITE
    add(list, "sqlite", json);
#endif
#ifdef CHOIR_HAVE_POSTGRES
    add(list, "postgresql", json);
#endif
}

/* Lists the destinations of logs. */
static void add_logs(choir__text_buffer *list, bool json)
{
    for (size_t i = 0; choir__recorder_at(i); i++)
        if (!choir__recorder_at(i)->needs)
            add(list, choir__recorder_at(i)->name, json);
}

/* Lists libraries that tokenizers need. */
static void add_tokenizers(choir__text_buffer *list, bool json)
{
    char name[64];
    const char *oniguruma = choir__regex_version();
    snprintf(name, sizeof name, "oniguruma %s", oniguruma ? oniguruma : "");
    if (oniguruma)
        add(list, name, json);
}

/* Lists the engines of groups: shm, and the plug-ins that are installed. */
static void add_engines(choir__text_buffer *list, bool json)
{
    static const char *const plugins[][2] = {/* file, engine */
        {"ucx", "ucx"}, {"nccl", "nccl"}, {"mpi", "mpi"}, {"mpi_openmpi", "mpi"},
        {"mpi_mpich", "mpi"}};
    const char *last = "shm";
    add(list, last, json);
    for (size_t i = 0; i < CHOIR_COUNT(plugins); i++) {
        char *found = choir__plugin_find(plugins[i][0], NULL);
        if (found && strcmp(plugins[i][1], last) != 0)
            add(list, last = plugins[i][1], json);
        free(found);
    }
}

/* Lists the sentences on a CHOIR_ISA or CHOIR_MATH with which no CPU device opens here; for
 * people each has a line. */
static void add_refused(choir__text_buffer *list, bool json)
{
    choir_status (*const checks[])(void) = {choir__cpu_check_isa, choir__cpu_check_multiplier};
    for (size_t i = 0; i < CHOIR_COUNT(checks); i++) {
        if (checks[i]() == CHOIR_OK)
            continue;
        if (json)
            choir__text_string(list, NULL, choir_error_message());
        else
            choir__text_format(list, "refused   %s\n", choir_error_message());
    }
}

static bool has_cuda(void)
{
    char *found = choir__plugin_find("cuda", NULL);
    free(found);
    return found != NULL;
}

static void add_number(choir__text_buffer *t, const char *key, int value)
{
    if (value >= 0)
        choir__text_value(t, key, "%d", value);
}

static void add_gpu(choir__text_buffer *t, int i)
{
    choir__device_facts gpu;
    choir__text_open(t, NULL, '{');
    choir__text_value(t, "device", "\"cuda:%d\"", i);
    if (choir__device_describe("cuda", i, &gpu)) {
        add_number(t, "gpu", gpu.gpu);
        choir__text_string(t, "model", gpu.model);
        choir__text_string(t, "capability", gpu.capability);
        add_number(t, "multiprocessors", gpu.multiprocessors);
        choir__text_string(t, "bus", gpu.bus);
        choir__text_value(t, "memory_bytes", "%zu", gpu.bytes);
        choir__text_value(t, "memory_used_bytes", "%zu", gpu.used_bytes);
        add_number(t, "utilization_percent", gpu.busy_percent);
        add_number(t, "temperature_c", gpu.celsius);
        add_number(t, "power_w", gpu.watts);
        add_number(t, "sm_clock_mhz", gpu.sm_mhz);
        if (*gpu.driver)
            choir__text_string(t, "driver", gpu.driver);
        choir__text_string(t, "cublaslt", *gpu.cublaslt ? gpu.cublaslt : NULL);
        choir__text_string(t, "cudnn", *gpu.cudnn ? gpu.cudnn : NULL);
    }
    choir__text_close(t, '}');
}

static void add_list(
    choir__text_buffer *t, const char *key, void (*members)(choir__text_buffer *, bool))
{
    choir__text_open(t, key, '[');
    members(t, true);
    choir__text_close(t, ']');
}

static void print_json(int devices)
{
    choir__text_buffer t = {0};
    const char *multiplier = choir__cpu_multiplier(), *number = strchr(multiplier, ' ') + 1;
    bool onednn = !strncmp(multiplier, "oneDNN", 6);
    int gpus = choir_device_count("cuda");
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "version", CHOIR_VERSION);
    choir__text_string(&t, "build", choir__build_id());
    choir__text_string(&t, "onednn", onednn ? number : NULL);
    choir__text_string(&t, "isa", choir_cpu_isa());
    add_list(&t, "refused", add_refused);
    choir__text_open(&t, "backends", '[');
    choir__text_string(&t, NULL, "cpu");
    if (has_cuda())
        choir__text_string(&t, NULL, "cuda");
    add_engines(&t, true);
    choir__text_close(&t, ']');
    add_list(&t, "images", add_images);
    add_list(&t, "studies", add_studies);
    add_list(&t, "logs", add_logs);
    add_list(&t, "tokenizers", add_tokenizers);
    choir__text_open(&t, "devices", '[');
    for (int i = 0; i < devices; i++)
        choir__text_value(&t, NULL, "\"cpu:%d\"", i);
    for (int i = 0; i < gpus; i++)
        choir__text_value(&t, NULL, "\"cuda:%d\"", i);
    choir__text_close(&t, ']');
    choir__text_open(&t, "gpus", '[');
    for (int i = 0; i < gpus; i++)
        add_gpu(&t, i);
    choir__text_close(&t, ']');
    choir__text_finish(&t, stdout);
}

/* --- for people --- */

/* Prints ", cuDNN 9.19.0", or that the library is missing. */
static void print_library(const char *version, const char *name)
{
    printf(", %s %s", *version ? name : "no", *version ? version : name);
}

/* Prints "cuda:0    NVIDIA H200, 9.0, 1.2 of 139.8 GiB, 37 % busy, 41 C, 120 W,
 * cuBLASLt 13.0.0, cuDNN 9.19.0". */
static void print_gpu(int i)
{
    choir__device_facts gpu;
    const double gib = 1 << 30;
    choir__device_describe("cuda", i, &gpu);
    printf("%-9s cuda:%d: %s (%s), %.1f of %.1f GiB in use", i ? "" : "gpus", i,
        *gpu.model ? gpu.model : "a GPU", *gpu.capability ? gpu.capability : "?",
        (double)gpu.used_bytes / gib, (double)gpu.bytes / gib);
    if (*gpu.model && gpu.busy_percent >= 0)
        printf(", %d %% busy, %d C, %d W", gpu.busy_percent, gpu.celsius, gpu.watts);
    print_library(gpu.cublaslt, "cuBLASLt");
    print_library(gpu.cudnn, "cuDNN");
    printf("\n");
}

static void print_gpus(void)
{
    char why[512];
    int gpus = choir__device_look("cuda", why, sizeof why);
    if (!gpus)
        printf("gpus      none: %s\n", why);
    for (int i = 0; i < gpus; i++)
        print_gpu(i);
}

/* Prints a line of names: those that `members` adds, or "none". */
static void print_list(const char *head, void (*members)(choir__text_buffer *, bool))
{
    choir__text_buffer list = {0};
    members(&list, false);
    printf("%-9s %s\n", head, list.used ? list.bytes : "none");
    choir__text_buffer_free(&list);
}

static void print_all(int devices)
{
    choir__text_buffer engines = {0}, refused = {0};
    const char *id = choir__build_id();
    const bool slow = !strcmp(choir_cpu_bits(), "amx") && !choir__cpu_has_amx();
    add_engines(&engines, false);
    add_refused(&refused, false);
    printf("choir     %s%s%s\nkernels   %s, %s%s\n%sbackends  cpu%s (devices); %s (groups)\n",
        CHOIR_VERSION, *id ? ", build " : "", id, choir_cpu_isa(), choir__cpu_multiplier(),
        slow ? " (products of bf16 are slow: this processor has no AMX)" : "",
        refused.used ? refused.bytes : "", has_cuda() ? ", cuda" : "", engines.bytes);
    choir__text_buffer_free(&engines);
    choir__text_buffer_free(&refused);
    print_list("images", add_images);
    print_list("studies", add_studies);
    print_list("logs", add_logs);
    print_list("tokens", add_tokenizers);
    printf(
        "devices   cpu:0 to cpu:%d, one core each (--threads for more, CHOIR_CPU_DEVICES for "
        "others)\n",
        devices - 1);
    print_gpus();
}

typedef struct request {
    bool json, kernels;
} request;

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (r.kernels)
        return choir__cli_print_kernels(r.json);
    int devices = choir_device_count("cpu");
    if (r.json)
        print_json(devices);
    else
        print_all(devices);
    return CHOIR__EXIT_OK;
}

static const choir__line_option options[] = {
    {"json", CHOIR__FLAG, CHOIR__LINE_AT(request, json),
        .help = "print one JSON object; with --kernels one per line"},
    {"kernels", CHOIR__FLAG, CHOIR__LINE_AT(request, kernels),
        .help = "print how this processor computes each op, for each dtype and pass"},
    {NULL},
};

const choir__line_command choir__cli_info = {
    .name = "info",
    .summary = "print the version, the backends and the devices",
    .usage = "[--kernels] [--json]",
    .about = "Prints the version, the backends that are built in, and the devices found here.",
    .example = "  choir info",
    .options = options,
    .run = run,
};
