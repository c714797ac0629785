/* The membership of a job on several nodes (launch/agent/agent_state.h), explored: from the
 * meeting on, every order of a few events, which are all that can happen to three agents, and
 * each state that comes of it is checked. Then single stories, in the words that people read.
 */
#include "check.h"
#include "base/hash.h"
#include "launch/agent/agent_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { AGENTS = 3, STATES_MAX = 1 << 17 };

static choir__terms terms_of(int fewest, int most, int restarts, int failures)
{
    return (choir__terms){.version = "1",
        .nodes_min = fewest,
        .nodes_max = most,
        .max_restarts = restarts,
        .node_failures = failures};
}

static choir__agent_state new_job(choir__terms terms)
{
    choir__agent_state m = {.terms = terms, .round = 1, .run_id = "x"};
    m.call = terms.nodes_max > terms.nodes_min;
    return m;
}

static choir_status join(choir__agent_state *m, int agent, int workers)
{
    choir__agent_node n = {.workers = workers, .number = -1, .keeps = false, .port = 7};
    bool ends_all;
    snprintf(n.id, sizeof n.id, "id%d", agent);
    snprintf(n.who, sizeof n.who, "host%d (pid 1)", agent);
    snprintf(n.name, sizeof n.name, "host%d", agent);
    return choir__agent_state_join(m, &m->terms, &n, &ends_all);
}

static const char *id_of(int agent)
{
    static const char *const ids[AGENTS] = {"id0", "id1", "id2"};
    return ids[agent];
}

static void forget_news(choir__agent_state *m)
{
    free(m->news);
    m->news = NULL;
}

/* --- what can happen --- */

enum { JOIN, READY, DONE, FAILED, LOST, LEAVE, KINDS, TICK = KINDS * AGENTS, LATE, EVENTS };

static const choir__verdict failure = {
    .status = 3, .worker = 0, .report = "choir run: rank failed"};
static const choir__verdict notice = {.status = 143, .report = "choir run: interrupted"};
static const choir__patience early = {.waited_s = 0, .timeout_s = 9, .last_call_s = 5};
static const choir__patience late = {.waited_s = 99, .timeout_s = 9, .last_call_s = 5};

static bool happen(choir__agent_state *m, int event)
{
    const char *id = id_of(event % AGENTS);
    if (event == TICK)
        return choir__agent_state_advance(m, &early, "secret");
    if (event == LATE)
        return choir__agent_state_advance(m, &late, "secret");
    switch (event / AGENTS) {
    case JOIN: /* an agent joins once at a time */
        return !choir__agent_state_find(m, id) &&
               join(m, event % AGENTS, 1 + event % AGENTS) == CHOIR_OK;
    case READY: return choir__agent_state_ready(m, id, 8);
    case DONE: return choir__agent_state_done(m, id, m->generation);
    case FAILED: return choir__agent_state_failed(m, id, m->generation, &failure);
    case LOST: return choir__agent_state_lost(m, id, INFINITY);
    default: return choir__agent_state_leave(m, id, &notice, false);
    }
}

/* --- what must hold --- */

static void check_state(const choir__agent_state *m)
{
    int taking_part = 0, busy = 0, ranks = 0;
    for (int i = 0; i < m->count; i++) {
        const choir__agent_node *n = &m->nodes[i];
        busy += n->stage == CHOIR__BUSY;
        taking_part += n->index >= 0;
        assert_true(n->stage == CHOIR__READY || n->index >= 0);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(n->id, m->nodes[k].id);
            assert_int_not_equal(n->number, m->nodes[k].number);
            assert_true(n->index < 0 || n->index != m->nodes[k].index);
        }
        if (n->index >= 0)
            ranks += n->workers;
    }
    assert_in_range(m->restarts, 0, m->terms.max_restarts);
    assert_true(taking_part <= m->terms.nodes_max);
    if (m->phase == CHOIR__RUNNING) {
        assert_true(busy > 0);
        assert_true(ranks > 0);
        assert_false(m->cause_costs);
    }
    if (m->phase == CHOIR__OVER && m->verdict.status)
        assert_true(*m->verdict.report != '\0');
}

