/* Saving, by all ranks together, within the step or asynchronously.
 *
 *     all      exchange lists of their boxes, and plan (save.h); async: copy their parts
 *     rank 0   locks DIR, cleans up, creates DIR/.new-MARK
 *     all      write their files
 *     rank 0   writes the index and the manifest, gives the folder its name
 *
 * After each line the ranks agree on success. If the save is asynchronous, a thread does
 * everything after the first line: it reads no tensor, only the copy, and communicates with the
 * other ranks' threads over a group of its own. It has the lowest priority, so that a core that
 * trains continues to train. */
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/temp_file.h"
#include "checkpoint/agree.h"
#include "checkpoint/writer.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/weights/beside_files.h"
#include "checkpoint/save.h"
#include "checkpoint/state.h"
#include "comm/group.h"
#include "comm/flight/flight.h"
#include "data/tokenizer/tokenizer.h"
#include "tensor/strategy.h"
#include "tensor/tensor.h"

/* --- rank 0: the folder and small files --- */

static choir_status save_tokenizer(const char *folder, const choir_tokenizer *tokenizer)
{
    char *text, *path = choir__format("%s/%s", folder,
                    tokenizer->published ? CHOIR__TOKENIZER_FILE : CHOIR__OWN_TOKENIZER_FILE);
    size_t bytes;
    choir_status status = choir__tokenizer_text(tokenizer, path, &text, &bytes);
    if (status == CHOIR_OK)
        status = choir__write_file(path, text, bytes);
    free(text);
    free(path);
    return status;
}

/* Writes the text with which the saving program can continue its job. */
static choir_status save_job(const char *folder, const char *job)
{
    char *path = choir__format("%s/%s", folder, CHOIR__JOB_FILE);
    choir_status status = choir__write_file(path, job, strlen(job));
    free(path);
    return status;
}

static choir_status make_fresh(choir__saver *s)
{
    if (s->rank != 0)
        return CHOIR_OK;
    choir_status status = choir__folder_lock(s->dir, &s->lock);
    if (status != CHOIR_OK)
        return status;
    choir__folder_clean(s->dir);
    s->mark = (int64_t)choir__temp_file_mark();
    s->fresh = choir__format("%s/.new-%llx", s->dir, (unsigned long long)s->mark);
    return mkdir(s->fresh, 0777) == 0
               ? CHOIR_OK
               : choir__error(
                     CHOIR_ERR_IO, "cannot make the folder %s: %s", s->fresh, strerror(errno));
}

/* Sets each rank's path of the folder that rank 0 has created. */
static choir_status find_fresh(choir__saver *s)
{
    if (s->world == 1)
        return CHOIR_OK;
    choir_status status = choir_group_broadcast(s->group, &s->mark, 1, CHOIR_I64, 0, NULL);
    if (status == CHOIR_OK && s->rank != 0) {
        s->fresh = choir__format("%s/.new-%llx", s->dir, (unsigned long long)s->mark);
        if (!choir__is_folder(s->fresh))
            status = choir__error(CHOIR_ERR_IO,
                "rank %d does not see %s, which rank 0 has made: all ranks must save to one file "
                "system",
                s->rank, s->fresh);
    }
    return choir__agree(s->group, status);
}

static choir_status publish(choir__saver *s)
{
    char *step = choir__format("step-%08lld", (long long)s->state.step);
    const choir__beside_parts kept = {s->state.model, s->beside, s->tokenizer, s->classes};
    json_t *files = json_object();
    for (int f = 0; f < s->plan.file_count; f++)
        choir__state_add_file(files, s->plan.files[f].name, &s->digests[f]);
    choir_status status = choir__save_indices(s);
    if (status == CHOIR_OK && s->tokenizer)
        status = save_tokenizer(s->fresh, s->tokenizer);
    if (status == CHOIR_OK)
        status = choir__beside_save(&kept, s->fresh);
    if (status == CHOIR_OK && s->job)
        status = save_job(s->fresh, s->job);
    if (status == CHOIR_OK)
        status = choir__state_write(s->fresh, &s->state, files);
    if (status == CHOIR_OK)
        status = choir__save_prove_state(s);
    if (status == CHOIR_OK)
        status = choir__sync_path(s->fresh);
    if (status == CHOIR_OK)
        status = choir__folder_install(s->dir, s->fresh, step, s->best, s->keep);
    json_decref(files);
    free(step);
    return status;
}

