/* Functions for columns of the table of options that a constant cannot fill: whether a value
 * matters for the numbers, how documents write it, and whether a run's record keeps it to no
 * purpose. They depend on the rest of the job, such as the model that was described or the
 * class of bits that the ranks have settled. */
#include "job/columns.h"

#include <stdlib.h>
#include <string.h>

#include <choir/device.h>

#include "base/number.h"
#include "device/cpu/multiplier.h"
#include "job/bits.h"
#include "job/model/amp.h"
#include "job/model/lora.h"
#include "job/model/optimizers.h"
#include "job/model/text.h"
#include "job/trainer/eval_policy.h"

/* --- .matters: whether the job's numbers depend on an option --- */

bool choir__option_stretched(const void *job)
{
    return choir__job_is_stretched(job);
}

bool choir__option_judged(const void *job)
{
    return choir__eval_policy_decides(job);
}

/* --- .written: how documents write a value --- */

/* The file or folder as it is found from anywhere, or the model with all of its sizes. */
char *choir__option_model_text(const void *job, choir__line_form form)
{
    const choir__job_model *m = &((const choir__job *)job)->model;
    return form == CHOIR__COMPLETE && m->given ? choir__job_path(m->given)
                                               : choir__strdup(m->info.config);
}

char *choir__option_weights_text(const void *job, choir__line_form form)
{
    const char *path = ((const choir__job *)job)->model.weights;
    (void)form;
    return path ? choir__job_path(path) : NULL;
}

char *choir__option_adapter_text(const void *job, choir__line_form form)
{
    const char *path = ((const choir__job *)job)->model.adapter;
    (void)form;
    return path ? choir__job_path(path) : NULL;
}

char *choir__option_tokenizer_text(const void *job, choir__line_form form)
{
    const char *path = ((const choir__job *)job)->model.tokenizer_file;
    (void)form;
    return path && !choir__text_is_chars(path) ? choir__job_path(path) : NULL;
}

/* With the number of workers, which another number of ranks would leave as it is. */
char *choir__option_strategy_text(const void *job, choir__line_form form)
{
    (void)form;
    return choir__job_strategy_whole_text(job);
}

char *choir__option_amp_text(const void *job, choir__line_form form)
{
    const choir__amp_level *level = choir__amp_find(((const choir__job *)job)->optim.amp);
    return form == CHOIR__BRIEF ? NULL : choir__strdup(level->name);
}

/* The class that the ranks have settled, once they have. */
char *choir__option_bits_text(const void *job, choir__line_form form)
{
    const choir__job *j = job;
    const char *bits = j->optim.bits ? j->optim.bits : "auto";
    bool settled = !strcmp(bits, "auto") && choir__multiplier_is_taken() &&
                   !choir__job_has_gpus(&j->placement);
    (void)form;
    return choir__strdup(settled ? choir_cpu_bits() : bits);
}

/* Builds that did not record the class multiplied by oneDNN. */
const char *choir__option_bits_before(void)
{
    return choir__multiplier_is_here(CHOIR__BY_ONEDNN) ? "onednn" : NULL;
}

/* With every value, so that r=16 and r=16,alpha=32 are one. */
char *choir__option_lora_text(const void *job, choir__line_form form)
{
    const char *lora = ((const choir__job *)job)->optim.lora;
    choir__lora_words words;
    (void)form;
    return lora && choir__lora_read(lora, &words) == CHOIR_OK ? choir__lora_text(&words) : NULL;
}

char *choir__option_optimizer_text(const void *job, choir__line_form form)
{
    float decay;
    return form == CHOIR__BRIEF ? NULL : choir__job_optimizer_text(job, &decay);
}

/* The optimizer's own weight decay, unless specified. */
char *choir__option_weight_decay_text(const void *job, choir__line_form form)
{
    float decay = 0;
    char number[CHOIR__NUMBER_TEXT];
    char *optimizer = form == CHOIR__BRIEF ? NULL : choir__job_optimizer_text(job, &decay);
    bool known = optimizer != NULL;
    free(optimizer);
    choir__single_text(decay, number);
    return known ? choir__strdup(number) : NULL;
}

char *choir__option_schedule_text(const void *job, choir__line_form form)
{
    return form == CHOIR__BRIEF ? NULL : choir__job_schedule_text(job);
}

char *choir__option_best_text(const void *job, choir__line_form form)
{
    const char *best = ((const choir__job *)job)->training.best;
    return form == CHOIR__COMPARED ? choir__eval_policy_measure(best) : NULL;
}

/* --- .idle: what a run's record has to no purpose --- */

/* The launcher has started the ranks. */
bool choir__option_launched(const void *job)
{
    return ((const choir__job *)job)->ranks.launched;
}

bool choir__option_saves_nothing(const void *job)
{
    return !((const choir__job *)job)->saves.dir;
}

bool choir__option_no_histograms(const void *job)
{
    return !choir__job_has_histograms(&((const choir__job *)job)->records);
}

/* --- .no_effect --- */

/* A resumed job has said so already. */
const char *choir__option_unsaved(const void *job)
{
    const choir__job_saves *s = &((const choir__job *)job)->saves;
    return s->dir || s->resume ? NULL : "nothing is saved without --save";
}

const char *choir__option_no_grace(const void *job)
{
    const choir__job *j = job;
    return j->placement.nproc > 1 ? NULL : choir__option_unsaved(job);
}

const char *choir__option_unvalidated(const void *job)
{
    const choir__job_training *t = &((const choir__job *)job)->training;
    const bool never = t->no_eval && !t->eval_every && !t->eval_epochs;
    return never ? "nothing is validated with --no-eval" : NULL;
}

const char *choir__option_alone(const void *job)
{
    const choir__job *j = job;
    const bool alone = !j->ranks.launched && j->placement.nproc == 1;
    return alone ? "one process meets no others" : NULL;
}
