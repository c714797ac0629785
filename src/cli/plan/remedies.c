/* Remedies: a job that fits under none of the planned strategies is rehearsed with changes of
 * its options, the mildest first, then on more machines. The output has those that make it fit,
 * with their commands. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { MOST_TIMES = 16, MOST_TOLD = 6 };

/* Twice as many machines are worth a try while each of them holds at most this share. */
static const double LESS = 0.98;

/* A remedy changes these options of a job. */
struct choir__plan_change {
    bool sharded; /* the strategy is the one that shards weights, not the entry's */
    bool recompute, finer;
    const char *lora, *base;
};

static const struct choir__plan_change changes[] = {
    {.recompute = true},
    {.finer = true},
    {.recompute = true, .finer = true},
    {.sharded = true},
    {.sharded = true, .recompute = true},
    {.lora = "r=16"},
    {.lora = "r=16", .recompute = true},
    {.lora = "r=16", .base = "q8_0"},
    {.lora = "r=16", .base = "q4_0", .recompute = true},
    {.sharded = true, .lora = "r=16", .base = "q4_0", .recompute = true},
};

/* Returns the name of the strategy that shards weights. */
static const char *sharding(void)
{
    int i = 0;
    while (!choir__job_strategies[i]->shards)
        i++;
    return choir__job_strategies[i]->name;
}

/* Returns whether a strategy, or one of a composition, shards weights. */
static bool is_sharded(const char *text)
{
    choir__composition c = {0};
    const bool is = choir__composition_parse(text, &c) == CHOIR_OK &&
                    choir__composition_strategy(&c)->shards;
    choir__composition_free(&c);
    return is;
}

/* Makes the change; `times` cuts the batch that many times finer. */
static void make(const choir__plan_entry *e, choir__job *j)
{
    const struct choir__plan_change *c = e->with;
    j->optim.recompute |= c->recompute;
    if (c->lora && !j->optim.lora)
        j->optim.lora = c->lora;
    if (c->base && !j->optim.base)
        j->optim.base = c->base;
    if (c->finer)
        j->training.microbatches = e->microbatches * e->times;
}

/* So many ranks, each with samples of its own: if the batch has fewer samples, it gets one for
 * each. */
static void spread(const choir__plan_entry *e, choir__job *j)
{
    choir__job_training *t = &j->training;
    j->optim.recompute = true;
    j->placement.nproc = (int)e->times;
    t->microbatches = choir__max(1, t->microbatches); /* 0: not given */
    if (t->batch_size < e->times)
        t->batch_size = t->microbatches = e->times;
    while (t->microbatches % e->times || t->batch_size % t->microbatches)
        if (t->microbatches++ >= t->batch_size)
            break; /* which the job's checks refuse */
}

/* Writes the options that the change adds to the job's. */
static void say(
    const choir__planning *p, const struct choir__plan_change *c, choir__text_buffer *words)
{
    const choir__job *j = &p->job;
    choir__text_buffer_put(words, "");
    if (c->recompute && !j->optim.recompute)
        choir__text_buffer_put(words, " --recompute");
    if (c->lora && !j->optim.lora)
        choir__text_format(words, " --lora=%s", c->lora);
    if (c->base && !j->optim.base)
        choir__text_format(words, " --base=%s", c->base);
}

/* Rehearses the entry with a change. Returns whether it fits. */
static bool try(choir__planning *p, const char *text, const char *mesh, choir__plan_entry *e)
{
    snprintf(e->text, sizeof e->text, "%s", text);
    snprintf(e->mesh, sizeof e->mesh, "%s", mesh);
    choir__plan_foresee(p, e);
    choir__rehearsal_free(&e->rehearsal);
    return e->planned && e->fits;
}

/* Keeps a remedy; takes over the words and the command. */
static void add(choir__planning *p, char *words, char *command, double bytes)
{
    CHOIR__GROW(p->remedies, p->remedy_count);
    p->remedies[p->remedy_count++] = (choir__plan_remedy){words, command, bytes};
}

static void add_change(choir__planning *p, const choir__plan_entry *tried, const char *words)
{
    const struct choir__plan_change *c = tried->with;
    char *all = choir__format("%s%s%s%s", c->sharded ? " --strategy=" : "",
        c->sharded ? sharding() : "", words, c->finer ? " --microbatches=" : "");
    char *told = c->finer ? choir__format("%s%lld", all + 1, (long long)tried->microbatches)
                          : choir__strdup(all + 1);
    add(p, told, choir__plan_command(p, tried, words), tried->bytes);
    free(all);
}

