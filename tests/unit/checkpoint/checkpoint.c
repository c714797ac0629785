/* Weights and checkpoints: saved values come back bit for bit, training continues as if it had
 * not stopped, and a file that does not fit is refused before anything has changed. */
#include "checkpoint_fixture.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/save.h"
#include "tensor/tensor.h"

/* --- weights --- */

static void weights_round_trip(void **state)
{
    const char *models[] = {CNN, GPT2, TOY};
    for (int i = 0; i < 3; i++) {
        const char *path = at("weights.safetensors");
        job a = job_open(models[i], SGD_PLAIN), b = job_open(models[i], SGD_PLAIN);
        train(&a, 0, 2);
        assert_string_not_equal(sha(a.net), sha(b.net));
        ok(choir_save(a.net, path));
        ok(choir_load(b.net, path));
        assert_string_equal(sha(a.net), sha(b.net));
        job_close(&a);
        job_close(&b);
    }
}

/* A file with weights that no reader takes would replace a good one. */
static void never_over_a_good_file(void **state)
{
    const char *path = at("good.safetensors");
    job a = job_open(GPT2, SGD_PLAIN), b = job_open(GPT2, SGD_PLAIN);
    float *w = choir__data(choir_module_find(a.net, "transformer.ln_f.weight"));
    train(&b, 0, 1);
    ok(choir_save(a.net, path));
    w[5] = NAN;
    assert_fails(choir_save(a.net, path), CHOIR_ERR_NONFINITE,
        "'transformer.ln_f.weight' (8) holds nan, as f32, at index 5");
    w[5] = INFINITY;
    assert_int_equal(choir_save(a.net, path), CHOIR_ERR_NONFINITE);
    w[5] = 1;
    ok(choir_load(b.net, path));
    assert_string_equal(sha(a.net), sha(b.net));
    job_close(&a);
    job_close(&b);
}

/* Images' weights are channels-last in memory and (O, I, H, W) in the file. */
static void convolution_is_row_major(void **state)
{
    const char *path = at("conv.safetensors");
    job j = job_open(CNN, SGD_PLAIN);
    choir__st_file *file;
    train(&j, 0, 1);
    ok(choir_save(j.net, path));
    ok(choir__st_open(path, &file));
    const choir__st_tensor *t = st_find(file, "4.weight"); /* (4, 2, 3, 3) */
    const choir_tensor *w = choir_module_find(j.net, "4.weight");
    assert_non_null(t);
    assert_int_equal(t->shape.ndim, 4);
    assert_false(choir__is_contiguous(w));
    const float *stored = t->data, *memory = choir__data(w);
    for (int64_t o = 0, n = 0; o < 4; o++)
        for (int64_t i = 0; i < 2; i++)
            for (int64_t y = 0; y < 3; y++)
                for (int64_t x = 0; x < 3; x++, n++)
                    assert_true(stored[n] == memory[o * w->stride[0] + i * w->stride[1] +
                                                    y * w->stride[2] + x * w->stride[3]]);
    assert_non_null(st_find(file, "1.running_mean"));
    assert_non_null(st_find(file, "5.running_var"));
    choir__st_close(file);
    job_close(&j);
}

static void tied_weights_once(void **state)
{
    const char *path = at("tied.safetensors");
    job j = job_open(GPT2, SGD_PLAIN);
    choir__st_file *file;
    ok(choir_save(j.net, path));
    ok(choir__st_open(path, &file));
    assert_non_null(st_find(file, "transformer.wte.weight"));
    assert_null(st_find(file, "transformer.lm_head.weight"));
    assert_null(st_find(file, "lm_head.weight"));
    choir__st_close(file);
    job_close(&j);
}

/* Computed with Python: hashlib.sha256(struct.pack("<4f", 1, 2, 3, 4)).hexdigest() */
static void known_sha256(void **state)
{
    job j = job_open("toy:in=1,hidden=1,out=1", SGD_PLAIN);
    const char *names[] = {"0.bias", "0.weight", "2.bias", "2.weight"};
    for (int i = 0; i < 4; i++) {
        float value = (float)(i + 1);
        ok(choir_write(choir_module_find(j.net, names[i]), &value, sizeof value));
    }
    assert_string_equal(
        sha(j.net), "ad73b9acd6e4a74b2f5bb5386658ce3bb146cd040a1867646ab3b973fb6632b1");
    job_close(&j);
}