/* No wait lasts for ever: once no node has workers, time alone starts the job or ends it. */
static void check_progress(const choir__agent_state *m)
{
    choir__agent_state next = choir__agent_state_copy(m);
    bool busy = false;
    for (int i = 0; i < m->count; i++)
        busy |= m->nodes[i].stage == CHOIR__BUSY;
    for (int i = 0; i < 2 && next.phase == CHOIR__GATHERING; i++)
        choir__agent_state_advance(&next, &late, "secret");
    assert_true(busy || next.phase != CHOIR__GATHERING);
    choir__agent_state_free(&next);
}

/* A new generation has the ranks of the last one, without those that left and with those that
 * are new. */
static void check_change(const choir__agent_state *was, const choir__agent_state *is, int world)
{
    int left = 0, joined = 0, before = 0;
    for (int i = 0; i < is->departed_count; i++) {
        const choir__departure *d = &is->departed[i];
        const choir__agent_node *n = choir__agent_state_find(is, d->id);
        assert_true(*d->why != '\0');
        left += d->workers;
        joined += n && n->index >= 0 && !n->is_new ? d->workers : 0;
    }
    for (int i = 0; i < is->count; i++)
        joined += is->nodes[i].index >= 0 && is->nodes[i].is_new ? is->nodes[i].workers : 0;
    for (int i = 0; i < was->count; i++)
        before += was->nodes[i].index >= 0 ? was->nodes[i].workers : 0;
    for (int i = 0; i < is->departed_count; i++) { /* gone before, or back as a new node */
        const choir__agent_node *n = choir__agent_state_find(was, is->departed[i].id);
        before += n && n->index >= 0 ? 0 : is->departed[i].workers;
    }
    assert_int_equal(before - left + joined, world);
}

/* A step from one state to the next. */
static void check_step(const choir__agent_state *was, const choir__agent_state *is, int event)
{
    bool failed = event / AGENTS == FAILED && event < TICK, ticked = event >= TICK;
    assert_int_not_equal(was->phase, CHOIR__OVER);
    assert_true(is->generation == was->generation || is->generation == was->generation + 1);
    assert_true(is->restarts == was->restarts || (ticked && was->cause_costs));
    if (is->generation > was->generation) { /* no workers of two generations */
        assert_int_equal(was->phase, CHOIR__GATHERING);
        assert_int_equal(is->phase, CHOIR__RUNNING);
        int next = 0;
        for (int i = 0; i < was->count; i++)
            assert_int_not_equal(was->nodes[i].stage, CHOIR__BUSY);
        for (int index = 0; index < is->count; index++)
            for (int i = 0; i < is->count; i++)
                if (is->nodes[i].index == index) {
                    assert_int_equal(is->nodes[i].rank, next);
                    next += is->nodes[i].workers;
                }
        assert_true(is->count >= is->terms.nodes_min);
        check_change(was, is, next);
    }
    if (is->cause_costs && !was->cause_costs)
        assert_true(failed);
}

/* Everything that a state says is in its text. */
static char *text_and_back(const choir__agent_state *m)
{
    choir__agent_state again;
    char *text = choir__agent_state_text(m);
    ok(choir__agent_state_read(text, &again));
    char *second = choir__agent_state_text(&again);
    assert_string_equal(text, second);
    free(second);
    choir__agent_state_free(&again);
    return text;
}

/* --- every order --- */

typedef struct seen {
    uint64_t *hashes; /* (STATES_MAX), open addressing; 0: free */
    int states, over, ended_well;
} seen;

/* Returns false if the state was seen before. */
static bool is_new(seen *s, const char *text)
{
    uint64_t hash = choir__hash_text(CHOIR__HASH_SEED, text) | 1;
    size_t at = hash % STATES_MAX;
    while (s->hashes[at] && s->hashes[at] != hash)
        at = (at + 1) % STATES_MAX;
    if (s->hashes[at])
        return false;
    s->hashes[at] = hash;
    assert_true(++s->states < STATES_MAX / 2);
    return true;
}

