/* Hashes of what each tenth step reads and writes, in FOLDER/audit.jsonl: two such folders are
 * compared by choir audit diff.     audit [FOLDER [RATE]] */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>
int main(int argc, char **argv)
{
    choir_env env;
    choir_model_info m;
    choir_data data;
    choir_audit *audit;
    choir_batch b;
    choir_check(choir_env_init(&env));
    choir_check(choir_model_data(
        "gpt2:layers=1,heads=2,width=32,context=32", NULL, choir_data_defaults(), &m, &data));
    choir_scope *run = choir_run_open(&env, 42), *s;
    choir_module *net = choir_model_build(run, &m);
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = argc > 2 ? strtof(argv[2], NULL) : 1e-3f;
    choir_optim *opt = choir_adamw(run, net, hp);
    choir_loader *loader = choir_env_loader(run, &env, data.train, 8);
    choir_audit_opts opts = choir_audit_defaults();
    opts.every = 10, opts.loader = loader, opts.group = env.group;
    choir_check(choir_audit_open(argc > 1 ? argv[1] : "audited", net, opt, opts, &audit));
    for (int64_t step = 0; step < 20; step++) {
        s = choir_step_open(run, (uint64_t)step);
        choir_check(choir_loader_next(loader, s, &b));
        choir_tensor *out = choir_model_forward(&m, net, b.x, b.y);
        choir_tensor *loss = choir_model_loss(&m, out, b.y);
        choir_check(choir_backward(loss));
        choir_check(choir_optim_step(opt));
        choir_check(choir_scope_close(s));
        choir_check(choir_audit_step(audit, step + 1));
    }
    choir_check(choir_audit_close(audit));
    choir_check(choir_scope_close(run));
    printf("20 steps, 2 of them audited\n");
    choir_data_free(&data);
}
