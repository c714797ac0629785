/* cmocka, after the headers that it needs, and checks of the messages of errors. */
#ifndef CHOIR_TESTS_CHECK_H
#define CHOIR_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include <choir/status.h>

/* cmocka hands each test a state, choir_spawn each rank its number, and a visit each tensor's
 * name: a function that needs none of them says nothing about it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Seconds on a busy machine: by which a healthy rank may come after the others, so that
 * timeouts which tell of an absent one are no shorter; and after which a process hangs. */
enum { LATE_S = 4, HANGS_S = 60 };

/* Asserts that a call succeeded; else the test fails with the message of the error. */
static inline void ok(choir_status status)
{
    if (status != CHOIR_OK)
        fail_msg("%s: %s", choir_status_name(status), choir_error_message());
}

/* Asserts that the message of the latest error contains the words. */
static inline void assert_says(const char *words)
{
    if (!strstr(choir_error_message(), words))
        fail_msg("'%s' is not in '%s'", words, choir_error_message());
}

/* Asserts that a call returned this error, and that its message contains the words. */
static inline void assert_fails(choir_status status, choir_status expected, const char *words)
{
    if (status != expected)
        fail_msg("expected %s, got %s: %s", choir_status_name(expected),
            choir_status_name(status), choir_error_message());
    assert_says(words);
}

/* Returns how often the text contains the word. */
static inline int occurrences(const char *text, const char *word)
{
    int count = 0;
    while ((text = strstr(text, word)))
        text++, count++;
    return count;
}

#endif
