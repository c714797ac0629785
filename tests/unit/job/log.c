/* Logs: numbers that read back, files that survive a kill and a full disk, runs that go on, and
 * the bytes of formats whose readers may be missing here (tests/interop/logs.py has them). */
#include "folder_fixture.h"
#include <arpa/inet.h>
#include <math.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <choir/choir.h>

#include "base/base.h"
#include "record/metrics/openmetrics.h"
#include "record/recorder.h"
#include "base/text.h"
#ifdef CHOIR_HAVE_PROTOBUF
#include "record/tensorboard/events.h"
#endif

/* --- files --- */

/* Returns the whole file; the caller frees it. */
static char *contents(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = NULL;
    *bytes = 0;
    for (size_t n = 1; n;) {
        text = realloc(text, *bytes + 4097);
        n = fread(text + *bytes, 1, 4096, f);
        *bytes += n;
    }
    text[*bytes] = '\0';
    fclose(f);
    return text;
}

static void append(const char *name, const char *text)
{
    FILE *f = fopen(at("%s", name), "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int lines_of(const char *name)
{
    size_t bytes;
    int lines = 0;
    char *text = contents(at("%s", name), &bytes);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    free(text);
    return lines;
}

static choir_logger *open_log(const char *kind, const char *name, int64_t resume, bool goes_on)
{
    choir_logger *log = NULL;
    choir_log_opts opts = choir_log_defaults();
    char dest[512];
    snprintf(dest, sizeof dest, "%s:%s", kind, at("%s", name));
    opts.resume = resume;
    opts.goes_on = goes_on;
    opts.id = "a run";
    if (choir_log_open(dest, opts, &log) != CHOIR_OK)
        fail_msg("%s: %s", dest, choir_error_message());
    return log;
}

/* Logs steps [first, last], with a loss that is not round. */
static void log_steps(choir_logger *log, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++) {
        ok(choir_log_number(log, "loss", (double)(1.1f / (float)step)));
        ok(choir_log_number(log, "lr", 0.1));
        ok(choir_log_step(log, step));
    }
}

/* --- numbers --- */

static void numbers_read_back(void **state)
{
    const double exact[] = {0.1, 1.0 / 3, 4.1712003, (double)1.1f, 1e300, 5e-324, -2.5, 0, -0.0,
        3, 1e15, 1.2345678901234568e17, 0x1.fffffffffffffp+1023};
    char text[CHOIR__NUMBER_TEXT];
    for (size_t i = 0; i < CHOIR_COUNT(exact); i++) {
        int length = choir__number_text(exact[i], text);
        double back = strtod(text, NULL);
        assert_int_equal(length, strlen(text));
        assert_memory_equal(&back, &exact[i], sizeof back);
    }
    choir__number_text(0.1, text);
    assert_string_equal(text, "0.1");
    choir__number_text(NAN, text);
    assert_string_equal(text, "nan");
    choir__number_text(-INFINITY, text);
    assert_string_equal(text, "-inf");
}

static void texts_become_json(void **state)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "a", "a\"\n\xff\xc3\xa9\xc3");
    choir__text_open(&t, "b", '[');
    choir__text_buffer_number(&t, NULL, NAN);
    choir__text_buffer_number(&t, NULL, 2);
    choir__text_close(&t, ']');
    choir__text_value(&t, "c{", "%d", 3);
    choir__text_string(&t, "d", NULL);
    choir__text_close(&t, '}');
    assert_string_equal(t.bytes,
        "{\"a\":\"a\\\"\\u000a\\ufffd\xc3\xa9\\ufffd\",\"b\":[null,2],\"c{\":3,\"d\":null}");
    choir__text_buffer_free(&t);
}

/* --- destinations --- */

