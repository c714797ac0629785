/* Passwords are taken out of URLs wherever they stand in a text, and nothing else is. */

#include <stdlib.h>

#include "check.h"
#include "base/base.h"
#include "base/secret.h"

static void hidden(void **state)
{
    static const char *const texts[][2] = {
        {"http://joe:hunter2@host:1/a", "http://joe@host:1/a"},
        {"see 'mlflow:http://joe:p@ss:w@host' there", "see 'mlflow:http://joe@host' there"},
        {"https://joe:a/b@host/x", "https://joe@host/x"},
        {"http://joe:@host", "http://joe@host"},
        {"http://:pw@host", "http://@host"},
        {"postgresql://me:a%40b@h1,h2:5432/db?x=1", "postgresql://me@h1,h2:5432/db?x=1"},
        {"postgresql://h/db?password=s&user=me", "postgresql://h/db?password=&user=me"},
        {"postgresql://h/db?user=me&password=s", "postgresql://h/db?user=me&password="},
        {"http://h/?token=s&a=1", "http://h/?token=&a=1"},
        {"http://h/?a=1&api_key=s", "http://h/?a=1&api_key="},
        {"a://u:p@h b://v:q@i", "a://u@h b://v@i"},
        {"[\"http://u:p@h\",\"http://v:q@i\"]", "[\"http://u@h\",\"http://v@i\"]"},
        {"http://me:pa'ss@host/x", "http://me@host/x"},
        {"in 'mlflow:https://me:a`b@host'", "in 'mlflow:https://me@host'"},
        {"['http://u:p@h','http://v:q@i']", "['http://u@h','http://v@i']"},
        {"db://h/d?password=a'b&x=1", "db://h/d?password=&x=1"},
        {"db://h/d?password=a'b", "db://h/d?password="},
        {"'db://h/d?password=a'b', 1", "'db://h/d?password=', 1"},
        {"postgresql:/me:pw@host", "postgresql:/me@host"},
        {"see postgresql:/me:pw@host/db: gone", "see postgresql:/me@host/db: gone"},
        /* nothing is hidden in these */
        {"'http://h:80', 'me@h'", "'http://h:80', 'me@h'"},
        {"sqlite:/a/b:c@d", "sqlite:/a/b:c@d"},
        {"http://host:8080/path@v2", "http://host:8080/path@v2"},
        {"http://[::1]:80/@x", "http://[::1]:80/@x"},
        {"tcp://10.0.0.1:29500", "tcp://10.0.0.1:29500"},
        {"http://joe@host", "http://joe@host"},
        {"a:b@c", "a:b@c"},
        {"://", "://"},
        {"", ""},
    };
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++) {
        char *text = choir__hide_passwords(choir__strdup(texts[i][0]));
        assert_string_equal(text, texts[i][1]);
        free(text);
    }
    choir__error(CHOIR_ERR_IO, "%s does not answer", texts[0][0]);
    assert_string_equal(choir_error_message(), "http://joe@host:1/a does not answer");
}

static void lacking(void **state)
{
    assert_true(choir__lacks_password("http://joe@host"));
    assert_false(choir__lacks_password("http://joe:x@host"));
    assert_false(choir__lacks_password("http://joe:@host"));
    assert_false(choir__lacks_password("http://host:80"));
    assert_false(choir__lacks_password("folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden),
        cmocka_unit_test(lacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
