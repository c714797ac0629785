/* choir compare's options. Those of a training job are train's own: what is read here is
 * checked as train checks it, and passed on. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "launch/launchers.h"

enum { STRATEGIES = 1, REPEATS, PLOT, SPLITS };
enum { STEPS = 20, MOST_REPEATS = 1000, SPLITS_UNASKED = 6, MOST_MICRO = 24 };

static const struct option own[] = {
    {"strategies", required_argument, NULL, STRATEGIES},
    {"repeats", required_argument, NULL, REPEATS},
    {"plot", required_argument, NULL, PLOT},
    {"splits", required_argument, NULL, SPLITS},
};

static void help(void)
{
    printf("Usage: choir compare [OPTION]... [DATA]\n\n"
           "Trains the same model on the same data under one strategy after the other, each\n"
           "run in a process of its own, and shows side by side: items a second with their\n"
           "spread, speed-up and efficiency against one device, memory and use of each\n"
           "device, bytes moved, the loss, and whether every bit is that of one device.\n\n"
           "  --strategies LIST     of these, as choir train's --strategy takes them\n"
           "                        (default: all that fit):\n");
    int column = 0;
    for (int i = 0; choir__cli_strategies[i]; i++) {
        const char *name = choir__cli_strategies[i]->name;
        bool fits = column + 2 + (int)strlen(name) < 79;
        column = !i     ? printf("%26s%s", "", name)
                 : fits ? column + printf(", %s", name)
                        : printf(",\n%26s%s", "", name) - 2;
    }
    printf("\n                        and compositions, as ddp+pipeline\n"
           "  --mesh 2x4            of compositions (default: two devices for the innermost)\n"
           "  --devices LIST        as cpu:0,cpu:1 or cuda:0-3 (default auto: all GPUs,\n"
           "                        or all cores where there are none)\n"
           "  --batch-size N        samples of the global batch (default 32)\n"
           "  --microbatches M      the cut of the batch, the same for all (default: four a\n"
           "                        device, or the next fewer that divide the batch)\n"
           "  --steps N             of each run (default 20)\n"
           "  --repeats N           runs of each strategy, in turns (default 3)\n"
           "  --plot FILE           a picture, .png or .svg, by gnuplot: throughput with its\n"
           "                        spread, over split sizes, and memory and use of devices\n"
           "                        over time\n"
           "  --splits LIST         samples a micro-batch at which pipelines run, too\n"
           "                        (default with --plot: up to six that divide the batch)\n"
           "  --json                a JSON object a strategy: train's summary and more\n"
           "  --help                print this\n\n"
           "Model, data and training are told as to choir train: --model, --seed, --lr,\n"
           "--optimizer, --workers, --threads, ...\n\n"
           "Example: model parallel, one device and pipelines of ResNet-50 on two cores:\n"
           "  choir compare --model resnet50:image=64 --batch-size 120 --microbatches 6 \\\n"
           "    --steps 5 --devices cpu:0,cpu:1 --plot compare.png random\n");
}

/* --- options --- */

/* What train has and a comparison does without; or says otherwise. */
static int refuse(const char *name)
{
    static const char *const refused[] = {"nproc", "save", "save-every", "resume", "trace",
        "epochs", "eval-every", "eval-batches", "no-eval", "log-every", "rendezvous",
        "key-file", "quiet"};
    if (!strcmp(name, "strategy"))
        return choir__cli_usage("compare", "--strategy: --strategies names what to compare");
    for (size_t i = 0; i < CHOIR_COUNT(refused); i++)
        if (!strcmp(name, refused[i]))
            return choir__cli_usage("compare", "there is no option '--%s' here", name);
    return CHOIR__EXIT_OK;
}

static int set_own(choir__compare *c, int id, const char *text)
{
    if (id == STRATEGIES)
        c->strategies = text;
    if (id == SPLITS)
        c->splits_text = text;
    if (id == PLOT)
        c->plot = text;
    if (id == REPEATS && !choir__parse_int(text, 1, MOST_REPEATS, &c->repeats))
        return choir__cli_usage(
            "compare", "--repeats %s: from 1 to %d are possible", text, MOST_REPEATS);
    return CHOIR__EXIT_OK;
}

/* An option of train: kept for the runs, unless it is ours to say. */
static int set_shared(choir__compare *c, int id, const char *text)
{
    static const char *const ours[] = {"devices", "microbatches", "steps", "json", "mesh"};
    const char *name = choir__job_option_name(id);
    int status = refuse(name);
    if (status == CHOIR__EXIT_OK)
        status = choir__job_set(&c->job, id, text);
    if (status != CHOIR__EXIT_OK)
        return status;
    for (size_t i = 0; i < CHOIR_COUNT(ours); i++)
        if (!strcmp(name, ours[i]))
            return CHOIR__EXIT_OK;
    c->args[c->arg_count++] =
        text ? choir__format("--%s=%s", name, text) : choir__format("--%s", name);
    return CHOIR__EXIT_OK;
}

