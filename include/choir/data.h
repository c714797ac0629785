/* Data: datasets, the order they are taken in, and a loader that prepares the next batch while
 * this one trains.
 *
 * A dataset has a length and gives sample i; a user's own is a struct whose first member is
 * choir_dataset with a table of two functions. The order is the same on every machine:
 * DistributedSampler over the job's M micro-batches (the permutation of
 * torch.randperm seeded with seed + epoch, padded from the front to a multiple of M, replica m
 * takes entries m, m + M, ...). Micro-batch m of step k holds replica m's next B/M samples, so
 * the cut of the batch does not depend on the ranks.
 *
 * Threads: a dataset's get is called on the loader's workers, by several at once if there are
 * several; everything else from the thread of the run. What is in a batch and the order of
 * batches do not depend on how many workers there are. A sample that cannot be read fails the
 * step that wants it, with its number. Workers are threads: a get that crashes ends the
 * process, as anywhere else; one that hangs is reported after timeout_s, and may look at the
 * dataset until the process ends. Collective: none of these; every rank opens its own loader
 * over the same data. */
#ifndef CHOIR_DATA_H
#define CHOIR_DATA_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_dataset choir_dataset;

typedef struct choir_dataset_ops {
    int64_t (*length)(const choir_dataset *self);
    /** Writes sample `index` to x and y: x_shape values of x_dtype, y_shape of y_dtype. */
    choir_status (*get)(choir_dataset *self, int64_t index, void *x, void *y);
    void (*free)(choir_dataset *self); /* may be NULL */
    /** As get, for samples that differ from epoch to epoch (augmentation): loaders call it if
     * it is there. May be NULL. */
    choir_status (*get_epoch)(
        choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y);
    bool channels_last; /* x_shape reads (C, H, W), and x is stored (H, W, C) */
} choir_dataset_ops;

struct choir_dataset {
    const choir_dataset_ops *ops;
    choir_dtype x_dtype, y_dtype;
    choir_shape x_shape, y_shape; /* of one sample */
    int64_t classes;              /* y is a class id in [0, classes); 0: it is not */
};

int64_t choir_dataset_length(const choir_dataset *dataset);
/** Sample `index` into x and y, as ops->get. Error: range. */
choir_status choir_dataset_get(choir_dataset *dataset, int64_t index, void *x, void *y);
/** The same as it is in this epoch. */
choir_status choir_dataset_get_epoch(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y);
void choir_dataset_free(choir_dataset *dataset); /* NULL is fine */

/* --- tokens --- */

typedef struct choir_tokenizer choir_tokenizer;

/** One token a distinct character (UTF-8) of text, in code-point order. Errors: format (not
 * UTF-8). */
choir_status choir_tokenizer_chars(const char *text, size_t bytes, choir_tokenizer **tokenizer);
/** One token a byte: 256 of them. */
choir_status choir_tokenizer_bytes(choir_tokenizer **tokenizer);
void choir_tokenizer_free(choir_tokenizer *tokenizer);

/** How many ids there are; not all need have a token. */
int64_t choir_tokenizer_size(const choir_tokenizer *tokenizer);
/** The most ids that a text of so many bytes becomes. */
size_t choir_tokenizer_room(const choir_tokenizer *tokenizer, size_t bytes);
/** ids: room for choir_tokenizer_room of them (`bytes`, for characters and bytes); *count: how
 * many there are. Special tokens are recognised where their text stands. A tokenizer may be
 * used by one thread at a time. Error: range, naming the character. */
choir_status choir_tokenizer_encode(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, int64_t *ids, int64_t *count);
/** The text of one token, '\0'-terminated; NULL outside the vocabulary. Not to be freed. */
const char *choir_tokenizer_decode(const choir_tokenizer *tokenizer, int64_t id);
/** The same, and its length: a token may be a part of a character, or hold a '\0'. */
const char *choir_tokenizer_token(const choir_tokenizer *tokenizer, int64_t id, size_t *bytes);

/**
 * As JSON, in the form it came in: {"type":"chars","vocab":["\n"," ",...]}, {"type":"bytes"}, a
 * published tokenizer.json unchanged (also for GPT-2's two files), or {"type":"sentencepiece",
 * "model":"(base64)"}.
 */
