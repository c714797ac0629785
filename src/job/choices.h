/* Names that options accept, from the registries that define them: see choir__line_choices. */
#ifndef CHOIR_JOB_CHOICES_H
#define CHOIR_JOB_CHOICES_H

#include "line/command.h"

choir__line_choices choir__job_model_names, choir__job_strategy_names,
    choir__job_strategy_names_and_auto, choir__job_backend_names, choir__job_dtype_names,
    choir__job_weight_dtype_names, choir__job_init_names, choir__job_amp_level_names,
    choir__job_optimizer_names, choir__job_augment_names, choir__job_schedule_names;

#endif
