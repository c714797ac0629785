/* Names that options accept, from the registries that define them: see choir__cli_choices. */
#ifndef CHOIR_JOB_CHOICES_H
#define CHOIR_JOB_CHOICES_H

#include "line/command.h"

choir__cli_choices choir__cli_model_names, choir__cli_strategy_names,
    choir__cli_job_strategy_names, choir__cli_backend_names, choir__cli_dtype_names,
    choir__cli_weight_dtype_names, choir__cli_init_names, choir__cli_amp_level_names,
    choir__cli_optimizer_names, choir__cli_augment_names, choir__cli_schedule_names;

#endif
