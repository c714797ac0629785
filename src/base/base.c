/* Messages, the clock, and host memory whose allocation must not fail. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/floats.h"
#include "base/number.h"
#include "base/secret.h"

static _Thread_local char message[1024];
static _Thread_local uint64_t reads; /* times that the program has read the message */
static int rank_label = -1;

const char *choir_status_name(choir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                   \
    case CHOIR_##name: return "CHOIR_" #name;
        CHOIR_STATUS_LIST(X)
#undef X
    }
    return "CHOIR_ERR_INTERNAL";
}

const char *choir_status_text(choir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                   \
    case CHOIR_##name: return text;
        CHOIR_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *choir_error_message(void)
{
    reads++;
    return message;
}

/* Returns how many bytes the UTF-8 character at `at` has if it changes the order or the lines
 * of a terminal's text (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069), else 0. */
static size_t turning_bytes(const unsigned char *at)
{
    if (at[0] == 0xd8 && at[1] == 0x9c)
        return 2;
    if (at[0] != 0xe2 || !at[1])
        return 0;
    bool turns = at[1] == 0x80
                     ? at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae)
                     : at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
    return turns ? 3 : 0;
}

char *choir__clean(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++)
        if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)
            *at = '?';
        else if (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) /* U+0080 to U+009F, in UTF-8 */
            *at = at[1] = '?';
        else
            memset(at, '?', turning_bytes(at));
    return text;
}

char *choir__shorten(char *text, size_t most)
{
    enum { NOTE = 40 };
    char note[NOTE];
    size_t bytes = strlen(text), kept = most - NOTE, begin = kept - kept / 3;
    if (bytes <= most)
        return text;
    size_t end = bytes - kept / 3;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) /* within a character of UTF-8 */
        begin--;
    while (end < bytes && (text[end] & 0xc0) == 0x80)
        end++;
    int length = snprintf(note, sizeof note, " [%zu bytes left out] ", end - begin);
    memcpy(text + begin, note, (size_t)length);
    memmove(text + begin + length, text + end, bytes + 1 - end);
    return text;
}

const char *choir__message(void)
{
    return message;
}

uint64_t choir__message_reads(void)
{
    return reads;
}

choir_status choir__missing(const char *function, const char *thing)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "%s: missing %s (NULL)", function, thing);
}

void choir__set_message(const char *text)
{
    size_t bytes = strnlen(text, sizeof message - 1);
    memmove(message, text, bytes); /* `text` may be `message` itself */
    message[bytes] = '\0';
    choir__clean(message);
}

void choir__set_rank_label(int rank)
{
    rank_label = rank;
}

const char *choir__why(int error)
{
    static _Thread_local char text[128];
    struct rlimit most = {0};
    if (error != EMFILE)
        return strerror(error);
    getrlimit(RLIMIT_NOFILE, &most);
    snprintf(text, sizeof text, "%s: this process may have %lld (ulimit -n)", strerror(error),
        (long long)most.rlim_cur);
    return text;
}

choir_status choir__verror(choir_status status, const char *format, va_list args)
{
    char text[sizeof message], label[32] = ""; /* the arguments may point into message itself */
    char *whole = NULL;
    va_list again;
    if (rank_label >= 0)
        snprintf(label, sizeof label, "rank %d: ", rank_label);
    va_copy(again, args);
    size_t bytes = (size_t)vsnprintf(text, sizeof text, format, args);
    if (bytes > sizeof text - sizeof label && vasprintf(&whole, format, again) >= 0) {
        choir__hide_passwords(whole);
        snprintf(text, sizeof text, "%s", choir__shorten(whole, sizeof text - sizeof label));
    }
    va_end(again);
    free(whole);
    choir__hide_passwords(choir__clean(text)); /* names out of files and places are in it */
    if (!strncmp(text, label, strlen(label)))  /* a repeated sentence already has its label */
        label[0] = '\0';
    snprintf(
        message, sizeof message, "%s%.*s", label, (int)(sizeof message - sizeof label), text);
    return status;
}

choir_status choir__error(choir_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    choir__verror(status, format, args);
    va_end(args);
    return status;
}

void choir_check(choir_status status)
{
    if (status == CHOIR_OK)
        return;
    reads++;
    fprintf(stderr, "choir: %s\n", message[0] ? message : choir_status_text(status));
    exit(1);
}

static CHOIR__APART double seconds_of(const struct timespec *t)
{
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

double choir__now(void)
{
    CHOIR__DEFAULT_FLOATS;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return seconds_of(&t);
}

double choir__wall_time(void)
{
    CHOIR__DEFAULT_FLOATS;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return seconds_of(&t);
}

struct timespec choir__in_seconds(double seconds)
{
    static const double forever_s = 1e9; /* more might overflow the clock's type */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    seconds = seconds > 0 ? seconds < forever_s ? seconds : forever_s : 0;
    int64_t ns = t.tv_nsec + (int64_t)(1e9 * seconds);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

void choir__cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &steady);
    pthread_condattr_destroy(&steady);
}

static void *checked(void *p, size_t bytes)
{
    if (!p && bytes) {
        fprintf(stderr, "choir: out of host memory (%zu bytes)\n", bytes);
        abort();
    }
    return p;
}

void *choir__alloc(size_t bytes)
{
    return checked(malloc(bytes), bytes);
}

void *choir__calloc(size_t count, size_t size)
{
    return checked(calloc(count, size), count * size);
}

void *choir__realloc(void *p, size_t bytes)
{
    return checked(realloc(p, bytes), bytes);
}

void *choir__grow(void *items, size_t count, size_t item_bytes)
{
    enum { FIRST = 8 };
    if (!items)
        return choir__realloc(NULL, FIRST * item_bytes);
    if (count < FIRST || count & (count - 1)) /* not full: rooms are powers of two */
        return items;
    return choir__realloc(items, 2 * count * item_bytes);
}

char *choir__strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(choir__alloc(bytes), text, bytes);
}

char *choir__format(const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    if (choir__number_vformat(&text, format, args) < 0)
        checked(NULL, 1);
    va_end(args);
    return text;
}
