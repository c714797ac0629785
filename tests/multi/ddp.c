/* Corner cases of DDP: buckets that are rebuilt, unused parameters, static graphs, accumulation
 * with no_sync, gradients as views of buckets, buffers as one block, one bucket after all of
 * backward, parameters on several devices. Wherever the sum is exact, the result has the bits
 * of one process. */
#include "ddp_fixture.h"

static job plain(int64_t micro)
{
    return (job){.micro = micro, .steps = 5, .opts = choir_ddp_defaults()};
}

static job small_buckets(int64_t micro)
{
    job j = plain(micro);
    j.ddp = true;
    j.opts.bucket_cap_mb = j.opts.first_bucket_mb = 0.001;
    return j;
}

/* Compares job `j` on 1 to 3 ranks with a single process without DDP. */
static void compare(job j)
{
    job one = j;
    one.ddp = false;
    outcome *single = launch(1, train, one);
    for (int ranks = 1; ranks <= 3 && ranks <= j.micro; ranks++) {
        outcome *o = launch(ranks, train, j);
        for (int r = 0; r < ranks; r++)
            assert_same(single, &o[r]);
        assert_memory_equal(single->statistics, o->statistics, sizeof o->statistics);
        let_go(o);
    }
    let_go(single);
}

/* --- buckets that are rebuilt --- */

static choir__ddp_part *part_of(const job *j)
{
    return ((choir__ddp *)j->model)->parts;
}

/* Parameters in the order in which buckets hold them. */
static void note_order(const choir__book *book, int64_t *order)
{
    for (int i = 0; i < book->count; i++)
        order[i] = book->params[i]->slots[0].bucket * 100000 + book->params[i]->slots[0].at;
}

static int rebuilds(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    int64_t before[32], after[32], later[32];
    open_job(&j);
    CHECK_OK(one_step(&j, 0));
    const choir__book *book = part_of(&j)->book;
    unsigned first = book->layout;
    CHECK(!book->order && book->bucket_count > 3 && book->count < 32);
    note_order(book, before);
    CHECK_OK(one_step(&j, 1));
    CHECK(book->order && book->layout != first);
    note_order(book, after);
    CHECK(memcmp(before, after, (size_t)book->count * sizeof *before));
    /* The parameters in the order of the previous step, which is this step's order, too. */
    for (int i = 1; i < book->count; i++) {
        const choir__slot *a = book->params[book->order[i - 1]]->slots,
                          *b = book->params[book->order[i]]->slots;
        CHECK(a->by_rows || b->by_rows || a->turn < b->turn);
    }
    first = book->layout;
    for (int s = 2; s < 5; s++)
        CHECK_OK(one_step(&j, s));
    note_order(book, later);
    CHECK(book->layout == first); /* once */
    CHECK(!memcmp(after, later, (size_t)book->count * sizeof *after));
    memcpy(j.out[rank].counts, book->order, (size_t)book->count * sizeof *book->order);
    return close_job(&j, CHOIR_OK);
}

static void test_rebuild(void **state)
{
    outcome *single = launch(1, train, plain(3));
    for (int ranks = 2; ranks <= 3; ranks++) {
        outcome *o = launch(ranks, rebuilds, small_buckets(3));
        for (int r = 0; r < ranks; r++) {
            assert_same(single, &o[r]);
            assert_memory_equal(o[0].counts, o[r].counts, sizeof o[0].counts);
        }
        let_go(o);
    }
    let_go(single);
}

/* --- unused parameters --- */

static int never_spare(int64_t step, int64_t micro)
{
    return ALL & ~SPARE;
}

static int only_micro_1_lacks(int64_t step, int64_t micro)
{
    return step == 1 && micro == 1 ? ALL & ~(LEFT | TABLE) : ALL;
}

/* Each step and micro-batch uses other parts; SPARE is used only in steps 1 and 3. */
static int changing(int64_t step, int64_t micro)
{
    static const int masks[5][3] = {{LEFT | TABLE, LEFT, RIGHT | LEFT},
        {RIGHT | SPARE, LEFT | TABLE, RIGHT}, {TABLE, TABLE, TABLE | LEFT},
        {SPARE, SPARE | RIGHT, SPARE}, {ALL, LEFT, 0}};
    return masks[step][micro % 3];
}

static int of_a_rank(int64_t step, int64_t micro)
{
    return micro == 0 ? LEFT | RIGHT : LEFT | TABLE;
}

