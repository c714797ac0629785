/* The arguments of the recurrent layers' kernels; kernels.h includes this header. */
#ifndef CHOIR_KERNELS_RECURRENT_H
#define CHOIR_KERNELS_RECURRENT_H

#include <choir/dtype.h>
#include "base/base.h"

/* A recurrent layer over a sequence, in one direction: `steps` steps, each for the whole batch,
 *
 *   LSTM (Hochreiter & Schmidhuber, 1997; gates i, f, g, o):
 *     c = f c' + i g,  h = o tanh c     with i, f, o = sigmoid a and g = tanh a, a share each
 *   GRU (Cho et al., 2014; gates r, z, n; r inside the tanh, as in cuDNN):
 *     h = n + z (h' - n)                with r, z = sigmoid a and n = tanh(a + r u)
 *   RNN: h = tanh a, or max(0, a)
 *
 * where ' marks the step before and a = x + h' W_hh^T; in the GRU's n, a = x and u = h' W_hh^T
 * + b_hh. b_hh is also added in the GRU's r and z; for other cells b_hh is NULL and already
 * part of x. G, the number of gates, is 4, 3 or 1. `reverse` begins at the end of the sequence.
 *
 * gates (T, B, G H): x on entry, the gates on return (RNN: a). state (T, B, H): c of the LSTM,
 * u of the GRU, else NULL. y: h of step t and sample b at y + (t B + b) y_row. h0, c0 (B, H) or
 * NULL: zeros.
 *
 * Backward starts from y, gates and state as the forward left them, and gy laid out as y. On
 * return, gates holds the gradient of x, and the GRU's state that of u (the W_hh of r and z
 * uses x's). gh, gc (B, H): the gradients of the last h and c on entry, those of h0 and c0 on
 * return; if h0 is NULL, gh is scratch afterwards. gc: for the LSTM, else NULL. */
typedef enum choir__recurrent_cell {
    CHOIR__LSTM,
    CHOIR__GRU,
    CHOIR__RNN_TANH,
    CHOIR__RNN_RELU,
    CHOIR__CELL_COUNT
} choir__recurrent_cell;

typedef struct choir__k_recurrent {
    const void *w_hh, *b_hh, *h0, *c0, *gy; /* w_hh (G H, H), b_hh (G H) */
    void *gates, *state, *y, *gh, *gc;      /* gy, gh, gc: backward */
    int64_t steps, batch, width, y_row;
    choir__recurrent_cell cell;
    bool reverse;
    choir_dtype dtype;
} choir__k_recurrent;

static inline int64_t choir__recurrent_cell_gates(choir__recurrent_cell cell)
{
    return cell == CHOIR__LSTM ? 4 : cell == CHOIR__GRU ? 3 : 1;
}

#endif
