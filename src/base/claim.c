/* Claims of folders; see claim.h.
 *
 *     look    opens .in-use, or makes it, locks it, and reads its holder
 *     judge   free; busy; ending: the last processes of a dead job end; quiet: the job is on
 *             another machine and was not heard of, so that it is watched
 *     take    writes this job as the holder; without locks the file is read again a moment
 *             later, as the last writer of several has the folder
 *
 * A file that was removed while it was opened or locked is looked for again. A thread renews
 * the time; it calls nothing that a fork of the process could find half done. */
#include "base/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/claim_holder.h"

#define FILE_NAME ".in-use"

enum { POLL_MS = 20, ENDING_S = 5, WRITING_S = 1 };
enum { WRITING = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK }; /* flags of open() */

struct choir__claim {
    choir__claim_opts opts;
    char *folder, *path;
    choir__holder self;
    int fd;
    pid_t owner; /* whose threads and file these are, not a fork's */
    pthread_t renewer;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool renews, ends;
};

/* The result of a look. */
typedef struct found {
    enum { LOCKED, LOCKED_BY_OTHERS, NO_LOCKS } lock;
    bool made, local;
    choir__holder holder;
} found;

typedef enum verdict { FREE, BUSY, ENDING, QUIET, AGAIN } verdict;

choir__claim_opts choir__claim_defaults(void)
{
    return (choir__claim_opts){.renew_s = 30, .gone_s = 300, .watch_s = 45, .settle_s = 60};
}

/* --- looking --- */

/* Returns whether the file still has its name. */
static bool is_in_place(const choir__claim *c)
{
    struct stat now, mine;
    return lstat(c->path, &now) == 0 && fstat(c->fd, &mine) == 0 && now.st_dev == mine.st_dev &&
           now.st_ino == mine.st_ino;
}

static void forget_file(choir__claim *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* Opens the file as its lock needs it. A disk on which a file is open for writing cannot become
 * read-only, but network file systems lock no other files. */
static int open_to_hold(const char *path, int more)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | more;
    int fd = open(path, O_RDONLY | flags, 0666);
    if (fd < 0 || choir__holder_is_local(fd))
        return fd;
    int writable = open(path, O_RDWR | (flags & ~(O_CREAT | O_EXCL)));
    if (writable < 0)
        return fd;
    close(fd);
    return writable;
}

/* Opens the file, or makes it. Returns 0 or an errno. */
static int open_file(choir__claim *c, found *f)
{
    struct stat s;
    c->fd = open_to_hold(c->path, O_CREAT | O_EXCL);
    f->made = c->fd >= 0;
    if (c->fd < 0 && errno == EEXIST)
        c->fd = open_to_hold(c->path, 0);
    if (c->fd < 0)
        return errno;
    return fstat(c->fd, &s) == 0 && S_ISREG(s.st_mode) ? 0 : EBADF;
}

/* Opens, locks and reads the file. Returns 0 or an errno; EAGAIN: look again. */
static int look(choir__claim *c, found *f)
{
    forget_file(c);
    *f = (found){.made = false};
    int why = open_file(c, f);
    if (why)
        return why == ENOENT && access(c->folder, F_OK) == 0 ? EAGAIN : why;
    f->local = choir__holder_is_local(c->fd);
    f->lock = flock(c->fd, LOCK_EX | LOCK_NB) == 0 ? LOCKED
              : errno == EWOULDBLOCK               ? LOCKED_BY_OTHERS
                                                   : NO_LOCKS;
    f->holder = choir__holder_read(c->fd);
    return is_in_place(c) ? 0 : EAGAIN;
}

/* --- judging --- */

static bool same_job(const choir__claim *c, const choir__holder *h)
{
    return *h->job && !strcmp(h->job, c->self.job);
}

static double age(const choir__holder *h)
{
    return fabs((double)time(NULL) - (double)h->renewed);
}

static verdict judge_unlocked(const choir__claim *c, const found *f)
{
    const choir__holder *h = &f->holder;
    if (!h->known) /* its writer died, or is about to write */
        return f->made || (f->local && f->lock == LOCKED) ? FREE : QUIET;
    if (same_job(c, h))
        return FREE;
    if (choir__holder_is_here(h, &c->self)) {
        bool goes_on = h->elsewhere && age(h) < c->opts.settle_s;
        return choir__holder_lives(h) || goes_on ? BUSY : FREE;
    }
    if (f->local && f->lock == LOCKED)
        return FREE; /* the machine has started again */
    return age(h) < c->opts.gone_s ? BUSY : QUIET;
}

