/* Whether the options of a training job fit one another, and what follows from them: the
 * strategy and its mesh, the devices, the number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/augment.h>

#include "base/options.h"
#include "job/edit.h"
#include "job/trainer/spike.h"
#include "job/bits.h"
#include "job/pairs.h"
#include "job/trainer/find_lr.h"
#include "job/trainer/eval_policy.h"
#include "job/trainer/metric.h"
#include "launch/launchers.h"

/* Strategies that can run in one process or over ranks run over ranks. The exception is the
 * innermost one of a composition, if the requested number of ranks equals the others' number:
 * it then gets the devices of each process. */
static void go_over_ranks(choir__composition *c, int ranks, int product)
{
    for (int d = 0; d < c->count; d++) {
        const choir__job_strategy *over = c->dims[d].strategy->over_ranks;
        bool inside = d > 0 && d == c->count - 1 && ranks * c->dims[d].size == product;
        if (over && !(inside && ranks < product))
            c->dims[d].strategy = over;
    }
}

/* Fits the mesh to the strategies, and sets the number of ranks if the mesh determines it. */
static choir_status fit_mesh(choir__job *j)
{
    choir__composition *c = &j->placement.composition;
    int asked = j->ranks.launched && j->ranks.world > 1 ? j->ranks.world : j->placement.nproc,
        product = 1, ranks;
    if (!j->placement.mesh && c->count > 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--strategy %s: missing --mesh with %d sizes, the outermost first, as in --mesh %s",
            j->placement.strategy_text, c->count, c->count == 2 ? "2x2" : "2x2x2");
    if (j->placement.mesh && choir__composition_mesh(c, j->placement.mesh) != CHOIR_OK)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--mesh %s: %s", j->placement.mesh, choir_error_message());
    for (int d = 0; d < c->count; d++)
        product *= c->dims[d].size;
    ranks = j->placement.mesh ? product : asked;
    if (j->placement.mesh || asked > 1)
        go_over_ranks(c, asked ? asked : ranks, product);
    if (choir__composition_inside(c))
        ranks /= c->dims[c->count - 1].size;
    if (j->placement.mesh && asked && ranks != asked)
        return choir__error(CHOIR_ERR_ARGUMENT,
            j->ranks.launched ? "--mesh %s: expected %d ranks, got %d that were started"
                              : "--mesh %s: expected %d ranks, got --nproc %d",
            j->placement.mesh, ranks, asked);
    j->placement.nproc = ranks;
    return CHOIR_OK;
}

/* Lists the strategies that can have several ranks, as "a, b, c". */
static void list_rank_strategies(char *text, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; choir__job_strategies[i] && used < bytes; i++) {
        const choir__job_strategy *s = choir__job_strategies[i];
        if (s->over_ranks || choir__job_strategy_has_ranks(s))
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", s->name);
    }
}

static choir_status parse_strategy(choir__job *j)
{
    choir_status status = choir__job_auto_begin(j);
    if (status != CHOIR_OK)
        return status;
    if (choir__composition_parse(j->placement.strategy_text, &j->placement.composition) !=
        CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT, "--strategy %s: %s", j->placement.strategy_text,
            choir_error_message());
    status = fit_mesh(j);
    if (status != CHOIR_OK)
        return status;
    j->placement.strategy = choir__composition_strategy(&j->placement.composition);
    if (choir__job_strategy_has_ranks(j->placement.strategy) || j->placement.nproc <= 1)
        return CHOIR_OK;
    char list[256];
    list_rank_strategies(list, sizeof list);
    if (j->ranks.launched)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--strategy %s: expected one rank, got %d that were started; strategies for "
            "several ranks are %s",
            j->placement.strategy->name, j->ranks.world, list);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--nproc %d with --strategy %s: strategies for several ranks are %s",
        j->placement.nproc, j->placement.strategy->name, list);
}

choir_status choir__job_devices_once(const choir__job_placement *p)
{
    for (int i = 1; i < p->device_count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(p->device_names[i], p->device_names[k]))
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "--devices %s: %s is named twice; one process needs different devices",
                    p->devices, p->device_names[i]);
    return CHOIR_OK;
}

/* Two ranks may share a device, but the devices of one process must differ. */
static choir_status check_devices(choir__job *j)
{
    const choir__composition *c = &j->placement.composition;
    bool inside = choir__composition_inside(c);
    const int each = choir__job_strategy_devices(&j->placement);
    if (each > CHOIR__MAX_DEVICES)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--strategy %s: expected at most %d devices in one process, got %d",
            j->placement.strategy_text, CHOIR__MAX_DEVICES, each);
    if (inside && c->dims[c->count - 1].size > j->placement.device_count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--mesh %s with --nproc %d: expected %d devices per rank, got %d",
            j->placement.mesh, j->placement.nproc, c->dims[c->count - 1].size,
            j->placement.device_count);
    return inside || j->placement.strategy->spread == CHOIR__ALL_DEVICES
               ? choir__job_devices_once(&j->placement)
               : CHOIR_OK;
}

