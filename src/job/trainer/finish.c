/* The end of a training: the last checkpoint, validation, the summary, a sample of text. */
#include "line/printed.h"
#include "job/trainer/trainer.h"
#include "job/trainer/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "job/trainer/eval_policy.h"
#include "job/rehearsal/rehearsal.h"
#include "job/report/run_log.h"
#include "line/say.h"
#include "base/base.h"

enum { SAMPLE_TOKENS = 300 };

static const double least_overtime_s = 2; /* seconds for the last validation after --max-time */

/* A sample that is kept for the record, and shown while it is written, or NULL. */
typedef struct written {
    FILE *kept, *shown;
} written;

static ssize_t keep_and_show(void *arg, const char *bytes, size_t count)
{
    written *s = arg;
    if (s->shown) {
        fwrite(bytes, 1, count, s->shown);
        fflush(s->shown);
    }
    return (ssize_t)fwrite(bytes, 1, count, s->kept);
}

static choir_status write_sample(choir__trainer *t, bool shown)
{
    char *text = NULL;
    size_t bytes = 0;
    written s = {open_memstream(&text, &bytes), shown ? choir__printed_stream(stdout) : NULL};
    FILE *out =
        s.kept ? fopencookie(&s, "w", (cookie_io_functions_t){.write = keep_and_show}) : NULL;
    choir_status status =
        out ? choir__sample(t->part.run, t->part.evaluated, &t->job->model.info,
                  t->job->model.tokenizer, SAMPLE_TOKENS, out)
            : CHOIR_OK;
    if (out)
        fclose(out);
    if (s.kept)
        fclose(s.kept);
    if (s.shown)
        fclose(s.shown);
    if (shown)
        printf("\n");
    if (text)
        choir__trainer_tell(t, CHOIR__TO_LOGS,
            CHOIR__TOLD(text, .step = t->now.step, .name = "sample", .text = text));
    free(text);
    return status;
}

static choir_status sample(choir__trainer *t)
{
    const choir__job_records *r = &t->job->records;
    bool shown = !r->json && !r->quiet && !r->silent;
    if (t->job->model.info.task != CHOIR_LANGUAGE || t->job->model.info.masked ||
        !t->job->model.tokenizer || (!shown && !r->logs && !r->own) || t->part.env.rank != 0)
        return CHOIR_OK;
    bool apart_here =
        choir_module_collective(t->part.evaluated) || /* the forward needs all ranks */
        (t->part.env.world > 1 && !choir__job_strategy_is_whole(&t->job->placement));
    if (shown)
        printf("\nWhat it writes:\n");
    if (shown && apart_here)
        printf(
            "  no rank has the whole model here: choir generate tells, from what --save kept\n");
    return apart_here ? CHOIR_OK : write_sample(t, shown);
}

/* Validates on the whole split, unless the last step was followed by that already. Where the
 * evaluations of --eval-every are on fewer batches, the best is one of these. The last epoch of
 * --eval-epochs has a line like those before, beside its mean loss, and so has a validation on
 * which a job that continues from here depends; the last value of --eval-every is else in the
 * summary alone. */
static choir_status validate(choir__trainer *t, choir_score *score)
{
    bool alike = !t->job->training.eval_batches;
    bool line =
        t->now.eval_due && (t->job->training.eval_epochs || choir__eval_policy_decides(t->job));
    bool shown = t->now.scored == t->now.step || line;
    choir_status status = CHOIR_OK;
    if (t->now.eval_due && (line || !alike))
        status = choir__trainer_score(t, score);
    if (status == CHOIR_OK && line)
        choir__trainer_show_eval(t, score, true);
    *score = t->now.score;
    if (status == CHOIR_OK && !(shown && alike))
        status = choir__trainer_evaluate(t, 0, score);
    if (status != CHOIR_OK)
        return status;
    if (!shown && (alike || !t->job->training.eval_every))
        t->now.best_due |= choir__eval_policy_score(
            &t->now.judge, &t->job->training, score, t->now.metric, false);
    t->now.last_eval = score->loss;
    if (!shown)
        choir__trainer_show_eval(t, score, false);
    return CHOIR_OK;
}

/* Saves, and validates then: a validation that fails, or that a signal or the time ends, costs
 * nothing. */
static choir_status save_and_validate(choir__trainer *t, float loss, choir_score *score)
{
    t->now.last_eval_due = !t->job->training.no_eval && !t->now.time_over;
    choir_status status = choir__trainer_save_whole(t, loss);
    if (status != CHOIR_OK || !t->now.last_eval_due)
        return status;
    t->overtime_s =
        choir__max(choir__job_seconds(t->job->training.max_time) / 10, least_overtime_s);
    status = validate(t, score);
    if (status == CHOIR_ERR_INTERRUPTED && t->agreed && !t->by) { /* the time is over */
        if (t->part.env.rank == 0)
            choir__job_tell(t->job, "note: --max-time has ended the validation after step %lld",
                (long long)t->now.step);
        *score = (choir_score){.loss = (double)NAN, .accuracy = (double)NAN};
        return CHOIR_OK;
    }
    if (status == CHOIR_OK) {
        t->now.last_eval_due = t->now.eval_due = false;
        status = choir__trainer_note_judged(t);
    }
    return status == CHOIR_OK || t->by ? status : choir__trainer_save_unvalidated(t, status);
}

choir_status choir__trainer_finish(choir__trainer *t, float loss)
{
    choir_score score = {.loss = (double)NAN, .accuracy = (double)NAN};
    char sha[65] = "";
    int device_count;
    choir__device_figures *figures;
    if (t->job->placement.rehearsal)
        return choir__rehearsal_note(t->job->placement.rehearsal, &t->part);
    choir_status status = choir__job_rank_figures(&t->part, &figures, &device_count);
    if (status == CHOIR_OK)
        status = choir__trainer_end_trace(t, t->report.steps - t->traced_before);
    choir_run_forget(t->part.run); /* the step's memory is more than validation needs */
    if (status == CHOIR_OK)
        status = save_and_validate(t, loss, &score);
    if (status == CHOIR_ERR_INTERRUPTED) {
        free(figures);
        return choir__trainer_stop(t, loss);
    }
    bool swapped = status == CHOIR_OK; /* to the weights that the checkpoint has */
    if (swapped)
        status = choir_optim_swap(t->part.optim);
    if (status == CHOIR_OK && (choir__trainer_savers(t) || t->part.env.rank == 0))
        status = choir_weights_sha256(t->part.net, choir__trainer_savers(t), sha);
    choir__trainer_report_change(t);
    t->report.last = t->now.step;
    if (status == CHOIR_OK && t->part.scaler && isnan(t->report.scale)) /* there was no step */
        status = choir__trainer_note_scale(t);
    if (status == CHOIR_OK)
        choir__trainer_tell_program(t, &score, sha);
    if (status == CHOIR_OK && t->part.env.rank == 0)
        choir__trainer_show_end(t, loss, &score, sha, figures, device_count);
    free(figures);
    if (status == CHOIR_OK)
        status = sample(t);
    choir_status back = swapped ? choir_optim_swap(t->part.optim) : CHOIR_OK;
    return status == CHOIR_OK ? back : status;
}