static void test_unused_is_an_error(void **state)
{
    job j = small_buckets(2);
    j.mask = never_spare;
    outcome *o = launch(2, train, j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].failed, CHOIR_ERR_STATE);
        assert_non_null(strstr(o[r].message, "2 parameters got no gradient"));
        assert_non_null(strstr(o[r].message, "spare.weight, spare.bias"));
    }
    let_go(o);
    j.mask = only_micro_1_lacks; /* the rank that uses them gets the error, too */
    o = launch(2, train, j);
    assert_said(&o[1],
        "ddp: 3 parameters got no gradient in this backward: left.weight, left.bias, "
        "table.weight; freeze what is not trained, or set find_unused_parameters");
    assert_int_equal(o[0].failed, CHOIR_ERR_STATE);
    assert_non_null(strstr(o[0].message,
        "3 parameters got no gradient in a backward of rank 1: left.weight, left.bias, "
        "table.weight"));
    let_go(o);
}

static void test_unused_are_found(void **state)
{
    int (*const masks[])(int64_t, int64_t) = {never_spare, changing, of_a_rank, NULL};
    for (size_t m = 0; m < CHOIR_COUNT(masks); m++)
        for (int64_t micro = 3; micro <= 6; micro += 3) {
            job j = small_buckets(micro);
            j.opts.find_unused_parameters = true;
            j.mask = masks[m];
            compare(j);
        }
}

/* Neither weight decay nor momentum: an absent gradient is no gradient of zero. */
static int leaves_alone(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    float before[WIDTH * WIDTH], after[WIDTH * WIDTH];
    open_job(&j);
    choir_tensor *spare = choir_module_find(j.model, "spare.weight");
    CHECK_OK(one_step(&j, 3)); /* with it */
    CHECK_OK(choir_read(spare, before, sizeof before));
    CHECK_OK(one_step(&j, 2)); /* without, on all ranks */
    CHECK_OK(choir_read(spare, after, sizeof after));
    CHECK(!memcmp(before, after, sizeof before));
    CHECK(!choir_grad(spare));
    choir_tensor *left = choir_module_find(j.model, "left.weight");
    CHECK(choir_grad(left)); /* one rank had it */
    CHECK_OK(one_step(&j, 1));
    CHECK_OK(choir_read(spare, after, sizeof after));
    CHECK(memcmp(before, after, sizeof before));
    return close_job(&j, CHOIR_OK);
}

static void test_absent_stays_absent(void **state)
{
    job j = small_buckets(3);
    j.opts.find_unused_parameters = true;
    j.mask = changing;
    let_go(launch(3, leaves_alone, j));
}

static void test_static_graph(void **state)
{
    job j = small_buckets(4);
    j.opts.static_graph = true;
    j.mask = never_spare;
    compare(j);
    j.mask = of_a_rank;
    compare(j);
    j.mask = changing;
    outcome *o = launch(2, train, j);
    assert_int_equal(o[0].failed, CHOIR_ERR_STATE);
    assert_non_null(strstr(o[0].message, "static_graph: this step "));
    assert_non_null(strstr(o[0].message, "leave static_graph out"));
    let_go(o);
}

/* Two uses here, one there. */
static int used_unlike(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    choir_scope *s = choir_step_open(j.run, 0);
    choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(ROWS, WIDTH), 0.5);
    choir_tensor *ids = choir_zeros(s, CHOIR_I64, choir_dims(ROWS));
    choir_tensor *y = choir_forward(j.model, x, ids);
    if (j.env.rank == 1)
        y = choir_add(y, choir_forward(j.net->head, x));
    choir_status status = choir_backward(choir_mean(y));
    CHECK(choir_scope_close(s) == status);
    return close_job(&j, status);
}

static void test_used_unlike(void **state)
{
    job j = small_buckets(2);
    j.opts.find_unused_parameters = true;
    outcome *o = launch(2, used_unlike, j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].failed, CHOIR_ERR_MISMATCH);
        assert_non_null(strstr(o[r].message, "parameter head.weight is used 2 times in a "
                                             "micro-batch of rank 1, 1 times on rank 0"));
    }
    let_go(o);
}

/* --- no_sync --- */

