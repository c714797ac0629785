/* Errors that backends share: see backend.h. */
#include "tune/storage/backend.h"

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
