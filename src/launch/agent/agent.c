/* The agent of one node, from its start to the end of the last worker.
 *
 *   guard.c    the process in front, which outlives the agent and cleans up
 *   nodes.c    a job on several nodes: when to start and to stop, and how the job ended
 *   worker.c   a worker's environment and its command
 *   output.c   the workers' output; console.c, where it is shown
 *   report.c   the report of the first failure
 *   agent.c    the loop that watches all of them, here
 *
 * One poll covers everything: deaths (pidfds), output (pipes), signals, the guard's end, the
 * orders of other nodes. The first event that ends an attempt settles its outcome: a worker
 * that fails, here or elsewhere, a change of nodes, or a signal. Then all workers are stopped.
 * After a failure they get a moment to notice by themselves, then SIGTERM, and SIGKILL 30 s
 * later; a signal is forwarded in place of that SIGTERM.
 *
 * An attempt is one start of all workers. After a failure there may be another (max_restarts),
 * and on several nodes after each change of nodes. Each has its own processes and pipes. */
#include "launch/agent/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "launch/agent/guard.h"
#include "launch/agent/nodes.h"
#include "launch/agent/report.h"
#include "launch/agent/worker.h"
#include "launch/process/signal_table.h"

static const int retry_ms = 500; /* between calls, while other nodes' store does not answer */
static const double last_words_s =
    0.5; /* seconds for the last words of workers that a second SIGINT ends */

typedef struct agent {
    const choir__agent_opts *opts;
    const choir__guarded *self;
    choir__roster roster;
    choir__nodes *nodes; /* NULL: a single node */
    char *log_dir;
    choir__workers workers;
    choir__keeper keeper; /* keeper of copies from which the next generation continues */
    struct pollfd *polled;
    int interrupted; /* the signal; 0: none */
    double first_at; /* time of the first signal, before a second one ends the agent
                        (choir__signal_again) */
    int asked; /* the attempt's last signal that was passed on, for the workers to decide */
    double asked_at;
    bool told;         /* the attempt's outcome is settled, and posted to the other nodes */
    bool unposted;     /* a failure is, since the ledger did not answer: again later */
    bool cut_off;      /* the ledger is out of reach: this node's own outcome is the verdict */
    bool done;         /* the attempt's workers exited with 0, which is still to be posted */
    double settled_at; /* time when `told` was set */
    int ran;           /* the generation of the last attempt, on several nodes */
    choir__verdict verdict;
} agent;

/* --- events that may end a job --- */

static void settle(agent *a, int status, const char *report)
{
    a->told = true;
    a->settled_at = choir__now();
    a->verdict.status = status;
    a->verdict.worker = -1;
    snprintf(a->verdict.report, sizeof a->verdict.report, "%s", report);
}

/* A ledger that does not answer may be without a leader for a moment. */
static bool post_failure(agent *a)
{
    choir_status status = choir__nodes_failed(a->nodes, &a->verdict);
    a->unposted = status == CHOIR_ERR_TIMEOUT;
    a->cut_off |= status != CHOIR_OK && !a->unposted;
    return !a->unposted;
}

/* worker: that failed; -1: none in particular. */
static void settle_failure(agent *a, int worker, int status, const char *report)
{
    settle(a, status, report);
    a->verdict.worker = worker;
    a->verdict.final = choir__keeper_given_up(&a->keeper);
    if (a->nodes)
        post_failure(a);
}

/* Notes that a signal ends the job, unless another one has before. */
static void settle_interrupt(agent *a, int number)
{
    char report[512], host[CHOIR__HOST_TEXT] = "?";
    bool first = !a->interrupted;
    if (first)
        a->interrupted = number;
    if (!first || (a->told && !a->nodes))
        return;
    gethostname(host, sizeof host - 1);
    if (a->nodes)
        snprintf(report, sizeof report, "choir run: interrupted by SIG%s on node %d (%s)",
            sigabbrev_np(number), a->roster.place.node, host);
    else
        snprintf(
            report, sizeof report, "choir run: interrupted by SIG%s", sigabbrev_np(number));
    if (!a->told || !a->verdict.status)
        settle(a, 128 + number, report);
    if (a->nodes)
        choir__nodes_quit(a->nodes, 128 + number, report, number == SIGINT);
}

/* Returns whether a worker has failed because of a signal that was passed on: it exits soon
 * after it, or that signal has killed it. */
