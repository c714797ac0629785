/* The options of a training job: `choir train` takes all of them, and `choir compare` passes
 * those marked so on to the jobs it starts. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <choir/augment.h>

#include "job/bits.h"
#include "job/model/amp.h"
#include "job/model/base.h"
#include "job/choices.h"
#include "job/columns.h"
#include "line/values.h"
#include "line/say.h"
#include "record/recorder.h"

#define AT(member) CHOIR__LINE_AT(choir__job, member)
#define MANY       CHOIR__LINE_NO_LIMIT

#define MOST 1e12 /* limit of numbers that have no limit of their own */

static void describe_models(FILE *out)
{
    const char *name, *about;
    for (int i = 0; (name = choir_model_name(i, &about)); i++)
        choir__line_help_choice(out, 9, name, about, "");
}

static void describe_strategies(FILE *out)
{
    char keys[320];
    for (int i = 0; choir__job_strategies[i]; i++) {
        const choir__job_strategy *s = choir__job_strategies[i];
        choir__line_help_choice(
            out, 11, s->name, s->help, choir__job_strategy_keys_text(s, keys, sizeof keys));
    }
}

static void describe_augment(FILE *out)
{
    const char *name, *about;
    for (int i = 0; (name = choir_augment_name(i, &about)); i++)
        choir__line_help_choice(out, 11, name, about, "");
}

/* Returns a destination's form, "csv:FILE", until the next call. */
static const char *log_forms(size_t i)
{
    static char form[48];
    const choir__recorder_ops *r = choir__recorder_at(i);
    if (r)
        snprintf(form, sizeof form, "%s:%s", r->name, r->place);
    return r ? form : NULL;
}

