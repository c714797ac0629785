/* Donut (Kim et al., 2022): a Swin encoder reads a document's image, and a BART decoder writes
 * its contents as tokens. Parameter names follow transformers' VisionEncoderDecoderModel.
 *
 * Training predicts each token from the image and the previous tokens: the decoder's input is
 * the target shifted by one, after a start token. Padding has its own token, which the loss
 * ignores. */
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "nn/models/donut.h"
#include "nn/models/spec.h"
#include "nn/module.h"

enum { PAD = 1, START = 0 /* XLM-RoBERTa's, unless the data's tokenizer has others */ };

typedef struct donut {
    choir_module base;
    choir_module *encoder, *decoder;
    choir_module *enc_to_dec_proj; /* NULL: both have the same width */
} donut;

static choir_tensor *encode(donut *d, choir_tensor *image) /* -> (B, S, C) */
{
    choir_tensor *states = choir_forward(d->encoder, image); /* (B, S, E) */
    return d->enc_to_dec_proj ? choir_forward(d->enc_to_dec_proj, states) : states;
}

static choir_tensor *donut_forward(choir_module *self, choir_tensor *const *in, int count)
{
    donut *d = (donut *)self;
    if (count != 2)
        return choir__poison(self->run, CHOIR_ERR_ARGUMENT,
            "donut: expected an image and the tokens given so far, got %d inputs", count);
    return choir_forward(d->decoder, in[1], encode(d, in[0]));
}

static const choir_module_class donut_class = {"donut", sizeof(donut), donut_forward, 2};

static choir_tensor *no_donut(const choir_module *self, const choir_tensor *in)
{
    return choir__poison(choir_tensor_scope(in), CHOIR_ERR_ARGUMENT,
        "expected a donut model, got a module '%s'", self->type->name);
}

choir_tensor *choir_donut_encode(choir_module *self, choir_tensor *image)
{
    self = choir__module_for(NULL, self, __func__);
    return self->type == &donut_class ? encode((donut *)self, image) : no_donut(self, image);
}

choir_tensor *choir_donut_decode(choir_module *self, choir_tensor *ids, choir_tensor *states)
{
    self = choir__module_for(NULL, self, __func__);
    return self->type == &donut_class ? choir_forward(((donut *)self)->decoder, ids, states)
                                      : no_donut(self, ids);
}

struct sizes {
    choir__swin_sizes encoder;
    choir__mbart_sizes decoder;
    int64_t pad, start;
};

/* Parses "2-2-14-2", one number per stage. */
static bool parse_stages(const char *text, int64_t values[CHOIR__SWIN_STAGES], int *stages)
{
    char word[64];
    for (*stages = 0; *text && *stages < CHOIR__SWIN_STAGES; ++*stages) {
        size_t length = strcspn(text, "-");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (!choir__parse_int(word, 1, 4096, &values[*stages]))
            return false;
        text += length + (text[length] == '-');
    }
    return *stages > 0 && !*text;
}

static choir_status check(const struct sizes *s)
{
    const choir__swin_sizes *e = &s->encoder;
    const int64_t side = choir__swin_side(e);
    if (e->height % side || e->width % side)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model donut: expected height and image_width that %lld divides (patch=%lld x "
            "window=%lld, times 2 for each stage after the first), got %lld and %lld",
            (long long)side, (long long)e->patch, (long long)e->window, (long long)e->height,
            (long long)e->width);
    const char *wrong = choir__swin_wrong(e);
    if (wrong)
        return choir__error(CHOIR_ERR_ARGUMENT, "model donut: %s", wrong);
    if (s->decoder.width % s->decoder.heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model donut: decoder_heads=%lld does not divide width=%lld",
            (long long)s->decoder.heads, (long long)s->decoder.width);
    return CHOIR_OK;
}

