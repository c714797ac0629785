/* The settings with which a published model's images are prepared: its
 * preprocessor_config.json, which transformers' image processors write.
 *
 *     "do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
 *     "do_resize": true, "size": {"height": 224, "width": 224}, "resample": 2,
 *     "do_center_crop": true, "crop_size": {"height": 224, "width": 224}
 *
 * Mean and deviation hold for training, too; sizes are validation's, and the sample's size is
 * the model's. */
#include <stdlib.h>
#include <string.h>

#include <choir/beside.h>
#include <choir/data.h>

#include "base/base.h"
#include "base/floats.h"
#include "base/number.h"
#include "data/beside.h"
#include "data/images/transform.h"

#define FILE_NAME CHOIR__BESIDE_IMAGES

enum { BILINEAR = 2, LARGEST = 1 << 14 };

static choir_status bad(const json_t *value, const char *key, const char *expected)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    choir_status status = choir__error(CHOIR_ERR_FORMAT, FILE_NAME ": key '%s' is %.60s: %s",
        key, text ? text : "?", expected);
    free(text);
    return status;
}

static bool is_on(const json_t *root, const char *key, bool absent)
{
    const json_t *value = json_object_get(root, key);
    return json_is_boolean(value) ? json_is_true(value) : absent;
}

/* Reads a number for all channels, or one for each. */
static choir_status read_channels(const json_t *root, const char *key, float to[3])
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value))
        return CHOIR_OK;
    for (size_t c = 0; c < 3; c++) {
        const json_t *of = json_is_array(value) ? json_array_get(value, c) : value;
        double number = json_number_value(of);
        if (!json_is_number(of) || !(number >= -1e6 && number <= 1e6))
            return bad(value, key, "expected three numbers");
        to[c] = (float)number;
    }
    return CHOIR_OK;
}

static choir_status read_colours(const json_t *root, choir_image_opts *o)
{
    if (!is_on(root, "do_normalize", true)) {
        for (int c = 0; c < 3; c++) {
            o->mean[c] = 0;
            o->std[c] = 1;
        }
        return CHOIR_OK;
    }
    choir_status status = read_channels(root, "image_mean", o->mean);
    if (status == CHOIR_OK)
        status = read_channels(root, "image_std", o->std);
    for (int c = 0; c < 3 && status == CHOIR_OK; c++)
        if (!(o->std[c] > 0))
            status = bad(
                json_object_get(root, "image_std"), "image_std", "expected numbers above 0");
    return status;
}

/* Older files rescale by 1/255 without a word of it. */
static choir_status check_scale(const json_t *root)
{
    const json_t *factor = json_object_get(root, "rescale_factor");
    double scaled = json_number_value(factor) * 255;
    if (!is_on(root, "do_rescale", true))
        return bad(json_false(), "do_rescale", "expected true, pixels from 0 to 1");
    return !json_is_number(factor) || (scaled > 1 - 1e-6 && scaled < 1 + 1e-6)
               ? CHOIR_OK
               : bad(factor, "rescale_factor", "expected 1/255, pixels from 0 to 1");
}

/* Returns a side's length, or 0: none. */
static int side_of(const json_t *size, const char *key)
{
    const json_t *value = json_is_object(size) ? json_object_get(size, key) : size;
    json_int_t side = json_integer_value(value);
    return json_is_integer(value) && side > 0 && side <= LARGEST ? (int)side : 0;
}

/* A size of one number is a square's where nothing is cut out, and else the shorter side's. */
static choir_status read_size(const json_t *root, choir_image_opts *o)
{
    const json_t *size = json_object_get(root, "size");
    if (!is_on(root, "do_resize", true) || !size || json_is_null(size))
        return CHOIR_OK;
    bool shorter = json_is_object(size) ? json_object_get(size, "shortest_edge") != NULL
                                        : is_on(root, "do_center_crop", false);
    o->resize = shorter ? side_of(size, "shortest_edge") : 0;
    o->stretch_height = shorter ? 0 : side_of(size, "height");
    o->stretch_width = shorter ? 0 : side_of(size, "width");
    return o->resize || (o->stretch_height && o->stretch_width)
               ? CHOIR_OK
               : bad(size, "size", "expected height and width, or shortest_edge");
}

static char *filter_note(const json_t *root)
{
    const json_t *filter = json_object_get(root, "resample");
    return json_is_integer(filter) && json_integer_value(filter) != BILINEAR
               ? choir__format(FILE_NAME
                     ": key 'resample' is %lld: images are resized by a bilinear filter (%d) here",
                     (long long)json_integer_value(filter), BILINEAR)
               : NULL;
}

/* --- writing --- */

/* Returns the number with the fewest digits that are the same float. */
static json_t *short_number(double value)
{
    char text[40];
    double read = value;
    for (int digits = 6; digits <= 9; digits++) {
        choir__number_print(text, sizeof text, "%.*g", digits, value);
        read = choir__number_read(text, NULL);
        if ((float)read == (float)value)
            break;
    }
    return json_real(read);
}

char *choir__image_processor(const choir_image_opts *o, choir_shape sample, int64_t resize)
{
    json_t *mean = json_array(), *std = json_array();
    const int64_t channels = sample.dim[0], height = sample.dim[1], width = sample.dim[2];
    for (int64_t c = 0; c < channels && c < 3; c++) {
        json_array_append_new(mean, short_number((double)o->mean[c]));
        json_array_append_new(std, short_number((double)o->std[c]));
    }
    json_t *root = json_pack("{s:s, s:b, s:b, s:{s:I}, s:i, s:b, s:{s:I, s:I}, s:b, s:f, s:b}",
        "image_processor_type", "CLIPImageProcessor", "do_convert_rgb", channels == 3,
        "do_resize", 1, "size", "shortest_edge", (json_int_t)resize, "resample", BILINEAR,
        "do_center_crop", 1, "crop_size", "height", (json_int_t)height, "width",
        (json_int_t)width, "do_rescale", 1, "rescale_factor", 1.0 / 255, "do_normalize", 1);
    json_object_set_new(root, "image_mean", mean);
    json_object_set_new(root, "image_std", std);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    return text;
}

choir_status choir_image_published(
    const choir_beside *beside, choir_image_opts *opts, char **notes)
{
    CHOIR__DEFAULT_FLOATS;
    size_t bytes;
    if (!opts || !notes)
        return choir__missing(__func__, opts ? "notes" : "opts");
    *notes = NULL;
    if (!choir__beside_text(beside, FILE_NAME, &bytes))
        return CHOIR_OK;
    json_t *root = choir__beside_json(beside, FILE_NAME);
    if (!root)
        return choir__error(CHOIR_ERR_FORMAT, FILE_NAME ": expected a JSON object {...}");
    choir_image_opts o = *opts;
    choir_status status = read_colours(root, &o);
    if (status == CHOIR_OK)
        status = check_scale(root);
    if (status == CHOIR_OK)
        status = read_size(root, &o);
    if (status == CHOIR_OK) {
        *notes = filter_note(root);
        *opts = o;
    }
    json_decref(root);
    return status;
}