/* Checks names and their options as far as that is possible without data. */
static choir_status check_words(choir__job *j)
{
    choir_model_info info = {0};
    choir_status status = j->model.name ? choir_model_describe(j->model.name, &info) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = choir__job_check_optimizer(j);
    choir_augment_opts augment = choir_augment_defaults();
    if (status == CHOIR_OK && j->data.augment)
        status = choir_augment_parse(j->data.augment, &augment);
    return status == CHOIR_OK ? CHOIR_OK
                              : choir__error(CHOIR_ERR_ARGUMENT, "%s", choir_error_message());
}

/* Uses the launcher's ranks; else the requested number; else one rank per named device, if the
 * strategy has ranks. */
static choir_status count_ranks(choir__job *j)
{
    bool ranks = choir__job_strategy_has_ranks(j->placement.strategy);
    if (j->ranks.launched)
        j->placement.nproc = j->ranks.world;
    if (!j->placement.nproc)
        j->placement.nproc = ranks && j->placement.devices ? j->placement.device_count : 1;
    if (j->placement.nproc > CHOIR__MAX_DEVICES && !j->ranks.launched && !j->placement.imagined)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected at most %d ranks of one machine, got %d; choir run starts more on "
            "several",
            j->placement.mesh ? "--mesh" : "--nproc", CHOIR__MAX_DEVICES, j->placement.nproc);
    return CHOIR_OK;
}

/* The job that is resumed keeps its cut. */
static choir_status settle_cut(choir__job *j)
{
    choir__composition before = {0};
    const char *strategy =
        j->saves.resumed
            ? choir__job_recorded(&j->saves, CHOIR__JOB_OPTION(placement.strategy_text)->name)
            : NULL;
    if (strategy && choir__composition_parse(strategy, &before) != CHOIR_OK)
        (void)choir_error_message(); /* marks the error as read: the record is compared later */
    choir__composition_settle(
        &j->placement.composition, &before, j->placement.nproc, j->training.microbatches);
    choir__composition_free(&before);
    return CHOIR_OK;
}

/* The launcher's number of ranks counts. */
static void note_nproc(choir__job *j)
{
    int asked = j->placement.nproc;
    if (!j->ranks.launched || asked == j->ranks.world ||
        !choir__job_was_given(j, CHOIR__JOB_OPTION(placement.nproc)))
        return;
    j->placement.nproc = j->ranks.world;
    if (j->ranks.rank > 0)
        return;
    char *note =
        choir__format("another program has started %d rank%s: --nproc %d has no effect",
            j->ranks.world, j->ranks.world == 1 ? "" : "s", asked);
    choir__job_tell_notes(j, note);
    free(note);
}

/* choir run, mpirun and srun specify a rank's place. A single process of mpirun or srun counts
 * as started by hand. */
static choir_status find_launcher(choir__job *j)
{
    choir__launcher l;
    if (choir__launcher_find(false, &l) != CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s", choir_error_message());
    j->ranks.launched = l.name && (l.world > 1 || strcmp(l.name, "RANK") == 0);
    j->ranks.nameless =
        j->ranks.launched && !strcmp(l.name, "RANK") && !*l.job && !l.agent_store;
    j->ranks.relayed = l.name && !strcmp(l.name, "mpirun");
    j->ranks.rank = j->ranks.launched ? l.rank : 0;
    j->ranks.world = j->ranks.launched ? l.world : 1;
    note_nproc(j);
    return CHOIR_OK;
}

/* Checks what standard input, which is read once, cannot do. */
static choir_status check_stream(choir__job *j)
{
    if (!choir__job_is_stream(&j->data))
        return CHOIR_OK;
    if (j->saves.resume)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--resume %s: standard input cannot be read again from where it was: begin another "
            "run from its weights by --weights %s/latest",
            j->saves.resume, j->saves.resume);
    if (strcmp(j->command, "train"))
        return choir__error(CHOIR_ERR_ARGUMENT, "-: standard input can be read only once");
    if (j->ranks.launched && j->ranks.world > 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "-: standard input has one reader: start the ranks by choir train --nproc");
    return CHOIR_OK;
}

bool choir__job_may_be_kept(const choir__job *j)
{
    return j->ranks.launched && !j->ranks.no_copy &&
           choir__job_strategy_recovery(j) != CHOIR__NO_RECOVERY;
}

double choir__job_seconds(const char *text)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char number[32];
    double value, each = 1;
    size_t length = text ? strlen(text) : 0;
    if (!text)
        return 0;
    for (size_t i = 0; i < CHOIR_COUNT(units) && length; i++)
        if (text[length - 1] == units[i].unit) {
            each = units[i].seconds;
            length--;
            break;
        }
    if (length == 0 || length >= sizeof number)
        return -1;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    return choir__parse_float(number, 0.001, 1e12, &value) ? value * each : -1;
}

