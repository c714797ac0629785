/* Folders of pictures as the command takes them: IDX files, or class folders of images. */
#ifndef CHOIR_CLI_IMAGES_H
#define CHOIR_CLI_IMAGES_H

#include "cli/job.h"

/* Both splits of job->data for its model. What is left open of info.input and info.classes is
 * filled in. Images get the size that the model names (image=64) or has, else the first
 * image's. */
choir_status choir__cli_open_pictures(choir__job *job);

/* The validation split for a model that is there: info says what it takes. */
choir_status choir__cli_open_validation(
    const char *folder, const choir__model_info *info, choir_dataset **dataset);

#endif
