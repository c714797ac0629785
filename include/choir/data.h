/* Data: datasets, the order of their samples, and a loader that prepares the next batch while
 * the current one trains.
 *
 * A dataset has a length and gives sample i; a user's own dataset is a struct whose first
 * member is choir_dataset, with a table of two functions. The order is the same on every
 * machine: DistributedSampler over the job's M micro-batches (replica m takes entries m, m +
 * M, ... of the permutation). Micro-batch m of step k holds the next B/M samples of replica m,
 * so the cut of the batch does not depend on the ranks. Default (drop_last, as in PyTorch's
 * sampler and loader): the permutation is cut to a multiple of M and an epoch ends with its
 * last whole batch. Without drop_last the sampler pads.
 *
 * Threads: the loader's workers call a dataset's get, several at the same time if there are
 * several workers; everything else is called from the run's thread. The contents and the order
 * of batches do not depend on the number of workers. A sample that cannot be read fails the
 * step that uses it, and the message has its number. Workers are threads: a get that crashes
 * ends the process; a get that hangs is reported after timeout_s, and may read the dataset
 * until the process ends. Collective: no; every rank opens its own loader over the same data.
 */
#ifndef CHOIR_DATA_H
#define CHOIR_DATA_H

#include <choir/beside.h>
#include <choir/model_info.h>
#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_dataset choir_dataset;

/** A part of a sample, and where it comes from. */
typedef struct choir_sample_place {
    const char *file; /* a file, or a name in one; NULL: unknown. The dataset owns it */
    int64_t line;     /* line or row of the record in the file, from 1; -1: no record */
    int64_t document; /* number of the record in the split, from 0; -1: no record */
    /* tokens of the record, or of the split, that the part has; count 0: not cut */
    int64_t first, count;
} choir_sample_place;

typedef struct choir_dataset_ops {
    int64_t (*length)(const choir_dataset *self);
    /** Stores sample `index`: x_shape values of x_dtype in x, y_shape of y_dtype in y. */
    choir_status (*get)(choir_dataset *self, int64_t index, void *x, void *y);
    void (*free)(choir_dataset *self); /* may be NULL */
    /** Like get, for samples that differ between epochs (augmentation). Loaders prefer
     * get_epoch to get. May be NULL. */
    choir_status (*get_epoch)(
        choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y);
    bool channels_last; /* x_shape reads (C, H, W), and x is stored (H, W, C) */
    /** Returns the name of a class, which the dataset owns. May be NULL. */
    const char *(*class_name)(const choir_dataset *self, int64_t id);
    /** Returns the name of a sample, such as its file, which the dataset owns. May be NULL. */
    const char *(*sample_name)(const choir_dataset *self, int64_t index);
    /** Stores the normalisation of images per channel: (v - mean) / std for values v in [0, 1].
     * May be NULL: samples cannot be augmented then. */
    void (*normalized)(const choir_dataset *self, float mean[3], float std[3]);
    /** Returns a sample's class without reading it; -1: an error. May be NULL. */
    int64_t (*class_of)(choir_dataset *self, int64_t index);
    /** Returns whether y may contain CHOIR_IGNORED. May be NULL: no. */
    bool (*ignores)(const choir_dataset *self);
    /** Stores the place of part number `part`, from 0, of a sample; false: it has fewer. *place
     * is "unknown" before. May be NULL: a sample is one part, with its name as the file. */
    bool (*place)(
        const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place);
    /** Returns a sentence about choices in reading the data, such as the template of chats,
     * which the dataset owns; NULL: nothing to say. May be NULL. */
    const char *(*says)(const choir_dataset *self);
} choir_dataset_ops;

struct choir_dataset {
    const choir_dataset_ops *ops;
    choir_dtype x_dtype, y_dtype;
    choir_shape x_shape, y_shape; /* shapes of one sample */
    int64_t classes;              /* y is a class id in [0, classes); 0: y is not a class */
    /* true: a validation split that was cut from the training data, or a mixture with such a
     * source; false: training data, or validation data of their own */
    bool held_out;
    bool numbered; /* labels are numbers, although the model names its classes */
};

int64_t choir_dataset_length(const choir_dataset *dataset);
/** Stores sample `index` in x and y; see ops->get. Error: range. */
CHOIR_CHECKED choir_status choir_dataset_get(
    choir_dataset *dataset, int64_t index, void *x, void *y);
/** Like choir_dataset_get, for the sample as it is in this epoch. */
CHOIR_CHECKED choir_status choir_dataset_get_epoch(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y);
/** Returns the class of a sample whose y is a class id; -1 if y is no class or the sample
 * cannot be read. */
