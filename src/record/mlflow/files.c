/* MLflow's file store, written in place:
 *
 *     DIR/EXPERIMENT/meta.yaml
 *     DIR/EXPERIMENT/RUN/meta.yaml
 *                        params/NAME       the value
 *                        metrics/NAME      "MILLISECONDS VALUE STEP", a line per step
 *                        tags/NAME, artifacts/
 *
 * A continued run is found by its id, and its later steps are cut off. */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/temp_file.h"
#include "record/lines.h"
#include "record/mlflow/mlflow.h"
#include "record/json_value.h"

/* MLflow looks for runs in folders of digits; this one is of the name CHOIR__MLFLOW_EXPERIMENT.
 */
static const char experiment_id[] = "730164382511270901";

typedef struct metric {
    char *name;
    choir__lines lines;
} metric;

typedef struct files {
    choir__recorder base;
    char *root, *folder, *name; /* root: the whole path */
    char id[33];
    int64_t resume, started_ms;
    bool evaluates_again;
    metric *metrics; /* (count) */
    int count;
} files;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Writes a small file, whole or not at all. */
static choir_status write_small(const char *path, const char *text)
{
    int error = choir__temp_file_write(path, text, strlen(text), false);
    return error ? choir__record_failed(path, error) : CHOIR_OK;
}

/* Makes the folders above a file, whose name may have slashes, and returns its path. */
static char *path_in(const files *f, const char *kind, const char *name)
{
    char clean[256], *path, *slash;
    choir__mlflow_name(name, clean);
    path = choir__format("%s/%s/%s", f->folder, kind, clean);
    slash = strrchr(path, '/');
    *slash = '\0';
    (void)!choir__folders_make(path); /* opening the file reports it */
    *slash = '/';
    return path;
}

/* Adds a text as a scalar of YAML in single quotes. */
static void put_yaml(choir__text_buffer *t, const char *key, const char *text)
{
    choir__text_buffer_put(t, key);
    choir__text_buffer_put(t, ": '");
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            choir__text_buffer_put(t, " ");
        else
            choir__text_buffer_add(t, *text == '\'' ? "''" : text, *text == '\'' ? 2 : 1);
    choir__text_buffer_put(t, "'\n");
}

static void put_number(choir__text_buffer *t, const char *key, int64_t x)
{
    char line[64];
    snprintf(line, sizeof line, "%s: %lld\n", key, (long long)x);
    choir__text_buffer_put(t, line);
}

static choir_status write_experiment(const files *f)
{
    char *folder = choir__format("%s/%s", f->root, experiment_id),
         *path = choir__format("%s/meta.yaml", folder),
         *artifacts = choir__format("file://%s", folder);
    choir__text_buffer t = {0};
    choir_status status = CHOIR_OK;
    if (access(path, F_OK) != 0) {
        put_yaml(&t, "artifact_location", artifacts);
        put_number(&t, "creation_time", f->started_ms);
        put_yaml(&t, "experiment_id", experiment_id);
        put_number(&t, "last_update_time", f->started_ms);
        put_yaml(&t, "lifecycle_stage", "active");
        put_yaml(&t, "name", CHOIR__MLFLOW_EXPERIMENT);
        (void)!choir__folders_make(folder);
        status = write_small(path, t.bytes);
    }
    choir__text_buffer_free(&t);
    free(artifacts);
    free(path);
    free(folder);
    return status;
}

enum { RUNNING = 1, FINISHED = 3, FAILED = 4 };

static choir_status write_run(const files *f, int state)
{
    char *path = choir__format("%s/meta.yaml", f->folder),
         *artifacts = choir__format("file://%s/artifacts", f->folder);
    const struct passwd *user = getpwuid(geteuid());
    choir__text_buffer t = {0};
    put_yaml(&t, "artifact_uri", artifacts);
    if (state == RUNNING)
        choir__text_buffer_put(&t, "end_time: null\n");
    else
        put_number(&t, "end_time", now_ms());
    put_yaml(&t, "entry_point_name", "");
    put_yaml(&t, "experiment_id", experiment_id);
    put_yaml(&t, "lifecycle_stage", "active");
    put_yaml(&t, "run_id", f->id);
    put_yaml(&t, "run_name", f->name);
    put_yaml(&t, "run_uuid", f->id);
    put_yaml(&t, "source_name", "");
    put_number(&t, "source_type", 4);
    put_yaml(&t, "source_version", "");
    put_number(&t, "start_time", f->started_ms);
    put_number(&t, "status", state);
    choir__text_buffer_put(&t, "tags: []\n");
    put_yaml(&t, "user_id", user ? user->pw_name : "choir");
    choir_status status = write_small(path, t.bytes);
    choir__text_buffer_free(&t);
    free(artifacts);
    free(path);
    return status;
}

static choir_status write_tag(const files *f, const char *name, const char *text)
{
    char *path = path_in(f, "tags", name);
    choir_status status = write_small(path, text);
    free(path);
    return status;
}

/* --- opening --- */

/* Returns when the run began, if it has been recorded before. */
static int64_t earlier_start(const files *f)
{
    char *path = choir__format("%s/meta.yaml", f->folder), line[256];
    long long started = 0;
    FILE *m = choir__file_try_stream(path);
    while (m && fgets(line, sizeof line, m))
        if (sscanf(line, "start_time: %lld", &started) == 1)
            break;
    if (m)
        fclose(m);
    free(path);
    return started;
}

static bool stays(const char *line, size_t bytes, void *arg)
{
    const char *space = memrchr(line, ' ', bytes);
    return space && strtoll(space + 1, NULL, 10) <= *(const int64_t *)arg;
}

