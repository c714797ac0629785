/* Regression trees of a random forest, as boxes: what a tree says in each part of the space. */
#ifndef CHOIR_TUNE_FOREST_H
#define CHOIR_TUNE_FOREST_H

#include "base/base.h"

/* The data: columns of numbers, and a value for each row. */
typedef struct choir__forest_table {
    int columns;
    int64_t rows;
    double *x;          /* (columns, rows) */
    double *y;          /* (rows) */
    double *low, *high; /* (columns) the space, which holds all rows */
    int64_t *order;     /* (columns, rows) rows by x, see choir__table_sort */
} choir__forest_table;

/* A tree's leaves: boxes that fill the space. */
typedef struct choir__leaves {
    int columns;
    int64_t count;
    double *value; /* (count) */
    double *box;   /* (count, columns, 2) from and to */
} choir__leaves;

/* Fills in table->order. */
void choir__table_sort(choir__forest_table *table);
/* Grows a tree (CART, squared error, all columns, to the end) on rows that are drawn with
 * replacement, and replaces *leaves by its leaves. */
void choir__forest_tree(const choir__forest_table *table, uint64_t key, choir__leaves *leaves);
void choir__leaves_free(choir__leaves *leaves);

/* The analysis of a tree's variance: see fanova.c. */

/* Returns the variance of what a tree says over the space low ... high (columns). Tests call
 * it, too. */
double choir__fanova_variance(
    const choir__leaves *leaves, const double *low, const double *high);
/* Returns the variance of its mean over all columns but first ... first + count - 1, as a
 * function of these. Several columns belong to a choice, and each is split in the middle if at
 * all. Tests call it, too. */
double choir__fanova_marginal(
    const choir__leaves *leaves, const double *low, const double *high, int first, int count);

#endif
