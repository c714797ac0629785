/* Journal files of studies, as choir tune show reads them. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include <choir/study.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_study *s = NULL;
    choir_study_opts opts = choir_study_defaults();
    char url[256];
    snprintf(url, sizeof url, "journal:%s", fuzz_write("study.log", data, size));
    opts.storage = url;
    if (choir_study_open(NULL, opts, &s) != CHOIR_OK)
        return 0;
    const choir_space *space = choir_study_space(s);
    for (int64_t i = 0; i < choir_study_count(s) && i < 64; i++) {
        const choir_trial *t = choir_study_trial(s, i);
        for (int p = 0; p < choir_space_count(space); p++)
            choir_trial_text(t, choir_space_name(space, p));
        if (choir_trial_result(t) > CHOIR_TRIAL_FAIL)
            abort();
        choir_trial_value(t, 0);
        choir_trial_attribute(t, "why");
    }
    choir_study_best(s);
    choir_study_pareto(s, NULL, 0);
    choir_study_free(s);
    return 0;
}