const choir__line_option choir__job_options[] = {
    {"model", CHOIR__STRING, AT(model.name), .argument = "NAME[:key=value,...]",
        .elsewhere = "model_name_or_path max_seq_length[NAME:context=N] "
                     "max_length[NAME:context=N] block_size[NAME:context=N]",
        .help =
            "a published model (its config.json, or a folder with one, whose weights are "
            "loaded if they are there; FOLDER:classes=3 gives it a new head), a GGUF file, or one "
            "of these (default: one that fits the data)",
        .choices = choir__job_model_names, .details = describe_models, .passed_on = true,
        .group = "Model and data", .recorded = CHOIR__RECORDED_KEEPS,
        .written = choir__option_model_text, .late = true},
    {"weights", CHOIR__STRING, AT(model.weights), .argument = "FILE",
        .help = "start from published weights: a .safetensors or GGUF file, an index of "
                "several, or a folder",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS, .of_a_rank = true,
        .written = choir__option_weights_text},
    {"adapter", CHOIR__STRING, AT(model.adapter), .argument = "FOLDER",
        .help =
            "start from an adapter that peft or choir export wrote, and train it (see --lora)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS, .of_a_rank = true,
        .written = choir__option_adapter_text},
    {"tokenizer", CHOIR__STRING, AT(model.tokenizer_file), .argument = "FILE",
        .help =
            "a tokenizer.json, a SentencePiece .model, a folder with one of these or with "
            "vocab.json and merges.txt, or chars: each character is a token (default: the one "
            "beside the weights; without weights, chars)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS, .of_a_rank = true,
        .written = choir__option_tokenizer_text},
    {"bytes", CHOIR__FLAG, AT(model.bytes), .help = "each byte is a token", .passed_on = true,
        .recorded = CHOIR__RECORDED_KEEPS, .excludes = {{"tokenizer"}, ": choose one of them"}},
    {"batch-size", CHOIR__INT, AT(training.batch_size), 1, MANY, .preset = "32",
        .argument = "N",
        .elsewhere = "per_device_train_batch_size per_device_eval_batch_size train_batch_size "
                     "global_batch_size",
        .help = "number of samples in the global batch", .passed_on = true,
        .recorded = CHOIR__RECORDED_KEEPS},
    {"microbatches", CHOIR__INT, AT(training.microbatches), 1, MANY, .argument = "M",
        .elsewhere = "gradient_accumulation_steps accumulate_grad_batches",
        .help =
            "number of micro-batches that the global batch is cut into (default: one per rank; "
            "with --strategy auto, what the job alone decides)",
        .advised = true, .recorded = CHOIR__RECORDED_KEEPS},
    {"chunks", CHOIR__INT, AT(training.chunks), 1, CHOIR__MOST_CHUNKS, .argument = "S",
        .elsewhere = "context_parallel_size",
        .help =
            "number of chunks that each sequence of tokens is cut into (default: one per rank "
            "of strategy cp, otherwise 1); a resumed job keeps it",
        .recorded = CHOIR__RECORDED_CUT},
    {"slices", CHOIR__INT, AT(training.slices), 1, CHOIR__MOST_SLICES, .argument = "T",
        .elsewhere = "tensor_model_parallel_size tensor_parallel_size",
        .help =
            "number of slices that large weights are cut into: the leaves of the sums that tensor "
            "parallelism distributes over ranks (default: one per rank of tp, otherwise 1)",
        .recorded = CHOIR__RECORDED_CUT},
    {"augment", CHOIR__STRING, AT(data.augment), .argument = "NAME[:key=value,...][+...]",
        .help = "random changes of training images, such as "
                "randaugment:magnitude=9+mixup:alpha=0.2 (default: crop and flip alone)",
        .choices = choir__job_augment_names, .details = describe_augment, .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES},
    {"pack", CHOIR__FLAG, AT(data.pack), .elsewhere = "packing",
        .help =
            "fill samples with whole documents that do not see one another (default: documents "
            "are joined, and cut where a sample ends)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS, .rereads = true},
    {"columns", CHOIR__STRING, AT(data.columns), .argument = "NAME=COLUMN[,...]",
        .elsewhere = "dataset_text_field",
        .help =
            "columns whose names differ, such as prompt=question (names in documents: text, "
            "prompt, completion, messages, conversations, tools, system, instruction, input, "
            "output; in texts with labels: text, pair, label)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS},
    {"val-split", CHOIR__FLOAT, AT(data.val_split), 1e-6, 1 - 1e-6, .argument = "PART",
        .help =
            "the part of the data for validation, such as 0.2, if they have no validation split "
            "of their own (default: a tenth)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS, .rereads = true},
    {"balance", CHOIR__FLAG, AT(data.balance),
        .help = "draw the samples of all classes equally often, with replacement",
        .passed_on = true, .recorded = CHOIR__RECORDED_TAKES, .rereads = true},
    {"skip-batches", CHOIR__STRING, AT(data.skip), .argument = "A:B,...",
        .help =
            "leave out batches A to B - 1, or A alone, as if the data did not have them; batch "
            "n is what step n trains on without this option. The steps stay as many, so --epochs "
            "ends in the next epoch. A resumed run leaves out its earlier ones, too",
        .recorded = CHOIR__RECORDED_TAKES, .rereads = true},
    {"workers", CHOIR__INT, AT(data.workers), 1, CHOIR_MAX_WORKERS, .preset = "1",
        .argument = "N", .elsewhere = "dataloader_num_workers num_workers",
        .help = "threads per rank that read samples ahead", .passed_on = true,
        .recorded = CHOIR__RECORDED_FREE, .of_a_rank = true},
    {"init", CHOIR__STRING, AT(model.init), .preset = NULL, .argument = "NAME",
        .help =
            "initial values (default choir); torch: those that PyTorch draws for the same layers "
            "after manual_seed(N)",
        .choices = choir__job_init_names, .strict = true, .passed_on = true,
        .recorded = CHOIR__RECORDED_KEEPS},
    {"seed", CHOIR__INT, AT(training.seed), 0, MANY, .preset = "42", .argument = "N",
        .help = "seed of all random numbers", .passed_on = true,
        .recorded = CHOIR__RECORDED_KEEPS},

    {"strategy", CHOIR__STRING, AT(placement.strategy_text), .preset = "auto",
        .argument = "NAME[:key=value,...]",
        .help =
            "how the work is distributed: auto, which takes the fastest placement of the cut that "
            "fits, as choir plan foresees it, or one of these",
        .choices = choir__job_strategy_names_and_auto, .details = describe_strategies,
        .group = "Devices", .advised = true, .recorded = CHOIR__RECORDED_PLACE,
        .written = choir__option_strategy_text},
    {"mesh", CHOIR__STRING, AT(placement.mesh), .argument = "RxC",
        .help =
            "sizes of a composition of strategies, the outermost first: with --strategy "
            "ddp+pipeline, 2x4 means two replicas of a pipeline of four stages, a rank per "
            "stage; with --nproc 2 as well, the stages of a replica are devices of one rank",
        .advised = true, .recorded = CHOIR__RECORDED_PLACE, .displaced_by = {"strategy"}},
    {"nproc", CHOIR__INT, AT(placement.nproc), 1, CHOIR__MOST_RANKS, .argument = "N",
        .elsewhere = "nproc_per_node num_processes",
        .help =
            "number of ranks to start (default: one per device of --devices, otherwise 1; mp and "
            "pipeline use one process unless specified)",
        .advised = true, .recorded = CHOIR__RECORDED_PLACE, .of_a_rank = true,
        .displaced_by = {"strategy", "mesh", "devices"}, .idle = choir__option_launched},
    {"max-restarts", CHOIR__INT, AT(ranks.max_restarts), 0, 900, .preset = "0", .argument = "N",
        .help =
            "replace up to N ranks that die or hang; the others continue without them, or wait "
            "if the strategy needs as many (default 0: the job fails with the first loss); "
            "--nproc above "
            "--microbatches starts spares",
        .rereads = true, .excludes = {{"trace"}, ": a trace is of one group of ranks"}},
    {"no-copy", CHOIR__FLAG, AT(ranks.no_copy),
        .help =
            "with --max-restarts, for strategies other than ddp and hogwild: keep no copies of the "
            "ranks' state in memory; after a loss the job continues from its last checkpoint",
        .idle = choir__option_saves_nothing},
    {"devices", CHOIR__STRING, AT(placement.devices), .argument = "LIST", .elsewhere = "gpus",
        .help = "devices such as cpu:0,cpu:1 or cuda:0-3, or auto: all GPUs, or all cores of a "
                "machine without GPUs (default auto)",
        .advised = true, .recorded = CHOIR__RECORDED_PLACE, .of_a_rank = true,
        .displaced_by = {"strategy", "mesh", "nproc"}},
    {"threads", CHOIR__INT, AT(placement.threads), 1, MANY, .preset = "1", .argument = "N",
        .help = "cores per CPU device; --strategy auto chooses them unless specified",
        .passed_on = true, .recorded = CHOIR__RECORDED_FREE, .of_a_rank = true},
    {"mem-cap", CHOIR__BYTES, AT(placement.mem_cap), 0, 0x1p63, .argument = "BYTES",
        .help = "limit of the memory of each device, such as 500M", .passed_on = true,
        .recorded = CHOIR__RECORDED_FREE, .of_a_rank = true},
    {"recompute", CHOIR__FLAG, AT(optim.recompute),
        .elsewhere = "gradient_checkpointing activation_checkpointing recompute_activations",
        .help = "save memory: compute the blocks of the model again in backward",
        .passed_on = true, .recorded = CHOIR__RECORDED_FREE},
    {"amp", CHOIR__STRING, AT(optim.amp), .argument = "LEVEL",
        .elsewhere = "fp16[fp16] bf16[bf16] mixed_precision precision",
        .help = "mixed precision: autocast to 16 bits, or a level of Apex (default off)",
        .choices = choir__job_amp_level_names, .strict = true, .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES, .written = choir__option_amp_text},
    {"bits", CHOIR__STRING, AT(optim.bits), .preset = "auto", .argument = "CLASS",
        .help =
            "the order in which products add, which decides their last bits: chain, the same on "
            "every processor; amx, whose products of bf16 are AMX's; onednn; cuda on GPUs (default "
            "auto: amx for bf16 where all ranks have it, otherwise chain)",
        .choices = choir__job_bits_names, .strict = true, .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES, .written = choir__option_bits_text,
        .unrecorded = choir__option_bits_before},
    {"timeout", CHOIR__FLOAT, AT(ranks.timeout), 0, MOST, .preset = "1800", .argument = "S",
        .help = "seconds after which a silent rank is given up", .passed_on = true,
        .of_a_rank = true},
    {"slow-after", CHOIR__FLOAT, AT(ranks.slow_after), 0, MOST, .preset = "30", .argument = "S",
        .help =
            "seconds after which a rank for which the others wait is named (default 30); 0: never"},
    {"backend", CHOIR__STRING, AT(ranks.backend), .argument = "NAME",
        .help = "how ranks communicate (default: the best that reaches all of them)",
        .choices = choir__job_backend_names, .strict = true, .passed_on = true,
        .recorded = CHOIR__RECORDED_FREE, .no_effect = choir__option_alone},
    {"rendezvous", CHOIR__STRING, AT(ranks.rendezvous), .argument = "URL",
        .help = "where ranks started by hand meet: env://, tcp://host:port or file://path",
        .of_a_rank = true},
    {"key-file", CHOIR__STRING, AT(ranks.key_file), .argument = "FILE",
        .help = "the job's key (mode 0600), for ranks on several machines", .of_a_rank = true,
        .no_effect = choir__option_alone},

    {"steps", CHOIR__INT, AT(training.steps), 1, MANY, .argument = "N",
        .elsewhere = "max_steps train_iters max_iters",
        .help = "number of steps (default 1000, unless --epochs is specified)",
        .group = "Training", .recorded = CHOIR__RECORDED_TAKES,
        .matters = choir__option_stretched, .filled_by = "epochs", .displaced_by = {"epochs"},
        .excludes = {{"epochs"}, ": choose one of them"}},
    {"epochs", CHOIR__INT, AT(training.epochs), 1, MANY, .argument = "N",
        .elsewhere = "num_train_epochs num_epochs max_epochs",
        .help = "number of passes over the data", .rereads = true,
        .recorded = CHOIR__RECORDED_FREE, .displaced_by = {"steps"}},
    {"optimizer", CHOIR__STRING, AT(optim.optimizer), .preset = "adamw",
        .argument = "NAME[:key=value,...]",
        .elsewhere =
            "optim adam_beta1[adamw:beta1=X] adam_beta2[adamw:beta2=X] adam_epsilon[adamw:eps=X]",
        .help = "the optimizer, such as adamw:beta2=0.99,decay=matrices",
        .choices = choir__job_optimizer_names, .passed_on = true,
        .recorded = CHOIR__RECORDED_KIND, .written = choir__option_optimizer_text},
    {"lr", CHOIR__FLOAT, AT(optim.lr), 0, MOST, .preset = "1e-3", .argument = "X",
        .elsewhere = "learning_rate", .help = "learning rate", .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES},
    {"lr-for", CHOIR__STRING, AT(optim.lr_for), .argument = "PATTERN=X,...",
        .help = "learning rates of the parameters whose names match, such as 'bert.*=1e-5'",
        .passed_on = true, .recorded = CHOIR__RECORDED_TAKES},
    {"freeze", CHOIR__STRING, AT(optim.freeze), .argument = "PATTERN,...",
        .help = "parameters that are not trained, by their names: 'bert.embeddings.*'",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS},
    {"lora", CHOIR__STRING, AT(optim.lora), .argument = "r=16[,key=value,...]",
        .elsewhere =
            "lora_r[r=N] lora_rank[r=N] lora_alpha[r=N,alpha=X] lora_dropout[r=N,dropout=X] "
            "lora_target_modules[r=N,targets=NAME] use_peft[r=16]",
        .help =
            "train low-rank adapters beside frozen weights: alpha=(2 r),dropout=0,rslora=0, "
            "targets=q_proj/v_proj or all-linear (default: the layers for queries and values), "
            "modules_to_save=NAME/NAME (trained whole; default: the head of a classifier)",
        .passed_on = true, .recorded = CHOIR__RECORDED_KEEPS,
        .written = choir__option_lora_text},
    {"base", CHOIR__STRING, AT(optim.base), .argument = "TYPE",
        .elsewhere = "load_in_4bit[q4_0] load_in_8bit[q8_0] quantization_config",
        .help = "hold frozen weights in few bits (default: as a GGUF file has them; those that "
                "products read in --amp's 16 bits, others as f32)",
        .choices = choir__base_names, .strict = true, .passed_on = true,
        .recorded = CHOIR__RECORDED_KEEPS},
    {"schedule", CHOIR__STRING, AT(optim.schedule), .preset = "constant",
        .argument = "NAME[:key=value,...]",
        .elsewhere =
            "lr_scheduler_type lr_scheduler warmup[NAME:warmup=N] warmup_steps[NAME:warmup=N] "
            "warmup_ratio[NAME:warmup=0.1] warmup_iters[NAME:warmup=N] min_lr[NAME:min_lr=X]",
        .help =
            "schedule of the learning rate, such as cosine:warmup=0.1,min_lr=1e-4 (a share of "
            "the steps, or their number)",
        .choices = choir__job_schedule_names, .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES, .written = choir__option_schedule_text},
    {"weight-decay", CHOIR__FLOAT, AT(optim.weight_decay), 0, MOST, .argument = "X",
        .help = "weight decay (default: the optimizer's own)", .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES, .written = choir__option_weight_decay_text,
        .kind = "optimizer"},
    {"clip", CHOIR__FLOAT, AT(optim.clip), 0, MOST, .argument = "X",
        .elsewhere = "max_grad_norm grad_clip gradient_clip_val clip_grad",
        .help = "largest norm of the gradient (default 0: no limit)", .passed_on = true,
        .recorded = CHOIR__RECORDED_TAKES},
    {"offload", CHOIR__STRING, AT(optim.offload), .argument = "FOLDER|params[:FOLDER]",
        .elsewhere = "cpu_offload",
        .help =
            "keep the optimizer's state in a file there instead of in memory; params: fsdp's "
            "weights, gradients and state in host memory, or in a file",
        .passed_on = true},
    {"ema", CHOIR__FLOAT, AT(optim.ema), 1e-6, 0.999999999, .argument = "DECAY",
        .elsewhere = "ema_decay",
        .help =
            "keep an exponential average of the weights, such as 0.999: validations and the "
            "weights of checkpoints are of the average",
        .recorded = CHOIR__RECORDED_KEEPS, .excludes = {{"swa"}, ": choose one of them"}},
    {"swa", CHOIR__INT, AT(optim.swa), 1, MANY, .argument = "STEP",
        .help =
            "keep the mean of the weights from that step on (stochastic weight averaging), as "
            "--ema does",
        .recorded = CHOIR__RECORDED_KEEPS},
    {"swa-every", CHOIR__INT, AT(optim.swa_every), 1, MANY, .preset = "1", .argument = "N",
        .help = "--swa averages every N-th step", .recorded = CHOIR__RECORDED_KEEPS,
        .needs = {{"swa"}, ""}},
    {"max-time", CHOIR__STRING, AT(training.max_time), .argument = "TIME",
        .help =
            "end the training after this time, such as 90s, 15m, 2h or 1d, as if the steps were "
            "done"},
    {"eval-every", CHOIR__INT, AT(training.eval_every), 1, MANY, .argument = "N",
        .elsewhere = "eval_steps eval_interval",
        .help = "validate every N steps (default: only at the end)",
        .recorded = CHOIR__RECORDED_TAKES, .matters = choir__option_judged,
        .filled_by = "eval-epochs", .displaced_by = {"eval-epochs"},
        .excludes = {{"eval-epochs"}, ": choose one of them"}},
    {"eval-epochs", CHOIR__INT, AT(training.eval_epochs), 1, MANY, .argument = "N",
        .elsewhere = "check_val_every_n_epoch eval_strategy evaluation_strategy",
        .help = "validate every N epochs instead", .recorded = CHOIR__RECORDED_FREE,
        .displaced_by = {"eval-every"}},
    {"eval-batches", CHOIR__INT, AT(training.eval_batches), 0, MANY, .preset = "0",
        .argument = "N", .elsewhere = "eval_iters limit_val_batches",
        .help = "validate on at most N batches; 0: the whole split",
        .recorded = CHOIR__RECORDED_TAKES, .matters = choir__option_judged,
        .no_effect = choir__option_unvalidated},
    {"no-eval", CHOIR__FLAG, AT(training.no_eval), .help = "do not validate at the end",
        .recorded = CHOIR__RECORDED_FREE},
    {"metric", CHOIR__STRING, AT(training.metric), .argument = "NAME=COMMAND",
        .elsewhere = "compute_metrics",
        .help =
            "measure each validation by a command, too: it reads the predictions as lines of "
            "JSON, and prints a number",
        .where = CHOIR__OF_LINE, .no_effect = choir__option_unvalidated},
    {"best", CHOIR__STRING, AT(training.best), .argument = "METRIC[:min|max]",
        .elsewhere = "metric_for_best_model load_best_model_at_end monitor",
        .help =
            "what a validation measures to choose the best checkpoint, DIR/best: loss, accuracy "
            "or the NAME of --metric (default loss)",
        .recorded = CHOIR__RECORDED_JUDGES, .written = choir__option_best_text,
        .no_effect = choir__option_unvalidated},
    {"patience", CHOIR__INT, AT(training.patience), 1, MANY, .argument = "N",
        .elsewhere = "early_stopping_patience",
        .help =
            "end the training when N validations of --eval-every in a row were no better than "
            "the best (default: never)",
        .recorded = CHOIR__RECORDED_JUDGES,
        .needs = {{"eval-every", "eval-epochs"},
            ": training would never be evaluated before its end"}},
    {"on-spike", CHOIR__STRING, AT(training.on_spike),
        .argument = "FACTOR[:rewind=N,skip=K,window=W]",
        .help =
            "if the loss or the norm of the gradients is NaN, or above FACTOR medians of the last "
            "W (32) steps, when there are W, go back N (10) steps, to the checkpoints of "
            "--save-every, and leave out K (20) batches from there on: the one of the spike, too, "
            "if K is not below N",
        .recorded = CHOIR__RECORDED_TAKES, .rereads = true},
    {"debug-nan", CHOIR__FLAG, AT(training.debug_nan),
        .help =
            "name the first module whose numbers are infinite or NaN, in forward or backward; "
            "slow"},
    {"save", CHOIR__STRING, AT(saves.dir), .argument = "DIR", .elsewhere = "output_dir",
        .help = "write checkpoints to DIR, the last one at the end", .where = CHOIR__OF_PLACE},
    {"save-every", CHOIR__INT, AT(saves.every), 1, MANY, .argument = "N",
        .elsewhere = "save_steps save_interval",
        .help = "write a checkpoint every N steps as well", .recorded = CHOIR__RECORDED_FREE,
        .of_a_rank = true, .no_effect = choir__option_unsaved, .where = CHOIR__OF_RECORDS},
    {"save-keep", CHOIR__INT, AT(saves.keep), 1, MANY, .preset = "1", .argument = "K",
        .elsewhere = "save_total_limit",
        .help = "keep the newest K checkpoints, and the best one",
        .recorded = CHOIR__RECORDED_FREE, .of_a_rank = true, .no_effect = choir__option_unsaved,
        .where = CHOIR__OF_RECORDS},
    {"save-warn", CHOIR__FLAG, AT(saves.warn),
        .help =
            "a checkpoint that cannot be written during training is a warning, and training "
            "continues; the last one must succeed",
        .no_effect = choir__option_unsaved, .where = CHOIR__OF_RECORDS},
    {"grace", CHOIR__STRING, AT(saves.grace), .argument = "TIME",
        .help =
            "the time, such as 30s or 2m, from a signal that ends the job to its kill: a "
            "checkpoint that takes longer is not begun, and ranks of --nproc that are stuck "
            "are ended (default: Slurm's, or no limit)",
        .of_a_rank = true, .no_effect = choir__option_no_grace, .where = CHOIR__OF_RECORDS},
    {"resume", CHOIR__STRING, AT(saves.resume), .argument = "DIR",
        .elsewhere = "resume_from_checkpoint ckpt_path",
        .help = "continue the job of the latest checkpoint in DIR, with its options and data; "
                "it keeps saving there",
        .where = CHOIR__OF_PLACE, .of_a_rank = true},
    {"rewind", CHOIR__INT, AT(saves.rewind), 1, MANY, .argument = "STEP",
        .help =
            "let --resume go back to the newest checkpoint that is not behind STEP; the next "
            "save removes later ones",
        .where = CHOIR__OF_LINE, .needs = {{"resume"}, ": a new job has no steps to go back"}},
    {"recut", CHOIR__FLAG, AT(saves.recut),
        .help =
            "let --resume take another number of --slices, of --chunks, of workers (diloco, "
            "local-sgd) or of groups (ddp:sync_bn); the numbers change",
        .where = CHOIR__OF_LINE, .needs = {{"resume"}, ": a new job has no cut to change"}},

    {"run", CHOIR__STRING, AT(records.run), .argument = "DIR", .elsewhere = "run_name",
        .help = "record the run in DIR, without checkpoints: its job, a line per step, events; "
                "--save does so by itself",
        .group = "Records", .where = CHOIR__OF_PLACE},
    {"log", CHOIR__STRING, AT(records.log), .argument = "NAME:PLACE", .elsewhere = "report_to",
        .help = "record the run for another tool, too; may be repeated", .choices = log_forms,
        .where = CHOIR__OF_PLACE, .repeated = true, .of_a_rank = true},
    {"log-histograms", CHOIR__INT, AT(records.log_histograms), 1, MANY, .argument = "N",
        .help = "with --log tensorboard: histograms of weights and gradients every N steps "
                "(default: none)",
        .idle = choir__option_no_histograms, .where = CHOIR__OF_RECORDS},
    {"audit", CHOIR__STRING, AT(records.audit), .argument = "every=K[,recheck=N][,dump]",
        .alone = "every=50",
        .help =
            "add hashes of what each K-th step reads and writes to audit.jsonl in the run's "
            "folder, for choir audit (default of K: 50); recheck: compute each N-th step again on "
            "other ranks, and name a rank that is wrong; dump: keep these steps' tensors, and "
            "what each op computed",
        .recorded = CHOIR__RECORDED_FREE,
        .needs = {{"save", "run"}, ": the hashes are kept in the run's folder"},
        .where = CHOIR__OF_RECORDS},
    {"page", CHOIR__FLAG, AT(records.page),
        .help = "serve a live page of the run to a browser on this machine, and print its "
                "address; with --run or --save, whose folder it shows",
        .where = CHOIR__OF_LINE},
    {"without", CHOIR__STRING, AT(document.without), .argument = "NAME,...",
        .help =
            "options of the job file, or of the resumed job, that get their defaults instead",
        .where = CHOIR__OF_LINE},
    {"print-job", CHOIR__FLAG, AT(records.print_job),
        .help = "print this command line as a job file, with all defaults, and train nothing",
        .where = CHOIR__OF_LINE},

    {"summary", CHOIR__FLAG, AT(training.summary),
        .help =
            "print the tree of the model with shapes, parameters, FLOPs and memory, and end",
        .group = "Instead of training", .where = CHOIR__OF_RECORDS},
    {"find-lr", CHOIR__STRING, AT(training.find_lr), .argument = "FILE",
        .help =
            "instead of training, raise the rate from 1e-7 to 10 in 200 steps (or --steps), draw "
            "the loss as FILE.png or .svg, and print the rate at which it is halfway down",
        .rereads = true,
        .excludes = {{"resume", "save", "run", "log", "max-restarts"},
            ": it trains no model to keep"}},

    {"json", CHOIR__FLAG, AT(records.json), .help = "print one JSON object per line",
        .group = "Output", .of_a_rank = true, .where = CHOIR__OF_RECORDS},
    {"quiet", CHOIR__FLAG, AT(records.quiet), .help = "print only the last line",
        .of_a_rank = true, .where = CHOIR__OF_RECORDS},
    {"log-every", CHOIR__INT, AT(records.log_every), 1, MANY, .argument = "N",
        .elsewhere = "logging_steps log_interval log_every_n_steps",
        .help =
            "report every N steps (default: every 2 seconds, on a terminal more often; with "
            "--json every step)",
        .of_a_rank = true, .where = CHOIR__OF_RECORDS},
    {"trace", CHOIR__STRING, AT(records.trace), .argument = "FILE",
        .help = "write when each kernel ran, for ui.perfetto.dev, and print a profile at the "
                "end; rank R > 0 writes FILE.R",
        .where = CHOIR__OF_PLACE, .of_a_rank = true},
    {NULL},
};

choir_status choir__job_add_log(choir__job_records *r, const char *dest)
{
    enum { MOST_LOGS = 64 };
    const choir__recorder_ops *ops;
    const char *place;
    int count = r->logs != NULL;
    for (const char *at = r->logs; at && (at = strchr(at, '\n')); at++)
        count++;
    if (count == MOST_LOGS)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected at most %d logs", MOST_LOGS);
    choir_status status = choir__recorder_find(dest, &ops, &place);
    if (status == CHOIR_OK && strchr(dest, '\n'))
        status = choir__error(CHOIR_ERR_ARGUMENT, "expected a place without line ends");
    if (status == CHOIR_OK && ops->check)
        status = ops->check(place);
    if (status != CHOIR_OK)
        return status;
    char *all = choir__format("%s%s%s", r->logs ? r->logs : "", r->logs ? "\n" : "", dest);
    free(r->logs);
    r->logs = all;
    return CHOIR_OK;
}

/* Leaves out the options of a list of names. */
static choir_status leave_out(choir__job *j, const char *text)
{
    char *list = choir__strdup(text), *rest = list, *name;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (name = strsep(&rest, ","))) {
        const choir__line_option *o = choir__line_named(choir__job_options, name);
        int64_t row = o ? o - choir__job_options : 0;
        if (!o || o->where == CHOIR__OF_LINE)
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "--without %s: expected names of options that a job file has, got '%s'", text,
                name);
        else
            j->document.left_out[row / 64] |= UINT64_C(1) << row % 64;
    }
    free(list);
    return status;
}

choir_status choir__job_took(void *values, const choir__line_option *option, const char *text)
{
    choir__job *j = values;
    if (option->at == offsetof(choir__job, document.without))
        return leave_out(j, text);
    if (option->repeated && choir__job_add_log(&j->records, text) != CHOIR_OK)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--%s %s: %s", option->name, text, choir_error_message());
    for (int i = 0; choir__job_options[i].name; i++)
        if (option == &choir__job_options[i])
            j->given[i / 64] |= UINT64_C(1) << i % 64;
    if (j->optim.amp) /* by one name */
        j->optim.amp = choir__amp_find(j->optim.amp)->name;
    return CHOIR_OK;
}

_Static_assert(CHOIR_COUNT(choir__job_options) <= 128, "choir__job.given has a bit per row");

const choir__line_option *choir__job_option_at(size_t offset)
{
    const choir__line_option *o = choir__job_options;
    while (o->name && o->at != offset)
        o++;
    assert(o->name); /* the member is an option's value */
    return o;
}

bool choir__job_was_given(const choir__job *j, const choir__line_option *option)
{
    int64_t row = option - choir__job_options;
    return j->given[row / 64] >> row % 64 & 1;
}

void choir__job_unsay(choir__job *j, const choir__line_option *option)
{
    int64_t row = option - choir__job_options;
    j->given[row / 64] &= ~(UINT64_C(1) << row % 64);
}

bool choir__job_leaves_out(const choir__job *j, const choir__line_option *option)
{
    int64_t row = option - choir__job_options;
    return j->document.left_out[row / 64] >> row % 64 & 1;
}

choir__job choir__job_new(const char *command)
{
    return (choir__job){.command = command, .optim.weight_decay = -1};
}
