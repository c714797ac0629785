/* The generations of a crew (launch/crew/crew.h), explored: from the start on, every order of
 * the steps of a few processes and of their supervisor, with deaths at any moment. The
 * functions of launch/crew/form.c and launch/crew/seat.c are the real ones; a process's work is
 * reduced to a few steps that no rank can finish before all have begun them, unless ranks step
 * by themselves (apart) and meet at the end alone. Each state is checked, and so is the end of
 * each path: the job is done, or too few processes are left. */
#include "check.h"
#include "base/hash.h"
#include "launch/crew/seat.c" /* to be each of the processes in turn */

#include <stdlib.h>

enum { SEATS = 5, STATES_MAX = 1 << 22 };

/* The job of one exploration. */
static struct job {
    int world, deaths, restarts, spares, least, steps;
    bool rebuild, apart;
} job;

/* A process. */
typedef struct process {
    uint8_t exists, alive, noticed; /* noticed: its death, by the supervisor */
    uint8_t waits;                  /* for a generation after `after` */
    uint8_t joined, after;          /* generations; 0: none */
    uint8_t met, whole, exchanged;  /* in `joined`; whole: it has the job's state */
    uint8_t begun, done;            /* steps */
} process;

/* A state: all that the functions of the crew look at, and the processes. */
typedef struct state {
    process processes[SEATS];
    uint8_t state[SEATS], left[SEATS], rank[SEATS];
    uint8_t seat_count, over, generation, broken, failed, due, accounting;
    uint8_t world, members[SEATS], joined_count, joined[SEATS];
    int8_t leave_at;
    uint8_t deaths, restarts; /* left */
    uint8_t kept, furthest; /* steps: of which all ranks have copies; that any rank has done */
} state;

static choir__crew *crew;

static void put(const state *s)
{
    choir_membership *m = &crew->newest;
    crew->seat_count = s->seat_count;
    crew->over = s->over;
    crew->generation = crew->reported = m->generation = s->generation;
    crew->broken = s->broken;
    crew->failed = s->failed;
    crew->due = s->due;
    crew->due_at = s->accounting;
    crew->leave_at = s->leave_at;
    m->world = s->world;
    m->joined_count = s->joined_count;
    m->left_count = crew->lost = 0;
    for (int i = 0; i < SEATS; i++) {
        crew->seats[i].state = s->state[i];
        crew->seats[i].left = s->left[i];
        crew->seats[i].rank = s->rank[i];
        crew->members[i] = s->members[i];
        crew->joined[i] = s->joined[i];
    }
}

static void get(state *s)
{
    const choir_membership *m = &crew->newest;
    s->seat_count = (uint8_t)crew->seat_count;
    s->over = (uint8_t)crew->over;
    s->generation = (uint8_t)crew->generation;
    s->broken = (uint8_t)crew->broken;
    s->failed = (uint8_t)crew->failed;
    s->due = (uint8_t)crew->due;
    s->accounting = crew->due_at > 0;
    s->leave_at = (int8_t)crew->leave_at;
    s->world = (uint8_t)m->world;
    s->joined_count = (uint8_t)m->joined_count;
    for (int i = 0; i < SEATS; i++) {
        s->state[i] = (uint8_t)crew->seats[i].state;
        s->left[i] = (uint8_t)crew->seats[i].left;
        s->rank[i] = (uint8_t)crew->seats[i].rank;
        s->members[i] = i < m->world ? (uint8_t)crew->members[i] : 0;
        s->joined[i] = i < m->joined_count ? (uint8_t)crew->joined[i] : 0;
    }
}

/* --- the processes --- */

/* From now on launch/crew/seat.c's functions are those of process i. */
static void be(const state *s, int i)
{
    mine.crew = crew;
    mine.seat = i;
    mine.generation = s->processes[i].joined;
}

/* Returns whether all members of the newest generation have come as far as `far` says. */
static bool all_members(const state *s, bool (*far)(const process *p, int step), int step)
{
    for (int r = 0; r < s->world; r++) {
        const process *p = &s->processes[s->members[r]];
        if (p->joined != s->generation || !far(p, step))
            return false;
    }
    return true;
}

static bool is_here(const process *p, int step)
{
    return p->joined;
}
static bool has_met(const process *p, int step)
{
    return p->met;
}
static bool has_begun(const process *p, int step)
{
    return p->begun >= step;
}

static bool works(const state *s, int i)
{
    const process *p = &s->processes[i];
    return p->alive && p->joined && !p->waits && s->left[i] < p->joined;
}

