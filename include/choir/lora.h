/* Low-rank adapters (LoRA, Hu et al., 2021): fine-tuning of a few numbers beside frozen
 * weights.
 *
 * A linear layer with an adapter computes x W + b + (alpha / r) x A B, where A (in, r) and B
 * (r, out) are trained and W and b are not. A starts as PyTorch's linear layers do, keyed by
 * its name, and B with zeros, so that training starts from the model as it is.
 *
 *     choir_module *net = choir_model(run, "path/to/folder", NULL);
 *     choir_check(choir_lora(net, choir_lora_defaults()));
 *     choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
 *
 * The parameters are "PATH.lora_A.weight" (r, in) and "PATH.lora_B.weight" (out, r), as peft
 * has them. Every strategy treats them like other weights. A weight that holds several
 * matrices, as GPT-2's c_attn, has one adapter.
 *
 * Threads: the run's thread. Collective: no; a sharded module has no adapters loaded or saved.
 */
#ifndef CHOIR_LORA_H
#define CHOIR_LORA_H

#include <choir/model_info.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_lora_opts {
    int64_t rank;  /* r, at most the smaller side of each layer; default 16 */
    double alpha;  /* an adapter is scaled by alpha / r; default, and 0: 2 r */
    float dropout; /* an adapter drops its input in train mode; default 0 */
    bool rslora;   /* scaled by alpha / sqrt r instead (Kalajdzievski, 2023); default false */
    /* The linear layers with adapters: ends of their paths, separated by '/', as
     * "q_proj/v_proj" or "layers.0.self_attn.q_proj"; or "all-linear", all of them but the
     * output layer (lm_head, classifier, score; or the last layer of a model without
     * attention). NULL: the projections to queries and values of every attention, as peft
     * chooses. */
    const char *targets;
    /* Modules that are trained whole, such as a new head: ends of their paths, separated by
     * '/'; NULL: none. */
    const char *modules_to_save;
} choir_lora_opts;

choir_lora_opts choir_lora_defaults(void);

/**
 * Adds adapters to linear layers of module, and of all modules in it, and freezes everything
 * else. Call it before the module has an optimizer and before a strategy wraps it. The model's
 * weights may be loaded before or after.
 *
 * Errors: argument (a rank, a dropout or an alpha out of range; a target that is no linear
 * layer; no layer to choose by default), state (there are adapters already; an optimizer or a
 * strategy has the weights). Nothing has changed then.
 */
CHOIR_CHECKED choir_status choir_lora(choir_module *module, choir_lora_opts opts);

/**
 * Adds the adapters of a folder that peft or choir export wrote to a model, as choir_lora does,
 * and loads their weights. The model has its base's weights already. info: the model's
 * description, or NULL.
 *
 * Errors: as choir_lora; io, format (an adapter of a kind that Choir lacks, or for other
 * layers); mismatch (an adapter of another base, if the folder has its base's hash).
 */
CHOIR_CHECKED choir_status choir_adapter_load(
    choir_module *module, const choir_model_info *info, const char *folder);

/** Writes the module's adapters into a folder that exists, as peft reads them. base: name or
 * folder of the model that they are for, or NULL. Errors: argument (there are no adapters), io,
 * nonfinite.
 */
CHOIR_CHECKED choir_status choir_adapter_save(
    choir_module *module, const char *base, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
