/* Audits of a C loop: lines that follow one another, and a weight that changes between two
 * steps, which is found in the next line and told apart from wrong arithmetic. */
#include "checkpoint_fixture.h"

#include <choir/audit.h>
#include <choir/env.h>

#include "audit/audit.h"
#include "audit/chain.h"
#include "checkpoint/items.h"
#include "multi/ranks.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

/* Trains steps [from, from + count), each with a call of the audit. */
static void audited(job *j, choir_audit *audit, int64_t from, int count)
{
    for (int i = 0; i < count; i++) {
        train(j, (int)from + i, (int)from + i + 1);
        ok(choir_audit_step(audit, from + i + 1));
    }
}

static choir_audit *begin(job *j, const char *path, int64_t every, int64_t resumed)
{
    choir_audit *audit;
    choir_audit_opts opts = choir_audit_defaults();
    opts.every = every;
    opts.resumed = resumed;
    opts.job = "{\"about\": \"a test\"}";
    ok(choir_audit_open(path, j->net, j->opt, opts, &audit));
    return audit;
}

/* Returns a hash of a line; "" if it is not known. */
static const char *hash(const choir__chain *chain, int64_t step, const char *key, size_t i)
{
    const char *text = json_string_value(
        json_array_get(json_object_get(choir__chain_at(chain, step), key), i));
    return text ? text : "";
}

static size_t modules(const choir__chain *chain)
{
    return json_array_size(json_object_get(chain->begin, "modules"));
}

/* A step reads the weights that the step before has left, in all modules. */
static void steps_follow(void **state)
{
    job j = job_open(GPT2, SGD_PLAIN);
    choir__chain chain;
    choir_audit *audit = begin(&j, at("follow"), 1, 0);
    audited(&j, audit, 0, 4);
    ok(choir_audit_close(audit));
    ok(choir__chain_read(at("follow"), &chain));
    assert_int_equal(choir__chain_last(&chain), 4);
    assert_true(modules(&chain) > 3);
    for (size_t i = 0; i < modules(&chain); i++)
        for (int64_t step = 2; step <= 4; step++) {
            assert_int_equal(strlen(hash(&chain, step, "gradients", i)), 16);
            assert_string_equal(
                hash(&chain, step, "read_weights", i), hash(&chain, step - 1, "weights", i));
            assert_string_not_equal(
                hash(&chain, step, "read_weights", i), hash(&chain, step, "weights", i));
        }
    choir__chain_free(&chain);
    job_close(&j);
}

/* Sets the lines of four steps, whose hashes the update takes or kernels of their own. */
static void lines_of(const char *model, enum optimizer optimizer, bool rides, choir__chain *to)
{
    job j = job_open(model, optimizer);
    choir_audit *audit = begin(&j, at("rides"), 1, 0);
    if (rides)
        choir__audit_let_ride(audit);
    audited(&j, audit, 0, 4);
    for (int i = 0; i < j.opt->count && rides; i++)
        assert_int_equal(j.opt->sums[i].counted, j.opt->states[i].param->local->count);
    ok(choir_audit_close(audit));
    ok(choir__chain_read(at("rides"), to));
    job_close(&j);
}

/* The update's pass gives the hashes that kernels of their own give. */
static void hashes_ride(void **state)
{
    static const char *const models[] = {GPT2, CNN};
    for (size_t m = 0; m < CHOIR_COUNT(models); m++)
        for (int o = ADAMW; o <= SGD_PLAIN; o++) {
            choir__chain alone, rides;
            lines_of(models[m], (enum optimizer)o, false, &alone);
            lines_of(models[m], (enum optimizer)o, true, &rides);
            for (size_t i = 0; i < 5; i++) {
                json_t *a = json_array_get(alone.lines, i), *b = json_array_get(rides.lines, i);
                json_object_del(a, "chain");
                json_object_del(b, "chain");
                assert_true(json_equal(a, b));
            }
            choir__chain_free(&alone);
            choir__chain_free(&rides);
        }
}

/* One bit of one weight flips behind step 2. */
static void flip_a_bit(bool rides)
{
    job j = job_open(GPT2, SGD_PLAIN);
    choir__chain chain;
    choir_audit *audit = begin(&j, at("flipped"), 1, 0);
    if (rides)
        choir__audit_let_ride(audit);
    audited(&j, audit, 0, 2);
    assert_int_equal(choir__audit_verdict(audit)->how, CHOIR__VOTE_AGREED);
    uint32_t *w = choir__data(choir_module_find(j.net, "transformer.ln_f.weight"));
    w[3] ^= 1;
    audited(&j, audit, 2, 1);
    assert_int_equal(choir__audit_verdict(audit)->how, CHOIR__VOTE_DECIDED);
    assert_false(choir__audit_is_new(audit));
    assert_string_equal(choir__audit_accused(audit),
        "the weights of module 'transformer.ln_f', before the step");
    audited(&j, audit, 3, 1);
    assert_int_equal(choir__audit_verdict(audit)->how, CHOIR__VOTE_AGREED);
    ok(choir_audit_close(audit));
    ok(choir__chain_read(at("flipped"), &chain));
    for (size_t i = 0; i < modules(&chain); i++) {
        const char *name =
            json_string_value(json_array_get(json_object_get(chain.begin, "modules"), i));
        bool same = !strcmp(hash(&chain, 3, "read_weights", i), hash(&chain, 2, "weights", i));
        assert_int_equal(same, strcmp(name, "transformer.ln_f") != 0);
    }
    choir__chain_free(&chain);
    job_close(&j);
}

