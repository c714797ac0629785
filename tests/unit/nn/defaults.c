/* Options of zeros, as in a struct that a program did not begin from choir_x_defaults(): each
 * acts as the defaults do, or is refused by a sentence that names that function. options.inc
 * lists the types of all public headers (tests/options.awk); a type without a function try_TYPE
 * here does not compile. */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "checkpoint/checkpoint.h"
#include "scopes_fixture.h"

static choir_group *group; /* of one rank */

/* --- the two outcomes --- */

static void refused(choir_status status, const char *defaults)
{
    assert_fails(status, CHOIR_ERR_ARGUMENT, defaults);
}

/* The scope's error is one of options; forgets it. */
static void scope_refused(choir_scope *scope, const char *defaults)
{
    refused(choir_scope_status(scope), defaults);
    choir_scope_clear(scope);
}

static void run_refused(const char *defaults)
{
    scope_refused(run, defaults);
}

/* Both statuses, and their messages, are equal. */
static void alike(choir_status (*use)(bool zeros))
{
    choir_status of_zeros = use(true);
    char *message = strdup(of_zeros == CHOIR_OK ? "" : choir_error_message());
    choir_scope_clear(run);
    choir_status of_defaults = use(false);
    assert_int_equal(of_zeros, of_defaults);
    assert_string_equal(message, of_defaults == CHOIR_OK ? "" : choir_error_message());
    choir_scope_clear(run);
    free(message);
}

static void same_values(const choir_tensor *a, const choir_tensor *b)
{
    float of_a[64], of_b[64];
    size_t bytes = (size_t)choir_tensor_count(a) * sizeof(float);
    assert_true(bytes <= sizeof of_a);
    ok(choir_read(a, of_a, bytes));
    ok(choir_read(b, of_b, bytes));
    assert_memory_equal(of_a, of_b, bytes);
}

static choir_module *layer(void)
{
    return choir_nn_linear(run, 2, 2);
}

static choir_tensor *random_of(choir_shape shape, const char *name)
{
    return choir_rand(step, shape, name, -1, 1);
}

/* Returns options of the type: zeros, or the defaults. */
#define OF(type, defaults) (zeros ? (type){0} : defaults())

/* --- tensors and modules --- */

static void try_choir_attention_opts(void)
{
    choir_tensor *q = random_of(choir_dims(1, 1, 3, 2), "q");
    same_values(choir_attention_with(q, q, q, (choir_attention_opts){0}),
        choir_attention_with(q, q, q, choir_attention_defaults()));
}

static void try_choir_rotary_opts(void)
{
    choir_rotary_table(step, CHOIR_F32, 4, 4, (choir_rotary_opts){0});
    scope_refused(step, "choir_rotary_defaults()");
}

static void try_choir_lora_opts(void)
{
    refused(choir_lora(layer(), (choir_lora_opts){0}), "choir_lora_defaults()");
}

static void try_choir_batch_norm_opts(void)
{
    choir_tensor *x = random_of(choir_dims(2, 3, 4), "x");
    choir_tensor *mean = choir_zeros(step, CHOIR_F32, choir_dims(3)), *var = mean;
    choir_batch_norm_with(x, NULL, NULL, mean, var, (choir_batch_norm_opts){0});
    scope_refused(step, "choir_batch_norm_defaults()");
}

static void try_choir_conv_opts(void)
{
    choir_tensor *x = random_of(choir_dims(1, 2, 5, 4), "x");
    choir_tensor *w = random_of(choir_dims(3, 2, 3, 3), "w");
    same_values(choir_conv2d(x, w, NULL, (choir_conv_opts){0}),
        choir_conv2d(x, w, NULL, choir_conv_defaults()));
    choir_tensor *t = random_of(choir_dims(2, 1, 2, 2), "t");
    same_values(choir_conv_transpose2d(x, t, NULL, (choir_conv_opts){0}),
        choir_conv_transpose2d(x, t, NULL, choir_conv_defaults()));
}

static void try_choir_conv3d_opts(void)
{
    choir_tensor *x = random_of((choir_shape){5, {1, 2, 4, 5, 4}}, "x");
    choir_tensor *w = random_of((choir_shape){5, {3, 2, 2, 3, 3}}, "w");
    same_values(choir_conv3d(x, w, NULL, (choir_conv3d_opts){0}),
        choir_conv3d(x, w, NULL, choir_conv3d_defaults()));
}

