/* The signals of a training job (launch/process/signal_table.h). A handler notes the request,
 * and the trainer looks between steps and between the batches of a validation. A job that ends
 * at once names its loss; the sentence is ready before, as a handler can only write it. */
#include "job/trainer/inside.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/say.h"
#include "line/tee.h"
#include "job/trainer/trainer.h"
#include "comm/flight/flight.h"
#include "launch/process/signal_table.h"

/* Handlers belong to the whole process, and so do their notes. */
static struct {
    volatile sig_atomic_t stop;         /* the first signal that stops the job; 0: none */
    volatile sig_atomic_t saves, shows; /* asked for, and not done yet */
    double stop_at, first_at; /* times: of `stop`; of the first signal that a second one ends */
    const char *volatile lost; /* the loss if the job ended now; NULL: another rank names it */
    const choir__tee *tee;     /* copies standard error */
    const choir__job_told *told; /* a program may ask there; NULL: there is none */
    bool borrowed; /* the process is a program's, which keeps the signals that it handles */
    char sentences[2][200]; /* `lost` is one of them */
    int next;               /* the other one */
} asked = {.lost = "nothing is saved yet"};

static size_t add(char *text, size_t used, size_t room, const char *more)
{
    size_t n = choir__min(strlen(more), room - used);
    memcpy(text + used, more, n);
    return used + n;
}

/* The status belongs to the first signal that stops the job, as with a supervisor. */
static _Noreturn void end_at_once(const choir__signal_row *row)
{
    char text[320];
    const choir__signal_row *first = asked.stop ? choir__signal_find(asked.stop) : row;
    const char *parts[] = {"choir train: ended at once by ", row->name,
        first == row ? "" : " after ", first == row ? "" : first->name, "; ",
        asked.lost ? asked.lost : "", "\n"};
    size_t used = 0;
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        used = add(text, used, sizeof text, parts[i]);
    if (asked.lost && write(STDERR_FILENO, text, used) > 0 && asked.tee)
        choir__tee_drain(asked.tee);
    _exit(128 + first->number);
}

static void on_signal(int number)
{
    int why = errno;
    const choir__signal_row *row = choir__signal_find(number);
    double now = choir__now();
    if (row->does == CHOIR__SIGNAL_ENDS || choir__signal_again(row, now, &asked.first_at))
        end_at_once(row);
    if (row->does == CHOIR__SIGNAL_SAVES)
        asked.saves = 1;
    if (row->does == CHOIR__SIGNAL_SHOWS)
        asked.shows = 1;
    if (row->does == CHOIR__SIGNAL_STOPS && !asked.stop) {
        asked.stop_at = now;
        asked.stop = number;
    }
    errno = why;
}

static void catch (bool stops)
{
    struct sigaction before, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (const choir__signal_row *r = choir__signal_table; r->number; r++) {
        if ((r->does == CHOIR__SIGNAL_STOPS) != stops)
            continue;
        sigaction(r->number, NULL, &before);
        if (asked.borrowed && before.sa_handler != SIG_DFL)
            continue;
        if (!(r->stays_ignored && before.sa_handler == SIG_IGN))
            sigaction(r->number, &ours, NULL);
    }
}

void choir__train_signals(const choir__tee *tee, bool speaks)
{
    asked.tee = tee;
    asked.lost = speaks ? "nothing is saved yet" : NULL;
    asked.borrowed = false;
    catch (false);
}

void choir__train_signals_borrow(bool speaks)
{
    asked.stop = asked.saves = asked.shows = 0;
    asked.first_at = 0;
    asked.tee = NULL;
    asked.lost = speaks ? "nothing is saved yet" : NULL;
    asked.borrowed = true;
    catch (false);
}

/* Gives back those of one meaning; NOTHING: of all. */
static void give_back(choir__signal_does does)
{
    struct sigaction now;
    for (const choir__signal_row *r = choir__signal_table; r->number; r++) {
        sigaction(r->number, NULL, &now);
        if (now.sa_handler == on_signal && (!does || r->does == does))
            signal(r->number, SIG_DFL);
    }
}

int choir__train_signals_give_back(void)
{
    give_back(CHOIR__SIGNAL_NOTHING);
    asked.told = NULL;
    asked.lost = NULL; /* the text may be in memory that the job frees */
    return asked.stop;
}

void choir__train_signals_supervise(void)
{
    give_back(CHOIR__SIGNAL_SHOWS);
}

void choir__trainer_catch_signals(const choir__job_records *r)
{
    asked.told = r->told;
    catch (true);
}

int choir__trainer_signal(double *since)
{
    if (asked.told && !asked.stop && atomic_load(&asked.told->stop)) {
        asked.stop_at = choir__now();
        asked.stop = SIGTERM;
    }
    if (since)
        *since = asked.stop_at;
    return asked.stop;
}

bool choir__trainer_save_asked(const choir__trainer *t)
{
    bool was = asked.saves;
    asked.saves = 0;
    if (was && !t->job->saves.dir && t->part.env.rank == 0)
        choir__job_tell(t->job, "SIGUSR1: nothing is saved without --save");
    return was && t->job->saves.dir;
}

void choir__trainer_show_asked(void)
{
    if (!asked.shows)
        return;
    asked.shows = 0;
    if (!choir__flight_dump((int)getpid(), stderr))
        fprintf(stderr, "choir train: %s\n", choir_error_message());
}

void choir__trainer_note_lost(const choir__trainer *t, bool saving)
{
    char *text = asked.sentences[asked.next];
    size_t room = sizeof asked.sentences[0];
    long long step = (long long)t->now.step, newest = (long long)t->newest;
    if (t->part.env.rank != 0 || t->job->records.silent) {
        asked.lost = NULL;
        return;
    }
    if (!t->job->saves.dir)
        snprintf(text, room, "nothing is saved without --save");
    else if (saving && newest)
        snprintf(text, room,
            "the checkpoint of step %lld was not finished; the newest one is of step %lld",
            step, newest);
    else if (saving)
        snprintf(text, room, "the checkpoint of step %lld was not finished; there is no other",
            step);
    else if (newest)
        snprintf(text, room, "steps after %lld, the newest checkpoint's, are lost", newest);
    else
        snprintf(text, room, "there is no checkpoint yet: all steps are lost");
    asked.lost = text;
    asked.next = !asked.next;
}
