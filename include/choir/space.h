/* Spaces of hyper-parameters: what a search may vary, and from which distribution.
 *
 *     choir_space *space = choir_space_new();
 *     choir_check(choir_space_add(space, "lr", "log(1e-5, 1e-1)"));
 *     choir_check(choir_space_add(space, "width", "int(64, 512, step=64)"));
 *     choir_check(choir_space_add(space, "heads", "choice(2, 4, 8)"));
 *     choir_check(choir_space_add(space, "optimizer", "choice(sgd, adamw)"));
 *     choir_check(choir_space_add(space, "momentum", "uniform(0, 0.99) if optimizer == sgd"));
 *     choir_check(choir_space_require(space, "width % heads == 0"));
 *
 * | distribution | values |
 * |---|---|
 * | uniform(a, b) | real numbers in [a, b], equally likely |
 * | log(a, b) | real numbers in [a, b], a > 0, whose logarithms are equally likely |
 * | int(a, b[, step=k][, log]) | a, a + k, ... up to b; log: as whole numbers, step 1, a > 0 |
 * | choice(x, y, ...) | one of the words or numbers; quotes protect commas |
 * | normal(m, s) | real numbers with mean m and standard deviation s |
 * | a word or a number | that value alone |
 *
 * A parameter with a condition, "DISTRIBUTION if EXPRESSION", has a value only in trials in
 * which the expression is true; it may name parameters that were added before. Expressions know
 * numbers, words, names of parameters, + - * / %, == != < <= > >=, and, or, not, parentheses.
 *
 * Threads: a space belongs to one thread until a study is opened on it, which takes a copy. */
#ifndef CHOIR_SPACE_H
#define CHOIR_SPACE_H

#include <stdbool.h>
#include <stdint.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_space choir_space;

enum { CHOIR_SPACE_MAX = 256 }; /* parameters of a space */

/** Returns an empty space, which the caller frees. */
choir_space *choir_space_new(void);
/** Frees a space; NULL is allowed. */
void choir_space_free(choir_space *space);

/** Adds a parameter. name: letters, digits, '_', '-' and '.'; the first is a letter or '_'.
 * Errors: argument (a name that is taken, an unknown distribution, an empty range). */
CHOIR_CHECKED choir_status choir_space_add(
    choir_space *space, const char *name, const char *distribution);

/** Adds a condition that each trial's parameters fulfil; other suggestions are drawn again. In
 * a trial where a parameter of the condition has no value, the condition counts as fulfilled.
 * Errors: argument (an expression that does not parse or names no parameter). */
CHOIR_CHECKED choir_status choir_space_require(choir_space *space, const char *condition);

/** Returns the number of parameters. */
int choir_space_count(const choir_space *space);
/** Returns the name of parameter i, in the order in which they were added, or NULL. */
const char *choir_space_name(const choir_space *space, int i);

#ifdef __cplusplus
}
#endif
#endif
