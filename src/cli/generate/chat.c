/* choir chat: a conversation with a saved language model. Each line is a message; the
 * conversation so far, as the model's chat template writes it, is the prompt of each answer. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/generate/conversation.h"
#include "cli/generate/writer.h"
#include "line/printed.h"

typedef struct request {
    choir__write_request write;
    const char *system;
} request;

typedef struct chat {
    const request *r;
    choir__saved s;
    choir_chat *form; /* the template */
    json_t *messages;
    choir_generate_opts opts;
    int64_t ends[CHOIR__CONVERSATION_ENDS];
    FILE *out;
    int64_t turn;
} chat;

/* --- Ctrl-C ends an answer --- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool goes_on(void *arg)
{
    (void)arg;
    return !interrupted;
}

static void show(void *arg, int64_t prompt, const char *text, size_t bytes)
{
    chat *c = arg;
    (void)prompt;
    fwrite(text, 1, bytes, c->out);
    fflush(c->out);
}

/* --- one turn --- */

static void say(chat *c, const char *role, const char *text, size_t bytes)
{
    json_array_append_new(c->messages,
        json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, bytes)));
}

static choir_status write_answer(chat *c, const choir_prompt *prompt)
{
    struct sigaction on = {.sa_handler = interrupt}, before;
    choir_generated g;
    interrupted = 0;
    sigaction(SIGINT, &on, &before);
    choir_status status =
        choir_generate(c->s.run, c->s.net, &c->s.info, c->s.tokenizer, prompt, 1, c->opts, &g);
    sigaction(SIGINT, &before, NULL);
    if (status == CHOIR_OK) {
        say(c, "assistant", g.text, g.bytes);
        if (c->r->write.json)
            choir__write_json(&g);
        else
            fputc('\n', c->out);
        fflush(c->out);
        choir__write_note("chat", &c->s, &g);
    }
    choir_generated_free(&g, 1);
    return status;
}

static choir_status answer(chat *c, const char *line, size_t bytes)
{
    char *text = NULL;
    size_t length = 0;
    int64_t *ids = NULL, count = 0;
    c->turn++;
    choir_status status = choir__write_is_text(line, bytes, c->turn);
    if (status == CHOIR_OK) {
        say(c, "user", line, bytes);
        status = choir__conversation_text(c->form, c->messages, &text, &length);
    }
    if (status == CHOIR_OK)
        status = choir__write_encode(
            &c->s, text, length, c->turn, choir_tokenizer_encode, &ids, &count);
    if (status == CHOIR_OK)
        status = write_answer(c, &(choir_prompt){ids, count});
    free(ids);
    free(text);
    return status;
}

/* Reads messages until /exit or the end of the input. */
static choir_status talk(chat *c)
{
    const bool asks = isatty(STDIN_FILENO) && !c->r->write.json;
    char *line = NULL;
    size_t room = 0;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK) {
        if (asks)
            fputs("> ", stdout);
        fflush(stdout);
        ssize_t bytes = getline(&line, &room, stdin);
        if (bytes < 0)
            break;
        if (bytes && line[bytes - 1] == '\n')
            line[--bytes] = '\0';
        if (!strcmp(line, "/exit"))
            break;
        if (bytes)
            status = answer(c, line, (size_t)bytes);
    }
    free(line);
    return status;
}

static choir_status converse(chat *c)
{
    const request *r = c->r;
    FILE *shown = isatty(STDOUT_FILENO) ? choir__printed_stream(stdout) : NULL;
    c->out = shown ? shown : stdout;
    c->messages = json_array();
    c->opts = choir__write_opts(&r->write);
    c->opts.text = r->write.json ? NULL : show;
    c->opts.wants = goes_on;
    c->opts.arg = c;
    choir_status status = choir__conversation_open(&c->s, r->write.checkpoint, &c->form);
    c->opts.end = c->ends;
    if (status == CHOIR_OK)
        c->opts.ends = choir__conversation_ends(&c->s, c->form, c->ends);
    if (status == CHOIR_OK && !c->opts.ends && !r->write.stops)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: no file names a token that ends a text, so no answer would end: name one as "
            "\"eos_token\" in its tokenizer_config.json, or give --stop TEXT",
            r->write.checkpoint);
    if (status == CHOIR_OK && r->system) {
        status = choir__write_is_text(r->system, strlen(r->system), 0);
        if (status == CHOIR_OK)
            say(c, "system", r->system, strlen(r->system));
    }
    if (status == CHOIR_OK)
        status = talk(c);
    json_decref(c->messages);
    choir_chat_free(c->form);
    if (shown)
        fclose(shown);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {.write.command = command->name};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    r.write.checkpoint = operands.words[0];
    chat c = {.r = &r};
    choir_status opened = choir__write_open(&r.write, &c.s);
    if (opened == CHOIR_OK && c.s.info.task != CHOIR_LANGUAGE)
        opened = choir__error(CHOIR_ERR_ARGUMENT, "%s is %s, which writes no text",
            r.write.checkpoint, c.s.info.config);
    if (opened == CHOIR_OK)
        opened = converse(&c);
    choir__saved_close(&c.s);
    return opened == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"system", CHOIR__STRING, AT(system), .argument = "TEXT",
        .help = "an instruction before the conversation"},
    CHOIR__WRITE_ROWS,
    {NULL},
};

const choir__line_command choir__cli_chat = {
    .name = "chat",
    .summary = "talk with a saved language model",
    .usage = "[OPTION]... CHECKPOINT",
    .about =
        "A conversation with a saved language model, in the chat template of its folder. "
        "CHECKPOINT is a folder that choir train --save wrote, a published model, or a GGUF "
        "file. Each line of standard input is a message, and each answer appears as it is "
        "written. Ctrl-C ends an answer; /exit, or the end of the input, ends the chat.",
    .example = "  choir chat runs/first --system 'You answer in one sentence.'",
    .options = options,
    .operand = "CHECKPOINT",
    .least = 1,
    .most = 1,
    .took = choir__write_took,
    .run = run,
};
