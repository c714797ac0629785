/* Checks inside ranks. cmocka's own would longjmp out of a fork. A rank that fails prints the
 * place and returns 1 from its function, which choir_spawn reports. */
#ifndef CHOIR_TESTS_RANKS_H
#define CHOIR_TESTS_RANKS_H

#include <stdio.h>
#include <choir/status.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                \
                choir_error_message());                                                        \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)

#define CHECK_OK(call) CHECK((call) == CHOIR_OK)

#endif
