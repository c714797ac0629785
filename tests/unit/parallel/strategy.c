/* The seam of strategies: which strategies are called, in which order, and the message for one
 * that cannot continue with other ranks. */
#include <stdio.h>

#include <choir/choir.h>
#include "check.h"
#include "tensor/strategy.h"

typedef struct probe {
    choir__strategy strategy;
    char name;
    uint64_t undone;
} probe;

static char calls[64];

static void note(const probe *p, char what)
{
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%c%c ", p->name, what);
}

static void begins(choir__strategy *s)
{
    note(CHOIR__STRATEGY_OF(s, probe, strategy), 'b');
}

static void updated(choir__strategy *s)
{
    note(CHOIR__STRATEGY_OF(s, probe, strategy), 'u');
}

static choir_status sum(
    choir__strategy *s, choir_device *device, double *numbers, int64_t count)
{
    note(CHOIR__STRATEGY_OF(s, probe, strategy), 's');
    return CHOIR_OK;
}

static choir_status ranks_changed(choir__strategy *s, choir_group *group, uint64_t undone)
{
    probe *p = CHOIR__STRATEGY_OF(s, probe, strategy);
    note(p, 'r');
    p->undone = undone;
    return CHOIR_OK;
}

static const choir__strategy_ops quiet = {.name = "quiet"};
static const choir__strategy_ops asked = {.name = "asked",
    .step_begins = begins,
    .step_updated = updated,
    .sum = sum,
    .ranks_changed = ranks_changed};

static void newest_first_and_only_what_it_has(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    probe a = {{.ops = &asked}, 'a', 0}, q = {{.ops = &quiet}, 'q', 0},
          b = {{.ops = &asked}, 'b', 0};
    double numbers[1] = {0};
    *calls = '\0';
    assert_false(choir__strategies_share(run));
    choir__strategy_join(&a.strategy, run);
    choir__strategy_join(&q.strategy, run);
    choir__strategy_join(&b.strategy, run);
    assert_true(choir__strategies_share(run));
    choir_scope *step = choir_step_open(run, 0);
    ok(choir__strategies_sum(run, run->device, numbers, 1));
    choir__strategies_updated(step); /* any scope of the run will do */
    assert_string_equal(calls, "bb ab bs as bu au ");
    choir_check(choir_scope_close(step));
    *calls = '\0';
    choir__strategy_leave(&b.strategy, run);
    choir_check(choir_scope_close(choir_step_open(run, 1)));
    assert_string_equal(calls, "ab ");
    choir__strategy_leave(&a.strategy, run);
    assert_false(choir__strategies_share(run));
    choir_check(choir_scope_close(run));
}

static void other_ranks_are_for_those_that_can(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    probe a = {{.ops = &asked}, 'a', 0}, b = {{.ops = &asked}, 'b', 0},
          q = {{.ops = &quiet}, 'q', 0};
    *calls = '\0';
    choir__strategy_join(&a.strategy, run);
    choir__strategy_join(&b.strategy, run);
    ok(choir__strategies_ranks_changed(run, NULL, 2));
    assert_string_equal(calls, "br ar ");
    assert_int_equal(a.undone, 2);
    choir__strategy_join(&q.strategy, run);
    assert_fails(choir__strategies_ranks_changed(run, NULL, 3), CHOIR_ERR_UNSUPPORTED,
        "quiet: it cannot continue");
    assert_int_equal(a.undone, 2); /* all or none */
    choir_check(choir_scope_close(run));
}

/* A module whose weights other processes share neither moves nor changes dtype. */
static void a_pinned_module_stays(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_linear(run, 4, 2);
    assert_false(choir_module_collective(net));
    choir_check(choir_module_share_memory(net));
    assert_fails(
        choir_module_to(net, run->device), CHOIR_ERR_STATE, "shared with other processes");
    choir_scope_clear(run);
    choir_check(choir_scope_close(run));
}

/* A module that wraps stays its strategy's when its weights are shared, too. */
static void sharing_leaves_the_wrapper_alone(void **state)
{
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_linear(run, 4, 2);
    choir_module *dp = choir_data_parallel(run, net, choir_data_parallel_defaults());
    choir_check(choir_module_share_memory(dp));
    choir_scope *step = choir_step_open(run, 0);
    choir_tensor *y = choir_forward(dp, choir_zeros(step, CHOIR_F32, choir_dims(3, 4)));
    assert_int_equal(choir_tensor_size(y, 0), 3);
    choir_check(choir_scope_close(step));
    assert_fails(choir__strategies_ranks_changed(run, NULL, 2), CHOIR_ERR_UNSUPPORTED,
        "data_parallel: it cannot continue");
    choir_check(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_first_and_only_what_it_has),
        cmocka_unit_test(other_ranks_are_for_those_that_can),
        cmocka_unit_test(a_pinned_module_stays),
        cmocka_unit_test(sharing_leaves_the_wrapper_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
