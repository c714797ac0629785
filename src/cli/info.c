/* choir info: what this build can do, and what it found here. */
#include <getopt.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include <choir/device.h>

#include "cli/cli.h"

static void help(void)
{
    printf("Usage: choir info [--json]\n\n"
           "Version, what is built in, and the devices found.\n\n"
           "Example:\n  choir info\n");
}

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

static const char *images(const char *quote, const char *none)
{
    static char text[64];
    const char *names[] = {JPEG_NAME, PNG_NAME};
    *text = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (*names[i])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s%s",
                *text ? *quote ? "," : ", " : "", quote, names[i], quote);
    return *text ? text : none;
}

static void print_json(int devices)
{
    const dnnl_version_t *v = dnnl_version();
    printf(
        "{\"version\":\"%s\",\"onednn\":\"%d.%d.%d\",\"isa\":\"%s\",\"backends\":[\"cpu\",\"shm\"],"
        "\"images\":[%s],\"devices\":[",
        CHOIR_VERSION, v->major, v->minor, v->patch, choir_cpu_isa(), images("\"", ""));
    for (int i = 0; i < devices; i++)
        printf("%s\"cpu:%d\"", i ? "," : "", i);
    printf("]}\n");
}

int choir__cli_info(int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool json = false;
    opterr = 0;
    for (int id; (id = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        if (id == 'h') {
            help();
            return CHOIR__EXIT_OK;
        }
        if (id != 'j')
            return choir__cli_unknown("info", argv);
        json = true;
    }
    if (optind < argc)
        return choir__cli_usage("info", "'%s' is not wanted", argv[optind]);
    int devices = choir_device_count("cpu");
    if (json) {
        print_json(devices);
        return CHOIR__EXIT_OK;
    }
    const dnnl_version_t *v = dnnl_version();
    printf(
        "choir     %s\nkernels   %s, oneDNN %d.%d.%d\nbackends  cpu (device), shm (group)\n"
        "images    %s\n"
        "devices   cpu:0 to cpu:%d, one core each (--threads for more, CHOIR_CPU_DEVICES for "
        "others)\n",
        CHOIR_VERSION, choir_cpu_isa(), v->major, v->minor, v->patch, images("", "none"),
        devices - 1);
    return CHOIR__EXIT_OK;
}
