/* The plan for a model without rules: for transformers by the names of their layers, otherwise
 * for each contraction that a module has marked, and each pair of consecutive linear layers. */
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/held.h"

#include <string.h>

/* Rules by the published names of the layers. A rule that finds nothing is skipped: the scores
 * of BERT and its relatives have a bias, and a classifier has no such scores. */
static const choir_tp_rule gpt2[] = {{.path = "*.attn", .style = CHOIR_TP_HEADS},
    {.path = "*.mlp.c_fc", .style = CHOIR_TP_COLUMN},
    {.path = "*.mlp.c_proj", .style = CHOIR_TP_ROW},
    {.path = "transformer.wte", .style = CHOIR_TP_VOCAB}};
static const choir_tp_rule llama[] = {{.path = "*.self_attn", .style = CHOIR_TP_HEADS},
    {.path = "*.mlp.gate_proj", .style = CHOIR_TP_COLUMN},
    {.path = "*.mlp.up_proj", .style = CHOIR_TP_COLUMN},
    {.path = "*.mlp.gate_up_proj", .style = CHOIR_TP_COLUMN, .packed = 2},
    {.path = "*.mlp.down_proj", .style = CHOIR_TP_ROW},
    {.path = "model.embed_tokens", .style = CHOIR_TP_VOCAB},
    {.path = "lm_head", .style = CHOIR_TP_VOCAB}};
static const choir_tp_rule bert_tokens[] = {
    {.path = "*.embeddings.word_embeddings", .style = CHOIR_TP_VOCAB},
    {.path = "cls.predictions.bias", .style = CHOIR_TP_VOCAB},
    {.path = "lm_head.bias", .style = CHOIR_TP_VOCAB},
    {.path = "vocab_projector.bias", .style = CHOIR_TP_VOCAB}};

static choir_status plan_gpt2(choir__tp_plan *plan)
{
    return choir__tp_plan_rules(plan, gpt2, CHOIR_COUNT(gpt2), true);
}

static choir_status plan_llama(choir__tp_plan *plan)
{
    return choir__tp_plan_rules(plan, llama, CHOIR_COUNT(llama), true);
}

/* A layer of an encoder of texts or images is one module, with the attention and the layers
 * after it. */
static choir_status plan_bert_layer(choir__tp_plan *plan, choir_module *layer)
{
    choir_status status = choir__tp_plan_layer(
        plan, layer, &(choir_tp_rule){.path = layer->path, .style = CHOIR_TP_HEADS});
    for (choir__module_entry *e = layer->inside->entries; e && status == CHOIR_OK;
         e = e->next) {
        bool up = !strcmp(e->name, "intermediate.dense") || !strcmp(e->name, "ffn.lin1"),
             down = !strcmp(e->name, "output.dense") || !strcmp(e->name, "ffn.lin2");
        choir_tp_rule rule = {
            .path = layer->path, .style = up ? CHOIR_TP_COLUMN : CHOIR_TP_ROW};
        if (up || down)
            status = choir__tp_plan_layer(plan, e->child, &rule);
    }
    return status;
}

static choir_status plan_bert(choir__tp_plan *plan)
{
    choir_status status =
        choir__tp_plan_rules(plan, bert_tokens, CHOIR_COUNT(bert_tokens), true);
    for (choir__module_entry *e = plan->module->inside->entries; e && status == CHOIR_OK;
         e = e->next)
        if (e->kind == CHOIR__CHILD && e->child->inside->heads)
            status = plan_bert_layer(plan, e->child);
    return status;
}

static const struct {
    const char *class; /* class of the model's module */
    choir_status (*plan)(choir__tp_plan *plan);
} plans[] = {
    {"gpt2", plan_gpt2}, {"llama", plan_llama}, {"bert", plan_bert}, {"vit", plan_bert}};

/* --- pairs of linear layers --- */

static bool is_linear(choir_module *m, int64_t *in, int64_t *out)
{
    choir_tensor *weight, *bias;
    bool in_out;
    if (!choir__linear_layer(m, &weight, &bias, &in_out))
        return false;
    *in = choir__values_shape(weight).dim[!in_out];
    *out = choir__values_shape(weight).dim[in_out];
    return true;
}

/* The slices must divide what a user has marked. */
static choir_status plan_contractions(choir__tp_plan *plan, const choir_module *m)
{
    choir_status status = CHOIR_OK;
    for (const choir__contraction *c = m->inside->contractions; c && status == CHOIR_OK;
         c = c->next) {
        choir_tp_rule up = {.path = "", .style = CHOIR_TP_COLUMN, .packed = c->matrices};
        status = choir__tp_plan_layer(plan, c->up, &up);
        if (status == CHOIR_OK)
            status = choir__tp_plan_layer(
                plan, c->down, &(choir_tp_rule){.path = "", .style = CHOIR_TP_ROW});
    }
    return status;
}

/* In a sequential, a linear layer, elementwise functions and another linear layer of the same
 * width form a pair, if the number of slices divides the width. */
static choir_status plan_pairs(choir__tp_plan *plan, choir_module *m)
{
    choir_module *first = NULL;
    int64_t in, out, width = 0;
    choir_status status = plan_contractions(plan, m);
    bool sequential = !strcmp(m->type->name, "sequential");
    for (choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK; e = e->next) {
        if (e->kind != CHOIR__CHILD)
            continue;
        bool linear = is_linear(e->child, &in, &out);
        if (linear && first && in == width) {
            status = choir__tp_plan_layer(
                plan, first, &(choir_tp_rule){.path = "", .style = CHOIR_TP_COLUMN});
            if (status == CHOIR_OK)
                status = choir__tp_plan_layer(
                    plan, e->child, &(choir_tp_rule){.path = "", .style = CHOIR_TP_ROW});
            first = NULL;
        } else if (linear) {
            first = sequential && out % plan->slices == 0 ? e->child : NULL;
            width = out;
        } else if (!choir__is_function(e->child)) {
            first = NULL;
            status = plan_pairs(plan, e->child);
        }
    }
    return status;
}

choir_status choir__tp_plan_default(choir__tp_plan *plan)
{
    const choir_module *m = plan->module;
    for (size_t i = 0; i < CHOIR_COUNT(plans); i++)
        if (!strcmp(m->type->name, plans[i].class))
            return plans[i].plan(plan);
    choir_status status = plan_pairs(plan, plan->module);
    if (status == CHOIR_OK && !plan->count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: no plan for a model of class '%s', which has no two linear layers "
            "in a row with a width between them that %lld slices divide, and marks no "
            "contraction: train it without slices, or give it rules or marks",
            m->type->name, (long long)plan->slices);
    return status;
}