static void try_choir_ctc_loss_opts(void)
{
    choir_tensor *x = random_of(choir_dims(3, 1, 2), "x");
    choir_tensor *targets = choir_full(step, CHOIR_I64, choir_dims(1, 1), 1);
    choir_tensor *steps = choir_full(step, CHOIR_I64, choir_dims(1), 3);
    choir_tensor *labels = choir_full(step, CHOIR_I64, choir_dims(1), 1);
    choir_ctc_loss_with(x, targets, steps, labels, (choir_ctc_loss_opts){0});
    scope_refused(step, "choir_ctc_loss_defaults()");
}

static void try_choir_nn_conv_opts(void)
{
    choir_nn_conv1d_with(run, 2, 2, (choir_nn_conv_opts){0});
    run_refused("choir_nn_conv_defaults()");
    choir_nn_conv2d_with(run, 2, 2, (choir_nn_conv_opts){0});
    run_refused("choir_nn_conv_defaults()");
    choir_nn_conv_transpose2d_with(run, 2, 2, (choir_nn_conv_opts){0});
    run_refused("choir_nn_conv_defaults()");
}

static void try_choir_nn_conv3d_opts(void)
{
    choir_nn_conv3d_with(run, 2, 2, (choir_nn_conv3d_opts){0});
    run_refused("choir_nn_conv3d_defaults()");
}

static void try_choir_cross_entropy_opts(void)
{
    choir_tensor *x = random_of(choir_dims(2, 3), "x");
    choir_tensor *y = choir_zeros(step, CHOIR_I64, choir_dims(2));
    choir_cross_entropy_with(x, y, (choir_cross_entropy_opts){0});
    scope_refused(step, "choir_cross_entropy_defaults()");
    choir_cross_entropy_with(x, choir_softmax(x), (choir_cross_entropy_opts){0});
    scope_refused(step, "choir_cross_entropy_defaults()");
}

static void try_choir_recurrent_opts(void)
{
    choir_module *(*const kinds[])(choir_scope *, int64_t, int64_t, choir_recurrent_opts) = {
        choir_nn_lstm, choir_nn_gru, choir_nn_rnn};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kinds[i](run, 2, 2, (choir_recurrent_opts){0});
        run_refused("choir_recurrent_defaults()");
    }
}

static choir_status build_model(bool zeros)
{
    choir_model_with(run, "toy", OF(choir_model_opts, choir_model_defaults));
    return choir_scope_status(run);
}

static void try_choir_model_opts(void)
{
    alike(build_model);
}

/* --- optimizers --- */

static void try_choir_sgd_opts(void)
{
    choir_module *net = layer();
    choir_optim *optim = choir_sgd(run, net, (choir_sgd_opts){0});
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(1, 2));
    ok(choir_backward(choir_sum(choir_forward(net, x))));
    refused(choir_optim_step(optim), "choir_sgd_defaults()");
    choir_scope_clear(run);
    choir_optim_set_lr(optim, 0); /* now it is meant */
    ok(choir_optim_step(optim));
}

static void try_choir_adamw_opts(void)
{
    choir_adamw(run, layer(), (choir_adamw_opts){0});
    run_refused("choir_adamw_defaults()");
    choir_adam(run, layer(), (choir_adamw_opts){.lr = 1e-3f});
    run_refused("choir_adam_defaults()");
}

static void try_choir_lamb_opts(void)
{
    choir_lamb(run, layer(), (choir_lamb_opts){0});
    run_refused("choir_lamb_defaults()");
}

static void try_choir_lion_opts(void)
{
    choir_lion(run, layer(), (choir_lion_opts){0});
    run_refused("choir_lion_defaults()");
}

static void try_choir_rmsprop_opts(void)
{
    choir_rmsprop(run, layer(), (choir_rmsprop_opts){0});
    run_refused("choir_rmsprop_defaults()");
}

static void try_choir_adafactor_opts(void)
{
    choir_adafactor(run, layer(), (choir_adafactor_opts){0});
    run_refused("choir_adafactor_defaults()");
}

static void try_choir_muon_opts(void)
{
    choir_muon(run, layer(), (choir_muon_opts){0});
    run_refused("choir_muon_defaults()");
}

static void try_choir_loop_opts(void)
{
    choir_loop_new(NULL, (choir_training){.module = layer()}, (choir_loop_opts){0});
    run_refused("choir_loop_defaults()");
}

