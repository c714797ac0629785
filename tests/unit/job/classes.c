/* Classes of ranks: a rehearsal in which one rank stands for those that do the same tells the
 * bytes and the programs of one in which every rank lives, for random jobs of up to 64 ranks;
 * and a hundred thousand ranks are a few classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "base/base.h"
#include "job/rehearsal/rehearsal.h"
#include "job/run.h"

/* The ranks of a world are threads, and sanitizers are slow with many. */
#ifdef __SANITIZE_ADDRESS__
enum { DRAWS = 6 };
#else
enum { DRAWS = 24 };
#endif

static const char *const models[] = {"mlp:in=40,hidden=24,layers=5,classes=7", "cnn:width=8",
    "gpt2:layers=4,heads=2,width=16,context=8,vocab=50",
    "llama:layers=4,heads=4,width=32,context=8,vocab=33"};

/* The strategies, and the number of ranks of a replica. */
static const struct {
    const char *text;
    int inner;
} places[] = {{"ddp", 1}, {"ddp:bucket_cap_mb=0.01", 1}, {"fsdp", 1}, {"fsdp:stage=1", 1},
    {"fsdp:stage=2", 1}, {"fsdp:shard_ranks=2", 1}, {"ddp:sync_bn=1", 1},
    {"ddp:sync_bn=1,groups=2", 1}, {"diloco:every=3", 1}, {"local-sgd", 1}, {"hogwild", 1},
    {"ddp+pipeline", 2}, {"fsdp+pipeline", 2}, {"fsdp+tp", 2}, {"ddp+cp", 2}, {"tp+ddp", 2}};

static const struct {
    const char *name, *value;
} options[] = {{"amp", "bf16"}, {"amp", "fp16"}, {"optimizer", "muon"}, {"optimizer", "lamb"},
    {"recompute", NULL}, {"lora", "r=4"}, {"clip", "1"}, {"ema", "0.9"}, {"eval-every", "2"},
    {"offload", "params"}, {"offload", "."}};

static void give(choir__job *j, const char *name, const char *value)
{
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (!strcmp(o->name, name)) {
            if (value)
                ok(choir__line_set(o, (char *)j + o->at, value));
            else
                *(bool *)(void *)((char *)j + o->at) = true;
            ok(choir__job_took(j, o, value));
        }
}

typedef struct draw {
    const char *model, *strategy, *option, *value;
    char ranks[16], mesh[24], microbatches[16], batch[16];
} draw;

static choir_status rehearse(const draw *d, bool all_live, choir__rehearsal *r)
{
    choir__job *j = calloc(1, sizeof *j);
    bool usage;
    *j = choir__job_new("plan");
    for (const choir__line_option *o = choir__job_options; o->name; o++)
        if (o->preset)
            ok(choir__line_set(o, (char *)j + o->at, o->preset));
    j->placement.imagined = true;
    j->placement.all_live = all_live;
    j->data.path = "random";
    give(j, "model", d->model);
    give(j, "strategy", d->strategy);
    give(j, "nproc", d->ranks);
    if (*d->mesh)
        give(j, "mesh", d->mesh);
    give(j, "microbatches", d->microbatches);
    give(j, "batch-size", d->batch);
    if (d->option)
        give(j, d->option, d->value);
    j->records.json = true;
    choir_status status = choir__job_make_ready(j, &usage);
    *r = (choir__rehearsal){0};
    if (status == CHOIR_OK)
        status = choir__job_rehearse(j, r);
    choir__job_free(j);
    free(j);
    return status;
}

static bool have_equal_bytes(const choir_dry_counts *a, const choir_dry_counts *b)
{
    return a->bytes_peak == b->bytes_peak && a->peak_weights == b->peak_weights &&
           a->peak_gradients == b->peak_gradients && a->peak_optimizer == b->peak_optimizer &&
           a->peak_other == b->peak_other;
}

/* Programs may differ by a few small kernels: micro-batch 0 alone updates running statistics,
 * and a rank's rows of a slice may be in one or in two pieces of the whole. */
