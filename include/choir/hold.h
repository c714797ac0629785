/* Frozen weights in few bits: fine-tuning of models that would not fit otherwise.
 *
 * Adapters (choir/lora.h) are trained beside weights that stay as they are, and may be
 * held in 16, 8 or 4 bits; products and lookups read them so, and compute with the values that
 * the bits stand for, in f32 or in autocast's type. Bits of results are the same under every
 * strategy, as they would be with these values in f32.
 *
 *     choir_check(choir_lora(net, choir_lora_defaults()));
 *     choir_check(choir_module_hold(net, CHOIR_HOLD_Q4_K, true));
 *     choir_check(choir_model_load_weights(net, &info, "path/to/folder", 0, &notes));
 *
 * A held weight is a tensor of 32-bit words (rows, words), and a checkpoint stores it: 16-bit
 * types as such, others as bytes, as GGUF files have them.
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_HOLD_H
#define CHOIR_HOLD_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each row has the name and its text. q8_0 and q4_0: blocks of 32 values that share a scale;
 * q4_K: blocks of 256, with scales and minima of runs of 32. */
#define CHOIR_HOLD_LIST(X)                                                                     \
    X(F16, "f16")                                                                              \
    X(BF16, "bf16")                                                                            \
    X(Q8_0, "q8_0")                                                                            \
    X(Q4_0, "q4_0")                                                                            \
    X(Q4_K, "q4_K")

/** The type in which weights are held. */
typedef enum choir_hold {
#define X(name, text) CHOIR_HOLD_##name,
    CHOIR_HOLD_LIST(X)
#undef X
        CHOIR_HOLD_COUNT
} choir_hold;

/**
 * Holds the frozen weights of linear layers, of module and of all modules in it, in that type
 * from now on; `tables`: the tables of embeddings as well, in q8_0 unless the type has more
 * bits. A row whose length the type's blocks do not divide is held in q5_0, q8_0 or bf16.
 * Weights that have values are rounded now; values that are drawn or loaded later are rounded
 * one weight at a time, so that the model is never there as a whole in f32. Held weights stay
 * frozen.
 *
 * Call it after choir_lora or choir_module_freeze, and before an optimizer or a strategy has
 * the weights.
 *
 * Errors: state (the weights are held in another type, or an optimizer or a strategy has them),
 * memory.
 */
CHOIR_CHECKED choir_status choir_module_hold(
    choir_module *module, choir_hold type, bool tables);

/** Returns the bytes of memory in which the module's frozen weights are held, on this rank. */
int64_t choir_module_held_bytes(choir_module *module);

#ifdef __cplusplus
}
#endif
#endif
