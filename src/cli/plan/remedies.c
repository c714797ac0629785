/* Remedies for a job that fits under none of the planned strategies: changes of its
 * options are rehearsed, the mildest first, and at last more machines like this one. */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TIMES = 16 };

/* --- changes of one entry's job --- */

static void recompute(const choir__plan_entry *e, choir__job *j)
{
    (void)e;
    j->optim.recompute = true;
}

static void cut_finer(const choir__plan_entry *e, choir__job *j)
{
    j->training.microbatches *= e->times;
}

static void recompute_finer(const choir__plan_entry *e, choir__job *j)
{
    recompute(e, j);
    cut_finer(e, j);
}

static void adapt(const choir__plan_entry *e, choir__job *j)
{
    (void)e;
    j->optim.lora = "r=16";
}

static void adapt_and_recompute(const choir__plan_entry *e, choir__job *j)
{
    recompute(e, j);
    adapt(e, j);
}

/* So many ranks, each with samples of its own. */
static void spread(const choir__plan_entry *e, choir__job *j)
{
    j->optim.recompute = true;
    j->placement.nproc = (int)e->times;
    while (j->training.microbatches % e->times ||
           j->training.batch_size % j->training.microbatches)
        if (j->training.microbatches++ >= j->training.batch_size)
            break; /* which the job's checks refuse */
}

static const struct {
    void (*change)(const choir__plan_entry *e, choir__job *j);
    const char *words; /* %lld: times the number of micro-batches */
    bool finer;        /* it is tried with more and more micro-batches */
} changes[] = {
    {recompute, "--recompute", false},
    {cut_finer, "--microbatches=%lld", true},
    {recompute_finer, "--recompute --microbatches=%lld", true},
    {adapt, "--lora=r=16", false},
    {adapt_and_recompute, "--lora=r=16 --recompute", false},
};

/* Rehearses the entry with a change. Returns whether it fits. */
static bool try(choir__planning *p, const choir__plan_entry *of, choir__plan_entry *tried)
{
    snprintf(tried->text, sizeof tried->text, "%s", of->text);
    snprintf(tried->mesh, sizeof tried->mesh, "%s", of->mesh);
    choir__plan_foresee(p, tried);
    choir__rehearsal_free(&tried->rehearsal);
    return tried->planned && tried->fits;
}

static void add(choir__planning *p, const char *words, double bytes)
{
    char size[32];
    size_t used = strlen(p->remedy);
    snprintf(p->remedy + used, sizeof p->remedy - used, "%s%s (%s)", used ? ", or with " : "",
        words, choir__plan_size(bytes, size));
}

/* Tries a change once, or with twice as many micro-batches until it fits. */
static bool mend(choir__planning *p, const choir__plan_entry *e, size_t c)
{
    const int64_t batch = p->job.training.batch_size;
    for (int64_t times = 2; times <= MOST_TIMES; times *= 2) {
        char words[96];
        choir__plan_entry tried = {.change = changes[c].change, .times = times};
        if (changes[c].finer && batch % (e->microbatches * times))
            return false;
        if (try(p, e, &tried)) {
            snprintf(words, sizeof words, changes[c].words, (long long)tried.microbatches);
            add(p, words, tried.bytes);
            return true;
        }
        if (!changes[c].finer)
            return false;
    }
    return false;
}

/* --- more machines --- */

/* Rehearses fsdp with recomputation on several machines; *bytes: what each of them holds. */
static bool fits_on(choir__planning *p, int machines, double *bytes)
{
    const int64_t one = p->memory, nodes = p->machine.place.nodes;
    choir__plan_entry fsdp = {.text = "fsdp"},
                      tried = {.change = spread,
                          .times = (int64_t)machines * p->job.placement.device_count};
    p->memory = one * machines;
    p->machine.place.nodes = nodes * machines;
    bool fits = try(p, &fsdp, &tried);
    p->memory = one;
    p->machine.place.nodes = nodes;
    *bytes = tried.bytes / machines;
    return fits;
}

/* Looks for the fewest machines like this one that hold the shards: twice as many until they
 * do, then between the last two numbers. */
static void add_machines(choir__planning *p)
{
    const int most = (int)(choir__min(p->job.training.batch_size, CHOIR__MOST_RANKS) /
                           p->job.placement.device_count); /* a sample for each rank */
    int low = 1, high = 1;
    double bytes = 0, tried;
    char words[96];
    do {
        low = high;
        high = 2 * high < most ? 2 * high : most;
        if (low == high)
            return;
    } while (!fits_on(p, high, &bytes));
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (fits_on(p, middle, &tried)) {
            high = middle;
            bytes = tried;
        } else {
            low = middle;
        }
    }
    snprintf(words, sizeof words, "--recompute, as fsdp, on %d machines like this one", high);
    add(p, words, bytes);
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
    int found = 0;
    for (size_t c = 0; c < CHOIR_COUNT(changes) && found < 2; c++)
        found += mend(p, e, c);
    if (!found)
        add_machines(p);
    p->nearest = e;
}
