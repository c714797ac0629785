/* Errors that backends share, and the check of their files: see backend.h. */
#include "tune/storage/backend.h"

void choir__backend_opened(choir__study_backend *b)
{
    struct stat is;
    if (b->ops->is_file && stat(b->place, &is) == 0) {
        b->device = is.st_dev;
        b->file = is.st_ino;
    }
}

choir_status choir__backend_check(const choir__study_backend *b)
{
    struct stat is;
    if (!b->file ||
        (stat(b->place, &is) == 0 && is.st_dev == b->device && is.st_ino == b->file))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_IO,
        "%s: the file was removed, or another one took its place, during the search", b->place);
}

choir_status choir__backend_none(const choir__study_backend *b, const char *name)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "%s holds no study%s%s%s", b->place,
        name ? " '" : "", name ? name : "", name ? "'" : "");
}

choir_status choir__backend_several(const choir__study_backend *b, const char *names)
{
    return choir__error(
        CHOIR_ERR_ARGUMENT, "%s holds several studies: choose one of %s", b->place, names);
}

choir_status choir__backend_deleted(const choir__study_backend *b, const char *name)
{
    return choir__error(CHOIR_ERR_IO,
        "%s: another program has deleted the study '%s'; its trials are lost", b->place, name);
}