static struct option *all_options(void)
{
    size_t count = 0, mine = CHOIR_COUNT(own);
    while (choir__job_options[count].name)
        count++;
    struct option *all = choir__calloc(mine + count + 1, sizeof *all);
    memcpy(all, own, sizeof own);
    memcpy(all + mine, choir__job_options, (count + 1) * sizeof *all);
    return all;
}

static int read_options(choir__compare *c, int argc, char **argv, bool *done)
{
    struct option *known = all_options();
    int status = CHOIR__EXIT_OK;
    opterr = 0;
    optind = 1;
    for (int id; status == CHOIR__EXIT_OK && !*done &&
                 (id = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        if (id == '?')
            status = choir__cli_unknown("compare", argv);
        else if (id == ':')
            status = choir__cli_usage("compare", "%s wants a value", argv[optind - 1]);
        else if (id < 256)
            status = set_own(c, id, optarg);
        else if (!strcmp(choir__job_option_name(id), "help"))
            *done = true;
        else
            status = set_shared(c, id, optarg);
    }
    free(known);
    if (*done)
        help();
    else if (status == CHOIR__EXIT_OK)
        status = choir__job_data(&c->job, argc, argv);
    return status;
}

/* --- strategies --- */

/* As told; else the innermost strategy of two has two devices. */
static int choose_mesh(const choir__compare *c, choir__compare_entry *e)
{
    int devices = c->job.device_count;
    if (e->composition.count < 2)
        return CHOIR__EXIT_OK;
    if (c->mesh)
        snprintf(e->mesh, sizeof e->mesh, "%s", c->mesh);
    else if (e->composition.count == 2 && devices % 2 == 0)
        snprintf(e->mesh, sizeof e->mesh, "%dx2", devices / 2);
    else
        return choir__cli_usage("compare",
            "--strategies %s on %d device%s: --mesh is to say how, as --mesh 2x2", e->text,
            devices, devices > 1 ? "s" : "");
    if (choir__composition_mesh(&e->composition, e->mesh) != CHOIR_OK)
        return choir__cli_usage("compare", "--mesh %s: %s", e->mesh, choir_error_message());
    return CHOIR__EXIT_OK;
}

static int add_entry(choir__compare *c, const char *text, size_t length)
{
    choir__strategy_options options = {0};
    choir__compare_entry e = {0};
    if (length >= sizeof e.text)
        return choir__cli_usage("compare", "--strategies %s: that is too long", text);
    memcpy(e.text, text, length);
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->entries[i].text, e.text))
            return CHOIR__EXIT_OK;
    if (choir__composition_parse(e.text, &e.composition, &options) != CHOIR_OK)
        return choir__cli_usage(
            "compare", "--strategies %s: %s", e.text, choir_error_message());
    int status = choose_mesh(c, &e);
    if (status != CHOIR__EXIT_OK)
        return status;
    c->entries = choir__realloc(c->entries, (size_t)(c->count + 1) * sizeof *c->entries);
    c->entries[c->count++] = e;
    return CHOIR__EXIT_OK;
}

/* The end of the strategy that text begins with: commas part strategies, and their options. */
static const char *end_of_strategy(const char *text)
{
    const char *end = text + strcspn(text, ",");
    while (*end) {
        const char *next = end + 1;
        size_t name = strcspn(next, ":,=");
        if (next[name] != '=')
            break;
        end = next + strcspn(next, ",");
    }
    return end;
}

static int list_strategies(choir__compare *c)
{
    int status = add_entry(c, "single", strlen("single")); /* all is measured by it */
    /* each strategy shows its worth where it has two devices at least */
    static const char *const compositions[] = {
        "ddp+pipeline", "fsdp+pipeline", "fsdp+tp", NULL};
    const char *text = c->strategies;
    for (int i = 0; choir__cli_strategies[i] && !text; i++) {
        static const char *const none[] = {NULL};
        const choir__cli_strategy *s = choir__cli_strategies[i];
        if (!s->variants && status == CHOIR__EXIT_OK)
            status = add_entry(c, s->name, strlen(s->name));
        for (const char *const *v = s->variants ? s->variants : none; *v; v++)
            if (status == CHOIR__EXIT_OK)
                status = add_entry(c, *v, strlen(*v));
    }
    for (int i = 0; compositions[i] && !text && status == CHOIR__EXIT_OK; i++)
        if (c->job.device_count >= 4 && c->job.device_count % 2 == 0)
            status = add_entry(c, compositions[i], strlen(compositions[i]));
    while (text && *text && status == CHOIR__EXIT_OK) {
        const char *end = end_of_strategy(text);
        status = add_entry(c, text, (size_t)(end - text));
        text = end + (*end == ',');
    }
    for (int i = 0; i < c->count; i++) {
        c->entries[i].strategy = choir__composition_strategy(&c->entries[i].composition);
        c->entries[i].runs = choir__calloc((size_t)c->repeats, sizeof *c->entries[i].runs);
    }
    return status;
}

/* --- sizes --- */

