/* Numbers of long runs in bounded memory: when all buckets are full, neighbours are joined, and
 * each holds twice as many rows. A reader that has seen the table gets its last bucket again
 * and the new ones, or all of them after a halving or with a new column. */
#include "cli/watch/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- filling --- */

static void join(choir__watch_cell *to, const choir__watch_cell *a, const choir__watch_cell *b)
{
    choir__watch_cell both = {.sum = a->sum + b->sum, .count = a->count + b->count};
    both.low = !a->count ? b->low : !b->count ? a->low : fminf(a->low, b->low);
    both.high = !a->count ? b->high : !b->count ? a->high : fmaxf(a->high, b->high);
    *to = both;
}

static void halve(choir__watch_table *t)
{
    const int half = CHOIR__WATCH_BUCKETS / 2;
    for (int i = 0; i < half; i++)
        t->x[i] = t->x[2 * i + 1];
    for (int c = 0; c < t->column_count; c++) {
        choir__watch_cell *cells = t->columns[c].cells;
        for (int i = 0; i < half; i++)
            join(&cells[i], &cells[2 * i], &cells[2 * i + 1]);
        memset(cells + half, 0, (size_t)half * sizeof *cells);
    }
    t->buckets = half;
    t->each *= 2;
    t->halvings++;
}

void choir__watch_table_row(choir__watch_table *t, choir__watch_x x)
{
    t->each = t->each ? t->each : 1;
    if (t->rows % t->each == 0) { /* the last bucket is full */
        if (t->buckets == CHOIR__WATCH_BUCKETS)
            halve(t);
        t->buckets++;
    }
    t->rows++;
    t->x[t->buckets - 1] = x;
}

static bool is_named(const choir__watch_column *c, const char *name, size_t length)
{
    return !strncmp(c->name, name, length) && !c->name[length];
}

static int column_of(choir__watch_table *t, const char *name, size_t length, int guess)
{
    for (int k = 0; k < t->column_count; k++) {
        int at = (choir__max(guess, 0) + k) % t->column_count;
        if (is_named(&t->columns[at], name, length))
            return at;
    }
    if (t->column_count == CHOIR__WATCH_COLUMNS || length > CHOIR__WATCH_NAME)
        return -1;
    t->columns[t->column_count] = (choir__watch_column){
        strndup(name, length), choir__calloc(CHOIR__WATCH_BUCKETS, sizeof(choir__watch_cell))};
    return t->column_count++;
}

int choir__watch_table_put(
    choir__watch_table *t, const char *name, size_t length, double value, int guess)
{
    int at = column_of(t, name, length, guess);
    if (at < 0) {
        t->left_out++;
        return at;
    }
    choir__watch_cell *cell = &t->columns[at].cells[t->buckets - 1],
                      one = {value, (float)value, (float)value, 1};
    if (isfinite(value))
        join(cell, cell, &one);
    return at;
}

void choir__watch_table_free(choir__watch_table *t)
{
    for (int c = 0; c < t->column_count; c++) {
        free(t->columns[c].name);
        free(t->columns[c].cells);
    }
    *t = (choir__watch_table){0};
}

/* --- telling --- */

/* Seven digits are more than a picture shows; steps and items are exact. */
enum { SHOWN = 7, EXACT = 15 };

static void put_number(choir__text_buffer *json, double x, int digits)
{
    if (isfinite(x))
        choir__text_value(json, NULL, "%.*g", digits, x);
    else
        choir__text_string(json, NULL, NULL);
}

static double mean_of(const choir__watch_cell *c)
{
    return c->count ? c->sum / (double)c->count : (double)NAN;
}

static double low_of(const choir__watch_cell *c)
{
    return c->count ? (double)c->low : (double)NAN;
}

static double high_of(const choir__watch_cell *c)
{
    return c->count ? (double)c->high : (double)NAN;
}

static void put_cells(const choir__watch_table *t, int column, int from, const char *name,
    double (*of)(const choir__watch_cell *), choir__text_buffer *json)
{
    choir__text_open(json, name, '[');
    for (int i = from; i < t->buckets; i++)
        put_number(json, of(&t->columns[column].cells[i]), SHOWN);
    choir__text_close(json, ']');
}

static void put_axis(const choir__watch_table *t, int from, const char *name, size_t at,
    choir__text_buffer *json)
{
    choir__text_open(json, name, '[');
    for (int i = from; i < t->buckets; i++) {
        double x;
        memcpy(&x, (const char *)&t->x[i] + at, sizeof x);
        put_number(json, x, EXACT);
    }
    choir__text_close(json, ']');
}

bool choir__watch_table_news(const choir__watch_table *t, choir__watch_seen *seen,
    bool (*ranged)(const char *name), choir__text_buffer *json)
{
    if (seen->rows == t->rows)
        return false;
    bool again = seen->halvings != t->halvings || seen->columns != t->column_count;
    int from = again || !seen->buckets ? 0 : seen->buckets - 1;
    choir__text_value(json, "from", "%d", from);
    choir__text_value(json, "left_out", "%d", t->left_out);
    put_axis(t, from, "step", offsetof(choir__watch_x, step), json);
    put_axis(t, from, "seconds", offsetof(choir__watch_x, seconds), json);
    put_axis(t, from, "items", offsetof(choir__watch_x, items), json);
    choir__text_open(json, "columns", '{');
    for (int c = 0; c < t->column_count; c++) {
        choir__text_open(json, t->columns[c].name, '{');
        put_cells(t, c, from, "mean", mean_of, json);
        if (ranged(t->columns[c].name)) {
            put_cells(t, c, from, "low", low_of, json);
            put_cells(t, c, from, "high", high_of, json);
        }
        choir__text_close(json, '}');
    }
    choir__text_close(json, '}');
    *seen = (choir__watch_seen){t->rows, t->halvings, t->column_count, t->buckets};
    return true;
}