/* Cleans up on rank 0 at the end of a save, failed or not. */
static void clear_up(choir__saver *s, choir_status status)
{
    if (status != CHOIR_OK && choir__folder_has(s->dir, "latest")) {
        char *message =
            choir__format("%s; the checkpoint before is untouched", choir__message());
        choir__set_message(message);
        free(message);
    }
    if (s->fresh)
        choir__folder_clean(s->dir);
    if (s->lock >= 0)
        close(s->lock);
    s->lock = -1;
}

/* --- all ranks --- */

static choir_status share_digests(choir__saver *s)
{
    if (s->world == 1)
        return CHOIR_OK;
    return choir_group_all_reduce(s->group, s->digests,
        s->plan.file_count * (int64_t)sizeof *s->digests, CHOIR_U8, CHOIR_BOR, NULL);
}

/* Executes the plan: afterwards the checkpoint exists. */
static choir_status run(choir__saver *s)
{
    choir_status status = choir__agree(s->group, make_fresh(s));
    if (status == CHOIR_OK)
        status = find_fresh(s);
    if (status == CHOIR_OK)
        status = choir__agree(s->group, choir__save_files(s));
    if (status == CHOIR_OK)
        status = share_digests(s);
    if (status == CHOIR_OK && s->rank == 0)
        status = publish(s);
    if (s->rank == 0)
        clear_up(s, status);
    return choir__agree(s->group, status);
}

static void *run_aside(void *arg)
{
    choir__saver *s = arg;
    choir__background_thread_yield();
    s->status = run(s);
    if (s->status != CHOIR_OK)
        snprintf(s->message, sizeof s->message, "%s", choir__message());
    atomic_store(&s->done, true);
    return NULL;
}

static bool start_aside(choir__saver *s)
{
    atomic_store(&s->done, false);
    return s->running = choir__background_thread_start(&s->thread, run_aside, s);
}

/* --- one save after another --- */

static void forget(choir__saver *s)
{
    choir__items_free(&s->items);
    choir__save_plan_free(&s->plan);
    free(s->digests);
    free(s->dir);
    free(s->fresh);
    free(s->job);
    s->digests = NULL;
    s->dir = s->fresh = s->job = NULL;
    s->copied = false;
}

choir_status choir__saver_new(choir_group *group, choir__saver **saver)
{
    choir__saver *s = choir__calloc(1, sizeof *s);
    choir_status status = CHOIR_OK;
    s->rank = choir__rank_of(group);
    s->world = choir__world_of(group);
    s->lock = -1;
    if (s->world > 1)
        status = choir_group_split(group, 0, s->rank, &s->group);
    if (status == CHOIR_OK && s->group)
        choir__flight_log_aside(s->group->log);
    if (status == CHOIR_OK)
        *saver = s;
    else
        free(s);
    return status;
}

static void note_saved(choir__saver *s, choir_status status)
{
    if (status == CHOIR_OK)
        s->saved = s->state.step;
    s->news |= status == CHOIR_OK;
}

choir_status choir__saver_wait(choir__saver *s)
{
    if (!s->running)
        return CHOIR_OK;
    pthread_join(s->thread, NULL);
    s->running = false;
    note_saved(s, s->status);
    forget(s);
    if (s->status != CHOIR_OK) {
        char *message = choir__format("the checkpoint of step %lld was not saved: %s",
            (long long)s->state.step, s->message);
        choir__set_message(message);
        free(message);
    }
    return s->status;
}

bool choir__saver_saved(choir__saver *s, int64_t *step)
{
    if (s->running && atomic_load(&s->done) && s->status == CHOIR_OK)
        choir__saver_wait(s);
    bool news = s->news;
    s->news = false;
    *step = s->saved;
    return news;
}

