/* choir train --help. */
#include <stdio.h>
#include <string.h>

#include "cli/job.h"

/* Broken behind commas and blanks, so that lines stay within 80 columns; column: where the
 * first one has got to. */
static void print_wrapped(int column, int indent, const char *text)
{
    for (const char *at = text; *at;) {
        int blank = *at == ' ', part = blank + (int)strcspn(at + blank, ", ");
        part += at[part] == ',';
        if (column + part > 79)
            column = printf("\n%*s", indent, "") - 1, at += blank, part -= blank;
        column += printf("%.*s", part, at);
        at += part;
    }
    printf("\n");
}

static void print_entry(const char *name, int width, const char *help)
{
    print_wrapped(printf("        %-*s ", width, name), width + 9, help);
}

static void print_strategies(void)
{
    for (int i = 0; choir__cli_strategies[i]; i++) {
        const choir__cli_strategy *s = choir__cli_strategies[i];
        print_entry(s->name, 11, s->help);
        if (*s->options)
            print_wrapped(printf("%16s", ""), 17, s->options);
    }
}

void choir__cli_train_help(void)
{
    printf("Usage: choir train [OPTION]... [DATA]\n\n"
           "Trains a model. DATA is a text file or a file of token ids (language models), a\n"
           "folder of images (IDX files, or train/CLASS/*.jpg and val/CLASS/*.jpg), for\n"
           "donut one of images and JSON (train/metadata.jsonl), or 'random'; left out: a\n"
           "text that comes with Choir.\n\n"
           "Model and data\n"
           "  --model NAME[:key=value,...]     one of these (default: by the data)\n");
    const choir__model_spec *model;
    for (size_t i = 0; (model = choir__model_at(i)); i++)
        print_entry(model->name, 9, model->help);
    printf("                                   or a published config.json, or a folder with\n"
           "                                   one, and its weights if they are there\n"
           "  --weights FILE                   start from published weights: .safetensors,\n"
           "                                   an index of several, or a folder\n"
           "  --tokenizer FILE                 a tokenizer.json, a SentencePiece .model, or\n"
           "                                   a folder with one (or vocab.json and\n"
           "                                   merges.txt); default: tokens are characters\n"
           "  --bytes                          tokens are bytes, not characters\n"
           "  --batch-size N                   samples of the global batch (default 32)\n"
           "  --microbatches M                 cut of the global batch (default: one a rank)\n"
           "  --workers N                      threads that read samples, a rank (default 1)\n"
           "  --init choir|torch               initial values: Choir's own, or those PyTorch\n"
           "                                   draws for the same layers after\n"
           "                                   manual_seed(N)\n"
           "  --seed N                         all that is random follows from it (42)\n\n"
           "Devices\n"
           "  --strategy NAME[:key=value,...]  one of these (default single)\n");
    print_strategies();
    printf(
        "  --mesh 2x4                       several strategies at once, each along one\n"
        "                                   dimension, the outermost first, as\n"
        "                                   --strategy ddp+pipeline: two replicas of a\n"
        "                                   pipeline of four stages, a rank each; with\n"
        "                                   --nproc 2, the stages are a rank's devices\n"
        "  --nproc N                        ranks to start (default: one a device that\n"
        "                                   --devices names, else 1; for mp and pipeline\n"
        "                                   none: one process has all stages)\n"
        "  --devices LIST                   as cpu:0,cpu:1 or cuda:0-3, or auto: all\n"
        "                                   GPUs, or all cores where there are none (the\n"
        "                                   default)\n"
        "  --threads N                      cores a device, for CPUs (default 1)\n"
        "  --mem-cap BYTES                  limit of a device's memory, as 500M\n"
        "  --recompute                      less memory, more time: a model's blocks are\n"
        "                                   computed again in backward\n"
        "  --amp LEVEL                      mixed precision: bf16, fp16 (with a gradient\n"
        "                                   scaler), Apex's O1, O2, O3; default off (O0)\n"
        "  --timeout S                      when a silent rank is given up (default 1800)\n"
        "  --backend shm|ucx|mpi|nccl       how ranks talk (the best that reaches all)\n"
        "  --rendezvous URL                 env://, tcp://host:port or file://path\n"
        "  --key-file F                     the job's key between machines; mode 0600\n\n"
        "Training\n"
        "  --steps N, --epochs N            how long (default 1000 steps)\n"
        "  --optimizer NAME[:key=value,...] sgd, adam, adamw (default), lamb, as\n"
        "                                   adamw:beta2=0.99,decay=matrices\n"
        "  --lr X                           learning rate (default 1e-3)\n"
        "  --schedule NAME[:key=value,...]  constant, cosine, linear, step, multistep,\n"
        "                                   exponential, polynomial, restarts, one_cycle,\n"
        "                                   cyclic, inverse_sqrt, as\n"
        "                                   cosine:warmup=100,min_lr=1e-4\n"
        "  --weight-decay X, --clip X       decay; the largest norm of the gradient\n"
        "  --offload FOLDER                 the optimizer's state in a file there\n"
        "  --eval-every N, --eval-batches N validation (0 batches: the whole split)\n"
        "  --no-eval                        no validation at the end\n"
        "  --save DIR, --save-every N       checkpoints; --resume DIR goes on from one\n\n"
        "Output\n"
        "  --json, --quiet, --log-every N\n"
        "  --trace FILE                     which kernel ran when, for ui.perfetto.dev,\n"
        "                                   and a profile at the end; rank R > 0 writes\n"
        "                                   FILE.R\n\n"
        "Example: two ranks in lockstep, with checkpoints:\n"
        "  choir train --strategy ddp --nproc 2 --steps 500 --save runs/1 shakespeare.txt\n");
}
