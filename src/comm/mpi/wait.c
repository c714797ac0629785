/* Waiting, and the reaction to ranks that never come.
 *
 * A waiter tests: for a moment while holding the core, then yielding it between tests, then
 * with naps, because MPI makes progress only during calls. Time limits the tests before the
 * first nap as well as their number: on a busy machine each yield lasts, also those inside MPI.
 * A napping waiter also reads its letters, and after a second it asks the others: it sends HERE
 * to all, and each rank that waits in the group answers with the same letter. At the timeout
 * the ranks that did not answer for this call are late: a rank that is stopped, or busy
 * elsewhere, answers nothing.
 *
 * The first rank to fail sends its sentence to all, so that every rank reports the same one. */
#include "comm/mpi/mpi.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/flight/flight.h"

static const double test_s = 0.02, ask_after_s = 1, grace_s = 0.3, look_s = 0.01;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* --- failures --- */

static void tell(choir__mpi *m)
{
    if (m->told || choir__mpi_abandoned())
        return;
    m->told = true;
    choir__mpi_lock();
    m->fault.letter = (choir__mpi_letter){.mood = CHOIR__MPI_FAILED, .status = m->base.failed};
    snprintf(m->fault.letter.text, sizeof m->fault.letter.text, "%.499s", m->base.message);
    choir__mpi_post(m, &m->fault);
    double since = choir__now();
    while (!choir__mpi_all_done(m->fault.requests, m->base.world) &&
           choir__now() - since < CHOIR__MPI_LINGER_S)
        choir__mpi_nap(100);
    choir__mpi_unlock();
}

