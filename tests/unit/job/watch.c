/* The page's view of a run: tables that keep any number of rows in bounded memory, their news
 * for a reader, and files of lines that grow, are cut, or are replaced. */
#include "folder_fixture.h"
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "cli/watch/table.h"
#include "cli/watch/tail.h"

/* --- tables --- */

static double value_of(int64_t row)
{
    return row % 97 == 13 ? (double)NAN : (double)((row * 7919) % 1000) - 500;
}

static void add_row(choir__watch_table *t, int64_t row)
{
    choir__watch_table_row(t, (choir__watch_x){(double)row, 0.5 * (double)row, (double)NAN});
    choir__watch_table_put(t, "loss", 4, value_of(row), 0);
    if (row % 10 == 0) /* as the devices of other ranks */
        choir__watch_table_put(t, "seldom", 6, 1, 1);
}

/* Each bucket has the mean, the lowest and the highest of its own rows. */
static void check_buckets(const choir__watch_table *t)
{
    int64_t row = 1;
    assert_in_range(t->buckets, 1, CHOIR__WATCH_BUCKETS);
    for (int i = 0; i < t->buckets; i++) {
        const choir__watch_cell *cell = &t->columns[0].cells[i];
        int64_t end = choir__min(row + t->each - 1, t->rows), count = 0;
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (; row <= end; row++) {
            double x = value_of(row);
            if (isnan(x))
                continue;
            count++;
            sum += x;
            low = fmin(low, x);
            high = fmax(high, x);
        }
        assert_int_equal((int64_t)t->x[i].step, end);
        assert_int_equal(cell->count, count);
        assert_true(cell->sum == sum);
        assert_true(!count || ((double)cell->low == low && (double)cell->high == high));
    }
    assert_int_equal(row, t->rows + 1);
}

static void buckets_have_their_rows(void **state)
{
    static choir__watch_table t;
    for (int64_t row = 1; row <= 20000; row++) {
        add_row(&t, row);
        if (row < 3 || row % 767 < 3 || row == 20000)
            check_buckets(&t);
    }
    assert_int_equal(t.each, 32);
    assert_int_equal(t.column_count, 2);
    int64_t seldom = 0;
    for (int i = 0; i < t.buckets; i++)
        seldom += t.columns[1].cells[i].count;
    assert_int_equal(seldom, 2000);
    choir__watch_table_free(&t);
}

static void columns_are_bounded(void **state)
{
    static choir__watch_table t;
    char name[32];
    for (int row = 1; row <= 2; row++) {
        choir__watch_table_row(&t, (choir__watch_x){row, row, row});
        for (int i = 0; i < CHOIR__WATCH_COLUMNS + 5; i++) {
            int length = snprintf(name, sizeof name, "column %d", i);
            int at = choir__watch_table_put(&t, name, (size_t)length, i, i);
            assert_int_equal(at, i < CHOIR__WATCH_COLUMNS ? i : -1);
        }
    }
    assert_int_equal(t.column_count, CHOIR__WATCH_COLUMNS);
    assert_int_equal(t.left_out, 10);
    choir__watch_table_free(&t);
}

static bool is_ranged(const char *name)
{
    return strcmp(name, "seldom") != 0;
}

/* Puts the values of `news` in place of those of `all` from a bucket on. */
static void replace_from(json_t *all, size_t from, const json_t *news)
{
    while (json_array_size(all) > from)
        json_array_remove(all, json_array_size(all) - 1);
    assert_int_equal(json_array_size(all), from);
    assert_int_equal(json_array_extend(all, (json_t *)news), 0);
}

static json_t *list_in(json_t *object, const char *name)
{
    json_t *list = json_object_get(object, name);
    if (!list) {
        list = json_array();
        json_object_set_new(object, name, list);
    }
    return list;
}

static json_t *news_of(const choir__watch_table *t, choir__watch_seen *seen)
{
    choir__text_buffer text = {0};
    choir__text_buffer_put(&text, "{");
    json_t *news = NULL;
    if (choir__watch_table_news(t, seen, is_ranged, &text)) {
        choir__text_buffer_put(&text, "}");
        news = json_loads(text.bytes, 0, NULL);
        assert_non_null(news);
    } else {
        assert_string_equal(text.bytes, "{");
    }
    choir__text_buffer_free(&text);
    return news;
}

static void take_news(json_t *reader, const json_t *news)
{
    size_t from = (size_t)json_integer_value(json_object_get(news, "from"));
    const char *name, *kind;
    json_t *column, *values;
    replace_from(list_in(reader, "step"), from, json_object_get(news, "step"));
    json_object_foreach(json_object_get(news, "columns"), name, column)
    {
        char full[64];
        assert_int_equal(json_object_size(column), is_ranged(name) ? 3 : 1);
        json_object_foreach(column, kind, values)
        {
            snprintf(full, sizeof full, "%s %s", name, kind);
            replace_from(list_in(reader, full), from, values);
        }
    }
}