/* Values for the tensors of toy:in=1,hidden=1,out=1; each test damages one of them. */
static const float one = 1, infinite = INFINITY;

static void toy_tensors(choir__st_tensor *t)
{
    t[0] = (choir__st_tensor){"0.bias", CHOIR_F32, {1, {1}}, &one, .bytes = 4};
    t[1] = (choir__st_tensor){"0.weight", CHOIR_F32, {2, {1, 1}}, &one, .bytes = 4};
    t[2] = (choir__st_tensor){"2.bias", CHOIR_F32, {1, {1}}, &one, .bytes = 4};
    t[3] = (choir__st_tensor){"2.weight", CHOIR_F32, {2, {1, 1}}, &one, .bytes = 4};
}

static void assert_load_fails(job *j, const choir__st_tensor *t, int count, const char *part)
{
    const char *path = at("bad.safetensors"), *before = sha(j->net);
    ok(st_write(path, t, count, NULL));
    assert_fails(choir_load(j->net, path), CHOIR_ERR_FORMAT, path);
    assert_says(part);
    assert_string_equal(sha(j->net), before); /* nothing has changed */
}

static void load_refuses(void **state)
{
    job j = job_open("toy:in=1,hidden=1,out=1", SGD_PLAIN);
    choir__st_tensor t[5];
    toy_tensors(t);
    assert_load_fails(&j, t, 3, "missing tensor '2.weight' (1, 1) of the model");
    t[4] = (choir__st_tensor){"3.weight", CHOIR_F32, {1, {1}}, &one, .bytes = 4};
    assert_load_fails(&j, t, 5, "unknown tensor '3.weight' (1), which the model");
    t[3].shape = (choir_shape){1, {1}};
    assert_load_fails(&j, t, 4, "'2.weight' is (1), but the model's is (1, 1)");
    toy_tensors(t);
    t[3].data = &infinite;
    assert_load_fails(&j, t, 4, "'2.weight' (1, 1) holds inf, as f32, at index 0");
    const double large = 1e300;
    t[3] = (choir__st_tensor){"2.weight", CHOIR_F64, {2, {1, 1}}, &large, .bytes = 8};
    assert_load_fails(&j, t, 4, "'2.weight' (1, 1) holds inf, as f32, at index 0");
    t[3].dtype = CHOIR_I64;
    assert_load_fails(&j, t, 4, "'2.weight' is i64, which cannot become f32");
    assert_fails(choir_load(j.net, at("none.safetensors")), CHOIR_ERR_IO, "No such file");
    job_close(&j);
}

static void load_converts(void **state)
{
    const char *path = at("mixed.safetensors");
    job j = job_open("toy:in=1,hidden=1,out=1", SGD_PLAIN);
    choir__st_tensor t[4];
    const double f64 = 0.1;
    const uint16_t f16 = choir__f16_from_f32(-1.5f), bf16 = choir__bf16_from_f32(3.0f);
    toy_tensors(t);
    t[0].dtype = CHOIR_F64, t[0].data = &f64, t[0].bytes = 8;
    t[1].dtype = CHOIR_F16, t[1].data = &f16, t[1].bytes = 2;
    t[2].dtype = CHOIR_BF16, t[2].data = &bf16, t[2].bytes = 2;
    ok(st_write(path, t, 4, NULL));
    ok(choir_load(j.net, path));
    assert_true(choir_item(choir_module_find(j.net, "0.bias")) == (double)0.1f);
    assert_true(choir_item(choir_module_find(j.net, "0.weight")) == -1.5);
    assert_true(choir_item(choir_module_find(j.net, "2.bias")) == 3);
    assert_true(choir_item(choir_module_find(j.net, "2.weight")) == 1);
    job_close(&j);
}

/* --- checkpoints --- */

