/* An evaluation's outcome is added to the checkpoint that was saved before it: the
 * numbers that follow from it, and the mark of the best. Tensors stay as they are. */
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/state.h"

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
    if (status == CHOIR_OK)
        status = amend(folder, state);
    if (status == CHOIR_OK && best)
        status = choir__folder_mark_best(dir, step, keep);
    if (lock >= 0)
        close(lock);
    free(folder);
    free(step);
    return status;
}
