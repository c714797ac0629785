/* Text that is not ours, as it is printed: words, cells of tables, streams in pieces. */
#include <stdlib.h>

#include "check.h"
#include "base/utf8.h"
#include "line/printed.h"
#include "line/terminal.h"

static void assert_cell(const char *text, const char *want)
{
    char got[200] = "";
    FILE *out = fmemopen(got, sizeof got, "w");
    choir__print_cell(out, text);
    fclose(out);
    assert_string_equal(got, want);
}

static void test_cells(void **state)
{
    const char *same[] = {"", "k", "-5", "+1e-3", "-0.5", "-inf", "1=1", "a-b", "lr@x"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_cell(same[i], same[i]);
    assert_cell("=1+1", "'=1+1");
    assert_cell("-x", "'-x");
    assert_cell("-5 x", "'-5 x");
    assert_cell("-nan(cmd)", "'-nan(cmd)");
    assert_cell("@sum", "'@sum");
    assert_cell("\t=1", "'\t=1");
    assert_cell("=a,\"b\"", "\"'=a,\"\"b\"\"\"");
    assert_cell("two\nlines", "\"two\nlines\"");
    assert_cell("a\033[2J\r", "a?[2J?");
}

static void test_words(void **state)
{
    char *word = choir__printed("a\n\tb\033\xe2\x80\xae");
    assert_string_equal(word, "a??b????");
    free(word);
    assert_true(choir__utf8_is_clean("\xc3\xa9", 2));
    assert_true(choir__utf8_is_clean("\n", 1));
    assert_false(choir__utf8_is_clean("\033", 1));
    assert_false(choir__utf8_is_clean("\xc2\x9b", 2));
}

/* A text that is cut in two, anywhere, comes out as the whole does. */
static void test_streams(void **state)
{
    const char text[] = "\xc3\xa9\033[2J\xe2\x80\xae"
                        "\xf0\x9f\x99\x82 \xc2\x9b"
                        "1m\n",
               want[] = "\xc3\xa9?[2J???"
                        "\xf0\x9f\x99\x82 ??"
                        "1m\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        char got[sizeof text] = "";
        FILE *to = fmemopen(got, sizeof got, "w"), *stream = choir__printed_stream(to);
        fwrite(text, 1, cut, stream);
        fflush(stream);
        fwrite(text + cut, 1, sizeof text - 1 - cut, stream);
        fclose(stream);
        fclose(to);
        assert_string_equal(got, want);
    }
    char got[8] = "";
    FILE *to = fmemopen(got, sizeof got, "w"), *stream = choir__printed_stream(to);
    fwrite("a\0b\xe2\x80", 1, 5, stream); /* it ends within a character */
    fclose(stream);
    fclose(to);
    assert_string_equal(got, "a?b??");
}

/* Tables, folded messages and pictures count the columns of a letter alike. */
static void letters_have_one_width(void **state)
{
    const struct {
        const char *text;
        int columns;
    } cases[] = {{"", 0}, {"Größe", 5}, {"⠿⣀", 2}, {"日本", 4}, {"한", 2}, {"😀!", 3},
        {"\xff\xe6\x97", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(
            choir__columns(cases[i].text, strlen(cases[i].text)), cases[i].columns);
    const char *line = "日本日本 日本日本 end"; /* 8 + 1 + 8 + 4 columns */
    char *folded = choir__fold(line, strlen(line), 12);
    assert_string_equal(folded, "日本日本\n  日本日本\n  end");
    free(folded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells),
        cmocka_unit_test(test_words), cmocka_unit_test(test_streams),
        cmocka_unit_test(letters_have_one_width)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