choir_status choir__mpi_fail(choir__mpi *m, choir_status status, const char *format, ...)
{
    char text[sizeof m->base.message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    choir__engine_fail(&m->base, status, "%s", text);
    tell(m);
    return m->base.failed;
}

choir_status choir__mpi_error(choir__mpi *m, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(rc, text, &length);
    return choir__mpi_fail(m, CHOIR_ERR_IO, "MPI: %.300s", text);
}

static bool is_message(const choir__stamp *stamp)
{
    return stamp->kind == CHOIR__SEND || stamp->kind == CHOIR__RECEIVE;
}

/* Returns true if this rank still waits for `rank`. */
static bool awaited(const choir__mpi *m, const bool *peers, int rank)
{
    if (rank == m->base.rank)
        return false;
    return peers ? peers[rank] : (int32_t)(m->heard[rank] - m->stamp.seq) < 0;
}

/* Names the ranks that never came, before there is a group. */
static void never_came(const choir__mpi *m, const bool *peers, char text[CHOIR__SILENT_TEXT])
{
    int missing = 0;
    size_t used = 0;
    for (int r = 0; r < m->base.world && used < CHOIR__SILENT_TEXT - 100; r++)
        if (awaited(m, peers, r))
            used += (size_t)snprintf(
                text + used, CHOIR__SILENT_TEXT - used, "%s%d", missing++ ? ", " : "rank ", r);
    snprintf(text + used, CHOIR__SILENT_TEXT - used,
        " of %d never came to the group within %g s: were all ranks started?", m->base.world,
        m->base.timeout_s);
}

static choir_status timed_out(choir__mpi *m, const bool *peers)
{
    char text[CHOIR__SILENT_TEXT], what[CHOIR__CALL_TEXT];
    int late = 0, *ranks = choir__calloc((size_t)m->base.world, sizeof *ranks);
    for (int r = 0; r < m->base.world; r++)
        if (awaited(m, peers, r))
            ranks[late++] = r;
    if (m->comm == MPI_COMM_NULL)
        never_came(m, peers, text);
    else if (late)
        choir__engine_silent(&m->base, ranks, late, m->entered, &m->stamp, text);
    else
        snprintf(text, sizeof text,
            "%s did not end within %g s, though all ranks are in it: is the network that slow?",
            choir__call_text(&m->stamp, what), m->base.timeout_s);
    free(ranks);
    return choir__mpi_fail(m, CHOIR_ERR_TIMEOUT, "%s", text);
}

static choir_status someone_left(choir__mpi *m, const bool *peers)
{
    char who[CHOIR__PEER_TEXT], what[CHOIR__CALL_TEXT];
    if (m->comm == MPI_COMM_NULL)
        return CHOIR_OK;
    for (int r = 0; r < m->base.world; r++)
        if (m->left[r] && awaited(m, peers, r))
            return choir__mpi_fail(m, CHOIR_ERR_PEER_LOST,
                "%s has left the group, and %s needs it", choir__engine_peer(&m->base, r, who),
                choir__call_text(&m->stamp, what));
    return CHOIR_OK;
}

/* --- waiting --- */

static bool is_over(choir__mpi *m, choir__mpi_poll *poll, void *what)
{
    choir__mpi_lock();
    bool over = poll(m, what);
    choir__mpi_unlock();
    return over || m->base.failed != CHOIR_OK;
}

/* Called while ranks are late: sends and reads letters. Returns an error if waiting longer is
 * pointless. */
static choir_status look_around(
    choir__mpi *m, choir__mpi_poll *poll, void *what, const bool *peers, double waited)
{
    double third = m->base.timeout_s / 3, ask_at = third < ask_after_s ? third : ask_after_s;
    bool in_a_call = m->comm != MPI_COMM_NULL && !is_message(&m->stamp);
    choir__mpi_lock();
    choir__mpi_letters(m);
    bool asked = false;
    for (int r = 0; r < m->base.world && in_a_call; r++)
        asked = asked || m->heard[r] == m->stamp.seq;
    if (in_a_call && (asked || waited > ask_at))
        choir__mpi_announce(m);
    choir__mpi_unlock();
    if (is_over(m, poll, what) || someone_left(m, peers) != CHOIR_OK)
        return m->base.failed;
    bool hope = waited < m->base.timeout_s + (in_a_call ? grace_s : 0);
    return hope ? CHOIR_OK : timed_out(m, peers);
}

choir_status choir__mpi_until(
    choir__mpi *m, choir__mpi_poll *poll, void *what, const bool *peers)
{
    double since = choir__now(), now = since, looked = since;
    for (int i = 0; i < m->spins + m->yields && now - since < test_s; i++, now = choir__now()) {
        if (is_over(m, poll, what))
            return m->base.failed;
        if (i < m->spins)
            relax();
        else
            sched_yield();
    }
    while (!is_over(m, poll, what)) {
        now = choir__now();
        choir__mpi_nap(now - since < 0.01 ? 50 : now - since < 1 ? 500 : 2000);
        if (now - looked < look_s)
            continue;
        looked = now;
        if (look_around(m, poll, what, peers, now - since) != CHOIR_OK)
            break;
    }
    return m->base.failed;
}

typedef struct batch {
    MPI_Request *requests;
    int count;
} batch;

static bool poll_batch(choir__mpi *m, void *what)
{
    const batch *b = what;
    int done = 0, rc = MPI_Testall(b->count, b->requests, &done, MPI_STATUSES_IGNORE);
    if (rc)
        choir__engine_fail(&m->base, CHOIR_ERR_IO, "MPI: a transfer failed (%d)", rc);
    return done;
}

choir_status choir__mpi_wait(choir__mpi *m, MPI_Request *requests, int count)
{
    batch b = {requests, count};
    choir_status status = choir__mpi_until(m, poll_batch, &b, NULL);
    if (status != CHOIR_OK) {
        tell(m);
        choir__mpi_lock();
        choir__mpi_call_back(requests, count);
        choir__mpi_unlock();
    }
    return status;
}

choir_status choir__mpi_finish(choir__mpi *m, int rc, MPI_Request request)
{
    batch b = {&request, 1};
    if (rc)
        return choir__mpi_error(m, rc);
    choir_status status = choir__mpi_until(m, poll_batch, &b, NULL);
    if (status != CHOIR_OK) {
        tell(m);
        choir__mpi_abandon();
    }
    return status;
}
