/* SwiGLU: one operand gates the other, element by element. */
#include "device/cpu/isa/vector_math.h"

void KERNEL(swiglu)(const choir__k_swiglu *k)
{
    F32_ONLY(swiglu, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *a = (const float *)k->a + r * k->a_row;
        const float *b = (const float *)k->b + r * k->b_row;
        float *y = (float *)k->y + r * k->cols;
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c;
            v_put(y + c, v_silu(v_get(a + c, left)) * v_get(b + c, left), left);
        }
    }
}

void KERNEL(swiglu_backward)(const choir__k_swiglu_backward *k)
{
    F32_ONLY(swiglu_backward, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *a = (const float *)k->a + r * k->a_row;
        const float *b = (const float *)k->b + r * k->b_row;
        const float *gy = (const float *)k->gy + r * k->cols;
        float *ga = k->ga ? (float *)k->ga + r * k->ga_row : NULL;
        float *gb = k->gb ? (float *)k->gb + r * k->gb_row : NULL;
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c;
            vec x = v_get(a + c, left), g = v_get(gy + c, left);
            if (ga)
                v_put(ga + c, g * v_get(b + c, left) * v_silu_slope(x), left);
            if (gb)
                v_put(gb + c, g * v_silu(x), left);
        }
    }
}
