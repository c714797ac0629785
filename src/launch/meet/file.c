/* file://path: rank 0 writes its addresses and a key into the file.
 *
 *     choir meeting 1
 *     holder PID BEGAN HOST MACHINE
 *     key HEX
 *     address HOST PORT                    one or more
 *
 * The file appears whole (written under another name, then linked), only its owner may read it,
 * and it is removed when all ranks have met. So it serves as the job's secret while it exists,
 * and works wherever a file system is shared. Rank 0 listens on loopback if the file is on a
 * disk of this machine, at MASTER_ADDR if that is set, and otherwise at all its addresses.
 *
 * A crash leaves the file behind. Rank 0 recognizes such a file: the process of its holder, by
 * number and start time, has ended, or no server with the file's key answers there. It replaces
 * such a file, and an empty one. It does not touch a file whose holder lives, or any other
 * file. The other ranks keep reading until the file leads to a rank 0 that answers. */
#include "launch/meet/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/temp_file.h"
#include "launch/meet/meet.h"

static const double answer_s = 1; /* for a rank 0 that may be dead */

/* --- the existing file --- */

typedef enum found { NOTE, NO_FILE, EMPTY, OTHER, DENIED } found;

/* Reads the file. DENIED: *status has the reason. *inode distinguishes this file from its
 * successor. */
static found read_file(const char *path, choir__meet_note *note, choir__store_key *key,
    ino_t *inode, choir_status *status)
{
    char text[CHOIR__NOTE_TEXT];
    struct stat info;
    found what = DENIED;
    ssize_t n = 0;
    int fd = choir__file_try(path, O_RDONLY | O_NOFOLLOW, CHOIR__FILE_REGULAR);
    if (fd < 0 && (errno == ENOENT || errno == ESTALE))
        return NO_FILE;
    if (fd < 0 && (errno == EISDIR || errno == ENOTSUP))
        *status = choir__error(
            CHOIR_ERR_ARGUMENT, "cannot meet at 'file://%s': expected a plain file", path);
    else if (fd < 0 || fstat(fd, &info))
        *status = choir__error(
            CHOIR_ERR_IO, "cannot meet at 'file://%s': %s", path, choir__why(errno));
    else if (info.st_uid != geteuid())
        *status = choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at 'file://%s': the file belongs to user id %d, not to us (%d)", path,
            (int)info.st_uid, (int)geteuid());
    else if (info.st_size == 0)
        what = EMPTY;
    else if ((n = read(fd, text, sizeof text - 1)) < 0)
        *status =
            choir__error(CHOIR_ERR_IO, "cannot read 'file://%s': %s", path, choir__why(errno));
    else {
        text[n] = '\0';
        what =
            strlen(text) == (size_t)n && choir__meet_note_read(text, note, key) ? NOTE : OTHER;
        sodium_memzero(text, sizeof text);
    }
    if (what == NOTE && (info.st_mode & 077)) {
        what = DENIED;
        *status = choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at 'file://%s': others may read the file (mode %03o), which holds the "
            "job's key",
            path, (unsigned)info.st_mode & 0777);
    }
    *inode = fd >= 0 ? info.st_ino : 0;
    if (fd >= 0)
        close(fd);
    return what;
}

/* --- its validity --- */

/* Returns when a process began, in ticks since boot; 0: no such process. */
static unsigned long long birth_of(int pid)
{
    char path[64], text[1024];
    unsigned long long began = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')');
    if (!name_end ||
        sscanf(name_end + 1,
            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
            &began) != 1)
        return 0;
    return began;
}

static bool is_local(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* Calls the note's addresses; loopback only if the holder is on this machine. */
static choir__meet_result call(choir__joining *j, const choir__meet_note *note,
    const choir__store_key *key, const choir__member *self, choir_status *status)
{
    bool near = !strcmp(note->holder.machine, self->machine);
    choir__meet_result a = CHOIR__MEET_UNREACHED;
    for (int i = 0; i < note->address_count && a == CHOIR__MEET_UNREACHED; i++)
        if (near || !is_local(note->addresses[i].host))
            a = choir__meet_try(
                j, note->addresses[i].host, note->addresses[i].port, answer_s, key, status);
    return a;
}

/* Returns true if a server with the note's key answers. */
static bool answers(
    const choir__meet_note *note, const choir__store_key *key, const choir__member *self)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store *store = NULL;
    bool near = !strcmp(note->holder.machine, self->machine);
    opts.timeout_s = answer_s;
    for (int i = 0; i < note->address_count && !store; i++)
        if (near || !is_local(note->addresses[i].host))
            choir__store_connect(
                note->addresses[i].host, note->addresses[i].port, opts, key, &store);
    choir_store_free(store);
    return store != NULL;
}

static bool is_alive(
    const choir__meet_note *note, const choir__store_key *key, const choir__member *self)
{
    if (!strcmp(note->holder.machine, self->machine))
        return birth_of(note->holder.pid) == note->began;
    return answers(note, key, self);
}

