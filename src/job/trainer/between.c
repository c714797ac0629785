/* The work between two steps: a save, then a validation, then the mark of the best. */
#include "job/trainer/inside.h"

choir_status choir__trainer_between_steps(choir__trainer *t)
{
    const choir__job *j = t->job;
    choir__progress *now = &t->now;
    now->eval_due |=
        choir__trainer_is_due(now->step, j->training.eval_every) && now->scored != now->step;
    now->save_due |=
        choir__trainer_is_due(now->step, j->saves.every) && now->saved != now->step;
    if (choir__trainer_is_done(t) || choir__trainer_apart(t) ||
        !(now->eval_due || now->save_due || now->best_due))
        return CHOIR_OK;
    choir_status status = choir__trainer_meet(t);
    if (status != CHOIR_OK || t->stopping)
        return status;
    if (now->save_due)
        status = choir__trainer_save_now_and_then(t, 0);
    now->save_due = now->save_due && status != CHOIR_OK;
    if (status == CHOIR_OK && now->eval_due)
        status = choir__trainer_validate(t);
    /* The save at a job's end is the best one's, too. */
    if (status == CHOIR_OK && now->best_due && !now->ended) {
        status = choir__trainer_save_now_and_then(t, CHOIR_SAVE_BEST);
        if (status == CHOIR_OK)
            status = choir__trainer_keep_best(t);
        now->best_due = status != CHOIR_OK;
    }
    return status;
}
