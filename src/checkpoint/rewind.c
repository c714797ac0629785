/* The steps that a run has kept, and the return to one of them. Later checkpoints stay
 * until the run saves again: prune() of folder.c then removes them. Those that may have wrong
 * numbers get another name, if there is no step to return to. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/state.h"

typedef struct kept {
    int64_t *steps;
    int64_t count;
} kept;

static void note_step(const char *dir, const char *name, void *arg)
{
    kept *k = arg;
    int64_t step = choir__folder_step(name);
    char *path = choir__format("%s/%s", dir, name);
    if (step >= 0 && choir__folder_has(path, CHOIR__STATE_FILE)) {
        CHOIR__GROW(k->steps, k->count);
        k->steps[k->count++] = step;
    }
    free(path);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lists the steps of the whole checkpoints in ascending order; the caller frees them. */
static kept list(const char *dir)
{
    kept k = {0};
    choir__folder_walk(dir, note_step, &k);
    if (k.count)
        qsort(k.steps, (size_t)k.count, sizeof *k.steps, ascending);
    return k;
}

/* Fails with the steps that are kept. */
static choir_status none_before(const char *dir, int64_t step, const kept *k)
{
    enum { MOST = 20 };
    choir__text_buffer list = {0};
    for (int64_t i = 0; i < k->count && i < MOST; i++)
        choir__text_format(&list, "%s%lld", i ? ", " : "", (long long)k->steps[i]);
    if (k->count > MOST)
        choir__text_buffer_put(&list, ", ...");
    choir_status status =
        k->count ? choir__error(CHOIR_ERR_ARGUMENT,
                       "%s has no checkpoint of step %lld or before; it has kept %s", dir,
                       (long long)step, list.bytes)
                 : choir__error(CHOIR_ERR_ARGUMENT, "%s has no checkpoint", dir);
    choir__text_buffer_free(&list);
    return status;
}

choir_status choir__checkpoint_before(const char *dir, int64_t step, char *path)
{
    kept k = list(dir);
    int64_t last = k.count - 1;
    while (last >= 0 && k.steps[last] > step)
        last--;
    choir_status status = last < 0 ? none_before(dir, step, &k) : CHOIR_OK;
    if (last >= 0 &&
        snprintf(path, PATH_MAX, "%s/step-%08lld", dir, (long long)k.steps[last]) >= PATH_MAX)
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s: the path is too long", dir);
    free(k.steps);
    return status;
}

/* Returns the step that a link names, or -1. */
static int64_t step_of_link(const char *dir, const char *name)
{
    char target[NAME_MAX + 1], *path = choir__format("%s/%s", dir, name);
    ssize_t n = readlink(path, target, NAME_MAX);
    target[n > 0 ? n : 0] = '\0';
    free(path);
    return choir__folder_step(target);
}

choir_status choir__checkpoint_go_back(const char *dir, int64_t step)
{
    char name[32], *best = choir__format("%s/best", dir);
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    choir_status status = step_of_link(dir, "latest") == step
                              ? CHOIR_OK
                              : choir__folder_link(dir, "latest", name);
    if (status == CHOIR_OK && step_of_link(dir, "best") > step)
        unlink(best);
    free(best);
    return status;
}

/* Takes away a link that names a later step. */
static choir_status drop_link(const char *dir, const char *name, int64_t step)
{
    char *path = choir__format("%s/%s", dir, name);
    choir_status status = step_of_link(dir, name) > step && unlink(path) != 0
                              ? choir__error(CHOIR_ERR_IO, "the link %s cannot be removed: %s",
                                    path, choir__why(errno))
                              : CHOIR_OK;
    free(path);
    return status;
}

static choir_status set_aside(const char *dir, int64_t step)
{
    choir_status status = CHOIR_OK;
    char *from = choir__format("%s/step-%08lld", dir, (long long)step),
         *to = choir__format("%s/suspect-step-%08lld", dir, (long long)step);
    choir__folder_remove(to); /* an earlier fault's, which would be in the way */
    if (rename(from, to) != 0)
        status = choir__error(CHOIR_ERR_IO, "%s cannot be renamed to suspect-step-%08lld: %s",
            from, (long long)step, choir__why(errno));
    free(from);
    free(to);
    return status;
}

choir_status choir__checkpoint_put_aside(const char *dir, int64_t step)
{
    kept k = list(dir);
    choir_status latest = drop_link(dir, "latest", step), best = drop_link(dir, "best", step),
                 status = latest == CHOIR_OK ? best : latest;
    for (int64_t i = k.count - 1; i >= 0 && k.steps[i] > step; i--) {
        choir_status one = set_aside(dir, k.steps[i]);
        status = status == CHOIR_OK ? one : status;
    }
    free(k.steps);
    return status;
}
