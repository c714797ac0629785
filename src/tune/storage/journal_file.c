/* The file of a journal. Lines are appended, and never changed.
 *
 * A writer holds a lock, the symbolic link FILE.lock, as Optuna does; this works on network
 * file systems, too. Under the lock the file is read to its end, so the lines it appends follow
 * from all that is there. A writer that was killed leaves a part of a line, which the next one
 * cuts off, or its lock, which is broken when the file has not grown for 30 seconds. What has
 * whole lines behind it was not left by a writer, and is never cut. */
#include "tune/storage/journal_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/file.h"

static const double GRACE_S = 30, ON_THE_WAY_S = 1;

choir_status choir__journal_failed(const choir__journal_file *j, const char *what)
{
    return choir__error(
        CHOIR_ERR_IO, "cannot %s %s: %s", what, j->base.place, choir__file_why(errno));
}

double choir__journal_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- reading --- */

/* Applies the whole lines of a text. */
static choir_status apply_lines(choir__journal_file *j, char *text)
{
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = '\0';
        j->lines++;
        if (!choir__journal_apply(&j->state, text) && !choir__journal_may_skip(text))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s, line %lld: expected a line of Optuna's journals, got '%.40s'",
                j->base.place, (long long)j->lines, text);
        j->read += end + 1 - text;
    }
    return CHOIR_OK;
}

/* Fails if the file has lost lines that were read: it was cut, or cut and written to again. */
static choir_status check_cut(const choir__journal_file *j)
{
    char end = '\n';
    ssize_t n = j->read ? pread(j->fd, &end, 1, j->read - 1) : 1;
    if (n < 0)
        return choir__journal_failed(j, "read");
    return n == 1 && end == '\n'
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_IO,
                     "%s: another program has cut the journal: line %lld, which this process has "
                     "read, is not there any more; restore the file, or choose another one",
                     j->base.place, (long long)j->lines);
}

/* The file is read in blocks, so that one that is no journal is known as such by its first
 * block, however large it is; a block grows while it holds no whole line. A file that ends
 * early, or has no bytes where a writer's ones are still on their way, is left for later from
 * there on. */
choir_status choir__journal_catch_up(choir__journal_file *j)
{
    enum { BLOCK = 1 << 20 };
    size_t room = BLOCK;
    char *text = NULL;
    choir_status status = check_cut(j);
    for (bool more = true; more && status == CHOIR_OK;) {
        off_t from = j->read;
        text = choir__realloc(text, room + 1);
        ssize_t n = pread(j->fd, text, room, from);
        text[n > 0 ? n : 0] = '\0';
        more = n == (ssize_t)room && !memchr(text, '\0', room);
        status = n < 0 ? choir__journal_failed(j, "read") : apply_lines(j, text);
        if (j->read == from)
            room *= 2;
    }
    free(text);
    return status;
}

/* Returns whether bytes of zero have whole lines behind them, from the first line that is not
 * read. */
static choir_status find_hole(const choir__journal_file *j, bool *is)
{
    char block[1 << 16];
    bool zero = false;
    ssize_t n = 1;
    *is = false;
    for (off_t from = j->read, data; n > 0 && !*is; from += n) {
        data = lseek(j->fd, from, SEEK_DATA); /* a sparse file may have terabytes of zeros */
        if (data < 0 && errno == ENXIO)
            break;
        zero |= data > from;
        from = data > from ? data : from;
        n = pread(j->fd, block, sizeof block, from);
        for (ssize_t i = 0; i < n && !*is; i++) {
            zero |= block[i] == '\0';
            *is = zero && block[i] == '\n';
        }
    }
    return n < 0 ? choir__journal_failed(j, "read") : CHOIR_OK;
}

static choir_status refuse_hole(const choir__journal_file *j)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s, line %lld: expected a line of Optuna's journals, got bytes of zero, with whole lines "
        "behind them: the file is damaged; restore it, or cut it there by hand",
        j->base.place, (long long)j->lines + 1);
}

