/* Records: JSON in place, rows of tables, parts of files that end within a record, and the
 * messages for wrong records. */

#include "folder_fixture.h"
#include <choir/status.h>
#include "data/records.h"

/* Writes a file and opens it; the file is removed at once. */
static choir_status open_text(
    choir__data_records *r, const char *name, const char *text, size_t bytes, char *path)
{
    sprintf(path, "%s/%s", folder, name);
    spit(path, text, bytes);
    choir_status status = choir__data_records_open(r, path);
    unlink(path);
    return status;
}

static const choir__json *next(choir__data_records *r)
{
    const choir__json *record;
    ok(choir__data_records_next(r, &record));
    return record;
}

static void assert_text(const choir__json *record, const char *name, const char *expected)
{
    const choir__json *value = choir__json_get(record, name);
    assert_true(choir__json_is(value, CHOIR__JSON_STRING));
    assert_string_equal(value->text, expected);
    assert_int_equal(value->bytes, strlen(expected));
}

/* The parser takes eight bytes at a time, so each other character stands at each place. */
static void strings_at_each_place(void **state)
{
    static const char *const forms[][2] = {{"\\n", "\n"}, {"\\u6587", "\xe6\x96\x87"},
        {"\xe6\x96\x87", "\xe6\x96\x87"}, {"\xc3\xb6", "\xc3\xb6"}, {"\\\"", "\""},
        {"\\uD834\\uDD1E", "\xf0\x9d\x84\x9e"}};
    const char *letters = "abcdefghijklmnopqrstuvwxyz", *where;
    enum { FORMS = sizeof forms / sizeof *forms };
    choir__json_nodes nodes = {0};
    for (int before = 0; before < 18; before++)
        for (int between = 0; between < 18; between++)
            for (int f = 0; f < FORMS * FORMS; f++) {
                const char *const *a = forms[f % FORMS], *const *b = forms[f / FORMS];
                char text[128], expected[128];
                int n = sprintf(text, "\"%.*s%s%.*s%s%s\"", before, letters, a[0], between,
                    letters, b[0], b[0]);
                sprintf(expected, "%.*s%s%.*s%s%s", before, letters, a[1], between, letters,
                    b[1], b[1]);
                assert_null(choir__json_parse(&nodes, text, text + n, &where));
                assert_string_equal(nodes.node[0].text, expected);
                assert_int_equal(nodes.node[0].bytes, strlen(expected));
            }
    choir__json_nodes_free(&nodes);
}

static void values(void **state)
{
    char path[64];
    choir__data_records r;
    static const char text[] =
        "\xef\xbb\xbf{\"a\": \"x\\n\\\"\\u00e9\\uD834\\uDD1E\xc3\xa4 longer than eight bytes\\\\\","
        " \"a\": \"again\", \"b\" : [1, -2.5e3, true, null, [], {}]}\n"
        "\n  \t\r\n{\"n\":9223372036854775807,\"m\":9223372036854775808}";
    ok(open_text(&r, "a.jsonl", text, strlen(text), path));
    const choir__json *record = next(&r), *list = choir__json_get(record, "b");
    int64_t number;
    assert_int_equal(record->count, 3);
    assert_text(record, "a", "again"); /* the last one */
    assert_string_equal(
        record[2].text, "x\n\"\xc3\xa9\xf0\x9d\x84\x9e\xc3\xa4 longer than eight bytes\\");
    assert_int_equal(list->count, 6);
    assert_int_equal(list->nodes, 7);
    const choir__json *entry = choir__json_first(list);
    assert_true(choir__json_integer(entry, &number) && number == 1);
    entry = choir__json_next(entry);
    assert_false(choir__json_integer(entry, &number));
    assert_true(choir__json_real(entry) == -2500);
    record = next(&r);
    assert_int_equal(r.at.line, 4);
    assert_true(choir__json_integer(choir__json_get(record, "n"), &number));
    assert_true(number == INT64_MAX);
    assert_false(choir__json_integer(choir__json_get(record, "m"), &number));
    assert_null(next(&r));
    assert_null(next(&r));
    choir__data_records_close(&r);
}

static void tables(void **state)
{
    char path[64];
    choir__data_records r;
    static const char text[] =
        "a,\"b \"\"2\"\"\"\r\n1,\"x\n\"\"y\"\", z\"\r\n\r\n,\n\"\",q\"q\"";
    ok(open_text(&r, "a.csv", text, strlen(text), path));
    const choir__json *record = next(&r);
    assert_text(record, "a", "1");
    assert_text(record, "b \"2\"", "x\n\"y\", z");
    assert_int_equal(r.at.line, 2);
    record = next(&r);
    assert_text(record, "a", "");
    assert_text(record, "b \"2\"", "");
    assert_int_equal(r.at.line, 5);
    record = next(&r);
    assert_text(record, "a", "");
    assert_text(record, "b \"2\"", "q\"q\"");
    assert_null(next(&r));
    choir__data_records_close(&r);
    ok(open_text(&r, "a.tsv", "a\tb\n\"1\t2\n", 9, path));
    assert_text(next(&r), "a", "\"1");
    assert_null(next(&r));
    choir__data_records_close(&r);
}

