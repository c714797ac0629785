/* README.md of an exported folder: where the model comes from, in the form that model hubs read
 * (YAML between dashes, then Markdown). */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/format/file.h"
#include "job/export/export.h"

/* Appends a quoted text, as YAML and JSON have it. */
static void quote(FILE *out, const char *text)
{
    json_t *value = json_string(text);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    fputs(quoted ? quoted : "\"\"", out);
    free(quoted);
    json_decref(value);
}

static void front_matter(FILE *out, const choir__export *e, const choir__export_format *f)
{
    fputs("---\n", out);
    if (e->base) {
        fputs("base_model: ", out);
        quote(out, e->base);
        fputs("\n", out);
    }
    fprintf(out, "library_name: %s\n", f->library);
    if (e->model.info.task == CHOIR_LANGUAGE && !e->model.info.masked)
        fputs("pipeline_tag: text-generation\n", out);
    fprintf(out, "tags:\n- choir\n%s---\n\n", e->model.lora ? "- lora\n" : "");
}

static void row(FILE *out, const char *what, const char *value)
{
    fprintf(out, "| %s | `", what);
    for (; *value; value++) /* neither a cell nor a line ends within a value */
        fputc(strchr("|`\n\r", *value) ? ' ' : *value, out);
    fputs("` |\n", out);
}

static void options(FILE *out, const json_t *record)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json_object_get(record, "options"), key, value)
    {
        char *text = json_is_string(value)
                         ? choir__strdup(json_string_value(value))
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        if (text && !json_is_null(value) && !json_is_false(value))
            row(out, key, text);
        free(text);
    }
}

static void body(FILE *out, const choir__export *e)
{
    const choir__saved *m = &e->model;
    fprintf(out, "# %s\n\nMade by Choir%s.\n\n| | |\n|---|---|\n",
        e->trained ? "A model trained by Choir" : "A model with an adapter",
        m->lora ? ", with low-rank adapters (LoRA)" : "");
    row(out, "model", m->info.config);
    if (e->base)
        row(out, "base", e->base);
    if (*e->base_sha256)
        row(out, "SHA-256 of the base's weights", e->base_sha256);
    if (m->lora)
        row(out, "adapters", m->lora);
    if (e->trained) {
        char *step = choir__format("%lld", (long long)m->step);
        row(out, "steps", step);
        free(step);
    }
    if (m->data)
        row(out, "data", m->data);
    if (m->data_sha256 && *m->data_sha256)
        row(out, "SHA-256 of the data", m->data_sha256);
    row(out, "weights", e->type);
    if (e->record) {
        fputs("\n## Options of the training\n\n| | |\n|---|---|\n", out);
        options(out, e->record);
    }
}

choir_status choir__export_card(
    const choir__export *e, const choir__export_format *format, const char *folder)
{
    char *text = NULL, *path = choir__format("%s/README.md", folder);
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for a model card");
    front_matter(out, e, format);
    body(out, e);
    fclose(out);
    choir_status status = choir__write_file(path, text, bytes);
    free(text);
    free(path);
    return status;
}