/* The mean of the weights of all steps. */
static void try_choir_average_opts(void)
{
    choir_optim *optim = choir_sgd(run, layer(), choir_sgd_defaults());
    ok(choir_optim_average(optim, (choir_average_opts){0}));
    refused(choir_optim_average(optim, (choir_average_opts){.decay = 1}), "got 1");
}

static void try_choir_scaler_opts(void)
{
    choir_scaler_new(run, (choir_scaler_opts){0});
    run_refused("choir_scaler_defaults()");
}

static void try_choir_plateau(void)
{
    choir_plateau zeros = {0}, defaults = choir_plateau_defaults();
    float of_zeros = 1, of_defaults = 1;
    for (int i = 0; i < 30; i++) {
        of_zeros = choir_plateau_next(&zeros, of_zeros, 1);
        of_defaults = choir_plateau_next(&defaults, of_defaults, 1);
        assert_true(of_zeros == of_defaults);
    }
    assert_true(of_defaults < 1);
}

/* --- strategies --- */

static void try_choir_ddp_opts(void)
{
    choir_ddp(run, layer(), group, (choir_ddp_opts){0});
    run_refused("choir_ddp_defaults()");
}

static choir_status begin_join(bool zeros)
{
    choir_module *ddp = choir_ddp(run, layer(), group, choir_ddp_defaults());
    choir_status status =
        choir_ddp_join_begin(ddp, OF(choir_ddp_join_opts, choir_ddp_join_defaults));
    return status == CHOIR_OK ? choir_ddp_join_end(ddp) : status;
}

static void try_choir_ddp_join_opts(void)
{
    alike(begin_join);
}

static void try_choir_powersgd_opts(void)
{
    choir_module *ddp = choir_ddp(run, layer(), group, choir_ddp_defaults());
    refused(choir_ddp_powersgd(ddp, (choir_powersgd_opts){0}), "choir_powersgd_defaults()");
}

static void try_choir_fsdp_opts(void)
{
    choir_fsdp(run, layer(), group, (choir_fsdp_opts){0});
    run_refused("choir_fsdp_defaults()");
}

static void try_choir_local_sgd_opts(void)
{
    choir_local_sgd(run, layer(), group, (choir_local_sgd_opts){0});
    run_refused("choir_local_sgd_defaults()");
    choir_local_sgd(run, layer(), group, (choir_local_sgd_opts){.every = 2, .warmup = 1});
    run_refused("choir_ddp_defaults()");
}

static void try_choir_diloco_opts(void)
{
    choir_diloco(run, layer(), group, (choir_diloco_opts){0});
    run_refused("choir_diloco_defaults()");
}

static choir_status make_sync_batch_norm(bool zeros)
{
    choir_sync_batch_norm_with(
        run, layer(), group, OF(choir_sync_batch_norm_opts, choir_sync_batch_norm_defaults));
    return choir_scope_status(run);
}

static void try_choir_sync_batch_norm_opts(void)
{
    alike(make_sync_batch_norm);
}

static choir_status make_hogwild(bool zeros)
{
    choir_hogwild(run, layer(), OF(choir_hogwild_opts, choir_hogwild_defaults));
    return choir_scope_status(run);
}

static void try_choir_hogwild_opts(void)
{
    alike(make_hogwild);
}

static choir_status make_pipeline(bool zeros)
{
    choir_pipeline(run, layer(), OF(choir_pipeline_opts, choir_pipeline_defaults));
    return choir_scope_status(run);
}

static void try_choir_pipeline_opts(void)
{
    alike(make_pipeline);
}

static choir_status make_data_parallel(bool zeros)
{
    choir_data_parallel(
        run, layer(), OF(choir_data_parallel_opts, choir_data_parallel_defaults));
    return choir_scope_status(run);
}

static void try_choir_data_parallel_opts(void)
{
    alike(make_data_parallel);
}

static choir_status make_tensor_parallel(bool zeros)
{
    choir_tensor_parallel(
        run, layer(), group, OF(choir_tensor_parallel_opts, choir_tensor_parallel_defaults));
    return choir_scope_status(run);
}

static void try_choir_tensor_parallel_opts(void)
{
    alike(make_tensor_parallel);
}

static choir_status make_context_parallel(bool zeros)
{
    choir_context_parallel(
        run, layer(), group, OF(choir_context_parallel_opts, choir_context_parallel_defaults));
    return choir_scope_status(run);
}

