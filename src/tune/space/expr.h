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
#ifndef CHOIR_TUNE_EXPR_H
#define CHOIR_TUNE_EXPR_H

#include "base/base.h"

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

#endif
