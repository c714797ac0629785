/* Records of event files:
 *
 *     length (u64) | checksum of the length (u32) | message | checksum of the message (u32)
 *
 * all little-endian. A record that is cut off ends a file for its readers. */
#include "record/tensorboard/events.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "record/lines.h"

enum { HEAD = 12, TAIL = 4 };

uint32_t choir__crc32c(const void *data, size_t bytes)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 256; i-- > 0;) { /* entry 1 comes last but one: see above */
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++)
                c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
            table[i] = c;
        }
    uint32_t c = UINT32_MAX;
    for (const unsigned char *at = data; bytes--; at++)
        c = c >> 8 ^ table[(c ^ *at) & 0xff];
    return ~c;
}

static void put32(unsigned char *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(x >> 8 * i);
}

/* Stores the checksum in the form in which it can itself be part of checked bytes. */
static void put_masked(unsigned char *to, const void *data, size_t bytes)
{
    uint32_t c = choir__crc32c(data, bytes);
    put32(to, (c >> 15 | c << 17) + 0xa282ead8u);
}

#define NAME "events.out.tfevents."

/* Readers take a folder's files in the order of their names, and a later file's values replace
 * an earlier one's. Returns the seconds for the name of one that comes last, also if the clock
 * was turned back, or the folder has one of this second. */
static long long seconds_of_last(const char *folder, double time)
{
    static const long long most = 9999999998; /* ten digits, and one more second */
    long long last = (long long)time;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end = NULL;
        long long t = strncmp(e->d_name, NAME, strlen(NAME)) != 0
                          ? -1
                          : strtoll(e->d_name + strlen(NAME), &end, 10);
        if (t >= last && t <= most && *end == '.')
            last = t + 1;
    }
    if (d)
        closedir(d);
    return last;
}

choir_status choir__event_file_open(choir__event_file *f, const char *folder, double time)
{
    char host[65] = "host";
    gethostname(host, sizeof host - 1);
    *f = (choir__event_file){.fd = -1};
    long long seconds = seconds_of_last(folder, time);
    for (int n = 0; n < 1000 && f->fd < 0; n++) { /* where several begin at once */
        free(f->path);
        f->path = choir__format(
            "%s/" NAME "%010lld.%s.%d.%03d", folder, seconds, host, (int)getpid(), n);
        f->fd = choir__file_try(
            f->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, CHOIR__FILE_REGULAR);
        if (f->fd < 0 && errno != EEXIST)
            break;
    }
    return f->fd < 0 ? choir__record_failed(f->path, errno) : CHOIR_OK;
}

choir_status choir__event_file_add(choir__event_file *f, const ChoirTb__Event *event)
{
    size_t bytes = choir_tb__event__get_packed_size(event), all = HEAD + bytes + TAIL;
    if (all > f->room) {
        f->room = 2 * all;
        f->record = choir__realloc(f->record, f->room);
    }
    put32(f->record, (uint32_t)bytes);
    put32(f->record + 4, (uint32_t)((uint64_t)bytes >> 32));
    put_masked(f->record + 8, f->record, 8);
    choir_tb__event__pack(event, f->record + HEAD);
    put_masked(f->record + HEAD + bytes, f->record + HEAD, bytes);
    return choir__record_append(f->fd, f->path, f->record, all);
}

choir_status choir__event_file_close(choir__event_file *f)
{
    choir_status status = CHOIR_OK;
    if (f->path && f->fd >= 0 && close(f->fd) != 0)
        status = choir__record_failed(f->path, errno);
    free(f->path);
    free(f->record);
    *f = (choir__event_file){.fd = -1};
    return status;
}
