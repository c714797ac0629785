/* Fine-tuning beside weights of 4 bits: the frozen model takes a sixth of its memory, and
 * adapters learn as beside the whole one. */
#include <stdio.h>
#include <choir/choir.h>
static const char model[] = "gpt2:layers=2,heads=4,width=64,context=32,vocab=32";

static choir_tensor *loss_of(choir_module *net, choir_scope *s)
{
    int64_t ids[33]; /* 1 2 4 8 16 1 2 ...: each number tells the next one */
    for (int i = 0; i < 33; i++)
        ids[i] = 1 << i % 5;
    choir_tensor *x = choir_from(s, CHOIR_I64, choir_dims(1, 32), ids);
    choir_tensor *y = choir_from(s, CHOIR_I64, choir_dims(32), ids + 1);
    return choir_cross_entropy(choir_reshape(choir_forward(net, x), choir_dims(32, 32)), y);
}

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s;
    choir_module *net = choir_model(run, model, NULL);
    choir_lora_opts lora = choir_lora_defaults();
    lora.targets = "all-linear";
    choir_check(choir_lora(net, lora));
    choir_check(choir_module_hold(net, CHOIR_HOLD_Q4_0, true)); /* embeddings: 8 bits */
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    double first = 0, last = 0;
    for (uint64_t i = 0; i < 100; i++) {
        s = choir_step_open(run, i);
        choir_tensor *loss = loss_of(net, s);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        last = choir_item(loss);
        first = i ? first : last;
        choir_check(choir_scope_close(s));
    }
    printf("%lld bytes of frozen weights, loss %.2f, then %.2f\n",
        (long long)choir_module_held_bytes(net), first, last);
    choir_check(choir_scope_close(run));
}
