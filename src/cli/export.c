/* choir export: a trained model as other programs read it. */
#include "job/export/export.h"
#include "line/command.h"

static void describe_formats(FILE *out)
{
    for (const choir__export_format *const *f = choir__export_formats; *f; f++)
        choir__line_help_choice(out, 9, (*f)->name, (*f)->help, "");
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__export_request r = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (!r.format)
        return choir__line_usage("export", "missing --format: choose one of peft, hf, gguf");
    r.path = operands.words[0];
    r.to = operands.words[1];
    return choir__export_model(&r) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

#define AT(member) CHOIR__LINE_AT(choir__export_request, member)

static const choir__line_option options[] = {
    {"format", CHOIR__STRING, AT(format), .argument = "NAME",
        .help = "the format of the new folder, one of these",
        .choices = choir__export_format_names, .details = describe_formats, .strict = true},
    {"dtype", CHOIR__STRING, AT(dtype), .preset = "f32", .argument = "TYPE",
        .help = "type of the weights", .choices = choir__export_dtype_names, .strict = true},
    {"adapter", CHOIR__STRING, AT(adapter), .argument = "FOLDER",
        .help = "an adapter of peft's form, for a model without adapters"},
    {NULL},
};

const choir__line_command choir__cli_export = {
    .name = "export",
    .summary = "write a trained model as other programs read it",
    .usage = "--format NAME [OPTION]... MODEL NEW",
    .about =
        "MODEL is a folder that choir train --save wrote, a published model's folder, or an "
        "adapter's whose base is a folder here. NEW becomes a folder with the weights, the files "
        "beside them and README.md, which names the base, the data and the options. Files and "
        "keys of the model that Choir does not use are copied unchanged.",
    .example = "  choir export runs/tuned tuned-adapter --format peft\n"
               "  choir export runs/tuned tuned --format hf --dtype bf16\n"
               "  choir export runs/tuned tuned-gguf --format gguf --dtype q4_K_M",
    .options = options,
    .operand = "MODEL",
    .least = 2,
    .most = 2,
    .run = run,
};
