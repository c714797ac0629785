/* Chat templates: the interpreter's entrance. */
#ifndef CHOIR_DATA_JINJA_TEMPLATE_H
#define CHOIR_DATA_JINJA_TEMPLATE_H

#include "data/jinja/eval.h"

typedef struct choir__jinja_template choir__jinja_template;

/* Parses a template. name: for messages. Errors: format, naming the construct and the line. */
choir_status choir__jinja_template_new(
    const char *name, const char *text, size_t bytes, choir__jinja_template **template);
void choir__jinja_template_free(choir__jinja_template *template);
/* Returns whether the template has a {% generation %}. */
bool choir__jinja_template_generates(const choir__jinja_template *template);

/* A text that a template has rendered; all zeros at first, and reused. */
typedef struct choir__jinja_result {
    char *text; /* (bytes), followed by '\0' */
    size_t bytes, room;
    choir__jinja_span *span; /* (spans) parts that {% generation %} marks, in order */
    size_t spans, span_room;
    bool lost_span; /* some parts could not be followed, such as a macro's */
} choir__jinja_result;

void choir__jinja_result_free(choir__jinja_result *result);

/* Variables of a template, as transformers gives them. */
typedef struct choir__jinja_input {
    const choir__json *messages; /* an array of objects */
    size_t count;                /* messages that the template sees, from the first one on */
    const choir__json *tools;    /* NULL: none */
    const choir__json *more[2];  /* objects with further variables; NULL: no object */
    bool prompts;                /* add_generation_prompt */
    int64_t now;                 /* seconds since 1970, for strftime_now */
} choir__jinja_input;

/* Renders the template. Errors: format: the template's own refusal, a wrong operation with its
 * line, or too much time or memory. Threads: any. */
choir_status choir__jinja_render(const choir__jinja_template *template,
    const choir__jinja_input *input, choir__jinja_result *result);

#endif
