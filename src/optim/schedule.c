/* Learning-rate schedules: pure functions of the step. */
#include <choir/optim.h>

#include <math.h>

#include "base/base.h"

choir_schedule choir_schedule_constant(void)
{
    return (choir_schedule){.kind = CHOIR_LR_CONSTANT};
}

choir_schedule choir_schedule_cosine(int64_t warmup, int64_t steps, float min_lr)
{
    return (choir_schedule){
        .kind = CHOIR_LR_COSINE, .warmup = warmup, .steps = steps, .min_lr = min_lr};
}

choir_schedule choir_schedule_linear(int64_t warmup, int64_t steps, float min_lr)
{
    return (choir_schedule){
        .kind = CHOIR_LR_LINEAR, .warmup = warmup, .steps = steps, .min_lr = min_lr};
}

choir_schedule choir_schedule_step(int64_t step_size, float gamma)
{
    return (choir_schedule){.kind = CHOIR_LR_STEP, .step_size = step_size, .gamma = gamma};
}

float choir_schedule_at(const choir_schedule *s, float lr, int64_t t)
{
    if (t < s->warmup)
        return (float)((double)lr * (double)(t + 1) / (double)(s->warmup + 1));
    double span = (double)choir__max(s->steps - s->warmup, 1);
    double done = fmin((double)(t - s->warmup) / span, 1);
    double min = (double)s->min_lr, max = (double)lr;
    switch (s->kind) {
    case CHOIR_LR_CONSTANT: break;
    case CHOIR_LR_COSINE: return (float)(min + 0.5 * (max - min) * (1 + cos(M_PI * done)));
    case CHOIR_LR_LINEAR: return (float)(max + (min - max) * done);
    case CHOIR_LR_STEP:
        return (float)(max * pow((double)s->gamma, (double)(t / choir__max(s->step_size, 1))));
    }
    return lr;
}
