/* Opening files of the user. The kind is looked at after the opening, which does not wait, so
 * no other file can take the name in between. */
#include "base/files/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/floats.h"

static bool suits(mode_t mode, choir__file_kinds kinds)
{
    switch (kinds) {
    case CHOIR__FILE_TEXT: return S_ISREG(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
    case CHOIR__FILE_OUTPUT:
    case CHOIR__FILE_PRIVATE: return !S_ISDIR(mode);
    default: return S_ISREG(mode);
    }
}

/* Makes later reads and writes wait, unless the caller has asked for O_NONBLOCK. */
static bool let_wait(int fd, int flags)
{
    int now = fcntl(fd, F_GETFL);
    return flags & O_NONBLOCK || (now >= 0 && fcntl(fd, F_SETFL, now & ~O_NONBLOCK) == 0);
}

int choir__file_try(const char *path, int flags, choir__file_kinds kinds)
{
    struct stat info;
    int wait = kinds == CHOIR__FILE_TEXT ? 0 : O_NONBLOCK;
    mode_t mode = kinds == CHOIR__FILE_PRIVATE ? 0600 : 0666;
    int fd = open(path, flags | wait | O_CLOEXEC | O_NOCTTY, mode);
    if (fd < 0)
        return -1;
    bool looked = fstat(fd, &info) == 0 && let_wait(fd, flags);
    if (looked && suits(info.st_mode, kinds))
        return fd;
    int why = !looked ? errno : S_ISDIR(info.st_mode) ? EISDIR : ENOTSUP;
    close(fd);
    errno = why;
    return -1;
}

const char *choir__file_why(int error)
{
    switch (error) {
    case EISDIR: return "expected a file, got a folder";
    case ENOTSUP: return "expected a regular file, got a FIFO, a socket or a device";
    case ENXIO: return "a socket, or a FIFO without a reader";
    default: return choir__why(error);
    }
}

choir_status choir__file_open(const char *path, int flags, choir__file_kinds kinds, int *fd)
{
    *fd = choir__file_try(path, flags, kinds);
    if (*fd >= 0)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_IO, "%s: %s%s", path,
        errno == EISDIR || errno == ENOTSUP ? "" : "cannot be opened: ",
        choir__file_why(errno));
}

bool choir__is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/'), *dot = strrchr(path, '.');
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || *path == '.' ||
        strchr(path, '~') || (dot && isalpha((unsigned char)dot[1]))) /* .jsonl, not 2.5-7B */
        return false;
    char *owner = choir__format("%.*s", (int)(slash - path), path);
    bool there = access(owner, F_OK) == 0;
    free(owner);
    return !there;
}

choir_status choir__file_absent(const char *path, choir__hub_kind kind)
{
    static const char *const names[] = {"a model", "an adapter", "a tokenizer", "a data set"};
    if (!choir__is_hub_name(path))
        return choir__error(CHOIR_ERR_IO, "%s: no such file or folder", path);
    return choir__error(CHOIR_ERR_IO,
        "%s: no such file or folder; if that is the name of %s on the Hugging Face Hub, "
        "'hf download %s%s --local-dir FOLDER' fetches it: then give FOLDER",
        path, names[kind], path, kind == CHOIR__HUB_DATA ? " --repo-type dataset" : "");
}

choir_status choir__file_check(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_IO, "%s: %s", path,
        choir__file_why(S_ISDIR(info.st_mode) ? EISDIR : ENOTSUP));
}

static FILE *stream_of(int fd, const char *mode)
{
    FILE *file = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

choir_status choir__file_stream(const char *path, choir__file_kinds kinds, FILE **file)
{
    int fd;
    *file = NULL;
    choir_status status = choir__file_open(path, O_RDONLY, kinds, &fd);
    if (status == CHOIR_OK && !(*file = stream_of(fd, "r")))
        status =
            choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", path, choir__why(errno));
    return status;
}

FILE *choir__file_try_stream(const char *path)
{
    return stream_of(choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR), "r");
}

FILE *choir__file_try_stream_in(const char *folder, const char *name)
{
    char *path = choir__format("%s/%s", folder, name);
    FILE *file = choir__file_try_stream(path);
    free(path);
    return file;
}

FILE *choir__file_try_output(const char *path)
{
    return stream_of(
        choir__file_try(path, O_WRONLY | O_CREAT | O_TRUNC, CHOIR__FILE_OUTPUT), "w");
}

json_t *choir__file_json(const char *path, size_t flags, json_error_t *why)
{
    CHOIR__DEFAULT_FLOATS;
    FILE *file = choir__file_try_stream(path);
    json_t *root = file ? json_loadf(file, flags, why) : NULL;
    if (!file && why) {
        *why = (json_error_t){.line = -1, .column = -1};
        snprintf(why->text, sizeof why->text, "%s", choir__file_why(errno));
    }
    if (file)
        fclose(file);
    return root;
}

json_t *choir__file_json_in(const char *folder, const char *name)
{
    char *path = choir__format("%s/%s", folder, name);
    json_t *root = choir__file_json(path, 0, NULL);
    free(path);
    return root;
}