static int accumulates(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    int64_t each = j.micro / world;
    j.micro = world; /* the plan has one micro-batch per rank */
    open_job(&j);
    choir_status status = choir_scope_status(j.run);
    for (int s = 0; s < j.steps && status == CHOIR_OK; s++) {
        choir_scope *step = choir_step_open(j.run, (uint64_t)s);
        for (int64_t m = 0; m < each && status == CHOIR_OK; m++) {
            CHECK_OK(choir_ddp_no_sync(j.model, m < each - 1));
            status = one_micro(&j, step, s, rank * each + m);
        }
        if (status == CHOIR_OK)
            status = choir_optim_step(j.optim);
        choir_status closed = choir_scope_close(step);
        status = status != CHOIR_OK ? status : closed;
    }
    return close_job(&j, status);
}

static void test_no_sync(void **state)
{
    for (int64_t each = 1; each <= 4; each++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            job j = small_buckets(each * ranks);
            j.opts.find_unused_parameters = each == 4;
            outcome *o = launch(ranks, accumulates, j);
            outcome *single = launch(1, train, plain(j.micro));
            for (int r = 0; r < ranks; r++)
                if (each != 3 || ranks == 1)
                    assert_same(single, &o[r]);
                else
                    assert_same(&o[0], &o[r]);
            for (int64_t i = 0; i < 3 * WIDTH; i++) /* of the head */
                assert_float_equal(single->weights[i], o->weights[i], 1e-3);
            let_go(single);
            let_go(o);
        }
}

static int forgets_to_sync(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    choir_scope *step = choir_step_open(j.run, 0);
    CHECK_OK(choir_ddp_no_sync(j.model, true));
    CHECK_OK(one_micro(&j, step, 0, rank));
    choir_status status = choir_optim_step(j.optim);
    CHECK(choir_scope_close(step) == status);
    return close_job(&j, status);
}

static int too_late(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    choir_scope *step = choir_step_open(j.run, 0);
    CHECK_OK(one_micro(&j, step, 0, rank));
    choir_status status = choir_ddp_no_sync(j.model, true);
    CHECK_OK(choir_optim_step(j.optim));
    CHECK_OK(choir_scope_close(step));
    CHECK(choir_ddp_no_sync(&j.net->base, true) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "branches is not what choir_ddp returned"));
    CHECK(status == CHOIR_ERR_STATE);
    return close_job(&j, CHOIR_OK);
}

static void test_no_sync_misused(void **state)
{
    outcome *o = launch(2, forgets_to_sync, small_buckets(2));
    assert_int_equal(o[1].failed, CHOIR_ERR_STATE);
    assert_non_null(strstr(o[1].message, "ran with no_sync on: nothing has been reduced"));
    let_go(o);
    let_go(launch(2, too_late, small_buckets(2)));
}

/* --- placement of gradients, and messages --- */

typedef struct seen {
    int calls;
    float *at[32];
    const char *names[32];
    int count;
} seen;

static choir_status look(const choir_ddp_bucket *b, void *arg)
{
    seen *s = arg;
    s->calls++;
    for (int i = 0; i < b->entry_count; i++) {
        s->names[s->count] = b->entries[i].name;
        s->at[s->count++] = b->data + b->entries[i].at;
    }
    return choir_ddp_all_reduce(b, NULL);
}

/* choir_grad returns memory of the bucket, at the same address in every step. */
static int views(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    seen s = {0};
    open_job(&j);
    CHECK_OK(choir_ddp_set_hook(j.model, look, &s));
    CHECK_OK(one_step(&j, 0)); /* the next step uses rebuilt buckets */
    for (int step = 1; step < 4; step++) {
        s = (seen){0};
        CHECK_OK(one_step(&j, step));
        CHECK(s.count == 12 && s.calls > 3); /* all but the table */
        for (int i = 0; i < s.count; i++) {
            choir_tensor *g = choir_grad(choir_module_find(j.model, s.names[i]));
            CHECK(g && choir__data(g) == s.at[i]);
        }
    }
    return close_job(&j, CHOIR_OK);
}

static void test_views(void **state)
{
    let_go(launch(2, views, small_buckets(2)));
}

static int counts_calls(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    seen s = {0};
    open_job(&j);
    CHECK_OK(one_step(&j, 0));
    CHECK_OK(one_step(&j, 1));
    choir_check(choir_group_barrier(j.env.group, NULL));
    uint32_t before = j.env.group->engine->seq;
    CHECK_OK(one_step(&j, 2));
    choir_check(choir_group_barrier(j.env.group, NULL));
    j.out[rank].counts[0] = j.env.group->engine->seq - before - 1;
    j.out[rank].counts[1] = part_of(&j)->book->bucket_count;
    CHECK_OK(choir_ddp_set_hook(j.model, look, &s));
    CHECK_OK(one_step(&j, 3));
    j.out[rank].counts[2] = s.calls;
    return close_job(&j, CHOIR_OK);
}