int64_t choir_dataset_class_of(choir_dataset *dataset, int64_t index);
void choir_dataset_free(choir_dataset *dataset); /* NULL is fine */

/** Returns whether y may contain CHOIR_IGNORED. */
bool choir_dataset_ignores(const choir_dataset *dataset);

/** Returns a sentence about choices in reading the data, or NULL; see ops->says. */
const char *choir_dataset_says(const choir_dataset *dataset);

/** A dataset of `count` samples of another one: first, first + step, first + 2 step, ... Takes
 * ownership of `inner`; after a failure the caller still owns it. Error: argument. */
CHOIR_CHECKED choir_status choir_dataset_subset(
    choir_dataset *inner, int64_t first, int64_t step, int64_t count, choir_dataset **dataset);

/**
 * Several datasets as one; their samples have the same shapes and types. With weights (count),
 * the samples of each source are spread evenly over the positions, in proportion to its weight;
 * the length is large enough that every source is read to its end, and shorter sources begin
 * again. With NULL, the sources follow one another.
 *
 * Takes ownership of the sources, not of the arrays; after a failure the caller still owns
 * them. Errors: argument, shape.
 */
CHOIR_CHECKED choir_status choir_dataset_mixed(
    choir_dataset *const *sources, const double *weights, int count, choir_dataset **dataset);

/** Stores in weights (the dataset's length), for each sample, 1 / (number of samples of its
 * class), so that a loader with these weights draws all classes equally often. Errors: argument
 * (the samples are not classes), errors of reading a sample. */
CHOIR_CHECKED choir_status choir_dataset_class_weights(choir_dataset *dataset, double *weights);

/* --- tokens --- */

typedef struct choir_tokenizer choir_tokenizer;

/** Makes a tokenizer with one token per distinct character (UTF-8) of text, in code-point
 * order. Errors: format (not UTF-8). */
CHOIR_CHECKED choir_status choir_tokenizer_chars(
    const char *text, size_t bytes, choir_tokenizer **tokenizer);
/** Makes a tokenizer with one token per byte value: 256 tokens. */
CHOIR_CHECKED choir_status choir_tokenizer_bytes(choir_tokenizer **tokenizer);
void choir_tokenizer_free(choir_tokenizer *tokenizer);

/** Returns the number of ids; some ids may have no token. */
int64_t choir_tokenizer_size(const choir_tokenizer *tokenizer);
/** Encodes text and stores at most `room` ids. *count receives the number of the text's ids; if
 * it is larger than `room`, the call fails, and a second call with room for *count succeeds. If
 * ids is NULL, the call only counts. A text can have more ids than bytes, since a tokenizer may
 * replace a character by a longer text. The texts of special tokens are recognised. One thread
 * at a time may use a tokenizer. Errors: range (a character that has no token, which is named;
 * too little room), format (not UTF-8). */
CHOIR_CHECKED choir_status choir_tokenizer_encode(const choir_tokenizer *tokenizer,
    const char *text, size_t bytes, int64_t *ids, size_t room, int64_t *count);
/** Like choir_tokenizer_encode, for a whole text that a model reads from its first token on:
 * the token with which the tokenizer begins texts (Llama's <s>, Gemma's <bos>: the
 * post_processor of a tokenizer.json; otherwise "add_bos_token" of the folder) stands in front,
 * unless the text begins with it. Documents are trained so, and choir generate encodes prompts
 * so. A text that a chat template wrote has that token. */
CHOIR_CHECKED choir_status choir_tokenizer_encode_whole(const choir_tokenizer *tokenizer,
    const char *text, size_t bytes, int64_t *ids, size_t room, int64_t *count);
/** Returns the text of one token, '\0'-terminated; NULL outside the vocabulary. The tokenizer
 * owns it. */
const char *choir_tokenizer_decode(const choir_tokenizer *tokenizer, int64_t id);
/** Like choir_tokenizer_decode, and stores the length in *bytes: a token may be a part of a
 * character, or contain '\0'. */
const char *choir_tokenizer_token(const choir_tokenizer *tokenizer, int64_t id, size_t *bytes);
/** Returns the id of the token with this text, such as "</s>"; -1 if no token has it. The call
 * searches the whole vocabulary. */
int64_t choir_tokenizer_id(const choir_tokenizer *tokenizer, const char *text);

/** Saves the tokenizer as JSON, in its original form: {"type":"chars","vocab":["\n"," ",...]},
 * {"type":"bytes"}, a published tokenizer.json unchanged (also for GPT-2's two files), or
 * {"type":"sentencepiece", "model":"(base64)"}. */