/* Breadth first, so that a state is first met by the shortest way to it. */
static void explore(choir__terms terms, int deepest, seen *s)
{
    choir__agent_state *all = choir__calloc(STATES_MAX / 2, sizeof *all);
    int *depth = choir__calloc(STATES_MAX / 2, sizeof *depth), count = 0;
    all[count++] = new_job(terms);
    for (int at = 0; at < count; at++) {
        for (int event = 0; event < EVENTS && depth[at] < deepest; event++) {
            choir__agent_state next = choir__agent_state_copy(&all[at]);
            forget_news(&next);
            if (next.phase == CHOIR__OVER || next.generation > 3 || !happen(&next, event)) {
                choir__agent_state_free(&next);
                continue;
            }
            check_state(&next);
            check_progress(&next);
            check_step(&all[at], &next, event);
            next.round = 0; /* a mere counter, which would make states differ */
            forget_news(&next);
            char *text = text_and_back(&next);
            bool new = is_new(s, text);
            free(text);
            s->over += new &&next.phase == CHOIR__OVER;
            s->ended_well += new &&next.phase == CHOIR__OVER && !next.verdict.status;
            if (new) {
                depth[count] = depth[at] + 1;
                all[count++] = next;
            } else {
                choir__agent_state_free(&next);
            }
        }
        choir__agent_state_free(&all[at]);
    }
    free(all);
    free(depth);
}

static void explore_job(choir__terms terms, int deepest)
{
    seen s = {.hashes = choir__calloc(STATES_MAX, sizeof *s.hashes)};
    explore(terms, deepest, &s);
    print_message("--nnodes %d:%d --max-restarts %d --node-failures %d: %d states, %d ends\n",
        terms.nodes_min, terms.nodes_max, terms.max_restarts, terms.node_failures, s.states,
        s.over);
    assert_true(s.states > 20);
    assert_true(s.ended_well > 0 && s.over > s.ended_well);
    free(s.hashes);
}

static void test_every_order(void **state)
{
    explore_job(terms_of(2, 2, 0, 0), 12);
    explore_job(terms_of(1, 2, 0, 0), 7);
    explore_job(terms_of(2, 2, 2, 0), 7);
    explore_job(terms_of(1, 3, 1, 1), 6);
}

/* --- stories --- */

static void all_ready(choir__agent_state *m)
{
    for (int i = 0; i < AGENTS; i++)
        choir__agent_state_ready(m, id_of(i), 9);
}

/* The ranks of a survivor fail first, then it shows that a machine is gone: that is free. */
static void test_failure_of_a_lost_node(void **state)
{
    choir__agent_state m = new_job(terms_of(1, 2, 1, 0));
    join(&m, 0, 1);
    join(&m, 1, 1);
    assert_true(choir__agent_state_advance(&m, &early, "one"));
    assert_true(choir__agent_state_failed(&m, "id0", 1, &failure));
    assert_true(m.cause_costs);
    assert_true(choir__agent_state_ready(&m, "id0", 9));
    assert_false(choir__agent_state_advance(&m, &late, "two")); /* id1 has not answered */
    assert_true(choir__agent_state_lost(&m, "id1", INFINITY));
    assert_true(choir__agent_state_advance(&m, &late, "two"));
    assert_int_equal(m.phase, CHOIR__RUNNING);
    assert_int_equal(m.restarts, 0);
    assert_int_equal(m.nodes[0].rank, 0);
    assert_string_equal(m.secret, "two");
    choir__agent_state_free(&m);
}

/* The last failure ends the job, with its status, and the report names the first one, too. */
static void test_last_restart(void **state)
{
    choir__agent_state m = new_job(terms_of(2, 2, 1, 0));
    choir__verdict second = {.status = 4, .report = "choir run: rank 1 failed again"};
    join(&m, 0, 1);
    join(&m, 1, 1);
    choir__agent_state_advance(&m, &early, "one");
    choir__agent_state_failed(&m, "id1", 1, &failure);
    assert_false(choir__agent_state_failed(&m, "id0", 1, &second)); /* a consequence */
    all_ready(&m);
    assert_true(choir__agent_state_advance(&m, &early, "two"));
    assert_non_null(strstr(m.news, "restart 1 of 1"));
    choir__agent_state_failed(&m, "id1", 2, &second);
    all_ready(&m);
    assert_true(choir__agent_state_advance(&m, &early, "three"));
    assert_int_equal(m.phase, CHOIR__OVER);
    assert_int_equal(m.verdict.status, 4);
    assert_non_null(strstr(m.verdict.report, "rank 1 failed again"));
    assert_non_null(
        strstr(m.verdict.report, "before 1 restart; first: choir run: rank failed"));
    choir__agent_state_free(&m);
}

