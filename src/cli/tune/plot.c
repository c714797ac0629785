/* Pictures of a study: the list of kinds, and their places.
 *
 *     +---------------------------+-----------------+
 *     | history                   | importance      |
 *     +---------------------------+-----------------+
 *     | parallel coordinates, or rungs beside them  |
 *     +---------------------------------------------+
 *     | slices: a panel per parameter               |
 *     +---------------------------------------------+
 *
 * A part without data leaves its room to the others. */
#include "cli/tune/plot.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "base/named.h"
#include "base/secret.h"
#include "cli/tune/search.h"
#include "line/command.h"
#include "tune/importance/importance.h"

enum { FONT = CHOIR__GNUPLOT_FONT };

typedef struct kind {
    const char *name;
    void (*draw)(
        const choir__plotted *p, FILE *g, choir__panel panel); /* NULL: several parts */
    bool several;                 /* shows several studies side by side */
    int least;                    /* parameters */
    int width, height;            /* size of the picture, in pixels */
    int side, head, foot;         /* room for the texts beside the panels */
    bool values, reports, shares; /* parts of a study that the picture needs */
} kind;

static void draw_all(const choir__plotted *p, FILE *g, choir__panel panel);

static const kind kinds[] = {
    {"all", draw_all, false, 0, 1600, 1200, 100, 120, 15, .values = true},
    {"history", choir__plot_history, false, 0, 1200, 700, 100, 120, 80, .values = true},
    {"slice", choir__plot_slices, false, 1, 1600, 800, 100, 120, 80, .values = true},
    {"parallel", choir__plot_parallel, false, 1, 1600, 700, 110, 150, 90, .values = true},
    {"importance", choir__plot_importance, false, 1, 1000, 600, 240, 120, 60, .shares = true},
    {"rungs", choir__plot_rungs, false, 0, 1200, 700, 100, 140, 80, .reports = true},
    {"front", choir__plot_front, false, 0, 1000, 800, 100, 120, 80, .values = true},
    {"points", choir__plot_points, true, 2, 840, 800, 140, 90, 120, .values = false},
};
static const choir__name_table names = CHOIR__NAME_TABLE(kinds);

/* Returns the name of kind i, or NULL beyond the last. */
static const char *kind_at(size_t i)
{
    return i < CHOIR_COUNT(kinds) ? kinds[i].name : NULL;
}

/* --- checks --- */

static bool is_picture(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot && (!strcmp(dot, ".png") || !strcmp(dot, ".svg"));
}

choir_status choir__tune_picture_check(const char *name, const char *file)
{
    if (choir__find_named(&names, name) < 0)
        return choir__unknown_name(&names, "picture", name);
    if (!is_picture(file))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: expected a file name that ends with .png or .svg", file);
    return choir__gnuplot_check("the picture", file);
}

static choir_status check_study(const kind *k, const choir__plotted *p)
{
    if (k->values && !p->has_values)
        return choir__error(CHOIR_ERR_STATE, "%s: no trial has a value to draw", p->name);
    if (k->reports && !p->has_reports)
        return choir__error(CHOIR_ERR_STATE,
            "%s: expected trials that report several steps, for --kind %s", p->name, k->name);
    if (k->draw == choir__plot_front && choir_study_objectives(p->study) != 2)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected two metrics, got %d, for --kind %s", p->name,
            choir_study_objectives(p->study), k->name);
    if (k->shares && !p->has_shares)
        return choir__error(
            CHOIR_ERR_STATE, "%s: expected complete trials, for --kind %s", p->name, k->name);
    if (p->param_count < k->least)
        return choir__error(CHOIR_ERR_STATE,
            "%s: expected %d parameter%s with different values, for --kind %s", p->name,
            k->least, k->least == 1 ? "" : "s", k->name);
    return CHOIR_OK;
}

/* --- the whole picture --- */

/* Returns whether the importance says something: with few complete trials all shares are equal.
 */
static bool shares_differ(const choir__plotted *p)
{
    for (int i = 1; i < p->param_count && p->has_shares; i++)
        if (p->share[p->param[i]] != p->share[p->param[0]])
            return true;
    return false;
}

/* The pixels from the axes of one row to the axes of the next, and of the texts between them.
 */
enum { ROW = 355, TEXTS = 114, ABOVE = 24 }; /* ABOVE: for numbers above the axes */
/* Axes in half a row; more of them take a whole one. */
enum { HALF_AXES = 6 };

static bool rungs_have_own_row(const choir__plotted *p)
{
    return p->has_reports && p->param_count > HALF_AXES;
}

/* Returns the pixels that `all` takes beyond its usual three rows. */
static int more_height(const choir__plotted *p)
{
    int slices = choir__plot_slice_rows(p);
    return (rungs_have_own_row(p) ? ROW : 0) +
           (slices > 1 ? (slices - 1) * (ROW - TEXTS + CHOIR__PLOT_SLICE_GAP) : 0);
}

