/* The strictest test: at equal M, one device, DDP and all stages of FSDP on 1, 2, 3, ... ranks
 * give the same bits, without tolerance, in every loss and every weight. A recorded step has
 * the bits of an unrecorded one, and a step with recomputation those of a step without. The
 * models are a toy, an mlp, a CNN with batch norm and dropout, a GPT and a BERT with tied
 * embeddings, dropout and clipping, and Llama. BERT's micro-batches have different numbers of
 * targets. */
#include "job_fixture.h"
#include "sample.h"
#include "tensor/scope.h"

enum { STEPS = 6, BATCH = 24 };

typedef enum wrapping { SINGLE, FSDP_1, FSDP_2, FSDP_3, FSDP_GATHERED, DDP } wrapping;

typedef struct outcome {
    uint32_t loss_bits[STEPS], norm_bits[STEPS];
    uint64_t weights; /* a hash over all parameters and buffers */
    int failed;
} outcome;

typedef enum update_rule {
    ADAMW,
    ADAMW_8_BITS,
    LION,
    RMSPROP,
    ADAFACTOR,
    MUON,
    RULES
} update_rule;

typedef struct plan {
    const char *model;
    update_rule rule;
    int64_t microbatches;
    wrapping wrapping;
    bool recorded, recompute;
    double bucket_mb;
    outcome *out; /* of rank 0, in shared memory */
} plan;

typedef struct job {
    const plan *plan;
    rank_job r;
    choir_model_info info;
    choir_loader *loader;
} job;

static choir_dataset *open_data(const job *j)
{
    choir_dataset *data = random_data(&j->info, 200, 5);
    if (j->info.masked) /* micro-batches have different numbers of targets that count */
        choir_check(choir_dataset_masked(data, j->info.classes - 1, j->info.classes, 5, &data));
    return data;
}

/* Reads the step's batches, and makes the divisor of their losses where targets are ignored. */
static choir_tensor *read_batches(job *j, choir_scope *step, choir_batch *batches)
{
    choir_tensor *y[32];
    for (int64_t m = 0; m < j->r.count; m++) {
        choir_check(choir_loader_next(j->loader, step, &batches[m]));
        y[m] = batches[m].y;
    }
    return choir_model_divisor(&j->info, y, (int)j->r.count);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_batch b[32];
    choir_tensor *divisor = read_batches(j, step, b);
    for (int64_t m = 0; m < j->r.count; m++) {
        choir_scope *micro = choir_micro_open(step, j->r.first + m);
        choir_tensor *out = choir_forward(j->r.net, choir_in(micro, b[m].x));
        choir_tensor *loss = choir_model_loss_over(&j->info, out, b[m].y, divisor);
        choir_check(choir_backward(loss));
        j->r.losses[m] = choir_keep(j->r.run, loss);
        choir_check(choir_scope_close(micro));
    }
    return choir_optim_step(j->r.optim);
}

static choir_module *wrap(const job *j, const plan *p)
{
    choir_ddp_opts ddp = choir_ddp_defaults();
    choir_fsdp_opts fsdp = choir_fsdp_defaults();
    ddp.bucket_cap_mb = ddp.first_bucket_mb = p->bucket_mb;
    fsdp.gather = p->wrapping == FSDP_GATHERED;
    fsdp.stage = fsdp.gather ? 3 : (int)p->wrapping;
    fsdp.reshard_after_forward = p->microbatches != 4;
    switch (p->wrapping) {
    case SINGLE: return j->r.net;
    case DDP: return choir_ddp(j->r.run, j->r.net, j->r.env.group, ddp);
    default: return choir_fsdp(j->r.run, j->r.net, j->r.env.group, fsdp);
    }
}

static choir_optim *make_optimizer(const job *j, update_rule rule)
{
    choir_adamw_opts adamw = choir_adamw_defaults();
    choir_lion_opts lion = choir_lion_defaults();
    choir_rmsprop_opts rmsprop = choir_rmsprop_defaults();
    choir_muon_opts muon = choir_muon_defaults();
    adamw.lr = muon.lr = 1e-2f;
    adamw.eight_bits = rule == ADAMW_8_BITS;
    lion.lr = 1e-3f;
    rmsprop.lr = 1e-3f;
    rmsprop.momentum = 0.5f;
    switch (rule) {
    case LION: return choir_lion(j->r.run, j->r.net, lion);
    case RMSPROP: return choir_rmsprop(j->r.run, j->r.net, rmsprop);
    case ADAFACTOR: return choir_adafactor(j->r.run, j->r.net, choir_adafactor_defaults());
    case MUON: return choir_muon(j->r.run, j->r.net, muon);
    default: return choir_adamw(j->r.run, j->r.net, adamw);
    }
}

