/* The guard makes sure that no process is left over, whichever process is killed:
 *
 *   guard (visible to the user)  <- adopts what the agent leaves, and kills it
 *     agent                      <- adopts what workers leave; ends all when the guard ends
 *       worker, worker, ...      <- killed by the kernel when the agent ends
 *         their children, even those that made a session of their own
 *
 * If guard and agent are killed at the same moment, workers still end, but not their children.
 *
 * The agent leads a process group of its own, so that signals from the terminal arrive once: at
 * the guard, which forwards them. The guard also reads a terminal for rank 0, which cannot read
 * it from the background. Any other standard input goes to rank 0 directly. */
#include "launch/agent/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/watch.h"
#include "launch/process/process.h"

const int choir__guard_signals[] = {
    SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
const int choir__guard_signal_count = CHOIR_COUNT(choir__guard_signals);

typedef struct guard {
    choir__child agent;
    int from, to;   /* the terminal, and the pipe to rank 0; -1: none, or closed */
    bool asked[65]; /* signals that were forwarded */
} guard;

static _Noreturn void be_agent(int input, pid_t parent, choir__guarded_fn *fn, void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* until the agent has something to clean up */
    choir__guarded self = {choir__process_watch(parent), input};
    if (self.guard < 0 || getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    choir__signals_forget();
    choir__child_exit(fn(&self, arg));
}

static void pass_signals_on(guard *g)
{
    choir__signal s;
    while (choir__signals_next(&s)) {
        g->asked[s.number] = true;
        kill(g->agent.pid, s.number);
        if (s.number == SIGTSTP)
            raise(SIGSTOP); /* the agent continues, and stops its workers */
    }
}

/* Forwards a line of the terminal to rank 0. */
static void pass_input_on(guard *g)
{
    char line[4096];
    ssize_t n = read(g->from, line, sizeof line);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0 || write(g->to, line, (size_t)n) < 0) {
        close(g->to);
        g->from = g->to = -1;
    }
}

static void watch(guard *g)
{
    siginfo_t end = {.si_pid = 0};
    while (!end.si_pid) {
        /* In the background a read would stop the guard; the foreground process has the
         * terminal. */
        bool reads = g->from >= 0 && tcgetpgrp(g->from) == getpgrp();
        struct pollfd polled[] = {{.fd = choir__signals_fd(), .events = POLLIN},
            {.fd = g->agent.pidfd, .events = POLLIN},
            {.fd = reads ? g->from : -1, .events = POLLIN}};
        if (poll(polled, 3, g->from >= 0 && !reads ? 500 : -1) < 0)
            continue;
        pass_signals_on(g);
        if (polled[2].revents)
            pass_input_on(g);
        if (polled[1].revents)
            waitid(P_PID, (id_t)g->agent.pid, &end, WEXITED | WNOHANG);
    }
    g->agent.code = end.si_code;
    g->agent.status = end.si_status;
}

static int failed(const char *what)
{
    fprintf(stderr, "choir run: %s: %s\n", what, choir__why(errno));
    return 1;
}

int choir__guard(choir__guarded_fn *fn, void *arg)
{
    guard g = {.from = -1, .to = -1};
    int ends[2] = {-1, -1}, input = STDIN_FILENO;
    char text[96];
    pid_t self = getpid();
    fflush(NULL);
    if (isatty(STDIN_FILENO)) {
        if (pipe2(ends, O_CLOEXEC))
            return failed("no pipe");
        input = ends[0];
        g.from = STDIN_FILENO;
        g.to = ends[1];
    }
    signal(SIGPIPE, SIG_IGN);
    if (choir__signals_take(choir__guard_signals, choir__guard_signal_count) != CHOIR_OK)
        return failed("no signals");
    bool sweeps = waitid(P_ALL, 0, &(siginfo_t){.si_pid = 0}, WEXITED | WNOHANG | WNOWAIT) != 0;
    if (sweeps) /* otherwise a shell that exec'ed us has left children that are not ours */
        choir__adopt_orphans();
    pid_t pid = fork();
    if (pid == 0) {
        if (g.to >= 0)
            close(g.to);
        be_agent(input, self, fn, arg);
    }
    if (pid < 0)
        return failed("cannot fork");
    setpgid(pid, pid);
    if (ends[0] >= 0)
        close(ends[0]);
    g.agent = (choir__child){.pid = pid, .pidfd = choir__process_watch(pid)};
    watch(&g);
    if (sweeps)
        choir__kill_descendants();
    choir__signals_give_back();
    close(g.agent.pidfd);
    if (g.agent.code != CLD_EXITED && !g.asked[g.agent.status])
        fprintf(stderr, "choir run: the agent (pid %d) %s; all it started was stopped\n",
            (int)pid, choir__end_text(&g.agent, text));
    return choir__end_status(&g.agent);
}