static choir_status make_plan(choir__saver *s, const choir__save_args *args)
{
    choir_status status = choir__items_collect(&s->items, args->module, args->optim);
    status = choir__agree(s->group, status);
    return status == CHOIR_OK
               ? choir__save_plan_make(&s->plan, &s->items, s->group, args->least)
               : status;
}

choir_status choir__saver_prepare(choir__saver *s, const choir__save_args *args)
{
    choir_status status = choir__saver_wait(s);
    if (status != CHOIR_OK || !args->async)
        return status;
    status = make_plan(s, args);
    if (status == CHOIR_OK)
        choir__save_touch_copy(s);
    forget(s);
    return status;
}

static void look_at_nothing(
    const char *name, choir_tensor *t, const choir__param *param, void *to)
{
    (void)name, (void)t, (void)param, (void)to;
}

static choir_status prepare(choir__saver *s, const choir__save_args *args)
{
    s->dir = choir__strdup(args->dir);
    s->state = *args->state;
    s->workers = args->optim && choir__strategies_visit_optim(
                                    args->module->run, args->optim, look_at_nothing, NULL);
    s->tokenizer = args->tokenizer;
    s->classes = args->classes;
    s->beside = args->beside;
    s->job = args->job ? choir__strdup(args->job) : NULL;
    s->best = args->best;
    s->keep = args->keep;
    choir_status status = make_plan(s, args);
    s->digests = choir__calloc((size_t)s->plan.file_count + 1, sizeof *s->digests);
    if (status == CHOIR_OK)
        status = choir__save_note_state(s);
    if (status == CHOIR_OK)
        choir__save_note_proofs(s);
    if (status == CHOIR_OK && args->async)
        status = choir__save_copy(s);
    return args->async ? choir__agree(s->group, status) : status;
}

choir_status choir__saver_save(choir__saver *s, const choir__save_args *args)
{
    choir_status status = choir__saver_wait(s);
    if (status == CHOIR_OK && args->state->step < 0)
        status = choir__error(
            CHOIR_ERR_ARGUMENT, "checkpoint: step %lld", (long long)args->state->step);
    if (status != CHOIR_OK)
        return status;
    status = prepare(s, args);
    if (status == CHOIR_OK && s->copied && start_aside(s))
        return CHOIR_OK;
    if (status == CHOIR_OK)
        status = run(s);
    note_saved(s, status);
    forget(s);
    return status;
}

void choir__saver_free(choir__saver *s)
{
    if (!s)
        return;
    choir__saver_wait(s);
    choir_group_free(s->group);
    choir__save_free_copy(s);
    free(s->proofs);
    free(s);
}

/* --- an evaluation after the save ---
 *
 * An evaluation's outcome is added to the checkpoint that was saved before it: the
 * numbers that follow from it, and the mark of the best. Tensors stay as they are. */

static void take_evaluation(choir_train_state *s, const choir_train_state *from)
{
    s->eval_loss = from->eval_loss;
    s->eval_due = from->eval_due;
    s->best_loss = from->best_loss;
    s->best = from->best;
    s->best_regular = from->best_regular;
    s->stale = from->stale;
    s->base_lr = from->base_lr;
    s->plateau_best = from->plateau_best;
    s->plateau_bad = from->plateau_bad;
    s->plateau_cooling = from->plateau_cooling;
}

static choir_status amend(const char *folder, const choir_train_state *state)
{
    choir_train_state s;
    json_t *files = NULL;
    choir_status status = choir__state_read(folder, &s, &files);
    if (status != CHOIR_OK)
        return status;
    take_evaluation(&s, state);
    status = choir__state_write(folder, &s, files);
    json_decref(files);
    return status;
}

choir_status choir__checkpoint_amend(
    const char *dir, const choir_train_state *state, bool best, int64_t keep)
{
    int lock;
    char *step = choir__format("step-%08lld", (long long)state->step);
    char *folder = choir__format("%s/%s", dir, step);
    choir_status status = choir__folder_lock(dir, &lock);
    if (status == CHOIR_OK && best) /* first: the state says that the evaluation is done */
        status = choir__folder_mark_best(dir, step, keep);
    if (status == CHOIR_OK)
        status = amend(folder, state);
    if (lock >= 0)
        close(lock);
    free(folder);
    free(step);
    return status;
}