static void try_choir_context_parallel_opts(void)
{
    alike(make_context_parallel);
}

/* --- ranks --- */

static void try_choir_group_opts(void)
{
    choir_group *made;
    choir_env env;
    refused(choir_group_init(NULL, (choir_group_opts){0}, &made), "choir_group_defaults()");
    refused(choir_env_init_with(&env, NULL, (choir_group_opts){0}), "choir_group_defaults()");
}

static int no_work(int rank, int world, void *arg)
{
    return 0;
}

static void try_choir_spawn_opts(void)
{
    refused(
        choir_spawn_with(1, no_work, NULL, (choir_spawn_opts){0}), "choir_spawn_defaults()");
}

static void try_choir_store_opts(void)
{
    choir_store_server *server;
    choir_store *store;
    refused(choir_store_serve((choir_store_opts){0}, &server), "choir_store_defaults()");
    refused(choir_store_connect("127.0.0.1", 1, (choir_store_opts){0}, &store),
        "choir_store_defaults()");
}

static void try_choir_study_opts(void)
{
    choir_study *study;
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    refused(choir_study_open(space, (choir_study_opts){0}, &study), "choir_study_defaults()");
    choir_space_free(space);
}

static choir_status no_trial(choir_trial *trial, void *arg, double *values)
{
    return CHOIR_OK;
}

static void try_choir_tune_opts(void)
{
    choir_study *study;
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    ok(choir_study_open(space, choir_study_defaults(), &study));
    refused(choir_tune(study, no_trial, NULL, (choir_tune_opts){0}), "choir_tune_defaults()");
    choir_study_free(study);
    choir_space_free(space);
}

static void try_choir_checkpoint_opts(void)
{
    choir_checkpoint *of_zeros, *of_defaults;
    ok(choir_checkpoint_open("/tmp/a", (choir_checkpoint_opts){0}, &of_zeros));
    ok(choir_checkpoint_open("/tmp/b", choir_checkpoint_defaults(), &of_defaults));
    assert_true(of_zeros->opts.file_bytes == of_defaults->opts.file_bytes);
    ok(choir_checkpoint_close(of_zeros));
    ok(choir_checkpoint_close(of_defaults));
}

static void try_choir_audit_opts(void)
{
    choir_audit *audit;
    choir_module *net = layer();
    choir_optim *optim = choir_adamw(run, net, choir_adamw_defaults());
    refused(choir_audit_open("/tmp/a", net, optim, (choir_audit_opts){0}, &audit),
        "choir_audit_defaults()");
}

/* --- data --- */

static void try_choir_eval_opts(void)
{
    choir_model_info info;
    choir_dataset *data;
    choir_score score;
    ok(choir_model_describe("toy", &info));
    ok(choir_dataset_random(8, info.input, info.output, 0, 1, &data));
    choir_module *net = choir_model_build(run, &info);
    refused(choir_evaluate(run, net, &info, data, (choir_eval_opts){0}, &score),
        "choir_eval_defaults()");
    choir_dataset_free(data);
}

static void try_choir_generate_opts(void)
{
    choir_model_info info = {.classes = 9};
    choir_generated text;
    ok(choir_model_describe("gpt2:layers=1,heads=1,width=4,context=4", &info));
    choir_module *net = choir_model_build(run, &info);
    refused(choir_generate(run, net, &info, NULL, &(choir_prompt){NULL, 0}, 1,
                (choir_generate_opts){0}, &text),
        "choir_generate_defaults()");
}

/* Zeros are its defaults. */
static void try_choir_elastic_opts(void)
{
    choir_elastic *elastic = NULL;
    choir_training t = {.module = choir_nn_linear(run, 2, 2)};
    choir_env env;
    ok(choir_env_init(&env));
    ok(choir_elastic_open(&env, &t, (choir_elastic_opts){0}, &elastic));
    choir_elastic_free(elastic);
    choir_env_free(&env);
}

static void try_choir_data_opts(void)
{
    choir_model_info info;
    choir_dataset *data;
    choir_tokenizer *tokenizer = NULL;
    ok(choir_model_describe("toy", &info));
    refused(choir_dataset_open(
                "random", CHOIR_TRAIN, (choir_data_opts){0}, &info, &tokenizer, &data),
        "choir_data_defaults()");
}

static void try_choir_image_opts(void)
{
    choir_dataset *data;
    refused(choir_dataset_images("/nowhere", CHOIR_TRAIN, (choir_image_opts){0}, &data),
        "choir_image_defaults()");
}