CHOIR_CHECKED choir_status choir_tokenizer_save(
    const choir_tokenizer *tokenizer, const char *path);

/**
 * Reads a file of choir_tokenizer_save; GPT-2's vocab.json with merges.txt in the same folder
 * (either path); Hugging Face's tokenizer.json (BPE of bytes or with byte fallback, Unigram,
 * WordPiece); SentencePiece's .model (Unigram, BPE); or a folder with one of these.
 *
 * Byte-level tokens decode to exactly the bytes that were encoded. Of the post-processor of a
 * tokenizer.json, the token in front of a text counts (choir_tokenizer_encode_whole). Errors:
 * io; format, naming the file and the line, key or token, also for parts of a tokenizer.json
 * that are not supported.
 *
 * The folder's other files about tokens (choir/beside.h) belong to the tokenizer: they name the
 * token that ends a text, and checkpoints save them with the tokenizer. If the tokenizer's own
 * file has an unusual name, it is read without these files.
 */
CHOIR_CHECKED choir_status choir_tokenizer_load(const char *path, choir_tokenizer **tokenizer);

/** Returns whether a folder has files that choir_tokenizer_load takes. */
bool choir_tokenizer_exists(const char *folder);

/* --- datasets --- */

typedef enum choir_split { CHOIR_TRAIN, CHOIR_VALIDATION } choir_split;

/**
 * Windows of a text file: x (context) i64 tokens, y (context) the same window shifted by one.
 *
 * The last tenth of the file is the validation split (choir_data_opts.held_out sets another
 * part). Training windows start at every position; validation windows follow one another, so an
 * epoch reads each token once.
 *
 * If *tokenizer is NULL, the characters of the whole file are the tokens (bytes if it is not
 * UTF-8), and their tokenizer is stored there for the caller to free; else *tokenizer is used.
 * Errors: io, format, argument (shorter than the context; empty).
 */
CHOIR_CHECKED choir_status choir_dataset_text(const char *path, int64_t context,
    choir_split split, choir_tokenizer **tokenizer, choir_dataset **dataset);

/** Like choir_dataset_text, from memory, which is copied. Messages use the name. */
CHOIR_CHECKED choir_status choir_dataset_text_memory(const char *name, const char *text,
    size_t bytes, int64_t context, choir_split split, choir_tokenizer **tokenizer,
    choir_dataset **dataset);

/**
 * Windows of a file of token ids; each window is read when it is requested, so the file may be
 * larger than memory. Samples and split are as in choir_dataset_text.
 *
 * The file was written by choir_tokens_write or llm.c (magic 20240520 or 20240801), or, if its
 * name ends in .bin, holds u16 ids alone, like nanoGPT's. vocabulary is the model's number of
 * ids; 0: the number that the file states or needs. Errors: io, format (truncated, odd size),
 * argument (shorter than the context), range (more ids than the model's). Errors of get: range
 * (an id outside the vocabulary, naming its position), io (the file has become shorter).
 */
CHOIR_CHECKED choir_status choir_dataset_tokens(const char *path, int64_t context,
    choir_split split, int64_t vocabulary, choir_dataset **dataset);

/** Encodes a text file to a file of ids, a few MiB at a time, so neither has to fit into
 * memory. The file holds u16 if the vocabulary fits, else u32. The text is cut between a letter
 * or digit and a following line end or space, if no token of this tokenizer can cross such a
 * place; otherwise the whole text is encoded at once, at most 1 GiB. If count is not NULL,
 * *count receives the number of ids. An error leaves no file behind. Errors: io, format, range,
 * as choir_dataset_text. */
CHOIR_CHECKED choir_status choir_tokens_write(
    const choir_tokenizer *tokenizer, const char *text_path, const char *path, int64_t *count);

typedef struct choir_corpus_opts {
    int64_t context; /* tokens per sample; default 1024 */
    /* true: no token can be added, because the model has weights; default false */
    bool fixed_tokens;
    /* true: documents do not see one another, and x is (3, context) i64: ids, the number of
     * each position's document in the sample, and the position there; default false */
    bool apart;
    /* share of a single file that is held out for validation, such as 0.2: one of every five
     * records; 0 (the default): a tenth; 1: all records */
    double held_out;
    /* columns whose names in the file differ, "prompt=question,completion=answer"; NULL (the
     * default): none do */
    const char *columns;
} choir_corpus_opts;

choir_corpus_opts choir_corpus_defaults(void);

