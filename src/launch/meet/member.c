/* Members: a rank's identity, which ranks exchange as a line of text, and the facts derived
 * from all lines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "launch/meet/meet.h"

static uint64_t namespace_of(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : info.st_ino;
}

void choir__meet_self(choir__member *self)
{
    char boot[40] = "?";
    *self = (choir__member){.pid = getpid()};
    if (gethostname(self->host, sizeof self->host - 1) || !*self->host)
        snprintf(self->host, sizeof self->host, "?");
    for (char *c = self->host; *c; c++)
        if (*c <= ' ')
            *c = '_';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fscanf(file, "%39s", boot) != 1)
            snprintf(boot, sizeof boot, "?");
        fclose(file);
    }
    snprintf(self->machine, sizeof self->machine, "%s/%" PRIu64 "/%" PRIu64, boot,
        namespace_of("/proc/self/ns/net"), namespace_of("/proc/self/ns/pid"));
}

void choir__member_write(const choir__member *m, char text[CHOIR__MEMBER_TEXT])
{
    snprintf(text, CHOIR__MEMBER_TEXT, "%d %s %s", m->pid, m->host, m->machine);
}

bool choir__member_read(const char *text, choir__member *m)
{
    *m = (choir__member){0};
    return sscanf(text, "%" SCNd32 " %63s %79s", &m->pid, m->host, m->machine) == 3;
}

const char *choir__plain_message(int rank)
{
    char label[32];
    const char *message = choir__message();
    int length = snprintf(label, sizeof label, "rank %d: ", rank);
    return strncmp(message, label, (size_t)length) ? message : message + length;
}

/* Numbers nodes in the order of their lowest ranks, and local ranks within a node. */
static void count_nodes(choir__meeting *m)
{
    m->nodes = 0;
    for (int r = 0; r < m->world; r++) {
        choir__member *me = &m->members[r];
        int before = r - 1;
        while (before >= 0 && strcmp(m->members[before].machine, me->machine) != 0)
            before--;
        me->node = before < 0 ? m->nodes++ : m->members[before].node;
        me->local_rank = before < 0 ? 0 : m->members[before].local_rank + 1;
        me->job_rank = r;
    }
}

bool choir__members_read(choir__meeting *m, const char *go)
{
    m->members = choir__calloc((size_t)m->world, sizeof *m->members);
    if (sscanf(go, "go %32s", m->job) != 1)
        return false;
    for (int r = 0; r < m->world; r++) {
        go = strchr(go, '\n');
        if (!go || !choir__member_read(++go, &m->members[r]))
            return false;
    }
    count_nodes(m);
    return true;
}
