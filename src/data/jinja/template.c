/* A parsed template, and renders of it: each in an arena of its own, with limits that grow with
 * the sizes of the template and of its variables. */
#include "data/jinja/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "base/hash.h"
#include "base/utf8.h"

enum {
    MOST_BYTES = 1 << 20,   /* the longest template */
    FREE_MEMORY = 64 << 20, /* bytes; more by the size of the input: */
    MEMORY_A_BYTE = 256,
    FREE_STEPS = 4 << 20, /* more by the size of the input: */
    STEPS_A_BYTE = 256
};

struct choir__jinja_template {
    choir__jinja_run run;
    char *name;
    size_t bytes;
    const choir__jinja_node *first;
    bool generates, any_arguments;
};

static void set_limits(choir__jinja_run *r, size_t bytes)
{
    r->most_memory = FREE_MEMORY + MEMORY_A_BYTE * bytes;
    r->most_steps = FREE_STEPS + STEPS_A_BYTE * (uint64_t)bytes;
}

static choir_status parse(choir__jinja_template *t, const char *text)
{
    if (setjmp(t->run.leave))
        return CHOIR_ERR_FORMAT;
    if (t->bytes > MOST_BYTES)
        choir__jinja_fail(
            &t->run, "expected a template of at most 1 MiB, got %zu bytes", t->bytes);
    if (!choir__is_utf8(text, t->bytes))
        choir__jinja_fail(&t->run, "the template is not UTF-8");
    choir__jinja_reader p = {.r = &t->run};
    p.at = choir__jinja_tokens(&t->run, text, t->bytes);
    t->first = choir__jinja_parse(&p);
    t->generates = p.generates;
    t->any_arguments = p.any_arguments;
    return CHOIR_OK;
}

choir_status choir__jinja_template_new(
    const char *name, const char *text, size_t bytes, choir__jinja_template **template)
{
    CHOIR__DEFAULT_FLOATS;
    choir__jinja_template *t = choir__calloc(1, sizeof *t);
    t->name = choir__strdup(name);
    t->bytes = bytes;
    t->run.name = t->name;
    t->run.line = 1;
    t->run.secret = choir__hash_secret();
    set_limits(&t->run, bytes);
    choir_status status = parse(t, text);
    if (status == CHOIR_OK)
        *template = t;
    else
        choir__jinja_template_free(t);
    return status;
}

void choir__jinja_template_free(choir__jinja_template *t)
{
    if (!t)
        return;
    choir__arena_free(&t->run.arena);
    free(t->name);
    free(t);
}

bool choir__jinja_template_generates(const choir__jinja_template *t)
{
    return t->generates;
}

void choir__jinja_result_free(choir__jinja_result *result)
{
    free(result->text);
    free(result->span);
    *result = (choir__jinja_result){0};
}

/* Bytes of a value's texts, as a measure of its size. */
static size_t size_of(const choir__json *json)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < json->nodes; i++)
        bytes += 16 + (json[i].type >= CHOIR__JSON_ARRAY ? 0 : json[i].bytes);
    return bytes;
}

static void keep_result(const choir__jinja_state *s, choir__jinja_result *result)
{
    if (result->room < s->main.bytes + 1) {
        result->room = 2 * s->main.bytes + 64;
        result->text = choir__realloc(result->text, result->room);
    }
    if (result->span_room < s->spans) {
        result->span_room = 2 * s->spans;
        result->span = choir__realloc(result->span, result->span_room * sizeof *result->span);
    }
    if (s->main.bytes)
        memcpy(result->text, s->main.data, s->main.bytes);
    result->text[s->main.bytes] = '\0';
    result->bytes = s->main.bytes;
    if (s->spans)
        memcpy(result->span, s->span, s->spans * sizeof *s->span);
    result->spans = s->spans;
    result->lost_span = s->lost_span;
}

/* --- variables --- */

static const char *const reasons[] = {"reasoning_content", "thinking", "reasoning"};

/* Copies a message without members that are null. Reasoning has all of its names: "thinking"
 * stands first unless the message has one, and "reasoning_content" last. */
