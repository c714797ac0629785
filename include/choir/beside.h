/* The files beside a published model's weights that other programs need and Choir does not: a
 * chat template, settings of generation and of the tokenizer, and the keys of config.json
 * without effect here. A training that starts from the folder copies them into its checkpoints,
 * so that programs use the trained model as they used the published one.
 *
 * choir_tokenizer_load reads the files of its tokenizer by itself. Files are copied unchanged,
 * whatever they contain; Choir ignores the contents of a .json file that is not a JSON object.
 *
 * Threads: any; a choir_beside never changes. Collective: no. */
#ifndef CHOIR_BESIDE_H
#define CHOIR_BESIDE_H

#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_beside choir_beside;

/**
 * Reads these files from a folder, which may be a published model or a checkpoint's step;
 * missing files are skipped: config.json, generation_config.json, tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, chat_template.jinja, chat_template.json,
 * preprocessor_config.json, processor_config.json, tokenizer.model, the chat templates in
 * additional_chat_templates/, and files that Choir does not know, as LICENSE, up to 16 MiB
 * each and 64 MiB together, if they can be read and are neither weights nor README.md;
 * checkpoints have these in beside/. The caller frees *beside. Errors: io (another file that
 * cannot be read); format (one of 64 MiB or more).
 */
CHOIR_CHECKED choir_status choir_beside_read(const char *folder, choir_beside **beside);

void choir_beside_free(choir_beside *beside); /* beside: may be NULL */

#ifdef __cplusplus
}
#endif
#endif