/* Opens the file of a metric; `clean` is its name in the store. */
static choir_status open_metric(files *f, const char *name)
{
    CHOIR__GROW(f->metrics, f->count);
    char *path = path_in(f, "metrics", name);
    metric *m = &f->metrics[f->count++];
    m->name = choir__strdup(name);
    choir_status status =
        choir__lines_open(&m->lines, path, f->resume < 0 ? NULL : stays, &f->resume);
    free(path);
    return status;
}

static int by_name(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Cuts the later steps off all metrics of an earlier part of the run, also those that this part
 * will not have. `inside` is "" or a folder of metrics, such as "eval/". */
static choir_status cut_metrics(files *f, const char *inside)
{
    char *folder = choir__format("%s/metrics/%s", f->folder, inside);
    struct dirent **found = NULL;
    int count = scandir(folder, &found, by_name, alphasort);
    int64_t last = f->resume - (f->evaluates_again && !strncmp(inside, "eval/", 5));
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count; i++) {
        char *path = choir__format("%s%s", folder, found[i]->d_name);
        choir__lines lines;
        if (found[i]->d_type == DT_DIR && strlen(inside) < 200) {
            char *deeper = choir__format("%s%s/", inside, found[i]->d_name);
            status = status == CHOIR_OK ? cut_metrics(f, deeper) : status;
            free(deeper);
        } else if (status == CHOIR_OK) {
            status = choir__lines_open(&lines, path, stays, &last);
            choir_status closed = choir__lines_close(&lines);
            status = status == CHOIR_OK ? closed : status;
        }
        free(path);
        free(found[i]);
    }
    free(found);
    free(folder);
    return status;
}

static choir_status make_run(files *f)
{
    char *artifacts = choir__format("%s/artifacts", f->folder);
    int error = choir__folders_make(artifacts);
    free(artifacts);
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "cannot write a run of MLflow to %s: %s", f->root, choir__why(error));
    int64_t earlier = f->resume >= 0 ? earlier_start(f) : 0;
    f->started_ms = earlier ? earlier : f->started_ms;
    choir_status status = write_experiment(f);
    if (status == CHOIR_OK)
        status = write_run(f, RUNNING);
    if (status == CHOIR_OK)
        status = write_tag(f, "mlflow.runName", f->name);
    if (status == CHOIR_OK)
        status = write_tag(f, "mlflow.source.name", "choir");
    return status == CHOIR_OK && f->resume >= 0 ? cut_metrics(f, "") : status;
}

static const choir__recorder_ops files_ops;

choir_status choir__mlflow_files(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    int error = choir__folders_make(place);
    char *root = error ? NULL : realpath(place, NULL);
    if (!root)
        return choir__error(CHOIR_ERR_IO, "cannot write a run of MLflow to %s: %s", place,
            choir__why(error ? error : errno));
    files *f = choir__calloc(1, sizeof *f);
    f->base.ops = &files_ops;
    f->root = root;
    f->name = choir__strdup(start->name);
    f->resume = start->resume;
    f->evaluates_again = start->evaluates_again;
    f->started_ms = (int64_t)(1e3 * start->time);
    snprintf(f->id, sizeof f->id, "%s", start->id);
    f->folder = choir__format("%s/%s/%s", root, experiment_id, f->id);
    choir_status status = make_run(f);
    *made = &f->base;
    return status;
}

/* --- writing --- */

static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    files *f = (files *)base;
    choir_status status = CHOIR_OK;
    const char *name;
    json_t *value;
    (void)job;
    json_object_foreach((json_t *)params, name, value)
    {
        char *text = choir__json_plain(value), *path = path_in(f, "params", name);
        if (status == CHOIR_OK)
            status = write_small(path, text);
        free(path);
        free(text);
    }
    return status;
}

/* Returns the metric of a name; `near` is where the one before was found. */
static int find_metric(const files *f, const char *name, int near)
{
    for (int i = 0; i < f->count; i++) {
        int at = (near + 1 + i) % f->count;
        if (!strcmp(f->metrics[at].name, name))
            return at;
    }
    return -1;
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    files *f = (files *)base;
    choir_status status = CHOIR_OK;
    for (int i = 0, at = -1; i < row->count && status == CHOIR_OK; i++) {
        const choir__number *n = &row->numbers[i];
        char value[CHOIR__NUMBER_TEXT], line[128];
        at = find_metric(f, n->name, at);
        if (at < 0) {
            status = open_metric(f, n->name);
            at = f->count - 1;
        }
        choir__number_text(n->value, value);
        int bytes = snprintf(line, sizeof line, "%lld %s %lld\n", (long long)(1e3 * row->time),
            value, (long long)row->step);
        if (status == CHOIR_OK)
            status = choir__lines_add(&f->metrics[at].lines, line, (size_t)bytes);
    }
    return status;
}

static choir_status end(choir__recorder *base, bool good)
{
    files *f = (files *)base;
    choir_status status =
        access(f->folder, F_OK) == 0 ? write_run(f, good ? FINISHED : FAILED) : CHOIR_OK;
    for (int i = 0; i < f->count; i++) {
        choir_status closed = choir__lines_close(&f->metrics[i].lines);
        status = status == CHOIR_OK ? closed : status;
        free(f->metrics[i].name);
    }
    free(f->metrics);
    free(f->folder);
    free(f->root);
    free(f->name);
    free(f);
    return status;
}

static const choir__recorder_ops files_ops = {
    .name = "mlflow",
    .begin = begin,
    .step = step,
    .end = end,
};