/* Tries a change once, or with twice as many micro-batches until it fits. */
static void mend(
    choir__planning *p, const choir__plan_entry *e, const struct choir__plan_change *c)
{
    choir__text_buffer words = {0};
    say(p, c, &words);
    const bool none = !words.used && !c->finer,
               skipped = c->sharded ? is_sharded(e->text) || e->ranks < 2 : none;
    for (int64_t times = c->finer ? 2 : 1; !skipped && times <= MOST_TIMES; times *= 2) {
        choir__plan_entry tried = {
            .change = make, .with = c, .times = times, .microbatches = e->microbatches};
        if (c->finer && p->job.training.batch_size % (e->microbatches * times))
            break;
        if (try(p, c->sharded ? sharding() : e->text, c->sharded ? "" : e->mesh, &tried)) {
            add_change(p, &tried, words.bytes);
            break;
        }
        if (!c->finer)
            break;
    }
    choir__text_buffer_free(&words);
}

/* --- more machines --- */

/* Returns the devices of one machine: of a node of the described cluster, or all. */
static int devices_each(const choir__planning *p)
{
    const int all = p->job.placement.device_count;
    return p->cluster && !p->job.placement.devices
               ? (int)choir__min(p->machine.place.devices_per_node, all)
               : all;
}

/* Rehearses sharded weights with recomputation on several machines; bytes: what each of them
 * holds, or each device that has memory of its own. */
static bool fits_on(choir__planning *p, int machines, choir__plan_entry *tried)
{
    const int64_t memory = p->memory;
    const int each = devices_each(p), before = p->job.placement.device_count / each;
    const choir__cluster place = p->machine.place;
    *tried = (choir__plan_entry){.change = spread, .times = (int64_t)machines * each};
    if (!choir__plan_has_nodes(p))
        p->memory = memory / before * machines;
    p->machine.place.nodes = choir__max(place.nodes, machines);
    if (place.nodes_per_rack == place.nodes) /* one rack */
        p->machine.place.nodes_per_rack = p->machine.place.nodes;
    bool fits = try(p, sharding(), "", tried);
    p->memory = memory;
    p->machine.place = place;
    if (!strncmp(p->devices, "cpu", 3) && !choir__plan_has_nodes(p))
        tried->bytes /= machines;
    return fits;
}

static void add_spread(choir__planning *p, int machines, const choir__plan_entry *tried)
{
    const int each = devices_each(p);
    const bool larger = p->job.training.batch_size < (int64_t)machines * each;
    char *batch =
        larger ? choir__format(" --batch-size=%d", machines * each) : choir__strdup("");
    char *words = choir__format("--recompute%s, as %s, on %d %s (%d ranks)", batch, sharding(),
        machines, each < p->job.placement.device_count ? "nodes" : "machines like this one",
        machines * each);
    char *line = choir__format("choir run --nnodes=%d --nproc-per-node=%d "
                               "--rdzv-endpoint=HOST:29400 --key-file=KEY choir train "
                               "--strategy=%s --microbatches=%lld --recompute",
        machines, each, sharding(), (long long)tried->microbatches);
    line = choir__plan_with_args(p, line);
    char *command = choir__format("%s%s", line, batch); /* the last one counts */
    add(p, words, command, tried->bytes);
    free(line);
    free(batch);
}

/* Looks for the fewest machines that hold the shards: twice as many until they do, then between
 * the last two numbers. */
static void add_machines(choir__planning *p)
{
    const int each = devices_each(p), most = CHOIR__MOST_RANKS / each;
    int low = 1, high = p->job.placement.device_count / each;
    double before = INFINITY;
    choir__plan_entry found = {0}, tried;
    do {
        low = high;
        high = 2 * high < most ? 2 * high : most;
        if (low >= high || found.bytes > LESS * before)
            return; /* what more machines do not share is too large */
        before = found.bytes > 0 ? found.bytes : before;
    } while (!fits_on(p, high, &found));
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (fits_on(p, middle, &tried)) {
            high = middle;
            found = tried;
        } else {
            low = middle;
        }
    }
    add_spread(p, high, &found);
}

/* Returns the entry that lacks least. */
static const choir__plan_entry *nearest(const choir__planning *p)
{
    const choir__plan_entry *near = NULL;
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned && (!near || p->entries[i].bytes < near->bytes))
            near = &p->entries[i];
    return near;
}

void choir__plan_mend(choir__planning *p)
{
    const choir__plan_entry *e = nearest(p);
    for (int i = 0; i < p->count; i++)
        if (!e || (p->entries[i].planned && p->entries[i].fits))
            return;
    for (size_t c = 0; c < CHOIR_COUNT(changes) && p->remedy_count < MOST_TOLD - 1; c++)
        mend(p, e, &changes[c]);
    add_machines(p);
    p->nearest = e;
}

void choir__plan_print_remedies(const choir__planning *p)
{
    char size[32];
    if (p->remedy_count)
        printf("\nWhat would make it fit, each rehearsed:\n");
    for (int i = 0; i < p->remedy_count; i++)
        printf("\n%s (%s)\n\n  %s\n", p->remedies[i].words,
            choir__plan_size(p->remedies[i].bytes, size), p->remedies[i].command);
}
