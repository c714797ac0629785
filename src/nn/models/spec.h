/* A model as the command and checkpoints see it: the text "gpt2:layers=4,width=128" becomes a
 * module and a description of what a trainer must know. */
#ifndef CHOIR_MODELS_SPEC_H
#define CHOIR_MODELS_SPEC_H

#include <choir/models.h>

struct choir__published;

typedef struct choir__model_spec {
    const char *name, *help;
    /* Describes the data that the model expects (input, context). Called before data is
     * opened. */
    choir_status (*describe)(const char *text, choir_model_info *info);
    /* Creates the module. Called after describe, with the data's values filled in. NULL:
     * the text is wrong (argument). Errors of modules mark the scope. */
    choir_module *(*build)(const char *text, choir_scope *run, const choir_model_info *info);
    const struct choir__published *published; /* published.h; NULL: not published */
} choir__model_spec;

/* Fill in the classes and image size of a classifier: from the data, or, if the data is random,
 * from the text (0: not given; a width of 0 is the height). Errors: the data has more classes
 * than the model, or images have less than `least` pixels per side. */
choir_status choir__model_classes(const char *model, choir_model_info *info, int64_t classes);
choir_status choir__model_images(const char *model, choir_model_info *info, int64_t channels,
    int64_t height, int64_t width, int64_t least);
/* Refuses data of more tokens than the model's vocabulary has. vocab 0: the data's. */
choir_status choir__model_vocab(const char *model, int64_t vocab, int64_t tokens);
/* Writes the keys of the images' size, and returns text: "image=40", with ",image_width=60"
 * where images are no squares, so that image=N alone makes another square. */
enum { CHOIR__IMAGE_KEYS = 64 };
const char *choir__model_image_keys(const choir_model_info *info, char text[CHOIR__IMAGE_KEYS]);

/* Returns what keeps documents apart in attention, (B, 1, T, T) of this dtype: 0 between
 * positions of one document, and nearly minus infinity elsewhere. documents (B, T): their
 * numbers; NULL: returns NULL. Errors: shape, unless it is a shape of ids. */
choir_tensor *choir__model_apart(choir_tensor *documents, choir_tensor *ids, choir_dtype dtype);

/* Returns 0 ... t - 1, i64; in a scope with a cache the positions (B, T) of the next tokens. */
choir_tensor *choir__model_positions(choir_scope *scope, int64_t t);

#endif
