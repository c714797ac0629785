/* Folders that appear whole or not at all, for commands that write new ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/temp_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "data/dataset.h"

choir_status choir__folder_is_free(const char *path)
{
    struct stat info;
    return lstat(path, &info) != 0
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "%s is there already: name a new file or folder", path);
}

choir_status choir__folder_of(const char *folder, const char *name)
{
    const char *slash = strchr(name, '/');
    if (!slash)
        return CHOIR_OK;
    char *path = choir__format("%s/%.*s", folder, (int)(slash - name), name);
    choir_status status = CHOIR_OK;
    const int why = mkdir(path, 0777) == 0 ? 0 : errno;
    if (why && !choir__is_folder(path))
        status =
            choir__error(CHOIR_ERR_IO, "cannot make the folder %s: %s", path, strerror(why));
    free(path);
    return status;
}

/* The file may be large, so it is not read as a whole. */
static bool copy_parts(FILE *from, FILE *to)
{
    enum { PART = 1 << 20 };
    char *part = choir__alloc(PART);
    bool good = true;
    for (size_t some; good && (some = fread(part, 1, PART, from)) > 0;)
        good = fwrite(part, 1, some, to) == some;
    free(part);
    return good && !ferror(from) && fflush(to) == 0 && fsync(fileno(to)) == 0;
}

static choir_status copy_bytes(const char *source, const char *target)
{
    FILE *from;
    choir_status status = choir__file_stream(source, CHOIR__FILE_REGULAR, &from);
    if (status != CHOIR_OK)
        return status;
    FILE *to = choir__file_try_output(target);
    bool good = to && copy_parts(from, to);
    const int why = errno;
    if (to && fclose(to) != 0)
        good = false;
    fclose(from);
    return good ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "cannot copy %s to %s: %s", source, target,
                      choir__why(why));
}

choir_status choir__folder_copy(const char *from, const char *to, const char *name)
{
    if (!choir__folder_has(from, name))
        return CHOIR_OK;
    char *source = choir__format("%s/%s", from, name),
         *target = choir__format("%s/%s", to, name);
    choir_status status = choir__folder_of(to, name);
    if (status == CHOIR_OK)
        status = copy_bytes(source, target);
    free(source);
    free(target);
    return status;
}

/* A link is removed, and its target stays. */
static void remove_one(const char *folder, const char *name, void *arg)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    (void)arg;
    if (!strcmp(name, ".") || !strcmp(name, "..") || lstat(path, &info) != 0) {
        free(path);
        return;
    }
    if (S_ISDIR(info.st_mode))
        choir__folder_unmake(path);
    else
        unlink(path);
    free(path);
}

void choir__folder_unmake(const char *folder)
{
    choir__folder_walk(folder, remove_one, NULL);
    rmdir(folder);
}

/* Makes a folder, with those above it. Returns an error number. */
static int make(const char *folder)
{
    int why = mkdir(folder, 0777) == 0 ? 0 : errno;
    const char *slash = strrchr(folder, '/');
    if (why != ENOENT || !slash || slash == folder)
        return why;
    char *above = choir__format("%.*s", (int)(slash - folder), folder);
    why = choir__folders_make(above);
    free(above);
    return why ? why : mkdir(folder, 0777) == 0 ? 0 : errno;
}

choir_status choir__folder_make(
    const char *to, choir_status (*fill)(const char *folder, void *arg), void *arg)
{
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/')
        length--;
    char *target = choir__format("%.*s", (int)length, to);
    char *fresh =
        choir__format("%s.new-%llx", target, (unsigned long long)choir__temp_file_mark());
    choir_status status = choir__folder_is_free(target);
    const int why = status == CHOIR_OK ? make(fresh) : 0;
    if (why)
        status =
            choir__error(CHOIR_ERR_IO, "cannot make the folder %s: %s", target, strerror(why));
    if (status == CHOIR_OK) {
        status = fill(fresh, arg);
        if (status == CHOIR_OK && rename(fresh, target) != 0)
            status = choir__error(
                CHOIR_ERR_IO, "cannot rename %s to %s: %s", fresh, target, strerror(errno));
        if (status != CHOIR_OK)
            choir__folder_unmake(fresh);
    }
    free(fresh);
    free(target);
    return status;
}
