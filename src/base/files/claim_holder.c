/* The file of a claim: lines of a key and a value, which people can read, too. */
#include "base/files/claim_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* Reads the start of a file of /proc as text without its line end. */
static bool read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return n > 0;
}

/* Returns when a process began, or 0 if it is gone or only waits to be reaped. */
static unsigned long long began(int pid)
{
    char path[64], text[1024], state;
    unsigned long long when;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *name_end = read_text(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!name_end || sscanf(name_end + 1,
                         " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                         "%*d %*d %*d %llu",
                         &state, &when) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : when;
}

choir__holder choir__holder_of(int pid, const char *job)
{
    choir__holder h = {.known = true, .pid = pid, .began = began(pid), .since = time(NULL)};
    char boot[64], space[64] = "";
    uint64_t random = 0;
    h.renewed = h.since;
    if (gethostname(h.host, sizeof h.host - 1) != 0)
        snprintf(h.host, sizeof h.host, "unknown");
    if (!read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot))
        snprintf(boot, sizeof boot, "unknown");
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    snprintf(h.machine, sizeof h.machine, "%s %s", boot, space);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)(1e9 * choir__now());
    snprintf(h.token, sizeof h.token, "%016" PRIx64, random);
    snprintf(h.job, sizeof h.job, "%s", job ? job : "");
    choir__clean(h.job);
    return h;
}

/* --- opening it --- */

int choir__holder_make(const char *path, int flags)
{
    enum { READABLE = 0644 };
    int fd = open(path, flags | O_CREAT | O_EXCL, READABLE);
    if (fd >= 0)
        fchmod(fd, READABLE);
    return fd;
}

/* A disk on which a file is open for writing cannot become read-only, but network file systems
 * lock no other files. */
int choir__holder_open(const char *path, bool make)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = make ? choir__holder_make(path, O_RDONLY | flags) : open(path, O_RDONLY | flags);
    if (fd < 0 || choir__holder_is_local(fd))
        return fd;
    int writable = open(path, O_RDWR | flags);
    if (writable < 0)
        return fd;
    close(fd);
    return writable;
}

/* --- the text --- */

static void take_word(const char *line, const char *key, char word[CHOIR__HOLDER_WORD])
{
    size_t n = strlen(key);
    if (!strncmp(line, key, n) && line[n] == ' ')
        snprintf(word, CHOIR__HOLDER_WORD, "%.*s", CHOIR__HOLDER_WORD - 1, line + n + 1);
}

/* Returns the number of the open file; a copy of the file has another one. */
static uint64_t file_number(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 ? (uint64_t)s.st_ino : 0;
}

static void take_line(choir__holder *h, const char *line)
{
    take_word(line, "host", h->host);
    take_word(line, "machine", h->machine);
    take_word(line, "job", h->job);
    take_word(line, "token", h->token);
    sscanf(line, "pid %d", &h->pid);
    sscanf(line, "began %llu", &h->began);
    sscanf(line, "file %" SCNu64, &h->file);
    sscanf(line, "since %" SCNd64, &h->since);
    sscanf(line, "renewed %" SCNd64, &h->renewed);
    h->elsewhere |= !strcmp(line, "elsewhere yes");
    h->known |= !strcmp(line, "end");
}

choir__holder choir__holder_read(int fd)
{
    char text[CHOIR__HOLDER_TEXT], *rest = text, *line;
    choir__holder h = {.known = false};
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    choir__clean(text); /* anybody may have written the file, and a sentence names its holder */
    while ((line = strsep(&rest, "\n")))
        take_line(&h, line);
    h.known &= *h.host && *h.machine && *h.token && h.pid > 0 && h.file == file_number(fd);
    return h;
}

