/* Opens a run and its first step before each test and closes them after it. Errors that a test
 * made are forgotten. */
#ifndef CHOIR_SCOPES_FIXTURE_H
#define CHOIR_SCOPES_FIXTURE_H

#include <choir/choir.h>

#include "check.h"

/* A test of the table of main, between the two functions below. */
#define IN_SCOPES(test) cmocka_unit_test_setup_teardown(test, open_scopes, close_scopes)

static choir_scope *run, *step;

static inline int open_scopes(void **state)
{
    run = choir_scope_open(NULL, 5);
    step = choir_step_open(run, 0);
    return 0;
}

static inline int close_scopes(void **state)
{
    choir_scope_clear(step);
    choir_scope_clear(run);
    choir_scope_close(step);
    choir_scope_close(run);
    return 0;
}

#endif