/* Training through a checkpoint gives the bits of training without one. */
static void training_goes_on(void **state)
{
    const char *models[] = {CNN, GPT2, TOY};
    for (int i = 0; i < 9; i++) {
        enum optimizer optimizer = (enum optimizer)(i / 3);
        const char *dir = at("on-%d/deep/er", i);
        job a = job_open(models[i % 3], optimizer), b = job_open(models[i % 3], optimizer);
        train(&a, 0, 3);
        save(dir, &a, 3, false);
        train(&a, 3, 6);
        assert_int_equal(load(dir, &b), 3);
        assert_int_equal(choir_optim_steps(b.opt), 3);
        train(&b, 3, 6);
        assert_string_equal(sha(a.net), sha(b.net));
        job_close(&a);
        job_close(&b);
    }
}

static void state_round_trip(void **state)
{
    char found[PATH_MAX];
    job j = job_open(CNN, ADAMW);
    choir_train_state in = state_of(&j, 12345678901), out;
    memset(in.model, 'm', sizeof in.model - 1); /* as long as may be */
    in.model[sizeof in.model - 1] = '\0';
    in.loss = -(double)INFINITY; /* has no number in JSON */
    ok(save_checkpoint(at("state"), &in, j.net, j.opt, NULL, true));
    ok(choir__checkpoint_find(at("state/best"), found));
    ok(choir__checkpoint_state(found, &out));
    assert_string_equal(in.model, out.model);
    assert_string_equal(in.optimizer, out.optimizer);
    assert_int_equal(in.step, out.step);
    assert_int_equal(in.position, out.position);
    assert_true(in.seed == out.seed);
    assert_int_equal(in.batch_size, out.batch_size);
    assert_int_equal(in.microbatches, out.microbatches);
    assert_int_equal(in.optimizer_steps, out.optimizer_steps);
    assert_true(out.loss == in.loss && isnan(out.eval_loss) && in.best_loss == out.best_loss);
    assert_true(choir__same_shape(in.input, out.input));
    assert_true(choir__same_shape(in.output, out.output));
    assert_int_equal(in.classes, out.classes);
    assert_int_equal(in.task, out.task);
    job_close(&j);
}

static void assert_found(const char *path, const char *step)
{
    char found[PATH_MAX];
    ok(choir__checkpoint_find(path, found));
    assert_string_equal(strrchr(found, '/') + 1, step);
}

static void keeps_latest_and_best(void **state)
{
    job j = job_open(TOY, SGD_MOMENTUM);
    save(at("keep"), &j, 1, true);
    save(at("keep"), &j, 2, false);
    save(at("keep/"), &j, 3, false); /* a slash at the end is fine */
    assert_int_equal(entries(at("keep")), 4);
    assert_found(at("keep"), "step-00000003");
    assert_found(at("keep/latest"), "step-00000003");
    assert_found(at("keep/best"), "step-00000001");
    assert_found(at("keep/step-00000001"), "step-00000001");
    assert_found(at("keep/best/model.safetensors"), "model.safetensors");
    save(at("keep"), &j, 4, true);
    assert_int_equal(entries(at("keep")), 3);
    assert_found(at("keep/best"), "step-00000004");
    assert_int_equal(entries(at("keep/best/")), 3);
    job_close(&j);
}

static void same_step_again(void **state)
{
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    train(&a, 0, 1);
    save(at("again"), &a, 5, true);
    train(&a, 1, 2);
    save(at("again"), &a, 5, false);
    assert_int_equal(load(at("again"), &b), 5);
    assert_string_equal(sha(a.net), sha(b.net));
    assert_int_equal(entries(at("again")), 3);
    job_close(&a);
    job_close(&b);
}

static void find_refuses(void **state)
{
    char found[PATH_MAX];
    assert_fails(choir__checkpoint_find(at("nothing"), found), CHOIR_ERR_IO,
        "cannot open the checkpoint");
    assert_int_equal(mkdir(at("empty"), 0777), 0);
    assert_fails(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_FORMAT,
        "empty: expected a checkpoint: a folder with latest or state.json, or a "
        ".safetensors file");
    assert_fails(choir__checkpoint_find("/proc/self/exe", found), CHOIR_ERR_FORMAT,
        "/proc/self/exe: expected a checkpoint");
    assert_int_equal(symlink("step-00000009", at("empty/latest")), 0);
    assert_fails(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_IO,
        "empty/latest points to step-00000009, which is not there");
    assert_int_equal(mkdir(at("empty/step-00000009"), 0777), 0);
    assert_fails(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_FORMAT,
        "incomplete: it has no state.json");
}