bool choir__holder_write(int fd, const choir__holder *h)
{
    char text[CHOIR__HOLDER_TEXT];
    int n = snprintf(text, sizeof text,
        "host %s\nmachine %s\npid %d\nbegan %llu\njob %s\ntoken %s\nelsewhere %s\n"
        "file %" PRIu64 "\nsince %" PRId64 "\nrenewed %" PRId64 "\nend\n",
        h->host, h->machine, h->pid, h->began, h->job, h->token, h->elsewhere ? "yes" : "no",
        file_number(fd), h->since, h->renewed);
    return pwrite(fd, text, (size_t)n, 0) == n && ftruncate(fd, n) == 0;
}

/* --- is it alive? --- */

bool choir__holder_is_here(const choir__holder *h, const choir__holder *self)
{
    return !strcmp(h->machine, self->machine);
}

bool choir__holder_lives(const choir__holder *h)
{
    bool others = false; /* the process is another user's, and /proc may hide it (hidepid) */
    if (kill(h->pid, 0) != 0 && !(others = errno == EPERM))
        return false;
    unsigned long long when = began(h->pid);
    return access("/proc/self/stat", R_OK) != 0 || (when ? when == h->began : others);
}

/* --- sentences --- */

void choir__holder_time(int64_t seconds, char text[CHOIR__HOLDER_TIME])
{
    time_t at = (time_t)seconds;
    struct tm parts;
    if (!localtime_r(&at, &parts) || !strftime(text, CHOIR__HOLDER_TIME, "%F %T", &parts))
        snprintf(text, CHOIR__HOLDER_TIME, "an unknown time");
}

choir_status choir__holder_refuse(
    const choir__holder *h, const choir__holder *self, const char *folder, double gone_s)
{
    char since[CHOIR__HOLDER_TIME], heard[CHOIR__HOLDER_TIME];
    choir__holder_time(h->since, since);
    choir__holder_time(h->renewed, heard);
    if (!h->known)
        return choir__error(CHOIR_ERR_STATE,
            "another job has the folder %s at this moment: wait for its end, or choose another "
            "folder",
            folder);
    if (choir__holder_is_here(h, self) && choir__holder_lives(h))
        return choir__error(CHOIR_ERR_STATE,
            "another job has the folder %s: pid %d on %s, since %s: wait for its end, end it by "
            "'kill %d', or choose another folder",
            folder, h->pid, h->host, since, h->pid);
    return choir__error(CHOIR_ERR_STATE,
        "another job has the folder %s: pid %d on %s, since %s, last heard of at %s: wait for its "
        "end or, if it is dead, for %.0f minutes from then on, or remove %s/" CHOIR__HOLDER_FILE,
        folder, h->pid, h->host, since, heard, ceil(gone_s / 60), folder);
}

choir_status choir__holder_refuse_hidden(const char *folder, uid_t owner)
{
    const struct passwd *user = getpwuid(owner);
    char *name = user ? choir__strdup(user->pw_name) : choir__format("%u", (unsigned)owner);
    choir_status status = choir__error(CHOIR_ERR_STATE,
        "another job may have the folder %s: user %s owns %s/" CHOIR__HOLDER_FILE
        ", and this one may not read or replace it: wait for the end of that job, ask its user to "
        "remove the file, or choose another folder",
        folder, name, folder);
    free(name);
    return status;
}

/* --- the file system --- */

bool choir__holder_is_local(int fd)
{
    static const uint32_t local[] = {0xEF53 /* ext4 */, 0x58465342 /* xfs */,
        0x9123683E /* btrfs */, 0x01021994 /* tmpfs */, 0x858458F6 /* ramfs */,
        0x794C7630 /* overlayfs */, 0x2FC12FC1 /* zfs */, 0xF2F52010 /* f2fs */,
        0xCA451A4E /* bcachefs */};
    struct statfs s;
    bool is = false;
    for (size_t i = 0; i < CHOIR_COUNT(local) && fstatfs(fd, &s) == 0; i++)
        is |= (uint32_t)s.f_type == local[i];
    return is;
}