/* A peer is dead, or has left: the group finds that by itself. */
static bool peer_is_gone(const state *s, int i)
{
    for (int r = 0; r < s->world; r++) {
        int peer = s->members[r];
        if (!s->processes[peer].alive || s->left[peer] >= s->processes[i].joined)
            return true;
    }
    return false;
}

/* Ranks that step by themselves find a loss between steps, and a peer that has left where they
 * meet, at the end. */
static bool finds_failure(const state *s, int i)
{
    const process *p = &s->processes[i];
    if (!job.apart || !p->exchanged)
        return choir__crew_stale() || peer_is_gone(s, i);
    return p->begun == p->done &&
           (choir__crew_stale() || (p->done == job.steps && peer_is_gone(s, i)));
}

static void leave(state *s, int i, bool failed)
{
    process *p = &s->processes[i];
    if (failed && job.rebuild)
        choir__crew_fail(false);
    else
        choir__crew_leave(false);
    p->waits = true;
    p->after = p->joined;
    p->begun = p->done;
    p->met = p->exchanged = false;
}

/* Takes the state of the furthest rank that has the job's; the source must live for that. Ranks
 * that are rebuilt take that of the copies. */
static bool exchange(state *s, int i)
{
    process *p = &s->processes[i];
    int source = -1;
    if (job.rebuild) {
        p->done = p->begun = s->kept;
        p->whole = p->exchanged = true;
        return true;
    }
    for (int r = 0; r < s->world; r++) {
        const process *q = &s->processes[s->members[r]];
        if (q->whole && (source < 0 || q->done > s->processes[source].done))
            source = s->members[r];
    }
    if (source < 0) {
        s->over = 1; /* the job fails: the state is lost */
        crew->over = 1;
        return true;
    }
    bool takes = !p->whole || p->done < s->processes[source].done;
    if (takes && !s->processes[source].alive)
        return false;
    p->done = p->begun = s->processes[source].done;
    p->whole = p->exchanged = true;
    return true;
}

static void begin_or_part(state *s, int i)
{
    process *p = &s->processes[i];
    if (choir__crew_parts(s->rank[i], job.apart ? -1 : p->done, true)) {
        for (int r = 0; r < s->world && !job.apart;
             r++) /* in order: no rank has begun a step that would be undone */
            assert_true(s->processes[s->members[r]].begun <= p->done);
        leave(s, i, false);
        return;
    }
    p->begun = p->done + 1;
    if (all_members(s, has_begun, p->begun))
        s->kept = p->done;
}

static bool finish(state *s, process *p)
{
    if (p->begun == p->done || (!job.apart && !all_members(s, has_begun, p->begun)))
        return false;
    p->done = p->begun;
    if (p->done > s->furthest)
        s->furthest = p->done;
    return true;
}

/* --- events --- */

enum {
    PREPARE,
    JOIN,
    MEET,
    EXCHANGE,
    BEGIN,
    FINISH,
    FAIL,
    END,
    DIE,
    NOTICE,
    KINDS,
    FORM = KINDS * SEATS,
    EVENTS
};

static void check_joining(const state *s, int i)
{
    assert_true(choir__crew_rank() == s->rank[i]);
    assert_true(crew->members[s->rank[i]] == i);
    assert_true(s->world <= job.world);
    if (job.rebuild)
        assert_true(s->world >= job.least);
    for (int j = 0; j < s->seat_count; j++) /* no process works in a generation before */
        assert_false(works(s, j) && s->processes[j].joined < s->generation);
}

static bool join(state *s, int i)
{
    process *p = &s->processes[i];
    if (!p->waits || s->state[i] != CHOIR__MEMBER || s->generation <= p->after)
        return false;
    p->joined = s->generation;
    p->waits = p->met = p->exchanged = false;
    check_joining(s, i);
    return true;
}

static bool notice(state *s, int i)
{
    process *p = &s->processes[i];
    if (!p->exists || p->alive || p->noticed)
        return false;
    p->noticed = true;
    bool member = choir__crew_lost(crew, i, "");
    if (member && s->restarts && crew->seat_count < SEATS) {
        s->restarts--;
        s->processes[choir__crew_seat(crew)] = (process){.exists = 1, .alive = 1};
    }
    return true;
}