choir_status choir_tokenizer_save(const choir_tokenizer *tokenizer, const char *path);

/**
 * Reads what choir_tokenizer_save wrote; GPT-2's vocab.json with merges.txt beside it (either
 * path); Hugging Face's tokenizer.json (BPE of bytes or with byte fallback, Unigram,
 * WordPiece); SentencePiece's .model (Unigram, BPE); or a folder with one of these.
 *
 * Byte-level tokens decode to exactly the bytes that were encoded. A tokenizer.json's
 * post-processor is not applied: training texts get no [CLS] or <s>. Errors: io; format, naming
 * the file and the line, key or token: also whatever in a tokenizer.json is not supported.
 */
choir_status choir_tokenizer_load(const char *path, choir_tokenizer **tokenizer);

/* --- datasets --- */

typedef enum choir_split { CHOIR_TRAIN, CHOIR_VALIDATION } choir_split;

/**
 * Windows of a text file: x (context) i64 tokens, y (context) the same one further on.
 *
 * The last tenth of the file is the validation split. Training windows start at every position;
 * validation windows follow one another, so an epoch reads each token once.
 * *tokenizer NULL: characters of the whole file (bytes if it is not UTF-8), returned there for
 * the caller to free; else it is used. Errors: io, format, argument (shorter than the context;
 * empty).
 */
choir_status choir_dataset_text(const char *path, int64_t context, choir_split split,
    choir_tokenizer **tokenizer, choir_dataset **dataset);

/** The same from memory, which is copied. name is for messages. */
choir_status choir_dataset_text_memory(const char *name, const char *text, size_t bytes,
    int64_t context, choir_split split, choir_tokenizer **tokenizer, choir_dataset **dataset);

/**
 * Windows of a file of token ids, mapped rather than read: for sets larger than memory. Samples
 * and split are those of choir_dataset_text.
 *
 * The file is what choir_tokens_write makes, or llm.c's (magic 20240520 or 20240801), or, with
 * a name that ends in .bin, u16 ids alone, as nanoGPT's. vocabulary: how many ids the model
 * has; 0: as many as the file says, or needs. Errors: io, format (truncated, odd size),
 * argument (shorter than the context), range (more ids than the model's); an id outside the
 * vocabulary is an error of get, range, which names its position.
 */
choir_status choir_dataset_tokens(const char *path, int64_t context, choir_split split,
    int64_t vocabulary, choir_dataset **dataset);

/**
 * Encodes a text file to a file of ids, a few MiB at a time: neither need fit into memory. The
 * file holds u16 where the vocabulary allows, else u32. A text is cut behind a letter or digit,
 * before a line's end or space, where no token crosses (what a special token's own text could
 * hold apart). *count, if not NULL: ids written. Errors: io, format, range, as
 * choir_dataset_text; the file is whole or not there.
 */
choir_status choir_tokens_write(
    const choir_tokenizer *tokenizer, const char *text_path, const char *path, int64_t *count);

/**
 * A folder of IDX files, *-images-idx3-ubyte and *-labels-idx1-ubyte, also .gz (MNIST's
 * format): x (1, H, W) f32, (pixel/255 - mean)/deviation of the training split; y () i64.
 *
 * With a train-* and a t10k-* pair these are the splits; with one pair its last tenth is the
 * validation split. Errors: io, format (headers that lie, truncated data), naming the file.
 */
choir_status choir_dataset_idx(const char *folder, choir_split split, choir_dataset **dataset);

/** How an image's training sample is cut. Validation takes the middle. */
typedef enum choir_crop {
    CHOIR_CROP_AUTO, /* PADDED if the first image has the sample's size already, else RESIZED */
    CHOIR_CROP_RESIZED, /* RandomResizedCrop: a random box of the image, resized */
    CHOIR_CROP_PADDED,  /* RandomCrop: a random window of the image with a black border */
    CHOIR_CROP_CENTER   /* the middle, as in validation */
} choir_crop;

