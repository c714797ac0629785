/* The jobs of programs: see choir/job.h.
 *
 * A job keeps what the program has given it, a document and settings, and each training makes a
 * choir__job of them, in the order in which the command reads its line and a job file. So the
 * same things are checked, and a job can train again. */
#include <choir/job.h>

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/floats.h"
#include "job/document/document.h"
#include "job/report/run_log.h"
#include "job/run.h"
#include "job/trainer/metric.h"
#include "job/trainer/trainer.h"
#include "line/values.h"

typedef struct setting {
    const choir__line_option *option; /* NULL: the data */
    char *value;                      /* NULL: a flag */
} setting;

struct choir_job {
    json_t *document; /* NULL: there is none */
    char *where;      /* for messages: its file */
    setting *settings;
    int count;
    choir__job_told *told;
    char *folder, *latest, *best, ended_by[sizeof((choir__job_told *)NULL)->ended_by];
};

/* --- options --- */

/* Gives the option its value, as the command line does. */
static choir_status give(choir__job *j, const setting *s)
{
    const choir__line_option *o = s->option;
    if (!o) {
        j->data.path = s->value;
        return CHOIR_OK;
    }
    char *place = (char *)j + o->at;
    if (!s->value && o->argument)
        return choir__error(CHOIR_ERR_ARGUMENT, "missing value of --%s", o->name);
    if (!s->value) {
        *(bool *)place = true;
    } else if (choir__line_set(o, place, s->value) != CHOIR_OK) {
        char *where = choir__format("--%s", o->name);
        choir_status status = choir__line_json_located(where, CHOIR_ERR_ARGUMENT);
        free(where);
        return status;
    }
    return choir__job_took(j, o, s->value);
}

/* Makes the job that is given. */
static choir_status make(const choir_job *h, choir__job *j)
{
    choir_status status = CHOIR_OK;
    *j = choir__job_new("train");
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->preset)
            (void)!choir__line_set(o, (char *)j + o->at, o->preset);
    for (int i = 0; i < h->count && status == CHOIR_OK; i++)
        status = give(j, &h->settings[i]);
    if (status == CHOIR_OK && h->document)
        status = choir__job_take_document(j, h->where, json_deep_copy(h->document));
    return status;
}

choir_status choir_job_set(choir_job *h, const char *name, const char *value)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(h, __func__, "job") || choir__lacks(name, __func__, "option"))
        return CHOIR_ERR_ARGUMENT;
    const choir__line_option *o = choir__line_named(choir__job_options, name);
    const bool data = !strcmp(name, "data");
    if (!data && (!o || o->where == CHOIR__OF_LINE))
        return choir__job_unknown_option(__func__, name);
    const setting s = {o, value ? choir__strdup(value) : NULL};
    choir__job tried = choir__job_new("train");
    choir_status status = data && !value ? choir__missing(__func__, "data") : give(&tried, &s);
    choir__job_free(&tried);
    if (status != CHOIR_OK) {
        free(s.value);
        return status;
    }
    CHOIR__GROW(h->settings, h->count);
    h->settings[h->count++] = s;
    return CHOIR_OK;
}

/* --- documents --- */

static choir_status open_job(const char *where, json_t *document, choir_job **made)
{
    choir_job *h = choir__calloc(1, sizeof *h);
    *h = (choir_job){.document = document, .where = choir__strdup(where)};
    h->told =
        mmap(NULL, sizeof *h->told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    choir_status status = CHOIR_OK;
    if (h->told == MAP_FAILED) {
        h->told = NULL;
        status = choir__error(CHOIR_ERR_IO, "%s: no memory for a job", where);
    } else {
        choir__job tried;
        status = make(h, &tried);
        choir__job_free(&tried);
    }
    if (status == CHOIR_OK)
        *made = h;
    else
        choir_job_free(h);
    return status;
}

choir_status choir_job_new(choir_job **made)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(made, __func__, "place for the job"))
        return CHOIR_ERR_ARGUMENT;
    *made = NULL;
    return open_job(__func__, NULL, made);
}

