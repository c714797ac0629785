/* choir info: the features of this build, and the devices of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/plugin/plugin.h"
#include "line/command.h"
#include "cli/kernels.h"
#include "device/cpu/context.h"
#include "device/device.h"
#include "record/recorder.h"

/* Formats of images that are built in. */
#ifdef CHOIR_HAVE_JPEG
#define JPEG_NAME "jpeg"
#else
#define JPEG_NAME ""
#endif
#ifdef CHOIR_HAVE_PNG
#define PNG_NAME "png"
#else
#define PNG_NAME ""
#endif
/* Storages of studies. */
#ifdef CHOIR_HAVE_SQLITE
#define SQLITE_NAME "sqlite"
#else
#define SQLITE_NAME ""
#endif
#ifdef CHOIR_HAVE_POSTGRES
#define POSTGRES_NAME "postgresql"
#else
#define POSTGRES_NAME ""
#endif

enum { MOST = 128 }; /* bytes of a list */

/* Adds `name` to a list in text. */
static void add(char text[MOST], const char *name, const char *quote)
{
    size_t used = strlen(text);
    snprintf(text + used, MOST - used, "%s%s%s%s",
        !used    ? ""
        : *quote ? ","
                 : ", ",
        quote, name, quote);
}

static const char *images(const char *quote, const char *none)
{
    static char text[MOST];
    const char *names[] = {JPEG_NAME, PNG_NAME};
    *text = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (*names[i])
            add(text, names[i], quote);
    return *text ? text : none;
}

static const char *studies(const char *quote)
{
    static char text[MOST];
    const char *names[] = {"journal", SQLITE_NAME, POSTGRES_NAME};
    *text = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (*names[i])
            add(text, names[i], quote);
    return text;
}

/* Lists the destinations of logs. */
static const char *logs(const char *quote)
{
    static char text[MOST];
    *text = '\0';
    for (size_t i = 0; choir__recorder_at(i); i++)
        if (!choir__recorder_at(i)->needs)
            add(text, choir__recorder_at(i)->name, quote);
    return text;
}

/* Lists the engines of groups: shm, and the plug-ins that are installed. */
static const char *engines(const char *quote)
{
    static char text[MOST];
    static const char *const plugins[][2] = {/* file, engine */
        {"ucx", "ucx"}, {"nccl", "nccl"}, {"mpi", "mpi"}, {"mpi_openmpi", "mpi"},
        {"mpi_mpich", "mpi"}};
    *text = '\0';
    add(text, "shm", quote);
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++) {
        char *found = choir__plugin_find(plugins[i][0], NULL);
        if (found && !strstr(text, plugins[i][1]))
            add(text, plugins[i][1], quote);
        free(found);
    }
    return text;
}

static bool has_cuda(void)
{
    char *found = choir__plugin_find("cuda", NULL);
    free(found);
    return found != NULL;
}

static void print_json(int devices)
{
    const char *multiplier = choir__cpu_multiplier(), *number = strchr(multiplier, ' ') + 1;
    bool onednn = !strncmp(multiplier, "oneDNN", 6);
    int gpus = choir_device_count("cuda");
    printf("{\"version\":\"%s\",\"onednn\":%s%s%s,\"isa\":\"%s\",\"backends\":[\"cpu\",%s%s],"
           "\"images\":[%s],\"studies\":[%s],\"logs\":[%s],\"devices\":[",
        CHOIR_VERSION, onednn ? "\"" : "", onednn ? number : "null", onednn ? "\"" : "",
        choir_cpu_isa(), has_cuda() ? "\"cuda\"," : "", engines("\""), images("\"", ""),
        studies("\""), logs("\""));
    for (int i = 0; i < devices; i++)
        printf("%s\"cpu:%d\"", i ? "," : "", i);
    for (int i = 0; i < gpus; i++)
        printf(",\"cuda:%d\"", i);
    printf("],\"gpus\":[");
    for (int i = 0; i < gpus; i++) {
        char text[1024];
        choir__device_describe("cuda", i, text, sizeof text);
        printf("%s{\"device\":\"cuda:%d\"%s%s}", i ? "," : "", i, *text ? "," : "", text);
    }
    printf("]}\n");
}

/* Returns a number from a description, or -1 if it is missing. */
static double number(const json_t *gpu, const char *key)
{
    const json_t *value = json_object_get(gpu, key);
    return value ? json_number_value(value) : -1;
}

/* Prints ", cuDNN 9.19.0", or that the library is missing. */
static void print_library(const json_t *gpu, const char *key, const char *name)
{
    const char *version = json_string_value(json_object_get(gpu, key));
    printf(", %s %s", version ? name : "no", version ? version : name);
}

/* Prints "cuda:0    NVIDIA H200, 9.0, 1.2 of 139.8 GiB, 37 % busy, 41 C, 120 W,
 * cuBLASLt 13.0.0, cuDNN 9.19.0". */
static void print_gpu(int i)
{
    char text[1024], object[1100];
    choir__device_describe("cuda", i, text, sizeof text);
    snprintf(object, sizeof object, "{%s}", text);
    json_t *gpu = json_loads(object, 0, NULL);
    const char *model = json_string_value(json_object_get(gpu, "model"));
    const char *capability = json_string_value(json_object_get(gpu, "capability"));
    double gib = 1 << 30, busy = number(gpu, "utilization_percent");
    printf("%-9s cuda:%d: %s (%s), %.1f of %.1f GiB in use", i ? "" : "gpus", i,
        model ? model : "a GPU", capability ? capability : "?",
        number(gpu, "memory_used_bytes") / gib, number(gpu, "memory_bytes") / gib);
    if (busy >= 0)
        printf(", %.0f %% busy, %.0f C, %.0f W", busy, number(gpu, "temperature_c"),
            number(gpu, "power_w"));
    print_library(gpu, "cublaslt", "cuBLASLt");
    print_library(gpu, "cudnn", "cuDNN");
    printf("\n");
    json_decref(gpu);
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

typedef struct request {
    bool json, kernels;
} request;

static int run(const choir__cli_command *command, int argc, char **argv)
{
    request r = {0};
    choir__cli_operands operands;
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (r.kernels)
        return choir__cli_print_kernels(r.json);
    int devices = choir_device_count("cpu");
    if (r.json) {
        print_json(devices);
        return CHOIR__EXIT_OK;
    }
    printf(
        "choir     %s\nkernels   %s, %s\nbackends  cpu%s (devices); %s (groups)\n"
        "images    %s\n"
        "studies   %s\n"
        "logs      %s\n"
        "devices   cpu:0 to cpu:%d, one core each (--threads for more, CHOIR_CPU_DEVICES for "
        "others)\n",
        CHOIR_VERSION, choir_cpu_isa(), choir__cpu_multiplier(), has_cuda() ? ", cuda" : "",
        engines(""), images("", "none"), studies(""), logs(""), devices - 1);
    print_gpus();
    return CHOIR__EXIT_OK;
}

static const choir__cli_option options[] = {
    {"json", CHOIR__FLAG, CHOIR__CLI_AT(request, json),
        .help = "print one JSON object; with --kernels one per line"},
    {"kernels", CHOIR__FLAG, CHOIR__CLI_AT(request, kernels),
        .help = "print how this processor computes each op, for each dtype and pass"},
    {NULL},
};

const choir__cli_command choir__cli_info = {
    .name = "info",
    .summary = "print the version, the backends and the devices",
    .usage = "[--kernels] [--json]",
    .about = "Prints the version, the backends that are built in, and the devices found here.",
    .example = "  choir info",
    .options = options,
    .run = run,
};