static bool happen(state *s, int event)
{
    int i = event % SEATS;
    process *p = &s->processes[i];
    if (event == FORM) {
        choir__crew_form(crew);
        return true;
    }
    if (s->over)
        return false;
    be(s, i);
    bool at_work = works(s, i) && p->joined == s->generation;
    switch (event / SEATS) {
    case PREPARE:
        if (!p->alive || s->state[i] != CHOIR__STARTING)
            return false;
        crew->seats[i].state = CHOIR__READY;
        p->waits = true;
        p->after = s->generation;
        return true;
    case JOIN: return p->alive && join(s, i);
    case MEET:
        return at_work && !p->met && all_members(s, is_here, 0) && !choir__crew_stale() &&
               (p->met = true);
    case EXCHANGE:
        return at_work && p->met && !p->exchanged && all_members(s, has_met, 0) &&
               exchange(s, i);
    case BEGIN:
        if (!at_work || !p->exchanged || p->begun != p->done || p->done == job.steps)
            return false;
        begin_or_part(s, i);
        return true;
    case FINISH: return at_work && finish(s, p);
    case FAIL:
        if (!at_work || !finds_failure(s, i))
            return false;
        leave(s, i, true);
        return true;
    case END:
        if (!at_work || p->done != job.steps || !p->exchanged || s->rank[i] != 0 ||
            (job.apart && !all_members(s, has_begun, job.steps)))
            return false;
        choir__crew_finish();
        return true;
    case DIE:
        if (!p->alive || !s->deaths)
            return false;
        s->deaths--;
        p->alive = false;
        return true;
    default: return notice(s, i);
    }
}

/* --- exploring --- */

/* No rank is more than a step behind any that has ever been: at most one is repeated. */
static void check_steps(const state *s)
{
    for (int i = 0; i < s->seat_count; i++) {
        const process *p = &s->processes[i];
        if (p->alive && p->whole && !job.apart)
            assert_true(s->furthest - p->done <= 1);
    }
}

/* At the end of a path nothing more can happen. */
static void check_end(const state *s)
{
    int living = choir__crew_living(crew), needed = job.least ? job.least : 1;
    if (s->over)
        return;
    if (job.rebuild ? living >= needed : choir__crew_alive(crew) > 0)
        fail_msg("%d processes live, in generation %d (broken %d, due %d), and none goes on",
            living, s->generation, s->broken, s->due);
}

static state *known; /* (STATES_MAX) a hash table */
static uint32_t *queue;
static bool *used;

/* Returns where the state is in the table, and whether it is new. */
static uint32_t place_of(const state *s, bool *is_new)
{
    uint64_t hash = choir__hash_bytes(CHOIR__HASH_SEED, s, sizeof *s);
    uint32_t at = (uint32_t)(hash ^ hash >> 32) % STATES_MAX;
    while (used[at] && memcmp(&known[at], s, sizeof *s) != 0)
        at = (at + 1) % STATES_MAX;
    *is_new = !used[at];
    used[at] = true;
    known[at] = *s;
    return at;
}

static state first_state(void)
{
    state s;
    memset(&s, 0, sizeof s);
    ok(choir__crew_new(job.world, "job", &crew));
    crew->rebuild = job.rebuild;
    crew->least = job.least;
    for (int i = 0; i < job.spares; i++)
        choir__crew_seat(crew);
    for (int i = 0; i < job.world + job.spares; i++)
        s.processes[i] =
            (process){.exists = 1, .alive = 1, .joined = i < job.world, .whole = i < job.world};
    s.deaths = (uint8_t)job.deaths;
    s.restarts = (uint8_t)job.restarts;
    get(&s);
    return s;
}

static void explore(struct job what)
{
    uint32_t count = 0;
    bool is_new;
    job = what;
    job.steps = what.steps ? what.steps : 2;
    known = calloc(STATES_MAX, sizeof *known);
    queue = calloc(STATES_MAX, sizeof *queue);
    used = calloc(STATES_MAX, sizeof *used);
    assert_true(known && queue && used);
    state s = first_state();
    queue[count++] = place_of(&s, &is_new);
    for (uint32_t at = 0; at < count; at++) {
        bool ends = true;
        for (int event = 0; event < EVENTS; event++) {
            s = known[queue[at]];
            put(&s);
            if (!happen(&s, event))
                continue;
            get(&s);
            check_steps(&s);
            uint32_t place = place_of(&s, &is_new);
            ends &= place == queue[at] || event / SEATS == DIE;
            if (is_new)
                queue[count++] = place;
            assert_true(count < STATES_MAX / 2);
        }
        s = known[queue[at]];
        put(&s);
        if (ends)
            check_end(&s);
    }
    printf("%u states\n", count);
    assert_true(count > 100);
    choir__crew_free(crew);
    free(known);
    free(queue);
    free(used);
}

static void test_in_place(void **unused)
{
    explore((struct job){.world = 2, .deaths = 2, .restarts = 2});
    explore((struct job){.world = 2, .deaths = 1, .spares = 1});
    explore((struct job){.world = 3, .deaths = 2, .restarts = 2, .steps = 1});
}