static verdict judge(const choir__claim *c, const found *f)
{
    const choir__holder *h = &f->holder;
    if (f->lock != LOCKED_BY_OTHERS)
        return judge_unlocked(c, f);
    if (c->opts.shared && h->known && same_job(c, h) && flock(c->fd, LOCK_SH | LOCK_NB) == 0)
        return FREE;
    bool gone = choir__holder_is_here(h, &c->self) && !choir__holder_lives(h);
    return !h->known || gone || same_job(c, h) ? ENDING : BUSY;
}

static void put_time(int64_t seconds, char text[32])
{
    time_t at = (time_t)seconds;
    struct tm parts;
    if (!localtime_r(&at, &parts) || !strftime(text, 32, "%F %T", &parts))
        snprintf(text, 32, "an unknown time");
}

static choir_status refuse(const choir__claim *c, const choir__holder *h)
{
    char since[32], heard[32];
    put_time(h->since, since);
    put_time(h->renewed, heard);
    if (!h->known)
        return choir__error(CHOIR_ERR_STATE,
            "another job has the folder %s at this moment: wait for its end, or choose another "
            "folder",
            c->folder);
    if (choir__holder_is_here(h, &c->self) && choir__holder_lives(h))
        return choir__error(CHOIR_ERR_STATE,
            "another job has the folder %s: pid %d on %s, since %s: wait for its end, end it by "
            "'kill %d', or choose another folder",
            c->folder, h->pid, h->host, since, h->pid);
    return choir__error(CHOIR_ERR_STATE,
        "another job has the folder %s: pid %d on %s, since %s, last heard of at %s: wait for its "
        "end or, if it is dead, for %.0f minutes from then on, or remove %s",
        c->folder, h->pid, h->host, since, heard, ceil(c->opts.gone_s / 60), c->path);
}

/* --- taking --- */

static void tell(const choir__claim *c, char *sentence)
{
    if (c->opts.tell)
        c->opts.tell(c->opts.arg, sentence);
    free(sentence);
}

/* Watches a holder that has not been heard of. Returns whether it is gone. */
static bool is_gone(choir__claim *c, const found *before)
{
    char heard[32];
    const choir__holder *h = &before->holder;
    double until = choir__now() + c->opts.watch_s;
    put_time(h->renewed, heard);
    if (h->known)
        tell(c, choir__format("the job of pid %d on %s had %s and was last heard of at %s: it "
                              "is watched for %.0f s before this job takes the folder over",
                    h->pid, h->host, c->folder, heard, c->opts.watch_s));
    while (choir__now() < until) {
        found now;
        poll(NULL, 0, (int)(c->opts.watch_s * 1000 / 20) + 1);
        int why = look(c, &now);
        if (why || now.lock == LOCKED_BY_OTHERS || now.holder.renewed != h->renewed ||
            strcmp(now.holder.token, h->token) != 0)
            return false; /* the next look decides */
    }
    return true;
}

/* Writes this job into the file. A file that belongs to another user is replaced. */
static int take(choir__claim *c, const found *f)
{
    int fd = open(c->path, WRITING);
    if (fd < 0)
        return errno == EACCES && unlink(c->path) == 0 ? EAGAIN : errno;
    choir__holder_write(fd, &c->self); /* on a full disk the lock alone holds */
    close(fd);
    if (c->opts.shared && f->lock == LOCKED)
        flock(c->fd, LOCK_SH);
    if (f->made || (f->local && f->lock != NO_LOCKS) || c->opts.shared)
        return 0;
    poll(NULL, 0, (int)(c->opts.renew_s * 1000 / 20)); /* 1.5 s */
    found now;
    int why = look(c, &now);
    return why ? why : strcmp(now.holder.token, c->self.token) ? EAGAIN : 0;
}

/* Returns whether nothing can be written to the folder, by this job or another. */
static bool is_read_only(int why)
{
    return why == EROFS || why == EACCES || why == EPERM || why == ENOSPC || why == EDQUOT;
}

/* Looks, judges and takes, until the folder is this job's or another's. */
static choir_status compete(choir__claim *c)
{
    for (const double began = choir__now();; poll(NULL, 0, POLL_MS)) {
        found f;
        bool gone = false;
        int why = look(c, &f);
        verdict v = why ? AGAIN : judge(c, &f);
        if (v == QUIET) {
            gone = is_gone(c, &f);
            v = gone ? FREE : AGAIN;
        }
        if (v == FREE)
            why = take(c, &f);
        if (v == FREE && !why && gone && f.holder.known)
            tell(c, choir__format("takes over %s from the job of pid %d on %s, which is gone",
                        c->folder, f.holder.pid, f.holder.host));
        if (is_read_only(why))
            forget_file(c);
        if ((v == FREE && !why) || is_read_only(why))
            return CHOIR_OK;
        if (why && why != EAGAIN)
            return choir__error(CHOIR_ERR_IO, "cannot claim the folder by %s: %s", c->path,
                why == EBADF ? "it is no file" : choir__why(why));
        double patience = f.holder.known ? ENDING_S : WRITING_S;
        if (v == BUSY || (v == ENDING && choir__now() - began > patience))
            return refuse(c, &f.holder);
    }
}