typedef struct choir_image_opts {
    int height, width; /* of a sample; 0 (the default): those of the first image */
    choir_crop crop;
    float scale_min, scale_max; /* RESIZED: the box's share of the area; 0.08 to 1 */
    float ratio_min, ratio_max; /* its width to height; 3/4 to 4/3 */
    int padding;                /* PADDED: pixels on each side; 4 */
    int resize;       /* validation: the shorter side before the middle is cut out; 0: 256/224
                         of the sample's size, or just that size for PADDED */
    bool flip;        /* half of the training samples are mirrored; true */
    bool dct_scaling; /* JPEGs are decoded at 1/2, 1/4 or 1/8 where that is enough; true */
    float mean[3], std[3]; /* x = (pixel/255 - mean) / std; ImageNet's */
    int64_t max_pixels;    /* of a file: more is an error, before memory is taken; 2^26 */
    uint64_t seed;         /* of boxes and flips, with the epoch and the sample; 0 */
} choir_image_opts;

choir_image_opts choir_image_defaults(void);

/**
 * A folder of images, DIR/train/CLASS/FILE and DIR/val or DIR/test: x (3, H, W) f32, stored
 * channels-last; y () i64, the place of CLASS among the sorted names of the training classes.
 *
 * Files are JPEG or PNG (.jpg .jpeg .png, either case; other names are passed over), of any
 * colour, in name order. Without val or test, or with the classes right in DIR, every tenth
 * file of a class is for validation. Resizing is bilinear with antialiasing, as torchvision's
 * on PIL images; a sample depends on (seed, epoch, index) alone.
 *
 * A file is read when its sample is wanted; get may be called by several threads at once.
 * Errors: io, format (no classes, an empty class, one that training has not); of a sample:
 * io, format (damaged, cut short, too large), unsupported (built without that format), all
 * naming the file.
 */
choir_status choir_dataset_images(
    const char *folder, choir_split split, choir_image_opts opts, choir_dataset **dataset);

typedef struct choir_document_opts {
    choir_image_opts image; /* height and width are wanted; of the rest mean, std, max_pixels */
    int64_t context;        /* tokens of a target */
} choir_document_opts;

/** A black border around the whole image; mean and std 0.5. */
choir_document_opts choir_document_defaults(void);

/**
 * Pairs of an image and a JSON value, as Donut (Kim et al., 2022) reads them: DIR/train and
 * DIR/validation (or val, test), each with a metadata.jsonl whose lines are
 * {"file_name": "a.jpg", "ground_truth": {"gt_parse": {...}}} (ground_truth may be a string
 * that holds such JSON). With one metadata.jsonl in DIR every tenth line is for validation.
 *
 * x (3, H, W) f32, stored channels-last: the image, as large as fits. y (context) i64: the
 * value as tokens, <s_key> ... </s_key> around what a key holds, <sep/> between a list's, </s>
 * behind all, then <pad>; longer ones are cut. *tokenizer NULL: the characters of all texts;
 * else it is read; in both cases the one returned there, for the caller to free, knows also the
 * fields' tokens that it lacked. Errors: argument (an option); io, format,
 * naming the file and the line.
 */
choir_status choir_dataset_documents(const char *folder, choir_split split,
    choir_document_opts opts, choir_tokenizer **tokenizer, choir_dataset **dataset);

/** The name of a class of a folder of images; NULL: no such class, or another dataset. */
const char *choir_dataset_class_name(const choir_dataset *dataset, int64_t id);

/** Normal x, and y: uniform class ids in [0, classes), or normal when classes is 0; sample i
 * depends on (seed, i) alone. */
choir_status choir_dataset_random(int64_t length, choir_shape x, choir_shape y, int64_t classes,
    uint64_t seed, choir_dataset **dataset);

/** Random tokens: x (context) and y (context) i64, uniform in [0, vocabulary). */
choir_status choir_dataset_random_tokens(int64_t length, int64_t context, int64_t vocabulary,
    uint64_t seed, choir_dataset **dataset);

/** The same with a class id for each sample: y () i64, uniform in [0, classes). */
choir_status choir_dataset_random_labelled(int64_t length, int64_t context, int64_t vocabulary,
    int64_t classes, uint64_t seed, choir_dataset **dataset);

enum { CHOIR_IGNORED = -100 }; /* a target that does not count */