static bool is_answer(const agent *a, const choir__child *c)
{
    if (!a->asked || choir__now() - a->asked_at >= a->opts->shutdown_s)
        return false;
    return c->code == CLD_EXITED || c->status == a->asked;
}

/* Shows lines of the agent's own on a console, 1 (stdout) or 2 (stderr); owns the text. */
static void say(agent *a, int console, char *text)
{
    if (text && a->workers.output)
        choir__output_say(a->workers.output, console, text);
    else if (text)
        dprintf(console, "%s\n", text);
    free(text);
}

/* Shows the changes among the nodes. Returns the order of the moment. */
static choir__order look(agent *a, choir__roster *roster)
{
    choir__news news;
    choir__order order = choir__nodes_look(a->nodes, roster, &news);
    say(a, STDERR_FILENO, news.lines);
    if (a->opts->json)
        say(a, STDOUT_FILENO, news.events);
    else
        free(news.events);
    return order;
}

/* Stops the workers if the other nodes have left their generation. */
static void take_orders(agent *a)
{
    choir__family *f = &a->workers.family;
    choir__roster now = a->roster;
    choir__order order = look(a, &now);
    if ((order == CHOIR__RUN && now.generation == a->roster.generation) || a->told)
        return;
    a->told = true;
    if (!choir__nodes_failure(a->nodes))
        f->grace_s = 0;
    if (choir__nodes_fenced(a->nodes))
        f->grace_s = f->patience_s = 0;
    choir__family_stop(f);
}

/* Returns the first worker here that has failed by itself; all have lost peers: the first. */
static int first_cause(const agent *a)
{
    const choir__family *f = &a->workers.family;
    for (int i = 0; i < f->count; i++)
        if (f->children[i].pidfd < 0 && choir__child_failed(&f->children[i]) &&
            !choir__keeper_lost_peer(&a->keeper, i))
            return i;
    return f->first;
}

/* Where workers here have failed because they have lost a peer, its own node reports why.
 * Returns whether it does before a moment is over: this node is then not to blame. */
static bool await_cause(agent *a)
{
    enum { MOMENT_MS = 2000 };
    double until = choir__now() + 1e-3 * MOMENT_MS;
    while (a->nodes && a->roster.place.nodes > 1 && !a->told) {
        struct pollfd polled[] = {{.fd = choir__nodes_fd(a->nodes), .events = POLLIN},
            {.fd = choir__signals_fd(), .events = POLLIN},
            {.fd = a->self->guard, .events = POLLIN}};
        double left_ms = 1e3 * (until - choir__now());
        int n = left_ms > 0 ? poll(polled, CHOIR_COUNT(polled), (int)left_ms + 1) : 0;
        if (n == 0 || polled[1].revents || polled[2].revents)
            break;
        if (n > 0)
            take_orders(a);
    }
    return a->told;
}

/* Reports the first failure here, unless the outcome is already settled. */
static void see_failure(agent *a)
{
    choir__family *f = &a->workers.family;
    char report[CHOIR__REPORT_TEXT], line[256], end[96];
    if (f->first < 0 || a->told)
        return;
    f->first = choir__keeper_lost_peer(&a->keeper, f->first) ? first_cause(a) : f->first;
    choir__child *c = &f->children[f->first];
    if (is_answer(a, c)) {
        settle_interrupt(a, a->asked);
        return;
    }
    if (choir__keeper_lost_peer(&a->keeper, f->first) && await_cause(a))
        return;
    choir__output_drain(a->workers.output, f->first);
    choir__agent_report(&a->workers, f->first, report);
    settle_failure(a, f->first, choir__end_status(c), report);
    if (f->alive) {
        snprintf(line, sizeof line, "choir run: rank %d (pid %d) %s; stopping the others",
            a->roster.place.rank + f->first, (int)c->pid, choir__end_text(c, end));
        choir__output_say(a->workers.output, STDERR_FILENO, line);
    }
}

/* Adds a crash to the outcome of an interruption, for which it is no answer. */
static void see_crash(agent *a)
{
    choir__verdict *v = &a->verdict;
    char report[CHOIR__REPORT_TEXT], *whole;
    int crashed = choir__family_crashed(&a->workers.family);
    if (crashed < 0 || !a->interrupted || v->status != 128 + a->interrupted)
        return;
    choir__output_drain(a->workers.output, crashed);
    choir__agent_report(&a->workers, crashed, report);
    whole = choir__format("%s\n%s", v->report, report);
    v->status = choir__end_status(&a->workers.family.children[crashed]);
    snprintf(v->report, sizeof v->report, "%s", whole);
    free(whole);
}