/* --- renewing --- */

static bool is_mine(const choir__claim *c, const choir__holder *h)
{
    return !strcmp(h->token, c->self.token) || (c->opts.shared && same_job(c, h));
}

/* Renews the time, or makes the file again if someone has removed it. Returns the holder that
 * has taken the folder over, which is not known if none has. */
static choir__holder renew(choir__claim *c)
{
    int now = open(c->path, WRITING); /* a new open file is not read from a network's cache */
    if (now < 0 && errno == ENOENT)
        now = open(c->path, WRITING | O_CREAT | O_EXCL, 0666);
    choir__holder h = now < 0 ? (choir__holder){.known = false} : choir__holder_read(now);
    if (h.known && !is_mine(c, &h)) {
        close(now);
        return h;
    }
    if (now < 0)
        return h;
    c->self.renewed = time(NULL);
    choir__holder_write(now, &c->self);
    close(now);
    if (!is_in_place(c)) { /* someone had removed it */
        forget_file(c);
        c->fd = open_to_hold(c->path, 0);
        flock(c->fd, (c->opts.shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    }
    return (choir__holder){.known = false};
}

static void *renew_on(void *arg)
{
    choir__claim *c = arg;
    choir__holder other = {.known = false};
    pthread_mutex_lock(&c->lock);
    while (!c->ends && !other.known) {
        struct timespec next = choir__in_seconds(c->opts.renew_s);
        while (!c->ends && pthread_cond_timedwait(&c->end, &c->lock, &next) != ETIMEDOUT)
            ;
        if (!c->ends)
            other = renew(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (other.known && c->opts.lost) {
        char *sentence = choir__format(
            "the job of pid %d on %s has taken over %s, as this one was not heard "
            "of for long; this one ends, so that it does no harm there",
            other.pid, other.host, c->folder);
        c->opts.lost(c->opts.arg, sentence);
        free(sentence);
    }
    return NULL;
}

/* Starts the thread, which takes no signals. Without one the lock alone holds. */
static void start_renewer(choir__claim *c)
{
    sigset_t all, before;
    sigfillset(&all);
    choir__cond_init(&c->end);
    pthread_mutex_init(&c->lock, NULL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->renews = pthread_create(&c->renewer, NULL, renew_on, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_renewer(choir__claim *c)
{
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_signal(&c->end);
    pthread_mutex_unlock(&c->lock);
    if (c->renews)
        pthread_join(c->renewer, NULL);
    pthread_cond_destroy(&c->end);
    pthread_mutex_destroy(&c->lock);
}

/* --- the claim --- */

static void drop(choir__claim *c)
{
    forget_file(c);
    free(c->folder);
    free(c->path);
    free(c);
}

choir_status choir__claim_take(
    const char *folder, const choir__claim_opts *opts, choir__claim **claim)
{
    choir__claim *c = choir__calloc(1, sizeof *c);
    *claim = NULL;
    c->opts = *opts;
    c->folder = choir__strdup(folder);
    c->path = choir__format("%s/" FILE_NAME, folder);
    c->self = choir__holder_of(opts->pid ? opts->pid : (int)getpid(), opts->job);
    c->self.elsewhere = opts->elsewhere;
    c->fd = -1;
    c->owner = getpid();
    choir_status status = compete(c);
    if (status != CHOIR_OK || c->fd < 0) {
        drop(c);
        return status;
    }
    start_renewer(c);
    *claim = c;
    return CHOIR_OK;
}

void choir__claim_pause(choir__claim *c)
{
    if (c)
        stop_renewer(c);
}

void choir__claim_go_on(choir__claim *c)
{
    if (!c)
        return;
    c->ends = false;
    start_renewer(c);
}

void choir__claim_free(choir__claim *c, bool stays)
{
    if (!c || c->owner != getpid())
        return;
    stop_renewer(c);
    choir__holder h = choir__holder_read(c->fd);
    /* Without locks, others that share the folder make the file again when they renew it. */
    bool last = !c->opts.shared || flock(c->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!stays && last && is_in_place(c) && (!h.known || is_mine(c, &h)))
        unlink(c->path);
    drop(c);
}
