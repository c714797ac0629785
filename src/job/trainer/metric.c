/* A metric of the user's own: see metric.h. A line per sample goes to the command's standard
 * input, as an open file, so that neither waits for the other; its first word of output is the
 * number. For classifiers and regressions
 *
 *     {"sample":0,"target":3,"class":2,"scores":[0.1,-2.5,...]}     one target
 *     {"sample":0,"targets":[3,1],"classes":[3,0]}                  words, or tokens
 *     {"sample":0,"target":[0.5],"output":[0.48]}                   numbers
 *
 * Targets that do not count are left out. The command is the line's alone: a run's record has
 * none, so resuming a folder that others wrote starts no command of theirs. */
#include "job/trainer/metric.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/board/board.h"
#include "base/number.h"
#include "base/process/shell.h"
#include "record/events.h"
#include "tensor/strategy.h"
#include "checkpoint/agree.h"

/* --- the option --- */

static size_t name_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

void choir__metric_name(const choir__job_training *t, char name[CHOIR__METRIC_NAME])
{
    const char *text = t->metric ? t->metric : "";
    snprintf(name, CHOIR__METRIC_NAME, "%.*s", (int)name_length(text), text);
}

/* Returns whether the shell finds the command's first word, so that a typing error is not told
 * by the first validation. A word with signs of the shell's, as in "A=1 f" or "'f'", counts as
 * found. */
static bool is_found(const char *word, size_t n)
{
    pid_t shell;
    int ended = 0;
    if (!n || (word[n] && !strchr(" \t\n;|&<>", word[n])))
        return true;
    char *line = choir__format("command -v -- %.*s >/dev/null 2>&1", (int)n, word);
    bool ran = !choir__shell_start(line, -1, STDOUT_FILENO, -1, &shell) &&
               waitpid(shell, &ended, 0) == shell;
    free(line);
    return !ran || ended == 0;
}

choir_status choir__metric_check_command(const choir__job *j)
{
    const char *text = j->training.metric;
    if (!text || j->ranks.rank > 0)
        return CHOIR_OK;
    const size_t name = name_length(text);
    const char *word = text + name + 1;
    word += strspn(word, " ");
    size_t n = 0;
    while (isalnum((unsigned char)word[n]) || (word[n] && strchr("_./+-", word[n])))
        n++;
    if (is_found(word, n))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--metric %.*s=...: expected a command that the shell finds, got '%.*s'", (int)name,
        text, (int)n, word);
}

choir_status choir__metric_check(choir__job *j)
{
    static const char *const taken[] = {
        CHOIR__KEY(eval, loss), CHOIR__KEY(eval, accuracy), CHOIR__KEY(eval, eval_s)};
    const char *text = j->training.metric;
    size_t n = text ? name_length(text) : 0;
    if (!text)
        return CHOIR_OK;
    if (!n || n >= CHOIR__METRIC_NAME || text[n] != '=' ||
        !text[n + 1 + strspn(text + n + 1, " ")])
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--metric: expected NAME=COMMAND with a name of at most %d letters, digits and _, got "
            "'%s'",
            CHOIR__METRIC_NAME - 1, text);
    for (size_t i = 0; i < CHOIR_COUNT(taken); i++)
        if (n == strlen(taken[i]) && !strncmp(text, taken[i], n))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--metric %s=...: each validation has its %s already: choose another name",
                taken[i], taken[i]);
    return CHOIR_OK;
}

/* --- lines --- */

static void add_floats(choir__text_buffer *t, const char *key, const float *x, int64_t n)
{
    choir__text_open(t, key, '[');
    for (int64_t i = 0; i < n; i++)
        choir__text_buffer_number(t, NULL, (double)x[i]);
    choir__text_close(t, ']');
}

static void add_ids(choir__text_buffer *t, const char *key, const int64_t *ids,
    const int64_t *targets, int64_t n, int64_t ignored)
{
    choir__text_open(t, key, '[');
    for (int64_t i = 0; i < n; i++)
        if (targets[i] != ignored)
            choir__text_value(t, NULL, "%lld", (long long)ids[i]);
    choir__text_close(t, ']');
}