static void destinations_are_checked(void **state)
{
    static const struct {
        const char *dest, *message;
    } wrong[] = {
        {"cvs:x", "unknown kind of log 'cvs' (did you mean 'csv'?)"},
        {"csv", "missing FILE"},
        {"csv:", "missing FILE"},
        {"csv:/proc/nothing/x.csv", "cannot write /proc/nothing/x.csv"},
        {"run:/proc/nothing", "cannot write"},
        {"tensorboard:/proc/nothing", "/proc/nothing"},
        {"wandb:/proc/nothing", "/proc/nothing"},
        {"mlflow:/proc/nothing", "/proc/nothing"},
        {"metrics:9", "metrics:9"},
        {"metrics::70000", "metrics::70000"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++) {
        choir_logger *log = NULL;
        assert_int_not_equal(
            choir_log_open(wrong[i].dest, choir_log_defaults(), &log), CHOIR_OK);
        assert_null(log);
        assert_says(wrong[i].message);
    }
}

static void arguments_are_checked(void **state)
{
    choir_logger *log = open_log("csv", "new/folders/a.csv", 0, false);
    assert_int_equal(choir_log_number(log, "", 1), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_log_number(log, "a\nb", 1), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_log_number(log, "a\xff", 1), CHOIR_ERR_ARGUMENT);
    ok(choir_log_number(log, "a\xc3\xa9", 1));
    assert_int_equal(choir_log_step(log, -1), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_log_event(log, 1, "eval", "[1]"), CHOIR_ERR_ARGUMENT);
    log_steps(log, 1, 1);
    assert_int_equal(choir_log_step(log, 1), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_log_param(log, "lr", "1"), CHOIR_ERR_STATE);
    assert_int_equal(choir_log_add(log, "csv:b.csv"), CHOIR_ERR_STATE);
    ok(choir_log_close(log));
    for (int i = 0; i < 3; i++) {
        static const char *const jobs[] = {"{", "[1]", "no JSON"};
        choir_log_opts opts = choir_log_defaults();
        opts.job = jobs[i];
        assert_int_equal(choir_log_open(NULL, opts, &log), CHOIR_ERR_ARGUMENT);
        assert_null(log);
    }
}

/* A full disk costs one destination, which says so once and in the end. */
static void others_go_on(void **state)
{
    choir_logger *log = open_log("csv", "a.csv", 0, false);
    ok(choir_log_add(log, "csv:/dev/full"));
    ok(choir_log_number(log, "loss", 1));
    assert_fails(choir_log_step(log, 1), CHOIR_ERR_IO, "/dev/full");
    log_steps(log, 2, 4);
    assert_fails(choir_log_close(log), CHOIR_ERR_IO, "/dev/full");
    assert_int_equal(lines_of("a.csv"), 5);
}

/* A file that was removed takes no more lines: the next step says so. */
static void removed_files(void **state)
{
    static const char *const files[][2] = {{"csv", "gone.csv"}, {"run", "gone-run"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        choir_logger *log = open_log(files[i][0], files[i][1], 0, false);
        log_steps(log, 1, 3);
        char *command = choir__format("rm -r '%s'", at("%s", files[i][1]));
        assert_int_equal(system(command), 0);
        free(command);
        ok(choir_log_number(log, "loss", 1));
        assert_fails(choir_log_step(log, 4), CHOIR_ERR_IO, "it was removed");
        assert_int_equal(choir_log_close(log), CHOIR_ERR_IO);
    }
}

/* --- CSV and the run folder --- */

/* Reads a CSV's column of step n. */
static double csv_number(const char *name, int64_t step, int column)
{
    size_t bytes;
    char *text = contents(at("%s", name), &bytes), *rest = text, *line;
    double found = NAN;
    while ((line = strsep(&rest, "\n")))
        if (strtoll(line, NULL, 10) == step && *line) {
            for (int i = 0; i < column && line; i++)
                line = strchr(line, ',') + 1;
            found = strtod(line, NULL);
        }
    free(text);
    return found;
}

static void csv_goes_on(void **state)
{
    choir_logger *log = open_log("csv", "a.csv", 0, false);
    log_steps(log, 1, 9);
    ok(choir_log_close(log));
    append("a.csv", "10,12345.6,0.1"); /* as a kill may leave it */
    log = open_log("csv", "a.csv", 6, true);
    log_steps(log, 7, 12);
    ok(choir_log_close(log));
    assert_int_equal(lines_of("a.csv"), 13);
    for (int64_t step = 1; step <= 12; step++)
        assert_true((float)csv_number("a.csv", step, 2) == 1.1f / (float)step);
    log = open_log("csv", "a.csv", 0, false); /* a new run begins at the beginning */
    log_steps(log, 1, 1);
    ok(choir_log_close(log));
    assert_int_equal(lines_of("a.csv"), 2);
}

/* A kill has cut the header: a continued run begins the table again. */
static void csv_of_a_cut_header(void **state)
{
    static const char header[] = "step,time,loss,lr";
    for (size_t cut = 0; cut <= strlen(header); cut++) {
        ok(choir_log_close(open_log("csv", "a.csv", 0, false))); /* empties it */
        char begin[sizeof header] = "";
        memcpy(begin, header, cut);
        append("a.csv", begin);
        choir_logger *log = open_log("csv", "a.csv", 6, true);
        log_steps(log, 7, 8);
        ok(choir_log_close(log));
        size_t bytes;
        char *text = contents(at("a.csv"), &bytes);
        assert_memory_equal(text, "step,time,loss,lr\n7,", 20);
        free(text);
        assert_int_equal(lines_of("a.csv"), 3);
    }
}

static void csv_widens(void **state)
{
    choir_logger *log = open_log("csv", "a.csv", 0, false);
    log_steps(log, 1, 2);
    ok(choir_log_event(
        log, 2, "eval", "{\"loss\":0.5,\"best\":true,\"metric\":1,\"metric_name\":\"f1\"}"));
    ok(choir_log_number(log, "a,\"b", 7));
    ok(choir_log_step(log, 3));
    ok(choir_log_close(log));
    size_t bytes;
    char *text = contents(at("a.csv"), &bytes);
    assert_memory_equal(text, "step,time,loss,lr,eval/loss,eval/f1,\"a,\"\"b\"\n", 42);
    int commas = 0;
    for (size_t i = 0; i < bytes; i++)
        commas += text[i] == ',';
    assert_int_equal(commas, 7 + 4 * 6);
    free(text);
    log = open_log("csv", "a.csv", 3, true); /* finds the columns again */
    ok(choir_log_number(log, "a,\"b", 8));
    ok(choir_log_step(log, 4));
    ok(choir_log_close(log));
    assert_true(csv_number("a.csv", 4, 6) == 8);
}

static void run_folder_goes_on(void **state)
{
    choir_logger *log = open_log("run", "r", 0, false);
    ok(choir_log_param(log, "lr", "0.1"));
    log_steps(log, 1, 5);
    ok(choir_log_event(log, 4, "eval", "{\"loss\":1}"));
    ok(choir_log_event(log, 5, "failure", "{\"message\":\"a \\u00e9\"}"));
    ok(choir_log_close(log));
    append("r/metrics.jsonl", "{\"step\":6,\"ti");
    append("r/events.jsonl", "{\"event\":\"ev");
    log = open_log("run", "r", 3, true);
    log_steps(log, 4, 6);
    ok(choir_log_close(log));
    assert_int_equal(lines_of("r/metrics.jsonl"), 6);
    assert_int_equal(lines_of("r/events.jsonl"), 2); /* the failure stays */
    size_t bytes;
    char *events = contents(at("r/events.jsonl"), &bytes);
    assert_non_null(strstr(events, "{\"event\":\"repeat\",\"step\":3,"));
    assert_non_null(strstr(events, "\"steps\":2,"));
    free(events);
    char *text = contents(at("r/metrics.jsonl"), &bytes), *at = text;
    for (int step = 1; step <= 6; step++) {
        char expected[32];
        int length = snprintf(expected, sizeof expected, "{\"step\":%d,", step);
        assert_memory_equal(at, expected, (size_t)length);
        at = strstr(at, "\"loss\":");
        assert_true((float)strtod(at + 7, NULL) == 1.1f / (float)step);
        at = strchr(at, '\n') + 1;
    }
    free(text);
}

/* --- metrics over HTTP --- */

static int connect_to(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Returns a port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static int status_for(int port, const char *host)
{
    char text[256], answer[4096] = "";
    int fd = connect_to(port),
        length = snprintf(text, sizeof text,
            "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host);
    assert_int_equal(write(fd, text, (size_t)length), length);
    assert_true(read(fd, answer, sizeof answer - 1) > 12);
    close(fd);
    return atoi(answer + strlen("HTTP/1.1 "));
}

/* A page of another site can make its own name lead to the loopback address. */
static void other_names_read_no_metrics(void **state)
{
    static const struct {
        const char *host;
        int status;
    } cases[] = {{"127.0.0.1", 200}, {"127.0.0.1:9", 200}, {"localhost:80", 200},
        {"LocalHost", 200}, {"[::1]:80", 200}, {"evil.example", 403}, {"evil.example:80", 403},
        {"127.0.0.1.evil.example", 403}, {"localhost.evil.example", 403}, {"[evil", 403},
        {"", 403}};
    choir_logger *log = NULL;
    choir_status status = CHOIR_ERR_IO;
    int port = 0;
    for (int i = 0; i < 20 && status == CHOIR_ERR_IO; i++) { /* others may take the port */
        char dest[32];
        port = free_port();
        snprintf(dest, sizeof dest, "metrics::%d", port);
        status = choir_log_open(dest, choir_log_defaults(), &log);
    }
    if (status == CHOIR_ERR_UNSUPPORTED)
        skip();
    ok(status);
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++)
        if (status_for(port, cases[i].host) != cases[i].status)
            fail_msg("expected %d for '%s'", cases[i].status, cases[i].host);
    ok(choir_log_close(log));
}

/* --- MLflow's files --- */

static void mlflow_goes_on(void **state)
{
    choir_logger *log = open_log("mlflow", "m", 0, false);
    ok(choir_log_param(log, "lr", "0.1"));
    log_steps(log, 1, 5);
    ok(choir_log_close(log));
    log = open_log("mlflow", "m", 2, true);
    log_steps(log, 3, 4);
    ok(choir_log_close(log));
    char command[256];
    snprintf(command, sizeof command,
        "cd %s/m/*/*/ && cat params/lr && cut -d' ' -f3 "
        "metrics/loss | tr '\\n' ' ' && grep status meta.yaml",
        folder);
    FILE *f = popen(command, "r");
    char text[256] = "";
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    pclose(f);
    assert_string_equal(text, "0.11 2 3 4 status: 3\n");
}

/* --- bytes --- */

#ifdef CHOIR_HAVE_PROTOBUF
static uint64_t little(const char *at, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;)
        x = x << 8 | (unsigned char)at[i];
    return x;
}

static uint32_t masked(const char *bytes, size_t count)
{
    uint32_t c = choir__crc32c(bytes, count);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* Returns the only file in a folder whose name begins so. */
static char *only_file(const char *in, const char *begin)
{
    static char found[512];
    DIR *d = opendir(at("%s", in));
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, begin, strlen(begin))) {
            snprintf(found, sizeof found, "%s/%s/%s", folder, in, e->d_name);
            count++;
        }
    closedir(d);
    assert_int_equal(count, 1);
    return found;
}

static void tensorboard_has_records(void **state)
{
    assert_int_equal(choir__crc32c("123456789", 9), 0xe3069283); /* the published check value */
    choir_logger *log = open_log("tensorboard", "t", 0, false);
    const float values[] = {-1, 0, 0, 2.5f, INFINITY};
    ok(choir_log_param(log, "lr", "0.1"));
    log_steps(log, 1, 3);
    ok(choir_log_text(log, 3, "sample", "so \xff"));
    assert_fails(choir_log_text(log, -1, "sample", "x"), CHOIR_ERR_ARGUMENT,
        "expected a step of at least 0, got -1");
    ok(choir_log_histogram(log, 3, "w", values, 5));
    ok(choir_log_close(log));
    size_t bytes, at = 0;
    char *text = contents(only_file("t", "events.out.tfevents."), &bytes);
    int records = 0, losses = 0, histograms = 0;
    for (; at < bytes; records++) {
        size_t length = little(text + at, 8);
        assert_true(at + length + 16 <= bytes);
        assert_int_equal(little(text + at + 8, 4), masked(text + at, 8));
        assert_int_equal(little(text + at + 12 + length, 4), masked(text + at + 12, length));
        ChoirTb__Event *e =
            choir_tb__event__unpack(NULL, length, (const uint8_t *)text + at + 12);
        assert_non_null(e);
        for (size_t i = 0;
             e->what_case == CHOIR_TB__EVENT__WHAT_SUMMARY && i < e->summary->n_value; i++) {
            const ChoirTb__Summary__Value *v = e->summary->value[i];
            losses += !strcmp(v->tag, "train/loss") && v->simple_value == 1.1f / (float)e->step;
            if (v->value_case == CHOIR_TB__SUMMARY__VALUE__VALUE_HISTO) {
                histograms++;
                assert_true(v->histo->num == 4 && v->histo->min == -1 && v->histo->max == 2.5);
                double sum = 0;
                for (size_t k = 0; k < v->histo->n_bucket; k++)
                    sum += v->histo->bucket[k];
                assert_true(sum == 4);
            }
        }
        choir_tb__event__free_unpacked(e, NULL);
        at += length + 16;
    }
    assert_int_equal(records, 2 + 1 + 3 + 1 + 1 + 1);
    assert_int_equal(losses, 3);
    assert_int_equal(histograms, 1);
    free(text);
}

/* Readers take files in the order of their names: of one second, and after the clock was turned
 * back, the newer file still comes last. */
static void tensorboard_files_are_in_order(void **state)
{
    ok(choir_log_close(open_log("tensorboard", "o", 0, false)));
    char later[64];
    snprintf(later, sizeof later, "events.out.tfevents.%010lld.zzz.99999999.000",
        (long long)time(NULL) + 1000);
    fclose(fopen(at("o/%s", later), "w"));
    ok(choir_log_close(open_log("tensorboard", "o", 4, true)));
    int behind = 0, count = 0;
    DIR *d = opendir(at("%s", "o"));
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') {
            behind += strcmp(e->d_name, later) > 0;
            count++;
        }
    closedir(d);
    assert_int_equal(count, 3);
    assert_int_equal(behind, 1);
}

