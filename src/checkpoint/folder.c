/* A checkpoint folder is whole, or it is not there.
 *
 * At each moment of a save, `latest` names one complete checkpoint: the new folder is complete
 * and on the disk before it receives its name, and a link moves by one rename. Saving an
 * existing step exchanges the two folders atomically. If the file system cannot exchange, the
 * old folder is .old-STEP for a moment; readers and the next save look for it there. The first
 * checkpoint has its name a moment before `latest` is there: without `latest`, readers take the
 * newest step.
 *
 * A job continues from `latest`, and no evaluation up to there is done again. So `best` moves
 * before `latest`, and the first `best` is there before its step has a name. */
#include "checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/temp_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/file.h"
#include "checkpoint/state.h"

/* --- folders --- */

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* Creates a folder and its parents. */
static choir_status make_folders(const char *path)
{
    choir_status status = CHOIR_OK;
    char *part = choir__strdup(path);
    for (char *at = part; *at && status == CHOIR_OK; at++) {
        char *end = at + strcspn(at, "/"), kept = *end;
        if (end == at)
            continue;
        *end = '\0';
        if (mkdir(part, 0777) != 0 && !choir__is_folder(part))
            status = choir__error(CHOIR_ERR_IO, "cannot make the folder %s: %s", part,
                strerror(errno == EEXIST ? ENOTDIR : errno));
        *end = kept;
        at = end - 1;
    }
    free(part);
    return status;
}

/* The state is removed first, so that half of a checkpoint never looks like a complete one. */
void choir__folder_remove(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return;
    char *state = choir__format("%s/%s", path, CHOIR__STATE_FILE);
    unlink(state);
    free(state);
    choir__folder_walk(path, choir__part_remove, NULL);
    rmdir(path);
}

/* --- leftovers and old steps --- */

static void clean_entry(const char *dir, const char *name, void *arg)
{
    (void)arg;
    char *path = choir__format("%s/%s", dir, name);
    if (starts_with(name, ".new-"))
        choir__folder_remove(path);
    if (starts_with(name, ".link-"))
        unlink(path);
    if (starts_with(name, ".old-step-")) { /* killed between the two renames */
        char *step = choir__format("%s/%s", dir, name + strlen(".old-"));
        if (choir__is_folder(step) || rename(path, step) != 0)
            choir__folder_remove(path);
        free(step);
    }
    free(path);
}

/* The steps that stay: the targets of the links, "" for a missing link, and the newest. */
typedef struct kept {
    char latest[NAME_MAX + 1], best[NAME_MAX + 1];
    int64_t *steps; /* steps up to the step of latest */
    int64_t count;
    int64_t least; /* smallest step that stays */
} kept;

static void read_link(const char *dir, const char *name, char *target)
{
    char *path = choir__format("%s/%s", dir, name);
    ssize_t n = readlink(path, target, NAME_MAX);
    target[n > 0 ? n : 0] = '\0';
    free(path);
}

int64_t choir__folder_step(const char *name)
{
    const char *digits = name + strlen("step-");
    if (!starts_with(name, "step-") || !*digits || digits[strspn(digits, "0123456789")])
        return -1;
    return strtoll(digits, NULL, 10);
}

