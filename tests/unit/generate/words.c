/* Text of tokens while it is written: characters whose bytes are several tokens, bytes that are
 * no character, and stop strings across tokens. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "generate/words.h"

/* Adds a token; the text that becomes certain by it is `shown`. */
static void add(choir__words *w, const char *token, bool stops, const char *shown)
{
    const char *text;
    assert_int_equal(choir__words_add(w, token, strlen(token)), stops);
    const size_t bytes = choir__words_next(w, &text);
    assert_int_equal(bytes, strlen(shown));
    assert_memory_equal(text, shown, bytes);
}

static void end(choir__words *w, const char *shown, const char *all)
{
    const char *text;
    choir__words_end(w);
    assert_int_equal(choir__words_next(w, &text), strlen(shown));
    assert_string_equal(w->text, all);
    free(w->raw);
    free(w->text);
}

static void characters(void **state)
{
    choir__words w = {0};
    add(&w, "a\xf0\x9f", false, "a"); /* an emoji of two tokens, beside a letter */
    add(&w, "\x98", false, "");
    add(&w, "\x80!", false, "\xf0\x9f\x98\x80!");
    add(&w, "\xff", false, "\xef\xbf\xbd");   /* never a character */
    add(&w, "\xe4z", false, "\xef\xbf\xbdz"); /* begun, and not ended */
    add(&w, "\xe4\xb8", false, "");
    end(&w, "\xef\xbf\xbd\xef\xbf\xbd",
        "a\xf0\x9f\x98\x80!\xef\xbf\xbd\xef\xbf\xbdz"
        "\xef\xbf\xbd\xef\xbf\xbd");
}

static void stops(void **state)
{
    static const char *const stop[] = {"\n\nUser:", "###"};
    choir__words w = {.stop = stop, .stops = 2};
    add(&w, "yes\n", false, "yes");
    add(&w, "\nno", false, "\n\nno");
    add(&w, "\n\nUs", false, "");
    add(&w, "er: hi", true, "");
    end(&w, "", "yes\n\nno");
    w = (choir__words){.stop = stop, .stops = 2};
    add(&w, "a#", false, "a");
    add(&w, "#b##", false, "##b");
    end(&w, "##", "a##b##"); /* no stop string after all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters),
        cmocka_unit_test(stops),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
