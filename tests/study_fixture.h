/* Studies of tests: a space by its parameters, trials that are asked for and told; and a
 * storage of every kind that is a file, in a folder of its own. */
#ifndef CHOIR_TESTS_STUDY_FIXTURE_H
#define CHOIR_TESTS_STUDY_FIXTURE_H

#include <choir/choir.h>

#include "base/base.h"
#include "helpers.h"

/* Makes a space of pairs: a name, and a distribution as text. */
static inline choir_space *space_of(const char *const *params)
{
    choir_space *s = choir_space_new();
    for (; *params; params += 2)
        ok(choir_space_add(s, params[0], params[1]));
    return s;
}

#define SPACE(...) space_of((const char *const[]){__VA_ARGS__, NULL})

static inline choir_study *open_study(const choir_space *space, choir_study_opts opts)
{
    choir_study *study = NULL;
    ok(choir_study_open(space, opts, &study));
    return study;
}

static inline choir_trial *ask(choir_study *study)
{
    choir_trial *t = NULL;
    ok(choir_study_ask(study, &t));
    return t;
}

static inline void tell(choir_study *study, choir_trial *t, double value)
{
    ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &value, 1));
}

/* --- storages --- */

static char storage_folder[] = "/tmp/choir-stored.XXXXXX";
static char url[128];
static const char *scheme;

static inline int new_storage(void **state)
{
    scheme = *state;
    strcpy(storage_folder, "/tmp/choir-stored.XXXXXX");
    if (!mkdtemp(storage_folder))
        return -1;
    snprintf(url, sizeof url, "%s:%s/study", scheme, storage_folder);
    return 0;
}

static inline int remove_storage(void **state)
{
    return shell("rm -rf %s", storage_folder);
}

/* Runs the tests on every kind of storage, each on a new one; returns the number of failures.
 */
static inline int run_on_storages(const struct CMUnitTest *tests, size_t count)
{
    static char *const schemes[] = {"sqlite", "journal"};
    struct CMUnitTest stored[16];
    int failures = 0;
    assert_true(count <= CHOIR_COUNT(stored));
    for (size_t i = 0; i < CHOIR_COUNT(schemes); i++) {
#ifndef CHOIR_HAVE_SQLITE
        if (i == 0)
            continue;
#endif
        for (size_t k = 0; k < count; k++)
            stored[k] = (struct CMUnitTest){
                tests[k].name, tests[k].test_func, new_storage, remove_storage, schemes[i]};
        failures += _cmocka_run_group_tests(schemes[i], stored, count, NULL, NULL);
    }
    return failures;
}

#endif
