/* Image augmentation: random changes of training images, as torchvision.transforms.v2 defines
 * them.
 *
 *     colour jitter    brightness, contrast, saturation and hue, in a random order
 *     RandAugment      a few of fourteen changes, at one magnitude (Cubuk et al., 2020)
 *     random erasing   a rectangle is set to the mean, or to noise (Zhong et al., 2020)
 *     mixup            lam x + (1 - lam) x', for samples and classes (Zhang et al., 2018)
 *     CutMix           a rectangle of the other sample (Yun et al., 2019)
 *
 * The changes are made in this order, after the crop and the flip. Colours change on values in
 * [0, 1]; erasing and mixing follow the normalisation.
 *
 * A sample is a pure function of (seed, epoch, index): the number of workers, ranks and
 * micro-batches changes nothing. Therefore each sample draws its own lam and its own partner
 * from the whole training set, and reads two files. (torchvision mixes a batch with itself,
 * rolled by one, with one lam.)
 *
 * Threads: plain data; several threads may read one augmented dataset. */
#ifndef CHOIR_AUGMENT_H
#define CHOIR_AUGMENT_H

#include <choir/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Changes of an image. RandAugment draws from all of them except CHOIR_IMAGE_HUE. */
typedef enum choir_image_op {
    CHOIR_IMAGE_IDENTITY,
    CHOIR_IMAGE_SHEAR_X,      /* amount: tangent of the angle; the upper left corner is fixed */
    CHOIR_IMAGE_SHEAR_Y,      /* like SHEAR_X */
    CHOIR_IMAGE_TRANSLATE_X,  /* pixels; a fraction is dropped */
    CHOIR_IMAGE_TRANSLATE_Y,  /* like TRANSLATE_X */
    CHOIR_IMAGE_ROTATE,       /* degrees, anticlockwise, around the center */
    CHOIR_IMAGE_BRIGHTNESS,   /* factor; 1: unchanged, also in the next three */
    CHOIR_IMAGE_SATURATION,   /* factor; 0: grey image */
    CHOIR_IMAGE_CONTRAST,     /* factor; 0: mean of the grey image */
    CHOIR_IMAGE_SHARPNESS,    /* factor; 0: smoothed image */
    CHOIR_IMAGE_POSTERIZE,    /* bits kept per level, 0 to 8 */
    CHOIR_IMAGE_SOLARIZE,     /* values from this threshold on, in [0, 1], are inverted */
    CHOIR_IMAGE_AUTOCONTRAST, /* each channel is stretched to [0, 1]; no amount */
    CHOIR_IMAGE_EQUALIZE,     /* the histogram of 256 levels is equalised; no amount */
    CHOIR_IMAGE_HUE,          /* shift of the hue in turns, -0.5 to 0.5 */
    CHOIR_IMAGE_OPS
} choir_image_op;

/**
 * Changes an image in place: x (channels, height, width) f32, values in [0, 1], channels 1
 * or 3.
 *
 * The definitions follow torchvision.transforms.v2.functional on floating images.
 * SHEAR, TRANSLATE and ROTATE take the nearest pixel, and black beyond the image;
 * saturation and hue change nothing in an image of one channel. Errors: argument.
 */
CHOIR_CHECKED choir_status choir_image_change(float *x, int64_t channels, int64_t height,
    int64_t width, choir_image_op op, double amount);

/** Returns the amount that RandAugment uses for an op at a magnitude in [0, bins), without its
 * sign: entry `magnitude` of torchvision's table, plus 1 for factors. Returns 0 for ops without
 * an amount. */
double choir_randaugment_amount(
    choir_image_op op, int magnitude, int bins, int64_t height, int64_t width);

typedef struct choir_augment_opts {
    /* colour jitter: factors are uniform in [max(0, 1 - b), 1 + b], the hue in [-h, h]; 0 (the
     * default): unchanged */
    float brightness, contrast, saturation, hue;
    int randaugment_ops;        /* changes per image; 0 (the default): none */
    int randaugment_magnitude;  /* 0 to bins - 1; default 9 */
    int randaugment_bins;       /* number of magnitudes; default 31 */
    float erase;                /* probability; default 0 */
    float erase_min, erase_max; /* share of the area; default 0.02 to 0.33 */
    float ratio_min, ratio_max; /* height divided by width; default 0.3 to 3.3 */
    bool erase_noise;    /* fills with normal noise, not with 0, the mean; default false */
    float mixup, cutmix; /* alpha: lam follows Beta(alpha, alpha); 0 (the default): none */
    float mix;     /* probability that a sample is mixed (by mixup or CutMix); default 1 */
    bool balance;  /* partners of mixtures are of all classes equally often; default false */
    uint64_t seed; /* seed of all changes, with epoch and sample number; default 0 */
} choir_augment_opts;

choir_augment_opts choir_augment_defaults(void);

/**
 * Reads options as `choir train --augment` takes them: parts joined by "+", each with keys of
 * its own, as in "jitter:brightness=0.4+randaugment:ops=2,magnitude=9+mixup:alpha=0.2".
 *
 *     jitter       brightness=0.4 contrast=0.4 saturation=0.4 hue=0.1
 *     randaugment  ops=2 magnitude=9 bins=31
 *     erase        p=0.5 min=0.02 max=0.33 ratio_min=0.3 ratio_max=3.3 noise=0
 *     mixup        alpha=1 p=1
 *     cutmix       alpha=1 p=1
 *
 * Initialise *opts with choir_augment_defaults() before the call. Errors: argument, naming the
 * part or the key.
 */
CHOIR_CHECKED choir_status choir_augment_parse(const char *text, choir_augment_opts *opts);

/** Returns the name of part `index` ("jitter", ...), or NULL beyond the last part. Stores one
 * line of help, with the part's keys, in *help unless help is NULL. */
const char *choir_augment_name(int index, const char **help);

/**
 * Augments the samples of another dataset of images, x (1 or 3, H, W) f32, whose
 * ops->normalized says how they were normalised. y is unchanged unless samples are mixed; with
 * mixup or CutMix y is (classes) f32, the probability of each class, as choir_cross_entropy
 * takes it.
 *
 * Takes ownership of `inner`; after a failure the caller still owns it. Error: argument.
 */
CHOIR_CHECKED choir_status choir_dataset_augmented(
    choir_dataset *inner, choir_augment_opts opts, choir_dataset **dataset);

#ifdef __cplusplus
}
#endif
#endif
