/* Claims of folders; see claim.h.
 *
 *     look    opens .in-use, or makes it, locks it, and reads its holder
 *     judge   free; busy; ending: the job is on this machine, so that it or the last of its
 *             processes may end at any moment, and is waited for; quiet: the job is on another
 *             machine and was not heard of, so that it is watched
 *     take    writes this job as the holder; without locks the file is read again a moment
 *             later, as the last writer of several has the folder
 *
 * A file that was removed while it was opened or locked is looked for again. A thread renews
 * the time, and rests while the process forks. */
#include "base/files/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/claim_holder.h"
#include "base/process/forks.h"
#include "base/hold_signals.h"

enum { POLL_MS = 20, TELL_S = 1, WRITING_S = 1 };
enum { WRITING = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK }; /* flags of open() */

struct choir__claim {
    choir__claim_opts opts;
    char *folder, *path;
    choir__holder self;
    int fd;
    pid_t owner; /* process that owns the threads and the file, unlike a fork */
    pthread_t renewer;
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool renews, ends, lost;
    choir__forkable forkable;
};

/* The result of a look. */
typedef struct found {
    enum { LOCKED, LOCKED_BY_OTHERS, NO_LOCKS } lock;
    bool made, existed, local;
    choir__holder holder;
} found;

typedef enum verdict { FREE, BUSY, ENDING, QUIET, AGAIN } verdict;

choir__claim_opts choir__claim_defaults(void)
{
    return (choir__claim_opts){
        .ending_s = 5, .renew_s = 30, .gone_s = 300, .watch_s = 45, .settle_s = 60};
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

/* Opens the file, or makes it. Returns 0 or an errno. */
static int open_file(choir__claim *c, found *f)
{
    struct stat s;
    c->fd = choir__holder_open(c->path, true);
    f->made = c->fd >= 0;
    f->existed = c->fd < 0 && errno == EEXIST;
    if (f->existed)
        c->fd = choir__holder_open(c->path, false);
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
    if (!h->known) /* the writer died, or is about to write */
        return f->made || (f->local && f->lock == LOCKED) ? FREE : QUIET;
    if (same_job(c, h))
        return FREE;
    if (choir__holder_is_here(h, &c->self)) {
        bool goes_on = h->elsewhere && age(h) < c->opts.settle_s;
        return choir__holder_lives(h) ? ENDING : goes_on ? BUSY : FREE;
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
    bool here = choir__holder_is_here(h, &c->self);
    return !h->known || here || same_job(c, h) ? ENDING : BUSY;
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
    char heard[CHOIR__HOLDER_TIME];
    const choir__holder *h = &before->holder;
    double until = choir__now() + c->opts.watch_s;
    choir__holder_time(h->renewed, heard);
    if (h->known)
        tell(c, choir__format("the job of pid %d on %s had %s and was last heard of at %s: it "
                              "is watched for %.0f s before this job takes the folder over",
                    h->pid, h->host, c->folder, heard, c->opts.watch_s));
    do { /* one that stood still itself looks once more */
        found now;
        poll(NULL, 0, (int)(c->opts.watch_s * 1000 / 20) + 1);
        int why = look(c, &now);
        if (why || now.lock == LOCKED_BY_OTHERS || now.holder.renewed != h->renewed ||
            strcmp(now.holder.token, h->token) != 0)
            return false; /* the next look decides */
    } while (choir__now() < until);
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

static bool is_denied(int why)
{
    return why == EACCES || why == EPERM;
}

/* Returns whether nothing can be written to the folder by this job. A file that is denied in a
 * folder that can be written is another user's. */
static bool is_read_only(const choir__claim *c, const found *f, int why)
{
    return why == EROFS || why == ENOSPC || why == EDQUOT ||
           (is_denied(why) && (!f->existed || access(c->folder, W_OK) != 0));
}

/* Reports why the file cannot be opened, made or replaced. */
static choir_status report(const choir__claim *c, int why)
{
    struct stat s;
    if (!is_denied(why) || lstat(c->path, &s) != 0)
        return choir__error(CHOIR_ERR_IO, "cannot claim the folder by %s: %s", c->path,
            why == EBADF ? "it is no file" : choir__why(why));
    return choir__holder_refuse_hidden(c->folder, s.st_uid);
}

/* Waits for a job that may be about to end, and tells so if that takes long. Returns false if
 * it has taken too long. */
static bool waits(const choir__claim *c, const choir__holder *h, double waited, bool *told)
{
    if (h->known && waited > TELL_S && !*told) {
        tell(c,
            choir__format("waits %.0f s for the end of the job of pid %d on %s, which has %s",
                c->opts.ending_s, h->pid, h->host, c->folder));
        *told = true;
    }
    return waited <= (h->known ? c->opts.ending_s : WRITING_S);
}

/* Looks, judges and takes, until the folder is this job's or another's. */
static choir_status compete(choir__claim *c)
{
    bool told = false;
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
        if (v == FREE && !why)
            return CHOIR_OK;
        if (is_read_only(c, &f, why)) {
            forget_file(c);
            return CHOIR_OK;
        }
        if (why && why != EAGAIN)
            return report(c, why);
        if (v == BUSY || (v == ENDING && !waits(c, &f.holder, choir__now() - began, &told)))
            return choir__holder_refuse(&f.holder, &c->self, c->folder, c->opts.gone_s);
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
        now = choir__holder_make(c->path, WRITING);
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
        c->fd = choir__holder_open(c->path, false);
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
    c->lost = other.known;
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
    if (c->lost)
        return;
    c->ends = false;
    choir__cond_init(&c->end);
    pthread_mutex_init(&c->lock, NULL);
    c->renews = choir__thread_start(&c->renewer, renew_on, c) == 0;
    if (!c->renews) {
        pthread_cond_destroy(&c->end);
        pthread_mutex_destroy(&c->lock);
    }
}

static void stop_renewer(choir__claim *c)
{
    if (!c->renews)
        return;
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    pthread_cond_signal(&c->end);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->renewer, NULL);
    pthread_cond_destroy(&c->end);
    pthread_mutex_destroy(&c->lock);
    c->renews = false;
}

/* --- forks: the thread rests --- */

static void before_fork(void *self)
{
    stop_renewer(self);
}

static void in_parent(void *self)
{
    start_renewer(self);
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
    c->path = choir__format("%s/" CHOIR__HOLDER_FILE, folder);
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
    c->forkable = (choir__forkable){.before = before_fork, .in_parent = in_parent, .self = c};
    choir__forkable_add(&c->forkable);
    *claim = c;
    return CHOIR_OK;
}

void choir__claim_free(choir__claim *c, bool stays)
{
    if (!c || c->owner != getpid())
        return;
    choir__forkable_remove(&c->forkable);
    stop_renewer(c);
    choir__holder h = choir__holder_read(c->fd);
    /* Without locks, others that share the folder make the file again when they renew it. */
    bool last = !c->opts.shared || flock(c->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!stays && last && is_in_place(c) && (!h.known || is_mine(c, &h)))
        unlink(c->path);
    drop(c);
}