static void list_devices(choir__compare *c)
{
    size_t length = 0;
    for (int i = 0; i < c->job.device_count; i++)
        length += (size_t)snprintf(c->devices + length, sizeof c->devices - length, "%s%s",
            i ? "," : "", c->job.device_names[i]);
}

/* Four a device; where they do not divide the batch, the next fewer that do. */
static int choose_cut(choir__compare *c)
{
    choir__job *j = &c->job;
    int64_t m = j->microbatches;
    for (m = m ? m : 4 * (int64_t)j->device_count; !j->microbatches && m >= j->device_count;
         m--)
        if (j->batch_size % m == 0)
            j->microbatches = m;
    m = j->microbatches;
    if (m && j->batch_size % m == 0)
        return CHOIR__EXIT_OK;
    int64_t n = m ? m : j->device_count;
    choir__error(CHOIR_ERR_ARGUMENT,
        m ? "a batch of %lld does not divide into %lld micro-batches; %lld would"
          : "a batch of %lld cannot be cut into micro-batches of one size for %lld devices; %lld "
            "would do",
        (long long)j->batch_size, (long long)n, (long long)((j->batch_size / n + 1) * n));
    return choir__cli_fail();
}

static int read_splits(choir__compare *c)
{
    for (const char *at = c->splits_text; *at;) {
        char word[24];
        int64_t n;
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (!choir__parse_int(word, 1, c->job.batch_size, &n) || c->job.batch_size % n)
            return choir__cli_usage("compare",
                "--splits %s: samples a micro-batch are wanted that divide the batch of %lld",
                c->splits_text, (long long)c->job.batch_size);
        if (c->split_count == CHOIR__MAX_SPLITS)
            return choir__cli_usage(
                "compare", "--splits %s: at most %d fit", c->splits_text, CHOIR__MAX_SPLITS);
        c->splits[c->split_count++] = n;
        at += length + (at[length] == ',');
    }
    return CHOIR__EXIT_OK;
}

/* Of the batch's divisors those nearest to even steps of a logarithmic axis. */
static void choose_splits(choir__compare *c)
{
    int64_t batch = c->job.batch_size, divisors[64];
    int count = 0;
    for (int64_t n = choir__max(1, batch / MOST_MICRO); n <= batch && count < 64; n++)
        if (batch % n == 0)
            divisors[count++] = n;
    for (int i = 0; i < SPLITS_UNASKED; i++) {
        int64_t n = divisors[i * (count - 1) / (SPLITS_UNASKED - 1)];
        if (!c->split_count || c->splits[c->split_count - 1] != n)
            c->splits[c->split_count++] = n;
    }
}

static int check_start(const choir__compare *c)
{
    choir__launcher l;
    if (choir__launcher_find(false, &l) != CHOIR_OK)
        return choir__cli_usage("compare", "%s", choir_error_message());
    if (l.name && (l.world > 1 || !strcmp(l.name, "RANK")))
        return choir__cli_usage(
            "compare", "it was started as a rank of a job, and starts ranks itself");
    const char *dot = c->plot ? strrchr(c->plot, '.') : NULL;
    if (c->plot && (!dot || (strcmp(dot, ".png") && strcmp(dot, ".svg"))))
        return choir__cli_usage("compare", "--plot %s: a .png or .svg is wanted", c->plot);
    return CHOIR__EXIT_OK;
}

int choir__compare_parse(choir__compare *c, int argc, char **argv, bool *done)
{
    *c = (choir__compare){.repeats = 3};
    *done = false;
    c->args = choir__calloc((size_t)argc + 1, sizeof *c->args);
    choir__job_defaults(&c->job, "compare");
    int status = read_options(c, argc, argv, done);
    if (status != CHOIR__EXIT_OK || *done)
        return status;
    c->chosen = c->strategies != NULL;
    c->mesh = c->job.mesh;
    c->job.mesh = NULL; /* it is single's job */
    c->job.steps = c->job.steps ? c->job.steps : STEPS;
    status = check_start(c);
    if (status == CHOIR__EXIT_OK)
        status = choir__job_check(&c->job);
    if (status == CHOIR__EXIT_OK)
        status = choir__job_devices_once(&c->job);
    if (status == CHOIR__EXIT_OK)
        status = choose_cut(c);
    if (status == CHOIR__EXIT_OK)
        status = list_strategies(c);
    if (status == CHOIR__EXIT_OK && c->splits_text)
        status = read_splits(c);
    else if (status == CHOIR__EXIT_OK && c->plot)
        choose_splits(c);
    list_devices(c);
    return status;
}

void choir__compare_free(choir__compare *c)
{
    for (int i = 0; i < c->count; i++) {
        choir__compare_entry *e = &c->entries[i];
        for (int64_t r = 0; r < c->repeats && e->runs; r++)
            choir__outcome_free(&e->runs[r]);
        for (int s = 0; s < CHOIR__MAX_SPLITS; s++)
            free(e->split[s]);
        choir__watch_free(e->watch);
        free(e->runs);
    }
    for (int i = 0; i < c->arg_count; i++)
        free(c->args[i]);
    free(c->args);
    free(c->entries);
}