/**
 * Documents for a language model. path is a file of records, .jsonl, .json (an array), .csv,
 * .tsv or .parquet, where every tenth record is for validation; or a folder with train.jsonl
 * (or .csv, .tsv, .parquet) and validation.jsonl (or val, dev, test). A split may be cut into
 * numbered files, such as train-00000-of-00002.parquet, and the files may be in a sub-folder
 * named data. A record is one of:
 *
 *     {"text": T}                              T
 *     {"prompt": P, "completion": C}           P C; only C is learned
 *     {"messages": [{"role": R, "content": C}, ...]}   a conversation; with "tools": [...]
 *                                          its template sees them
 *     {"conversations": [{"from": "human", "value": C}, ...]}   a conversation
 *     {"instruction": I, "input": N, "output": O}               a conversation of two messages
 *     {"prompt": [...], "completion": [...]}   messages of one; the completion's are
 *                                          learned
 *
 * A conversation is written by the chat template of the tokenizer's folder (choir/chat.h),
 * with the tokens of transformers' apply_chat_template. What the role "assistant" says is
 * learned: the parts that the template marks by {% generation %}, or else the text that each
 * answer adds to the text of the messages before it; a template whose text of earlier messages
 * changes with later ones is refused. Without a template conversations are ChatML:
 * <|im_start|>R, newline, C<|im_end|>, newline; the markers are tokens, and learned are the
 * contents of the role "assistant" and the <|im_end|> after them.
 *
 * The documents are joined. The tokenizer's token that ends a text follows each document that
 * no template writes. A sample is a window: x (context) i64 tokens, y (context) the same
 * shifted by one, CHOIR_IGNORED where the next token is not learned. Windows follow one another
 * in both splits, so an epoch reads each token once. With opts.apart, samples are filled with
 * whole documents instead (a document longer than the context is cut into pieces); the rest of
 * a sample is padding, which is ignored.
 *
 * The tokenizer's folder names the token that ends a text: "eos_token" in tokenizer_config.json
 * (in old folders, special_tokens_map.json comes first), else "eos_token_id" in config.json or
 * generation_config.json (in a list, the first id that is a token). Otherwise it is the first
 * of <|endoftext|>, <|end_of_text|>, </s>, <eos> and [SEP] that is a token.
 *
 * If *tokenizer is NULL, the characters of all documents are the tokens; else *tokenizer is
 * read. If the tokenizer has no token that ends a text, <|endoftext|> is added; if the data
 * contain a chat and there is no template, missing markers are added. *tokenizer receives the
 * result, for the caller to free. Errors: io; format, naming the file, the line and the column
 * (also a chat whose markers are not tokens, with fixed_tokens); argument (shorter than the
 * context; no token that ends a text).
 */
CHOIR_CHECKED choir_status choir_dataset_corpus(const char *path, choir_split split,
    choir_corpus_opts opts, choir_tokenizer **tokenizer, choir_dataset **dataset);

/**
 * A folder of IDX files, *-images-idx3-ubyte and *-labels-idx1-ubyte, also .gz (MNIST's
 * format): x (1, H, W) f32, (pixel/255 - mean)/deviation of the training split; y () i64.
 *
 * A train-* and a t10k-* pair are the two splits. If the folder has only one pair, its last
 * tenth is the validation split; a class with two images or more but none in that tenth gives
 * its second image, too. Errors: io, format (wrong headers, truncated data), naming the file.
 */
CHOIR_CHECKED choir_status choir_dataset_idx(
    const char *folder, choir_split split, choir_dataset **dataset);

/** The crop of an image's training sample. Validation uses the centre. */
typedef enum choir_crop {
    CHOIR_CROP_AUTO,    /* PADDED if the image has the sample's size, else RESIZED */
    CHOIR_CROP_RESIZED, /* RandomResizedCrop: a random box of the image, resized */
    CHOIR_CROP_PADDED,  /* RandomCrop: a random window of the image with a black border */
    CHOIR_CROP_CENTER   /* the centre, as in validation */
} choir_crop;