/* A process that dies between the name of its first checkpoint and the link `latest` has
 * saved. */
static void found_without_latest(void **state)
{
    char found[PATH_MAX];
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    train(&a, 0, 1);
    save(at("first"), &a, 3, false);
    assert_int_equal(unlink(at("first/latest")), 0);
    assert_int_equal(mkdir(at("first/step-00000009"), 0777), 0); /* not complete */
    assert_int_equal(load(at("first"), &b), 3);
    assert_string_equal(sha(a.net), sha(b.net));
    ok(choir__checkpoint_find(at("first"), found));
    assert_non_null(strstr(found, "first/step-00000003"));
    save(at("first"), &a, 4, false);
    assert_int_equal(load(at("first"), &b), 4);
    job_close(&a);
    job_close(&b);
}

static void weights_alone(void **state)
{
    char found[PATH_MAX];
    choir_train_state s;
    choir_tokenizer *tokenizer;
    job j = job_open(TOY, ADAMW);
    ok(choir_save(j.net, at("alone.safetensors")));
    ok(choir__checkpoint_find(at("alone.safetensors"), found));
    ok(choir__checkpoint_load(found, j.net, NULL, NULL));
    ok(choir__checkpoint_tokenizer(found, &tokenizer));
    assert_null(tokenizer);
    assert_fails(
        choir__checkpoint_load(found, j.net, j.opt, NULL), CHOIR_ERR_FORMAT, "weights alone");
    assert_int_equal(choir__checkpoint_state(found, &s), CHOIR_ERR_FORMAT);
    job_close(&j);
}

static void another_model(void **state)
{
    char found[PATH_MAX];
    job a = job_open(TOY, SGD_MOMENTUM), b = job_open("toy:in=3,hidden=5,out=2", SGD_MOMENTUM);
    job c = job_open(TOY, ADAMW), d = job_open(GPT2, SGD_MOMENTUM);
    save(at("other"), &a, 1, false);
    ok(choir__checkpoint_find(at("other"), found));
    assert_fails(choir__checkpoint_load(found, b.net, NULL, NULL), CHOIR_ERR_FORMAT,
        "'0.bias' is (4), but the model's is (5); the checkpoint was made with model "
        "'toy:in=3,hidden=4,out=2'");
    assert_fails(
        choir__checkpoint_load(found, d.net, NULL, NULL), CHOIR_ERR_FORMAT, "missing tensor");
    train(&c, 0, 2);
    const char *before = sha(c.net);
    assert_fails(choir__checkpoint_load(found, c.net, c.opt, NULL), CHOIR_ERR_FORMAT,
        "of the optimizer; the checkpoint was made with optimizer 'adamw");
    assert_string_equal(sha(c.net), before); /* not even the weights, which fit */
    assert_int_equal(choir_optim_steps(c.opt), 2);
    job_close(&a), job_close(&b), job_close(&c), job_close(&d);
}

static void tokenizer_comes_along(void **state)
{
    char found[PATH_MAX];
    job j = job_open(GPT2, ADAMW);
    choir_tokenizer *in, *out;
    choir_train_state s = state_of(&j, 1);
    ok(choir_tokenizer_chars("hello", 5, &in));
    ok(save_checkpoint(at("tokens"), &s, j.net, j.opt, in, false));
    ok(choir__checkpoint_find(at("tokens"), found));
    ok(choir__checkpoint_tokenizer(found, &out));
    assert_int_equal(choir_tokenizer_size(out), 4);
    assert_string_equal(choir_tokenizer_decode(out, 1), "h");
    choir_tokenizer_free(in);
    choir_tokenizer_free(out);
    save(at("tokens"), &j, 2, false);
    ok(choir__checkpoint_find(at("tokens"), found));
    ok(choir__checkpoint_tokenizer(found, &out));
    assert_null(out);
    job_close(&j);
}

