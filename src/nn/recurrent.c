/* LSTM, GRU and plain recurrent networks: layers of choir_recurrent, one after the other, in
 * one direction or both. Parameters have PyTorch's names and order; their initial values are
 * uniform in +-1/sqrt(hidden). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"

enum { MAX_LAYERS = 1024 };

typedef struct recurrent {
    choir_module base;
    choir_cell cell;
    choir_recurrent_opts opts;
    int directions;
    choir_cell_state *want;       /* set during choir_forward_state: receives the states */
    choir_cell_weights weights[]; /* weights by layer, then direction */
} recurrent;

choir_recurrent_opts choir_recurrent_defaults(void)
{
    return (choir_recurrent_opts){.layers = 1, .bias = true};
}

/* Returns the part (D, B, H) of a state (layers D, B, H) for one layer. */
static choir_tensor *part_of(const recurrent *r, choir_tensor *state, int layer)
{
    bool whole = !state || r->opts.layers == 1;
    return whole ? state : choir_narrow(state, 0, layer * r->directions, r->directions);
}

/* Concatenates parts[layers], a few at a time. */
static choir_tensor *join(choir_tensor **parts, int count)
{
    enum { FEW = 16 };
    for (; count > 1; count = (count + FEW - 1) / FEW)
        for (int i = 0; i < count; i += FEW)
            parts[i / FEW] = choir_cat(parts + i, count - i < FEW ? count - i : FEW, 0);
    return parts[0];
}

/* Checks the number of layers here, because the ops see only one layer's part. */
static const char *state_complaint(const recurrent *r, const choir_tensor *state)
{
    bool fits = !state || state->poisoned ||
                (state->shape.ndim == 3 &&
                    state->shape.dim[0] == (int64_t)r->opts.layers * r->directions);
    return fits ? NULL : choir__shape_text(state->shape);
}

static choir_tensor *recurrent_forward(choir_module *self, choir_tensor *const *in, int count)
{
    recurrent *r = (recurrent *)self;
    int layers = r->opts.layers;
    choir_tensor *x = in[0], *last_h[MAX_LAYERS], *last_c[MAX_LAYERS];
    choir_cell_state first = {count > 1 ? in[1] : NULL, count > 2 ? in[2] : NULL}, last;
    const char *wrong = state_complaint(r, first.h);
    wrong = wrong ? wrong : state_complaint(r, first.c);
    if (wrong)
        return choir__poison(choir_tensor_scope(x), CHOIR_ERR_SHAPE,
            "%s: expected initial states (%d, B, H), one of each layer and direction, got "
            "%s",
            self->type->name, layers * r->directions, wrong);
    if (x->shape.ndim != 3 && !x->poisoned)
        return choir__poison(choir_tensor_scope(x), CHOIR_ERR_SHAPE,
            "%s: expected sequences (%s, I), got %s", self->type->name,
            r->opts.batch_first ? "B, T" : "T, B", choir__shape_text(x->shape));
    if (r->opts.batch_first)
        x = choir_transpose(x, 0, 1);
    for (int l = 0; l < layers; l++) {
        if (l && self->training && r->opts.dropout > 0)
            x = choir_dropout(x, r->opts.dropout, self->path);
        x = choir_recurrent(r->cell, x, r->weights + l * r->directions, r->directions,
            (choir_cell_state){part_of(r, first.h, l), part_of(r, first.c, l)},
            r->want ? &last : NULL);
        last_h[l] = r->want ? last.h : NULL;
        last_c[l] = r->want ? last.c : NULL;
    }
    if (r->want)
        *r->want = (choir_cell_state){
            join(last_h, layers), r->cell == CHOIR_LSTM ? join(last_c, layers) : NULL};
    return r->opts.batch_first ? choir_transpose(x, 0, 1) : x;
}