static void interrupt(agent *a, int number)
{
    choir__family *f = &a->workers.family;
    bool again = choir__signal_again(choir__signal_find(number), choir__now(), &a->first_at);
    choir__family_signal(f, number);
    choir__family_signal(f, SIGCONT);
    choir__family_stop(f);
    f->grace_s = 0;
    f->pressed = SIGTERM; /* no further SIGTERM: this signal was their notice */
    if (again) {
        f->stopping_at = choir__now();
        f->patience_s = last_words_s;
    }
    settle_interrupt(a, number);
}

/* Passes a signal on that workers may outlive. */
static void ask(agent *a, int number)
{
    a->asked = number;
    a->asked_at = choir__now();
    choir__family_signal(&a->workers.family, number);
}

typedef struct shown {
    const agent *agent;
    FILE *out;
} shown;

static void show(pid_t pid, void *arg)
{
    const shown *to = arg;
    to->agent->opts->show((int)pid, to->out);
}

/* Shows the last collectives of all workers and of the processes they have started. */
static void show_workers(agent *a)
{
    const choir__family *f = &a->workers.family;
    char *text = NULL;
    size_t bytes;
    shown to = {a, a->workers.output ? open_memstream(&text, &bytes) : NULL};
    for (int i = 0; to.out && i < f->count; i++)
        if (f->children[i].pidfd >= 0)
            choir__each_of_group(f->children[i].pid, show, &to);
    if (!to.out || fclose(to.out))
        return;
    choir__output_say(a->workers.output, STDERR_FILENO,
        bytes ? text : "choir run: none of these ranks has a flight recorder");
    free(text);
}

static void take_signals(agent *a)
{
    choir__signal s;
    while (choir__signals_next(&s)) {
        choir__signal_does does = choir__signal_meaning(s.number);
        if (does == CHOIR__SIGNAL_STOPS || does == CHOIR__SIGNAL_ENDS)
            interrupt(a, s.number);
        else if (a->opts->handled_signals >> s.number & 1)
            ask(a, s.number);
        else if (s.number == SIGUSR1)
            show_workers(a);
        else
            choir__family_signal(&a->workers.family, s.number);
    }
}

/* The guard has ended, and the agent must not outlive it. */
static _Noreturn void abandon(agent *a)
{
    choir__family_signal(&a->workers.family, SIGKILL);
    choir__kill_descendants();
    _exit(128 + SIGKILL);
}

/* While there are workers, the agent handles signals and the guard's end itself. Otherwise
 * there is nothing to clean up, and many calls may block for long (the terminal, other nodes),
 * so both simply end the agent. */
static choir_status begin_duty(void)
{
    prctl(PR_SET_PDEATHSIG, 0);
    return choir__signals_take(choir__guard_signals, choir__guard_signal_count);
}

static void end_duty(agent *a)
{
    struct pollfd guard = {.fd = a->self->guard, .events = POLLIN};
    if (choir__signals_fd() >= 0)
        choir__signals_give_back();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (poll(&guard, 1, 0) > 0)
        abandon(a);
}

/* --- one attempt --- */

static bool is_elastic(const choir__agent_opts *o)
{
    return o->max_restarts > 0 || o->nodes_min < o->nodes_max;
}

static choir_status begin(agent *a)
{
    choir__workers *w = &a->workers;
    const choir__roster *r = &a->roster;
    char *folder = NULL;
    a->asked = 0;
    *w = (choir__workers){.opts = a->opts,
        .keeper = &a->keeper,
        .agent_pid = (int)getpid(),
        .roster = r,
        .input = a->self->input};
    choir_status status = begin_duty();
    if (status != CHOIR_OK)
        return status;
    choir__workers_room(w);
    if (is_elastic(a->opts) || r->place.nodes > 1)
        choir__keeper_listen(&a->keeper);
    if (is_elastic(a->opts))
        choir__keeper_make(
            &a->keeper, a->opts->nproc, r->place.nodes > 1 ? r->most_workers : 0);
    if (a->log_dir)
        folder = choir__format("%s/%s/attempt_%d", a->log_dir, r->run_id, r->generation - 1);
    status = choir__output_open(a->opts->routes, a->opts->nproc, r->place.rank, a->opts->prefix,
        a->opts->role, folder, &w->output);
    free(folder);
    if (status == CHOIR_OK)
        status = choir__workers_start(w);
    return status;
}