/* Adds the lines of outputs and targets that are numbers. */
static choir_status add_numbers(choir__text_buffer *t, int64_t first, int64_t n,
    choir_tensor *outputs, choir_tensor *targets)
{
    int64_t each = choir_tensor_count(outputs) / n, of_target = choir_tensor_count(targets) / n;
    float *out = choir__alloc((size_t)(n * each + 1) * sizeof *out),
          *y = choir__alloc((size_t)(n * of_target + 1) * sizeof *y);
    choir_status status =
        choir_read(choir_cast(outputs, CHOIR_F32), out, (size_t)(n * each) * sizeof *out);
    if (status == CHOIR_OK)
        status =
            choir_read(choir_cast(targets, CHOIR_F32), y, (size_t)(n * of_target) * sizeof *y);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
        choir__text_open(t, NULL, '{');
        choir__text_value(t, "sample", "%lld", (long long)(first + i));
        add_floats(t, "target", y + i * of_target, of_target);
        add_floats(t, "output", out + i * each, each);
        choir__text_close(t, '}');
        choir__text_buffer_put(t, "\n");
    }
    free(out);
    free(y);
    return status;
}

/* Adds the lines of `rows` targets per sample. scores: (n, classes) for one row, else NULL. */
static void add_classes(choir__text_buffer *t, int64_t first, int64_t n, int64_t rows,
    const int64_t *y, const int64_t *best, const float *scores, int64_t classes,
    int64_t ignored)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t *target = y + i * rows, *class = best + i * rows;
        if (scores && *target == ignored)
            continue;
        choir__text_open(t, NULL, '{');
        choir__text_value(t, "sample", "%lld", (long long)(first + i));
        if (scores) {
            choir__text_value(t, "target", "%lld", (long long)*target);
            choir__text_value(t, "class", "%lld", (long long)*class);
            add_floats(t, "scores", scores + i * classes, classes);
        } else {
            add_ids(t, "targets", target, target, rows, ignored);
            add_ids(t, "classes", class, target, rows, ignored);
        }
        choir__text_close(t, '}');
        choir__text_buffer_put(t, "\n");
    }
}

choir_status choir__metric_scored(
    void *arg, int64_t first, int64_t n, choir_tensor *outputs, choir_tensor *targets)
{
    choir__metric_lines *lines = arg;
    const choir_model_info *info = &lines->job->model.info;
    if (choir_tensor_dtype(targets) != CHOIR_I64)
        return add_numbers(&lines->text, first, n, outputs, targets);
    if (choir__is_part(outputs))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "--metric: no rank of tp has a model's whole scores: validate under another "
            "--strategy");
    int64_t count = choir_tensor_count(targets), rows = count / n;
    int64_t classes = rows == 1 ? choir_tensor_count(outputs) / n : 0;
    int64_t *y = choir__alloc((size_t)(count + 1) * sizeof *y),
            *best = choir__alloc((size_t)(count + 1) * sizeof *best);
    float *scores = classes ? choir__alloc((size_t)(n * classes) * sizeof *scores) : NULL;
    choir_status status = choir_read(targets, y, (size_t)count * sizeof *y);
    if (status == CHOIR_OK)
        status = choir_read(choir_argmax(outputs), best, (size_t)count * sizeof *best);
    if (status == CHOIR_OK && scores)
        status = choir_read(
            choir_cast(outputs, CHOIR_F32), scores, (size_t)(n * classes) * sizeof *scores);
    if (status == CHOIR_OK)
        add_classes(&lines->text, first, n, rows, y, best, scores, classes,
            info->task == CHOIR_IMAGE_TO_TEXT ? info->pad : CHOIR_IGNORED);
    free(y);
    free(best);
    free(scores);
    return status;
}

/* Moves the lines of all ranks to rank 0. Ranks have runs of batches, in their order. */
static choir_status gather(choir__text_buffer *text, choir_group *group)
{
    int world = choir_group_world(group), rank = choir_group_rank(group);
    int64_t mine = (int64_t)text->used, *each = choir__calloc((size_t)world, sizeof *each);
    choir_status status = choir_group_all_gather(group, &mine, each, 1, CHOIR_I64, NULL);
    if (status == CHOIR_OK && rank != 0 && mine)
        status = choir_group_send(group, text->bytes, mine, CHOIR_U8, 0, NULL);
    for (int r = 1; r < world && rank == 0 && status == CHOIR_OK; r++) {
        char *there = choir__alloc((size_t)each[r] + 1);
        if (each[r])
            status = choir_group_receive(group, there, each[r], CHOIR_U8, r, NULL);
        if (status == CHOIR_OK)
            choir__text_buffer_add(text, there, (size_t)each[r]);
        free(there);
    }
    free(each);
    return status;
}

