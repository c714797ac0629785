/* Making a folder with all folders above it: each prefix of the path is tried, and errors on
 * the way do not matter. Whether the folder is there at the end, and can be written to,
 * decides. */
#include "base/files/folders.h"

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
