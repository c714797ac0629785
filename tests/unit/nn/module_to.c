/* choir_module_to: parameters, buffers and constants move to another device, with the same
 * handles and values, and the old memory is returned; when a move is refused, and the
 * messages. */
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "nn/module.h"

enum { BATCH = 6, IN = 5, WIDTH = 300 };

typedef struct net {
    choir_module base;
    choir_module *a, *norm, *b;
    choir_tensor *table;
} net;

static choir_tensor *net_forward(choir_module *self, choir_tensor *const *in, int count)
{
    net *n = (net *)self;
    choir_tensor *x = choir_forward(n->norm, choir_forward(n->a, in[0]));
    return choir_forward(n->b, choir_add(choir_relu(x), n->table));
}

static const choir_module_class net_class = {"net", sizeof(net), net_forward, 0};

static net *new_net(choir_scope *run)
{
    net *n = choir_module_new(run, &net_class);
    choir_module_child(&n->base, "a", &n->a, choir_nn_linear(run, IN, WIDTH));
    choir_module_child(&n->base, "norm", &n->norm, choir_nn_batch_norm(run, WIDTH));
    choir_module_child(&n->base, "b", &n->b, choir_nn_linear(run, WIDTH, 1));
    choir_module_constant(
        &n->base, "table", &n->table, choir_randn(run, choir_dims(WIDTH), "a table"));
    return n;
}

static int devices(void **state)
{
    return setenv("CHOIR_CPU_DEVICES", "3", 1);
}

static choir_device *cpu(int i)
{
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", i);
    choir_device *device = choir_device_find(name);
    assert_non_null(device);
    return device;
}

static choir_tensor *input(choir_scope *s, choir_device *device)
{
    float x[BATCH * IN];
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = (float)((i * 7) % 11) - 5;
    return choir_to(choir_from(s, CHOIR_F32, choir_dims(BATCH, IN), x), device);
}

static size_t bytes_now(choir_device *device)
{
    choir_device_stats stats;
    choir_device_get_stats(device, &stats);
    return stats.bytes_now;
}

struct values {
    char *at;
    size_t bytes;
    choir_device *device; /* device that all must reside on; NULL: any */
};

static void append(const char *name, choir_tensor *t, void *arg)
{
    struct values *v = arg;
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    if (v->device)
        assert_ptr_equal(choir_tensor_device(t), v->device);
    v->at = realloc(v->at, v->bytes + bytes);
    ok(choir_read(t, v->at + v->bytes, bytes));
    v->bytes += bytes;
}

static struct values values_of(net *n, choir_device *device)
{
    struct values v = {.device = device};
    choir_module_visit(&n->base, true, append, &v);
    append("table", n->table, &v);
    return v;
}

static void assert_same(struct values a, struct values b)
{
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.at, b.at, a.bytes);
    free(a.at);
    free(b.at);
}

/* A module that is moved before its values are drawn, after that, or after a forward has the
 * same values. */
static void test_values(void **state)
{
    for (int when = 0; when < 3; when++) {
        choir_scope *home = choir_scope_open(cpu(0), 5), *run = choir_scope_open(cpu(0), 5);
        net *n = new_net(home), *m = new_net(run);
        if (when == 1)
            choir_module_find(&m->base, "a.weight"); /* drawn by now */
        for (int i = 0; i < 2; i++) {
            net *of = i ? m : n;
            if (when < 2)
                break;
            choir_scope *s = choir_step_open(of->base.run, 0);
            choir_forward(&of->base, input(s, cpu(0)));
            ok(choir_scope_close(s));
        }
        choir_tensor *handle = when ? choir_module_find(&m->base, "a.weight") : NULL;
        ok(choir_module_to(&m->base, cpu(1)));
        if (when)
            assert_ptr_equal(choir_module_find(&m->base, "a.weight"), handle);
        assert_same(values_of(n, cpu(0)), values_of(m, cpu(1)));
        ok(choir_module_to(&m->base, cpu(2)));
        ok(choir_module_to(&m->base, cpu(0)));
        assert_same(values_of(n, cpu(0)), values_of(m, cpu(0)));
        ok(choir_scope_close(run));
        ok(choir_scope_close(home));
    }
}

