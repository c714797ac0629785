/* Shared by the backends: a file that was removed or replaced during the search is an error,
 * URLs are shown without passwords, and a study that is not there, or not named where there are
 * several, is answered with a list. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/secret.h"
#include "base/named.h"
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

choir_status choir__backend_deleted(const choir__study_backend *b, const char *name)
{
    return choir__error(CHOIR_ERR_IO,
        "%s: another program has deleted the study '%s'; its trials are lost", b->place, name);
}

/* --- places --- */

char *choir__backend_public(const char *url)
{
    char *shown = choir__hide_passwords(choir__strdup(url));
    shown[strcspn(shown, "?")] = '\0';
    return shown;
}

/* --- names of studies --- */

void choir__study_names_add(choir__study_names *n, const char *name)
{
    CHOIR__GROW(n->name, n->count);
    n->name[n->count++] = choir__strdup(name);
}

void choir__study_names_free(choir__study_names *n)
{
    for (int i = 0; i < n->count; i++)
        free(n->name[i]);
    free(n->name);
    free(n->place);
    *n = (choir__study_names){0};
}

static choir_status several(const choir__study_backend *b, const choir__study_names *n)
{
    char list[512];
    choir__name_table table = {n->name, (size_t)n->count, sizeof *n->name, false};
    return choir__error(CHOIR_ERR_ARGUMENT, "%s holds several studies: choose one of %s",
        b->place, choir__list_names(&table, list, sizeof list));
}

choir_status choir__backend_none(choir__study_backend *b, const char *name)
{
    char list[512];
    const char *near = NULL;
    int best = INT_MAX;
    choir__study_names n = {0};
    choir_status status = b->ops->list(b, &n);
    for (int i = 0; i < n.count; i++)
        if (choir__is_nearer(n.name[i], name, &best))
            near = n.name[i];
    choir__name_table table = {n.name, (size_t)n.count, sizeof *n.name, false};
    if (status == CHOIR_OK)
        status = choir__error(CHOIR_ERR_ARGUMENT, "there is no study '%s' in %s%s%s%s%s%s",
            name, b->place, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
            n.count ? ": choose one of " : "", choir__list_names(&table, list, sizeof list));
    choir__study_names_free(&n);
    return status;
}

choir_status choir__backend_only(choir__study_backend *b, choir__stored_study *study)
{
    choir__study_names names = {0};
    choir_status status = b->ops->list(b, &names);
    if (status == CHOIR_OK && !names.count)
        status = choir__error(CHOIR_ERR_ARGUMENT, "there is no study in %s", b->place);
    else if (status == CHOIR_OK && names.count > 1)
        status = several(b, &names);
    else if (status == CHOIR_OK)
        study->name = choir__strdup(names.name[0]);
    choir__study_names_free(&names);
    return status;
}
