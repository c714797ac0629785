/* Data for a model, and the model for the data: each says what the other leaves open. */
#include <string.h>

#include <choir/models.h>

#include "base/base.h"
#include "data/dataset.h"
#include "data/open/reader.h"

static bool names_image(const char *model)
{
    const char *options = strchr(model, ':');
    return options && (strstr(options, ":image=") || strstr(options, ",image="));
}

/* Classifiers of images take images of any size, unless the model has one of its own, as those
 * for photographs do, or names one. */
static bool takes_any_size(const char *model, const choir_model_info *info)
{
    return info->task == CHOIR_CLASSIFICATION && !info->vocab && !info->random &&
           !(info->input.ndim == 3 && (info->input.dim[0] == 3 || names_image(model)));
}

static choir_status open_both(
    const char *path, choir_data_opts opts, const choir_model_info *wanted, choir_data *data)
{
    choir_status status =
        choir_dataset_open(path, CHOIR_TRAIN, opts, wanted, &data->tokenizer, &data->train);
    if (status == CHOIR_OK)
        status = choir_dataset_open(
            path, CHOIR_VALIDATION, opts, wanted, &data->tokenizer, &data->validation);
    return status;
}

/* Samples of another folder are read with the brightness of these: a prediction follows from
 * the image and the model alone. */
static void note_brightness(const choir_data *data, choir_model_info *info)
{
    choir__idx_brightness(data->validation, &info->pixel_mean, &info->pixel_deviation);
}

/* Fills in the model's description from the data. */
static void learn(const choir_data *data, choir_model_info *info)
{
    if (info->task == CHOIR_CLASSIFICATION && info->vocab) { /* the model names its classes */
        *info = (choir_model_info){.vocab = choir_tokenizer_size(data->tokenizer)};
        return;
    }
    info->classes = choir__max(data->train->classes, data->validation->classes);
    info->padded |= choir_dataset_ignores(data->train);
    if (info->task == CHOIR_CLASSIFICATION)
        *info = (choir_model_info){.input = data->train->x_shape, .classes = info->classes};
    if (info->task == CHOIR_IMAGE_TO_TEXT) {
        info->classes = choir_tokenizer_size(data->tokenizer);
        info->pad = choir_tokenizer_id(data->tokenizer, "<pad>");
        info->start = choir_tokenizer_id(data->tokenizer, "<s>");
    }
}

choir_status choir_model_data(const char *model, const char *path, choir_data_opts opts,
    choir_model_info *info, choir_data *data)
{
    if (!model)
        return choir__missing(__func__, "model");
    if (!info)
        return choir__missing(__func__, "model info");
    if (!data)
        return choir__missing(__func__, "data");
    *info = (choir_model_info){.random = path && choir__data_is_random(path)};
    *data = (choir_data){.tokenizer = opts.tokenizer};
    choir_status status = choir_model_describe(model, info);
    choir_model_info wanted = *info;
    if (!info->random)
        wanted.classes = 0;
    if (takes_any_size(model, info))
        wanted.input = (choir_shape){0};
    if (status == CHOIR_OK)
        status = open_both(path, opts, &wanted, data);
    if (status == CHOIR_OK && !info->random)
        learn(data, info);
    if (status == CHOIR_OK)
        status = choir_model_describe(model, info);
    if (status == CHOIR_OK)
        note_brightness(data, info);
    if (status == CHOIR_OK && info->task == CHOIR_CLASSIFICATION && info->vocab)
        status = choir_dataset_fits(data->train, path, info);
    if (status != CHOIR_OK)
        choir_data_free(data);
    return status;
}