/* Draws the history, with the importance beside it, whose names may take some of its room. */
static void draw_first_row(const choir__plotted *p, FILE *g, choir__panel row)
{
    double bars = 0.28 * row.width, width = row.width;
    if (shares_differ(p)) {
        double side = (choir__plot_importance_side(p) + 40) / p->width;
        width = fmin(0.58 * row.width, row.width - bars - side);
        choir__plot_importance(
            p, g, (choir__panel){row.x + row.width - bars, row.y, bars, row.height});
    }
    choir__plot_history(p, g, (choir__panel){row.x, row.y, width, row.height});
}

static void draw_all(const choir__plotted *p, FILE *g, choir__panel area)
{
    double next = (double)ROW / p->height;
    choir__panel row = area;
    if (p->param_count) {
        row.height = (double)(ROW - TEXTS) / p->height;
        row.y = area.y + area.height - row.height;
    }
    draw_first_row(p, g, row);
    if (!p->param_count)
        return;
    bool beside = p->has_reports && !rungs_have_own_row(p);
    row.y -= next;
    row.height -= (double)ABOVE / p->height;
    choir__plot_parallel(p, g,
        (choir__panel){row.x + 0.01, row.y, (beside ? 0.5 : 0.98) * row.width, row.height});
    if (rungs_have_own_row(p))
        row.y -= next;
    if (beside)
        row.x += 0.62 * row.width, row.width *= 0.38;
    if (p->has_reports)
        choir__plot_rungs(p, g, row);
    area.y += (double)TEXTS / p->height;
    area.height = row.y - (double)TEXTS / p->height - area.y;
    choir__plot_slices(p, g, area);
}

static int64_t count_state(const choir__plotted *p, choir_trial_state state)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->count; i++)
        count += p->trial[i].state == state;
    return count;
}

/* "a name", and below it "64 trials: 40 complete, 24 stopped early; best 0.1 (trial 7)". */
static void heading(const choir__plotted *p, FILE *g)
{
    static const char *const words[] = {"running", "complete", "stopped early", "failed"};
    choir__text_buffer text = {0};
    choir__text_format(&text, "%lld trial%s", (long long)p->count, p->count == 1 ? "" : "s");
    const char *sign = ": ";
    for (size_t i = 0; i < CHOIR_COUNT(words); i++) {
        int64_t n = count_state(p, (choir_trial_state)i);
        if (!n)
            continue;
        choir__text_format(&text, "%s%lld %s", sign, (long long)n, words[i]);
        sign = ", ";
    }
    const choir_trial *best = p->objective ? NULL : choir_study_best(p->study);
    if (best)
        choir__text_format(&text, "; best %s %.6g, trial %lld", p->metric,
            choir_trial_value(best, 0), (long long)choir_trial_number(best));
    fprintf(g, "set label 1 ");
    choir__gnuplot_text(g, p->name, choir__gnuplot_room(0.96 * p->width, FONT + 4, 80));
    fprintf(
        g, " at screen 0.02,%g left font ',%d'\nset label 2 ", 1 - 24.0 / p->height, FONT + 4);
    choir__gnuplot_text(g, text.bytes, choir__gnuplot_room(0.96 * p->width, FONT - 1, 160));
    fprintf(g,
        " at screen 0.02,%g left font ',%d' tc rgb '#555555'\n"
        "unset border\nunset tics\nunset key\nplot [0:1][0:1] NaN\n",
        1 - 58.0 / p->height, FONT - 1);
    choir__text_buffer_free(&text);
}

static void write_script(const void *arg, FILE *g)
{
    const choir__tune_picture *picture = arg;
    const kind *k = &kinds[choir__find_named(&names, picture->kind)];
    int width = picture->of[0].width, height = picture->of[0].height;
    choir__gnuplot_begin(g, picture->file, width, height, FONT - 1, 1);
    fprintf(g, "set multiplot\n");
    if (!k->several)
        heading(&picture->of[0], g);
    for (int i = 0; i < picture->count; i++) {
        double share = 1.0 / picture->count, side = (double)k->side / width;
        double head = (double)k->head / height, foot = (double)k->foot / height;
        k->draw(&picture->of[i], g,
            (choir__panel){
                i * share + side, foot, share - side - 50.0 / width, 1 - head - foot});
    }
    fprintf(g, "unset multiplot\n");
}

choir_status choir__tune_picture_draw(const choir__tune_picture *picture)
{
    const kind *k = &kinds[choir__find_named(&names, picture->kind)];
    if (picture->count > 1 && !k->several)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--kind %s: expected one study, got %d; several are drawn with --kind points",
            k->name, picture->count);
    for (int i = 0; i < picture->count; i++) {
        choir_status status = check_study(k, &picture->of[i]);
        if (status != CHOIR_OK)
            return status;
        choir__plotted *p = &picture->of[i];
        p->width = k->width * picture->count;
        p->height = k->height + (k->draw == draw_all ? more_height(p) : 0);
    }
    return choir__gnuplot(write_script, picture);
}

/* --- the command ---
 *
 * choir tune plot: opens the stored studies that it is given, reads the trials of each as
 * numbers to be drawn, and draws one picture of them. The first study chooses the parameters of
 * all. */