typedef struct choir_image_opts {
    int height, width; /* size of a sample; 0 (the default): the first image's size */
    /* largest longer side, in pixels, if the size is the first image's: a larger image is
     * scaled down; 0 (the default): no limit */
    int most;
    choir_crop crop;
    float scale_min, scale_max; /* RESIZED: the box's share of the area; default 0.08 to 1 */
    /* RESIZED: the box's width divided by its height; default 3/4 to 4/3 */
    float ratio_min, ratio_max;
    int padding; /* PADDED: pixels on each side; default 4 */
    /* validation: the shorter side before the centre is cut out; 0: 256/224 of the sample's
     * size, or exactly that size where the crop is PADDED */
    int resize;
    /* validation: the size to which the whole image is resized, whatever its shape, before the
     * centre is cut out; 0 (the default): its shape is kept */
    int stretch_height, stretch_width;
    bool flip; /* mirrors half of the training samples; default true */
    /* decodes JPEGs at 1/2, 1/4 or 1/8 of their size if that is enough: faster, but pixels
     * differ from torchvision's by more than one level; default false */
    bool dct_scaling;
    float mean[3], std[3]; /* x = (pixel/255 - mean) / std; default ImageNet's */
    /* limit per file; a larger image is an error before memory is allocated; default 2^26 */
    int64_t max_pixels;
    uint64_t seed; /* seed of crops and flips, with epoch and sample number; default 0 */
    /* the model's classes, which must include every folder's name; NULL (the default): the
     * sorted names of the training folders */
    const choir_class_names *classes;
    /* for data without a validation split: the share that is held out, such as 0.2: one of
     * every five files of a class, or samples of a tar; 0 (the default): a tenth; 1: all. A
     * class with two samples or more gives at least one, its second */
    double held_out;
} choir_image_opts;

choir_image_opts choir_image_defaults(void);

/**
 * Sets the options for preparing a published model's images, from the
 * preprocessor_config.json among the files beside it (beside.h): mean, std, and validation's
 * resize or stretch. Without the file, or if beside is NULL, options stay. *notes receives a
 * note on a setting that is not followed, for the caller to free, or NULL. Error: format (a
 * value that cannot be followed, by key).
 */
CHOIR_CHECKED choir_status choir_image_published(
    const choir_beside *beside, choir_image_opts *opts, char **notes);

/**
 * A folder of images, DIR/train/CLASS/FILE and DIR/val or DIR/test: x (3, H, W) f32, stored
 * channels-last; y () i64, the index of CLASS among the sorted names of the training classes.
 *
 * Files are JPEG or PNG (.jpg .jpeg .png, either case), of any colour. As in torchvision's
 * ImageFolder, files in folders of a class belong to it, and its files are ordered by folder,
 * then by name. Images of other formats (.bmp .webp .ppm .pgm .tif .tiff) are an error; other
 * names, and names that start with a dot, are skipped. If there is no val or test, or the
 * classes are directly in DIR, every tenth file of a class is for validation, and one file of a
 * class with fewer than ten. Resizing is bilinear with antialiasing, as torchvision's on PIL
 * images; A sample depends on (seed, epoch, index) alone.
 *
 * A file is read when its sample is requested; several threads may call get at the same time.
 * Errors: io, format (no classes, an empty class, a class that the training split lacks),
 * unsupported (an image of another format).
 * Errors of a sample: io, format (damaged, truncated, too large), unsupported (built without
 * that format). All errors name the file.
 */
CHOIR_CHECKED choir_status choir_dataset_images(
    const char *folder, choir_split split, choir_image_opts opts, choir_dataset **dataset);

/**
 * Images with classes in tars, as WebDataset stores them: members with one name and different
 * suffixes follow one another, 0001.jpg (or .jpeg, .png), and 0001.cls, the class as text, or
 * 0001.json, whose "cls" or "label" is the class. Samples are as in choir_dataset_images.
 *
 * path is a NAME.tar; several tars, NAME-{000..010}.tar; or a folder, in which val*.tar (or
 * test*.tar) are for validation and train*.tar (or all others) for training. Without val*.tar
 * and test*.tar, every tenth sample is for validation. If all classes are whole numbers, they
 * are the class ids; otherwise the names are sorted.
 *
 * Opening reads the headers of all members. Errors: argument; io; format (a tar that is damaged
 * or cut short, an image without a class), naming the tar and the member.
 */
CHOIR_CHECKED choir_status choir_dataset_shards(
    const char *path, choir_split split, choir_image_opts opts, choir_dataset **dataset);

/**
 * Images without classes, for choir_predict: x as in choir_dataset_images for validation, and
 * y () i64, always 0. A path is a JPEG or PNG file of any name, or a folder, which stands for
 * all images in it and in its sub-folders. If the options give the size, a sample depends on
 * its file and the options alone. choir_dataset_sample_name returns a sample's file. Errors: as
 * for choir_dataset_images; format (a folder without images).
 */
CHOIR_CHECKED choir_status choir_dataset_image_files(
    const char *const *paths, int64_t count, choir_image_opts opts, choir_dataset **dataset);

typedef struct choir_document_opts {
    /* height and width are required; mean, std and max_pixels are used, too */
    choir_image_opts image;
    int64_t context; /* tokens per target */
} choir_document_opts;

/** Returns the defaults: a black border around the whole image, mean and std 0.5. */
choir_document_opts choir_document_defaults(void);