/* --- the command --- */

enum { MOST_PRINTED = 4096, LOOK_MS = 1000 };

/* Returns an open file with the lines, at its beginning; -1: errno says why. */
static int file_of(const choir__text_buffer *text)
{
    int fd = memfd_create("choir-metric", MFD_CLOEXEC);
    for (size_t at = 0; fd >= 0 && at < text->used;) {
        ssize_t put = write(fd, text->bytes + at, text->used - at);
        if (put < 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    if (fd >= 0)
        (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Reads what the command prints until it closes its output; returns false after `limit_s`
 * seconds. What does not fit is dropped. */
static bool listen_to(int out, double limit_s, char printed[MOST_PRINTED])
{
    double end = choir__now() + limit_s;
    size_t length = 0;
    char dropped[MOST_PRINTED];
    for (;;) {
        struct pollfd p = {.fd = out, .events = POLLIN};
        choir__board_beat();
        if (choir__now() > end)
            return false;
        if (poll(&p, 1, LOOK_MS) <= 0)
            continue;
        size_t room = MOST_PRINTED - 1 - length;
        ssize_t got =
            read(out, room ? printed + length : dropped, room ? room : sizeof dropped);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        length += room && got > 0 ? (size_t)got : 0;
    }
    printed[length] = '\0';
    return true;
}

/* Returns how the command ended, unless it printed a number: a sentence's end. */
static choir_status read_number(const char *metric, int ended, char *printed, double *value)
{
    char *end, *word = printed + strspn(printed, " \t\r\n");
    word[strcspn(word, " \t\r\n")] = '\0';
    if (WIFSIGNALED(ended))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--metric %s: the command was ended by signal %d", metric, WTERMSIG(ended));
    if (WEXITSTATUS(ended))
        return choir__error(CHOIR_ERR_ARGUMENT, "--metric %s: the command's exit status is %d",
            metric, WEXITSTATUS(ended));
    if (!*word)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--metric %s: expected a number, got no output", metric);
    *value = choir__number_read(word, &end);
    return *end ? choir__error(CHOIR_ERR_ARGUMENT,
                      "--metric %s: expected a number, got '%.60s'", metric, word)
                : CHOIR_OK;
}

static choir_status run(
    const char *metric, const choir__text_buffer *text, double limit_s, double *value)
{
    int pipes[2] = {-1, -1}, in = file_of(text), ended = 0;
    char printed[MOST_PRINTED] = "";
    pid_t pid = -1;
    int error = in < 0 || pipe2(pipes, O_CLOEXEC) ? errno : 0;
    fflush(NULL); /* our lines come before the command's own */
    if (!error)
        error = choir__shell_start(strchr(metric, '=') + 1, in, pipes[1], -1, &pid);
    if (in >= 0)
        close(in);
    if (pipes[1] >= 0)
        close(pipes[1]);
    bool in_time = error || listen_to(pipes[0], limit_s, printed);
    if (pipes[0] >= 0)
        close(pipes[0]);
    if (!error && !in_time)
        kill(-pid, SIGKILL);
    while (!error && waitpid(pid, &ended, 0) < 0 && errno == EINTR)
        ;
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "--metric %s: cannot run sh: %s", metric, choir__why(error));
    if (!in_time)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--metric %s: the command has not ended after %.4g s, half of --timeout", metric,
            limit_s);
    return read_number(metric, ended, printed, value);
}

choir_status choir__metric_take(
    choir__metric_lines *lines, choir_group *counting, choir_group *all, double *value)
{
    const choir__job *j = lines->job;
    choir_group *group = counting && choir_group_world(counting) > 1 ? counting : NULL;
    choir_status status = group ? gather(&lines->text, group) : CHOIR_OK;
    *value = (double)NAN;
    if (status == CHOIR_OK && choir__rank_of(all) == 0 && !j->placement.rehearsal)
        status = run(j->training.metric, &lines->text, j->ranks.timeout / 2, value);
    status = all ? choir__agree(all, status) : status;
    if (status == CHOIR_OK && all)
        status = choir_group_broadcast(all, value, 1, CHOIR_F64, 0, NULL);
    return status;
}
