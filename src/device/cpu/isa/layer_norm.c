/* Layer norm (Ba et al., 2016): each row is normalised to mean 0, variance 1, then scaled and
 * shifted per column; and root mean square norm, which does not subtract the mean. A row stays
 * in L1 over its passes: the sum with a residual if any, mean, variance around it, result.
 * 16-bit operands beside f32 are for devices whose kernels all take 16 bits; here the reference
 * computes them. */
#include "device/cpu/isa/isa.h"

#define F32_WHOLLY(name, args, mixed)                                                          \
    do {                                                                                       \
        if ((args)->dtype != CHOIR_F32 || (mixed)) {                                           \
            CHOIR__BY_REFERENCE(name, args);                                                   \
            return;                                                                            \
        }                                                                                      \
    } while (0)

/* y = x + add. */
INLINE void add_row(float *y, const float *x, const float *add, int64_t cols)
{
    for (int64_t c = 0; c < cols; c += W)
        v_put(y + c, v_get(x + c, cols - c) + v_get(add + c, cols - c), cols - c);
}

INLINE float mean_of(const float *x, int64_t cols)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < cols; c += 16)
        LANES(j) sum[j] += v_get(x + c + j * W, cols - c - j * W);
    return lanes_sum(sum) / (float)cols;
}

/* Returns the sum of (x - mean)^2, without the padding. */
INLINE float deviation(const float *x, int64_t cols, float mean)
{
    vec sum[L] = {{0}}, m = v_set(mean);
    for (int64_t c = 0; c < cols; c += 16)
        LANES(j)
        {
            vec d = v_get_or(x + c + j * W, cols - c - j * W, m) - m;
            sum[j] += d * d;
        }
    return lanes_sum(sum);
}

void KERNEL(layer_norm)(const choir__k_layer_norm *k)
{
    F32_WHOLLY(layer_norm, k, k->half_add || k->half_y || k->y_half);
    const float *gamma = k->gamma, *beta = k->beta;
    int64_t cols = k->cols;
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * cols;
        float *y = (float *)k->y + r * cols;
        if (k->add) {
            float *sum = (float *)k->sum + r * cols;
            add_row(sum, x, (const float *)k->add + r * cols, cols);
            x = sum;
        }
        float mean = k->mean ? mean_of(x, cols) : 0;
        float var = deviation(x, cols, mean) / (float)cols;
        float rstd = 1.0f / sqrtf(var + k->eps);
        if (k->mean)
            ((float *)k->mean)[r] = mean;
        ((float *)k->rstd)[r] = rstd;
        for (int64_t c = 0; c < cols; c += W) {
            vec z = (v_get(x + c, cols - c) - mean) * rstd;
            if (gamma)
                z *= v_get(gamma + c, cols - c);
            if (beta)
                z += v_get(beta + c, cols - c);
            v_put(y + c, z, cols - c);
        }
    }
}

/* gx = rstd (g - mean g - xhat mean(g xhat)), g = gy gamma; without a mean, mean g is 0. */
void KERNEL(layer_norm_backward)(const choir__k_layer_norm_backward *k)
{
    F32_WHOLLY(layer_norm_backward, k, k->half_gy || k->gx_half);
    const float *gamma = k->gamma;
    int64_t cols = k->cols;
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * cols, *gy = (const float *)k->gy + r * cols;
        const float *add = k->gx_add ? (const float *)k->gx_add + r * cols : NULL;
        float *gx = (float *)k->gx + r * cols;
        float mean = k->mean ? ((const float *)k->mean)[r] : 0;
        float rstd = ((const float *)k->rstd)[r];
        vec sum[L] = {{0}}, dot[L] = {{0}};
        for (int64_t c = 0; c < cols; c += 16)
            LANES(j)
            {
                int64_t left = cols - c - j * W;
                vec g = v_get(gy + c + j * W, left);
                if (gamma)
                    g *= v_get(gamma + c + j * W, left);
                sum[j] += g;
                dot[j] += g * ((v_get(x + c + j * W, left) - mean) * rstd);
            }
        float g_mean = k->mean ? lanes_sum(sum) / (float)cols : 0;
        float g_dot = lanes_sum(dot) / (float)cols;
        for (int64_t c = 0; c < cols; c += W) {
            int64_t left = cols - c;
            vec g = v_get(gy + c, left), hat = (v_get(x + c, left) - mean) * rstd;
            if (gamma)
                g *= v_get(gamma + c, left);
            g = (g - g_mean - hat * g_dot) * rstd;
            if (add)
                g += v_get(add + c, left);
            v_put(gx + c, g, left);
        }
    }
}

/* Sums a block of columns down the rows of a leaf, in order, with the sums in registers. */
enum { BLOCK = 4 };

/* Leaf l's sums for gamma and for beta. */
INLINE void leaf_weights(const choir__k_layer_norm_weights *k, int64_t l, int64_t at,
    int64_t left, int block, vec (*to)[BLOCK])
{
    const float *mean = k->mean, *rstd = k->rstd;
    const int64_t outer = choir__cut_outer(k->cut), each = k->rows / outer;
    int64_t from, end;
    vec gamma[BLOCK] = {{0}}, beta[BLOCK] = {{0}};
    choir__cut_leaf(k->cut, k->rows, l, &from, &end);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = o * each + from; r < o * each + end; r++) {
            const float *x = (const float *)k->x + r * k->cols + at,
                        *gy = (const float *)k->gy + r * k->cols + at;
            for (int j = 0; j < block; j++) {
                vec g = v_get(gy + j * W, left - j * W);
                vec hat = (v_get(x + j * W, left - j * W) - (mean ? mean[r] : 0)) * rstd[r];
                gamma[j] += g * hat;
                beta[j] += g;
            }
        }
    for (int j = 0; j < block; j++)
        to[0][j] = gamma[j], to[1][j] = beta[j];
}

INLINE void weights(const choir__k_layer_norm_weights *k, int64_t at, int64_t left, int block)
{
    vec node[CHOIR__LEAF_LEVELS][2][BLOCK];
    int top = 0;
    for (int64_t l = 0; l < choir__max(1, k->cut.leaves); l++) {
        leaf_weights(k, l, at, left, block, node[top++]);
        for (int joins = choir__leaf_joins(k->cut, l); joins > 0; joins--, top--)
            for (int j = 0; j < block; j++) {
                node[top - 2][0][j] += node[top - 1][0][j];
                node[top - 2][1][j] += node[top - 1][1][j];
            }
    }
    for (int j = 0; j < block; j++) {
        if (k->ggamma)
            v_put((float *)k->ggamma + at + j * W, node[0][0][j], left - j * W);
        if (k->gbeta)
            v_put((float *)k->gbeta + at + j * W, node[0][1][j], left - j * W);
    }
}

void KERNEL(layer_norm_weights)(const choir__k_layer_norm_weights *k)
{
    F32_WHOLLY(layer_norm_weights, k, k->half_gy);
    int64_t c = 0;
    for (; c + BLOCK * W <= k->cols; c += BLOCK * W)
        weights(k, c, BLOCK * W, BLOCK);
    for (; c < k->cols; c += W)
        weights(k, c, choir__min(W, k->cols - c), 1);
}
