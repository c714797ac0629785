/* Fine-tuning with few numbers: low-rank adapters are trained beside a frozen model, and saved
 * as peft reads them. Loaded beside the same model, they give the same loss. */
#include <stdio.h>
#include <sys/stat.h>
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
    choir_module *net = choir_model(run, model, NULL), *again = choir_model(run, model, NULL);
    choir_lora_opts lora = choir_lora_defaults(); /* rank 16, of queries and values */
    lora.targets = "all-linear";
    choir_check(choir_lora(net, lora));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (uint64_t i = 0; i < 200; i++) {
        s = choir_step_open(run, i);
        choir_check(choir_backward(loss_of(net, s)));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
    }
    (void)mkdir("adapter", 0777);
    choir_check(choir_adapter_save(net, NULL, "adapter"));
    choir_check(choir_adapter_load(again, NULL, "adapter"));
    s = choir_no_grad(run);
    printf(
        "loss %.6f, loaded %.6f\n", choir_item(loss_of(net, s)), choir_item(loss_of(again, s)));
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}
