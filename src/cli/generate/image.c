/* The description of an image by a document model, token by token. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "cli/generate/writer.h"

/* Computes the image's states (1, S, E), which the run keeps. */
static choir_status see(const choir__saved *s, const float *pixels, choir_tensor **states)
{
    const choir_model_info *i = &s->info;
    choir_scope *step = choir_no_grad(s->run);
    choir_tensor *x =
        choir_from(step, CHOIR_F32, choir_dims(1, i->input.dim[1], i->input.dim[2], 3), pixels);
    x = choir_donut_encode(s->net, choir_permute(x, choir_dims(0, 3, 1, 2)));
    *states = choir_keep(s->run, x);
    return choir_scope_close(step);
}

static choir_status next_token(
    const choir__saved *s, choir_tensor *states, const int64_t *ids, int64_t t, int64_t *next)
{
    choir_scope *step = choir_no_grad(s->run);
    choir_tensor *known = choir_from(step, CHOIR_I64, choir_dims(1, t), ids);
    choir_tensor *out =
        choir_donut_decode(s->net, known, choir_in(step, states)); /* (1, T, V) */
    choir_tensor *last = choir_argmax(choir_narrow(out, 1, t - 1, 1));
    choir_status status = choir_read(last, next, sizeof *next);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

static choir_status tell(const choir__saved *s, choir_tensor *states, int64_t most)
{
    int64_t context = s->info.output.dim[0], end = choir_tokenizer_id(s->tokenizer, "</s>");
    int64_t *ids = choir__alloc((size_t)(context + 1) * sizeof *ids);
    choir_status status = CHOIR_OK;
    ids[0] = s->info.start;
    const int64_t count = most ? choir__min(most, context) : context;
    for (int64_t t = 1; t <= count && status == CHOIR_OK; t++) {
        status = next_token(s, states, ids, t, &ids[t]);
        if (status != CHOIR_OK || ids[t] == end)
            break;
        size_t bytes;
        const char *text = choir_tokenizer_token(s->tokenizer, ids[t], &bytes);
        fwrite(text ? text : "?", 1, text ? bytes : 1, stdout);
        fflush(stdout); /* a large model takes seconds for each */
    }
    printf("\n");
    free(ids);
    return status;
}

/* Prints the description of an image. Each token is the most likely one. */
choir_status choir__describe_image(const choir__saved *s, const char *image, int64_t most)
{
    choir_document_opts opts = choir_document_defaults();
    opts.image.height = (int)s->info.input.dim[1];
    opts.image.width = (int)s->info.input.dim[2];
    float *pixels = choir__alloc(
        (size_t)(3 * s->info.input.dim[1] * s->info.input.dim[2]) * sizeof *pixels);
    choir_tensor *states = NULL;
    choir_status status = choir_document_image(image, &opts.image, pixels);
    choir_module_train(s->net, false);
    if (status == CHOIR_OK)
        status = see(s, pixels, &states);
    if (status == CHOIR_OK)
        status = tell(s, states, most);
    free(pixels);
    return status;
}
