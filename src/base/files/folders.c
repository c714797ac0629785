/* Folders. One is made with all folders above it: each prefix of the path is tried, and errors
 * on the way do not matter. Whether the folder is there at the end, and can be written to,
 * decides. */
#include "base/files/folders.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

int choir__folders_make(const char *path)
{
    struct stat s;
    int why = ENOENT;
    char *part = choir__strdup(path);
    for (char *slash = part; *part && slash;) {
        if ((slash = strchr(slash + 1, '/')))
            *slash = '\0';
        why = mkdir(part, 0777) == 0 ? 0 : errno;
        if (slash)
            *slash = '/';
    }
    free(part);
    if (stat(path, &s) == 0)
        why = !S_ISDIR(s.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) ? errno : 0;
    return why;
}

bool choir__is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool choir__folder_has(const char *folder, const char *name)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    bool found = lstat(path, &info) == 0;
    free(path);
    return found;
}

void choir__folder_walk(
    const char *dir, void (*each)(const char *dir, const char *name, void *arg), void *arg)
{
    DIR *stream = opendir(dir);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)))
        each(dir, entry->d_name, arg);
    if (stream)
        closedir(stream);
}