static void flipped_bit(void **state)
{
    flip_a_bit(false);
    flip_a_bit(true);
}

typedef struct shown {
    choir_audit *audit;
    uint64_t spoiled; /* changes the proof of a tensor whose memory is channels-last */
    int known;
} shown;

static void know(
    void *arg, const choir__item *item, const choir__box_region *region, choir__proof *proof)
{
    shown *s = arg;
    choir__audit_prove(s->audit, item, region, proof);
    proof->hash ^= proof->known && !strcmp(item->name, "4.weight") ? s->spoiled : 0;
    s->known += proof->known;
}

/* A save, at once or aside, writes what an audit has hashed, in any memory order; with any
 * other numbers it fails. */
static void saves_are_proved(void **state)
{
    job j = job_open(CNN, ADAMW);
    choir_training parts = {.module = j.net, .optim = j.opt};
    for (int async = 0; async < 2; async++) {
        shown s = {.audit = begin(&j, at("proved"), 1, async)};
        choir_checkpoint *saved;
        choir_checkpoint_opts opts = choir_checkpoint_defaults();
        choir_train_state step = choir_train_state_none();
        opts.async = async;
        ok(choir_checkpoint_open(at(async ? "aside" : "once"), opts, &saved));
        choir__saver_proves(saved->saver, know, &s);
        audited(&j, s.audit, async, 1);
        step.step = async + 1;
        ok(choir_training_save(saved, &parts, &step, 0));
        ok(choir_checkpoint_wait(saved));
        assert_true(s.known > 8); /* weights and both moments */
        s.spoiled = 1;
        choir_status status = choir_training_save(saved, &parts, &step, 0);
        status = status == CHOIR_OK ? choir_checkpoint_wait(saved) : status;
        assert_fails(status, CHOIR_ERR_STATE, "4.weight is not what step");
        (void)choir_checkpoint_close(saved);
        ok(choir_audit_close(s.audit));
    }
    job_close(&j);
}

/* A resumed run drops the lines of steps that it repeats, and adds a line for its beginning. */
static void goes_on(void **state)
{
    job j = job_open(TOY, SGD_PLAIN);
    choir__chain chain;
    choir_audit *audit = begin(&j, at("on"), 2, 0);
    audited(&j, audit, 0, 6);
    ok(choir_audit_close(audit));
    audit = begin(&j, at("on"), 2, 3);
    audited(&j, audit, 3, 2);
    ok(choir_audit_close(audit));
    ok(choir__chain_read(at("on"), &chain));
    assert_int_equal(json_array_size(chain.lines), 4); /* begin, 2, begin, 4 */
    assert_int_equal(choir__chain_last(&chain), 4);
    choir__chain_free(&chain);
    job_close(&j);
}

static void refusals(void **state)
{
    job j = job_open(TOY, SGD_PLAIN);
    choir_audit *audit;
    choir_audit_opts opts = choir_audit_defaults();
    opts.every = 0;
    assert_fails(choir_audit_open(at("no"), j.net, j.opt, opts, &audit), CHOIR_ERR_ARGUMENT,
        "every 1 step or more");
    audit = begin(&j, at("order"), 1, 0);
    train(&j, 0, 1);
    assert_fails(choir_audit_step(audit, 2), CHOIR_ERR_ARGUMENT, "expected step 1");
    ok(choir_audit_step(audit, 1));
    ok(choir_audit_close(audit));
    ok(choir_audit_close(NULL));
    job_close(&j);
}

/* Rank 1 begins with another weight. Returns 0 if each rank has the sentence about it. */
static int differs(int rank, int world, void *arg)
{
    const char *words = arg;
    choir_env env;
    choir_audit *audit;
    CHECK_OK(choir_env_init(&env));
    job j = job_open(GPT2, SGD_PLAIN);
    choir_audit_opts opts = choir_audit_defaults();
    opts.every = 1;
    opts.group = env.group;
    CHECK_OK(choir_audit_open(at("differs%d", world), j.net, j.opt, opts, &audit));
    choir_tensor *weight = choir_module_find(j.net, "transformer.ln_f.weight");
    const size_t bytes = (size_t)weight->count * sizeof(uint32_t);
    uint32_t *bits = choir__alloc(bytes);
    CHECK_OK(choir_read(weight, bits, bytes)); /* waits until the values are drawn */
    bits[3] ^= rank == 1;
    CHECK_OK(choir_write(weight, bits, bytes));
    free(bits);
    train(&j, 0, 1);
    CHECK(choir_audit_step(audit, 1) == CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), words));
    CHECK_OK(choir_audit_close(audit));
    job_close(&j);
    choir_env_free(&env);
    return 0;
}

static void ranks_differ(void **state)
{
    static char tie[] =
        "step 1: the weights of module 'transformer.ln_f', before the step: rank 0 and rank 1 "
        "have different numbers, and no other rank decides";
    static char vote[] =
        "step 1: the weights of module 'transformer.ln_f', before the step: other numbers on "
        "rank 1 than on most ranks";
    ok(choir_spawn(2, differs, tie));
    ok(choir_spawn(3, differs, vote));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow),
        cmocka_unit_test(hashes_ride),
        cmocka_unit_test(flipped_bit),
        cmocka_unit_test(ranks_differ),
        cmocka_unit_test(saves_are_proved),
        cmocka_unit_test(goes_on),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("audits", tests, make_folder, remove_all);
}
