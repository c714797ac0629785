/* A pattern in the terminal and as an SVG: the data of each rank, and the transfers.
 *
 * Rank 0's data are "a", rank 1's "b"; "ab" is their sum. In the picture each step is a panel
 * with one column per rank and one row per chunk, in the state before the step, and one arrow
 * for each chunk that the step sends: orange if it is added, blue if it replaces data. The more
 * ranks' data a sum contains, the darker it is; a complete one is green. */
#include <choir/pattern.h>

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "comm/pattern/walk.h"

enum { LETTERS = 8, SHOWN = 16, CHUNKS_SHOWN = 64, COLUMNS = 80, TEXT = 24 };

/* Returns "abd", or "3/16" if that would be too long. */
static const char *parts_text(const choir_pattern *p, uint64_t parts, char text[TEXT])
{
    int n = 0;
    if (p->ranks > LETTERS && __builtin_popcountll(parts) > 1) {
        snprintf(text, TEXT, "%d/%d", __builtin_popcountll(parts), p->ranks);
        return text;
    }
    for (int r = 0; r < p->ranks; r++)
        if (parts >> r & 1)
            text[n++] = (char)(r < 26 ? 'a' + r : r < 52 ? 'A' + r - 26 : '0' + r - 52);
    text[n] = 0;
    return text;
}

/* Returns the end of a step's moves; `first` is the first move. */
static int step_end(const choir_pattern *p, int first, int step)
{
    while (first < p->move_count && p->moves[first].step == step)
        first++;
    return first;
}

static const char *phase(const choir_pattern *p, int first, int end)
{
    int added = 0;
    for (int i = first; i < end; i++)
        added += p->moves[i].added;
    return added == end - first ? "what comes is added"
           : added              ? "what comes is added, or takes its place"
                                : "what comes takes its place";
}

/* --- the terminal --- */

/* Returns how the chunk reached the rank in the previous step: '+' added, '=' replaced. */
static char mark(const choir_pattern *p, int step, int rank, int chunk)
{
    for (int i = 0; i < p->move_count; i++) {
        const choir_pattern_move *m = &p->moves[i];
        if (m->step == step - 1 && m->to == rank && m->chunk <= chunk &&
            chunk < m->chunk + m->chunks)
            return m->added ? '+' : '=';
    }
    return ' ';
}

static void print_table(const choir_pattern *p, int step, FILE *file)
{
    char text[TEXT];
    const int width = (int)choir__max(5, p->ranks > LETTERS ? 5 : p->ranks);
    for (int r = 0; r < p->ranks; r++) {
        fprintf(file, "  rank %-3d", r);
        for (int c = 0; c < p->chunks; c++) {
            parts_text(p, choir_pattern_parts(p, step, r, c), text);
            fprintf(file, " %c%-*s", mark(p, step, r, c), c + 1 < p->chunks ? width : 0,
                *text ? text : ".");
        }
        fputc('\n', file);
    }
}

static void print_moves(const choir_pattern *p, int first, int end, FILE *file)
{
    int column = 0;
    for (int i = first; i < end; i++) {
        const choir_pattern_move *m = &p->moves[i];
        char text[64], last[16] = "";
        if (m->chunks > 1)
            snprintf(last, sizeof last, "-%d", m->chunk + m->chunks - 1);
        int used = snprintf(text, sizeof text, "  %d -> %d: chunk%s %d%s", m->from, m->to,
            m->chunks > 1 ? "s" : "", m->chunk, last);
        if (column && column + used > COLUMNS)
            column = 0, fputc('\n', file);
        column += used;
        fputs(text, file);
    }
    fputc('\n', file);
}