/* A step issues exactly these collectives: the buffers' block, the buckets, the table's
 * rows. */
static void test_collectives(void **state)
{
    job j = small_buckets(2);
    outcome *o = launch(2, counts_calls, j);
    assert_true(o->counts[1] > 3);
    assert_int_equal(o->counts[0], 1 + o->counts[1] + 1);
    let_go(o);
    j.opts.no_buffers = true;
    o = launch(2, counts_calls, j);
    assert_int_equal(o->counts[0], o->counts[1] + 1);
    let_go(o);
    j.opts.delay_allreduce = true; /* one all-reduce after the whole backward */
    o = launch(2, counts_calls, j);
    assert_int_equal(o->counts[1], 1);
    assert_int_equal(o->counts[2], 1);
    assert_int_equal(o->counts[0], 2);
    let_go(o);
    j = small_buckets(3);
    j.opts.delay_allreduce = true;
    compare(j);
}

/* A step's forward begins with rank 0's statistics; only rank 0's update of them counts. */
static int brings_statistics(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    outcome *o = &j.out[rank];
    open_job(&j);
    CHECK_OK(one_step(&j, 0));
    choir_scope *s = choir_step_open(j.run, 1);
    choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(ROWS, WIDTH), 0.5);
    choir_forward(j.model, x, choir_zeros(s, CHOIR_I64, choir_dims(ROWS)));
    copy_statistics(j.net, o->numbers);
    CHECK_OK(choir_scope_close(s));
    return close_job(&j, CHOIR_OK);
}

static void test_buffers(void **state)
{
    job j = small_buckets(3);
    for (int without = 0; without < 2; without++) {
        float start[2 * WIDTH];
        for (int i = 0; i < 2 * WIDTH; i++)
            start[i] = i < WIDTH ? 0 : 1;
        j.opts.no_buffers = without;
        j.steps = 1;
        outcome *after_one = launch(3, train, j), *o = launch(3, brings_statistics, j);
        for (int r = 1; r < 3; r++)
            assert_memory_equal(
                o[r].numbers, without ? start : after_one->statistics, sizeof start);
        let_go(after_one);
        let_go(o);
    }
}

/* --- several devices --- */

typedef struct two_places {
    choir_module base;
    choir_module *first, *second;
} two_places;

static choir_tensor *two_places_forward(choir_module *self, choir_tensor *const *in, int count)
{
    two_places *p = (two_places *)self;
    choir_tensor *h = choir_tanh(choir_forward(p->first, in[0]));
    choir_device *far = choir_tensor_device(choir_module_find(self, "second.weight"));
    return choir_to(choir_forward(p->second, choir_to(h, far)), choir_tensor_device(in[0]));
}

static const choir_module_class two_places_class = {
    "two_places", sizeof(two_places), two_places_forward, 0};

static int over_devices(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    choir_check(choir_env_init(&j.env));
    j.env.microbatches = 2;
    j.run = choir_run_open(&j.env, 5);
    choir_env_micro(&j.env, &j.first, &j.count);
    two_places *p = choir_module_new(j.run, &two_places_class);
    choir_module_child(&p->base, "first", &p->first, choir_nn_linear(j.run, WIDTH, WIDTH));
    choir_module_child(&p->base, "second", &p->second, choir_nn_linear(j.run, WIDTH, WIDTH));
    choir_module *model = &p->base;
    if (j.ddp) {
        CHECK_OK(choir_module_to(p->second, choir_device_find(rank ? "cpu:3" : "cpu:2")));
        model = choir_ddp(j.run, model, j.env.group, j.opts);
    }
    choir_adamw_opts hp = choir_adamw_defaults();
    j.optim = choir_adamw(j.run, model, hp);
    choir_optim_clip(j.optim, 0.01f);
    choir_status status = choir_scope_status(j.run);
    for (int n = 0; n < j.steps && status == CHOIR_OK; n++) {
        choir_scope *s = choir_step_open(j.run, (uint64_t)n);
        for (int64_t m = j.first; m < j.first + j.count && status == CHOIR_OK; m++) {
            choir_scope *micro = choir_micro_open(s, m);
            choir_tensor *y =
                choir_forward(model, choir_randn(micro, choir_dims(ROWS, WIDTH), "x"));
            status = choir_backward(choir_mean(choir_mul(y, y)));
            CHECK(choir_scope_close(micro) == status);
        }
        if (status == CHOIR_OK)
            status = choir_optim_step(j.optim);
        CHECK(choir_scope_close(s) == status);
    }
    outcome *o = &j.out[rank];
    o->failed = status;
    snprintf(o->message, sizeof o->message, "%s", status ? choir_error_message() : "");
    if (status == CHOIR_OK)
        choir_module_visit(&p->base, true, copy_weights, o);
    (void)choir_scope_close(j.run);
    choir_env_free(&j.env);
    return 0;
}

