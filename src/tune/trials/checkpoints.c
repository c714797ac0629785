/* Copies of trials' checkpoints, made by cp, by reference where the file system can, under
 * another name until they are whole. A missing checkpoint is noted, too, so that a trial begins
 * again as it began before. */
#include "tune/trials/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/run_files.h"

extern char **environ;

char *choir__checkpoint_path(const char *dir, int64_t number)
{
    return choir__format("%s/%lld/checkpoint", dir, (long long)number);
}

bool choir__checkpoint_is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Runs a command of coreutils; `what` (such as "copy") and `path` are for its error message. */
static choir_status run(char *const *line, const char *what, const char *path)
{
    pid_t pid;
    int status = -1, error = posix_spawnp(&pid, line[0], NULL, NULL, line, environ);
    while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (error || status)
        return choir__error(CHOIR_ERR_IO, "cannot %s the checkpoint %s%s%s", what, path,
            error ? ": " : "", error ? choir__why(error) : "");
    return CHOIR_OK;
}

static choir_status discard(const char *path)
{
    char *const line[] = {"rm", "-rf", "--", (char *)(uintptr_t)path, NULL};
    return choir__checkpoint_is_there(path) ? run(line, "delete", path) : CHOIR_OK;
}

/* Copies a file or a folder with its links, where file systems can by reference. */
static choir_status copy(const char *from, const char *to)
{
    char *const line[] = {"cp", "-a", "--reflink=auto", "-T", "--", (char *)(uintptr_t)from,
        (char *)(uintptr_t)to, NULL};
    return run(line, "copy", from);
}

/* Makes a copy that is whole if it is there at all. */
static choir_status copy_whole(const char *from, const char *to)
{
    char *part = choir__format("%s.part", to);
    choir_status status = discard(part);
    if (status == CHOIR_OK)
        status = copy(from, part);
    if (status == CHOIR_OK && rename(part, to))
        status = choir__error(CHOIR_ERR_IO, "cannot rename the checkpoint %s to %s: %s", part,
            to, choir__why(errno));
    free(part);
    return status;
}

/* Returns the path of the copy of a step, which the caller frees. */
static char *kept_path(const char *dir, int64_t number, int64_t step)
{
    return choir__format("%s/%lld/checkpoint.%lld", dir, (long long)number, (long long)step);
}

/* Notes that the trial had no checkpoint. */
static choir_status note_none(const char *path)
{
    int fd = choir__file_try(path, O_WRONLY | O_CREAT, CHOIR__FILE_REGULAR);
    if (fd < 0)
        return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, choir__why(errno));
    close(fd);
    return CHOIR_OK;
}

choir_status choir__checkpoint_keep(const char *dir, int64_t number, int64_t step)
{
    char *from = choir__checkpoint_path(dir, number), *to = kept_path(dir, number, step);
    char *none = choir__format("%s.none", to);
    choir_status status = CHOIR_OK;
    bool is_noted = choir__checkpoint_is_there(to) || choir__checkpoint_is_there(none);
    if (!is_noted && choir__checkpoint_is_there(from))
        status = copy_whole(from, to);
    else if (!is_noted)
        status = note_none(none);
    free(none);
    free(from);
    free(to);
    return status;
}

void choir__checkpoint_drop(const char *dir, int64_t number, int64_t step)
{
    char *path = kept_path(dir, number, step), *none = choir__format("%s.none", path);
    if (discard(path) != CHOIR_OK) /* a copy that is left does no harm */
        (void)choir__message();
    unlink(none);
    free(none);
    free(path);
}

choir_status choir__checkpoint_restore(
    const char *dir, int64_t number, bool began_without, int64_t step)
{
    char *to = choir__checkpoint_path(dir, number), *from = kept_path(dir, number, step);
    char *none = choir__format("%s.none", from);
    bool without = began_without || choir__checkpoint_is_there(none);
    bool kept = !without && choir__checkpoint_is_there(from);
    choir_status status = without || kept ? discard(to) : CHOIR_OK;
    if (status == CHOIR_OK && kept)
        status = copy(from, to);
    free(none);
    free(to);
    free(from);
    return status;
}

/* Returns the value that a word of a command line begins or announces for an option, or NULL.
 */
static const char *value_of(char *const *word, const char *option)
{
    size_t length = strlen(option);
    if (strncmp(*word, option, length) != 0)
        return NULL;
    return (*word)[length] == '=' ? *word + length + 1 : (*word)[length] ? NULL : word[1];
}

/* Deletes what a run leaves in its folder, beside which the trial has files of its own. */
static choir_status discard_run(const char *folder)
{
    static const char *const names[] = {"latest", "best", CHOIR__JOB_FILE, CHOIR__METRICS_FILE,
        CHOIR__EVENTS_FILE, CHOIR__AUDIT_FILE};
    choir_status status = CHOIR_OK;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && status == CHOIR_OK && (e = readdir(d));) {
        bool of_run = !strncmp(e->d_name, "step-", 5);
        for (size_t i = 0; i < CHOIR_COUNT(names) && !of_run; i++)
            of_run = !strcmp(e->d_name, names[i]);
        char *path = of_run ? choir__format("%s/%s", folder, e->d_name) : NULL;
        if (path)
            status = discard(path);
        free(path);
    }
    if (d)
        closedir(d);
    return status;
}

/* Deletes a run, if its folder is the trial's folder dir, or in it. */
static choir_status discard_inside(const char *path, const char *dir)
{
    const size_t length = strlen(dir);
    const char *rest = strncmp(path, dir, length) ? NULL : path + length;
    if (!rest || strstr(rest, ".."))
        return CHOIR_OK;
    if (!*rest || !strcmp(rest, "/"))
        return discard_run(dir);
    return *rest == '/' ? discard(path) : CHOIR_OK;
}

choir_status choir__checkpoint_clear(char *const *line, const char *dir)
{
    static const char *const options[] = {"--save", "--run", "--log"};
    choir_status status = CHOIR_OK;
    for (char *const *word = line; *word; word++)
        if (value_of(word, "--resume"))
            return CHOIR_OK;
    for (char *const *word = line; *word; word++)
        for (size_t i = 0; i < CHOIR_COUNT(options) && status == CHOIR_OK; i++) {
            const char *path = value_of(word, options[i]);
            if (path && !strncmp(path, "run:", 4))
                path += 4;
            if (path)
                status = discard_inside(path, dir);
        }
    return status;
}

choir_status choir__checkpoint_inherit(
    const char *dir, int64_t number, int64_t parent, int64_t step)
{
    char *to = choir__checkpoint_path(dir, number), *from = kept_path(dir, parent, step);
    choir_status status = CHOIR_OK;
    if (choir__checkpoint_is_there(from) && !choir__checkpoint_is_there(to))
        status = copy(from, to);
    free(to);
    free(from);
    return status;
}