static void same(const draw *d, const choir__rehearsal *a, const choir__rehearsal *b)
{
    assert_int_equal(a->world, b->world);
    for (int rank = 0; rank < a->world; rank++) {
        const choir_dry_counts *x = &a->devices[a->class_of[rank]].counts,
                               *y = &b->devices[b->class_of[rank]].counts;
        const int64_t entries = a->step.programs[a->class_of[rank]].entry_count,
                      expected = b->step.programs[b->class_of[rank]].entry_count;
        if (have_equal_bytes(x, y) && x->flops == y->flops &&
            llabs(entries - expected) <= 8 + expected / 50)
            continue;
        fail_msg(
            "%s --strategy %s --nproc %s --mesh '%s' --microbatches %s --%s %s: rank %d of "
            "class %d of %d: expected %zu bytes, %g FLOPs and %lld entries, got %zu, %g and "
            "%lld",
            d->model, d->strategy, d->ranks, d->mesh, d->microbatches, d->option, d->value,
            rank, a->class_of[rank], a->classes, y->bytes_peak, y->flops, (long long)expected,
            x->bytes_peak, x->flops, (long long)entries);
    }
}

/* A number in [0, n) of a fixed sequence. */
static int below(uint64_t *state, int n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((*state >> 33) % (uint64_t)n);
}

static draw draw_one(uint64_t *state)
{
    draw d = {.model = models[below(state, CHOIR_COUNT(models))]};
    const int place = below(state, CHOIR_COUNT(places)), inner = places[place].inner;
    const int outer = 2 + below(state, 64 / inner - 1), each = 1 + below(state, 4),
              more = below(state, 3) ? 0 : below(state, outer), samples = 1 + below(state, 2);
    const int option = below(state, 2 * CHOIR_COUNT(options));
    d.strategy = places[place].text;
    snprintf(d.ranks, sizeof d.ranks, "%d", outer * inner);
    if (inner > 1)
        snprintf(d.mesh, sizeof d.mesh, strncmp(d.strategy, "tp+", 3) ? "%dx%d" : "%2$dx%1$d",
            outer, inner);
    snprintf(d.microbatches, sizeof d.microbatches, "%d", outer * each + more);
    snprintf(d.batch, sizeof d.batch, "%d", (outer * each + more) * samples);
    if (option < (int)CHOIR_COUNT(options)) {
        d.option = options[option].name;
        d.value = options[option].value;
    }
    return d;
}

/* Rehearses random jobs both ways; a job that is refused is refused both ways. */
static void test_classes_tell_what_all_ranks_would(void **state)
{
    const char *more = getenv("CHOIR_TEST_DRAWS");
    const int draws = more ? atoi(more) : DRAWS;
    uint64_t seed = 40;
    int planned = 0, represented = 0;
    for (int i = 0; i < draws; i++) {
        choir__rehearsal classes, all;
        const draw d = draw_one(&seed);
        const choir_status status = rehearse(&d, false, &classes),
                           whole = rehearse(&d, true, &all);
        if (status != whole)
            fail_msg("%s --strategy %s --nproc %s: %s, with all ranks %s (%s)", d.model,
                d.strategy, d.ranks, choir_status_name(status), choir_status_name(whole),
                choir_error_message());
        if (status == CHOIR_OK) {
            same(&d, &classes, &all);
            planned++;
            represented += classes.classes < all.classes;
        }
        choir__rehearsal_free(&classes);
        choir__rehearsal_free(&all);
    }
    print_message("%d of %d jobs ran, %d of them with classes\n", planned, draws, represented);
    assert_true(represented > draws / 4);
}

/* The layers of a large model would take long under a sanitizer; few show the same. */
static void test_many_ranks_are_few_classes(void **state)
{
    const draw d = {.model = models[2],
        .strategy = "fsdp+pipeline",
        .ranks = "100000",
        .mesh = "50000x2",
        .microbatches = "50000",
        .batch = "50000"};
    choir__rehearsal r;
    int64_t ranks = 0;
    ok(rehearse(&d, false, &r));
    assert_int_equal(r.world, 100000);
    assert_true(r.classes <= 40);
    for (int k = 0; k < r.device_count; k++)
        ranks += r.devices[k].alike;
    assert_int_equal(ranks, 100000);
    choir__rehearsal_free(&r);
}

static void test_ranks_that_all_differ_are_refused(void **state)
{
    const draw d = {.model = models[2],
        .strategy = "pipeline",
        .ranks = "5000",
        .microbatches = "8",
        .batch = "8"};
    choir__rehearsal r;
    assert_fails(rehearse(&d, false, &r), CHOIR_ERR_ARGUMENT,
        "at most 1024 ranks whose work differs, and these are 5000");
    choir__rehearsal_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_tell_what_all_ranks_would),
        cmocka_unit_test(test_many_ranks_are_few_classes),
        cmocka_unit_test(test_ranks_that_all_differ_are_refused),
    };
    return cmocka_run_group_tests_name("rank classes", tests, NULL, NULL);
}
