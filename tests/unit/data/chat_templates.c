/* Chat templates: the constructs of tests/golden/chats, whose texts transformers wrote;
 * messages for wrong and for hostile ones; the templates of folders. */

#include <sys/stat.h>
#include "folder_fixture.h"
#include <choir/chat.h>
#include "base/base.h"
#include "data/chats/chat.h"
#include "data/records.h"
#include "data/tokenizer/tokenizer.h"

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"

/* --- constructs --- */

static const char messages[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"T\"}]},"
    "{\"role\":\"assistant\",\"content\":\"hi\"}]}";

static void check_spans(const choir__json *marks, const choir__jinja_result *result)
{
    const choir__json *mark = choir__json_first(marks);
    assert_int_equal(marks->count, 2 * result->spans);
    for (size_t i = 0; i < marks->count; i++, mark = choir__json_next(mark)) {
        int64_t at;
        assert_true(choir__json_integer(mark, &at));
        assert_int_equal(at, i % 2 ? result->span[i / 2].to : result->span[i / 2].from);
    }
}

static choir_status check_one(
    void *arg, const choir__data_record_at *place, const choir__json *record)
{
    const choir__chat_input *input = arg;
    const choir__json *template = choir__json_get(record, "template"),
                      *text = choir__json_get(record, "text");
    choir_chat *chat;
    choir__jinja_result result = {0};
    ok(choir_chat_parse("it", template->text, template->bytes, NULL, &chat));
    if (choir__chat_render(chat, input, 0, &result) != CHOIR_OK)
        fail_msg("line %lld: %s", (long long)place->line, choir_error_message());
    if (result.bytes != text->bytes || memcmp(result.text, text->text, text->bytes) != 0)
        fail_msg("line %lld: %s\ngives %s\nand not %s", (long long)place->line, template->text,
            result.text, text->text);
    check_spans(choir__json_get(record, "spans"), &result);
    choir__jinja_result_free(&result);
    choir_chat_free(chat);
    return CHOIR_OK;
}

static void constructs_have_transformers_texts(void **state)
{
    choir__json_nodes nodes = {0};
    const char *where;
    char *copy = choir__strdup(messages);
    assert_null(choir__json_parse(&nodes, copy, copy + strlen(copy), &where));
    choir__chat_input input = {.messages = choir__json_get(nodes.node, "messages"), .count = 2};
    ok(choir__data_records_read(CHOIR_GOLDEN "/chats/constructs.jsonl", check_one, &input));
    choir__json_nodes_free(&nodes);
    free(copy);
}

/* --- wrong ones --- */

/* Returns the status of a template, rendered for a conversation. */
static choir_status render(const char *template, const char *variables)
{
    choir_chat *chat;
    char *text = NULL;
    size_t bytes;
    choir_status status = choir_chat_parse("t.jinja", template, strlen(template), NULL, &chat);
    if (status != CHOIR_OK)
        return status;
    status = choir_chat_render(chat, variables, 0, &text, &bytes);
    free(text);
    choir_chat_free(chat);
    return status;
}

static void wrong_templates_are_named(void **state)
{
    static const struct {
        const char *template, *message;
    } wrong[] = {
        {"a\n{% include 'x' %}",
            "t.jinja, line 2: the tag {% include %} is unknown: choose one"},
        {"{% if x %}", "line 1: a tag has no end {% endif %}"},
        {"\n{{ x ", "line 2: {{ has no end }}"},
        {"{# x", "the comment {# has no end #}"},
        {"{{ 'x }}", "a text has no closing quote"},
        {"{{ 1 + }}", "expected an expression, got '}}'"},
        {"{{ (1] }}", "unexpected ']'"},
        {"{% set true = 1 %}", "expected a variable, got 'true'"},
        {"{% break %}", "{% break %} stands in no loop"},
        {"\n\n{{ 'a' | sparkle }}", "line 3: unknown filter 'sparkle'"},
        {"{{ 1 is sparkling }}", "unknown test 'sparkling'"},
        {"{{ 'a' + 1 }}", "'+' is not defined for 'str' and 'int'"},
        {"{{ x.y }}", "'x' is undefined, and has no attribute 'y'"},
        {"{{ x + 1 }}", "'x' is undefined"},
        {"{{ messages[0].sing() }}", "has no attribute 'sing', and cannot be called"},
        {"{{ messages.append(1) }}",
            "'append' would change a list, which templates may not do"},
        {"{{ messages[0].update({}) }}", "'update' would change a dict"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 9 ** 99 }}", "a number of more than 64 bits"},
        {"{{ [1] | tojson(indent='x', bad=1) }}", "tojson: expected the arguments"},
        {"{{ 'a' | replace('b') }}", "replace: missing the argument 'new'"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm': got an argument without"},
        {"{% set x.y = 1 %}", "'x' is no namespace"},
        {"{{ raise_exception('Roles must alternate') }}",
            "line 1: the chat template refuses the conversation: Roles must alternate"},
        {"{{ strftime_now('%Q') }}", "strftime_now: the form %Q is outside"},
        {"{{ \"\xff\" }}", "the template is not UTF-8"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++)
        assert_fails(render(wrong[i].template, HELLO), CHOIR_ERR_FORMAT, wrong[i].message);
    assert_fails(render("", "[]"), CHOIR_ERR_ARGUMENT, "expected \"messages\" to be an array");
    assert_fails(render("", "{\"messages\":[]}"), CHOIR_ERR_ARGUMENT, "one or more objects");
    assert_fails(render("", "{"), CHOIR_ERR_ARGUMENT, "no JSON");
    assert_fails(render("", "{\"messages\":[1]}"), CHOIR_ERR_FORMAT, "messages to be objects");
}

/* Work, memory and depth have limits, whatever the template. */
static void hostile_templates_end(void **state)
{
    static const char *const hostile[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        ("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
         "{% endfor %}"),
        "{{ 'a' * 999999999999 }}", "{{ [0] * 999999999999 }}",
        "{{ 'a' | center(99999999999) }}", "{{ '%999999999s' % 'x' }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
        "{{ range(999999999999) }}", "{{ 'x'.ljust(99999999999) }}"};
    for (size_t i = 0; i < CHOIR_COUNT(hostile); i++)
        if (render(hostile[i], HELLO) != CHOIR_ERR_FORMAT && i != 5)
            fail_msg("%s does not fail", hostile[i]);
    enum { DEEP = 100000 };
    static const char *const opens[] = {"(", "[", "not ", "-", "{1:", "x if y else "};
    for (size_t i = 0; i < CHOIR_COUNT(opens); i++) {
        size_t bytes = strlen(opens[i]);
        char *deep = choir__calloc(DEEP * bytes + 3, 1);
        memcpy(deep, "{{", 2);
        for (size_t k = 0; k < DEEP; k++)
            memcpy(deep + 2 + k * bytes, opens[i], bytes);
        assert_int_equal(render(deep, HELLO), CHOIR_ERR_FORMAT);
        free(deep);
    }
}

/* --- folders --- */

static void gives(const char *variables, const char *expected)
{
    choir_tokenizer *t;
    choir_chat *chat;
    char *text;
    size_t bytes;
    ok(choir_tokenizer_load(folder, &t));
    ok(choir_chat_of(t, &chat));
    ok(choir_chat_render(chat, variables, 1700000000, &text, &bytes));
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(expected));
    free(text);
    choir_chat_free(chat);
    choir_tokenizer_free(t);
}

static void folders_have_their_templates(void **state)
{
    choir_tokenizer *t;
    choir_chat *chat;
    put("choir_tokenizer.json", "{\"type\":\"bytes\"}");
    ok(choir_tokenizer_load(folder, &t));
    assert_fails(choir_chat_of(t, &chat), CHOIR_ERR_ARGUMENT, "has no chat template: neither");
    choir_tokenizer_free(t);
    put("chat_template.json", "{\"chat_template\":\"old {{ messages[0].role }}\"}");
    gives(HELLO, "old user");
    put("tokenizer_config.json",
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"chat_template\":["
        "{\"name\":\"tool_use\",\"template\":\"{{ tools | length }} tools\"},{\"name\":\"default\","
        "\"template\":\"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}\"}]}");
    gives(HELLO, "<s>Hello</s>");
    gives("{\"messages\":[{\"role\":\"user\"}],\"tools\":[{}]}", "1 tools");
    gives("{\"messages\":[{\"role\":\"user\"}],\"tools\":null,\"eos_token\":\"E\"}", "<s>E");
    put("chat_template.jinja",
        "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m }}{% endfor %}");
    gives("{\"messages\":[{\"role\":\"a\",\"content\":null,\"reasoning\":\"R\"}]}",
        "14 Nov 2023{'thinking': 'R', 'role': 'a', 'reasoning': 'R', 'reasoning_content': 'R'}");
    char *others = choir__format("%s/additional_chat_templates", folder);
    assert_int_equal(mkdir(others, 0777), 0);
    put("additional_chat_templates/rag.jinja", "{{");
    put("additional_chat_templates/tool_use.jinja", "{{ tools | length }} by a file");
    gives("{\"messages\":[{\"role\":\"user\"}],\"tools\":[{}]}", "1 by a file");
    gives(HELLO, "14 Nov 2023{'role': 'user', 'content': 'Hello'}");
    free(others);
    put("chat_template.jinja", "{{");
    ok(choir_tokenizer_load(folder, &t));
    assert_fails(
        choir_chat_of(t, &chat), CHOIR_ERR_FORMAT, "chat_template.jinja, line 1: {{ has");
    choir_tokenizer_free(t);
}

/* A folder may name another token as the end of a text than its template writes. */
static void answers_end_as_templates_say(void **state)
{
    static char *const names[] = {"<start>", "<end>", "</s>"};
    static const struct {
        const char *template, *end;
    } cases[] = {
        {"{% for m in messages %}<start>{{ m.role }}\n{{ m.content }}<end>\n{% endfor %}",
            "<end>"},
        {"{% for m in messages %}{{ m.content }} \n</s>{% endfor %}", "</s>"},
        {"{% for m in messages %}{{ m.content }}, he said<end>{% endfor %}", NULL},
        {"{% for m in messages %}{{ m.content }}{% endfor %}", NULL},
        {"{{ messages[0].content }}<end>", NULL},
        {"{{ raise_exception('only narrators') }}", NULL},
    };
    choir_tokenizer *bytes, *t;
    choir_chat *chat;
    ok(choir_tokenizer_bytes(&bytes));
    ok(choir__tokenizer_extend(bytes, names, 3, &t));
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        const char *text = cases[i].template;
        ok(choir_chat_parse("t", text, strlen(text), t, &chat));
        int64_t end = cases[i].end ? choir_tokenizer_id(t, cases[i].end) : -1;
        assert_int_equal(choir_chat_end(chat, t), end);
        assert_true(!cases[i].end || end >= 0);
        assert_int_equal(choir_chat_end(NULL, t), -1);
        assert_int_equal(choir_chat_end(chat, NULL), -1);
        choir_chat_free(chat);
    }
    choir_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs_have_transformers_texts),
        cmocka_unit_test(wrong_templates_are_named),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(folders_have_their_templates),
        cmocka_unit_test(answers_end_as_templates_say),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