static int train(int rank, int world, void *arg)
{
    const plan *p = arg;
    job j = {.plan = p};
    j.r = open_rank_job(p->microbatches, 11);
    choir_module *bare = j.r.net = build_model(j.r.run, p->model, &j.info);
    if (p->recompute)
        choir_module_recompute_blocks(bare, true);
    j.r.net = wrap(&j, p);
    j.r.optim = make_optimizer(&j, p->rule);
    choir_optim_clip(j.r.optim, 0.5f);
    choir_dataset *data = open_data(&j);
    j.loader = choir_env_loader(j.r.run, &j.r.env, data, BATCH);
    choir_check(choir_scope_status(j.r.run));
    for (int step = 0; step < STEPS; step++) {
        const uint32_t loss = step_of_rank(&j.r, p->recorded, step, body, &j);
        uint32_t norm_bits = item_bits(choir_optim_grad_norm(j.r.optim));
        if (rank == 0) {
            p->out->loss_bits[step] = loss;
            p->out->norm_bits[step] = norm_bits;
        }
    }
    uint64_t weights = hash_of_module(bare);
    if (rank == 0)
        p->out->weights = weights;
    choir_check(choir_scope_close(j.r.run));
    choir_dataset_free(data);
    choir_env_free(&j.r.env);
    return 0;
}

static outcome run_rule(update_rule rule, const char *model, int64_t m, int ranks, wrapping how,
    bool recorded, bool recompute, double bucket_mb)
{
    outcome *shared = shared_memory(sizeof *shared);
    plan p = {model, rule, m, how, recorded, recompute, bucket_mb, shared};
    choir_status status = choir_spawn(ranks, train, &p);
    if (status != CHOIR_OK)
        print_error("%s on %d ranks: %s\n", model, ranks, choir_error_message());
    outcome o = *shared;
    o.failed = status != CHOIR_OK;
    munmap(shared, sizeof *shared);
    return o;
}

static outcome run(const char *model, int64_t m, int ranks, wrapping how, bool recorded,
    bool recompute, double bucket_mb)
{
    return run_rule(ADAMW, model, m, ranks, how, recorded, recompute, bucket_mb);
}

static void assert_same(const char *model, int ranks, const outcome *a, const outcome *b)
{
    assert_false(a->failed || b->failed);
    for (int i = 0; i < STEPS; i++) {
        if (a->loss_bits[i] != b->loss_bits[i] || a->norm_bits[i] != b->norm_bits[i])
            print_error("%s on %d ranks, step %d: loss %08x, not %08x; norm %08x, not %08x\n",
                model, ranks, i, b->loss_bits[i], a->loss_bits[i], b->norm_bits[i],
                a->norm_bits[i]);
        assert_int_equal(a->loss_bits[i], b->loss_bits[i]);
        assert_int_equal(a->norm_bits[i], b->norm_bits[i]);
    }
    assert_true(a->loss_bits[0] != a->loss_bits[STEPS - 1]); /* it did learn */
    assert_true(a->weights == b->weights);
}

/* A sample tries a third of the numbers of micro-batches, and one of them at least. */
static void compare(const char *model)
{
    static const int64_t cuts[] = {1, 3, 4, 6};
    bool any = false;
    for (size_t c = 0; c < CHOIR_COUNT(cuts); c++) {
        if (!sample_combination(3) && (any || c + 1 < CHOIR_COUNT(cuts)))
            continue;
        any = true;
        outcome single = run(model, cuts[c], 1, SINGLE, false, false, 25);
        outcome recorded = run(model, cuts[c], 1, SINGLE, true, false, 25);
        assert_same(model, 0, &single, &recorded);
        for (int ranks = 1; ranks <= cuts[c] && ranks <= 4; ranks++) {
            outcome ddp =
                run(model, cuts[c], ranks, DDP, ranks % 2, ranks > 1, ranks == 3 ? 0.001 : 25);
            assert_same(model, ranks, &single, &ddp);
            outcome fsdp = run(model, cuts[c], ranks, FSDP_1 + (c + (size_t)ranks) % 3,
                ranks % 2 == 0, ranks < 3, 0);
            assert_same(model, ranks, &single, &fsdp);
            if (ranks == 1)
                continue;
            outcome gathered = run(
                model, cuts[c], ranks, FSDP_GATHERED, ranks % 2, (c + (size_t)ranks) % 2, 0);
            assert_same(model, ranks, &single, &gathered);
        }
    }
}

static void toy(void **state)
{
    compare("toy");
}

