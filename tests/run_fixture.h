/* Opens a run before each test and closes it after it. Errors that a test made are forgotten.
 */
#ifndef CHOIR_TESTS_RUN_FIXTURE_H
#define CHOIR_TESTS_RUN_FIXTURE_H

#include <choir/choir.h>

#include "check.h"

/* A test of the table of main, between the two functions below. */
#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, open_run, close_run)

static choir_scope *run;

static inline int open_run(void **state)
{
    run = choir_scope_open(NULL, 5);
    return 0;
}

static inline int close_run(void **state)
{
    choir_scope_clear(run);
    choir_scope_close(run);
    return 0;
}

#endif
