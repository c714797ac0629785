/* A whole model's folder as transformers reads and writes it: adapters are added to the
 * weights. Files beside them, which Choir may know nothing of, go through unchanged. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/weights/convert.h"
#include "data/beside.h"
#include "data/images/transform.h"
#include "job/export/export.h"

/* Says how a classifier's images were prepared where no file of a published folder does. */
static choir_status write_images(const choir__export *e, const char *folder)
{
    const choir_model_info *info = &e->model.info;
    const choir_shape *sample = &info->input;
    choir_image_opts images = e->model.images;
    const int64_t side = sample->ndim == 3 ? choir__min(sample->dim[1], sample->dim[2]) : 0;
    if (!e->trained || info->task != CHOIR_CLASSIFICATION || info->vocab || !side ||
        !e->model.data || !strcmp(e->model.data, "random") ||
        choir__folder_has(folder, CHOIR__BESIDE_IMAGES))
        return CHOIR_OK;
    if (info->pixel_deviation > 0) /* IDX files are not resized */
        for (int c = 0; c < 3; c++) {
            images.mean[c] = (float)info->pixel_mean;
            images.std[c] = (float)info->pixel_deviation;
        }
    int64_t resize = info->pixel_resize;
    if (!resize) /* unknown of old checkpoints: as of photographs */
        resize = info->pixel_deviation > 0 ? side : (side * 256 + 112) / 224;
    char *path = choir__format("%s/" CHOIR__BESIDE_IMAGES, folder),
         *text = choir__image_processor(&images, *sample, resize);
    choir_status status = choir__write_file(path, text, strlen(text));
    free(text);
    free(path);
    return status;
}

static choir_status write_whole(const choir__export *e, const char *folder)
{
    if (!choir__folder_has(e->from, "config.json"))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s has no config.json: the model %s has no form that transformers reads", e->from,
            e->model.info.config);
    char *path = choir__format("%s/model.safetensors", folder);
    choir_status status = choir__small_files_copy(e->from, folder, true);
    if (status == CHOIR_OK)
        status = write_images(e, folder);
    if (status == CHOIR_OK)
        status = choir__config_state_dtype(folder, e->dtype);
    if (status == CHOIR_OK)
        status = choir__merged_write(e->model.net, e->dtype, path);
    free(path);
    return status;
}

const choir__export_format choir__export_hf = {.name = "hf",
    .help = "the whole model as transformers loads it, adapters added to its weights",
    .library = "transformers",
    .write = write_whole};