/**
 * Pairs of an image and a JSON value, in Donut's form (Kim et al., 2022): DIR/train and
 * DIR/validation (or val, test), each with a metadata.jsonl whose lines are {"file_name":
 * "a.jpg", "ground_truth": {"gt_parse": {...}}} (ground_truth may be a string that contains
 * such JSON). With one metadata.jsonl in DIR, every tenth line is for validation.
 *
 * x (3, H, W) f32, stored channels-last: the image, scaled to fit. y (context) i64: the value
 * as tokens, with <s_key> ... </s_key> around the value of a key, <sep/> between the entries
 * of a list, </s> at the end, then <pad>. Longer values are truncated.
 *
 * If *tokenizer is NULL, the characters of all texts are the tokens; else *tokenizer is read.
 * In both cases *tokenizer receives a tokenizer that also has the tokens of all fields, for
 * the caller to free. Errors: argument (an option); io, format, naming the file and the
 * line.
 */
CHOIR_CHECKED choir_status choir_dataset_documents(const char *folder, choir_split split,
    choir_document_opts opts, choir_tokenizer **tokenizer, choir_dataset **dataset);

typedef struct choir_labelled_opts {
    int64_t context; /* tokens per sample; default 128 */
    bool words;      /* true: a class per word; false (the default): a class per text or pair */
    /* CLASSIFICATION (the default); REGRESSION: `outputs` numbers per text or pair;
     * MULTI_LABEL: any of the model's `outputs` classes */
    choir_task task;
    int64_t outputs; /* numbers that the model gives per text; 0 for CLASSIFICATION */
    /* names of the columns. NULL (the default): the first column in this list that the record
     * has. text: text, sentence, sentence1, premise (words: tokens, words). pair: text_pair,
     * sentence2, hypothesis. label: label, labels (words: tags, ner_tags, labels) */
    const char *text, *pair, *label;
    /* the model's classes, which must include every label; NULL (the default): the labels of
     * the training split */
    const choir_class_names *classes;
    /* share of a single file that is held out for validation, such as 0.2: one of every five
     * records; 0 (the default): a tenth; 1: all records */
    double held_out;
} choir_labelled_opts;

choir_labelled_opts choir_labelled_defaults(void);

/**
 * Texts or pairs of texts with a class each, or words with a class each, for models such as
 * BERT: x (3, context) i64: ids, token types (1 in the second text of a pair), and a mask (1
 * for a token, 0 for padding); y () i64, or with opts.words (context) i64 with the class of
 * each word at its first token and CHOIR_IGNORED elsewhere. For REGRESSION y (outputs) f32 has
 * the numbers of the column, a number or an array; for MULTI_LABEL 1 for each class that the
 * text has, and 0 for others: the column is an array of labels, or of a truth value (or 0.0 and
 * 1.0) per class.
 *
 * path is a file of records, .jsonl (an object per line), .csv or .tsv (the first row has the
 * names of the columns) or .parquet, where every tenth record is for validation; or a folder
 * with train.jsonl (or .csv, .tsv, .parquet) and validation.jsonl (or val, dev, test), also in
 * numbered files (choir_dataset_corpus). Words are arrays, so they need .jsonl. If all labels
 * are whole numbers, they are the class ids; other labels are sorted, and
 * choir_dataset_class_name returns them.
 *
 * The tokenizer, which needs [CLS], [SEP] and [PAD] or, as RoBERTa's, <s>, </s> and <pad>,
 * encodes each text; texts that are too long lose their last tokens (in a pair, the longer text
 * loses tokens first). Errors: argument (the tokenizer); io; format, naming the file and the
 * line (a missing column; a label that the training split or opts.classes lacks).
 */
CHOIR_CHECKED choir_status choir_dataset_labelled(const char *path, choir_split split,
    choir_labelled_opts opts, const choir_tokenizer *tokenizer, choir_dataset **dataset);

/** A text without a class: one text, a pair of texts, or words. */
typedef struct choir_text {
    char *text, *pair; /* pair is NULL for a single text; both are NULL for words */
    char **words;      /* (word_count) */
    int64_t word_count;
} choir_text;

/** A list of texts; zeroed at first. */
typedef struct choir_texts {
    choir_text *text; /* (count) */
    int64_t count, room;
} choir_texts;

/** Adds a copy of a text and, unless pair is NULL, of the second text of the pair. With
 * `words`, adds the words of the text, which spaces separate. */
void choir_texts_add(choir_texts *texts, const char *text, const char *pair, bool words);

/** Adds the texts of a file of records, .jsonl, .csv, .tsv or .parquet, in the columns that
 * choir_dataset_labelled reads; classes are not needed, and are ignored. Words are an array, or
 * a text that is split at spaces. Errors: io; format, naming the file and the line. */