static choir__jinja_value message(choir__jinja_run *r, const choir__json *json)
{
    choir__jinja_value all = choir__jinja_from_json(r, json), kept = choir__jinja_dict_of(r);
    if (all.kind != CHOIR__JINJA_DICT)
        choir__jinja_fail(
            r, "expected messages to be objects, got '%s'", choir__jinja_type(all));
    const choir__jinja_dict *d = all.as.dict;
    const choir__jinja_value *reason = NULL;
    for (size_t i = 0; i < CHOIR_COUNT(reasons) && !reason; i++) {
        reason = choir__jinja_dict_named(r, d, reasons[i]);
        reason = reason && reason->kind == CHOIR__JINJA_NONE ? NULL : reason;
    }
    if (reason)
        choir__jinja_dict_set(
            r, kept.as.dict, choir__jinja_borrow(r, reasons[1], strlen(reasons[1])), *reason);
    for (size_t i = 0; i < d->count; i++)
        if (d->value[i].kind != CHOIR__JINJA_NONE)
            choir__jinja_dict_set(r, kept.as.dict, d->key[i], d->value[i]);
    if (reason)
        choir__jinja_dict_set(
            r, kept.as.dict, choir__jinja_borrow(r, reasons[0], strlen(reasons[0])), *reason);
    return kept;
}

static void set_variables(choir__jinja_state *s, const choir__jinja_input *in)
{
    for (size_t i = 0; i < CHOIR_COUNT(in->more); i++) {
        choir__jinja_value all =
            in->more[i] ? choir__jinja_from_json(s->r, in->more[i]) : choir__jinja_none();
        for (size_t k = 0; all.kind == CHOIR__JINJA_DICT && k < all.as.dict->count; k++)
            choir__jinja_dict_set(
                s->r, &s->scope->names, all.as.dict->key[k], all.as.dict->value[k]);
    }
    choir__jinja_value messages = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST);
    const choir__json *one = choir__json_first(in->messages);
    for (size_t i = 0; i < in->count; i++, one = choir__json_next(one))
        choir__jinja_append(s->r, messages.as.list, message(s->r, one));
    choir__jinja_set(s, s->scope, "messages", messages);
    choir__jinja_set(s, s->scope, "tools",
        in->tools ? choir__jinja_from_json(s->r, in->tools) : choir__jinja_none());
    choir__jinja_set(s, s->scope, "add_generation_prompt", choir__jinja_bool(in->prompts));
    if (!choir__jinja_dict_named(s->r, &s->scope->names, "documents"))
        choir__jinja_set(s, s->scope, "documents", choir__jinja_none());
}

static choir_status render(
    choir__jinja_state *s, const choir__jinja_template *t, const choir__jinja_input *input)
{
    if (setjmp(s->r->leave))
        return CHOIR_ERR_FORMAT;
    s->scope = choir__jinja_scope_new(s, NULL);
    set_variables(s, input);
    choir__jinja_execute(s, t->first);
    return CHOIR_OK;
}

choir_status choir__jinja_render(const choir__jinja_template *t,
    const choir__jinja_input *input, choir__jinja_result *result)
{
    CHOIR__DEFAULT_FLOATS;
    choir__jinja_run run = {.name = t->name, .line = 1, .secret = t->run.secret};
    choir__jinja_state s = {.r = &run,
        .known = &choir__jinja_builtins,
        .engine = &choir__jinja_engine_of_trees,
        .now = input->now,
        .any_arguments = t->any_arguments};
    size_t bytes = t->bytes + size_of(input->messages);
    s.out = &s.main;
    bytes += input->tools ? size_of(input->tools) : 0;
    for (size_t i = 0; i < CHOIR_COUNT(input->more); i++)
        bytes += input->more[i] ? size_of(input->more[i]) : 0;
    set_limits(&run, bytes);
    choir_status status = render(&s, t, input);
    if (status == CHOIR_OK)
        keep_result(&s, result);
    choir__arena_free(&run.arena);
    return status;
}
