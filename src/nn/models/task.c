/* The treatment of a micro-batch by task: the inputs of a model's forward, and its loss. */
#include "nn/models/spec.h"
#include "nn/module.h"
#include "tensor/handle.h"

bool choir_task_has_classes(choir_task task)
{
    return task == CHOIR_CLASSIFICATION || task == CHOIR_MULTI_LABEL;
}

bool choir_task_has_ids(choir_task task)
{
    return task != CHOIR_REGRESSION && task != CHOIR_MULTI_LABEL;
}

/* Returns the decoder's input, so that each token is predicted from those before it: start,
 * then the target (B, T) without its last token. */
static choir_tensor *moved_on(choir_tensor *target, int64_t start)
{
    int64_t b = choir_tensor_size(target, 0), t = choir_tensor_size(target, 1);
    choir_tensor *parts[2] = {
        choir_full(choir_tensor_scope(target), CHOIR_I64, choir_dims(b, 1), (double)start),
        choir_narrow(target, 1, 0, t - 1)};
    return choir_cat(parts, 2, 1);
}

/* Returns row r of the samples x (B, rows, T): (B, T). */
static choir_tensor *row_of(choir_tensor *x, int64_t r)
{
    return choir_reshape(
        choir_narrow(x, 1, r, 1), choir_dims(choir_tensor_size(x, 0), choir_tensor_size(x, 2)));
}

int choir_model_inputs(const choir_model_info *info, choir_tensor *x, choir_tensor *y,
    choir_tensor *in[CHOIR_MODEL_INPUTS])
{
    if (choir__lacks(info, __func__, "model info"))
        return 0;
    if (choir__use_tensor(x, __func__) != CHOIR_OK)
        return 0;
    if (choir__lacks(in, __func__, "in"))
        return 0;
    in[0] = x;
    if ((info->vocab || info->packs) && choir_tensor_shape(x).ndim == 3) {
        for (int r = 0; r < CHOIR_MODEL_INPUTS; r++)
            in[r] = row_of(x, r);
        return CHOIR_MODEL_INPUTS;
    }
    if (info->task != CHOIR_IMAGE_TO_TEXT)
        return 1;
    in[1] = moved_on(choir__sound(y, __func__), info->start);
    return 2;
}

choir_tensor *choir_model_forward(
    const choir_model_info *info, choir_module *module, choir_tensor *x, choir_tensor *y)
{
    module = choir__module_for(NULL, module, __func__);
    x = choir__sound(x, __func__);
    y = y ? choir__sound(y, __func__) : NULL; /* not every task has it */
    if (!info)
        return choir__poison_missing(x->scope, __func__, "model info");
    choir_tensor *in[CHOIR_MODEL_INPUTS];
    return choir_forward_n(module, in, choir_model_inputs(info, x, y, in));
}

static choir_cross_entropy_opts options_of(const choir_model_info *info)
{
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    if (info->task == CHOIR_IMAGE_TO_TEXT)
        opts.ignore_index = info->pad;
    return opts;
}

choir_tensor *choir_model_loss(const choir_model_info *info, choir_tensor *out, choir_tensor *y)
{
    out = choir__sound(out, __func__);
    y = choir__sound(y, __func__);
    if (!info)
        return choir__poison_missing(out->scope, __func__, "model info");
    switch (info->task) {
    case CHOIR_REGRESSION: return choir_mse_loss(out, y);
    case CHOIR_MULTI_LABEL: return choir_bce_with_logits_loss(out, y, NULL, CHOIR_LOSS_MEAN);
    default: return choir_cross_entropy_with(out, y, options_of(info));
    }
}

bool choir_model_ignores(const choir_model_info *info)
{
    if (choir__lacks(info, __func__, "model info"))
        return false;
    return info->task == CHOIR_IMAGE_TO_TEXT ||
           (choir_task_has_ids(info->task) && (info->masked || info->padded));
}

choir_tensor *choir_model_divisor(
    const choir_model_info *info, choir_tensor *const *y, int count)
{
    if (choir__lacks(info, __func__, "model info") || choir__lacks(y, __func__, "y"))
        return NULL;
    return choir_model_ignores(info) ? choir_loss_divisor(y, count, options_of(info)) : NULL;
}

choir_tensor *choir_model_divisor_counted(
    const choir_model_info *info, choir_tensor *const *y, int count, choir_tensor **counted)
{
    if (counted)
        *counted = NULL;
    if (choir__lacks(info, __func__, "model info") || choir__lacks(y, __func__, "y"))
        return NULL;
    return choir_model_ignores(info)
               ? choir_loss_divisor_counted(y, count, options_of(info), counted)
               : NULL;
}

choir_tensor *choir_model_loss_over(
    const choir_model_info *info, choir_tensor *out, choir_tensor *y, choir_tensor *divisor)
{
    out = choir__sound(out, __func__);
    y = choir__sound(y, __func__);
    if (!info)
        return choir__poison_missing(out->scope, __func__, "model info");
    choir_cross_entropy_opts opts = options_of(info);
    if (!divisor)
        return choir_model_loss(info, out, y);
    opts.reduction = CHOIR_LOSS_SUM;
    return choir_div(choir_cross_entropy_with(out, y, opts), divisor);
}
