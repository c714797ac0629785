/* The ledger that agents hold together (launch/raft/): who votes, explored in every state of a
 * few agents; messages as bytes, whole and cut off; and the entries on a cluster that libraft
 * simulates, with servers that lose sight of each other. */
#include "check.h"
#include "launch/raft/entries.h"
#include "launch/raft/voters.h"
#include "launch/raft/wire.h"

#include <raft/fixture.h>
#include <stdio.h>
#include <stdlib.h>

/* --- who votes --- */

enum { AGENTS = 6 };

/* Carries a move out. Returns the number of agents that are left. */
static int carry_out(choir__voters_seat *seats, int count, choir__voters_move m)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (m.kind == CHOIR__ASSIGN && seats[i].id == m.id)
            seats[i].role = m.role;
        if (m.kind != CHOIR__REMOVE || seats[i].id != m.id)
            seats[kept++] = seats[i];
    }
    return kept;
}

/* From any state the moves come to rest, with the right number of votes, and none of them
 * removes an agent that lives. */
static void settle(const choir__voters_seat *begin, int count)
{
    choir__voters_seat seats[AGENTS];
    int alive = 0, voters = 0, moves = 0;
    memcpy(seats, begin, sizeof seats);
    for (int i = 0; i < count; i++)
        alive += seats[i].alive;
    for (choir__voters_move m;
         (m = choir__voters_next(seats, count, false)).kind != CHOIR__STAY;) {
        assert_true(++moves < 4 * AGENTS);
        for (int i = 0; i < count; i++)
            assert_false(m.kind == CHOIR__REMOVE && seats[i].id == m.id && seats[i].alive);
        count = carry_out(seats, count, m);
    }
    assert_int_equal(count, alive);
    for (int i = 0; i < count; i++) {
        voters += seats[i].role == RAFT_VOTER;
        assert_false(seats[i].leads && seats[i].role != RAFT_VOTER);
    }
    assert_int_equal(voters, alive >= 5 ? 5 : alive >= 3 ? 3 : 1);
}

static void votes(void **state)
{
    for (int count = 1; count <= AGENTS; count++)
        for (int code = 0, codes = 1 << 3 * (count - 1); code < codes; code++) {
            choir__voters_seat seats[AGENTS] = {{1, RAFT_VOTER, true, true}};
            bool valid = true;
            for (int i = 1; i < count; i++) {
                int bits = code >> 3 * (i - 1) & 7;
                valid &= (bits & 3) < 3;
                seats[i] = (choir__voters_seat){(raft_id)i + 1, bits & 3, bits >> 2, false};
            }
            if (valid)
                settle(seats, count);
        }
}

/* A leader that retires gives its vote away first, and goes only then. */
static void retiring(void **state)
{
    choir__voters_seat two[AGENTS] = {
        {1, RAFT_VOTER, true, true}, {2, RAFT_STANDBY, true, false}};
    choir__voters_move m = choir__voters_next(two, 2, true);
    assert_true(m.kind == CHOIR__ASSIGN && m.id == 2 && m.role == RAFT_VOTER);
    carry_out(two, 2, m);
    m = choir__voters_next(two, 2, true);
    assert_true(m.kind == CHOIR__REMOVE && m.id == 1);
    assert_true(choir__voters_next(two, 1, true).kind == CHOIR__STAY);
}

/* --- messages --- */

static void free_message(struct raft_message *m)
{
    if (m->type == RAFT_IO_APPEND_ENTRIES) {
        if (m->append_entries.n_entries)
            raft_free(m->append_entries.entries[0].batch);
        raft_free(m->append_entries.entries);
    } else if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
}

/* Writes, reads and writes again: the bytes are the same. Any part of them is refused. */
static void there_and_back(const struct raft_message *m)
{
    choir__bytes first = {0}, again = {0};
    struct raft_message read = {0};
    choir__raft_write(&first, m);
    choir__reader r = {first.data, first.data + first.to, false};
    assert_true(choir__raft_read(&r, &read));
    assert_ptr_equal(r.at, r.end);
    choir__raft_write(&again, &read);
    assert_int_equal(again.to, first.to);
    assert_memory_equal(again.data, first.data, first.to);
    free_message(&read);
    for (size_t bytes = 0; bytes < first.to; bytes++) {
        uint8_t *part = malloc(bytes + 1); /* of its own, so that a sanitizer sees its end */
        memcpy(part, first.data, bytes);
        r = (choir__reader){part, part + bytes, false};
        assert_false(choir__raft_read(&r, &read));
        free(part);
    }
    choir__bytes_free(&first);
    choir__bytes_free(&again);
}