/* People look at validations, losses and rates first: TensorBoard sorts tags by their names. */
static void tensorboard_groups_tags(void **state)
{
    static const char *const names[] = {"data_s", "device/0/cpu:0/busy", "items", "items_per_s",
        "loss", "mine/own", "own", "step_s"};
    static const char *const tags[] = {"wait/data_s", "use/0/cpu:0/busy", "train_speed/items",
        "train_speed/items_per_s", "train/loss", "mine/own", "train/own", "train_speed/step_s",
        "eval/loss", "eval/f1", "wait/eval_s", "eval/data_s", "eval/metric"};
    choir_logger *log = open_log("tensorboard", "g", 0, false);
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        ok(choir_log_number(log, names[i], 1));
    ok(choir_log_step(log, 1));
    ok(choir_log_event(
        log, 1, "eval", "{\"loss\":2, \"metric\":0.5, \"metric_name\":\"f1\", \"eval_s\":3}"));
    ok(choir_log_event(log, 2, "eval", "{\"metric\":0.5, \"metric_name\":\"data_s\"}"));
    ok(choir_log_event(log, 3, "eval", "{\"metric\":0.5}"));
    ok(choir_log_close(log));
    size_t bytes, seen = 0;
    char *text = contents(only_file("g", "events.out.tfevents."), &bytes);
    for (size_t at = 0, length; at < bytes; at += length + 16) {
        length = little(text + at, 8);
        ChoirTb__Event *e =
            choir_tb__event__unpack(NULL, length, (const uint8_t *)text + at + 12);
        assert_non_null(e);
        size_t count = e->what_case == CHOIR_TB__EVENT__WHAT_SUMMARY ? e->summary->n_value : 0;
        for (size_t i = 0; i < count; i++, seen++) {
            assert_true(seen < CHOIR_COUNT(tags));
            assert_string_equal(e->summary->value[i]->tag, tags[seen]);
        }
        choir_tb__event__free_unpacked(e, NULL);
    }
    assert_int_equal(seen, CHOIR_COUNT(tags));
    free(text);
}

