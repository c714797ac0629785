/* The Swin encoder (Liu et al., 2021), as Donut uses it: an image becomes a sequence. */
#ifndef CHOIR_SWIN_H
#define CHOIR_SWIN_H

#include <choir/nn.h>

enum { CHOIR__SWIN_STAGES = 4, CHOIR__SWIN_BLOCKS = 64 };

typedef struct choir__swin_sizes {
    int64_t height, width, channels, patch, window, embed;
    int stages;
    int64_t depth[CHOIR__SWIN_STAGES], heads[CHOIR__SWIN_STAGES];
    double dropout, eps; /* eps of the norms in blocks */
} choir__swin_sizes;

/* Returns the reason why the sizes are inconsistent, or NULL if they are consistent. */
const char *choir__swin_wrong(const choir__swin_sizes *sizes);

/* Creates the encoder. Forward: x (B, channels, height, width) -> (B, T, choir__swin_out), T =
 * H W / (patch 2^(stages-1))^2. */
choir_module *choir__swin_new(choir_scope *run, const choir__swin_sizes *sizes);
int64_t choir__swin_out(const choir__swin_sizes *sizes);

#endif
