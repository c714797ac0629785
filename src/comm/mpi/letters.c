/* Letters between the ranks, the cancellation of requests, and the release of an engine's
 * memory. */
#include "comm/mpi/mpi.h"

#include <stdlib.h>
#include <time.h>

void choir__mpi_nap(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

bool choir__mpi_all_done(MPI_Request *requests, int count)
{
    int done = 0;
    return MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && done;
}

void choir__mpi_post(choir__mpi *m, choir__mpi_mail *mail)
{
    if (!choir__mpi_all_done(mail->requests, m->base.world))
        return; /* the previous letter is still being sent */
    for (int r = 0; r < m->base.world; r++)
        if (r != m->base.rank)
            MPI_Isend(&mail->letter, sizeof mail->letter, MPI_BYTE, r, CHOIR__TAG_LETTER,
                m->comm, &mail->requests[r]);
}

void choir__mpi_announce(choir__mpi *m)
{
    if (m->here.letter.seq == m->stamp.seq ||
        !choir__mpi_all_done(m->here.requests, m->base.world))
        return;
    m->here.letter = (choir__mpi_letter){.mood = CHOIR__MPI_HERE, .seq = m->stamp.seq};
    choir__mpi_post(m, &m->here);
}

static void read_letter(choir__mpi *m, int from)
{
    const choir__mpi_letter *letter = &m->inbox;
    if (letter->mood == CHOIR__MPI_FAILED) {
        m->told = true;
        choir__engine_fail(&m->base, (choir_status)letter->status, "%.*s", 499, letter->text);
        return;
    }
    m->heard[from] = letter->seq;
    m->left[from] = m->left[from] || letter->mood == CHOIR__MPI_LEFT;
}

void choir__mpi_letters(choir__mpi *m)
{
    int there = 1;
    MPI_Status status;
    while (m->inbox_request != MPI_REQUEST_NULL && there) {
        if (MPI_Test(&m->inbox_request, &there, &status) != MPI_SUCCESS || !there)
            return;
        read_letter(m, status.MPI_SOURCE);
        MPI_Irecv(&m->inbox, sizeof m->inbox, MPI_BYTE, MPI_ANY_SOURCE, CHOIR__TAG_LETTER,
            m->comm, &m->inbox_request);
    }
}

void choir__mpi_call_back(MPI_Request *requests, int count)
{
    if (choir__mpi_abandoned())
        return;
    for (int i = 0, done; i < count; i++) {
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
        if (!done)
            MPI_Cancel(&requests[i]);
    }
    double since = choir__now();
    while (!choir__mpi_all_done(requests, count)) {
        if (choir__now() - since > CHOIR__MPI_LINGER_S) {
            choir__mpi_abandon();
            return;
        }
        choir__mpi_nap(100);
    }
}

void choir__mpi_free(choir__mpi *m)
{
    free(m->sent);
    free(m->entries);
    free(m->requests);
    free(m->nodes);
    free(m->from);
    free(m->scratch);
    free(m->work);
    free(m->here.requests);
    free(m->fault.requests);
    free(m->goodbye.requests);
    free(m->heard);
    free(m->left);
    choir__engine_free(&m->base);
}
