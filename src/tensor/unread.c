/* The line on standard error about an error that no program has read. It is prepared when the
 * scope closes, and printed at the next chance or at exit, unless this thread has read a
 * message since; a forked child says nothing. */
#include "tensor/unread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

const char *choir__scope_words(const choir_scope *scope)
{
    static _Thread_local char text[80];
    if (scope->kind == CHOIR__RUN)
        return "the run";
    snprintf(text, sizeof text, "%sstep %llu",
        scope->kind == CHOIR__MICRO ? "a scope inside " : "", (unsigned long long)scope->step);
    return text;
}

/* The scope of this thread that closed last with an error. */
static _Thread_local struct {
    char text[1200]; /* the line; "": none */
    uint64_t noted;  /* the thread's reads at that time */
    pid_t pid;       /* a forked child has nothing to say about it */
} last;

void choir__unread_tell(void)
{
    if (!*last.text)
        return;
    if (last.noted == choir__message_reads() && last.pid == getpid())
        fprintf(stderr, "choir: %s\n", last.text);
    *last.text = '\0';
}

static void tell_at_exit(void)
{
    atexit(choir__unread_tell);
}

void choir__unread(choir_scope *scope)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tell_at_exit);
    if (scope->run->told)
        return;
    scope->run->told = true;
    const char *words = scope->run->lost ? "an object was misused" : choir__scope_words(scope);
    snprintf(last.text, sizeof last.text, "%s%s, and the error was not read: %s", words,
        scope->run->lost ? "" : " failed", choir__message());
    last.noted = choir__message_reads();
    last.pid = getpid();
}