/* A reader that takes news now and then has what one who comes in the end gets. */
static void news_add_up(void **state)
{
    static choir__watch_table t;
    choir__watch_seen seen = {0}, late = {0};
    json_t *reader = json_object(), *whole = json_object();
    int64_t small = INT64_MAX;
    for (int64_t row = 1; row <= 5000; row++) {
        add_row(&t, row);
        if (row % 37 && row != 5000)
            continue;
        json_t *news = news_of(&t, &seen);
        take_news(reader, news);
        small = choir__min(small, (int64_t)json_array_size(json_object_get(news, "step")));
        json_decref(news);
        assert_null(news_of(&t, &seen));
    }
    json_t *all = news_of(&t, &late);
    take_news(whole, all);
    assert_true(json_equal(reader, whole));
    assert_in_range(small, 1, 38);
    json_decref(all);
    json_decref(whole);
    json_decref(reader);
    choir__watch_table_free(&t);
}

/* --- files of lines --- */

static char path[96];

static int set_up(void **state)
{
    int bad = make_folder(state);
    strcpy(path, at("lines"));
    return bad;
}

static int tear_down(void **state)
{
    unlink(path);
    return remove_folder(state);
}

static void write_file(const char *mode, const char *text, size_t bytes)
{
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void add_line(void *arg, char *line, size_t bytes)
{
    assert_int_equal(strlen(line), bytes);
    choir__text_buffer_add(arg, line, bytes);
    choir__text_buffer_put(arg, "|");
}

/* However a text is cut, its whole lines come once, in order. */
static void whole_lines_come_once(void **state)
{
    static const char text[] = "one\ntwo\n\nthree\n{\"four\":4}\nfive";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        choir__tail tail = {.path = path};
        choir__text_buffer lines = {0};
        unlink(path);
        assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_IDLE);
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t bytes = (size_t)choir__min((int64_t)piece, (int64_t)(sizeof text - 1 - at));
            write_file("a", text + at, bytes);
            assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_IDLE);
        }
        assert_string_equal(lines.bytes, "one|two||three|{\"four\":4}|");
        choir__text_buffer_free(&lines);
    }
}

static void other_files_begin_anew(void **state)
{
    static const char *const after[] = {"new\n", "ONE\ntwo\n", "ONE\ntwo\nthree\n"};
    for (size_t i = 0; i < 2 * CHOIR_COUNT(after); i++) {
        const char *text = after[i / 2];
        choir__tail tail = {.path = path};
        choir__text_buffer lines = {0};
        unlink(path);
        write_file("w", "one\ntwo\n", 8);
        assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_IDLE);
        if (i % 2) { /* another file takes its place, while the old one is held */
            int held = open(path, O_RDONLY | O_CLOEXEC);
            unlink(path);
            write_file("w", text, strlen(text));
            close(held);
        } else {
            write_file("w", text, strlen(text));
        }
        assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_ANEW);
        assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_ANEW);
        choir__tail_rewind(&tail);
        choir__text_buffer_clear(&lines);
        assert_int_equal(choir__tail_read(&tail, add_line, &lines), CHOIR__TAIL_IDLE);
        assert_int_equal(lines.used, strlen(text));
        choir__text_buffer_free(&lines);
    }
}

static void count_line(void *arg, char *line, size_t bytes)
{
    ++*(int *)arg;
}

/* A line of many megabytes is left out, and those around it come; a large file in parts. */
static void long_lines_are_left_out(void **state)
{
    const size_t huge = 12 * 1024 * 1024;
    char *text = malloc(huge);
    choir__tail tail = {.path = path};
    int lines = 0, rounds = 0;
    assert_non_null(text);
    unlink(path);
    write_file("w", "one\n", 4);
    memset(text, 'x', huge);
    write_file("a", text, huge);
    write_file("a", "\ntwo\n", 5);
    memset(text, '\n', huge);
    write_file("a", text, huge);
    while (choir__tail_read(&tail, count_line, &lines) == CHOIR__TAIL_MORE)
        rounds++;
    assert_int_equal(lines, 2 + (int)huge);
    assert_in_range(rounds, 2, 20);
    free(text);
}

static void only_files_are_read(void **state)
{
    choir__tail tail = {.path = path};
    int lines = 0;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(choir__tail_read(&tail, count_line, &lines), CHOIR__TAIL_IDLE);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(choir__tail_read(&tail, count_line, &lines), CHOIR__TAIL_IDLE);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(lines, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_have_their_rows),
        cmocka_unit_test(columns_are_bounded),
        cmocka_unit_test(news_add_up),
        cmocka_unit_test_setup_teardown(whole_lines_come_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_files_begin_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_lines_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_files_are_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