static void test_memory(void **state)
{
    size_t zero = bytes_now(cpu(0)), one = bytes_now(cpu(1));
    choir_scope *run = choir_scope_open(cpu(0), 5);
    size_t empty = bytes_now(cpu(0));
    net *n = new_net(run);
    choir_module_find(&n->base, "a.weight");
    size_t bytes = bytes_now(cpu(0)) - empty;
    ok(choir_module_to(&n->base, cpu(1)));
    assert_int_equal(bytes_now(cpu(0)), empty);
    assert_in_range(bytes_now(cpu(1)) - one, bytes, bytes + 64);
    ok(choir_scope_close(run));
    assert_int_equal(bytes_now(cpu(0)), zero);
    assert_int_equal(bytes_now(cpu(1)), one);
}

static void assert_not_moved(
    choir_module *m, choir_device *device, choir_status wanted, const char *said)
{
    assert_fails(choir_module_to(m, device), wanted, said);
    assert_int_equal(choir_scope_status(m->run), wanted);
    choir_scope_clear(m->run);
}

static void test_errors(void **state)
{
    choir_scope *run = choir_scope_open(cpu(0), 5);
    net *n = new_net(run);
    choir_module_find(&n->base, "a.weight");
    assert_not_moved(n->b, choir_device_find("cpu:7"), CHOIR_ERR_DEVICE,
        "module 'b' (linear) to no device: no device 'cpu:7': expected cpu:0 to cpu:2");

    choir__param *p = choir_module_find(&n->base, "b.weight")->param;
    p->replicas = choir__param_replica(p, cpu(2));
    assert_not_moved(
        &n->base, cpu(1), CHOIR_ERR_STATE, "'b.weight' has replicas on other devices");
    p->replicas = NULL;

    /* a forward that is yet to be walked back notices */
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *loss = choir_mean(choir_forward(&n->base, input(s, cpu(0))));
    ok(choir_module_to(n->b, cpu(1)));
    assert_fails(choir_backward(loss), CHOIR_ERR_STATE, "changed in place");
    choir_scope_clear(s);
    choir_scope_close(s);
    ok(choir_module_to(n->b, cpu(0)));

    /* gradients on their way hold a parameter where it is */
    s = choir_step_open(run, 1);
    loss = choir_mean(choir_forward(&n->base, input(s, cpu(0))));
    ok(choir_backward(loss));
    assert_not_moved(&n->base, cpu(1), CHOIR_ERR_STATE,
        "to cpu:1: parameter 'a.weight' holds gradients of 1 micro-batches");
    assert_ptr_equal(choir_tensor_device(choir_module_find(&n->base, "a.weight")), cpu(0));
    choir_scope_close(s);
    choir_optim *opt = choir_sgd(run, &n->base, choir_sgd_defaults());
    ok(choir_optim_step(opt));
    ok(choir_module_to(&n->base, cpu(1)));
    assert_int_equal(choir_optim_step(opt), CHOIR_ERR_STATE); /* no gradients have come along */
    assert_says("no backward");
    choir_scope_clear(run);
    ok(choir_scope_close(run));
}

/* Parameters move to another device and back between steps. Gradients reside in their old place
 * afterwards, parameters do not; training gives the same values. */
static void test_training_goes_on(void **state)
{
    struct values end[2];
    for (int moved = 0; moved < 2; moved++) {
        choir_scope *run = choir_scope_open(cpu(0), 5);
        net *n = new_net(run);
        choir_optim *opt = choir_sgd(run, &n->base, (choir_sgd_opts){.lr = 0.1f});
        for (uint64_t i = 0; i < 5; i++) {
            choir_scope *s = choir_step_open(run, i);
            ok(choir_backward(choir_mean(choir_forward(&n->base, input(s, cpu(0))))));
            ok(choir_optim_step(opt));
            ok(choir_scope_close(s));
            for (int to = 1; to >= 0 && moved; to--)
                ok(choir_module_to(&n->base, cpu(to)));
        }
        end[moved] = values_of(n, cpu(0));
        ok(choir_scope_close(run));
    }
    assert_same(end[0], end[1]);
}

static void test_memory_runs_out(void **state)
{
    choir_scope *run = choir_scope_open(cpu(0), 5);
    net *n = new_net(run);
    struct values before = values_of(n, cpu(0));
    choir_device_stats stats;
    choir__pool_trim(cpu(2));
    choir_device_get_stats(cpu(2), &stats);
    choir_device_set_limit(cpu(2), stats.bytes_reserved + 64);
    assert_not_moved(&n->base, cpu(2), CHOIR_ERR_MEMORY, "out of memory on cpu:2");
    choir_device_set_limit(cpu(2), 0);
    assert_same(before, values_of(n, NULL)); /* whole, wherever they are */
    ok(choir_module_to(&n->base, cpu(2)));
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_training_goes_on),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, devices, NULL);
}
