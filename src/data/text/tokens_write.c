/* Conversion of a text file to a file of token ids, one block at a time.
 *
 * A block ends where no token crosses (choir__tokenizer_last_cut): after an ASCII letter or
 * digit, before a line's end or a space. Text after this position moves to the next block. A
 * block without such a position grows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/files/temp_file.h"
#include "data/tokenizer/tokenizer.h"
#include "data/text/tokens.h"

enum { BLOCK = 4 << 20 };

typedef struct writer {
    const choir_tokenizer *tokenizer;
    const char *name;
    choir__temp_file fresh; /* the new file, which `out` writes */
    FILE *in, *out;
    /* (room); `bytes` are used */
    char *text;
    size_t bytes, room;
    choir__ids ids;
    choir__tokens_header header;
    int64_t lines; /* number of lines before this block */
    choir__tokenizer_place place;
} writer;

static choir_status put_ids(writer *w)
{
    unsigned char *packed = (unsigned char *)w->ids.id; /* in place: ids only become shorter */
    size_t width = w->header.width;
    for (size_t i = 0; i < w->ids.count; i++) {
        uint32_t id = (uint32_t)w->ids.id[i];
        for (size_t b = 0; b < width; b++)
            packed[i * width + b] = (unsigned char)(id >> 8 * b);
    }
    if (fwrite(packed, width, w->ids.count, w->out) != w->ids.count)
        return choir__error(
            CHOIR_ERR_IO, "%s: cannot be written: %s", w->fresh.temporary, strerror(errno));
    w->header.count += w->ids.count;
    return CHOIR_OK;
}

static choir_status put_block(writer *w, size_t bytes)
{
    w->ids.count = 0;
    choir_status status =
        choir__tokenizer_encode(w->tokenizer, w->name, w->text, bytes, w->place, &w->ids);
    if (status != CHOIR_OK && w->lines) {
        char *message = choir__format(
            "%s (lines counted from line %lld)", choir__message(), (long long)w->lines + 1);
        choir__set_message(message);
        free(message);
    }
    if (status == CHOIR_OK)
        status = put_ids(w);
    for (size_t i = 0; i < bytes; i++)
        w->lines += w->text[i] == '\n';
    memmove(w->text, w->text + bytes, w->bytes - bytes);
    w->bytes -= bytes;
    w->place = CHOIR__CONTINUED;
    return status;
}

static choir_status put_text(writer *w)
{
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK) {
        if (w->bytes == w->room) {
            w->room = w->room ? 2 * w->room : BLOCK;
            w->text = choir__realloc(w->text, w->room);
        }
        size_t n = fread(w->text + w->bytes, 1, w->room - w->bytes, w->in);
        w->bytes += n;
        if (ferror(w->in))
            return choir__error(
                CHOIR_ERR_IO, "%s: cannot be read: %s", w->name, strerror(errno));
        bool last = w->bytes < w->room;
        size_t cut =
            last ? w->bytes : choir__tokenizer_last_cut(w->tokenizer, w->text, w->bytes);
        if (cut)
            status = put_block(w, cut);
        if (last)
            break;
    }
    return status;
}

static choir_status cannot_write(const char *path, int why)
{
    return choir__error(CHOIR_ERR_IO, "%s: cannot be written: %s", path, strerror(why));
}

/* Writes the header again, with the number of tokens. */
static bool put_header(writer *w)
{
    return fseek(w->out, 0, SEEK_SET) == 0 &&
           fwrite(&w->header, sizeof w->header, 1, w->out) == 1;
}

choir_status choir_tokens_write(
    const choir_tokenizer *tokenizer, const char *text_path, const char *path, int64_t *count)
{
    if (!tokenizer)
        return choir__missing(__func__, "tokenizer");
    if (!text_path)
        return choir__missing(__func__, "text_path");
    if (!path)
        return choir__missing(__func__, "path");
    writer w = {.tokenizer = tokenizer, .name = text_path};
    memcpy(w.header.magic, CHOIR__TOKENS_MAGIC, sizeof w.header.magic);
    w.header.version = 1;
    w.header.width = tokenizer->size <= 1 << 16 ? 2 : 4;
    w.header.vocabulary = (uint64_t)tokenizer->size;
    choir_status status = choir__file_stream(text_path, CHOIR__FILE_TEXT, &w.in);
    if (status == CHOIR_OK) {
        w.out = choir__temp_file_begin(&w.fresh, path);
        if (w.out)
            status = put_header(&w) ? put_text(&w) : cannot_write(path, errno);
        if (w.out && status == CHOIR_OK && !put_header(&w))
            status = cannot_write(path, errno);
        int why = choir__temp_file_end(&w.fresh, status == CHOIR_OK, true);
        if (why)
            status = cannot_write(path, why);
    }
    if (w.in)
        fclose(w.in);
    if (status == CHOIR_OK && count)
        *count = (int64_t)w.header.count;
    free(w.text);
    free(w.ids.id);
    return status;
}
