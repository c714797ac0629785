/* Counts steps: basic blocks by the compiler's hook, and bytes by wrappers around libc's
 * functions, to which the linker directs the calls of the code under test (--wrap). malloc
 * is replaced for the whole process, by the names under which glibc exports its own, so that
 * memory of libraries counts, too. */
#include "count.h"

#include <errno.h>
#include <jansson.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Changed by the atomic builtins alone while readers run. */
static uint64_t steps;
static size_t now, most;

static void add(size_t n)
{
    __atomic_fetch_add(&steps, n + 1, __ATOMIC_RELAXED);
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    __atomic_fetch_add(&steps, 1, __ATOMIC_RELAXED);
}

static size_t before;

void cost_begin(void)
{
    steps = 0;
    before = most = now;
}

cost cost_end(void)
{
    return (cost){steps, most - before};
}

/* --- memory --- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *p);

static void *taken(void *p)
{
    size_t all = __atomic_add_fetch(&now, malloc_usable_size(p), __ATOMIC_RELAXED);
    if (all > most)
        most = all;
    return p;
}

static void given(void *p)
{
    __atomic_fetch_sub(&now, malloc_usable_size(p), __ATOMIC_RELAXED);
}

void *malloc(size_t bytes)
{
    return taken(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t size)
{
    return taken(__libc_calloc(count, size));
}

/* More room costs the old bytes, which may have to move. */
void *realloc(void *p, size_t bytes)
{
    size_t old = malloc_usable_size(p);
    add(bytes > old ? old : 0);
    given(p);
    void *q = __libc_realloc(p, bytes);
    taken(q || !bytes ? q : p);
    return q;
}

void free(void *p)
{
    given(p);
    __libc_free(p);
}

void *memalign(size_t alignment, size_t bytes)
{
    return taken(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **p, size_t alignment, size_t bytes)
{
    *p = memalign(alignment, bytes);
    return *p ? 0 : ENOMEM;
}

/* --- functions of libc: they are counted by the bytes that they look at --- */

#define REAL(type, name, ...)                                                                  \
    type __real_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__);                                                           \
    type __wrap_##name(__VA_ARGS__)

static size_t seen(const void *text, const void *found, size_t otherwise)
{
    return found ? (size_t)((const char *)found - (const char *)text) : otherwise;
}

REAL(void *, memchr, const void *s, int c, size_t n)
{
    void *found = __real_memchr(s, c, n);
    add(seen(s, found, n));
    return found;
}

REAL(void *, memrchr, const void *s, int c, size_t n)
{
    void *found = __real_memrchr(s, c, n);
    add(found ? n - seen(s, found, 0) : n);
    return found;
}

REAL(void *, memcpy, void *to, const void *from, size_t n)
{
    add(n);
    return __real_memcpy(to, from, n);
}

REAL(void *, memmove, void *to, const void *from, size_t n)
{
    add(n);
    return __real_memmove(to, from, n);
}

REAL(void *, memset, void *to, int c, size_t n)
{
    add(n);
    return __real_memset(to, c, n);
}

REAL(int, memcmp, const void *a, const void *b, size_t n)
{
    const char *x = a, *y = b;
    size_t i = 0;
    while (i < n && x[i] == y[i])
        i++;
    add(i);
    return __real_memcmp(a, b, n);
}

static size_t alike(const char *a, const char *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i] && a[i])
        i++;
    return i;
}

REAL(int, strcmp, const char *a, const char *b)
{
    add(alike(a, b, SIZE_MAX));
    return __real_strcmp(a, b);
}

REAL(int, strncmp, const char *a, const char *b, size_t n)
{
    add(alike(a, b, n));
    return __real_strncmp(a, b, n);
}

REAL(int, strcasecmp, const char *a, const char *b)
{
    add(alike(a, b, SIZE_MAX));
    return __real_strcasecmp(a, b);
}

REAL(size_t, strlen, const char *s)
{
    size_t n = __real_strlen(s);
    add(n);
    return n;
}

REAL(size_t, strnlen, const char *s, size_t most_bytes)
{
    size_t n = __real_strnlen(s, most_bytes);
    add(n);
    return n;
}

REAL(char *, strchr, const char *s, int c)
{
    char *found = __real_strchr(s, c);
    add(found ? seen(s, found, 0) : __real_strlen(s));
    return found;
}

REAL(char *, strchrnul, const char *s, int c)
{
    char *found = __real_strchrnul(s, c);
    add(seen(s, found, 0));
    return found;
}

REAL(char *, strrchr, const char *s, int c)
{
    add(__real_strlen(s));
    return __real_strrchr(s, c);
}

REAL(char *, strstr, const char *s, const char *part)
{
    char *found = __real_strstr(s, part);
    add(found ? seen(s, found, 0) : __real_strlen(s));
    return found;
}

REAL(size_t, strspn, const char *s, const char *set)
{
    size_t n = __real_strspn(s, set);
    add(n);
    return n;
}

REAL(size_t, strcspn, const char *s, const char *set)
{
    size_t n = __real_strcspn(s, set);
    add(n);
    return n;
}

REAL(char *, strdup, const char *s)
{
    add(__real_strlen(s));
    return __real_strdup(s);
}

REAL(char *, strsep, char **at, const char *set)
{
    char *token = __real_strsep(at, set);
    add(token ? __real_strlen(token) : 0);
    return token;
}

REAL(ssize_t, read, int fd, void *to, size_t n)
{
    ssize_t got = __real_read(fd, to, n);
    add(got > 0 ? (size_t)got : 0);
    return got;
}

REAL(ssize_t, pread, int fd, void *to, size_t n, off_t at)
{
    ssize_t got = __real_pread(fd, to, n, at);
    add(got > 0 ? (size_t)got : 0);
    return got;
}

REAL(ssize_t, getline, char **line, size_t *room, FILE *f)
{
    ssize_t got = __real_getline(line, room, f);
    add(got > 0 ? (size_t)got : 0);
    return got;
}

REAL(int, vsnprintf, char *to, size_t room, const char *format, va_list args)
{
    int n = __real_vsnprintf(to, room, format, args);
    add(n > 0 ? (size_t)n : 0);
    return n;
}

REAL(int, vasprintf, char **to, const char *format, va_list args)
{
    int n = __real_vasprintf(to, format, args);
    add(n > 0 ? (size_t)n : 0);
    return n;
}

REAL(int, snprintf, char *to, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = __wrap_vsnprintf(to, room, format, args);
    va_end(args);
    return n;
}

/* --- jansson's parser and printer --- */

REAL(json_t *, json_loads, const char *text, size_t flags, json_error_t *why)
{
    add(__real_strlen(text));
    return __real_json_loads(text, flags, why);
}

REAL(json_t *, json_loadb, const char *text, size_t bytes, size_t flags, json_error_t *why)
{
    json_error_t own;
    json_t *value = __real_json_loadb(text, bytes, flags, why ? why : &own);
    add(value && flags & JSON_DISABLE_EOF_CHECK ? (size_t)(why ? why : &own)->position : bytes);
    return value;
}

REAL(char *, json_dumps, const json_t *value, size_t flags)
{
    char *text = __real_json_dumps(value, flags);
    add(text ? __real_strlen(text) : 0);
    return text;
}