static void mlp(void **state)
{
    compare("mlp:in=20,hidden=33,classes=7");
}

static void cnn(void **state)
{
    compare("cnn:width=4,image=12,classes=5,dropout=0.3");
}

static void lenet(void **state)
{
    compare("lenet:l1=7,l2=5,image=20,channels=2,classes=3");
}

/* Norms with residuals, results made again in backward, strided shortcuts. */
static void resnet(void **state)
{
    compare("resnet18:width=4,image=8,classes=5,channels=2,stages=2,small=1");
    compare("resnet50:width=2,image=16,classes=5,channels=2,stages=2,small=0");
}

static void alexnet(void **state)
{
    compare("alexnet:width=2,image=63,classes=5,channels=2,hidden=9,dropout=0.3");
}

/* A token of the class stands before the image. */
static void vit(void **state)
{
    compare("vit:layers=2,heads=2,width=12,hidden=20,patch=3,image=7,image_width=10,channels=2,"
            "classes=5,dropout=0.1");
}

static void gpt2(void **state)
{
    compare("gpt2:layers=2,heads=2,width=24,context=10,vocab=31,dropout=0.1");
}

static void llama(void **state)
{
    compare("llama:layers=2,heads=4,kv_heads=2,width=24,context=10,vocab=31,pad=7");
}

static void mistral(void **state)
{
    compare("mistral:layers=1,heads=2,width=24,context=10,window=4,vocab=31,tied=1");
}

static void qwen3(void **state)
{
    compare("qwen3:layers=1,heads=2,head_dim=6,width=24,context=10,vocab=31");
}

static void gemma3(void **state)
{
    compare(
        "gemma3:layers=2,heads=2,head_dim=6,width=24,context=10,window=4,pattern=sf,vocab=31,"
        "softcap=2,final_softcap=3");
}

static void lstm(void **state)
{
    compare("lstm:layers=2,hidden=17,in=6,out=5,context=7,dropout=0.2");
}

static void gru(void **state)
{
    compare("lstm:cell=gru,layers=2,hidden=9,in=6,context=10,vocab=31,dropout=0.2");
}

static void bert(void **state)
{
    compare("bert:layers=2,heads=2,width=24,hidden=40,context=10,vocab=31,dropout=0.1,pad=3");
}

/* Positions that depend on the padding among the ids, and no types of tokens. */
static void relatives_of_bert(void **state)
{
    compare(
        "roberta:layers=2,heads=2,width=24,hidden=40,context=10,vocab=31,dropout=0.1,pad=3");
    compare("distilbert:layers=2,heads=2,width=24,hidden=40,context=10,vocab=31,dropout=0.1");
}

/* Rules with other state: rows of blocks, and matrices that no rank has. A matrix has rows of
 * more than a block, and a rank has no row of the last one. */
static void optimizers(void **state)
{
    static const char *const models[] = {"mlp:in=300,hidden=33,classes=3",
        "gpt2:layers=1,heads=2,width=24,context=10,vocab=31,dropout=0.1",
        "cnn:width=4,image=12,classes=5,dropout=0.3"};
    for (int rule = ADAMW_8_BITS; rule < RULES; rule++)
        for (size_t m = 0; m < CHOIR_COUNT(models); m++) {
            if (!sample_combination(3))
                continue;
            outcome single = run_rule(rule, models[m], 4, 1, SINGLE, false, false, 25);
            outcome recorded = run_rule(rule, models[m], 4, 1, SINGLE, true, false, 25);
            outcome ddp = run_rule(rule, models[m], 4, 2, DDP, true, false, 25);
            assert_same(models[m], 0, &single, &recorded);
            assert_same(models[m], 2, &single, &ddp);
            for (int stage = 0; stage < 4; stage++) {
                outcome fsdp = run_rule(
                    rule, models[m], 4, 4 - stage % 3, FSDP_1 + stage, stage % 2, false, 0);
                assert_same(models[m], 4 - stage % 3, &single, &fsdp);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(toy), cmocka_unit_test(mlp),
        cmocka_unit_test(cnn), cmocka_unit_test(lenet), cmocka_unit_test(resnet),
        cmocka_unit_test(alexnet), cmocka_unit_test(vit), cmocka_unit_test(gpt2),
        cmocka_unit_test(llama), cmocka_unit_test(mistral), cmocka_unit_test(qwen3),
        cmocka_unit_test(gemma3), cmocka_unit_test(lstm), cmocka_unit_test(gru),
        cmocka_unit_test(bert), cmocka_unit_test(relatives_of_bert),
        cmocka_unit_test(optimizers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
