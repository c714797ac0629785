/* Adapters of a job: --lora r=16,alpha=32,dropout=0.05,targets=a/b,modules_to_save=a/b. */
#ifndef CHOIR_JOB_LORA_H
#define CHOIR_JOB_LORA_H

#include "checkpoint/weights/adapter.h"

/* Values of the text; "" and 0: not given. */
typedef struct choir__lora_words {
    int64_t r;
    double alpha;
    float dropout;
    bool rslora;
    char targets[256], modules_to_save[256];
} choir__lora_words;

/* Error: argument. */
choir_status choir__lora_read(const char *text, choir__lora_words *words);
/* Returns the text with every value, so that two texts with one meaning are equal; the caller
 * frees it. */
char *choir__lora_text(const choir__lora_words *words);

/* Adds the adapters to a model's module. The new head of a classifier is trained whole, unless
 * the text names such modules. Errors: as choir_lora. */
choir_status choir__lora_add(const char *text, const choir_model_info *info, choir_module *net);

/* Returns in *text, which the caller frees, what --lora says of a folder's adapter. Error:
 * format (a list of layers that the text has no room for). */
choir_status choir__lora_of_adapter(
    const char *folder, const choir__adapter_file *file, char **text);

#endif