choir_status choir_pattern_print(const choir_pattern *p, FILE *file)
{
    if (!p)
        return choir__missing(__func__, "pattern");
    if (!file)
        return choir__missing(__func__, "file");
    const bool table = p->ranks <= SHOWN && p->chunks <= SHOWN;
    fprintf(file, "%s %s: %d ranks, %d chunks, %d steps\n", choir__algorithm_name(p->algorithm),
        choir__kind_name(p->kind), p->ranks, p->chunks, p->steps);
    if (table)
        print_table(p, 0, file);
    for (int step = 0, first = 0, end; step < p->steps; step++, first = end) {
        end = step_end(p, first, step);
        fprintf(file, "step %d: %s\n", step + 1, phase(p, first, end));
        print_moves(p, first, end, file);
        if (table)
            print_table(p, step + 1, file);
    }
    return ferror(file) ? choir__error(CHOIR_ERR_IO, "a pattern could not be written: %s",
                              strerror(errno))
                        : CHOIR_OK;
}

/* --- the SVG; lengths in pixels --- */

enum {
    HEIGHT = 22, /* height of a cell */
    GAP = 26,    /* between ranks, for arrows */
    PITCH = 42,  /* from one chunk to the next */
    MARGIN = 24,
    LABEL = 52, /* left of the cells */
    TITLE = 44, /* above the cells */
    PAGE = 1300,
};

typedef struct page {
    const choir_pattern *p;
    FILE *file;
    int cell;                  /* width of a cell */
    int width, height, across; /* size of a panel; panels per row */
} page;

static int panel_x(const page *g, int step)
{
    return MARGIN + step % g->across * (g->width + MARGIN);
}

static int panel_y(const page *g, int step)
{
    return 2 * MARGIN + 20 + step / g->across * (g->height + MARGIN);
}

static int cell_x(const page *g, int step, int rank)
{
    return panel_x(g, step) + LABEL + rank * (g->cell + GAP);
}

static int cell_y(const page *g, int step, int chunk)
{
    return panel_y(g, step) + TITLE + chunk * PITCH;
}

static void draw_cell(const page *g, int step, int rank, int chunk)
{
    char text[TEXT];
    const uint64_t parts = choir_pattern_parts(g->p, step, rank, chunk);
    const int has = __builtin_popcountll(parts);
    const bool whole = has == g->p->ranks && has > 1;
    /* The shade goes from nearly white to gray-green. */
    const int shade = has ? 10 + 45 * has / g->p->ranks : 0;
    const int x = cell_x(g, step, rank), y = cell_y(g, step, chunk);
    fprintf(g->file,
        "<rect x='%d' y='%d' width='%d' height='%d' rx='3' fill='%s' fill-opacity='%.2f' "
        "stroke='#868e96'/>\n",
        x, y, g->cell, HEIGHT, whole ? "#2b8a3e" : "#0b7285", whole ? 1 : shade / 100.0);
    if (has)
        fprintf(g->file, "<text x='%d' y='%d' text-anchor='middle' fill='%s'>%s</text>\n",
            x + g->cell / 2, y + HEIGHT - 6, whole ? "white" : "#212529",
            parts_text(g->p, parts, text));
}

/* Arrows to a neighbor are straight; longer ones are arcs below the cells. */
static void draw_arrow(const page *g, const choir_pattern_move *m, int chunk)
{
    const char *color = m->added ? "#e8590c" : "#1c7ed6", *head = m->added ? "add" : "put";
    const int from = cell_x(g, m->step, m->from), to = cell_x(g, m->step, m->to);
    const int y = cell_y(g, m->step, chunk), side = m->to > m->from ? 8 : -8;
    fprintf(g->file, "<path fill='none' stroke='%s' stroke-width='2' marker-end='url(#%s)' d='",
        color, head);
    if (m->to == m->from + 1)
        fprintf(g->file, "M%d %d H%d", from + g->cell + 2, y + HEIGHT / 2, to - 4);
    else if (m->to == m->from - 1)
        fprintf(g->file, "M%d %d H%d", from - 2, y + HEIGHT / 2, to + g->cell + 4);
    else
        fprintf(g->file, "M%d %d C%d %d %d %d %d %d", from + g->cell / 2 + side, y + HEIGHT + 1,
            from + g->cell / 2 + 2 * side, y + HEIGHT + 18, to + g->cell / 2 - side,
            y + HEIGHT + 18, to + g->cell / 2 - side, y + HEIGHT + 4);
    fprintf(g->file, "'/>\n");
}