static void try_choir_document_opts(void)
{
    choir_dataset *data;
    choir_tokenizer *tokenizer = NULL;
    refused(choir_dataset_documents(
                "/nowhere", CHOIR_TRAIN, (choir_document_opts){0}, &tokenizer, &data),
        "choir_document_defaults()");
}

static void try_choir_labelled_opts(void)
{
    choir_dataset *data;
    choir_tokenizer *tokenizer;
    ok(choir_tokenizer_bytes(&tokenizer));
    refused(choir_dataset_labelled(
                "/nowhere", CHOIR_TRAIN, (choir_labelled_opts){0}, tokenizer, &data),
        "choir_labelled_defaults()");
    choir_tokenizer_free(tokenizer);
}

static void try_choir_corpus_opts(void)
{
    choir_dataset *data;
    choir_tokenizer *tokenizer = NULL;
    refused(choir_dataset_corpus(
                "/nowhere.jsonl", CHOIR_TRAIN, (choir_corpus_opts){0}, &tokenizer, &data),
        "choir_corpus_defaults()");
}

static void try_choir_augment_opts(void)
{
    choir_dataset *inner, *data;
    ok(choir_dataset_random_tokens(8, 4, 9, 1, &inner));
    refused(choir_dataset_augmented(inner, (choir_augment_opts){0}, &data),
        "choir_augment_defaults()");
    choir_dataset_free(inner);
}

static void try_choir_stream_opts(void)
{
    choir_stream *stream;
    choir_tokenizer *tokenizer;
    ok(choir_tokenizer_bytes(&tokenizer));
    refused(choir_stream_open(0, "x", tokenizer, (choir_stream_opts){0}, &stream),
        "choir_stream_defaults()");
    choir_tokenizer_free(tokenizer);
}

static void try_choir_sampler_opts(void)
{
    choir_sampler *sampler;
    refused(choir_distributed_sampler(8, (choir_sampler_opts){0}, &sampler),
        "choir_sampler_defaults()");
}

static void try_choir_loader_opts(void)
{
    choir_dataset *data;
    ok(choir_dataset_random(8, choir_dims(2), CHOIR_SCALAR, 2, 1, &data));
    choir_loader_new(run, data, (choir_loader_opts){0});
    run_refused("choir_loader_defaults()");
    choir_loader_new(run, data, (choir_loader_opts){.batch_size = 2});
    run_refused("choir_loader_defaults()");
    choir_dataset_free(data);
}

static choir_status log_to_csv(bool zeros)
{
    choir_logger *log = NULL;
    choir_status status =
        choir_log_open("csv:/proc/nowhere/x.csv", OF(choir_log_opts, choir_log_defaults), &log);
    (void)!choir_log_close(log);
    return status;
}

static void try_choir_log_opts(void)
{
    alike(log_to_csv);
}

static choir_status multihead(bool zeros)
{
    choir_nn_multihead_attention(run, 4, 2, OF(choir_multihead_opts, choir_multihead_defaults));
    return choir_scope_status(run);
}

static void try_choir_multihead_opts(void)
{
    alike(multihead);
}

static void try_choir_transformer_opts(void)
{
    choir_nn_transformer_encoder_layer(run, 4, 2, (choir_transformer_opts){0});
    run_refused("choir_transformer_defaults()");
}

static int64_t no_parts(const choir_parts_dataset *self)
{
    return self->count;
}

static choir_status no_values(
    choir_parts_dataset *self, int64_t epoch, int64_t index, void *const *part)
{
    return CHOIR_OK;
}

static void try_choir_parts_opts(void)
{
    static const choir_parts_ops ops = {.length = no_parts, .get = no_values};
    static const choir_part one = {.name = "x", .dtype = CHOIR_F32};
    choir_parts_dataset data = {&ops, &one, 1};
    choir_parts_loader_new(run, &data, (choir_parts_opts){0});
    run_refused("choir_parts_defaults()");
}

/* --- all of them --- */

static const struct {
    const char *type;
    void (*try)(void);
} all[] = {
#define OPTIONS(type) {#type, try_##type},
#include "options.inc"
};

static void test_all(void **state)
{
    choir_env env;
    ok(choir_env_init(&env));
    group = env.group;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        print_message("%s\n", all[i].type);
        open_scopes(NULL);
        all[i].try();
        close_scopes(NULL);
    }
    choir_env_free(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