/* Records of all lengths cross the ends of blocks. */
static void wandb_has_blocks(void **state)
{
    choir_logger *log = open_log("wandb", "w", 0, false);
    char name[201];
    for (int step = 1; step <= 900; step++) {
        memset(name, 'n', sizeof name);
        name[1 + step % 200] = '\0';
        ok(choir_log_number(log, name, step));
        ok(choir_log_step(log, step));
    }
    ok(choir_log_number(log, "loss", NAN));
    ok(choir_log_step(log, 901));
    ok(choir_log_close(log));
    char run[512];
    snprintf(run, sizeof run, "w/%s", strrchr(only_file("w", "offline-run-"), '/') + 1);
    size_t bytes, at = 7;
    char *text = contents(only_file(run, "run-"), &bytes);
    assert_memory_equal(text, ":W&B\xe1\xbe", 7);
    int whole = 0, begun = 0, ended = 0;
    while (at < bytes) {
        size_t left = 32768 - at % 32768;
        if (left < 7) {
            at += left;
            continue;
        }
        size_t length = little(text + at + 4, 2);
        assert_true(length + 7 <= left && at + 7 + length <= bytes);
        whole += text[at + 6] == 1;
        begun += text[at + 6] == 2;
        ended += text[at + 6] == 4;
        at += 7 + length;
    }
    assert_true(begun > 0);
    assert_int_equal(begun, ended);
    assert_int_equal(whole + begun, 1 + 1 + 901 + 1 + 1);
    assert_non_null(memmem(text, bytes, "NaN", 3)); /* a number, as json.loads() reads it */
    assert_null(memmem(text, bytes, "\"NaN\"", 5));
    free(text);
}
#endif

