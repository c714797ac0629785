/* A user's module is a struct that begins with choir_module; this one has two inputs. */
#include <stdio.h>
#include <choir/choir.h>

typedef struct product {
    choir_module base; /* first */
    choir_module *left, *right, *drop;
    choir_tensor *bias;
} product;

static choir_tensor *product_forward(choir_module *self, choir_tensor *const *in, int count)
{
    product *p = (product *)self;
    (void)count; /* (B, 3) and (B, 5) -> (B, 4) */
    choir_tensor *y = choir_mul(choir_forward(p->left, in[0]), choir_forward(p->right, in[1]));
    return choir_add(choir_forward(p->drop, y), p->bias);
}

static const choir_module_class product_class = {
    "product", sizeof(product), product_forward, 2};

int main(void)
{
    choir_scope *run = choir_scope_open(NULL, 42), *s = choir_step_open(run, 0);
    product *p = choir_module_new(run, &product_class);
    choir_module_child(&p->base, "left", &p->left, choir_nn_linear(run, 3, 4));
    choir_module_child(&p->base, "right", &p->right, choir_nn_linear(run, 5, 4));
    choir_module_child(&p->base, "drop", &p->drop, choir_nn_dropout(run, 0.5f));
    choir_module_param(&p->base, "bias", &p->bias, choir_dims(4), choir_init_constant(0.1));
    printf("%lld parameters\n", (long long)choir_module_param_count(&p->base));

    choir_tensor *a = choir_randn(s, choir_dims(2, 3), "a"),
                 *b = choir_randn(s, choir_dims(2, 5), "b");
    choir_print(choir_forward(&p->base, a, b)); /* dropped elements have the bias alone */
    choir_module_train(&p->base, false);        /* eval mode, for all modules inside */
    choir_print(choir_forward(&p->base, a, b));
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
    return 0;
}
