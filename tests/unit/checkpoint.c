/* Weights and checkpoints: what is saved comes back bit for bit, training goes on as if
 * nothing had happened, and neither a kill, a full disk nor a damaged file costs more than
 * the save at hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/autograd.h>
#include "base/half.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "nn/models/models.h"
#include "tensor/tensor.h"

#define CNN  "cnn:width=2,channels=1,image=8,classes=3"
#define GPT2 "gpt2:layers=1,heads=2,width=8,context=4,vocab=5"
#define TOY  "toy:in=3,hidden=4,out=2"

static char root[] = "/tmp/choir-checkpoint-XXXXXX";
static const char *self; /* this program's path */

static int set_up(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* "ROOT/text", in one of a few static buffers. */
static const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *at(const char *format, ...)
{
    static char text[8][512];
    static int next;
    char *out = text[next++ % 8];
    va_list args;
    va_start(args, format);
    int n = snprintf(out, sizeof text[0], "%s/", root);
    vsnprintf(out + n, sizeof text[0] - (size_t)n, format, args);
    va_end(args);
    return out;
}

static void ok(choir_status status)
{
    if (status != CHOIR_OK)
        fail_msg("%s: %s", choir_status_name(status), choir_error_message());
}

static void assert_says(const char *part)
{
    if (!strstr(choir_error_message(), part))
        fail_msg("'%s' has not '%s'", choir_error_message(), part);
}

/* --- a small training job ----------------------------------------------------------------- */

typedef struct job {
    choir_scope *run;
    choir_module *net;
    choir_optim *opt;
    choir__model_info info;
} job;

enum optimizer { ADAMW, SGD_MOMENTUM, SGD_PLAIN };

static job job_open(const char *model, enum optimizer optimizer)
{
    job j = {.run = choir_scope_open(NULL, 7)};
    const choir__model_spec *spec;
    ok(choir__model_find(model, &spec));
    ok(spec->describe(model, &j.info));
    ok(spec->build(model, j.run, &j.info, &j.net));
    choir_adamw_opts adamw = choir_adamw_defaults();
    choir_sgd_opts sgd = choir_sgd_defaults();
    adamw.lr = sgd.lr = 0.05f;
    sgd.momentum = optimizer == SGD_MOMENTUM ? 0.9f : 0;
    j.opt =
        optimizer == ADAMW ? choir_adamw(j.run, j.net, adamw) : choir_sgd(j.run, j.net, sgd);
    return j;
}

static void job_close(job *j)
{
    ok(choir_scope_close(j->run));
}

/* Steps [first, last): each on data that depends on its number alone. */
static void train(job *j, int first, int last)
{
    enum { BATCH = 4 };
    for (int k = first; k < last; k++) {
        choir_scope *s = choir_step_open(j->run, (uint64_t)k);
        choir_tensor *x, *y;
        int64_t ids[BATCH * 4], targets[BATCH * 4];
        for (int i = 0; i < BATCH * 4; i++) {
            ids[i] = (int64_t)(choir__mix(1, (uint64_t)(k * 64 + i)) % 5);
            targets[i] = (int64_t)(choir__mix(2, (uint64_t)(k * 64 + i)) % 3);
        }
        if (j->info.task == CHOIR__LANGUAGE) {
            x = choir_from(s, CHOIR_I64, choir_dims(BATCH, 4), ids);
            y = choir_from(s, CHOIR_I64, choir_dims(BATCH, 4), targets);
        } else if (j->info.task == CHOIR__CLASSIFICATION) {
            x = choir_randn(s, choir_dims(BATCH, 1, 8, 8), "x");
            y = choir_from(s, CHOIR_I64, choir_dims(BATCH), targets);
        } else {
            x = choir_randn(s, choir_dims(BATCH, 3), "x");
            y = choir_randn(s, choir_dims(BATCH, 2), "y");
        }
        ok(choir_backward(choir__model_loss(&j->info, choir_forward(j->net, x), y)));
        ok(choir_optim_step(j->opt));
        ok(choir_scope_close(s));
    }
}

static const char *sha(choir_module *net)
{
    static char hex[4][65];
    static int next;
    char *out = hex[next++ % 4];
    ok(choir__weights_sha256(net, out));
    return out;
}

static choir__train_state state_of(const job *j, int64_t step)
{
    choir__train_state s = {.step = step,
        .position = step * 2,
        .seed = UINT64_MAX,
        .batch_size = 4,
        .microbatches = 2,
        .optimizer_steps = choir_optim_steps(j->opt),
        .optimizer = "adamw:lr=0.05",
        .loss = 0.1,
        .eval_loss = NAN,
        .best_loss = -1.5e-300,
        .input = j->info.input,
        .output = j->info.output,
        .classes = j->info.classes,
        .task = (int)j->info.task};
    snprintf(s.model, sizeof s.model, "%s", j->info.config);
    return s;
}

static void save(const char *dir, const job *j, int64_t step, bool best)
{
    choir__train_state s = state_of(j, step);
    ok(choir__checkpoint_save(dir, &s, j->net, j->opt, NULL, best));
}

/* Finds, reads and loads; the step it is at. */
static int64_t load(const char *path, job *j)
{
    char found[PATH_MAX];
    choir__train_state s;
    ok(choir__checkpoint_find(path, found));
    ok(choir__checkpoint_state(found, &s));
    ok(choir__checkpoint_load(found, j->net, j->opt));
    return s.step;
}

/* --- weights ------------------------------------------------------------------------------ */

static void weights_round_trip(void **state)
{
    (void)state;
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

/* Images' weights are channels-last in memory and (O, I, H, W) in the file. */
static void convolution_is_row_major(void **state)
{
    (void)state;
    const char *path = at("conv.safetensors");
    job j = job_open(CNN, SGD_PLAIN);
    choir__st_file *file;
    train(&j, 0, 1);
    ok(choir_save(j.net, path));
    ok(choir__st_open(path, &file));
    const choir__st_tensor *t = choir__st_find(file, "4.weight"); /* (4, 2, 3, 3) */
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
    assert_non_null(choir__st_find(file, "1.running_mean"));
    assert_non_null(choir__st_find(file, "5.running_var"));
    choir__st_close(file);
    job_close(&j);
}

static void tied_weights_once(void **state)
{
    (void)state;
    const char *path = at("tied.safetensors");
    job j = job_open(GPT2, SGD_PLAIN);
    choir__st_file *file;
    ok(choir_save(j.net, path));
    ok(choir__st_open(path, &file));
    assert_non_null(choir__st_find(file, "wte.weight"));
    assert_null(choir__st_find(file, "lm_head"));
    assert_null(choir__st_find(file, "lm_head.weight"));
    choir__st_close(file);
    job_close(&j);
}

/* By another hand: hashlib.sha256(struct.pack("<4f", 1, 2, 3, 4)).hexdigest() */
static void known_sha256(void **state)
{
    (void)state;
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

/* Those of toy:in=1,hidden=1,out=1, to be spoilt. */
static const float one = 1, infinite = INFINITY;

static void toy_tensors(choir__st_tensor *t)
{
    t[0] = (choir__st_tensor){"0.bias", CHOIR_F32, {1, {1}}, &one, 4};
    t[1] = (choir__st_tensor){"0.weight", CHOIR_F32, {2, {1, 1}}, &one, 4};
    t[2] = (choir__st_tensor){"2.bias", CHOIR_F32, {1, {1}}, &one, 4};
    t[3] = (choir__st_tensor){"2.weight", CHOIR_F32, {2, {1, 1}}, &one, 4};
}

static void assert_load_fails(job *j, const choir__st_tensor *t, int count, const char *part)
{
    const char *path = at("bad.safetensors"), *before = sha(j->net);
    ok(choir__st_write(path, t, count, NULL));
    assert_int_equal(choir_load(j->net, path), CHOIR_ERR_FORMAT);
    assert_says(path);
    assert_says(part);
    assert_string_equal(sha(j->net), before); /* nothing has changed */
}

static void load_refuses(void **state)
{
    (void)state;
    job j = job_open("toy:in=1,hidden=1,out=1", SGD_PLAIN);
    choir__st_tensor t[5];
    toy_tensors(t);
    assert_load_fails(&j, t, 3, "'2.weight' (1, 1) of the model is missing");
    t[4] = (choir__st_tensor){"3.weight", CHOIR_F32, {1, {1}}, &one, 4};
    assert_load_fails(&j, t, 5, "'3.weight' (1) is none of the model's");
    t[3].shape = (choir_shape){1, {1}};
    assert_load_fails(&j, t, 4, "'2.weight' is (1), but the model's is (1, 1)");
    toy_tensors(t);
    t[3].data = &infinite;
    assert_load_fails(&j, t, 4, "'2.weight' (1, 1) holds inf, as f32, at index 0");
    const double large = 1e300;
    t[3] = (choir__st_tensor){"2.weight", CHOIR_F64, {2, {1, 1}}, &large, 8};
    assert_load_fails(&j, t, 4, "'2.weight' (1, 1) holds inf, as f32, at index 0");
    t[3].dtype = CHOIR_I64;
    assert_load_fails(&j, t, 4, "'2.weight' is i64, which cannot become f32");
    assert_int_equal(choir_load(j.net, at("none.safetensors")), CHOIR_ERR_IO);
    assert_says("No such file");
    job_close(&j);
}

static void load_converts(void **state)
{
    (void)state;
    const char *path = at("mixed.safetensors");
    job j = job_open("toy:in=1,hidden=1,out=1", SGD_PLAIN);
    choir__st_tensor t[4];
    const double f64 = 0.1;
    const uint16_t f16 = choir__f16_from_f32(-1.5f), bf16 = choir__bf16_from_f32(3.0f);
    toy_tensors(t);
    t[0].dtype = CHOIR_F64, t[0].data = &f64, t[0].bytes = 8;
    t[1].dtype = CHOIR_F16, t[1].data = &f16, t[1].bytes = 2;
    t[2].dtype = CHOIR_BF16, t[2].data = &bf16, t[2].bytes = 2;
    ok(choir__st_write(path, t, 4, NULL));
    ok(choir_load(j.net, path));
    assert_true(choir_item(choir_module_find(j.net, "0.bias")) == (double)0.1f);
    assert_true(choir_item(choir_module_find(j.net, "0.weight")) == -1.5);
    assert_true(choir_item(choir_module_find(j.net, "2.bias")) == 3);
    assert_true(choir_item(choir_module_find(j.net, "2.weight")) == 1);
    job_close(&j);
}

/* --- checkpoints -------------------------------------------------------------------------- */

/* Training through a checkpoint gives the bits of training without one. */
static void training_goes_on(void **state)
{
    (void)state;
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
    (void)state;
    char found[PATH_MAX];
    job j = job_open(CNN, ADAMW);
    choir__train_state in = state_of(&j, 12345678901), out;
    memset(in.model, 'm', sizeof in.model - 1); /* as long as may be */
    in.model[sizeof in.model - 1] = '\0';
    in.loss = INFINITY; /* is not in JSON: unknown */
    ok(choir__checkpoint_save(at("state"), &in, j.net, j.opt, NULL, true));
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
    assert_true(isnan(out.loss) && isnan(out.eval_loss) && in.best_loss == out.best_loss);
    assert_true(choir__same_shape(in.input, out.input));
    assert_true(choir__same_shape(in.output, out.output));
    assert_int_equal(in.classes, out.classes);
    assert_int_equal(in.task, out.task);
    job_close(&j);
}

static bool there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static int entries(const char *dir)
{
    int count = 0;
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count - 2;
}

static void assert_found(const char *path, const char *step)
{
    char found[PATH_MAX];
    ok(choir__checkpoint_find(path, found));
    assert_string_equal(strrchr(found, '/') + 1, step);
}

static void keeps_latest_and_best(void **state)
{
    (void)state;
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
    (void)state;
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

static void touch(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_int_not_equal(fd, -1);
    close(fd);
}

static void leftovers(void **state)
{
    (void)state;
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    save(at("left"), &a, 1, false);
    /* Killed while the old step 1 was aside: readers find it, and the next save puts it
     * back. */
    assert_int_equal(rename(at("left/step-00000001"), at("left/.old-step-00000001")), 0);
    assert_int_equal(load(at("left"), &b), 1);
    assert_int_equal(load(at("left/latest"), &b), 1);
    /* Killed while writing, linking, removing. */
    assert_int_equal(mkdir(at("left/.new-1"), 0777), 0);
    touch(at("left/.new-1/model.safetensors.tmp.1"));
    assert_int_equal(symlink("nowhere", at("left/.link-1")), 0);
    assert_int_equal(mkdir(at("left/step-00000000"), 0777), 0);
    touch(at("left/step-00000000/model.safetensors"));
    /* Somebody's own. */
    assert_int_equal(mkdir(at("left/step-00000099"), 0777), 0);
    touch(at("left/step-00000099/notes.txt"));
    assert_int_equal(mkdir(at("left/step-by-step"), 0777), 0);
    save(at("left"), &a, 2, false);
    assert_true(there(at("left/step-00000099/notes.txt")));
    assert_true(there(at("left/step-by-step")));
    assert_int_equal(entries(at("left")), 4); /* those, step-00000002, latest */
    assert_int_equal(load(at("left"), &b), 2);
    job_close(&a);
    job_close(&b);
}

static void find_refuses(void **state)
{
    (void)state;
    char found[PATH_MAX];
    assert_int_equal(choir__checkpoint_find(at("nothing"), found), CHOIR_ERR_IO);
    assert_says("there is no checkpoint");
    assert_int_equal(mkdir(at("empty"), 0777), 0);
    assert_int_equal(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_FORMAT);
    assert_says("empty is no checkpoint: it has neither latest, state.json nor is it a "
                ".safetensors file");
    assert_int_equal(choir__checkpoint_find("/proc/self/exe", found), CHOIR_ERR_FORMAT);
    assert_says("/proc/self/exe is no checkpoint");
    assert_int_equal(symlink("step-00000009", at("empty/latest")), 0);
    assert_int_equal(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_IO);
    assert_says("empty/latest points to step-00000009, which is not there");
    assert_int_equal(mkdir(at("empty/step-00000009"), 0777), 0);
    assert_int_equal(choir__checkpoint_find(at("empty"), found), CHOIR_ERR_FORMAT);
    assert_says("incomplete: it has no state.json");
}

static void weights_alone(void **state)
{
    (void)state;
    char found[PATH_MAX];
    choir__train_state s;
    choir_tokenizer *tokenizer;
    job j = job_open(TOY, ADAMW);
    ok(choir_save(j.net, at("alone.safetensors")));
    ok(choir__checkpoint_find(at("alone.safetensors"), found));
    ok(choir__checkpoint_load(found, j.net, NULL));
    ok(choir__checkpoint_tokenizer(found, &tokenizer));
    assert_null(tokenizer);
    assert_int_equal(choir__checkpoint_load(found, j.net, j.opt), CHOIR_ERR_FORMAT);
    assert_says("weights alone");
    assert_int_equal(choir__checkpoint_state(found, &s), CHOIR_ERR_FORMAT);
    job_close(&j);
}

static void another_model(void **state)
{
    (void)state;
    char found[PATH_MAX];
    job a = job_open(TOY, SGD_MOMENTUM), b = job_open("toy:in=3,hidden=5,out=2", SGD_MOMENTUM);
    job c = job_open(TOY, ADAMW), d = job_open(GPT2, SGD_MOMENTUM);
    save(at("other"), &a, 1, false);
    ok(choir__checkpoint_find(at("other"), found));
    assert_int_equal(choir__checkpoint_load(found, b.net, NULL), CHOIR_ERR_FORMAT);
    assert_says("'0.bias' is (4), but the model's is (5); the checkpoint was made with model "
                "'toy:in=3,hidden=4,out=2'");
    assert_int_equal(choir__checkpoint_load(found, d.net, NULL), CHOIR_ERR_FORMAT);
    assert_says("of the model is missing");
    train(&c, 0, 2);
    const char *before = sha(c.net);
    assert_int_equal(choir__checkpoint_load(found, c.net, c.opt), CHOIR_ERR_FORMAT);
    assert_says("of the optimizer is missing; the checkpoint was made with optimizer 'adamw");
    assert_string_equal(sha(c.net), before); /* not even the weights, which fit */
    assert_int_equal(choir_optim_steps(c.opt), 2);
    job_close(&a), job_close(&b), job_close(&c), job_close(&d);
}

static void tokenizer_comes_along(void **state)
{
    (void)state;
    char found[PATH_MAX];
    job j = job_open(GPT2, ADAMW);
    choir_tokenizer *in, *out;
    choir__train_state s = state_of(&j, 1);
    ok(choir_tokenizer_chars("hello", 5, &in));
    ok(choir__checkpoint_save(at("tokens"), &s, j.net, j.opt, in, false));
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

/* --- damage ------------------------------------------------------------------------------- */

static char *slurp(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *data = calloc(1, 1 << 16);
    *bytes = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

static void spit(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* state and load refuse, naming the file, and the module is as it was. */
static void assert_damaged(const char *folder, const char *name, job *j, const char *before)
{
    choir__train_state s;
    assert_int_not_equal(choir__checkpoint_state(folder, &s), CHOIR_OK);
    assert_says(name);
    assert_int_not_equal(choir__checkpoint_load(folder, j->net, j->opt), CHOIR_OK);
    assert_says(name);
    assert_string_equal(sha(j->net), before);
}

static void damage(const char *folder, const char *name, job *j)
{
    size_t bytes;
    char path[512], before[65];
    memcpy(before, sha(j->net), sizeof before);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *whole = slurp(path, &bytes);
    for (size_t n = 0; n < bytes; n += bytes / 16) {
        spit(path, whole, n);
        assert_damaged(folder, name, j, before);
        whole[n] ^= 0x55;
        spit(path, whole, bytes);
        assert_damaged(folder, name, j, before);
        whole[n] ^= 0x55;
    }
    whole[bytes] = 'x';
    spit(path, whole, bytes + 1);
    assert_damaged(folder, name, j, before);
    assert_int_equal(unlink(path), 0);
    assert_damaged(folder, name, j, before);
    spit(path, whole, bytes);
    free(whole);
}

static void damaged_files(void **state)
{
    (void)state;
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    char found[PATH_MAX];
    train(&a, 0, 1);
    save(at("damage"), &a, 1, false);
    ok(choir__checkpoint_find(at("damage"), found));
    damage(found, "model.safetensors", &b);
    damage(found, "optimizer.safetensors", &b);
    damage(found, "state.json", &b);
    assert_int_equal(load(at("damage"), &b), 1);
    job_close(&a);
    job_close(&b);
}

/* A flipped bit of the state is noticed, or changes nothing that it says. */
static void every_flip_of_state(void **state)
{
    (void)state;
    job j = job_open(TOY, SGD_PLAIN);
    size_t bytes;
    char found[PATH_MAX], path[PATH_MAX + 16];
    choir__train_state want = {0};
    save(at("flip"), &j, 1, false);
    ok(choir__checkpoint_find(at("flip"), found));
    ok(choir__checkpoint_state(found, &want));
    snprintf(path, sizeof path, "%s/state.json", found);
    char *whole = slurp(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        choir__train_state got = {0};
        whole[bit / 8] ^= (char)(1 << bit % 8);
        spit(path, whole, bytes);
        if (choir__checkpoint_state(found, &got) == CHOIR_OK) {
            assert_string_equal(got.model, want.model);
            assert_int_equal(got.step, want.step);
            assert_true(got.seed == want.seed && got.best_loss == want.best_loss);
        } else {
            assert_says("state.json");
        }
        whole[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(whole);
    job_close(&j);
}

/* A diverged model does not replace the last that can be loaded. */
static void refuses_nonfinite(void **state)
{
    (void)state;
    job j = job_open(TOY, ADAMW);
    save(at("nan"), &j, 1, false);
    float bias[2] = {0, NAN};
    ok(choir_write(choir_module_find(j.net, "2.bias"), bias, sizeof bias));
    choir__train_state s = state_of(&j, 2);
    assert_int_equal(
        choir__checkpoint_save(at("nan"), &s, j.net, j.opt, NULL, true), CHOIR_ERR_NONFINITE);
    assert_says("'2.bias' (2) holds nan, as f32, at index 1");
    assert_says("the checkpoint before is untouched");
    assert_int_equal(load(at("nan"), &j), 1);
    assert_int_equal(entries(at("nan")), 2);
    job_close(&j);
}

static void one_at_a_time(void **state)
{
    (void)state;
    job j = job_open(TOY, ADAMW);
    save(at("lock"), &j, 1, false);
    int fd = open(at("lock"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    choir__train_state s = state_of(&j, 2);
    assert_int_equal(
        choir__checkpoint_save(at("lock"), &s, j.net, j.opt, NULL, false), CHOIR_ERR_IO);
    assert_says("another process is saving");
    close(fd);
    save(at("lock"), &j, 2, false);
    touch(at("file"));
    assert_int_equal(
        choir__checkpoint_save(at("file"), &s, j.net, j.opt, NULL, false), CHOIR_ERR_IO);
    assert_says("Not a directory");
    job_close(&j);
}

/* --- full disks --------------------------------------------------------------------------- */

/* At every limit on the size of files, the save fails cleanly or succeeds. */
static void limited_files(void **state)
{
    (void)state;
    struct rlimit old;
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    int64_t last = 1;
    save(at("limit"), &a, 1, true);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (int limit = 0; limit < 3000; limit += 50) {
        choir__train_state s = state_of(&a, 2 + limit);
        struct rlimit low = {(rlim_t)limit, old.rlim_max};
        train(&a, limit, limit + 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        choir_status status =
            choir__checkpoint_save(at("limit"), &s, a.net, a.opt, NULL, false);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (status == CHOIR_OK) {
            last = s.step;
        } else {
            assert_int_equal(status, CHOIR_ERR_IO);
            assert_says("File too large; the checkpoint before is untouched");
        }
        assert_int_equal(load(at("limit"), &b), last);
        assert_int_equal(entries(at("limit")), last == 1 ? 3 : 4);
    }
    assert_int_equal(last, 2 + 2950);
    job_close(&a);
    job_close(&b);
}

enum { NOT_PERMITTED = 77 };

/* In a process of its own, on a small file system of its own that fills up. */
static int fill_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", root, "tmpfs", 0, "size=96k") != 0)
        return NOT_PERMITTED;
    job a = job_open(TOY, ADAMW);
    int saved = 0, refused = 0;
    for (int k = 1; k <= 16; k++) {
        choir__train_state s = state_of(&a, k);
        char found[PATH_MAX];
        if (choir__checkpoint_save(at("run"), &s, a.net, a.opt, NULL, false) == CHOIR_OK) {
            saved++;
        } else {
            if (!strstr(choir_error_message(),
                    "No space left on device; the checkpoint before is untouched"))
                return 1;
            refused++;
        }
        if (choir__checkpoint_find(at("run"), found) != CHOIR_OK ||
            choir__checkpoint_load(found, a.net, a.opt) != CHOIR_OK)
            return 2;
        FILE *f = fopen(at("filler-%d", k), "wb");
        for (int i = 0; f && i < 8000; i++)
            fputc('x', f);
        if (f)
            fclose(f);
    }
    job_close(&a);
    return saved && refused ? 0 : 3;
}

/* Runs this program anew: the threads of devices do not survive a fork. out: its stdout; -1:
 * ours. */
static pid_t start(const char *what, int out)
{
    pid_t child = fork();
    if (child == 0) {
        if (out >= 0)
            dup2(out, STDOUT_FILENO);
        execl(self, self, what, root, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void full_disk(void **state)
{
    (void)state;
    int status;
    pid_t child = start("--fill-disk", -1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_PERMITTED) {
        print_message("skipped: no permission to mount a tmpfs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- kills -------------------------------------------------------------------------------- */

/* Trains and saves until it is killed, going on from what is there; a dot for each step. */
static int save_forever(void)
{
    job j = job_open(TOY, ADAMW);
    int step = there(at("kill/latest")) ? (int)load(at("kill"), &j) : 0;
    for (;; step++) {
        train(&j, step, step + 1);
        save(at("kill"), &j, step + 1, step % 4 == 0);
        save(at("kill"), &j, step + 1, false); /* and again, over what is there */
        if (write(STDOUT_FILENO, ".", 1) != 1)
            return 0;
    }
}

static void killed_while_saving(void **state)
{
    (void)state;
    enum { KILLS = 30 };
    int64_t step = 0;
    for (int k = 0; k < KILLS; k++) {
        int ends[2], status;
        char dot;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t child = start("--save-forever", ends[1]);
        close(ends[1]);
        assert_int_equal(read(ends[0], &dot, 1), 1); /* it is up and saving */
        usleep((useconds_t)(choir__mix(3, (uint64_t)k) % 20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        close(ends[0]);

        job j = job_open(TOY, ADAMW);
        load(at("kill/best"), &j);
        int64_t now = load(at("kill"), &j);
        assert_true(now > step);
        assert_int_equal(choir_optim_steps(j.opt), now);
        step = now;
        if (k == KILLS - 1) { /* after all of them: the bits of an undisturbed training */
            job whole = job_open(TOY, ADAMW);
            train(&whole, 0, (int)step);
            assert_string_equal(sha(j.net), sha(whole.net));
            job_close(&whole);
        }
        job_close(&j);
    }
}

/* Goes on by a step, saving it twice, under the eyes of a tracer. */
static int save_traced(void)
{
    job j = job_open(TOY, ADAMW);
    int step = there(at("calls/latest")) ? (int)load(at("calls"), &j) : 0;
    train(&j, step, step + 1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(NOT_PERMITTED);
    raise(SIGSTOP);
    save(at("calls"), &j, step + 1, true);
    save(at("calls"), &j, step + 1, false);
    _exit(0);
}

/* The child has stopped at the entry of a system call whose number does not depend on timing. */
static bool at_call(pid_t child)
{
    struct __ptrace_syscall_info info = {0};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info);
    return info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr != SYS_futex &&
           info.entry.nr != SYS_sched_yield;
}

/* Lets the child make so many system calls, then kills it; its status as waitpid has it. */
static int kill_after(pid_t child, int calls)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSTOPPED(status)) /* lets PTRACE_GET_SYSCALL_INFO tell entry from exit */
        ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACESYSGOOD);
    while (WIFSTOPPED(status) && calls >= 0) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        calls -= WIFSTOPPED(status) && at_call(child);
    }
    if (WIFSTOPPED(status)) { /* at the entry of the next one, which is not made any more */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    return status;
}

/* Saves killed after their first system call, their second, ...: what chance may not find. */
static void killed_after_every_call(void **state)
{
    (void)state;
    int64_t step = 1;
    job j = job_open(TOY, ADAMW);
    for (int calls = 1, status = 0; !WIFEXITED(status) || calls == 1; calls++) {
        save(at("calls"), &j, step, true); /* clears up, so that every child does the same */
        status = kill_after(start("--save-traced", -1), calls);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_PERMITTED) {
            print_message("skipped: no permission to trace\n");
            skip();
        }
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        int64_t now = load(at("calls"), &j);
        assert_true(now == step || now == step + 1);
        assert_true(load(at("calls/best"), &j) <= now);
        step = now;
        assert_true(calls < 5000 && (calls > 100 || WIFSIGNALED(status)));
    }
    save(at("calls"), &j, step + 1, true);
    assert_int_equal(entries(at("calls")), 3); /* nothing was left behind */
    job_close(&j);
}

int main(int argc, char **argv)
{
    static char path[PATH_MAX];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_round_trip),
        cmocka_unit_test(convolution_is_row_major),
        cmocka_unit_test(tied_weights_once),
        cmocka_unit_test(known_sha256),
        cmocka_unit_test(load_refuses),
        cmocka_unit_test(load_converts),
        cmocka_unit_test(training_goes_on),
        cmocka_unit_test(state_round_trip),
        cmocka_unit_test(keeps_latest_and_best),
        cmocka_unit_test(same_step_again),
        cmocka_unit_test(leftovers),
        cmocka_unit_test(find_refuses),
        cmocka_unit_test(weights_alone),
        cmocka_unit_test(another_model),
        cmocka_unit_test(tokenizer_comes_along),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(every_flip_of_state),
        cmocka_unit_test(refuses_nonfinite),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(limited_files),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(killed_while_saving),
        cmocka_unit_test(killed_after_every_call),
    };
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        return 1;
    self = path;
    if (argc == 3) { /* one of our own children */
        snprintf(root, sizeof root, "%s", argv[2]);
        return !strcmp(argv[1], "--fill-disk")     ? fill_disk()
               : !strcmp(argv[1], "--save-traced") ? save_traced()
                                                   : save_forever();
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