static void draw_panel(const page *g, int step, int first, int end)
{
    const choir_pattern *p = g->p;
    const int x = panel_x(g, step), y = panel_y(g, step);
    if (step < p->steps)
        fprintf(g->file, "<text x='%d' y='%d' font-weight='bold'>step %d: %s</text>\n", x,
            y + 14, step + 1, phase(p, first, end));
    else
        fprintf(
            g->file, "<text x='%d' y='%d' font-weight='bold'>in the end</text>\n", x, y + 14);
    for (int r = 0; r < p->ranks; r++)
        fprintf(g->file, "<text x='%d' y='%d' text-anchor='middle'>rank %d</text>\n",
            cell_x(g, step, r) + g->cell / 2, y + TITLE - 8, r);
    for (int c = 0; c < p->chunks; c++) {
        fprintf(g->file, "<text x='%d' y='%d' fill='#868e96'>chunk %d</text>\n", x,
            cell_y(g, step, c) + HEIGHT - 6, c);
        for (int r = 0; r < p->ranks; r++)
            draw_cell(g, step, r, c);
    }
    for (int i = first; i < end; i++)
        for (int c = 0; c < p->moves[i].chunks; c++)
            draw_arrow(g, &p->moves[i], p->moves[i].chunk + c);
}

static void draw(const page *g, int width, int height)
{
    static const char arrow[] =
        "<marker id='%s' viewBox='0 0 8 8' refX='6' refY='4' markerWidth='5' "
        "markerHeight='5' orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='%s'/></marker>\n";
    const choir_pattern *p = g->p;
    fprintf(g->file,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
        "font-family='sans-serif' font-size='12'>\n<defs>",
        width, height, width, height);
    fprintf(g->file, arrow, "add", "#e8590c");
    fprintf(g->file, arrow, "put", "#1c7ed6");
    fprintf(g->file,
        "</defs>\n<rect width='100%%' height='100%%' fill='white'/>\n"
        "<text x='%d' y='%d' font-size='16' font-weight='bold'>%s %s: %d ranks, %d chunks, "
        "%d steps</text>\n",
        MARGIN, MARGIN + 8, choir__algorithm_name(p->algorithm), choir__kind_name(p->kind),
        p->ranks, p->chunks, p->steps);
    for (int step = 0, first = 0, end; step <= p->steps; step++, first = end) {
        end = step_end(p, first, step);
        draw_panel(g, step, first, end);
    }
    fprintf(g->file, "</svg>\n");
}

choir_status choir_pattern_svg(const choir_pattern *p, const char *path)
{
    if (!p)
        return choir__missing(__func__, "pattern");
    if (!path)
        return choir__missing(__func__, "path");
    page g = {.p = p};
    if (p->ranks > SHOWN || p->chunks > CHUNKS_SHOWN)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "a picture: expected at most %d ranks and %d chunks, got %d and %d", SHOWN,
            CHUNKS_SHOWN, p->ranks, p->chunks);
    g.cell = (int)choir__max(46, 8 * choir__min(p->ranks, LETTERS));
    g.width = LABEL + p->ranks * (g.cell + GAP) - GAP;
    g.height = TITLE + p->chunks * PITCH;
    g.across =
        (int)choir__max(1, choir__min((PAGE - MARGIN) / (g.width + MARGIN), p->steps + 1));
    const int down = p->steps / g.across + 1;
    if (!(g.file = choir__file_try_output(path)))
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, strerror(errno));
    draw(&g, MARGIN + g.across * (g.width + MARGIN),
        2 * MARGIN + 20 + down * (g.height + MARGIN));
    bool failed = ferror(g.file);
    if (fclose(g.file) || failed)
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, strerror(errno));
    return CHOIR_OK;
}
