/* Recurrent models. On text: an embedding, a recurrent network and a linear layer onto the
 * vocabulary, trained to predict the next token. On random numbers: the network and the linear
 * layer, from sequences (B, context, in) to (B, context, out) by least squares.
 *
 * The model's text selects one of the two by vocab= or out=; if it gives neither, the data
 * decides. */
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "nn/models/spec.h"
#include "nn/module.h"
#include "tensor/cache.h"

struct sizes {
    int64_t layers, hidden, in, out, context, vocab;
    double dropout;
    char cell[64];
};

typedef struct lstm {
    choir_module base;
    /* encoder: embedding of ids; NULL: x is numbers */
    choir_module *encoder, *rnn, *decoder;
    int64_t in;
} lstm;

/* The network expects time first, so ids (or numbers) and results are transposed. Ids are
 * transposed before the embedding, where they are smallest. */
static choir_tensor *lstm_forward(choir_module *self, choir_tensor *const *in, int count)
{
    lstm *m = (lstm *)self;
    choir_tensor *x = in[0]; /* (B, T) i64, or (B, T, in) */
    (void)count;
    int dims = m->encoder ? 2 : 3;
    if (choir_tensor_ndim(x) != dims || (!m->encoder && choir_tensor_size(x, 2) != m->in))
        return choir__poison(choir_tensor_scope(x), CHOIR_ERR_SHAPE, "%s: expected %s, got %s",
            self->type->name, m->encoder ? "ids (B, T)" : "sequences (B, T, in)",
            choir__shape_text(choir_tensor_shape(x)));
    x = choir_transpose(x, 0, 1);
    if (m->encoder)
        x = choir_forward(m->encoder, choir_contiguous(x)); /* (T, B, in) */
    x = choir_transpose(choir_forward(m->rnn, x), 0, 1);    /* (B, T, hidden) */
    x = choir__cache_last(x);
    return choir_forward(m->decoder, x); /* (B, T, out or vocab) */
}

static const choir_module_class lstm_class = {"lstm model", sizeof(lstm), lstm_forward, 1};

static choir_module *new_lstm(choir_scope *run, const struct sizes *s)
{
    lstm *m = choir_module_new(run, &lstm_class);
    choir_recurrent_opts opts = choir_recurrent_defaults();
    opts.layers = (int)s->layers;
    opts.dropout = (float)s->dropout;
    m->in = s->in;
    if (s->vocab)
        choir_module_child(&m->base, "encoder", &m->encoder,
            choir_nn_embedding(run, s->vocab, s->in, choir_init_normal(0, 1)));
    choir_module *rnn = !strcmp(s->cell, "gru")   ? choir_nn_gru(run, s->in, s->hidden, opts)
                        : !strcmp(s->cell, "rnn") ? choir_nn_rnn(run, s->in, s->hidden, opts)
                                                  : choir_nn_lstm(run, s->in, s->hidden, opts);
    choir_module_child(&m->base, "rnn", &m->rnn, rnn);
    choir_module_child(&m->base, "decoder", &m->decoder,
        choir_nn_linear(run, s->hidden, s->vocab ? s->vocab : s->out));
    return &m->base;
}

static choir_status parse(const char *text, struct sizes *s)
{
    *s = (struct sizes){2, 512, 256, 0, 64, 0, 0, "lstm"};
    choir__option known[] = {{"layers", CHOIR__INT, &s->layers, 1, 1024},
        {"hidden", CHOIR__INT, &s->hidden, 1, 1 << 20}, {"in", CHOIR__INT, &s->in, 1, 1 << 20},
        {"out", CHOIR__INT, &s->out, 1, 1 << 24},
        {"context", CHOIR__INT, &s->context, 1, 1 << 20},
        {"vocab", CHOIR__INT, &s->vocab, 1, 1 << 24},
        {"dropout", CHOIR__FLOAT, &s->dropout, 0, 0.99}, {"cell", CHOIR__WORD, s->cell, 0, 0},
        {NULL}};
    choir_status status = choir__options_parse(text, "model lstm", known);
    if (status != CHOIR_OK)
        return status;
    if (strcmp(s->cell, "lstm") && strcmp(s->cell, "gru") && strcmp(s->cell, "rnn"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model lstm: unknown cell '%s': choose one of lstm, gru, rnn", s->cell);
    if (s->out && s->vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model lstm: out=%lld is for numbers, vocab=%lld for tokens; give one",
            (long long)s->out, (long long)s->vocab);
    if (s->layers == 1 && s->dropout > 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model lstm: dropout=%g lies between layers, and layers=1 has nothing between",
            s->dropout);
    return CHOIR_OK;
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    char last[32];
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_vocab("lstm", s.vocab, info->classes);
    if (status != CHOIR_OK)
        return status;
    if (!s.vocab && !s.out && info->random)
        s.out = 256;
    if (!s.vocab && !s.out)
        s.vocab = info->classes ? info->classes : 256; /* bytes */
    info->task = s.vocab ? CHOIR_LANGUAGE : CHOIR_REGRESSION;
    info->input = s.vocab ? choir_dims(s.context) : choir_dims(s.context, s.in);
    info->output = s.vocab ? CHOIR_SCALAR : choir_dims(s.context, s.out);
    info->classes = s.vocab;
    info->endless = s.vocab > 0;
    info->items = s.context;
    if (s.vocab)
        snprintf(last, sizeof last, "vocab=%lld", (long long)s.vocab);
    else
        snprintf(last, sizeof last, "out=%lld", (long long)s.out);
    snprintf(info->config, sizeof info->config,
        "lstm:cell=%s,layers=%lld,hidden=%lld,in=%lld,context=%lld,dropout=%g,%s", s.cell,
        (long long)s.layers, (long long)s.hidden, (long long)s.in, (long long)s.context,
        s.dropout, last);
    return CHOIR_OK;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    if (info->task == CHOIR_LANGUAGE)
        s.vocab = info->classes;
    else
        s.out = info->output.dim[1];
    return new_lstm(run, &s);
}

const choir__model_spec choir__model_lstm = {
    .name = "lstm",
    .help = "recurrent layers: cell=lstm (gru, rnn),layers=2,hidden=512,in=256,out=256 or "
            "vocab=(the data's),context=64,dropout=0",
    .describe = describe,
    .build = build,
};