static choir_status recall(choir__job *j)
{
    return j->saves.resume ? choir__job_recall(j) : CHOIR_OK;
}

static choir_status check_without(choir__job *j)
{
    return !j->document.without || j->document.file || j->saves.resume
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--without %s: expected a job file or --resume, whose options it leaves "
                     "out",
                     j->document.without);
}

static choir_status check_times(choir__job *j)
{
    const struct {
        const choir__line_option *option;
        const char *text;
    } times[] = {{CHOIR__JOB_OPTION(training.max_time), j->training.max_time},
        {CHOIR__JOB_OPTION(saves.grace), j->saves.grace}};
    for (size_t i = 0; i < CHOIR_COUNT(times); i++)
        if (choir__job_seconds(times[i].text) < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--%s: expected a time such as 90s, 15m, 2h or 1d, got '%s'",
                times[i].option->name, times[i].text);
    return CHOIR_OK;
}

static choir_status read_devices(choir__job *j)
{
    choir__job_placement *p = &j->placement;
    return (p->imagined ? choir__job_devices_list : choir__job_devices_read)(
        p->devices, p->device_names, CHOIR_COUNT(p->device_names), &p->device_count);
}

/* Refuses a class of bits that this job's kind of device lacks, if the command line names it. A
 * document's class binds only devices of its own kind: a job that continues on others has other
 * numbers. */
static choir_status check_bits(choir__job *j)
{
    const char *bits = j->optim.bits;
    const bool gpus = choir__job_has_gpus(&j->placement);
    if (!bits || !strcmp(bits, "auto") || gpus == !strcmp(bits, "cuda") ||
        !choir__job_was_given(j, CHOIR__JOB_OPTION(optim.bits)))
        return CHOIR_OK;
    return gpus
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "--bits %s: GPUs compute in the class cuda; choose it, or auto", bits)
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--bits cuda: expected GPUs, got processors; choose chain, amx, onednn or "
                     "auto");
}

/* In this order. USAGE: a wrong argument that is found here is one of the options themselves,
 * and not one of a file that they name. PLACES: it follows from the strategy, its mesh and its
 * ranks. */
enum { USAGE = 1, PLACES = 2 };
static const struct {
    choir_status (*check)(choir__job *j);
    int is;
} checks[] = {
    {find_launcher, USAGE},
    {check_without, USAGE},
    {recall, 0},
    {choir__job_check_skips, USAGE},
    {choir__job_join_skips, 0},
    {check_stream, USAGE},
    {choir__job_check_pairs, USAGE},
    {check_times, USAGE},
    {parse_strategy, USAGE | PLACES},
    {choir__job_check_strategy, USAGE | PLACES},
    {read_devices, USAGE},
    {check_devices, USAGE | PLACES},
    {check_bits, USAGE},
    {choir__job_published, 0},
    {check_words, USAGE},
    {choir__metric_check, USAGE},
    {choir__eval_policy_check, USAGE},
    {choir__spike_check, USAGE},
    {choir__rate_test_check, USAGE},
    {choir__job_check_audit, USAGE},
    {count_ranks, USAGE | PLACES},
    {settle_cut, USAGE | PLACES},
};

choir_status choir__job_common_cut(choir__job *j)
{
    choir__job_training *t = &j->training;
    const int64_t devices = j->placement.device_count;
    for (int64_t m = 4 * devices; !t->microbatches && m >= devices; m--)
        if (t->batch_size % m == 0)
            t->microbatches = m;
    /* tp, cp and stages share a micro-batch; the others say that each rank needs one */
    if (!t->microbatches && t->batch_size < devices)
        t->microbatches = t->batch_size;
    if (t->microbatches)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "a batch of %lld cannot be cut into micro-batches of one size for %lld devices; %lld would "
        "do",
        (long long)t->batch_size, (long long)devices,
        (long long)((t->batch_size / devices + 1) * devices));
}

choir_status choir__job_check(choir__job *j, bool *usage)
{
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(checks) && status == CHOIR_OK; i++) {
        status = checks[i].check(j);
        *usage = (checks[i].is & USAGE) && status == CHOIR_ERR_ARGUMENT;
    }
    return status;
}

choir_status choir__job_settle_place(choir__job *j)
{
    choir_status status = CHOIR_OK;
    choir__composition_free(&j->placement.composition);
    j->placement.composition = (choir__composition){0};
    for (size_t i = 0; i < CHOIR_COUNT(checks) && status == CHOIR_OK; i++)
        if (checks[i].is & PLACES)
            status = checks[i].check(j);
    return status == CHOIR_OK ? choir__job_check_sizes(j) : status;
}