static void watch(agent *a)
{
    choir__family *f = &a->workers.family;
    while (f->alive) {
        struct pollfd *at = a->polled, *outputs = at + f->count,
                      *others = outputs + choir__output_polls(f->count);
        choir__family_poll(f, at);
        choir__output_poll(a->workers.output, outputs);
        others[0] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        others[1] = (struct pollfd){.fd = a->self->guard, .events = POLLIN};
        others[2] =
            (struct pollfd){.fd = a->nodes ? choir__nodes_fd(a->nodes) : -1, .events = POLLIN};
        if (poll(at, (nfds_t)(others + 3 - at), choir__family_press(f)) < 0)
            continue; /* EINTR: the pipe holds the signal */
        if (others[1].revents)
            abandon(a);
        take_signals(a);
        choir__output_pump(a->workers.output, outputs);
        choir__family_reap(f, at);
        see_failure(a);
        see_crash(a);
        if (others[2].revents)
            take_orders(a);
    }
}

/* Cleans up after an attempt, so that nothing of it is left. */
static void finish(agent *a)
{
    choir__workers *w = &a->workers;
    if (w->family.count)
        choir__family_bury(&w->family);
    choir__kill_descendants();
    take_signals(a);
    end_duty(a);
    if (w->output && choir__output_finish(w->output) != CHOIR_OK && !a->told) {
        char text[CHOIR__REPORT_TEXT];
        snprintf(text, sizeof text, "choir run: %s", choir_error_message());
        settle_failure(a, -1, 1, text);
    }
    choir__output_close(w->output);
    if (w->family.count)
        choir__family_free(&w->family);
    w->output = NULL;
}

/* Runs an attempt. Returns true if the workers are to be started again. */
static bool attempt(agent *a)
{
    bool again = false;
    choir_status status = begin(a);
    if (status == CHOIR_OK) {
        watch(a);
        again = a->workers.family.first >= 0 && !a->interrupted && !a->verdict.final &&
                a->roster.restarts < a->opts->max_restarts;
    } else {
        char text[CHOIR__REPORT_TEXT];
        snprintf(text, sizeof text, "choir run: %s", choir_error_message());
        settle_failure(a, -1, 1, text);
    }
    finish(a);
    return again;
}

/* --- the job --- */

/* Waits for an order other than to wait. Meanwhile this node has no workers. */
static choir__order await_order(agent *a)
{
    choir__order order = CHOIR__WAIT;
    if (begin_duty() != CHOIR_OK)
        return CHOIR__LEAVE;
    while (order == CHOIR__WAIT && !a->interrupted && !a->cut_off) {
        struct pollfd polled[] = {{.fd = choir__nodes_fd(a->nodes), .events = POLLIN},
            {.fd = choir__signals_fd(), .events = POLLIN},
            {.fd = a->self->guard, .events = POLLIN}};
        order = look(a, &a->roster);
        if (order == CHOIR__RUN && a->roster.generation == a->ran)
            order = CHOIR__WAIT;
        if (order != CHOIR__WAIT)
            break;
        bool told = (!a->unposted || post_failure(a)) &&
                    (a->done ? choir__nodes_done(a->nodes) : choir__nodes_ready(a->nodes));
        a->done &= !told;
        if (poll(polled, CHOIR_COUNT(polled), told ? -1 : retry_ms) < 0)
            continue;
        if (polled[2].revents)
            abandon(a);
        take_signals(a);
    }
    end_duty(a);
    return a->interrupted || a->cut_off ? CHOIR__LEAVE : order;
}

/* Runs the workers of this node's part in a job on several, generation after generation. */
static void take_part(agent *a)
{
    while (await_order(a) == CHOIR__RUN) {
        a->told = a->unposted = false;
        a->verdict.status = 0;
        a->ran = a->roster.generation;
        attempt(a);
        a->done = !a->told;
    }
    if (!a->interrupted && !a->cut_off && !a->unposted)
        a->verdict = choir__nodes_verdict(a->nodes);
}

/* Tells programs of a restart on a single node, as where there are several. */
static void tell_restart(agent *a)
{
    const choir__verdict *v = &a->verdict;
    int worker = v->worker < 0 ? 0 : v->worker;
    choir__agent_node self = {.workers = a->opts->nproc};
    choir__departure gone = {
        .offset = worker, .rank = worker, .workers = v->worker < 0 ? self.workers : 1};
    choir__agent_state m = {.generation = a->roster.generation,
        .restarts = a->roster.restarts,
        .count = 1,
        .nodes = &self,
        .departed_count = 1,
        .departed = &gone};
    double passed_s = choir__now() - a->settled_at;
    const char *why = choir__without_name(v->report);
    gethostname(gone.host, sizeof gone.host - 1);
    snprintf(gone.why, sizeof gone.why, "%.*s", (int)strcspn(why, "\n"), why);
    if (a->opts->json)
        say(a, STDOUT_FILENO, choir__agent_state_event(&m, passed_s, passed_s));
}

