/* Naming the ranks that keep a call waiting.
 *
 *   rank 2 (pid 77) is stopped (SIGSTOP) and did not come to all_reduce of 3 f32 (number 41)
 *   within 5 s; last seen: finished barrier (number 40) 7.2 s ago
 *
 * A rank's activity is read from its flight recorder, which works on this machine only. */
#include <stdio.h>
#include <string.h>

#include "comm/engine.h"
#include "comm/flight/flight.h"

enum { DETAILED = 3 }; /* number of ranks that are described in detail */

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(char *text, const char *format, ...)
{
    va_list args;
    size_t used = strlen(text);
    va_start(args, format);
    vsnprintf(text + used, CHOIR__SILENT_TEXT - used, format, args);
    va_end(args);
}

/* Returns the pid of a rank on this machine; 0 for other machines. */
static int pid_here(const choir__engine *e, int rank)
{
    bool here =
        e->members && strcmp(e->members[rank].machine, e->members[e->rank].machine) == 0;
    return here ? e->members[rank].pid : 0;
}

const char *choir__engine_silent(const choir__engine *e, const int *ranks, int count, bool came,
    const choir__stamp *call, char text[CHOIR__SILENT_TEXT])
{
    char name[CHOIR__PEER_TEXT], what[CHOIR__CALL_TEXT], seen[CHOIR__SEEN_TEXT];
    int pid = pid_here(e, ranks[0]);
    const char *state = pid && count == 1 ? choir__state_text(choir__process_state(pid)) : "";
    *text = '\0';
    if (count == 1)
        add(text, "%s %s%s%s", choir__engine_peer(e, ranks[0], name), *state ? "is " : "",
            state, *state ? " and " : "");
    for (int i = 0; i < count && count > 1; i++)
        add(text, "%s%d", i ? ", " : "ranks ", choir__engine_number(e, ranks[i]));
    add(text, "%sdid not %s %s within %g s", count > 1 ? " " : "",
        came ? "continue with" : "come to", choir__call_text(call, what), e->timeout_s);
    for (int i = 0; i < count && i < DETAILED; i++) {
        pid = pid_here(e, ranks[i]);
        *seen = '\0';
        if (pid && e->name)
            choir__flight_log_last_seen(pid, e->name, choir__engine_number(e, ranks[i]), seen);
        state = pid && count > 1 ? choir__state_text(choir__process_state(pid)) : "";
        if (!*seen && !*state)
            continue;
        add(text, "%s", i ? "; " : "; last seen: ");
        if (count > 1)
            add(text, "%s ", choir__engine_peer(e, ranks[i], name));
        add(text, "%s%s%s", state, *state && *seen ? ", " : "", seen);
    }
    return text;
}
