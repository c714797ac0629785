/* --skip-batches and --rewind: reads lists of batches, compares the list with the one of the
 * checkpoint that is resumed, and finds the checkpoint to go back to. A resumed job may
 * differ from its checkpoint only in batches that its steps have not reached. */
#include "job/edit.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

/* --- batches that are left out --- */

choir__skips choir__job_skips(const choir__job_data *d)
{
    choir__skips s = {0};
    if (choir__skips_add(&s, d->skip) != CHOIR_OK) /* has been checked */
        (void)choir_error_message();
    return s;
}

void choir__job_set_skips(choir__job_data *d, const choir__skips *s)
{
    free(d->skips);
    d->skip = d->skips = choir__skips_text(s, INT64_MAX);
}

static choir_status add(choir__skips *s, const char *text, const char *where)
{
    choir_status status = choir__skips_add(s, text);
    return status == CHOIR_OK
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: %s", where, choir_error_message());
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Compares two lists as far as the checkpoint's steps reach. */
static choir_status compare(
    const choir__job_saves *saves, const choir__skips *was, const choir__skips *is)
{
    int64_t step = saves->resumed_step, reached = step ? choir__skips_batch(was, step) : 0;
    char *before = choir__skips_text(was, reached), *now = choir__skips_text(is, reached);
    choir_status status =
        is_same(before, now)
            ? CHOIR_OK
            : choir__error(CHOIR_ERR_ARGUMENT,
                  "--skip-batches: %s has done %lld steps, up to batch %lld, and has left out %s, "
                  "not %s: go back before the batch by --rewind, or begin another run",
                  saves->resume, (long long)step, (long long)reached, before ? before : "none",
                  now ? now : "none");
    free(before);
    free(now);
    return status;
}

choir_status choir__job_check_skips(choir__job *j)
{
    choir__skips s = {0};
    choir_status status = add(&s, j->data.skip, "--skip-batches");
    if (status == CHOIR_OK)
        choir__job_set_skips(&j->data, &s);
    choir__skips_free(&s);
    return status;
}

choir_status choir__job_join_skips(choir__job *j)
{
    if (!j->saves.resumed)
        return CHOIR_OK;
    const choir__line_option *option = CHOIR__JOB_OPTION(data.skip);
    const char *recorded = choir__job_recorded(&j->saves, option->name);
    choir__skips was = {0}, is = choir__job_skips(&j->data);
    choir_status status = add(&was, recorded, j->saves.resume);
    if (status == CHOIR_OK && !choir__job_leaves_out(j, option))
        status = add(&is, recorded, j->saves.resume);
    if (status == CHOIR_OK)
        status = compare(&j->saves, &was, &is);
    if (status == CHOIR_OK)
        choir__job_set_skips(&j->data, &is);
    choir__skips_free(&was);
    choir__skips_free(&is);
    return status;
}

choir_status choir__job_check_skips_end(choir__job *j)
{
    choir__skips s = choir__job_skips(&j->data);
    int64_t last = choir__skips_batch(&s, j->training.steps);
    const choir__skips_range *r = s.count ? &s.ranges[s.count - 1] : NULL;
    choir_status status = CHOIR_OK;
    if (r && r->first > last && choir__job_was_given(j, CHOIR__JOB_OPTION(data.skip)))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--skip-batches %s: the job's last step, %lld, is on batch %lld, before batch %lld",
            j->data.skip, (long long)j->training.steps, (long long)last, (long long)r->first);
    choir__skips_free(&s);
    return status;
}

/* --- going back --- */

choir_status choir__job_rewind(choir__job_saves *saves, const char *run)
{
    char path[PATH_MAX];
    if (!run && choir_training_find(saves->resume, path) == CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--rewind %lld: expected the folder of a run with checkpoints for --resume, got %s",
            (long long)saves->rewind, saves->resume);
    choir_train_state newest;
    choir_status status = run ? choir__checkpoint_before(run, saves->rewind, path)
                              : choir__job_name_saves(saves->resume, CHOIR_ERR_FORMAT);
    if (status == CHOIR_OK)
        status = choir_training_read(run, &newest);
    if (status != CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT, "--rewind %lld: %s", (long long)saves->rewind,
            choir_error_message());
    if (saves->rewind > newest.step)
        choir__job_add_note(saves,
            choir__format("--rewind %lld: the newest checkpoint of %s is of step %lld, and "
                          "is taken",
                (long long)saves->rewind, run, (long long)newest.step));
    free(saves->rewound);
    saves->rewound_from = newest.step;
    saves->resume = saves->rewound = choir__strdup(path);
    return CHOIR_OK;
}