/* weight_ih_l0, ..., bias_hh_l0, weight_ih_l0_reverse, ... */
static void add_weights(recurrent *r, int at, int64_t in, int64_t hidden)
{
    CHOIR__DEFAULT_FLOATS;
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    int64_t rows = hidden * (r->cell == CHOIR_LSTM ? 4 : r->cell == CHOIR_GRU ? 3 : 1);
    choir_shape shapes[] = {
        choir_dims(rows, in), choir_dims(rows, hidden), choir_dims(rows), choir_dims(rows)};
    choir_cell_weights *w = &r->weights[at];
    choir_tensor **fields[] = {&w->w_ih, &w->w_hh, &w->b_ih, &w->b_hh};
    double bound = 1 / sqrt((double)hidden);
    for (int i = 0; i < (r->opts.bias ? 4 : 2); i++) {
        char name[48];
        snprintf(name, sizeof name, "%s_l%d%s", names[i], at / r->directions,
            at % r->directions ? "_reverse" : "");
        choir_module_param(
            &r->base, name, fields[i], shapes[i], choir_init_uniform(-bound, bound));
    }
}

static choir_module *new_recurrent(choir_scope *run, const char *name, choir_cell cell,
    int64_t in, int64_t hidden, choir_recurrent_opts opts)
{
    if (in < 1 || hidden < 1 || opts.layers < 1 || opts.layers > MAX_LAYERS ||
        hidden > INT64_MAX / 16 || !(opts.dropout >= 0 && opts.dropout < 1)) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "%s: expected positive sizes, 1 to %d layers and a dropout in [0, 1), got %lld "
            "and %lld, %d and %g; begin with choir_recurrent_defaults()",
            name, MAX_LAYERS, (long long)in, (long long)hidden, opts.layers,
            (double)opts.dropout);
        in = hidden = opts.layers = 1;
        opts.dropout = 0;
    }
    int directions = opts.bidirectional ? 2 : 1, sets = opts.layers * directions;
    choir_module_class *type = choir__arena_get(&run->arena, sizeof *type);
    *type = (choir_module_class){name,
        sizeof(recurrent) + (size_t)sets * sizeof(choir_cell_weights), recurrent_forward, 3};
    recurrent *r = choir_module_new(run, type);
    r->cell = cell;
    r->opts = opts;
    r->directions = directions;
    for (int i = 0; i < sets; i++)
        add_weights(r, i, i < directions ? in : hidden * directions, hidden);
    return &r->base;
}

choir_module *choir_nn_lstm(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts)
{
    run = choir__open_scope(run, __func__);
    return new_recurrent(run, "lstm", CHOIR_LSTM, in, hidden, opts);
}

choir_module *choir_nn_gru(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts)
{
    run = choir__open_scope(run, __func__);
    return new_recurrent(run, "gru", CHOIR_GRU, in, hidden, opts);
}

choir_module *choir_nn_rnn(
    choir_scope *run, int64_t in, int64_t hidden, choir_recurrent_opts opts)
{
    run = choir__open_scope(run, __func__);
    return new_recurrent(
        run, "rnn", opts.relu ? CHOIR_RNN_RELU : CHOIR_RNN_TANH, in, hidden, opts);
}

choir_tensor *choir_forward_state(
    choir_module *module, choir_tensor *x, choir_cell_state *state)
{
    CHOIR__DEFAULT_FLOATS;
    module = choir__module_for(NULL, module, __func__);
    x = choir__sound(x, __func__);
    if (!state)
        return choir__poison_missing(x->scope, __func__, "state");
    if (module->type->forward != recurrent_forward) {
        choir_tensor *bad = choir__poison(choir_tensor_scope(x), CHOIR_ERR_ARGUMENT,
            "choir_forward_state: %s has no state; lstm, gru and rnn have", module->type->name);
        *state = (choir_cell_state){bad, bad};
        return bad;
    }
    recurrent *r = (recurrent *)module;
    choir_tensor *in[3] = {x, state->h, state->c};
    choir_cell_state last = {NULL, NULL};
    r->want = &last;
    choir_tensor *y = choir_forward_n(module, in, state->c ? 3 : state->h ? 2 : 1);
    r->want = NULL;
    *state = last.h ? last : (choir_cell_state){y, r->cell == CHOIR_LSTM ? y : NULL};
    return y;
}
