/* The registry of storages: which backend a URL or a file's name means. */
#include <stdlib.h>
#include <string.h>

#include "tune/storage/backend.h"

typedef struct scheme {
    const char *name; /* what the URL begins with, or the file's name ends with */
    bool ends, whole; /* whole: the backend reads the scheme, too */
    const choir__study_backend_ops *ops;
} scheme;

static const scheme schemes[] = {
    {"sqlite:///", false, false, &choir__backend_sqlite},
    {"sqlite:", false, false, &choir__backend_sqlite},
    {"postgresql://", false, true, &choir__backend_postgres},
    {"postgresql+", false, true, &choir__backend_postgres},
    {"postgres://", false, true, &choir__backend_postgres},
    {"journal:///", false, false, &choir__backend_journal},
    {"journal:", false, false, &choir__backend_journal},
    {".db", true, false, &choir__backend_sqlite},
    {".sqlite3", true, false, &choir__backend_sqlite},
    {".log", true, false, &choir__backend_journal},
    {".journal", true, false, &choir__backend_journal},
};

static bool fits(const scheme *s, const char *url)
{
    size_t length = strlen(s->name), of = strlen(url);
    if (s->ends)
        return of > length && !strcmp(url + of - length, s->name);
    return of > length && !strncmp(url, s->name, length);
}

bool choir__backend_is_url(const char *text)
{
    for (size_t i = 0; i < CHOIR_COUNT(schemes); i++)
        if (!schemes[i].ends && fits(&schemes[i], text))
            return true;
    return false;
}

choir_status choir__backend_open(const char *url, bool create, choir__study_backend **backend)
{
    for (size_t i = 0; i < CHOIR_COUNT(schemes); i++) {
        const scheme *s = &schemes[i];
        if (!fits(s, url) || (s->whole && !strstr(url, "://")))
            continue;
        const char *place = s->ends || s->whole ? url : url + strlen(s->name);
        if (place != url && !strncmp(place, "//", 2)) /* a slash less than SQLAlchemy wants */
            return choir__error(CHOIR_ERR_ARGUMENT, "storage %s: expected %s:%s or %s:/%s", url,
                s->ops->name, place + 2, s->ops->name, place);
        choir_status status = s->ops->open(place, create, backend);
        if (status == CHOIR_OK)
            choir__backend_opened(*backend);
        return status;
    }
    return choir__error(CHOIR_ERR_ARGUMENT,
        "storage: expected sqlite:FILE, postgresql://..., journal:FILE or a FILE.db, got '%s'",
        url);
}

choir_status choir__backend_list(const char *url, choir__study_names *names)
{
    choir__study_backend *b;
    *names = (choir__study_names){0};
    choir_status status = choir__backend_open(url, false, &b);
    if (status != CHOIR_OK)
        return status;
    names->place = choir__strdup(b->place);
    status = b->ops->list(b, names);
    b->ops->close(b);
    return status;
}
