/* The report of a failure:
 *
 *   choir run: rank 1 of 2 exited with status 3
 *     host   node7, pid 4711 (local rank 1 of 2 on node 0)
 *     time   2026-11-21 15:08:01 +0000
 *     log    logs/0d53/attempt_0/1/stderr.log
 *     it wrote last:
 *       | no such file: mnist/train-images-idx3-ubyte
 */
#include "launch/agent/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(char *text, const char *format, ...)
{
    va_list args;
    size_t used = strlen(text);
    va_start(args, format);
    vsnprintf(text + used, CHOIR__REPORT_TEXT - used, format, args);
    va_end(args);
}

void choir__agent_report(const choir__workers *w, int index, char text[CHOIR__REPORT_TEXT])
{
    const choir__job_place *p = &w->roster->place;
    const choir__child *c = &w->family.children[index];
    const char *log = choir__output_log(w->output, index);
    char end[96], host[CHOIR__HOST_TEXT] = "?", when[64] = "?";
    time_t now = time(NULL);
    struct tm local;
    gethostname(host, sizeof host - 1);
    if (localtime_r(&now, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &local);
    *text = '\0';
    add(text, "choir run: rank %d of %d %s", p->rank + index, p->world,
        choir__end_text(c, end));
    add(text, "\n  host   %s, pid %d (local rank %d of %d on node %d)", host, (int)c->pid,
        index, p->local_world, p->node);
    add(text, "\n  time   %s", when);
    if (log)
        add(text, "\n  log    %s", log);
    size_t before = strlen(text);
    add(text, "\n  it wrote last:");
    size_t after = strlen(text);
    choir__output_tail(w->output, index, "    | ", text, CHOIR__REPORT_TEXT);
    if (strlen(text) == after)
        strcpy(text + before, "\n  it wrote nothing");
}
