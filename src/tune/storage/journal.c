/* Studies in Optuna's journal files, journal:FILE, as a backend: each call first reads the
 * lines that others have added, and changes are composed under the file's lock
 * (journal_file.c), so that they follow from all lines before them. */
#include "base/files/file.h"
#include "tune/storage/journal_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the study --- */

static void compose_study(choir__journal_file *j, void *arg)
{
    const choir__stored_study *s = arg;
    if (choir__journal_find(&j->state, s->name) >= 0)
        return;
    char *name = choir__journal_quote(s->name), directions[4 * CHOIR_STUDY_OBJECTIVES] = "";
    for (int i = 0; i < s->objectives; i++)
        sprintf(directions + strlen(directions), "%s%d", i ? "," : "", s->most[i] ? 2 : 1);
    choir__journal_put(j, CHOIR__JOURNAL_STUDY,
        choir__format("\"study_name\":%s,\"directions\":[%s]", name, directions));
    free(name);
    j->ends = true;
}

static choir_status list(choir__study_backend *b, choir__study_names *names)
{
    choir__journal_file *j = (choir__journal_file *)(void *)b;
    choir_status status = choir__journal_catch_up(j);
    for (int64_t i = 0; i < j->state.study_count && status == CHOIR_OK; i++)
        if (!j->state.study[i].deleted)
            choir__study_names_add(names, j->state.study[i].about.name);
    return status;
}

static choir_status study(choir__study_backend *b, bool create, choir__stored_study *s)
{
    choir__journal_file *j = (choir__journal_file *)(void *)b;
    choir_status status = choir__journal_catch_up(j);
    int64_t id = status == CHOIR_OK ? choir__journal_find(&j->state, s->name) : -1;
    if (status == CHOIR_OK && id < 0 && create) {
        status = choir__journal_transact(j, compose_study, s);
        if (status == CHOIR_OK)
            id = choir__journal_find(&j->state, s->name);
    }
    if (status != CHOIR_OK)
        return status;
    if (id < 0)
        return choir__backend_none(b, s->name);
    j->study = id;
    const choir__stored_study *from = &j->state.study[id].about;
    free(s->name);
    s->name = choir__strdup(from->name);
    s->objectives = from->objectives;
    memcpy(s->most, from->most, sizeof s->most);
    choir__attributes_free(&s->attributes);
    for (int i = 0; i < from->attributes.count; i++) {
        const choir__stored_attribute *a = &from->attributes.at[i];
        choir__attribute_set(&s->attributes, a->system, a->key, a->json);
    }
    return CHOIR_OK;
}

static choir_status load(choir__study_backend *b, int64_t from, choir__stored_trials *records)
{
    choir__journal_file *j = (choir__journal_file *)(void *)b;
    choir_status status = choir__journal_catch_up(j);
    if (status != CHOIR_OK)
        return status;
    const choir__journal_study *s = &j->state.study[j->study];
    if (s->deleted)
        return choir__backend_deleted(b, s->about.name);
    double now_s = choir__journal_now();
    for (int64_t i = from; i < s->trials.count; i++)
        choir__journal_copy(&s->trials.at[i], now_s, choir__stored_trials_add(records, i));
    return CHOIR_OK;
}

static void close_journal(choir__study_backend *b)
{
    choir__journal_file *j = (choir__journal_file *)(void *)b;
    if (j->fd >= 0)
        close(j->fd);
    choir__journal_clear(&j->state);
    free(j->lock);
    free(b->place);
    free(j);
}

static choir_status open_journal(const char *place, bool create, choir__study_backend **backend)
{
    choir__journal_file *j = choir__calloc(1, sizeof *j);
    j->base.ops = &choir__backend_journal;
    j->base.place = choir__strdup(place);
    j->lock = choir__format("%s.lock", place);
    j->fd = choir__file_try(
        place, O_APPEND | (create ? O_RDWR | O_CREAT : O_RDONLY), CHOIR__FILE_REGULAR);
    choir_status status =
        j->fd < 0 ? choir__journal_failed(j, "open") : choir__journal_catch_up(j);
    if (status == CHOIR_OK)
        status = choir__journal_check_holes(j);
    if (status == CHOIR_OK)
        *backend = &j->base;
    else
        close_journal(&j->base);
    return status;
}

const choir__study_backend_ops choir__backend_journal = {
    .name = "journal",
    .is_file = true,
    .most_step = CHOIR__MOST_STEP,
    .open = open_journal,
    .list = list,
    .study = study,
    .load = load,
    .write = choir__journal_write,
    .close = close_journal,
};
