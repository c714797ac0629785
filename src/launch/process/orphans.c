/* Descendants whose parents have ended. A process that adopts them (a "child subreaper")
 * becomes their parent, even if they made a session of their own or forked twice. It can
 * therefore find them among its children, kill them, adopt their children, and stop when the
 * kernel reports that it has no child left. */
#include "launch/process/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double patience_s =
    10; /* for a process in the kernel, which even SIGKILL does not end */

void choir__adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

typedef struct kin {
    pid_t pid, parent, group;
} kin;

/* Parses "77 (name of it) S 1 77 ..."; the name may contain any characters. */
static bool kin_of(pid_t pid, kin *k)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *end = strrchr(text, ')');
    k->pid = pid;
    return end && sscanf(end + 1, " %*c %d %d", &k->parent, &k->group) == 2;
}

/* Returns the next process, or NULL at the end. */
static const kin *next_process(DIR *proc, kin *k)
{
    for (struct dirent *entry; (entry = readdir(proc));)
        if (isdigit((unsigned char)*entry->d_name) && kin_of(atoi(entry->d_name), k))
            return k;
    return NULL;
}

static void kill_children(void)
{
    DIR *proc = opendir("/proc");
    pid_t self = getpid();
    kin k;
    while (proc && next_process(proc, &k))
        if (k.parent == self)
            /* only this process reaps its children: the pid is still theirs */
            kill(k.pid, SIGKILL);
    if (proc)
        closedir(proc);
}

void choir__each_of_group(pid_t group, void (*fn)(pid_t pid, void *arg), void *arg)
{
    DIR *proc = opendir("/proc");
    kin k;
    while (proc && next_process(proc, &k))
        if (k.group == group)
            fn(k.pid, arg);
    if (proc)
        closedir(proc);
}

static int by_pid(const void *a, const void *b)
{
    const kin *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Returns all processes (count), by their numbers, which the caller frees. */
static kin *all_processes(size_t *count)
{
    DIR *proc = opendir("/proc");
    kin *all = NULL, one;
    for (*count = 0; proc && next_process(proc, &one);) {
        CHOIR__GROW(all, *count);
        all[(*count)++] = one;
    }
    if (proc)
        closedir(proc);
    if (all)
        qsort(all, *count, sizeof *all, by_pid);
    return all;
}

void choir__each_of_tree(pid_t root, void (*fn)(pid_t pid, void *arg), void *arg)
{
    size_t count;
    kin *all = all_processes(&count);
    bool *is_in = choir__calloc(count + 1, sizeof *is_in);
    for (bool more = true; more;) { /* a child may have a lower number than its parent */
        more = false;
        for (size_t i = 0; i < count; i++) {
            const kin key = {.pid = all[i].parent};
            const kin *parent =
                is_in[i] ? NULL : bsearch(&key, all, count, sizeof *all, by_pid);
            bool joins = !is_in[i] && (all[i].pid == root || all[i].group == root ||
                                          (parent && is_in[parent - all]));
            is_in[i] = is_in[i] || joins;
            more = more || joins;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (is_in[i])
            fn(all[i].pid, arg);
    free(is_in);
    free(all);
}

/* --- orphans of one origin --- */

/* Compares the words of an environment with one as their bytes come. */
typedef struct matching {
    const char *word;
    size_t length, at; /* at: bytes that match so far, of a word that may be it */
    bool may_be;
} matching;

/* Returns whether the word has been found. */
static bool match(matching *m, char byte)
{
    m->may_be = m->may_be && byte == m->word[m->at];
    if (m->may_be && ++m->at == m->length)
        return true;
    if (!byte) { /* the next word begins */
        m->may_be = true;
        m->at = 0;
    }
    return false;
}

/* Returns whether the environment with which a process was started has a word that begins with
 * these bytes. Allocates nothing (choir__kill_marked). */
static bool has_word(pid_t pid, const char *word, size_t length)
{
    char path[64], block[4096];
    matching m = {word, length, 0, true};
    bool has = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n = 1; fd >= 0 && n > 0 && !has;) {
        n = read(fd, block, sizeof block);
        for (ssize_t i = 0; i < n && !has; i++)
            has = match(&m, block[i]);
    }
    if (fd >= 0)
        close(fd);
    return has;
}

static void kill_it(pid_t pid, void *arg)
{
    (void)arg;
    kill(pid, SIGKILL);
}

static void reap(pid_t pid)
{
    const struct timespec moment = {0, 1000000};
    for (double end = choir__now() + patience_s; choir__now() < end; nanosleep(&moment, NULL))
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
}

/* Kills the orphans among a thread's children, which include adopted ones. Returns whether
 * there were any. */
static bool kill_orphans_of(const char *thread, const char *word)
{
    char path[300];
    int pid;
    bool any = false;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", thread);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d", &pid) == 1)
        if (has_word(pid, word, strlen(word) + 1)) { /* with its end */
            choir__each_of_tree(pid, kill_it, NULL);
            reap(pid); /* the process's own children are adopted now */
            any = true;
        }
    if (file)
        fclose(file);
    return any;
}

void choir__kill_orphans(const char *word)
{
    double end = choir__now() + patience_s;
    for (bool any = true; any && choir__now() < end;) {
        any = false;
        DIR *threads = opendir("/proc/self/task");
        for (struct dirent *t; threads && (t = readdir(threads));)
            if (isdigit((unsigned char)*t->d_name))
                any |= kill_orphans_of(t->d_name, word);
        if (threads)
            closedir(threads);
    }
}

/* An entry of a folder, as the kernel writes it. */
typedef struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes; /* bytes of the entry */
    unsigned char type;
    char name[];
} entry;

/* Kills the marked ones among some entries of /proc; returns whether there are any. */
static bool kill_entries(const char *from, long bytes, const char *begin)
{
    bool any = false;
    for (long at = 0; at < bytes;) {
        const entry *e = (const entry *)(const void *)(from + at);
        pid_t pid = isdigit((unsigned char)*e->name) ? atoi(e->name) : 0;
        if (pid > 0 && has_word(pid, begin, strlen(begin)))
            any |= kill(pid, SIGKILL) == 0;
        at += e->bytes;
    }
    return any;
}

/* Threads of the process may have held locks of the allocator when this one was forked, so that
 * nothing may be allocated here, nor by opendir. */
void choir__kill_marked(const char *begin)
{
    const struct timespec moment = {0, 1000000};
    double end = choir__now() + patience_s;
    for (bool any = true; any && choir__now() < end; nanosleep(&moment, NULL)) {
        _Alignas(entry) char block[4096];
        int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        any = false;
        for (long n; fd >= 0 && (n = syscall(SYS_getdents64, fd, block, sizeof block)) > 0;)
            any |= kill_entries(block, n, begin);
        if (fd >= 0)
            close(fd);
    }
}

void choir__kill_descendants(void)
{
    struct timespec moment = {0, 1000000};
    for (double end = choir__now() + patience_s; choir__now() < end;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0 && errno == ECHILD)
            return;
        kill_children();
        nanosleep(&moment, NULL);
    }
}
