/* choir tune plot: opens the stored studies that it is given, reads the trials of each as
 * numbers to be drawn, and draws one picture of them. The first study chooses the parameters of
 * all. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "line/command.h"
#include "cli/tune/plot.h"
#include "cli/tune/search.h"
#include "tune/importance/importance.h"

enum { MOST_STUDIES = 4 };

typedef struct request {
    const char *kind, *metric, *params, *evaluator, *name;
} request;

/* A study that is drawn. */
typedef struct opened {
    choir_study *study;
    choir__trial_job job;
} opened;

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"kind", CHOIR__STRING, AT(kind), .preset = "all", .argument = "NAME",
        .help = "the picture; points takes several studies",
        .choices = choir__tune_picture_kind},
    {"metric", CHOIR__STRING, AT(metric), .argument = "NAME",
        .help = "the value that is drawn, of several (default: the first)"},
    {"params", CHOIR__STRING, AT(params), .argument = "NAME,...",
        .help = "these parameters alone, in this order (default: those that vary, the most "
                "important ones first)"},
    {"evaluator", CHOIR__STRING, AT(evaluator), .argument = "NAME", .strict = true,
        .help = "how importance is computed: ped-anova (the default) or fanova",
        .choices = choir__importance_name},
    {"study", CHOIR__STRING, AT(name), .argument = "NAME",
        .help = "the study's name (default: the only one of the storage)"},
    {NULL},
};

static const choir__cli_command command = {
    .name = "tune",
    .usage = "plot [OPTION]... STUDY... FILE.png|.svg",
    .about = "Draws a stored study: its history with the best value so far, the parameters "
             "against the value (slice), all parameters side by side (parallel), their "
             "importance, the steps at which trials stopped (rungs), or the trials in "
             "the plane of two parameters (points) or of two metrics (front). STUDY is a "
             "storage, its file, or a folder of --dir.",
    .example = "  choir tune plot runs history.png --kind history",
    .options = options,
    .operand = "STUDY",
    .least = 2,
    .most = MOST_STUDIES + 1,
};

static choir_status open_study(
    const request *r, const char *where, opened *o, const char *params, choir__plotted *p)
{
    choir_status status = choir__tune_open(where, r->name, &o->study);
    if (status != CHOIR_OK)
        return status;
    choir__outcome_job(o->study, &o->job);
    *p = (choir__plotted){.study = o->study,
        .space = choir_study_space(o->study),
        .name = where,
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

static choir_status draw(const request *r, char **studies, int count, const char *file)
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
    }
    free(params);
    return status;
}

int choir__tune_plot(int argc, char **argv)
{
    request r = {0};
    choir__cli_operands operands;
    argv[1] = argv[0];
    int status = choir__cli_parse(&command, &r, argc - 1, argv + 1, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    const char *file = operands.words[operands.count - 1];
    choir_status drawn = draw(&r, operands.words, operands.count - 1, file);
    if (drawn == CHOIR_OK)
        return CHOIR__EXIT_OK;
    choir__cli_fail();
    return drawn == CHOIR_ERR_ARGUMENT ? CHOIR__EXIT_USAGE : CHOIR__EXIT_FAILED;
}
