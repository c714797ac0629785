/* Steps of transformers, kernel by kernel, for set-ups of three dimensions and FSDP.
 *
 * Ranks are numbered as Megatron does: tensor, then context, data, pipeline. A stage is one
 * program. Its micro-batches follow the interleaved schedule of Narayanan et al. (2021), which
 * is 1F1B for one chunk. Layers are products, attention, and passes over activations; sequence
 * parallelism divides the latter where there is tensor parallelism. */
#include "setup.h"

#include <stdlib.h>
#include <string.h>

#include "device/kernels.h"

enum {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

/* An 8-bit product as a part of a 16-bit one: the data sheet has twice the rate, and
 * library products reach about as large a part of it (DeepGEMM: up to 1,550 TFLOPS of 1,979 on
 * an H800). */
static const double eight_bits_part = 0.5;

enum { COMPUTE, TENSOR, DATA, FORWARD, BACKWARD, QUEUES };

typedef struct writer {
    const setup *s;
    choir__step *step;
    choir__step_program *p;
    int stage;
    double tokens; /* per micro-batch and rank */
    int tensor_group, data_group, forward_group, backward_group, context_group;
    int stage_ranks;
    double layers; /* per chunk */
} writer;

/* --- entries --- */

static void kernel(writer *w, int id, double flops, double bytes)
{
    choir__step_entry *e = choir__step_add(w->p, CHOIR__ENTRY_KERNEL, COMPUTE);
    e->as.kernel.id = id;
    e->as.kernel.dtype = CHOIR_BF16;
    e->as.kernel.flops = flops;
    e->as.kernel.bytes = bytes;
}

/* A product of (tokens, n) by (n, k). */
static void product(writer *w, double m, double n, double k)
{
    const double part = w->s->eight_bits ? eight_bits_part : 1;
    kernel(w, KERNEL_matmul, 2 * m * n * k * part, 2 * (m * n + n * k + m * k));
}

/* A pass that reads or writes `elements` of 16 bits. */
static void pass(writer *w, double elements)
{
    kernel(w, KERNEL_unary, 0, 2 * elements);
}

/* Makes a queue wait for what another has so far. */
static void join(writer *w, int queue, int other)
{
    choir__step_add(w->p, CHOIR__ENTRY_EVENT, other)->as.event = w->p->event_count;
    choir__step_add(w->p, CHOIR__ENTRY_WAIT, queue)->as.event = w->p->event_count++;
}

static void collective(
    writer *w, int queue, int group, choir__kind kind, double count, choir_dtype dtype)
{
    choir__step_entry *e = choir__step_add(w->p, CHOIR__ENTRY_COLLECTIVE, queue);
    e->as.collective.kind = kind;
    e->as.collective.algorithm = CHOIR__NATIVE;
    e->as.collective.dtype = dtype;
    e->as.collective.count = (int64_t)count;
    e->as.collective.group = group;
}

static void message(writer *w, int queue, choir__kind kind, int stages)
{
    choir__step_entry *e = choir__step_add(w->p, CHOIR__ENTRY_COLLECTIVE, queue);
    const bool forward = queue == FORWARD;
    e->as.collective.kind = kind;
    e->as.collective.dtype = CHOIR_BF16;
    e->as.collective.count = (int64_t)(w->tokens * w->s->model->width / w->s->tensor);
    e->as.collective.group = forward ? w->forward_group : w->backward_group;
    e->as.collective.root = stages * w->stage_ranks;
}

/* --- layers --- */

/* A collective of tensor parallelism, beside the next or the last product, or before it. */
static void tensor_call(writer *w, choir__kind kind)
{
    if (w->s->tensor == 1)
        return;
    if (!w->s->tensor_overlaps)
        join(w, TENSOR, COMPUTE);
    collective(w, TENSOR, w->tensor_group, kind, w->tokens * w->s->model->width / w->s->tensor,
        CHOIR_BF16);
    if (!w->s->tensor_overlaps)
        join(w, COMPUTE, TENSOR);
}

static void tensor_meet(writer *w)
{
    if (w->s->tensor > 1 && w->s->tensor_overlaps) {
        join(w, COMPUTE, TENSOR);
        join(w, TENSOR, COMPUTE);
    }
}

/* Attention of one direction; the keys and values of other chunks come beside it. */
static void attention(writer *w, double products)
{
    const setup *s = w->s;
    const model *m = s->model;
    const double wide = m->width / s->tensor, kv = wide * m->kv_heads / m->heads;
    if (s->context > 1) {
        join(w, TENSOR, COMPUTE);
        collective(
            w, TENSOR, w->context_group, CHOIR__ALL_GATHER, 2 * kv * w->tokens, CHOIR_BF16);
    }
    kernel(w, products > 2 ? KERNEL_attention_backward : KERNEL_attention,
        products * 2 * w->tokens * s->sequence / 2 * wide, 2 * w->tokens * (2 * wide + 2 * kv));
    if (s->context > 1)
        join(w, COMPUTE, TENSOR);
}

static void layer_forward(writer *w, double part)
{
    const setup *s = w->s;
    const model *m = s->model;
    const double t = w->tokens, h = m->width, wide = h / s->tensor, ff = m->ff / s->tensor,
                 kv = wide * m->kv_heads / m->heads;
    pass(w, 2 * t * wide); /* norm */
    tensor_call(w, CHOIR__ALL_GATHER);
    product(w, t * part, wide + 2 * kv, h);
    tensor_meet(w);
    pass(w, 2 * t * (wide + kv)); /* rotation */
    if (part == 1)
        attention(w, 2);
    tensor_call(w, CHOIR__REDUCE_SCATTER);
    product(w, t * part, h, wide);
    tensor_meet(w);
    pass(w, 5 * t * wide); /* sum and norm */
    tensor_call(w, CHOIR__ALL_GATHER);
    product(w, t * part, (m->gated ? 2 : 1) * ff, h);
    tensor_meet(w);
    pass(w, (m->gated ? 3 : 2) * t * ff);
    tensor_call(w, CHOIR__REDUCE_SCATTER);
    product(w, t * part, h, ff);
    tensor_meet(w);
    pass(w, 3 * t * wide); /* sum */
}

/* Both gradients of a product. */
static void product_backward(writer *w, double n, double k)
{
    product(w, w->tokens, n, k);
    product(w, n, w->tokens, k);
}

static void layer_backward(writer *w)
{
    const setup *s = w->s;
    const model *m = s->model;
    const double t = w->tokens, h = m->width, wide = h / s->tensor, ff = m->ff / s->tensor,
                 kv = wide * m->kv_heads / m->heads;
    if (s->recompute != KEEP)
        layer_forward(w, s->recompute == ALL ? 1 : 0.5);
    tensor_call(w, CHOIR__ALL_GATHER);
    product_backward(w, h, ff);
    tensor_meet(w);
    pass(w, (m->gated ? 5 : 3) * t * ff);
    tensor_call(w, CHOIR__REDUCE_SCATTER);
    product_backward(w, (m->gated ? 2 : 1) * ff, h);
    tensor_meet(w);
    pass(w, 6 * t * wide); /* norm and sum */
    tensor_call(w, CHOIR__ALL_GATHER);
    product_backward(w, h, wide);
    tensor_meet(w);
    attention(w, 5);
    pass(w, 2 * t * (wide + kv));
    tensor_call(w, CHOIR__REDUCE_SCATTER);
    product_backward(w, wide + 2 * kv, h);
    tensor_meet(w);
    pass(w, 6 * t * wide);
}

/* --- sharded weights and gradients --- */

static double layer_parameters(const setup *s)
{
    const model *m = s->model;
    const double kv = m->width * m->kv_heads / m->heads;
    return (m->width * (2 * m->width + 2 * kv) + (m->gated ? 3 : 2) * m->width * m->ff) /
           s->tensor;
}

static int data_ranks(const setup *s)
{
    return s->gpus / (s->tensor * s->pipeline * s->context) * s->context;
}

static void gather_weights(writer *w, double parameters)
{
    if (data_ranks(w->s) > 1)
        collective(w, DATA, w->data_group, CHOIR__ALL_GATHER, parameters / data_ranks(w->s),
            CHOIR_BF16);
}

static void scatter_gradients(writer *w, double parameters)
{
    if (data_ranks(w->s) == 1)
        return;
    join(w, DATA, COMPUTE);
    collective(w, DATA, w->data_group, CHOIR__REDUCE_SCATTER, parameters / data_ranks(w->s),
        w->s->gradient_bytes == 4 ? CHOIR_F32 : CHOIR_BF16);
}

/* Runs the layers of a chunk. With FSDP the next layer's weights come beside each layer. first,
 * last: micro-batch of the chunk. */
static void chunk_forward(writer *w, bool first)
{
    const bool gathers = w->s->fsdp || first;
    for (int layer = 0; layer < (int)w->layers; layer++) {
        if (gathers && data_ranks(w->s) > 1) {
            if (layer == 0)
                gather_weights(w, layer_parameters(w->s));
            join(w, COMPUTE, DATA);
            if (layer + 1 < (int)w->layers)
                gather_weights(w, layer_parameters(w->s));
        }
        layer_forward(w, 1);
    }
}

static void chunk_backward(writer *w, bool last)
{
    for (int layer = (int)w->layers - 1; layer >= 0; layer--) {
        if (w->s->fsdp) {
            if (layer + 1 == (int)w->layers)
                gather_weights(w, layer_parameters(w->s));
            join(w, COMPUTE, DATA);
            if (layer)
                gather_weights(w, layer_parameters(w->s));
        }
        layer_backward(w);
        if (w->s->fsdp || last)
            scatter_gradients(w, layer_parameters(w->s));
    }
}

/* The scores, their loss and their gradients. */
static void head(writer *w, bool backward)
{
    const double vocab = w->s->model->vocab / w->s->tensor, t = w->tokens,
                 h = w->s->model->width;
    setup bf16 = *w->s; /* the scores' product has 16 bits */
    const setup *before = w->s;
    bf16.eight_bits = false;
    w->s = &bf16;
    if (backward)
        product_backward(w, vocab, h);
    else
        product(w, t, vocab, h);
    w->s = before;
    pass(w, (backward ? 4 : 5) * t * vocab);
}

/* --- schedules --- */

/* Returns the chunk of the k-th forward (or backward) of a stage. */
static int chunk_of(const setup *s, int k, bool forward)
{
    int chunk = k % (s->pipeline * s->virtual) / s->pipeline;
    return forward ? chunk : s->virtual - 1 - chunk;
}

/* Returns whether the k-th one is the chunk's first, or its last, micro-batch. */
static bool is_first(const setup *s, int k)
{
    return k < s->pipeline * s->virtual && k % s->pipeline == 0;
}

static bool is_last(const setup *s, int k, int all)
{
    return all - k <= s->pipeline * s->virtual && (k + 1) % s->pipeline == 0;
}

static void run_forward(writer *w, int k)
{
    const setup *s = w->s;
    const int chunk = chunk_of(s, k, true), last = s->pipeline - 1;
    const bool begins = w->stage == 0 && chunk == 0,
               ends = w->stage == last && chunk == s->virtual - 1;
    if (!begins) {
        message(w, FORWARD, CHOIR__RECEIVE, w->stage ? -1 : last);
        join(w, COMPUTE, FORWARD);
    }
    chunk_forward(w, is_first(s, k));
    if (ends) {
        head(w, false);
    } else {
        join(w, FORWARD, COMPUTE);
        message(w, FORWARD, CHOIR__SEND, w->stage == last ? -last : 1);
    }
}

static void run_backward(writer *w, int k, int all)
{
    const setup *s = w->s;
    const int chunk = chunk_of(s, k, false), last = s->pipeline - 1;
    const bool begins = w->stage == last && chunk == s->virtual - 1,
               ends = w->stage == 0 && chunk == 0;
    if (begins) {
        head(w, true);
    } else {
        message(w, BACKWARD, CHOIR__RECEIVE, w->stage == last ? -last : 1);
        join(w, COMPUTE, BACKWARD);
    }
    chunk_backward(w, is_last(s, k, all));
    if (!ends) {
        join(w, BACKWARD, COMPUTE);
        message(w, BACKWARD, CHOIR__SEND, w->stage ? -1 : last);
    }
}

static void run_micro_batches(writer *w, int micro)
{
    const setup *s = w->s;
    const int all = micro * s->virtual;
    int warm = s->pipeline - w->stage - 1;
    if (s->virtual > 1)
        warm = 2 * warm + (s->virtual - 1) * s->pipeline;
    warm = warm < all ? warm : all;
    for (int k = 0; k < warm; k++)
        run_forward(w, k);
    for (int k = warm; k < all; k++) {
        run_forward(w, k);
        run_backward(w, k - warm, all);
    }
    for (int k = all - warm; k < all; k++)
        run_backward(w, k, all);
}

/* Updates this rank's part of the weights: reads gradients, weights and two moments, writes the
 * last three in f32, and 16-bit weights. */
static void update(writer *w)
{
    const setup *s = w->s;
    double parameters = layer_parameters(s) * s->model->layers / s->pipeline;
    if (w->stage == 0 || w->stage == s->pipeline - 1)
        parameters += s->model->vocab * s->model->width / s->tensor * (s->pipeline > 1 ? 1 : 2);
    join(w, COMPUTE, DATA);
    kernel(w, KERNEL_adam, 0, 30 * parameters / data_ranks(s));
}

void setup_step(const setup *s, choir__step *step)
{
    const int data = data_ranks(s),
              micro = s->global_batch / s->micro_batch / (data / s->context);
    const int stage_ranks = s->gpus / s->pipeline;
    *step = (choir__step){.world = s->gpus};
    writer w = {.s = s, .step = step, .stage_ranks = stage_ranks};
    w.tokens = (double)s->micro_batch * s->sequence / s->context;
    w.layers = s->model->layers / s->pipeline / s->virtual;
    w.tensor_group = choir__step_group_of(step, s->tensor, 1);
    w.context_group = choir__step_group_of(step, s->context, s->tensor);
    w.data_group = choir__step_group_of(step, data, s->tensor);
    w.forward_group = choir__step_group_of(step, s->pipeline, stage_ranks);
    w.backward_group = choir__step_group_of(step, s->gpus, 1);
    for (w.stage = 0; w.stage < s->pipeline; w.stage++) {
        w.p = choir__step_add_program(step, w.stage * stage_ranks, stage_ranks);
        for (int q = 0; q < QUEUES; q++)
            choir__step_add_queue(w.p, q == COMPUTE ? 0 : -1, q);
        run_micro_batches(&w, micro);
        update(&w);
    }
}

/* --- models --- */

double model_parameters(const model *m)
{
    const double kv = m->width * m->kv_heads / m->heads;
    return m->layers *
               (m->width * (2 * m->width + 2 * kv) + (m->gated ? 3 : 2) * m->width * m->ff) +
           2 * m->vocab * m->width;
}

double model_flops(const model *m, int sequence)
{
    return 6 * (model_parameters(m) - m->vocab * m->width) +
           3 * 4 * m->layers * m->width * sequence / 2;
}