/* Starts the workers of a single node, and starts them again as often as allowed. */
static void run_alone(agent *a)
{
    while (attempt(a)) {
        a->roster.generation++;
        fprintf(stderr, "%s\nchoir run: starting all again: restart %d of %d\n",
            a->verdict.report, ++a->roster.restarts, a->opts->max_restarts);
        tell_restart(a);
        a->told = false;
        a->verdict.status = 0;
    }
}

static bool wants_logs(const choir__agent_opts *opts)
{
    for (int i = 0; i < opts->nproc; i++)
        if (opts->routes[i].file)
            return true;
    return false;
}

/* Log files without a specified folder go into a new one, which is printed. */
static choir_status find_log_dir(agent *a)
{
    const char *temporary = getenv("TMPDIR");
    if (!wants_logs(a->opts))
        return CHOIR_OK;
    a->log_dir = a->opts->log_dir
                     ? choir__strdup(a->opts->log_dir)
                     : choir__format("%s/choir-run-XXXXXX", temporary ? temporary : "/tmp");
    if (a->opts->log_dir)
        return CHOIR_OK;
    if (!mkdtemp(a->log_dir))
        return choir__error(CHOIR_ERR_IO,
            "cannot make %s for log files: %s; name a folder "
            "with --log-dir",
            a->log_dir, choir__why(errno));
    fprintf(stderr, "choir run: note: log files are in %s/%s\n", a->log_dir, a->roster.run_id);
    return CHOIR_OK;
}

static choir_status alone(const choir__agent_opts *opts, choir__roster *r)
{
    r->place = (choir__job_place){.world = opts->nproc,
        .local_world = opts->nproc,
        .nodes = 1,
        .master_port = opts->master_port};
    r->generation = 1;
    snprintf(r->place.master, sizeof r->place.master, "%s",
        *opts->master ? opts->master : "127.0.0.1");
    choir_status status = choir__job_random(r->job);
    if (status == CHOIR_OK)
        status = choir__roster_name(opts, r->run_id);
    if (status == CHOIR_OK && !r->place.master_port)
        status = choir__job_free_port(&r->place.master_port);
    return status;
}

static int run_agent(const choir__guarded *self, void *arg)
{
    agent a = {.opts = arg, .self = self};
    /* lets the agent write to the terminal from the background, too */
    signal(SIGTTOU, SIG_IGN);
    choir__adopt_orphans();
    choir_status status =
        a.opts->nodes_max > 1 ? choir__nodes_join(a.opts, &a.nodes) : alone(a.opts, &a.roster);
    if (status == CHOIR_OK && a.nodes)
        snprintf(a.roster.run_id, sizeof a.roster.run_id, "%s", choir__nodes_run_id(a.nodes));
    if (status == CHOIR_OK)
        status = find_log_dir(&a);
    if (status != CHOIR_OK) {
        fprintf(stderr, "choir run: %s\n", choir_error_message());
        choir__nodes_leave(a.nodes);
        free(a.log_dir);
        return 1;
    }
    a.polled = choir__calloc(3 * (size_t)a.opts->nproc + 8, sizeof *a.polled);
    if (a.nodes)
        take_part(&a);
    else
        run_alone(&a);
    if (a.verdict.status)
        fprintf(stderr, "%s\n", a.verdict.report);
    choir__nodes_leave(a.nodes);
    if (choir__keeper_given_up(&a.keeper))
        choir__keeper_give_up(); /* also for an agent that has started this one */
    choir__keeper_free(&a.keeper);
    free(a.polled);
    free(a.log_dir);
    return a.verdict.status;
}

int choir__agent_run(const choir__agent_opts *opts)
{
    int missing = choir__workers_check(opts->command[0]);
    if (missing)
        return missing;
    if (opts->nproc > 1 && !getenv("OMP_NUM_THREADS"))
        fprintf(stderr,
            "choir run: note: OMP_NUM_THREADS=1 for each of the %d ranks, so that they do not "
            "crowd the machine; set it to choose\n",
            opts->nproc);
    return choir__guard(run_agent, (void *)opts);
}
