/* A gradient scaler's kernels. The host reads none of the results, so that a step can be
 * recorded; the optimizer's kernels read the decision. */
#include "device/cpu/isa/isa.h"
#include "device/kernels/arithmetic.h"
#include "device/queue.h"

void KERNEL(optim_skipped)(const choir__k_optim_skipped *k)
{
    for (int g = 0; g < k->groups; g++)
        choir__opt_correct(&k->hyper[g], k->bias, k->steps - (int64_t)*k->skipped);
}

void KERNEL(unscale)(const choir__k_unscale *k)
{
    for (int64_t i = 0; i < k->count; i++) {
        float *grad = (float *)k->entries[i].grad;
        for (int64_t j = 0, n = k->entries[i].n; j < n; j += W)
            v_put(grad + j, v_get(grad + j, n - j) * *k->inverse, n - j);
    }
}

void KERNEL(scaler_update)(const choir__k_scaler_update *k)
{
    choir__scaler_numbers *s = k->numbers;
    bool found = false;
    for (int i = 0; i < k->count; i++)
        found |= *k->found[i] != 0;
    float scale = s->scale;
    s->in_a_row = found ? s->in_a_row + 1 : 0;
    if (found) {
        scale *= k->backoff;
        s->clean = 0;
    } else if (++s->clean >= (float)k->interval) {
        scale = isfinite(scale * k->growth) ? scale * k->growth : scale;
        s->clean = 0;
    }
    s->scale = scale;
    s->inverse = (float)(1 / (double)scale);
    if (s->in_a_row >= (float)k->patience)
        choir__queue_fail(CHOIR_ERR_NONFINITE,
            "gradients were infinite or NaN in %lld steps in a row, down to a loss scale of %g: "
            "it is not the scale; a lower --lr, a warm-up, or bf16, which needs none, may help",
            (long long)k->patience, (double)scale);
}
