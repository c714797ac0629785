/* A space's parameters, as samplers and trials see them.
 *
 * A value is one double: the number itself, or for a choice its index in the list; NaN where a
 * trial does not have the parameter. Samplers work in *inner* coordinates, an interval in which
 * the distribution is flat:
 *
 *     uniform, int   the number (int: half a step more on both sides, rounded to the grid)
 *     log            its logarithm
 *     normal         the probability of a smaller number, in [0, 1]
 *     choice         the place in the list: no order, no distance */
#ifndef CHOIR_TUNE_SPACE_H
#define CHOIR_TUNE_SPACE_H

#include <choir/space.h>
#include "base/base.h"

/* Expressions over a space's parameters, as in "width % heads == 0" or "optimizer == sgd". They
 * are parsed once into a tree and evaluated for each suggestion.
 *
 *     or      = and { ("or" | "||") and }
 *     and     = not { ("and" | "&&") not }
 *     not     = ("not" | "!") not | compare
 *     compare = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
 *     sum     = product { ("+" | "-") product }
 *     product = unary { ("*" | "/" | "%") unary }
 *     unary   = "-" unary | NUMBER | 'WORD' | WORD | PARAMETER | "(" or ")"
 *
 * A parameter that a trial lacks has an unknown value, and so has what depends on it: "m > 0
 * and x > 0" is false where x is 0, and unknown where x is 1 and m is missing. */

typedef struct choir__expr choir__expr;

/* A number, a word, or the lack of a value. */
typedef struct choir__expr_value {
    bool missing;
    const char *word; /* NULL: a number */
    double number;
} choir__expr_value;

/* How an expression finds parameters. */
typedef struct choir__expr_names {
    const void *of;
    int (*find)(const void *of, const char *name); /* returns a parameter's number, or -1 */
    /* returns whether the parameter may have the value `word`; for words beside == and != */
    bool (*can_be)(const void *of, int parameter, const char *word);
} choir__expr_names;

/* Parses text. Errors: argument. */
choir_status choir__expr_parse(
    const char *text, const choir__expr_names *names, choir__expr **expr);
void choir__expr_free(choir__expr *expr);

/* Returns whether the expression is true, given the values of all parameters by number; or
 * `if_missing` if it depends on a parameter without a value. */
bool choir__expr_true(
    const choir__expr *expr, const choir__expr_value *values, bool if_missing);

typedef enum choir__dist_kind {
    CHOIR__UNIFORM,
    CHOIR__LOG,
    CHOIR__INTEGER,
    CHOIR__CHOICE,
    CHOIR__NORMAL
} choir__dist_kind;

typedef struct choir__choice {
    char *text;
    bool is_number;
    double number;
    char *json; /* JSON in an Optuna study, if it is neither text nor number; or NULL */
} choir__choice;

typedef struct choir__dist {
    choir__dist_kind kind;
    double low, high; /* range of numbers; normal: mean and standard deviation */
    double step;      /* int: 1 or more; uniform: 0, or a step from an Optuna study */
    bool log;         /* int */
    choir__choice *choices;
    int choice_count;
} choir__dist;

typedef struct choir__hyper {
    char *name;
    char *text; /* the distribution as written by the user */
    choir__dist dist;
    choir__expr *only_if; /* condition; NULL: always active */
} choir__hyper;

struct choir_space {
    choir__hyper *param; /* (count) */
    int count;
    choir__expr **require; /* (require_count) */
    char **require_text;
    int require_count;
};

/* --- distributions (dist.c) --- */

/* Parses "log(1e-5, 0.1)" up to end, which is the text's end or the beginning of " if ".
 * Errors: argument; the message begins with name. */
choir_status choir__dist_parse(
    const char *name, const char *text, const char *end, choir__dist *dist);
void choir__dist_free(choir__dist *dist);
/* Stores in *value the value of a text: a number, or a choice's index. Error: argument, not a
 * value of the distribution. */
choir_status choir__dist_read(
    const choir__dist *dist, const char *name, const char *text, double *value);
/* Returns the value as text, which the caller frees; numbers are read back exactly. */
char *choir__dist_write(const choir__dist *dist, double value);

/* --- inner coordinates (inner.c) --- */

/* Stores the interval of inner coordinates; for choices [0, choice_count]. */
void choir__inner_range(const choir__dist *dist, double *low, double *high);
/* Stores the cell of inner coordinates that becomes this value; returns false if the values
 * are continuous. */
bool choir__inner_cell(const choir__dist *dist, double value, double *from, double *to);
double choir__to_inner(const choir__dist *dist, double value);
/* Returns the value at an inner coordinate, which is first moved into the interval. */
double choir__from_inner(const choir__dist *dist, double inner);
/* Convert between values and [0, 1]: inner coordinates, shifted and scaled. A choice or a whole
 * number is in the middle of its cell. */
double choir__to_cube(const choir__dist *dist, double value);
double choir__from_cube(const choir__dist *dist, double x);
/* Convert to and from coordinates in [0, 1] for models of a function, in which similar values
 * are close. A normal value's coordinate is its distance from the mean, up to four deviations
 * to both sides. choir__line_of_draw maps a uniform draw from [0, 1] to the coordinate of a
 * draw from the distribution. */
double choir__to_line(const choir__dist *dist, double value);
double choir__from_line(const choir__dist *dist, double x);
double choir__line_of_draw(const choir__dist *dist, double x);
/* Returns the number of values, or -1 if they are continuous. */
int64_t choir__dist_size(const choir__dist *dist);

/* --- trials' parameters --- */

/* Appends a parameter with any name and distribution, as Optuna's studies have them, and takes
 * over the distribution; `text` is for people. Error: argument, the space is full. */
choir_status choir__space_take(
    choir_space *space, const char *name, const char *text, choir__dist *dist);
/* Returns parameter i's number, or -1. */
int choir__space_find(const choir_space *space, const char *name);
/* Returns whether parameter i has a value in a trial whose earlier parameters are `values`. */
bool choir__space_active(const choir_space *space, int i, const double *values);
/* Returns the first condition of the space that does not hold, or -1: all do. */
int choir__space_broken(const choir_space *space, const double *values);
/* Returns whether all conditions of the space hold. */
bool choir__space_allows(const choir_space *space, const double *values);
/* Returns the beginning of " if CONDITION" in a parameter's text, or the text's end. */
const char *choir__space_condition(const choir__hyper *param);
/* Return whether the spaces have the same parameters in the same order, and whether they
 * require the same conditions (same.c). */
bool choir__space_same(const choir_space *a, const choir_space *b);
bool choir__space_requires_same(const choir_space *a, const choir_space *b);
/* Returns a copy, which the caller frees. */
choir_space *choir__space_copy(const choir_space *space);

#endif