enum { MOST_STUDIES = 4 };

typedef struct request {
    const char *kind, *metric, *params, *evaluator, *storage, *dir, *name;
} request;

/* A study that is drawn. */
typedef struct opened {
    choir_study *study;
    choir__trial_job job;
    char *shown; /* where it is stored, without passwords */
} opened;

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"kind", CHOIR__STRING, AT(kind), .preset = "all", .argument = "NAME",
        .help = "the picture; points takes several studies", .choices = kind_at},
    {"metric", CHOIR__STRING, AT(metric), .argument = "NAME",
        .help = "the value that is drawn, of several (default: the first)"},
    {"params", CHOIR__STRING, AT(params), .argument = "NAME,...",
        .help = "these parameters alone, in this order (default: those that vary, the most "
                "important ones first)"},
    {"evaluator", CHOIR__STRING, AT(evaluator), .argument = "NAME", .strict = true,
        .help = "how importance is computed (default ped-anova)",
        .choices = choir__importance_name},
    {"storage", CHOIR__STRING, AT(storage), .argument = "URL",
        .help = "the storage, as the search's own option names it, in place of STUDY"},
    {"dir", CHOIR__STRING, AT(dir), .argument = "DIR", .help = "the search's folder, likewise"},
    {"study", CHOIR__STRING, AT(name), .argument = "NAME",
        .help = "the study's name (default: the only one of the storage)"},
    {NULL},
};

static const choir__line_command command = {
    .name = "tune",
    .usage = "plot [OPTION]... [STUDY]... FILE.png|.svg",
    .about = "Draws a stored study: its history with the best value so far, the parameters "
             "against the value (slice), all parameters side by side (parallel), their "
             "importance, the steps at which trials stopped (rungs), or the trials in "
             "the plane of two parameters (points) or of two metrics (front). STUDY is a "
             "storage, its file, or a folder of --dir.",
    .example = "  choir tune plot runs history.png --kind history",
    .options = options,
    .operand = "STUDY",
    .least = 1,
    .most = MOST_STUDIES + 1,
};

static choir_status open_study(
    const request *r, const char *where, opened *o, const char *params, choir__plotted *p)
{
    choir_status status = choir__tune_open(where, r->name, &o->study);
    if (status != CHOIR_OK)
        return status;
    choir__outcome_job(o->study, &o->job);
    o->shown = choir__hide_passwords(choir__strdup(where));
    *p = (choir__plotted){.study = o->study,
        .space = choir_study_space(o->study),
        .name = o->shown,
        .metrics = o->job.metric,
        .unit = o->job.unit,
        .evaluator = r->evaluator};
    status = choir__plotted_choose(p, r->metric);
    return status == CHOIR_OK ? choir__plotted_read(p, params) : status;
}

/* Names the parameters that the first study's picture shows, for those beside it. */
static char *params_of(const choir__plotted *p)
{
    char *text = choir__strdup("");
    for (int i = 0; i < p->param_count; i++) {
        char *longer =
            choir__format("%s%s%s", text, i ? "," : "", p->space->param[p->param[i]].name);
        free(text);
        text = longer;
    }
    return text;
}

static choir_status draw(
    const request *r, const char *const *studies, int count, const char *file)
{
    opened o[MOST_STUDIES] = {0};
    choir__plotted p[MOST_STUDIES] = {0};
    char *params = r->params ? choir__strdup(r->params) : NULL;
    choir_status status = choir__tune_picture_check(r->kind, file);
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        status = open_study(r, studies[i], &o[i], params, &p[i]);
        if (status == CHOIR_OK && !params)
            params = params_of(&p[i]);
    }
    if (status == CHOIR_OK) {
        choir__tune_picture picture = {p, count, r->kind, file};
        status = choir__tune_picture_draw(&picture);
    }
    for (int i = 0; i < count; i++) {
        choir__plotted_free(&p[i]);
        if (o[i].study)
            choir__outcome_free_job(&o[i].job);
        choir_study_free(o[i].study);
        free(o[i].shown);
    }
    free(params);
    return status;
}

int choir__tune_plot(int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    argv[1] = argv[0];
    int status = choir__line_parse(&command, &r, argc - 1, argv + 1, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (operands.count == 1 && !is_picture(operands.words[0]))
        return choir__line_usage("tune",
            "plot: expected studies and then the picture, FILE.png or FILE.svg, got %s alone",
            operands.words[0]);
    int count = operands.count - 1;
    const char *file = operands.words[count];
    const char *where;
    status = choir__tune_where(r.storage, r.dir, count ? operands.words[0] : NULL, &where);
    if (status != CHOIR__EXIT_OK)
        return status;
    choir_status drawn = count ? draw(&r, (const char *const *)operands.words, count, file)
                               : draw(&r, &where, 1, file);
    if (drawn == CHOIR_OK) {
        printf("%s\n", file);
        return CHOIR__EXIT_OK;
    }
    choir__line_fail();
    return drawn == CHOIR_ERR_ARGUMENT ? CHOIR__EXIT_USAGE : CHOIR__EXIT_FAILED;
}
