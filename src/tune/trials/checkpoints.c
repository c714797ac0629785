/* Checkpoints of trials: see checkpoints.h. */
#include "tune/trials/checkpoints.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

extern char **environ;

char *choir__checkpoint_path(const char *dir, int64_t number)
{
    return choir__format("%s/%lld/checkpoint", dir, (long long)number);
}

bool choir__checkpoint_is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Copies a file or a folder with its links, where file systems can by reference. */
static choir_status copy(const char *from, const char *to)
{
    char *const line[] = {"cp", "-a", "--reflink=auto", "-T", "--", (char *)(uintptr_t)from,
        (char *)(uintptr_t)to, NULL};
    pid_t pid;
    int status = -1, error = posix_spawnp(&pid, line[0], NULL, NULL, line, environ);
    while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (error || status)
        return choir__error(CHOIR_ERR_IO, "cannot copy the checkpoint %s to %s%s%s", from, to,
            error ? ": " : "", error ? choir__why(error) : "");
    return CHOIR_OK;
}

choir_status choir__checkpoint_keep(const char *dir, int64_t number, int64_t step)
{
    char *from = choir__checkpoint_path(dir, number);
    char *to = choir__format("%s.%lld", from, (long long)step);
    choir_status status = CHOIR_OK;
    if (choir__checkpoint_is_there(from) && !choir__checkpoint_is_there(to))
        status = copy(from, to);
    free(from);
    free(to);
    return status;
}

choir_status choir__checkpoint_inherit(
    const char *dir, int64_t number, int64_t parent, int64_t step)
{
    char *to = choir__checkpoint_path(dir, number), *from = choir__checkpoint_path(dir, parent);
    char *kept = choir__format("%s.%lld", from, (long long)step);
    choir_status status = CHOIR_OK;
    if (choir__checkpoint_is_there(kept) && !choir__checkpoint_is_there(to))
        status = copy(kept, to);
    free(to);
    free(from);
    free(kept);
    return status;
}
