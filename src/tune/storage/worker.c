/* A worker's name has the machine's boot, the namespace of process numbers, the process and its
 * start. On the same machine /proc says at once whether it lives; elsewhere a worker is dead
 * after a time without heartbeats. */
#include "tune/storage/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct place {
    char boot[64], space[64]; /* without the process: the machine */
    long process;
    unsigned long long started; /* ticks after the boot */
} place;

static void read_word(const char *path, char *word, size_t bytes)
{
    FILE *file = fopen(path, "re");
    snprintf(word, bytes, "-");
    if (file && fgets(word, (int)bytes, file))
        word[strcspn(word, "\n ")] = '\0';
    if (file)
        fclose(file);
}

/* The 22nd word of /proc/PROCESS/stat; the second one is in parentheses and may hold blanks.
 * 0: there is no such process. */
static unsigned long long start_of(long process)
{
    char path[64], line[1024] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file))
        *line = '\0';
    if (file)
        fclose(file);
    const char *at = strrchr(line, ')');
    if (!at || at[1] != ' ' || at[2] == 'Z')
        return 0;
    for (int word = 2; at && word < 22; word++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static void here(place *p)
{
    read_word("/proc/sys/kernel/random/boot_id", p->boot, sizeof p->boot);
    ssize_t n = readlink("/proc/self/ns/pid", p->space, sizeof p->space - 1);
    p->space[n > 0 ? n : 0] = '\0';
    p->process = getpid();
    p->started = start_of(p->process);
}

char *choir__worker_name(const void *unique)
{
    place p;
    char host[128] = "";
    here(&p);
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '"' || *c == '\\' || *c == ' ' || (unsigned char)*c < 32 ||
            (unsigned char)*c > 126)
            *c = '?';
    return choir__format("\"%s %ld %llu %s %s %llx\"", host, p.process, p.started, p.boot,
        p.space, (unsigned long long)(uintptr_t)unique);
}

char *choir__worker_pause(int64_t part)
{
    return choir__format("\"paused %lld\"", (long long)part);
}

int64_t choir__worker_paused(const char *name)
{
    long long part;
    return name && sscanf(name, "\"paused %lld\"", &part) == 1 ? part : -1;
}

bool choir__worker_is_dead(const choir__stored_trial *r, const char *self)
{
    const char *name = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    place theirs, ours;
    bool silent = isnan(r->silent_s) || r->silent_s > CHOIR__SILENT_S;
    if (!name)
        return silent;
    if (!strcmp(name, self) || choir__worker_paused(name) >= 0)
        return false;
    if (!strcmp(name, CHOIR__WORKER_LEFT))
        return true;
    here(&ours);
    if (sscanf(name, "\"%*s %ld %llu %63s %63s", &theirs.process, &theirs.started, theirs.boot,
            theirs.space) == 4 &&
        !strcmp(theirs.boot, ours.boot) && !strcmp(theirs.space, ours.space))
        return start_of(theirs.process) != theirs.started;
    return silent && !isnan(r->silent_s);
}
