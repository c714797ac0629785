/* Curves in the terminal. A character of Unicode's braille has 2 by 4 dots, so 80 columns are a
 * picture of about 140 by 72 dots. Where there are several runs, a letter at the right end of
 * each names it in the list below, and terminals show them in colours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "cli/plot/curve.h"

enum { ROWS = 18, LEFT = 9, RIGHT = 2, LEAST = 30 };

typedef struct canvas {
    int columns;              /* columns of the picture alone */
    unsigned char *dots, *of; /* (ROWS * columns): dots, and the curve that set them */
    double low_x, high_x, low,
        high; /* low, high: range of y; logarithms on a logarithmic scale */
    char labels[ROWS][CHOIR__AXIS_TEXT]; /* "" or the value, left of the picture */
    int left;                            /* columns left of the picture */
    char ends[ROWS];                     /* letters right of the picture */
} canvas;

static double scaled(const choir__plot *p, double y)
{
    return p->logarithmic ? choir__log10(y) : choir__axis_place(y);
}

/* --- the range --- */

static void widen(const choir__plot *p, canvas *c, const choir__points *points)
{
    for (int64_t i = 0; i < points->count; i++) {
        double y = scaled(p, points->y[i]);
        if (!isfinite(y))
            continue;
        c->low = fmin(c->low, y);
        c->high = fmax(c->high, y);
        c->low_x = fmin(c->low_x, choir__axis_place(points->x[i]));
        c->high_x = fmax(c->high_x, choir__axis_place(points->x[i]));
    }
}

static void find_range(const choir__plot *p, canvas *c)
{
    c->low = c->low_x = INFINITY;
    c->high = c->high_x = -INFINITY;
    for (int i = 0; i < p->count; i++) {
        widen(p, c, choir__curve_drawn(&p->curves[i]));
        widen(p, c, &p->curves[i].eval);
    }
    if (!(c->low < c->high)) { /* one value, or none */
        double middle = isfinite(c->low) ? c->low : 0, room = fmax(fabs(middle) * 0.1, 1e-3);
        c->low = middle - room;
        c->high = middle + room;
    }
    if (!(c->low_x < c->high_x)) {
        c->low_x = isfinite(c->low_x) ? c->low_x - 0.5 : 0;
        c->high_x = c->low_x + 1;
    }
}

/* --- dots --- */

static void set_dot(canvas *c, int x, int y, int curve)
{
    static const unsigned char bits[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    if (x < 0 || y < 0 || x >= 2 * c->columns || y >= 4 * ROWS)
        return;
    int at = y / 4 * c->columns + x / 2;
    c->dots[at] |= bits[y % 4][x % 2];
    c->of[at] = (unsigned char)curve;
}

static void draw_line(canvas *c, int x0, int y0, int x1, int y1, int curve)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double part = steps ? (double)i / steps : 0;
        set_dot(
            c, (int)lround(x0 + part * (x1 - x0)), (int)lround(y0 + part * (y1 - y0)), curve);
    }
}

static void draw_curve(const choir__plot *p, canvas *c, int curve)
{
    const choir__points *points = choir__curve_drawn(&p->curves[curve]);
    int before_x = 0, before_y = -1;
    for (int64_t i = 0; i < points->count; i++) {
        double value = scaled(p, points->y[i]);
        if (!isfinite(value))
            continue;
        double share_x = (choir__axis_place(points->x[i]) - c->low_x) / (c->high_x - c->low_x),
               share_y = (value - c->low) / (c->high - c->low);
        int x = (int)lround(share_x * (2 * c->columns - 1)),
            y = (int)lround((1 - share_y) * (4 * ROWS - 1));
        if (before_y < 0)
            set_dot(c, x, y, curve);
        else
            draw_line(c, before_x, before_y, x, y, curve);
        before_x = x;
        before_y = y;
    }
    if (p->count < 2 || before_y < 0)
        return;
    int row = before_y / 4; /* the next free row, if two curves end together */
    for (int k = 0; k < ROWS; k++, row = (row + 1) % ROWS)
        if (!c->ends[row]) {
            c->ends[row] = (char)('a' + curve % 26);
            break;
        }
}

/* --- printing --- */

static const int colours[] = {36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91}, grey = 90;

static void begin_colour(bool on, const choir__plot *p, int curve)
{
    if (on)
        printf("\033[%dm",
            p->curves[curve].stopped ? grey : colours[(size_t)curve % CHOIR_COUNT(colours)]);
}

static void end_colour(bool on)
{
    if (on)
        printf("\033[0m");
}

