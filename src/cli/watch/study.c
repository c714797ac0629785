/* Studies of choir tune on the page: see study.h. A study is read as a whole, by the functions
 * that choir tune show uses; the pauses between are many times what that takes. */
#include "cli/watch/study.h"

#include <choir/study.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/tune/look.h"
#include "cli/tune/search.h"

static const double pause_s = 2, times = 200; /* from one look to the next, at least */
enum { MOST_TRIALS = 1000 };                  /* the newest ones */

bool choir__watch_is_study(const char *path, struct stat *file)
{
    char *inner = choir__format("%s/study.db", path);
    bool is = (stat(path, file) == 0 && S_ISREG(file->st_mode)) ||
              (stat(inner, file) == 0 && S_ISREG(file->st_mode));
    free(inner);
    return is;
}

choir__watch_study *choir__watch_study_new(const char *path)
{
    choir__watch_study *s = choir__calloc(1, sizeof *s);
    s->path = choir__strdup(path);
    return s;
}

void choir__watch_study_free(choir__watch_study *s)
{
    if (!s)
        return;
    choir__text_free(&s->news);
    free(s->path);
    free(s);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *trial_of(const choir_study *study, const choir_trial *t)
{
    const choir_space *space = choir_study_space(study);
    json_t *values = json_array(), *params = json_object();
    for (int i = 0; i < choir_study_objectives(study); i++)
        json_array_append_new(values, number(choir_trial_value(t, i)));
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(t, name);
        if (text)
            json_object_set_new(params, name, choir__json_string(text));
    }
    return json_pack("{s:I, s:s, s:o, s:I, s:o}", "number", (json_int_t)choir_trial_number(t),
        "state", choir__search_state(choir_trial_result(t)), "values", values, "step",
        (json_int_t)choir_trial_last_step(t), "params", params);
}

static json_t *study_of(const choir__watch_study *s, int id, const choir_study *study)
{
    int64_t count = choir_study_count(study), from = choir__max(0, count - MOST_TRIALS);
    const choir_trial *best = choir_study_best(study);
    json_t *maximizes = json_array(), *trials = json_array();
    for (int i = 0; i < choir_study_objectives(study); i++)
        json_array_append_new(maximizes, json_boolean(choir_study_maximizes(study, i)));
    for (int64_t i = from; i < count; i++)
        json_array_append_new(trials, trial_of(study, choir_study_trial(study, i)));
    return json_pack("{s:i, s:o, s:I, s:o, s:o, s:o}", "id", id, "path",
        choir__json_string(s->path), "count", (json_int_t)count, "maximizes", maximizes, "best",
        best ? trial_of(study, best) : json_null(), "trials", trials);
}

void choir__watch_study_look(choir__watch_study *s, int id)
{
    double now = choir__now();
    choir_study *study = NULL;
    if (now < s->look_at)
        return;
    if (choir__tune_open(s->path, NULL, &study) == CHOIR_OK) {
        json_t *root = study_of(s, id, study);
        char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
        char *news = choir__format("event: study\ndata: %s\n\n", text);
        if (!s->news.bytes || strcmp(news, s->news.bytes)) {
            choir__text_clear(&s->news);
            choir__text_put(&s->news, news);
            s->version++;
        }
        free(news);
        free(text);
        json_decref(root);
    }
    choir_study_free(study);
    s->look_at = now + fmax(pause_s, times * (choir__now() - now));
}