static void messages(void **state)
{
    struct raft_entry entries[] = {
        {.term = 2, .type = RAFT_COMMAND, .buf = {(char[]){"one"}, 3}},
        {.term = 3, .type = RAFT_BARRIER, .buf = {(char[8]){0}, 8}}};
    struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES,
        .append_entries = {.term = 3, .prev_log_index = 7, .entries = entries, .n_entries = 2}};
    there_and_back(&m);
    m = (struct raft_message){.type = RAFT_IO_APPEND_ENTRIES_RESULT,
        .append_entries_result = {.term = 1, .rejected = 2, .last_log_index = 3}};
    there_and_back(&m);
    m = (struct raft_message){.type = RAFT_IO_REQUEST_VOTE,
        .request_vote = {.term = 9, .candidate_id = 4, .pre_vote = true}};
    there_and_back(&m);
    m = (struct raft_message){.type = RAFT_IO_REQUEST_VOTE_RESULT,
        .request_vote_result = {
            .term = 9, .vote_granted = true, .pre_vote = raft_tribool_true}};
    there_and_back(&m);
    m = (struct raft_message){.type = RAFT_IO_TIMEOUT_NOW, .timeout_now = {.term = 5}};
    there_and_back(&m);
    m = (struct raft_message){.type = RAFT_IO_INSTALL_SNAPSHOT,
        .install_snapshot = {.term = 1, .last_index = 5, .data = {(char[]){"data"}, 4}}};
    raft_configuration_init(&m.install_snapshot.conf);
    raft_configuration_add(&m.install_snapshot.conf, 7, "10.0.0.1:29400", RAFT_VOTER);
    there_and_back(&m);
    raft_configuration_close(&m.install_snapshot.conf);
}

/* --- entries on a simulated cluster --- */

enum { SERVERS = 3, ROUNDS = 60 };

static void nothing(void *arg)
{
}

static void forget(struct raft_apply *apply, int status, void *result)
{
    free(apply);
}

/* The leader, if there is one that may be alone with its opinion, adds the entry after its
 * newest, as two agents do at a time. */
static void append_somewhere(struct raft_fixture *f, choir__entries *entries, int round)
{
    char text[40];
    for (unsigned i = 0; i < SERVERS; i++) {
        struct raft *raft = raft_fixture_get(f, i);
        if (raft_state(raft) != RAFT_LEADER)
            continue;
        int64_t n = entries[i].head + 1;
        int length = snprintf(text, sizeof text, "entry %d of %u in %d", (int)n, i, round);
        struct raft_buffer command = choir__entries_command(n, text, (size_t)length);
        struct raft_apply *apply = calloc(1, sizeof *apply);
        if (raft_apply(raft, apply, &command, 1, forget)) {
            raft_free(command.base);
            free(apply);
        }
    }
}

/* An entry that two servers have is the same on both. */
static void compare_entries(const choir__entries *entries)
{
    for (unsigned i = 1; i < SERVERS; i++)
        for (int64_t n = 1; n <= entries[0].head && n <= entries[i].head; n++) {
            const char *a = choir__entries_at(&entries[0], n);
            const char *b = choir__entries_at(&entries[i], n);
            if (a && b)
                assert_string_equal(a, b);
        }
}

static void change_sight(struct raft_fixture *f)
{
    unsigned i = (unsigned)rand() % SERVERS, j = (unsigned)rand() % SERVERS;
    if (i == j)
        return;
    if (rand() % 2) {
        raft_fixture_saturate(f, i, j);
    } else {
        raft_fixture_desaturate(f, i, j);
        raft_fixture_desaturate(f, j, i);
    }
}

static void simulate(unsigned seed)
{
    struct raft_fixture f = {0};
    struct raft_fsm fsms[SERVERS];
    choir__entries entries[SERVERS];
    struct raft_configuration c;
    srand(seed);
    assert_int_equal(raft_fixture_initialize(&f), 0);
    for (int i = 0; i < SERVERS; i++) {
        choir__entries_init(&entries[i]);
        entries[i].changed = nothing;
        fsms[i] = entries[i].fsm;
        assert_int_equal(raft_fixture_grow(&f, &fsms[i]), 0);
    }
    assert_int_equal(raft_fixture_configuration(&f, SERVERS, &c), 0);
    assert_int_equal(raft_fixture_bootstrap(&f, &c), 0);
    raft_configuration_close(&c);
    assert_int_equal(raft_fixture_start(&f), 0);
    for (int round = 0; round < ROUNDS; round++) {
        append_somewhere(&f, entries, round);
        raft_fixture_step_until_elapsed(&f, 50 + (unsigned)rand() % 2000);
        compare_entries(entries);
        change_sight(&f);
    }
    assert_true(entries[0].head + entries[1].head + entries[2].head > 3);
    raft_fixture_close(&f);
    for (int i = 0; i < SERVERS; i++)
        choir__entries_free(&entries[i]);
}

static void simulated_clusters(void **state)
{
    for (unsigned seed = 1; seed <= 20; seed++)
        simulate(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(votes),
        cmocka_unit_test(retiring),
        cmocka_unit_test(messages),
        cmocka_unit_test(simulated_clusters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
