/* Chats: conversations as the chat template of a published model writes them.
 *
 * A folder's template is chat_template.jinja, beside which additional_chat_templates/ may have
 * one for chats with tools, or "chat_template" in tokenizer_config.json, which may be a list of
 * named ones. Its text is Jinja's language as transformers runs it
 * (trim_blocks, lstrip_blocks, loop controls, {% generation %}); what published templates use
 * of it is understood, and a rendered text is the one of transformers' apply_chat_template. A
 * template is untrusted: it reads its variables alone, and its time and memory are bounded.
 *
 * Threads: any; a chat never changes. Collective: no. */
#ifndef CHOIR_CHAT_H
#define CHOIR_CHAT_H

#include <choir/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_chat choir_chat;

/**
 * Reads the chat template of the tokenizer's folder, and its special tokens (bos_token,
 * eos_token, ...), which are variables of the template. Of named templates it is "default";
 * "tool_use" is used where a conversation has tools. The caller frees *chat.
 *
 * Errors: argument (the folder has no template); format (a construct that is not understood,
 * with its line).
 */
CHOIR_CHECKED choir_status choir_chat_of(const choir_tokenizer *tokenizer, choir_chat **chat);

/** Like choir_chat_of, from a template in memory. name: for messages. tokenizer: has the
 * special tokens; may be NULL. Errors: format. */
CHOIR_CHECKED choir_status choir_chat_parse(const char *name, const char *text, size_t bytes,
    const choir_tokenizer *tokenizer, choir_chat **chat);

void choir_chat_free(choir_chat *chat); /* chat: may be NULL */

/** Returns whether the template marks what an assistant says by {% generation %}. */
bool choir_chat_marks(const choir_chat *chat);

/**
 * Returns the token with which the template ends what an assistant says, which training learns
 * and at which an answer is complete; -1: the text behind an answer begins with no token of its
 * own. Folders may name another token as the end of a text, as Gemma's do.
 */
int64_t choir_chat_end(const choir_chat *chat, const choir_tokenizer *tokenizer);

/**
 * Renders a conversation. variables: a JSON object with the template's variables,
 *
 *     {"messages":[{"role":"user","content":"Hello"}],"tools":[...],"add_generation_prompt":true}
 *
 * "messages" is needed; without the others, there are no tools and no documents, and
 * "add_generation_prompt" is false. As in transformers, members of a message that are null are
 * left out, and reasoning_content, reasoning and thinking are one. now: the seconds since 1970
 * that the template's strftime_now shows, as if in UTC.
 *
 * The text has its special tokens, also the one that begins a text: encode it by
 * choir_tokenizer_encode, which adds none. *text, ended by '\0', is for the caller to free.
 *
 * Errors: argument (the variables are not such an object; no messages); format (the template
 * refuses the conversation, with its own sentence; or fails, with the line).
 */
CHOIR_CHECKED choir_status choir_chat_render(
    const choir_chat *chat, const char *variables, int64_t now, char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