static void test_devices(void **state)
{
    job j = plain(2);
    outcome *single = launch(1, over_devices, j);
    j.ddp = true;
    outcome *o = launch(2, over_devices, j);
    assert_same(single, &o[0]);
    assert_same(single, &o[1]);
    let_go(o);
    let_go(single);
    j.opts.find_unused_parameters = true;
    o = launch(2, over_devices, j);
    assert_int_equal(o[0].failed, CHOIR_ERR_ARGUMENT);
    assert_said(
        &o[0], "ddp: find_unused_parameters: expected parameters on one device, got 2 devices");
    let_go(o);
}

/* --- counts of targets --- */

/* Returns the divisor of a rank's micro-batches first, first + 1, ...: micro-batch m has m + 1
 * targets that count, and 9 that are ignored. */
static choir_tensor *divisor(choir_scope *step, int64_t first, int64_t count)
{
    int64_t ids[32];
    choir_tensor *y[8];
    for (int64_t i = 0; i < count; i++) {
        int64_t n = first + i + 1;
        for (int64_t t = 0; t < n + 9; t++)
            ids[t] = t < n ? t % 3 : -100;
        y[i] = choir_from(step, CHOIR_I64, choir_dims(n + 9), ids);
    }
    return choir_loss_divisor(y, (int)count, choir_cross_entropy_defaults());
}

static int counts_targets(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    double m = (double)j.micro;
    open_job(&j);
    choir_scope *step = choir_step_open(j.run, 0);
    CHECK(choir_item(divisor(step, j.first, j.count)) == (double)(float)((m + 1) / 2));
    choir_tensor *wrong = divisor(step, j.first, j.count + 1);
    CHECK(choir_scope_status(choir_tensor_scope(wrong)) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "loss_divisor: got the targets of"));
    choir_scope_clear(step);
    CHECK_OK(choir_scope_close(step));
    CHECK_OK(choir_ddp_no_sync(j.model, true)); /* any number, the same on all ranks */
    step = choir_step_open(j.run, 1);
    CHECK(choir_item(divisor(step, 2 * rank, 2)) == world + 0.5);
    CHECK_OK(choir_scope_close(step));
    CHECK_OK(choir_ddp_no_sync(j.model, false));
    CHECK_OK(choir_ddp_join_begin(j.model, choir_ddp_join_defaults()));
    step = choir_step_open(j.run, 1);
    divisor(step, j.first, j.count);
    CHECK(choir_scope_status(step) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "loss_divisor in a join"));
    choir_scope_clear(step);
    CHECK_OK(choir_scope_close(step));
    CHECK_OK(choir_ddp_join_end(j.model));
    return close_job(&j, CHOIR_OK);
}

static void test_counts(void **state)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        job j = plain(ranks == 3 ? 5 : 4);
        j.ddp = true;
        let_go(launch(ranks, counts_targets, j));
    }
}

/* --- options that make no sense --- */

static void test_options(void **state)
{
    job j = small_buckets(2);
    j.opts.bucket_cap_mb = 0;
    outcome *o = launch(2, train, j);
    assert_said(o, "ddp: expected buckets above 0 MiB, got 0, the first of 0.001; begin with "
                   "choir_ddp_defaults()");
    let_go(o);
    j = small_buckets(2);
    j.opts.microbatches = 1;
    o = launch(2, train, j);
    assert_said(o, "ddp: 1 micro-batches for 2 ranks; each rank needs one");
    let_go(o);
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "4", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rebuild),
        cmocka_unit_test(test_unused_is_an_error), cmocka_unit_test(test_unused_are_found),
        cmocka_unit_test(test_absent_stays_absent), cmocka_unit_test(test_static_graph),
        cmocka_unit_test(test_used_unlike), cmocka_unit_test(test_no_sync),
        cmocka_unit_test(test_no_sync_misused), cmocka_unit_test(test_views),
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_devices), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