/* Long records cross the parts in which a file is read, at every kind of place. */
static void long_records(void **state)
{
    enum { RECORDS = 60 };
    char path[64];
    for (int kind = 0; kind < 2; kind++) {
        size_t used = 0, room = 1 << 23;
        char *text = malloc(room);
        if (kind)
            used += (size_t)sprintf(text, "t,n\n");
        for (int i = 0; i < RECORDS; i++) {
            size_t length = (size_t)i * 2711 + (i == 40 ? 600000 : 0);
            used += (size_t)sprintf(text + used, kind ? "\"" : "{\"t\":\"");
            for (size_t k = 0; k < length; k++)
                used += (size_t)sprintf(text + used,
                    k % 50 ? "%c"
                    : kind ? "\"\"\n"
                           : "\\\"\\n",
                    'a' + (int)(k % 26));
            used += (size_t)sprintf(text + used, kind ? "\",%d\n" : "\",\"n\":\"%d\"}\n", i);
        }
        choir__data_records r;
        ok(open_text(&r, kind ? "a.csv" : "a.jsonl", text, used, path));
        for (int i = 0; i < RECORDS; i++) {
            char number[12];
            sprintf(number, "%d", i);
            const choir__json *record = next(&r);
            assert_text(record, "n", number);
            const choir__json *t = choir__json_get(record, "t");
            size_t length = (size_t)i * 2711 + (i == 40 ? 600000 : 0);
            assert_int_equal(t->bytes, length + (length + 49) / 50);
            for (size_t k = 0, at = 0; k < length; k++, at++)
                if (k % 50)
                    assert_true(t->text[at] == 'a' + (int)(k % 26));
                else
                    assert_true(t->text[at] == '"' && t->text[++at] == '\n');
        }
        assert_null(next(&r));
        choir__data_records_close(&r);
        free(text);
    }
}

static void wrong_records(void **state)
{
    static const struct {
        const char *name, *text, *words;
    } wrong[] = {
        {"a.jsonl", "{}\n{\"a\": 1,}\n", "a.jsonl, line 2, column 9: expected another one"},
        {"a.jsonl", "{\"a\" 1}", "line 1, column 6: expected a colon"},
        {"a.jsonl", "{\"a\": \"x", "line 1, column 9: a string has no end"},
        {"a.jsonl", "{\"a\": \"\t\"}", "column 8: a control character"},
        {"a.jsonl", "{\"a\": \"\\x\"}", "column 9: unknown escape"},
        {"a.jsonl", "{\"a\": \"\\ud834\"}", "half of a character"},
        {"a.jsonl", "{\"a\": \"\\u0000\"}", "\\u0000 cannot be part"},
        {"a.jsonl", "{\"a\": \"\\u00g0\"}", "four hexadecimal digits"},
        {"a.jsonl", "{\"a\": \"abc\xff\"}", "column 11: expected UTF-8"},
        {"a.jsonl", "{\"a\": 01}", "column 8: expected a comma or the end of an object"},
        {"a.jsonl", "{\"a\": -}", "column 8: expected a digit"},
        {"a.jsonl", "{\"a\": nul}", "column 7: expected a value"},
        {"a.jsonl", "{\"a\": [1 2]}", "column 10: expected a comma or the end of an array"},
        {"a.jsonl", "{} {}", "column 4: expected the end behind the value"},
        {"a.jsonl", "[]", "line 1: expected an object"},
        {"a.jsonl", "{", "column 2: expected a comma or the end of an object"},
        {"a.jsonl", "{1:2}", "column 2: expected the name of a member"},
        {"a.csv", "a,b\n1,2\n1\n",
            "a.csv, line 3: expected 2 fields, as in the first row, got 1"},
        {"a.csv", "a,b\n1,2,3\n", "line 2: expected 2 fields, as in the first row, got 3"},
        {"a.csv", "a\n\n\"b\n", "line 3, column 1: a quoted field has no end"},
        {"a.csv", "a,b\n\"x\ny\",\"a\"b\n", "line 3, column 7: a quote ends within a field"},
        {"a.csv", "a\n1\n\xff\n", "line 3, column 1: expected UTF-8"},
    };
    char path[64];
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++) {
        choir__data_records r;
        const choir__json *record = NULL;
        choir_status status =
            open_text(&r, wrong[i].name, wrong[i].text, strlen(wrong[i].text), path);
        while (
            status == CHOIR_OK && (status = choir__data_records_next(&r, &record)) == CHOIR_OK)
            assert_non_null(record);
        assert_fails(status, CHOIR_ERR_FORMAT, wrong[i].words);
        choir__data_records_close(&r);
    }
    char *deep = calloc(2, 2000);
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', 1500);
    choir__data_records r;
    const choir__json *record;
    ok(open_text(&r, "a.jsonl", deep, strlen(deep), path));
    assert_fails(choir__data_records_next(&r, &record), CHOIR_ERR_FORMAT, "nested too deeply");
    choir__data_records_close(&r);
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_at_each_place),
        cmocka_unit_test(values),
        cmocka_unit_test(tables),
        cmocka_unit_test(long_records),
        cmocka_unit_test(wrong_records),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