CHOIR_CHECKED choir_status choir_texts_read(
    const char *path, choir_labelled_opts opts, choir_texts *texts);

/** Frees the texts, and leaves an empty list. */
void choir_texts_free(choir_texts *texts);

/** Texts without classes, for choir_predict: x as in choir_dataset_labelled. y () i64 is 0, or,
 * with opts.words, y (context) i64 has the index of each word at its first token and
 * CHOIR_IGNORED elsewhere. Errors: argument (the tokenizer; no texts), errors of encoding,
 * naming the text by its number. */
CHOIR_CHECKED choir_status choir_dataset_texts(const choir_texts *texts,
    choir_labelled_opts opts, const choir_tokenizer *tokenizer, choir_dataset **dataset);

/** Reads one image as choir_dataset_documents does: x (opts->height, opts->width, 3) f32.
 * Errors: io, format, unsupported, naming the file. */
CHOIR_CHECKED choir_status choir_document_image(
    const char *path, const choir_image_opts *opts, float *x);

/** Returns the name of a class; NULL if the class does not exist or has no name. */
const char *choir_dataset_class_name(const choir_dataset *dataset, int64_t id);

/** Returns the name of a sample, such as its file; NULL if it has no name. */
const char *choir_dataset_sample_name(const choir_dataset *dataset, int64_t index);

/** Stores where part number `part` of a sample comes from; a sample has a part for each
 * document that it has tokens from. Returns false if it has fewer parts. */
bool choir_dataset_place(
    const choir_dataset *dataset, int64_t index, int64_t part, choir_sample_place *place);

/** Stores copies of the names of `count` classes in *names, for the caller to free; stores no
 * names if the dataset's classes have no names. A class beyond the dataset's gets the name that
 * transformers gives to unnamed classes, such as LABEL_3. */
void choir_dataset_class_names(
    const choir_dataset *dataset, int64_t count, choir_class_names *names);

/** Random data: x is normal; y has uniform class ids in [0, classes), or is normal if classes
 * is 0. Sample i depends on (seed, i) alone. */
CHOIR_CHECKED choir_status choir_dataset_random(int64_t length, choir_shape x, choir_shape y,
    int64_t classes, uint64_t seed, choir_dataset **dataset);

/** Random tokens: x (context) and y (context) i64, uniform in [0, vocabulary). */
CHOIR_CHECKED choir_status choir_dataset_random_tokens(int64_t length, int64_t context,
    int64_t vocabulary, uint64_t seed, choir_dataset **dataset);

/** Random tokens with a class id per sample: y () i64, uniform in [0, classes). */
CHOIR_CHECKED choir_status choir_dataset_random_labelled(int64_t length, int64_t context,
    int64_t vocabulary, int64_t classes, uint64_t seed, choir_dataset **dataset);

/** Random tokens with numbers per sample: y (outputs) f32, normal, or with `several` 0 or 1. */
CHOIR_CHECKED choir_status choir_dataset_random_numbers(int64_t length, int64_t context,
    int64_t vocabulary, int64_t outputs, bool several, uint64_t seed, choir_dataset **dataset);

/** Random tokens with a class id per token: y (context) i64, uniform in [0, classes). */
CHOIR_CHECKED choir_status choir_dataset_random_words(int64_t length, int64_t context,
    int64_t vocabulary, int64_t classes, uint64_t seed, choir_dataset **dataset);

enum { CHOIR_IGNORED = -100 }; /* a target that losses skip */

/**
 * Masked language modelling over another dataset of tokens, x and y (context) i64.
 *
 * In each sample, 15 % of the tokens are chosen, at least one. y has the chosen tokens at their
 * positions and CHOIR_IGNORED elsewhere. In x, 80 % of the chosen tokens are replaced by the
 * token `mask`, 10 % by a random id in [0, vocabulary), and 10 % stay. The choice depends on
 * (seed, epoch, sample, position) alone; choir_dataset_get gives epoch 0.
 *
 * Takes ownership of `inner`; after a failure the caller still owns it. Error: argument.
 */
CHOIR_CHECKED choir_status choir_dataset_masked(choir_dataset *inner, int64_t mask,
    int64_t vocabulary, uint64_t seed, choir_dataset **dataset);

/* --- orders --- */

/** Stores torch.randperm(n) after torch.manual_seed(seed) in out (n). */
void choir_randperm(uint64_t seed, int64_t n, int64_t *out);