static void test_apart(void **unused)
{
    explore((struct job){.world = 2, .deaths = 2, .restarts = 2, .apart = true});
    explore((struct job){.world = 3, .deaths = 2, .restarts = 1, .steps = 1, .apart = true});
}

static void test_rebuilt(void **unused)
{
    explore((struct job){.world = 2, .deaths = 2, .restarts = 2, .rebuild = true});
    explore((struct job){.world = 2, .deaths = 2, .restarts = 2, .rebuild = true, .least = 2});
    explore((struct job){.world = 3, .deaths = 1, .rebuild = true, .least = 2});
}

/* A limit for live-locks comes from the job's own steps. */
static void test_patience(void **unused)
{
    ok(choir__crew_new(2, "job", &crew));
    mine.crew = crew;
    assert_true(choir__crew_patience(crew, 1800) == 1800); /* no step is known */
    for (int i = 0; i < 20; i++)
        choir__crew_took(i % 2 ? 0.01 : 0.02);
    assert_true(choir__crew_patience(crew, 1800) == 60);
    assert_true(choir__crew_patience(crew, 5) == 5);
    for (int i = 0; i < 2 * CHOIR__TOOK; i++)
        choir__crew_took(4);
    assert_true(choir__crew_patience(crew, 1800) == 200);
    choir__crew_free(crew);
}

/* A process that is new prepares itself alone, and counts as new until it has the job's state:
 * then it is a rank like the others, which brings the next newcomer up to date. */
static void test_settled(void **unused)
{
    ok(choir__crew_new(2, "job", &crew));
    memset(&mine, 0, sizeof mine);
    choir__crew_sit(crew, 0);
    assert_false(choir__crew_is_new());
    int seat = choir__crew_seat(crew);
    choir__crew_sit(crew, seat);
    assert_true(choir__crew_is_new());
    assert_false(choir__crew_enter()); /* it is no member of any generation */
    choir__crew_settled();
    assert_false(choir__crew_is_new());
    choir__crew_free(crew);
    memset(&mine, 0, sizeof mine);
}

static void lose(int seat, const char *why)
{
    crew->seats[seat].pid = 10 + seat;
    assert_true(choir__crew_lost(crew, seat, why));
}

/* Leaves the generation, as the one living member that has done so last, and joins the next. */
static const choir_membership *next_of(choir_status why)
{
    choir__crew_leave(why);
    choir__crew_form(crew);
    choir__crew_next(why);
    return choir__crew_membership();
}

/* A change is reported once: also if the next one is due before that, and a loss since then
 * belongs to the next one. A change that is not reported becomes a part of the next. */
static void test_report(void **unused)
{
    ok(choir__crew_new(3, "job", &crew));
    memset(&mine, 0, sizeof mine);
    choir__crew_sit(crew, 0);
    assert_true(choir__crew_enter());
    lose(2, "was killed");
    crew->seats[1].left = 1;
    const choir_membership *m = next_of(CHOIR_ERR_PEER_LOST);
    assert_int_equal(m->generation, 2);
    lose(1, "was ill");
    int seat = choir__crew_seat(crew);
    crew->seats[seat].state = CHOIR__READY;
    choir__crew_form(crew);
    const choir_membership told = choir__crew_report(7, choir__now());
    assert_int_equal(told.step, 7);
    assert_int_equal(told.world, 2);
    assert_int_equal(told.joined_count, 0);
    assert_int_equal(told.left_count, 1);
    assert_int_equal(told.left[0].rank, 2);
    assert_int_equal(told.left[0].pid, 12);
    assert_string_equal(told.left[0].why, "was killed");
    assert_true(0 <= told.detected_s && told.detected_s <= told.resumed_s);

    m = next_of(CHOIR_ERR_TIMEOUT);
    assert_int_equal(m->world, 2);
    assert_int_equal(m->left_count, 1);
    assert_string_equal(m->left[0].why, "was ill");
    assert_int_equal(m->joined_count, 1);
    assert_int_equal(m->joined[0], 1);

    lose(seat, "was new");
    m = next_of(CHOIR_ERR_PEER_LOST);
    assert_int_equal(m->generation, 4);
    assert_int_equal(m->world, 1);
    assert_int_equal(m->joined_count, 0);
    assert_int_equal(m->left_count, 2);
    assert_string_equal(m->left[1].why, "was new");
    choir__crew_free(crew);
    memset(&mine, 0, sizeof mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_apart), cmocka_unit_test(test_rebuilt),
        cmocka_unit_test(test_patience), cmocka_unit_test(test_settled),
        cmocka_unit_test(test_report)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
