/* Texts of 1 to 30 tokens, each with a label, in batches of similar length. */
#include <stdio.h>
#include <choir/choir.h>
static const choir_part parts[] = {
    {"ids", CHOIR_I64, {1, {-1}}, 0}, {"label", CHOIR_I64, {0}, 0}};
static int64_t count(const choir_parts_dataset *self)
{
    return self ? 600 : 0;
}
static choir_status sizes(choir_parts_dataset *self, int64_t i, choir_shape *shape)
{
    shape[0].dim[0] = 1 + i * 7 % 30; /* a label has no size that differs */
    return self ? CHOIR_OK : CHOIR_ERR_ARGUMENT;
}
static choir_status get(choir_parts_dataset *self, int64_t epoch, int64_t i, void *const *to)
{
    for (int64_t k = 0; k < 1 + i * 7 % 30; k++)
        ((int64_t *)to[0])[k] = (i + k + epoch) % 5;
    *(int64_t *)to[1] = i % 2;
    return self ? CHOIR_OK : CHOIR_ERR_ARGUMENT;
}
int main(void)
{
    const choir_parts_ops ops = {count, sizes, get};
    choir_parts_dataset texts = {&ops, parts, 2};
    choir_scope *run = choir_scope_open(NULL, 42);
    choir_parts_opts o = choir_parts_defaults();
    o.loader.batch_size = 64, o.bucket_step = 10; /* lengths 1 to 10, 11 to 20, ... */
    choir_parts_loader *data = choir_parts_loader_new(run, &texts, o);
    for (int64_t i = 0; i < choir_parts_batches(data); i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_parts b; /* ids (64, L), label (64) */
        choir_check(choir_parts_next(data, s, &b));
        choir_tensor *mask = choir_cast(choir_parts_mask(&b, "ids"), CHOIR_F32);
        printf("batch of length %2d: %4.1f %% are tokens\n", (int)choir_tensor_size(mask, 1),
            100 * choir_item(choir_mean(mask)));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
}