static void print_cell(const choir__plot *p, const canvas *c, int at, bool colour)
{
    unsigned char dots = c->dots[at];
    if (!dots) {
        putchar(' ');
        return;
    }
    begin_colour(colour, p, c->of[at]);
    printf("\xe2%c%c", 0xa0 + dots / 64, 0x80 + dots % 64); /* U+2800 + dots */
    end_colour(colour);
}

/* Returns the value of a row of the picture. */
static double value_at(const choir__plot *p, const canvas *c, int row)
{
    double y = c->high - (c->high - c->low) * row / (ROWS - 1);
    return p->logarithmic ? choir__pow(10, y) : y;
}

static void write_labels(const choir__plot *p, canvas *c)
{
    c->left = LEFT;
    for (int row = 0; row < ROWS; row++) {
        double y = value_at(p, c, row), next = value_at(p, c, row ? row - 1 : 1);
        if (row % 4 == 0 || row == ROWS - 1)
            choir__axis_text(c->labels[row], y, fabs(next - y));
        c->left = (int)choir__max(c->left, (int64_t)strlen(c->labels[row]) + 2);
    }
}

static void print_rows(const choir__plot *p, const canvas *c, bool colours_on)
{
    bool colour = colours_on && p->count > 1;
    for (int row = 0; row < ROWS; row++) {
        printf("%*s \xe2\x94\x82", c->left - 2, c->labels[row]); /* a vertical line */
        for (int x = 0; x < c->columns; x++)
            print_cell(p, c, row * c->columns + x, colour);
        if (c->ends[row]) {
            begin_colour(colour, p, c->ends[row] - 'a');
            printf(" %c", c->ends[row]);
            end_colour(colour);
        }
        printf("\n");
    }
}

static void print_axis(const choir__plot *p, const canvas *c)
{
    double factor;
    const char *words = choir__axis_words(p, &factor);
    char text[3][CHOIR__AXIS_TEXT];
    double low = c->low_x * factor, high = c->high_x * factor;
    for (int i = 0; i < 3; i++) {
        const double mark = low + (high - low) * i / 2;
        choir__axis_text(
            text[i], p->axis == CHOIR__STEPS ? floor(mark) : mark, (high - low) / 2);
    }
    if (!strcmp(text[1], text[0]) || !strcmp(text[1], text[2]))
        *text[1] = '\0'; /* no whole step lies between them */
    printf("%*s\xe2\x94\x94", c->left - 1, "");
    for (int x = 0; x < c->columns; x++)
        printf("\xe2\x94\x80");
    int half = c->columns / 2;
    printf("\n%*s%-*s%-*s%*s\n", c->left, "", half, text[0], (c->columns - half) / 2, text[1],
        c->columns - half - (c->columns - half) / 2, text[2]);
    printf("%*s%s%s against %s\n", c->left, "", p->logarithmic ? "logarithmic " : "", p->metric,
        words);
}

static void print_runs(const choir__plot *p, const canvas *c, int columns, bool colour)
{
    const double step = fabs(value_at(p, c, 0) - value_at(p, c, ROWS - 1)) / 100;
    for (int i = 0; i < p->count; i++) {
        const choir__points *all = &p->curves[i].all, *eval = &p->curves[i].eval;
        char letter[8] = "", text[3][CHOIR__AXIS_TEXT];
        double least = all->y[0];
        for (int64_t k = 0; k < all->count; k++)
            least = fmin(least, all->y[k]);
        if (p->count > 1)
            snprintf(letter, sizeof letter, "%c  ", 'a' + i % 26);
        choir__axis_text(text[0], all->y[all->count - 1], step);
        choir__axis_text(text[1], least, step);
        if (eval->count)
            choir__axis_text(text[2], eval->y[eval->count - 1], step);
        char *line = choir__format("%.60s: last %s, least %s%s%s%s", p->curves[i].name, text[0],
            text[1], eval->count ? ", validation " : "", eval->count ? text[2] : "",
            p->curves[i].stopped ? "; stopped early" : "");
        begin_colour(colour && p->count > 1, p, i);
        printf("%s", letter);
        end_colour(colour && p->count > 1);
        printf("%.*s\n", columns - (int)strlen(letter), line);
        free(line);
    }
}

void choir__plot_braille(const choir__plot *p, int columns, bool colour)
{
    columns = columns < LEAST ? LEAST : columns;
    canvas c = {0};
    find_range(p, &c);
    write_labels(p, &c);
    c.columns = columns - c.left - RIGHT;
    size_t cells = (size_t)(ROWS * c.columns);
    c.dots = choir__calloc(cells, 1);
    c.of = choir__calloc(cells, 1);
    for (int i = 0; i < p->count; i++)
        draw_curve(p, &c, i);
    print_rows(p, &c, colour);
    print_axis(p, &c);
    print_runs(p, &c, columns, colour);
    free(c.dots);
    free(c.of);
}
