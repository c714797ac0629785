/* The stamp of script/gpu, a file with a line per GPU: version, card, place and driver. NCCL is
 * the default if each rank has a card of its own, and the stamp has all of them as they are
 * today. */
#include "job/gpus_tried.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/plugin/plugin.h"
#include "base/text.h"
#include "line/say.h"
#include "device/device.h"

/* --- the stamp --- */

/* Returns the folder of the stamp, or NULL: there is no home. */
static char *folder_of_stamp(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        return choir__format("%s/choir", state);
    return home && *home ? choir__format("%s/.local/state/choir", home) : NULL;
}

static char *path_in(const char *folder)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return choir__format("%s/gpus-tried.%s", folder, host);
}

/* Returns a GPU's line: the card, where it is, and its driver. */
static char *line_of(int index)
{
    choir__device_facts gpu;
    choir__device_describe("cuda", index, &gpu);
    const char *facts[] = {gpu.model, gpu.capability, gpu.bus, gpu.driver};
    choir__text_buffer line = {0};
    choir__text_buffer_put(&line, "choir " CHOIR_VERSION);
    for (size_t i = 0; i < CHOIR_COUNT(facts); i++)
        choir__text_format(&line, ", %s", *facts[i] ? facts[i] : "?");
    return line.bytes;
}

static choir_status write_stamp(const char *folder, int gpus)
{
    char *path = path_in(folder);
    int why = choir__folders_make(folder);
    FILE *f = why ? NULL : choir__file_try_output(path);
    for (int i = 0; f && i < gpus; i++) {
        char *line = line_of(i);
        fprintf(f, "%s\n", line);
        free(line);
    }
    bool good = f && fclose(f) == 0;
    choir_status status =
        good ? CHOIR_OK : choir__error(CHOIR_ERR_IO, "%s: cannot be written", path);
    free(path);
    return status;
}

int choir__gpus_tried_command(void)
{
    int gpus = choir_device_count("cuda");
    char *folder = folder_of_stamp();
    choir_status status =
        !gpus     ? choir__error(CHOIR_ERR_DEVICE, "there is no GPU here")
        : !folder ? choir__error(CHOIR_ERR_IO, "there is no home for the stamp of tried GPUs")
                  : write_stamp(folder, gpus);
    free(folder);
    return status == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

/* Returns whether the stamp has the line. */
static bool is_stamped(FILE *stamp, const char *line)
{
    char text[1024];
    rewind(stamp);
    while (fgets(text, sizeof text, stamp)) {
        text[strcspn(text, "\n")] = '\0';
        if (!strcmp(text, line))
            return true;
    }
    return false;
}

/* --- the choice --- */

enum { MOST_GPUS = 64 };

typedef struct looked_at {
    char *line[MOST_GPUS];
    int count;
} looked_at;

/* Returns whether each rank has a card of its own. */
static bool are_apart(const looked_at *l)
{
    for (int i = 0; i < l->count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(l->line[i], l->line[k]))
                return false;
    return true;
}

/* Returns whether the stamp has all of the cards. */
static bool are_tried(const looked_at *l)
{
    char *folder = folder_of_stamp(), *path = folder ? path_in(folder) : NULL;
    FILE *stamp = path ? choir__file_try_stream(path) : NULL;
    bool all = stamp != NULL;
    for (int i = 0; i < l->count && all; i++)
        all = is_stamped(stamp, l->line[i]);
    if (stamp)
        fclose(stamp);
    free(path);
    free(folder);
    return all;
}

static bool has_nccl(void)
{
    char *found = choir__plugin_find("nccl", NULL);
    free(found);
    return found != NULL;
}

const char *choir__gpus_backend(const choir__job *j, const char *gpus, const char **note)
{
    const choir__job_ranks *r = &j->ranks;
    const int nproc = j->placement.nproc;
    looked_at l = {.count = 0};
    *note = NULL;
    /* Ranks that a launcher starts may be on several machines, which decide alike only if the
     * backend is named; ranks that die are replaced in shared memory. */
    if (r->backend || getenv("CHOIR_BACKEND") || !gpus || r->launched || r->max_restarts ||
        nproc < 2 || !has_nccl())
        return r->backend;
    for (const char *at = gpus; (at = strchr(at, ':')) && l.count < MOST_GPUS; at++)
        l.line[l.count++] = line_of(atoi(at + 1));
    bool apart = l.count >= nproc && are_apart(&l), tried = apart && are_tried(&l);
    for (int i = 0; i < l.count; i++)
        free(l.line[i]);
    if (apart && !tried)
        *note =
            "the ranks' GPUs exchange data by way of shared memory: NCCL is the default once "
            "script/gpu has passed on this machine; --backend nccl takes it now";
    return tried ? "nccl" : NULL;
}