/* Bytes of a writer's that are on their way arrive within a moment: the file changes. */
choir_status choir__journal_check_holes(const choir__journal_file *j)
{
    bool is;
    struct stat about;
    choir_status status = find_hole(j, &is);
    if (status != CHOIR_OK || !is || fstat(j->fd, &about))
        return status;
    const struct timespec *t = &about.st_mtim;
    double changed = (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    return choir__journal_now() - changed > ON_THE_WAY_S ? refuse_hole(j) : CHOIR_OK;
}

/* Waits, under the lock, for lines that another machine has written before. */
static choir_status await_holes(choir__journal_file *j)
{
    bool is = true;
    choir_status status = CHOIR_OK;
    for (double since = choir__now(); status == CHOIR_OK;) {
        status = find_hole(j, &is);
        if (status != CHOIR_OK || !is)
            return status;
        if (choir__now() - since > ON_THE_WAY_S)
            return refuse_hole(j);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        status = choir__journal_catch_up(j);
    }
    return status;
}

/* --- the lock --- */

/* Waits for the lock. The link leads to the file, whose growth is its holder's sign of life. */
static choir_status lock(choir__journal_file *j)
{
    const char *name = strrchr(j->base.place, '/');
    double since = choir__now();
    struct stat last = {0}, about;
    for (long wait_ns = 1000000; symlink(name ? name + 1 : j->base.place, j->lock);) {
        if (errno != EEXIST)
            return choir__journal_failed(j, "lock");
        if (!fstat(j->fd, &about) && about.st_size != last.st_size)
            last = about, since = choir__now();
        if (choir__now() - since > GRACE_S) {
            unlink(j->lock);
            since = choir__now();
        }
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
        wait_ns = wait_ns < 50000000 ? 2 * wait_ns : wait_ns;
    }
    return CHOIR_OK;
}

/* Cuts off only the part of a line that a killed writer has left, because the file may not be a
 * journal. A machine that went down may have left zeros in place of the line. */
static choir_status repair(choir__journal_file *j)
{
    static const char begin[] = "{\"op_code\"";
    char head[sizeof begin] = "";
    struct stat about;
    if (fstat(j->fd, &about))
        return choir__journal_failed(j, "read");
    if (about.st_size <= j->read)
        return CHOIR_OK;
    ssize_t n = pread(j->fd, head, sizeof begin - 1, j->read);
    if (n < 0)
        return choir__journal_failed(j, "read");
    if (memcmp(head, begin, (size_t)n) && !(j->read && !head[0]))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s, line %lld: expected a line of Optuna's journals, got '%.40s'", j->base.place,
            (long long)j->lines + 1, head);
    choir_status status = await_holes(j);
    if (status != CHOIR_OK)
        return status;
    return ftruncate(j->fd, j->read) ? choir__journal_failed(j, "repair") : CHOIR_OK;
}

static choir_status append(choir__journal_file *j, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(j->fd, text + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            choir_status status = choir__journal_failed(j, "write");
            (void)!ftruncate(j->fd, j->read);
            return status;
        }
        done += (size_t)n;
    }
    return j->ends && fdatasync(j->fd) ? choir__journal_failed(j, "write") : CHOIR_OK;
}

choir_status choir__journal_transact(
    choir__journal_file *j, void (*compose)(choir__journal_file *, void *), void *arg)
{
    choir_status status = lock(j);
    if (status != CHOIR_OK)
        return status;
    char *text = NULL;
    size_t bytes = 0;
    off_t read = j->read;
    status = choir__journal_catch_up(j);
    if (status == CHOIR_OK)
        status = repair(j);
    if (status == CHOIR_OK) {
        read = j->read;
        j->ends = false;
        j->refused = CHOIR_OK;
        j->out = open_memstream(&text, &bytes);
        compose(j, arg);
        fclose(j->out);
        status = j->refused;
        if (status == CHOIR_OK)
            status = append(j, text, bytes);
    }
    unlink(j->lock);
    j->read = read + (status == CHOIR_OK ? (off_t)bytes : 0);
    if (status != CHOIR_OK) { /* the state is ahead of the file */
        choir__journal_clear(&j->state);
        j->read = j->lines = 0;
    }
    free(text);
    return status;
}
