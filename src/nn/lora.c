/* choir_lora: freezes a model, and adds the two matrices of an adapter to the chosen linear
 * layers (lora_choice.c). Everything is checked before the model changes, so a refused call
 * leaves it as it was. adapter.c computes the layers' forward. */
#include "nn/lora.h"

#include <math.h>
#include <stdlib.h>

#include "base/floats.h"
#include "tensor/handle.h"
#include "tensor/strategy.h"

choir_lora_opts choir_lora_defaults(void)
{
    return (choir_lora_opts){.rank = 16};
}

static void set_scale(choir__adapter *d, const choir_lora_opts *o)
{
    double rank = (double)o->rank;
    d->alpha = o->alpha > 0 ? o->alpha : 2 * rank;
    d->rslora = o->rslora;
    d->scale = (float)(d->alpha / (o->rslora ? sqrt(rank) : rank));
}

static void add(choir__linear *l, const choir_lora_opts *o)
{
    bool in_out;
    choir_module *m = &l->base;
    choir__linear_of_module(m, &in_out);
    int64_t in = choir__linear_in(l, in_out), out = choir__linear_out(l, in_out);
    choir_module_param(
        m, "lora_A.weight", &l->adapter.a, choir_dims(o->rank, in), choir__fan_in_init(in));
    choir_module_param(
        m, "lora_B.weight", &l->adapter.b, choir_dims(out, o->rank), choir_init_constant(0));
    char *name = choir__format("%s.lora_dropout", m->path);
    l->adapter.dropout_name = choir__arena_strdup(&m->run->arena, name);
    free(name);
    set_scale(&l->adapter, o);
    l->adapter.dropout = o->dropout;
    choir_tensor *both[] = {l->adapter.a, l->adapter.b};
    choir_device *device = l->weight->storage ? choir__device_of(l->weight) : l->weight->device;
    for (size_t i = 0; i < CHOIR_COUNT(both); i++) {
        both[i]->device = device; /* draws where the layer is */
        both[i]->param->adapts = true;
    }
    choir__module_grown(m);
}

static void train_whole(choir_module *m)
{
    choir_module_freeze(m, false);
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            train_whole(e->child);
        if (e->kind == CHOIR__PARAM && !e->tensor->param->adapts)
            e->tensor->param->beside_adapters = true;
    }
}

/* --- what cannot be --- */

static choir_status check_opts(const choir_lora_opts *o)
{
    if (o->rank < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "LoRA: expected a rank of 1 or more, got r=%lld; choir_lora_defaults() has 16",
            (long long)o->rank);
    if (!(o->alpha >= 0 && o->alpha <= 1e12))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "LoRA: expected an alpha of 0 or more, got alpha=%g", o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "LoRA: expected a probability in [0, 1), got dropout=%g", (double)o->dropout);
    return CHOIR_OK;
}

static choir_status check_ranks(const choir__lora_choice *choice, int64_t rank)
{
    for (int i = 0; i < choice->layer_count; i++) {
        bool in_out;
        const choir__linear *l = choice->layers[i];
        choir__linear_of_module(&choice->layers[i]->base, &in_out);
        int64_t in = choir__linear_in(l, in_out), out = choir__linear_out(l, in_out);
        if (rank > choir__min(in, out))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "LoRA: r=%lld is larger than the layer '%s', which maps %lld numbers to %lld: "
                "expected at most %lld",
                (long long)rank, l->base.path, (long long)in, (long long)out,
                (long long)choir__min(in, out));
    }
    return CHOIR_OK;
}

static choir_status check_free(choir_module *module)
{
    int count;
    choir_status status = CHOIR_OK;
    if (choir__has_adapters(module))
        return choir__error(CHOIR_ERR_STATE, "LoRA: the model has adapters already");
    choir__param **all = choir__module_named_params(module, &count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        if (all[i]->companions || all[i]->has_grad || all[i]->boxes || all[i]->replicas ||
            all[i]->tensor->split || (all[i]->book && all[i]->book->reducer))
            status = choir__error(CHOIR_ERR_STATE,
                "LoRA: an optimizer or a strategy has parameter '%s' already: adapters come "
                "before them",
                all[i]->name);
    free(all);
    return status;
}

choir_status choir_lora(choir_module *module, choir_lora_opts opts)
{
    CHOIR__DEFAULT_FLOATS;
    choir__lora_choice choice = {0};
    choir_status status = choir__use_module(module, __func__);
    if (status == CHOIR_OK)
        status = check_opts(&opts);
    if (status == CHOIR_OK)
        status = check_free(module);
    if (status == CHOIR_OK)
        status = choir__lora_choose(module, &opts, &choice);
    if (status == CHOIR_OK)
        status = check_ranks(&choice, opts.rank);
    if (status == CHOIR_OK) {
        choir_module_freeze(module, true);
        for (int i = 0; i < choice.layer_count; i++)
            add(choice.layers[i], &opts);
        for (int i = 0; i < choice.whole_count; i++)
            train_whole(choice.whole[i]);
        status = choir__scope_status(module->run);
    }
    choir__lora_choice_free(&choice);
    return status;
}

static void note(choir_module *m, void *arg)
{
    bool in_out;
    const choir__linear *l = choir__linear_of_module(m, &in_out);
    *(bool *)arg |= l && l->adapter.a;
}

bool choir__has_adapters(choir_module *module)
{
    bool has = false;
    choir_module_each(module, note, &has);
    return has;
}