/**
 * PyTorch's DistributedSampler: the samples that rank `rank` of `world` takes in an epoch.
 *
 * The permutation of torch.randperm seeded with seed + epoch (0, 1, ... without shuffle) is
 * padded from the front to a multiple of world (drop_last: cut to one). A rank takes every
 * world-th entry, beginning with its own number. A loader does all this by itself; a sampler
 * serves hand-written loops.
 */
typedef struct choir_sampler choir_sampler;

typedef struct choir_sampler_opts {
    int64_t world, rank; /* default 1, 0 */
    bool shuffle;        /* default true */
    bool drop_last;      /* default false */
    uint64_t seed;       /* default 0 */
    /* (samples), copied; NULL (the default): an epoch is a permutation. With weights, an epoch
     * is the same number of draws with replacement, in proportion to the weights, as torch's
     * WeightedRandomSampler draws them, seeded with seed + epoch */
    const double *weights;
} choir_sampler_opts;

choir_sampler_opts choir_sampler_defaults(void);
/** Makes a sampler at epoch 0 over a dataset of `samples` samples. Errors: argument (rank
 * outside the world, no samples for a rank), memory. */
CHOIR_CHECKED choir_status choir_distributed_sampler(
    int64_t samples, choir_sampler_opts opts, choir_sampler **sampler);
void choir_sampler_set_epoch(choir_sampler *sampler, int64_t epoch);
/** Returns the number of this rank's samples per epoch. */
int64_t choir_sampler_length(const choir_sampler *sampler);
/** Returns the i-th sample of this rank, 0 <= i < length; -1 beyond. */
int64_t choir_sampler_at(const choir_sampler *sampler, int64_t i);
void choir_sampler_free(choir_sampler *sampler); /* NULL is fine */

/* --- the loader --- */

typedef struct choir_loader choir_loader;

typedef struct choir_batch {
    choir_tensor *x; /* (B/M, x_shape...) */
    choir_tensor *y; /* (B/M, y_shape...) */
} choir_batch;

enum { CHOIR_MAX_WORKERS = 64 }; /* threads of one loader */

typedef struct choir_loader_opts {
    int64_t batch_size;   /* global; M must divide it */
    int64_t microbatches; /* M, of the whole job; default 1 */
    /* this rank's range of micro-batches: [first, first + count) */
    int64_t micro_first;
    int64_t micro_count; /* 0: all M */
    bool shuffle;        /* default true; false: in order */
    /* default true: an epoch has whole batches only; false: the last one is filled from the
     * front, as DistributedSampler pads */
    bool drop_last;
    uint64_t seed;
    /* threads that read samples; 0 (the default): one. With several, get must support
     * concurrent calls */
    int workers;
    /* number of micro-batches prepared in advance; 0 (the default): chosen by their size */
    int prefetch;
    double timeout_s;      /* limit of choir_loader_next's wait; 0 (the default): none */
    const double *weights; /* (the dataset's length) see choir_sampler_opts; NULL: none */
    /* batches that are left out: "412:416,500" are 412 to 415, and 500; NULL (the default):
     * none. Batch n, from 1, is the one that step n has without such a list; with it, step k
     * has the k-th batch that is left. Epochs of the data, which the order of samples depends
     * on, count all batches */
    const char *skip_batches;
} choir_loader_opts;

choir_loader_opts choir_loader_defaults(void);

/** Makes a loader, which borrows the dataset and is freed when the run closes. Never NULL;
 * errors stick to the run: argument (M does not divide the batch, fewer samples than a batch,
 * ...). */
choir_loader *choir_loader_new(
    choir_scope *run, choir_dataset *dataset, choir_loader_opts opts);

/** Makes a loader for short programs: shuffled batches of a single process, with the run's
 * seed. */
choir_loader *choir_loader_shuffled(
    choir_scope *run, choir_dataset *dataset, int64_t batch_size);

/** Loads this rank's next micro-batch into scope, an open step or micro-batch. In a recorded
 * step, each replay receives the next one. The loader moves on to the next epoch by itself. */
CHOIR_CHECKED choir_status choir_loader_next(
    choir_loader *loader, choir_scope *scope, choir_batch *batch);

/** Returns the position of the next micro-batch: the number of this rank's micro-batches since
 * the start of the job. choir_loader_seek sets it. */
int64_t choir_loader_position(const choir_loader *loader);
void choir_loader_seek(choir_loader *loader, int64_t position);
/** Moves to this rank's first micro-batch of a step. */
void choir_loader_seek_step(choir_loader *loader, int64_t step);

/** Returns the seconds that steps have waited for samples so far. */
double choir_loader_waited(const choir_loader *loader);

/** Returns the number of whole global batches per epoch. */
int64_t choir_loader_batches(const choir_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
