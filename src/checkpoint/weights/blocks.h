/* The types of blocks in which files have weights, and weights that are held in them. */
#ifndef CHOIR_WEIGHTS_BLOCKS_H
#define CHOIR_WEIGHTS_BLOCKS_H

#include <choir/nn.h>

/* Holds the frozen weights of linear layers and of embeddings in the types that a file has them
 * in: a GGUF file, or a checkpoint's folder, whose files state the types of theirs. halves: so
 * are weights that a checkpoint has in 16 bits. Loading then copies the blocks. Errors: io,
 * format; as choir_module_hold. */
choir_status choir__hold_as_stored(choir_module *module, const char *path, bool halves);

#endif
