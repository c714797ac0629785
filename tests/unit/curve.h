/* Trials for tests of schedulers: curves that fall to a level of their own, and the table of a
 * study, which must not depend on its workers. */
#ifndef CHOIR_TEST_CURVE_H
#define CHOIR_TEST_CURVE_H

#include <math.h>

#include "study_fixture.h"

enum { CURVE_STEPS = 27 };

/* Decides whose turn it is. */
static unsigned dice;

static inline int roll(int sides)
{
    dice = dice * 1103515245u + 12345u;
    return (int)(dice >> 16) % sides;
}

static inline choir_space *curve_space(void)
{
    return SPACE(
        "lr", "log(1e-4, 1)", "width", "int(16, 64, step=16)", "kind", "choice(a, b, c)");
}

static inline double curve_at(const choir_trial *t, int64_t step)
{
    double level = fabs(log10(choir_trial_real(t, "lr")) + 2) +
                   64 / choir_trial_real(t, "width") / 8 +
                   0.1 * (choir_trial_text(t, "kind")[0] - 'a');
    return level + 3 * exp(-(double)step / 6) + 0.3 * sin(7 * level + (double)step);
}

/* Returns how a trial ends at a step: some always fail. stop: it was stopped there. */
static inline choir_trial_state curve_end(const choir_trial *t, int64_t step, bool stop)
{
    if (choir_trial_number(t) % 11 == 4)
        return CHOIR_TRIAL_FAIL;
    return step == CURVE_STEPS && !stop ? CHOIR_TRIAL_COMPLETE : CHOIR_TRIAL_PRUNED;
}

/* Returns the table of trials, which the caller frees. */
static inline char *curve_table(const choir_study *study)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int64_t i = 0; i < choir_study_count(study); i++) {
        choir_trial *t = choir_study_trial(study, i);
        fprintf(out, "%s %s %s %d %.17g parent %lld steps %lld budget %lld\n",
            choir_trial_text(t, "lr"), choir_trial_text(t, "width"),
            choir_trial_text(t, "kind"), (int)choir_trial_result(t), choir_trial_value(t, 0),
            (long long)choir_trial_parent(t), (long long)choir_trial_step(t),
            (long long)choir_trial_budget(t));
    }
    fprintf(out, "best %lld\n", (long long)choir_trial_number(choir_study_best(study)));
    fclose(out);
    return text;
}

#endif
