/* Folders of pictures: which kind they are, and what size their samples get. */
#include "cli/images.h"

#include <dirent.h>
#include <string.h>

#include "tensor/tensor.h"

/* A folder without IDX files that has folders in it. */
static bool has_classes(const char *folder)
{
    DIR *dir = opendir(folder);
    bool idx = false, folders = false;
    if (!dir)
        return false;
    for (struct dirent *e; (e = readdir(dir));) {
        idx |= strstr(e->d_name, "-idx3-ubyte") != NULL;
        folders |= e->d_name[0] != '.' &&
                   (e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN);
    }
    closedir(dir);
    return folders && !idx;
}

static bool names_image(const char *model)
{
    const char *options = strchr(model, ':');
    return options && (strstr(options, ":image=") || strstr(options, ",image="));
}

static choir_status open_images(choir__job *j)
{
    choir__model_info own = {0};
    choir_image_opts opts = choir_image_defaults();
    choir_status status = j->spec->describe(j->model, &own);
    if (status != CHOIR_OK)
        return status;
    if (own.input.ndim == 3 && (own.input.dim[0] == 3 || names_image(j->model))) {
        opts.height = (int)own.input.dim[1];
        opts.width = (int)own.input.dim[2];
    }
    opts.seed = j->seed;
    status = choir_dataset_images(j->data, CHOIR_TRAIN, opts, &j->train);
    return status == CHOIR_OK
               ? choir_dataset_images(j->data, CHOIR_VALIDATION, opts, &j->validation)
               : status;
}

static choir_status open_idx(choir__job *j)
{
    choir_status status = choir_dataset_idx(j->data, CHOIR_TRAIN, &j->train);
    return status == CHOIR_OK ? choir_dataset_idx(j->data, CHOIR_VALIDATION, &j->validation)
                              : status;
}

choir_status choir__cli_open_pictures(choir__job *j)
{
    choir_status status = has_classes(j->data) ? open_images(j) : open_idx(j);
    if (status == CHOIR_OK) {
        j->info.input = j->train->x_shape;
        j->info.classes = choir__max(j->train->classes, j->validation->classes);
    }
    return status;
}

choir_status choir__cli_open_validation(
    const char *folder, const choir__model_info *info, choir_dataset **dataset)
{
    bool images = has_classes(folder);
    choir_image_opts opts = choir_image_defaults();
    if (info->input.ndim == 3) {
        opts.height = (int)info->input.dim[1];
        opts.width = (int)info->input.dim[2];
    }
    choir_status status = images ? choir_dataset_images(folder, CHOIR_VALIDATION, opts, dataset)
                                 : choir_dataset_idx(folder, CHOIR_VALIDATION, dataset);
    if (status != CHOIR_OK)
        return status;
    if (!choir__same_shape((*dataset)->x_shape, info->input))
        return choir__error(CHOIR_ERR_SHAPE, "the images of %s are %s, the model takes %s",
            folder, choir__shape_text((*dataset)->x_shape), choir__shape_text(info->input));
    if (images && (*dataset)->classes != info->classes)
        return choir__error(CHOIR_ERR_SHAPE, "%s has %lld classes, the model %lld", folder,
            (long long)(*dataset)->classes, (long long)info->classes);
    return CHOIR_OK;
}
