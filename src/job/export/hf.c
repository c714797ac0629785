/* A whole model's folder as transformers reads and writes it: adapters are added to the
 * weights. Files beside them, which Choir may know nothing of, go through unchanged. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "checkpoint/state.h"
#include "checkpoint/folder.h"
#include "checkpoint/format/file.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/weights/convert.h"
#include "data/beside.h"
#include "data/images/transform.h"
#include "job/export/export.h"

/* Files of a published folder that are weights, or about the folder as it was. */
static const char *const left_out[] = {"*.safetensors", "*.index.json", "*.index.*.json",
    "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "README.md",
    ".*", CHOIR__ADAPTER_CONFIG};

static bool goes_through(const char *name)
{
    for (size_t i = 0; i < CHOIR_COUNT(left_out); i++)
        if (fnmatch(left_out[i], name, 0) == 0)
            return false;
    return true;
}

struct copying {
    const char *from, *to;
    choir_status status;
};

static void copy_one(const char *from, const char *name, void *arg)
{
    struct copying *c = arg;
    struct stat info;
    char *path = choir__format("%s/%s", from, name);
    if (c->status == CHOIR_OK && goes_through(name) && stat(path, &info) == 0 &&
        S_ISREG(info.st_mode))
        c->status = choir__folder_copy(from, c->to, name);
    free(path);
}

/* A job names files of this machine. */
static choir_status copy_kept(const char *name, void *arg)
{
    const struct copying *c = arg;
    if (!strcmp(name, CHOIR__JOB_FILE) || choir__folder_has(c->to, name))
        return CHOIR_OK;
    return choir__folder_copy(c->from, c->to, name);
}

static choir_status copy_template(const char *name, void *arg)
{
    return choir__beside_is_other(name) ? copy_kept(name, arg) : CHOIR_OK;
}

/* A checkpoint's folder also has the state of its training. In a published one, folders hold
 * other programs' weights, except the folder of chat templates. */
static choir_status copy_small(const choir__export *e, const char *folder)
{
    struct copying c = {e->from, folder, CHOIR_OK};
    if (e->trained)
        return choir__small_files(e->from, copy_kept, &c);
    choir__folder_walk(e->from, copy_one, &c);
    return c.status == CHOIR_OK ? choir__small_files(e->from, copy_template, &c) : c.status;
}

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
    choir_status status = copy_small(e, folder);
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