/* --- rank 0 --- */

/* Makes way for the new file: removes an empty one, or one that was left behind. old_key: room
 * for the key of that one. */
static choir_status make_way(
    const char *path, const choir__member *self, choir__store_key *old_key)
{
    choir__meet_note old;
    choir_status status = CHOIR_OK;
    ino_t inode, now;
    switch (read_file(path, &old, old_key, &inode, &status)) {
    case NO_FILE: return CHOIR_OK;
    case DENIED: return status;
    case OTHER:
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at 'file://%s': there is a file with something else in it; choose "
            "another path",
            path);
    case EMPTY: break;
    case NOTE:
        if (is_alive(&old, old_key, self))
            return choir__error(CHOIR_ERR_STATE,
                "cannot meet at 'file://%s': ranks are meeting there, and their rank 0 (pid %d "
                "on %s) lives; was rank 0 started twice, or is it another job's file?",
                path, old.holder.pid, old.holder.host);
        break;
    }
    found again =
        read_file(path, &old, old_key, &now, &status); /* another rank 0 may be as fast */
    if (again != NO_FILE && now == inode && unlink(path) && errno != ENOENT)
        return choir__error(CHOIR_ERR_IO,
            "cannot replace 'file://%s', which was left behind: %s", path, choir__why(errno));
    return CHOIR_OK;
}

static choir_status clear_path(const char *path, const choir__member *self)
{
    choir__store_key *old_key;
    choir_status status = choir__store_key_new(&old_key);
    if (status == CHOIR_OK)
        status = make_way(path, self, old_key);
    choir__store_key_free(old_key);
    return status;
}

/* Returns the path's folder, or "." if it names none. The caller frees it. */
static char *folder_of(const char *path)
{
    char *folder = choir__strdup(path), *slash = strrchr(folder, '/');
    if (!slash) {
        free(folder);
        return choir__strdup(".");
    }
    slash[slash == folder] = '\0';
    return folder;
}

static bool fill(int fd, const char *text)
{
    size_t length = strlen(text);
    return fchmod(fd, 0600) == 0 && write(fd, text, length) == (ssize_t)length &&
           fsync(fd) == 0;
}

/* Places the file by way of an unnamed one, which a crash cannot leave behind. *tried: the file
 * system supports such files. */
static bool put_nameless(const char *path, const char *text, bool *tried)
{
    char *folder = folder_of(path), source[40];
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    free(folder);
    *tried = fd >= 0;
    if (fd < 0)
        return false;
    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    bool fine =
        fill(fd, text) && linkat(AT_FDCWD, source, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
    int why = errno;
    *tried = fine || why == EEXIST || why == ENOSPC || why == EDQUOT;
    close(fd);
    errno = why;
    return fine;
}

/* Places the file by way of a draft in the same folder. */
static bool put_draft(const char *path, const char *text)
{
    char *draft = choir__format("%s.%llx", path, (unsigned long long)choir__temp_file_mark());
    int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool fine = false;
    if (fd >= 0) {
        fine = fill(fd, text);
        fine = close(fd) == 0 && fine;
        if (fine && link(draft, path)) {
            fine = false;
            if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) /* lacks links */
                fine = rename(draft, path) == 0;
        }
        int why = errno;
        unlink(draft);
        errno = why;
    }
    free(draft);
    return fine;
}

/* Makes the file appear at path, whole, unless one exists. */
static bool put_whole(const char *path, const char *text)
{
    bool tried;
    return put_nameless(path, text, &tried) || (!tried && put_draft(path, text));
}

static choir_status place_file(
    const char *path, const choir__meet_note *note, const choir__store_key *key)
{
    char text[CHOIR__NOTE_TEXT];
    choir_status status = CHOIR_OK;
    bool fine = false;
    choir__meet_note_write(note, key, text);
    for (int tries = 0; tries < 5 && !fine && status == CHOIR_OK; tries++) {
        status = clear_path(path, &note->holder);
        if (status != CHOIR_OK)
            break;
        fine = put_whole(path, text);
        if (!fine && errno != EEXIST)
            status = choir__error(
                CHOIR_ERR_IO, "cannot write 'file://%s': %s", path, choir__why(errno));
    }
    if (!fine && status == CHOIR_OK)
        status = choir__error(
            CHOIR_ERR_STATE, "cannot write 'file://%s': others do so all the time", path);
    sodium_memzero(text, sizeof text);
    return status;
}

/* Returns true if the folder is on a disk or in the memory of this machine. Unknown file
 * systems may be shared. */
static bool on_this_machine(const char *path)
{
    static const long here[] = {0xEF53 /* ext4 */, 0x58465342 /* xfs */, 0x9123683E /* btrfs */,
        0x01021994 /* tmpfs */, 0x794C7630 /* overlay */, 0xF2F52010 /* f2fs */,
        0x2FC12FC1 /* zfs */};
    struct statfs info;
    char *folder = folder_of(path);
    bool known = false;
    if (statfs(folder, &info) == 0)
        for (size_t i = 0; i < CHOIR_COUNT(here); i++)
            known |= (long)info.f_type == here[i];
    free(folder);
    return known;
}