static void note_step(const char *dir, const char *name, void *arg)
{
    kept *k = arg;
    int64_t step = choir__folder_step(name);
    (void)dir;
    if (step < 0 || step > choir__folder_step(k->latest))
        return;
    CHOIR__GROW(k->steps, k->count);
    k->steps[k->count++] = step;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static void prune_entry(const char *dir, const char *name, void *arg)
{
    const kept *k = arg;
    int64_t step = choir__folder_step(name);
    if (step < 0 || !strcmp(name, k->latest) || !strcmp(name, k->best) ||
        (step >= k->least && step <= choir__folder_step(k->latest)))
        return;
    char *path = choir__format("%s/%s", dir, name);
    choir__folder_remove(path);
    free(path);
}

static void prune(const char *dir, int64_t keep)
{
    kept k = {.least = INT64_MAX};
    read_link(dir, "latest", k.latest);
    read_link(dir, "best", k.best);
    choir__folder_walk(dir, note_step, &k);
    if (k.count) {
        qsort(k.steps, (size_t)k.count, sizeof *k.steps, newest_first);
        k.least = k.steps[choir__min(choir__max(keep, 1), k.count) - 1];
    }
    choir__folder_walk(dir, prune_entry, &k);
    free(k.steps);
}

/* --- installing --- */

/* Gives the finished folder its name. A folder that had this name becomes a leftover. */
static choir_status give_name(const char *dir, const char *fresh, const char *step)
{
    char *target = choir__format("%s/%s", dir, step);
    char *aside = choir__format("%s/.old-%s", dir, step);
    bool done = rename(fresh, target) == 0;
    if (!done && (errno == EEXIST || errno == ENOTEMPTY))
        done = renameat2(AT_FDCWD, fresh, AT_FDCWD, target, RENAME_EXCHANGE) == 0 ||
               (rename(target, aside) == 0 && rename(fresh, target) == 0);
    choir_status status = done ? choir__sync_path(dir)
                               : choir__error(CHOIR_ERR_IO, "cannot rename %s to %s: %s", fresh,
                                     target, strerror(errno));
    free(aside);
    free(target);
    return status;
}

choir_status choir__folder_link(const char *dir, const char *name, const char *step)
{
    choir_status status = CHOIR_OK;
    char *path = choir__format("%s/%s", dir, name);
    char *temp =
        choir__format("%s/.link-%llx", dir, (unsigned long long)choir__temp_file_mark());
    if (symlink(step, temp) != 0 || rename(temp, path) != 0) {
        status =
            choir__error(CHOIR_ERR_IO, "cannot make the link %s: %s", path, strerror(errno));
        unlink(temp);
    }
    free(temp);
    free(path);
    return status;
}

choir_status choir__folder_install(
    const char *dir, const char *fresh, const char *step, bool best, int64_t keep)
{
    bool first = best && !choir__folder_has(dir, "best");
    choir_status status = first ? choir__folder_link(dir, "best", step) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = give_name(dir, fresh, step);
    if (status == CHOIR_OK && best && !first)
        status = choir__folder_link(dir, "best", step);
    if (status == CHOIR_OK)
        status = choir__sync_path(dir);
    if (status == CHOIR_OK)
        status = choir__folder_link(dir, "latest", step);
    if (status == CHOIR_OK)
        status = choir__sync_path(dir);
    if (status == CHOIR_OK)
        prune(dir, keep);
    return status;
}

choir_status choir__folder_mark_best(const char *dir, const char *step, int64_t keep)
{
    choir_status status = choir__folder_link(dir, "best", step);
    if (status == CHOIR_OK)
        status = choir__sync_path(dir);
    if (status == CHOIR_OK)
        prune(dir, keep);
    return status;
}

void choir__folder_clean(const char *dir)
{
    choir__folder_walk(dir, clean_entry, NULL);
    char *best = choir__format("%s/best", dir);
    if (!choir__folder_has(dir, "best")) /* killed before its step had a name */
        unlink(best);
    free(best);
}

enum { LOCK_WAIT_S = 5 };

/* Allows one save at a time: a second would remove the first one's work. A lock ends with its
 * process, and a killed process ends only when the kernel has finished its writes, so a job
 * that continues in the folder of a killed one waits for a moment. */
static choir_status lock_folder(const char *dir, int *fd)
{
    double until = choir__now() + LOCK_WAIT_S;
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return choir__error(
            CHOIR_ERR_IO, "cannot open the folder %s: %s", dir, strerror(errno));
    while (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (choir__now() > until)
            return choir__error(CHOIR_ERR_IO,
                "%s: another process is saving a checkpoint there; give each run a folder of "
                "its own",
                dir);
        poll(NULL, 0, 20);
    }
    return CHOIR_OK; /* a file system without locks: continue without one */
}

choir_status choir__folder_lock(const char *dir, int *lock)
{
    *lock = -1;
    choir_status status = make_folders(dir);
    return status == CHOIR_OK ? lock_folder(dir, lock) : status;
}

/* --- finding --- */

bool choir__is_weights_file(const char *path)
{
    struct stat info;
    size_t length = strlen(path), end = strlen(".safetensors");
    return length > end && !strcmp(path + length - end, ".safetensors") &&
           stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Resolves a path through links, also while a save has renamed its step. */
static choir_status resolve(const char *path, char *found)
{
    char target[PATH_MAX];
    if (realpath(path, found))
        return CHOIR_OK;
    int error = errno;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (error == ENOENT && n > 0) {
        const char *slash = strrchr(path, '/');
        target[n] = '\0';
        char *aside =
            choir__format("%.*s.old-%s", slash ? (int)(slash + 1 - path) : 0, path, target);
        char *there = realpath(aside, found);
        free(aside);
        return there ? CHOIR_OK
                     : choir__error(
                           CHOIR_ERR_IO, "%s points to %s, which is not there", path, target);
    }
    if (error == ENOENT && choir__is_hub_name(path))
        return choir__file_absent(path, CHOIR__HUB_MODEL);
    return choir__error(
        CHOIR_ERR_IO, "cannot open the checkpoint %s: %s", path, strerror(error));
}

typedef struct newest {
    char path[PATH_MAX];
    int64_t step;
} newest;

static void note_newest(const char *dir, const char *name, void *arg)
{
    newest *n = arg;
    char path[PATH_MAX];
    if (choir__folder_step(name) <= n->step ||
        snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path ||
        !choir__folder_has(path, CHOIR__STATE_FILE))
        return;
    n->step = choir__folder_step(name);
    memcpy(n->path, path, sizeof path);
}

bool choir__folder_unnamed(const char *dir, char *found)
{
    newest n = {.step = -1};
    if (!choir__folder_has(dir, "latest"))
        choir__folder_walk(dir, note_newest, &n);
    return n.step >= 0 && realpath(n.path, found);
}

choir_status choir__checkpoint_find(const char *path, char *found)
{
    if (!path)
        return choir__missing("a saved training", "path");
    choir_status status = resolve(path, found);
    if (status != CHOIR_OK || choir__is_weights_file(found))
        return status;
    if (choir__folder_has(found, "latest")) {
        char *latest = choir__format("%s/latest", found);
        status = resolve(latest, found);
        if (status == CHOIR_OK && !choir__folder_has(found, CHOIR__STATE_FILE))
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s leads to %s, which is incomplete: it has no state.json", latest, found);
        free(latest);
        return status;
    }
    if (choir__folder_has(found, CHOIR__STATE_FILE) || choir__folder_unnamed(found, found))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: expected a checkpoint: a folder with latest or state.json, or a .safetensors "
        "file",
        path);
}