/* --- memory for copies --- */

#define LARGE "toy:in=3,hidden=400000,out=2" /* files of many chunks */

static bool resident(const char *from, size_t bytes)
{
    unsigned char in_use[1 << 14];
    long page = sysconf(_SC_PAGESIZE);
    size_t pages = (bytes + (size_t)page - 1) / (size_t)page;
    assert_true(pages <= sizeof in_use);
    assert_int_equal(mincore((void *)from, bytes, in_use), 0);
    for (size_t i = 0; i < pages; i++)
        if (!(in_use[i] & 1))
            return false;
    return true;
}

/* Prepared memory is touched before the first save, and all saves copy to it. */
static void copies_to_kept_memory(void **state)
{
    int64_t step = 0;
    job a = job_open(LARGE, ADAMW), b = job_open(LARGE, ADAMW);
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    choir_checkpoint *c;
    opts.async = true;
    ok(choir_checkpoint_open(at("kept"), opts, &c));
    train(&a, 0, 1);
    ok(choir_checkpoint_prepare(c, a.net, a.opt));
    choir__saver *saver = c->saver;
    assert_true(saver->touching);
    assert_int_equal(pthread_join(saver->toucher, NULL), 0);
    saver->touching = false;
    const char *memory = saver->copy;
    assert_true(saver->copy_bytes > (size_t)12 * 2000000);
    assert_true(resident(memory, saver->copy_bytes));
    for (int k = 1; k < 4; k++) {
        ok(choir_checkpoint_save(c, a.net, a.opt, k));
        assert_ptr_equal(saver->copy, memory);
        ok(choir_checkpoint_load(c, b.net, b.opt, &step));
        assert_int_equal(step, k);
        assert_string_equal(sha(a.net), sha(b.net));
        train(&a, k, k + 1);
        train(&b, k, k + 1); /* the optimizer's state came along */
        assert_string_equal(sha(a.net), sha(b.net));
        ok(choir_checkpoint_prepare(c, a.net, a.opt)); /* nothing is left to prepare */
        assert_false(saver->touching);
    }
    ok(choir_checkpoint_close(c));
    opts.async = false;
    ok(choir_checkpoint_open(at("kept"), opts, &c));
    ok(choir_checkpoint_prepare(c, a.net, a.opt));
    assert_null(c->saver->copy);
    ok(choir_checkpoint_close(c));
    job_close(&a);
    job_close(&b);
}

/* A checkpoint may be saved, or closed, while its memory is still being prepared. */
static void interrupted_preparation(void **state)
{
    job a = job_open(LARGE, ADAMW), b = job_open(LARGE, ADAMW);
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.async = true;
    for (int saves = 0; saves < 2; saves++) {
        int64_t step = 0;
        choir_checkpoint *c;
        ok(choir_checkpoint_open(at("early"), opts, &c));
        ok(choir_checkpoint_prepare(c, a.net, a.opt));
        if (saves) {
            ok(choir_checkpoint_save(c, a.net, a.opt, 1));
            ok(choir_checkpoint_load(c, b.net, b.opt, &step));
            assert_string_equal(sha(a.net), sha(b.net));
        }
        ok(choir_checkpoint_close(c));
    }
    job_close(&a);
    job_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_round_trip),
        cmocka_unit_test(never_over_a_good_file),
        cmocka_unit_test(convolution_is_row_major),
        cmocka_unit_test(tied_weights_once),
        cmocka_unit_test(known_sha256),
        cmocka_unit_test(load_refuses),
        cmocka_unit_test(load_converts),
        cmocka_unit_test(training_goes_on),
        cmocka_unit_test(state_round_trip),
        cmocka_unit_test(keeps_latest_and_best),
        cmocka_unit_test(same_step_again),
        cmocka_unit_test(find_refuses),
        cmocka_unit_test(found_without_latest),
        cmocka_unit_test(weights_alone),
        cmocka_unit_test(another_model),
        cmocka_unit_test(tokenizer_comes_along),
        cmocka_unit_test(copies_to_kept_memory),
        cmocka_unit_test(interrupted_preparation),
    };
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