static void add_address(choir__meet_note *note, const char *host, int port)
{
    if (note->address_count == CHOIR__FILE_ADDRESSES || strchr(host, '%'))
        return;
    int i = note->address_count++;
    snprintf(note->addresses[i].host, sizeof note->addresses[i].host, "%.63s", host);
    note->addresses[i].port = port;
}

/* Adds all addresses of this machine that others may reach. */
static void add_all(choir__meet_note *note, int port)
{
    struct ifaddrs *all = NULL;
    char host[NI_MAXHOST];
    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        int family = i->ifa_addr ? i->ifa_addr->sa_family : 0;
        if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        socklen_t length =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (!getnameinfo(i->ifa_addr, length, host, sizeof host, NULL, 0, NI_NUMERICHOST))
            add_address(note, host, port);
    }
    freeifaddrs(all);
}

/* Writes the file, once the server listens. */
static choir_status write_note(choir__joining *j, const choir__store_key *key)
{
    choir__meet_note note = {.began = birth_of(getpid())};
    const char *master = getenv("MASTER_ADDR");
    int port = choir_store_port(j->meeting->server);
    char host[160];
    choir__meet_self(&note.holder);
    choir__store_address(j->meeting->server, host);
    if (master && *master) {
        add_address(&note, master, port);
    } else {
        add_address(&note, host, port); /* loopback: used by ranks of this machine */
        if (!on_this_machine(j->path))
            add_all(&note, port);
    }
    choir_status status = place_file(j->path, &note, key);
    j->placed = status == CHOIR_OK;
    return status;
}

static void remove_note(choir__joining *j)
{
    if (j->placed)
        unlink(j->path);
    j->placed = false;
}

static choir_status host_meeting(choir__joining *j)
{
    choir_store_opts opts = choir_store_defaults();
    const char *master = getenv("MASTER_ADDR");
    choir__store_key *key = NULL;
    choir__member self;
    choir__meet_self(&self);
    choir_status status = clear_path(j->path, &self); /* before anything is opened */
    if (status == CHOIR_OK)
        status = choir__store_key_new(&key);
    if (status != CHOIR_OK)
        return status;
    randombytes_buf(key->bytes, sizeof key->bytes);
    if (master && *master)
        opts.bind = master;
    j->listening = write_note;
    j->all_joined = remove_note;
    if (on_this_machine(j->path) || (master && *master))
        status = choir__meet_host(j, opts, key);
    else
        status = choir__meet_host_everywhere(j, opts, key);
    choir__store_key_free(key);
    return status;
}

/* --- the others --- */

static choir_status never_came(choir__joining *j, found what, const choir__meet_note *note)
{
    double s = j->meeting->timeout_s;
    if (what == NOTE)
        return choir__error(CHOIR_ERR_TIMEOUT,
            "rank 0 never came within %g s: the file '%s' was left by pid %d on %s, which does "
            "not answer, and no process has replaced it",
            s, j->path, note->holder.pid, note->holder.host);
    return choir__error(CHOIR_ERR_TIMEOUT,
        "rank 0 never came within %g s: %s '%s'; was it started, with the same path?", s,
        what == NO_FILE ? "missing file" : "nothing from it in", j->path);
}

static choir_status call_until(choir__joining *j, choir__store_key *key)
{
    struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    choir__meet_note note;
    choir__member self;
    choir__meet_self(&self);
    for (;;) {
        choir_status status = CHOIR_OK;
        ino_t inode;
        found what = read_file(j->path, &note, key, &inode, &status);
        if (what == DENIED)
            return status;
        if (what == NOTE) {
            choir__meet_result a = call(j, &note, key, &self, &status);
            if (a == CHOIR__MEET_DONE || a == CHOIR__MEET_FAILED)
                return status;
        }
        if (choir__now() >= j->deadline)
            return never_came(j, what, &note);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 100 * 1000 * 1000)
            pause.tv_nsec += pause.tv_nsec / 2;
    }
}

static choir_status call_meeting(choir__joining *j)
{
    choir__store_key *key;
    choir_status status = choir__store_key_new(&key);
    if (status == CHOIR_OK)
        status = call_until(j, key);
    choir__store_key_free(key);
    return status;
}

choir_status choir__meet_file(choir__joining *joining)
{
    const char *path = joining->path;
    if (!*path || path[strlen(path) - 1] == '/')
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot meet at 'file://%s': expected the path of a file, such as "
            "file:///home/me/job",
            path);
    snprintf(joining->where, sizeof joining->where, "file://%s", path);
    return joining->meeting->rank == 0 ? host_meeting(joining) : call_meeting(joining);
}