static void metrics_are_open(void **state)
{
    choir__gauge_list list = {0};
    const choir__number numbers[] = {{"loss", 0.1}, {"device/cpu:0/bytes", 5},
        {"eval/loss", NAN}, {"device/cpu:1/bytes", 6}};
    const choir__row row = {3, 0, CHOIR_COUNT(numbers), numbers};
    json_t *params = json_pack("{s:s, s:f}", "model", "a\"b", "weight-decay", 0.5);
    choir__text_buffer page = {0};
    choir__gauges_take(&list, &row);
    choir__gauges_take(&list, &row);
    choir__openmetrics(&list, params, &page);
    assert_string_equal(page.bytes,
        "# TYPE choir_run info\n"
        "choir_run_info{model=\"a\\\"b\",weight_decay=\"0.5\"} 1\n"
        "# TYPE choir_step gauge\nchoir_step 3\n"
        "# TYPE choir_loss gauge\nchoir_loss 0.1\n"
        "# TYPE choir_device_bytes gauge\nchoir_device_bytes{device=\"cpu:0\"} 5\n"
        "choir_device_bytes{device=\"cpu:1\"} 6\n"
        "# TYPE choir_eval_loss gauge\nchoir_eval_loss NaN\n"
        "# EOF\n");
    choir__text_buffer_free(&page);
    choir__gauges_free(&list);
    json_decref(params);
}

