/* The supervisor's side of the crew: seats are taken and lost, and generations are formed.
 * Nothing here knows processes; launch/spawn.c tells it who has ended. */
#include "launch/crew/crew.h"

#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wake(choir__crew *r)
{
    atomic_fetch_add(&r->turn, 1);
    syscall(SYS_futex, &r->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

choir_status choir__crew_new(int world, const char *job, choir__crew **crew)
{
    choir__crew *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return choir__error(CHOIR_ERR_MEMORY, "no memory for the list of %d ranks", world);
    r->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->bell < 0) {
        int why = errno;
        munmap(r, sizeof *r);
        return choir__error(
            CHOIR_ERR_IO, "no eventfd for %d ranks: %s", world, choir__why(why));
    }
    choir_membership *m = &r->newest;
    r->world = m->world = r->seat_count = world;
    r->generation = r->reported = m->generation = 1;
    m->left = r->left;
    m->joined = r->joined;
    r->leave_at = -1;
    memset(r->copies, -1, sizeof r->copies); /* none */
    snprintf(r->job, sizeof r->job, "%s", job);
    for (int i = 0; i < world; i++) {
        r->seats[i].state = CHOIR__MEMBER;
        r->seats[i].local = r->seats[i].rank = r->members[i] = i;
    }
    *crew = r;
    return CHOIR_OK;
}

void choir__crew_rebuild(choir__crew *r, int least)
{
    r->rebuild = true;
    r->least = least;
    for (int i = 0; i < 2 * r->world; i++)
        r->copies[i / 2][i % 2] = memfd_create("choir-copy", MFD_CLOEXEC);
}

void choir__crew_free(choir__crew *r)
{
    if (!r)
        return;
    for (int i = 0; i < 2 * r->world; i++)
        if (r->copies[i / 2][i % 2] >= 0)
            close(r->copies[i / 2][i % 2]);
    close(r->bell);
    munmap(r, sizeof *r);
}

static bool lives(const choir__seat *s)
{
    uint32_t state = atomic_load(&s->state);
    return state != CHOIR__VACANT && state != CHOIR__GONE;
}

/* Returns the lowest local number that no living process has. */
static int free_local(const choir__crew *r)
{
    for (int local = 0;; local++) {
        bool taken = false;
        for (int i = 0; i < r->seat_count; i++)
            taken |= lives(&r->seats[i]) && r->seats[i].local == local;
        if (!taken)
            return local;
    }
}

int choir__crew_seat(choir__crew *r)
{
    if (r->seat_count == CHOIR__SEATS_MAX)
        return -1;
    int local = free_local(r), at = r->seat_count++;
    r->seats[at].local = local;
    r->seats[at].rank = -1;
    atomic_store(&r->seats[at].state, CHOIR__STARTING);
    return at;
}

/* Begins the account of the next change, unless it has begun. */
static void begin_account(choir__crew *r)
{
    if (r->due_at <= 0)
        r->due_at = choir__now();
}

/* Makes the account the description of the next generation. If the last change has not been
 * reported, the two become one. */
static void close_account(choir__crew *r)
{
    choir_membership *m = &r->newest;
    begin_account(r);
    if (atomic_load(&r->reported) == m->generation) {
        r->lost -= m->left_count;
        memmove(r->left, r->left + m->left_count, (size_t)r->lost * sizeof *r->left);
        m->joined_count = 0;
        r->began_at = r->due_at;
    }
    m->left_count = r->lost;
    m->detected_s = choir__now() - r->began_at;
    r->due_at = 0;
}

bool choir__crew_lost(choir__crew *r, int seat, const char *why)
{
    choir__seat *s = &r->seats[seat];
    bool member = atomic_exchange(&s->state, CHOIR__GONE) == CHOIR__MEMBER;
    choir_membership *m = &r->newest;
    snprintf(s->end, sizeof s->end, "%s", why);
    if (!member)
        return false;
    begin_account(r);
    if (r->lost < CHOIR__LEFT_MAX)
        r->left[r->lost++] = (choir_leaver){s->rank, s->pid, s->end};
    atomic_store(&r->broken, m->generation);
    wake(r);
    return true;
}

int choir__crew_living(const choir__crew *r)
{
    int living = 0;
    for (int i = 0; i < r->seat_count; i++)
        living += lives(&r->seats[i]);
    return living;
}

int choir__crew_alive(const choir__crew *r)
{
    int alive = 0;
    for (int i = 0; i < r->seat_count; i++)
        alive += atomic_load(&r->seats[i].state) == CHOIR__MEMBER;
    return alive;
}

static int ready_count(const choir__crew *r)
{
    int count = 0;
    for (int i = 0; i < r->seat_count; i++)
        count += atomic_load(&r->seats[i].state) == CHOIR__READY;
    return count;
}

/* Returns whether all living members have left the newest generation. */
static bool all_left(const choir__crew *r)
{
    for (int i = 0; i < r->seat_count; i++)
        if (atomic_load(&r->seats[i].state) == CHOIR__MEMBER &&
            atomic_load(&r->seats[i].left) < r->newest.generation)
            return false;
    return true;
}

/* Keeps the members that are left, in their order. */
static void keep_members(choir__crew *r, choir_membership *m)
{
    int now[CHOIR__MEMBERS_MAX], world = 0, joined = 0; /* now: their ranks; -1: gone */
    for (int rank = 0; rank < m->world; rank++) {
        bool kept = atomic_load(&r->seats[r->members[rank]].state) == CHOIR__MEMBER;
        now[rank] = kept ? world : -1;
        if (kept) {
            r->seats[r->members[rank]].rank = world;
            r->members[world++] = r->members[rank];
        }
    }
    for (int j = 0; j < m->joined_count; j++) /* new, and not reported yet */
        if (now[r->joined[j]] >= 0)
            r->joined[joined++] = now[r->joined[j]];
    m->joined_count = joined;
    m->world = world;
}

static void add_members(choir__crew *r, choir_membership *m)
{
    for (int i = 0; i < r->seat_count && m->world < r->world; i++)
        if (atomic_load(&r->seats[i].state) == CHOIR__READY) {
            r->seats[i].rank = r->joined[m->joined_count++] = m->world;
            r->members[m->world++] = i;
        }
}

/* Announces the members: a process that finds itself among them finds the whole list. */
static void announce(choir__crew *r)
{
    choir_membership *m = &r->newest;
    atomic_store(&r->generation, ++m->generation);
    for (int rank = 0; rank < m->world; rank++)
        atomic_store(&r->seats[r->members[rank]].state, CHOIR__MEMBER);
    wake(r);
}

/* Returns whether there are enough processes for a generation. Ranks that rebuild everything
 * need none of the last one's members, whose state is kept. */
static bool enough(const choir__crew *r, int alive)
{
    int ready = ready_count(r), least = choir__max(r->least, 1);
    return r->rebuild ? choir__min(alive + ready, r->world) >= least : alive > 0;
}

void choir__crew_form(choir__crew *r)
{
    choir_membership *m = &r->newest;
    int alive = choir__crew_alive(r);
    if (!enough(r, alive) || atomic_load(&r->over) || atomic_load(&r->anew))
        return;
    if (!all_left(r)) {
        if (alive < r->world && ready_count(r) && atomic_load(&r->due) != m->generation &&
            atomic_load(&r->broken) != m->generation) {
            begin_account(r);
            atomic_store(&r->due, m->generation);
        }
        return;
    }
    close_account(r);
    keep_members(r, m);
    add_members(r, m);
    atomic_store(&r->leave_at, -1);
    for (int i = 0; i < r->seat_count; i++)
        atomic_store(&r->seats[i].left_why, CHOIR_OK);
    announce(r);
}

static int by_time(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double choir__crew_patience(const choir__crew *r, double timeout)
{
    enum { FEWEST = 8 }; /* the first steps take longer */
    static const double least_s = 60, steps = 50;
    float took[CHOIR__TOOK];
    int count = (int)choir__min(atomic_load(&r->took), (uint32_t)CHOIR__TOOK);
    if (count < FEWEST)
        return timeout;
    for (int i = 0; i < count; i++)
        took[i] = atomic_load(&r->took_s[i]);
    qsort(took, (size_t)count, sizeof *took, by_time);
    return fmin(timeout, fmax(least_s, steps * (double)took[count / 2]));
}

int choir__crew_late(choir__crew *r, double after_silence, double after_loss)
{
    double waited = 0, limit = after_loss;
    int late = -1;
    for (int i = 0; i < r->seat_count; i++) {
        const choir__seat *s = &r->seats[i];
        if (atomic_load(&s->state) != CHOIR__MEMBER)
            continue;
        if (atomic_load(&s->left) < r->newest.generation) {
            late = i;
            continue;
        }
        waited = fmax(waited, choir__now() - 1e-9 * (double)atomic_load(&s->left_at));
        if (atomic_load(&s->left_why) == CHOIR_ERR_TIMEOUT)
            limit = after_silence;
    }
    if (late < 0 || waited <= limit || *r->seats[late].killed)
        return -1;
    snprintf(r->seats[late].killed, CHOIR__WHY_TEXT,
        "was silent: it did not notice within %.3g s that the ranks "
        "form a new group",
        limit);
    return late;
}