choir_status choir_job_open(const char *path, choir_job **made)
{
    CHOIR__DEFAULT_FLOATS;
    json_t *root;
    if (choir__lacks(made, __func__, "place for the job"))
        return CHOIR_ERR_ARGUMENT;
    *made = NULL;
    if (choir__lacks(path, __func__, "path"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = choir__job_load_file(path, &root);
    return status == CHOIR_OK ? open_job(path, root, made) : status;
}

choir_status choir_job_parse(const char *json, choir_job **made)
{
    CHOIR__DEFAULT_FLOATS;
    json_error_t why;
    if (choir__lacks(made, __func__, "place for the job"))
        return CHOIR_ERR_ARGUMENT;
    *made = NULL;
    if (choir__lacks(json, __func__, "document"))
        return CHOIR_ERR_ARGUMENT;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &why);
    return root ? open_job(__func__, root, made)
                : choir__error(CHOIR_ERR_ARGUMENT, "choir_job_parse: line %d, column %d: %s",
                      why.line, why.column, why.text);
}

/* Forgets the last training; a request to stop stays. */
static void forget_result(choir_job *h)
{
    choir__job_told *t = h->told;
    free(h->folder);
    free(h->latest);
    free(h->best);
    h->folder = h->latest = h->best = NULL;
    if (!t)
        return;
    t->steps = 0;
    t->loss = t->eval_loss = t->eval_accuracy = (double)NAN;
    *t->weights_sha256 = *t->ended_by = '\0';
}

void choir_job_free(choir_job *h)
{
    if (!h)
        return;
    for (int i = 0; i < h->count; i++)
        free(h->settings[i].value);
    forget_result(h);
    if (h->told)
        munmap(h->told, sizeof *h->told);
    json_decref(h->document);
    free(h->settings);
    free(h->where);
    free(h);
}

/* --- training --- */

/* Refuses options with which the command does something else than train. */
static choir_status check_trains(const choir__job_training *t)
{
    const choir__line_option *o = t->summary   ? CHOIR__JOB_OPTION(training.summary)
                                  : t->find_lr ? CHOIR__JOB_OPTION(training.find_lr)
                                               : NULL;
    return o ? choir__error(CHOIR_ERR_ARGUMENT,
                   "--%s trains nothing: it is for the command, choir train", o->name)
             : CHOIR_OK;
}

/* Returns the path of a checkpoint of the run, or NULL; the caller frees it. */
static char *checkpoint_in(const choir__job_saves *saves, const char *name)
{
    char *path = saves->dir ? choir__format("%s/%s", saves->dir, name) : NULL;
    if (path && access(path, F_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* States that nothing was trained. */
static void clear_result(choir_job_result *result)
{
    const double unknown = (double)NAN;
    if (result)
        *result =
            (choir_job_result){.loss = unknown, .eval_loss = unknown, .eval_accuracy = unknown};
}

/* Fills in the result. began: the training began, so the folders are this job's. */
static void state_result(choir_job *h, const choir__job *j, bool began,
    const choir__job_end *end, choir_job_result *result)
{
    const choir__job_told *t = h->told;
    const char *folder = began ? choir__run_log_folder(j) : NULL;
    h->folder = folder ? choir__strdup(folder) : NULL;
    h->latest = began ? checkpoint_in(&j->saves, "latest") : NULL;
    h->best = began ? checkpoint_in(&j->saves, "best") : NULL;
    memcpy(h->ended_by, t->ended_by, sizeof h->ended_by);
    if (!result)
        return;
    *result = (choir_job_result){.steps = t->steps,
        .loss = t->loss,
        .eval_loss = t->eval_loss,
        .eval_accuracy = t->eval_accuracy,
        .ended_by = *h->ended_by ? h->ended_by : NULL,
        .folder = h->folder,
        .latest = h->latest,
        .best = h->best,
        .rank = j->ranks.rank,
        .signal = end->by,
        .unrecorded = end->unrecorded};
    memcpy(result->weights_sha256, t->weights_sha256, sizeof result->weights_sha256);
}

/* Trains the job, whose folders are its own until this returns. */
static choir_status run(choir__job *j, bool *began, choir__job_end *end)
{
    bool usage;
    choir_status status = check_trains(&j->training);
    if (status == CHOIR_OK)
        status = choir__job_make_ready(j, &usage);
    if (status == CHOIR_OK)
        status = choir__metric_check_command(j);
    *began = status == CHOIR_OK;
    if (*began) {
        choir__train_signals_borrow(!j->records.silent && j->ranks.rank <= 0);
        status = choir__job_run(j, end);
        int stop = choir__train_signals_give_back();
        /* a signal that came too late to interrupt the job */
        end->by = end->by ? end->by : stop;
    }
    char *why = choir__strdup(choir__message());
    choir__job_leave_folders(&j->saves, status == CHOIR_OK || status == CHOIR_ERR_INTERRUPTED);
    choir__set_message(why);
    free(why);
    return status;
}

choir_status choir_job_train(
    choir_job *h, const choir_job_recorder *recorder, choir_job_result *result)
{
    CHOIR__DEFAULT_FLOATS;
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    choir__job job;
    choir__job_end end = {0};
    bool began = false;
    clear_result(result);
    if (choir__lacks(h, __func__, "job"))
        return CHOIR_ERR_ARGUMENT;
    if (atomic_flag_test_and_set(&busy))
        return choir__error(CHOIR_ERR_STATE,
            "choir_job_train: another job trains in this process: one at a time can");
    forget_result(h);
    choir__line_start_again();
    choir_status status = make(h, &job);
    job.records.own = recorder;
    job.records.silent = !recorder || !recorder->prints;
    job.records.told = h->told;
    if (status == CHOIR_OK)
        status = run(&job, &began, &end);
    if (atomic_exchange(&h->told->stop, CHOIR__STOP_NOT) == CHOIR__STOP_ASKED)
        end.by = 0; /* no signal has come, though the trainer acts as if */
    state_result(h, &job, began, &end, result);
    choir__job_free(&job);
    atomic_flag_clear(&busy);
    return status;
}

void choir_job_stop(choir_job *h)
{
    if (h)
        atomic_store(&h->told->stop, CHOIR__STOP_ASKED);
}