/* The rate of a page is the mean since the one before, not that of the last step. */
static void rates_are_means(void **state)
{
    choir__gauge_list list = {0};
    choir__text_buffer page = {0};
    const double rates[] = {100, 25, 50};
    for (int64_t i = 0; i < 3; i++) {
        const choir__number numbers[] = {{"items_per_s", rates[i]}, {"step_s", 100 / rates[i]}};
        const choir__row row = {i + 1, 0, CHOIR_COUNT(numbers), numbers};
        choir__gauges_take(&list, &row);
        if (i == 1) /* 200 items in 5 s */
            choir__openmetrics(&list, NULL, &page);
        assert_true(i != 1 || strstr(page.bytes, "choir_items_per_s 40\n"));
    }
    for (int again = 0; again < 2; again++) { /* no step since then: the same */
        choir__openmetrics(&list, NULL, &page);
        assert_non_null(strstr(page.bytes, "choir_items_per_s 50\n"));
    }
    choir__text_buffer_free(&page);
    choir__gauges_free(&list);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(texts_become_json),
        cmocka_unit_test(destinations_are_checked),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(others_go_on),
        cmocka_unit_test(removed_files),
        cmocka_unit_test(csv_goes_on),
        cmocka_unit_test(csv_of_a_cut_header),
        cmocka_unit_test(csv_widens),
        cmocka_unit_test(run_folder_goes_on),
        cmocka_unit_test(other_names_read_no_metrics),
        cmocka_unit_test(mlflow_goes_on),
#ifdef CHOIR_HAVE_PROTOBUF
        cmocka_unit_test(tensorboard_has_records),
        cmocka_unit_test(tensorboard_groups_tags),
        cmocka_unit_test(tensorboard_files_are_in_order),
        cmocka_unit_test(wandb_has_blocks),
#endif
        cmocka_unit_test(metrics_are_open),
        cmocka_unit_test(rates_are_means),
    };
    for (size_t i = 0; i < CHOIR_COUNT(tests); i++) {
        tests[i].setup_func = make_folder;
        tests[i].teardown_func = remove_all;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