/**
 * Masked language modelling over another dataset of tokens, x and y (context) i64: of a
 * sample's tokens 15 % are chosen, one at least; y has them in their places and CHOIR_IGNORED
 * elsewhere, and in x 80 % of them have become the token `mask`, 10 % any of [0, vocabulary),
 * 10 % stay. Drawn by (seed, epoch, sample, position) alone; choir_dataset_get gives epoch 0's.
 *
 * Takes `inner`, which goes with it; on failure it stays the caller's. Error: argument.
 */
choir_status choir_dataset_masked(choir_dataset *inner, int64_t mask, int64_t vocabulary,
    uint64_t seed, choir_dataset **dataset);

/* --- orders --- */

/** torch.randperm(n) after torch.manual_seed(seed): out (n). */
void choir_randperm(uint64_t seed, int64_t n, int64_t *out);

/**
 * PyTorch's DistributedSampler: which samples rank `rank` of `world` takes in an epoch. The
 * permutation of torch.randperm seeded with seed + epoch (0, 1, ... without shuffle), padded
 * from the front to a multiple of world (drop_last: cut to one), of which a rank takes every
 * world-th from its own on. A loader does all this by itself; this is for loops of one's own.
 */
typedef struct choir_sampler choir_sampler;

typedef struct choir_sampler_opts {
    int64_t world, rank; /* default 1, 0 */
    bool shuffle;        /* default true */
    bool drop_last;      /* default false */
    uint64_t seed;       /* default 0 */
} choir_sampler_opts;

choir_sampler_opts choir_sampler_defaults(void);
/** Of epoch 0, over a dataset of so many samples. Errors: argument (no rank of that world, none
 * left for a rank), memory. */
choir_status choir_distributed_sampler(
    int64_t samples, choir_sampler_opts opts, choir_sampler **sampler);
void choir_sampler_set_epoch(choir_sampler *sampler, int64_t epoch);
int64_t choir_sampler_length(const choir_sampler *sampler); /* samples of this rank an epoch */
/** The i-th of them, 0 <= i < length; -1 beyond. */
int64_t choir_sampler_at(const choir_sampler *sampler, int64_t i);
void choir_sampler_free(choir_sampler *sampler); /* NULL is fine */

/* --- the loader --- */

typedef struct choir_loader choir_loader;

typedef struct choir_batch {
    choir_tensor *x; /* (B/M, x_shape...) */
    choir_tensor *y; /* (B/M, y_shape...) */
} choir_batch;

typedef struct choir_loader_opts {
    int64_t batch_size;   /* of the global batch; M must divide it */
    int64_t microbatches; /* M, of the whole job; default 1 */
    int64_t micro_first;  /* this rank's run of micro-batches: [first, first + count) */
    int64_t micro_count;  /* 0: all M */
    bool shuffle;         /* default true; false: in order */
    bool drop_last; /* default true: an epoch is whole batches; false: the last is filled up
                       from the front, as DistributedSampler pads */
    uint64_t seed;
    int workers;      /* threads that read samples; 0 (the default): one. With several, get must
                         bear being called by several at once */
    int prefetch;     /* micro-batches prepared ahead; 0 (the default): by their size */
    double timeout_s; /* choir_loader_next waits no longer; 0 (the default): for ever */
} choir_loader_opts;

choir_loader_opts choir_loader_defaults(void);

/** The loader borrows the dataset. Freed when the run closes. Never NULL; errors stick to the
 * run: argument (M does not divide the batch, fewer samples than a batch, ...). */
choir_loader *choir_loader_new(
    choir_scope *run, choir_dataset *dataset, choir_loader_opts opts);

/** For short programs: shuffled batches of a process alone, seeded by the run. */
choir_loader *choir_loader_shuffled(
    choir_scope *run, choir_dataset *dataset, int64_t batch_size);

/** The next micro-batch of this rank, in scope, an open step or micro-batch. In a recorded step
 * each replay receives the next one. Goes on into the next epoch by itself. */
choir_status choir_loader_next(choir_loader *loader, choir_scope *scope, choir_batch *batch);

/** Micro-batches of this rank from the start of the job; where the next one comes from. */
int64_t choir_loader_position(const choir_loader *loader);
void choir_loader_seek(choir_loader *loader, int64_t position);

/** Whole global batches an epoch has. */
int64_t choir_loader_batches(const choir_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