static choir_status parse(const char *text, struct sizes *s)
{
    char depths[64] = "2-2-14-2", heads[64] = "4-8-16-32";
    int stages;
    *s = (struct sizes){{2560, 1920, 3, 4, 10, 128, 0, {0}, {0}, -1, 1e-5},
        {4, 16, 1024, 4096, 768, 0, 0, 0}, PAD, START};
    choir__option known[] = {{"height", CHOIR__INT, &s->encoder.height, 1, 1 << 16},
        {"image_width", CHOIR__INT, &s->encoder.width, 1, 1 << 16},
        {"patch", CHOIR__INT, &s->encoder.patch, 1, 64},
        {"window", CHOIR__INT, &s->encoder.window, 1, 64},
        {"embed", CHOIR__INT, &s->encoder.embed, 1, 4096},
        {"depths", CHOIR__WORD, depths, 0, 0}, {"heads", CHOIR__WORD, heads, 0, 0},
        {"layers", CHOIR__INT, &s->decoder.layers, 1, CHOIR__MBART_LAYERS},
        {"decoder_heads", CHOIR__INT, &s->decoder.heads, 1, 1024},
        {"width", CHOIR__INT, &s->decoder.width, 1, 1 << 16},
        {"hidden", CHOIR__INT, &s->decoder.hidden, 1, 1 << 18},
        {"context", CHOIR__INT, &s->decoder.context, 2, 1 << 20},
        {"vocab", CHOIR__INT, &s->decoder.vocab, 3, 1 << 24},
        {"pad", CHOIR__INT, &s->pad, 0, 1 << 24}, {"start", CHOIR__INT, &s->start, 0, 1 << 24},
        {"dropout", CHOIR__FLOAT, &s->decoder.dropout, 0, 0.99},
        {"encoder_dropout", CHOIR__FLOAT, &s->encoder.dropout, 0, 0.99},
        {"eps", CHOIR__FLOAT, &s->encoder.eps, 0, 0.1}, {NULL}};
    choir_status status = choir__options_parse(text, "model donut", known);
    if (status != CHOIR_OK)
        return status;
    if (!parse_stages(depths, s->encoder.depth, &s->encoder.stages) ||
        !parse_stages(heads, s->encoder.heads, &stages) || stages != s->encoder.stages)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model donut: expected depths and heads with one number for each of up to %d "
            "stages, such as 2-2-14-2, got depths=%s and heads=%s",
            CHOIR__SWIN_STAGES, depths, heads);
    if (s->encoder.dropout < 0)
        s->encoder.dropout = s->decoder.dropout;
    return check(s);
}

static void print_stages(char text[64], const int64_t *values, int stages)
{
    text[0] = '\0';
    for (int i = 0; i < stages; i++)
        snprintf(text + strlen(text), 64 - strlen(text), "%s%lld", i ? "-" : "",
            (long long)values[i]);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    char depths[64], heads[64];
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_vocab("donut", s.decoder.vocab, info->classes);
    if (status != CHOIR_OK)
        return status;
    if (s.decoder.vocab)
        info->classes = s.decoder.vocab;
    if (!info->classes)
        info->classes = 57525;
    if (!info->pad && !info->start)
        info->pad = s.pad, info->start = s.start;
    if (info->pad >= info->classes || info->start >= info->classes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model donut: pad=%lld and start=%lld are no tokens of a vocabulary of %lld",
            (long long)info->pad, (long long)info->start, (long long)info->classes);
    info->task = CHOIR_IMAGE_TO_TEXT;
    info->input = choir_dims(3, s.encoder.height, s.encoder.width);
    info->output = choir_dims(s.decoder.context);
    info->items = 1;
    print_stages(depths, s.encoder.depth, s.encoder.stages);
    print_stages(heads, s.encoder.heads, s.encoder.stages);
    snprintf(info->config, sizeof info->config,
        "donut:height=%lld,image_width=%lld,patch=%lld,window=%lld,embed=%lld,depths=%s,"
        "heads=%s,layers=%lld,decoder_heads=%lld,width=%lld,hidden=%lld,context=%lld,"
        "vocab=%lld,pad=%lld,start=%lld,dropout=%g,encoder_dropout=%g,eps=%g",
        (long long)s.encoder.height, (long long)s.encoder.width, (long long)s.encoder.patch,
        (long long)s.encoder.window, (long long)s.encoder.embed, depths, heads,
        (long long)s.decoder.layers, (long long)s.decoder.heads, (long long)s.decoder.width,
        (long long)s.decoder.hidden, (long long)s.decoder.context, (long long)info->classes,
        (long long)info->pad, (long long)info->start, s.decoder.dropout, s.encoder.dropout,
        s.encoder.eps);
    return CHOIR_OK;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    s.decoder.vocab = info->classes;
    s.decoder.pad = info->pad;
    donut *d = choir_module_new(run, &donut_class);
    choir_module_child(&d->base, "encoder", &d->encoder, choir__swin_new(run, &s.encoder));
    choir_module_child(&d->base, "decoder", &d->decoder, choir__mbart_new(run, &s.decoder));
    if (choir__swin_out(&s.encoder) != s.decoder.width)
        choir_module_child(&d->base, "enc_to_dec_proj", &d->enc_to_dec_proj,
            choir_nn_linear_with(run, choir__swin_out(&s.encoder), s.decoder.width, true,
                choir_init_normal(0, 0.02)));
    return &d->base;
}

const choir__model_spec choir__model_donut = {
    .name = "donut",
    .help = "Donut, images to tokens: height=2560,image_width=1920,patch=4,window=10,embed=128,"
            "depths=2-2-14-2,heads=4-8-16-32,layers=4,decoder_heads=16,width=1024,hidden=4096,"
            "context=768,vocab=(the data's),pad=1,start=0,dropout=0,encoder_dropout=(dropout),"
            "eps=1e-5",
    .describe = describe,
    .build = build,
    .published = &choir__donut_published,
};