/* A worker has said that no start would help, so the restarts that are left are not used. */
static void test_given_up(void **state)
{
    choir__agent_state m = new_job(terms_of(2, 2, 5, 0));
    const choir__verdict undecided = {
        .status = 1, .final = true, .report = "choir run: no third computation decides"};
    join(&m, 0, 1);
    join(&m, 1, 1);
    choir__agent_state_advance(&m, &early, "one");
    assert_true(choir__agent_state_failed(&m, "id1", 1, &undecided));
    assert_int_equal(m.phase, CHOIR__OVER);
    assert_int_equal(m.verdict.status, 1);
    assert_string_equal(m.verdict.report, undecided.report);
    assert_int_equal(m.restarts, 0);
    choir__agent_state_free(&m);
}

/* A node that is done may go; the others finish the job. */
static void test_done_and_gone(void **state)
{
    choir__agent_state m = new_job(terms_of(1, 2, 0, 0));
    join(&m, 0, 1);
    join(&m, 1, 1);
    choir__agent_state_advance(&m, &early, "one");
    assert_true(choir__agent_state_done(&m, "id1", 1));
    assert_true(choir__agent_state_lost(&m, "id1", INFINITY));
    assert_int_equal(m.phase, CHOIR__RUNNING);
    ok(join(&m, 2, 1)); /* too late to begin again for it */
    assert_int_equal(m.phase, CHOIR__RUNNING);
    assert_true(choir__agent_state_done(&m, "id0", 1));
    assert_int_equal(m.phase, CHOIR__OVER);
    assert_int_equal(m.verdict.status, 0);
    choir__agent_state_free(&m);
}

/* The event of a change: a node is lost, another one joins; then a rank fails. */
static void test_event(void **state)
{
    choir__agent_state m = new_job(terms_of(1, 3, 1, 0));
    choir__verdict why = {
        .status = 5, .worker = 1, .report = "choir run: rank 1 is \"ill\"\nmore"};
    join(&m, 0, 2);
    join(&m, 1, 1);
    choir__agent_state_advance(&m, &late, "one");
    choir__agent_state_lost(&m, "id1", INFINITY);
    join(&m, 2, 2);
    all_ready(&m);
    assert_true(choir__agent_state_advance(&m, &late, "two"));
    char *text = choir__agent_state_event(&m, 0.25, 1.5);
    assert_string_equal(text,
        "{\"event\":\"membership\",\"generation\":2,\"step\":null,\"world\":4,\"nodes\":2,"
        "\"restarts\":0,\"left\":[{\"rank\":2,\"host\":\"host1\",\"why\":\"node 1 is gone: its "
        "agent, host1 (pid 1), died or was cut off\"}],\"joined\":[{\"rank\":2,\"host\":\"host2\"},"
        "{\"rank\":3,\"host\":\"host2\"}],\"detected_s\":0.25,\"resumed_s\":1.5}");
    free(text);
    choir__agent_state_failed(&m, "id0", 2, &why);
    all_ready(&m);
    assert_true(choir__agent_state_advance(&m, &late, "three"));
    text = choir__agent_state_event(&m, 0, 0);
    assert_non_null(strstr(text,
        "\"world\":4,\"nodes\":2,\"restarts\":1,\"left\":[{\"rank\":1,\"host\":\"host0\",\"why\":"
        "\"rank 1 is \\\"ill\\\"\"}],\"joined\":[{\"rank\":1,\"host\":\"host0\"}]"));
    free(text);
    choir__agent_state_free(&m);
}

static void test_bad_text(void **state)
{
    static const char *const bad[] = {"", "{}", "[]", "{\"terms\":1}", "null"};
    choir__agent_state m;
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++)
        assert_int_equal(choir__agent_state_read(bad[i], &m), CHOIR_ERR_FORMAT);
    m = new_job(terms_of(1, 2, 0, 0));
    join(&m, 0, 1);
    snprintf(m.nodes[0].who, sizeof m.nodes[0].who, "\xff\x1b[2J");
    char *text = choir__agent_state_text(&m);
    choir__agent_state again;
    ok(choir__agent_state_read(text, &again));
    assert_null(strchr(again.nodes[0].who, '\x1b'));
    for (size_t cut = 1; cut < strlen(text); cut += 7) { /* no part of it passes */
        char *part = choir__format("%.*s", (int)cut, text);
        choir__agent_state none;
        assert_int_equal(choir__agent_state_read(part, &none), CHOIR_ERR_FORMAT);
        free(part);
    }
    free(text);
    choir__agent_state_free(&again);
    choir__agent_state_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_failure_of_a_lost_node),
        cmocka_unit_test(test_last_restart),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_done_and_gone),
        cmocka_unit_test(test_event),
        cmocka_unit_test(test_bad_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
