/* SPDX-License-Identifier: Apache-2.0 */
/* target_args.c - "tp=2,pp=2" and "4,tp=2" as numbers. */
#include "tools/target_args.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"

/* Ranks of a dimension, and of the tensor- and pipeline- or data-parallel ones together. */
#define MAX_DIM   (INT64_C(1) << 20)
#define MAX_ELEMS (INT64_C(1) << 60)
/* Megatron's bucket: the larger of 40 M elements and 1 M for each data-parallel rank. */
#define BUCKET_ELEMS   INT64_C(40000000)
#define ELEMS_PER_RANK INT64_C(1000000)

#define DCPK_OPT_STRUCT struct dcpk_target_args
const struct dcpk_cli_option dcpk_target_options[] = {
    DCPK_OPT_TEXT(
        "target-mesh", "DIMS", mesh,
        "torch_dist, zarr: write the chunks of a run on tp=T,pp=P,ep=E,dp=D,cp=C (left out: "
        "1), etp=E (of experts; left out: tp), vpp=V, first=N and last=N (layers of the "
        "stages at the ends); for a pipeline cut otherwise leave pp out, no chunk "
        "depends on it (default: few large chunks, which every layout loads)"),
    DCPK_OPT_TEXT("target-dp", "N[,DIMS]", dp,
                  "fsdp_dtensor: write the chunks of Megatron-FSDP on N data-parallel ranks "
                  "(context parallelism included); DIMS: tp=T,ep=E,hsdp=K instances,bucket=B "
                  "elements (default as with --overlap-grad-reduce, 0 without)"),
    DCPK_OPT_TEXT("vocab-size", "N", vocab_size,
                  "real rows of the vocabulary; for formats of Megatron's with "
                  "--make-vocab-size-divisible-by (default: as the checkpoint's args say)"),
    DCPK_OPT_TEXT("make-vocab-size-divisible-by", "M", divisible_by,
                  "pad the vocabulary to a multiple of M times the target's tp, trimming or "
                  "adding zero rows (default: as stored)"),
    DCPK_OPT_END};

/* The options of this file and of convert_args.c, by the format that they are for. */
static const struct for_format {
    const char *format;
    const char *options[3];
} for_formats[] = {{"torch_dist", {"--target-generation", "--target-optimizer", "--target-mesh"}},
                   {"zarr", {"--target-mesh"}},
                   {"fsdp_dtensor", {"--target-dp"}}};

/* A dimension that may be given. */
struct dim {
    const char *name;
    int64_t *size;
    int64_t least, most;
    bool is_given;
};

/* Digits and nothing else; *end points behind them. */
static bool parse_digits(const char *text, const char **end, int64_t *n)
{
    uint64_t v = 0;

    for (*end = text; isdigit((unsigned char)**end); ++*end) {
        if (v > (uint64_t)MAX_ELEMS)
            return false;
        v = v * 10 + (uint64_t)(**end - '0');
    }
    *n = (int64_t)v;
    return *end > text;
}

static dcpk_status check_range(const char *option, const struct dim *dim, int64_t n,
                               struct dcpk_error *err)
{
    if (n >= dim->least && n <= dim->most)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "%s: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                     option, dim->name, n, dim->least, dim->most);
}

/* "tp=2", which ends at the next comma. */
static dcpk_status parse_dim(const char *option, const char *text, struct dim *dims, size_t n_dims,
                             const char **end, struct dcpk_error *err)
{
    const size_t n_name = strcspn(text, "=");
    size_t d = 0;
    int64_t n;

    while (d < n_dims && (strncmp(text, dims[d].name, n_name) != 0 || dims[d].name[n_name] != '\0'))
        d++;
    if (d == n_dims || dims[d].is_given || text[n_name] != '=' ||
        !parse_digits(text + n_name + 1, end, &n) || (**end != ',' && **end != '\0'))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: '%s' is not a list like %s=2,%s=2, each of them once", option, text,
                         dims[0].name, dims[1].name);
    dims[d].is_given = true;
    if (check_range(option, &dims[d], n, err) != DCPK_OK)
        return err->status;
    *dims[d].size = n;
    return DCPK_OK;
}

static dcpk_status parse_dims(const char *option, const char *text, struct dim *dims, size_t n_dims,
                              struct dcpk_error *err)
{
    const char *end = text;

    if (parse_dim(option, text, dims, n_dims, &end, err) != DCPK_OK)
        return err->status;
    while (*end == ',')
        if (parse_dim(option, end + 1, dims, n_dims, &end, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_mesh_parse(const char *option, const char *text, struct dcpk_layout *mesh,
                            struct dcpk_error *err)
{
    struct dcpk_layout m = {.tp = 1, .pp = 1, .ep = 1, .cp = 1};
    struct dim dims[] = {
        {"tp", &m.tp, 1, MAX_DIM, false},    {"pp", &m.pp, 1, MAX_DIM, false},
        {"ep", &m.ep, 1, MAX_DIM, false},    {"dp", &m.dp, 1, MAX_DIM, false},
        {"cp", &m.cp, 1, MAX_DIM, false},    {"etp", &m.etp, 1, MAX_DIM, false},
        {"vpp", &m.vpp, 1, MAX_DIM, false},  {"first", &m.first, 1, MAX_DIM, false},
        {"last", &m.last, 1, MAX_DIM, false}};

    if (parse_dims(option, text, dims, DCPK_COUNT(dims), err) != DCPK_OK)
        return err->status;
    if (m.dp > 0 && m.tp * m.pp <= MAX_DIM && m.dp * m.cp <= MAX_DIM)
        m.world = m.tp * m.pp * m.dp * m.cp;
    else if (m.dp > 0)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' has more ranks than %" PRId64, option, text,
                         MAX_DIM);
    *mesh = m;
    return DCPK_OK;
}

/* Of Megatron-FSDP: m.dp ranks, all instances together (formats/fsdp_dtensor/FORMAT.md 8.4). */
struct fsdp_sizes {
    struct dcpk_layout m;
    int64_t n_instances, bucket_elems; /* bucket_elems -1: not given */
};
#define FSDP_SIZES_NONE                                                                            \
    {                                                                                              \
        .m = {.tp = 1, .pp = 1, .ep = 1}, .n_instances = 1, .bucket_elems = -1                     \
    }

/* What was given fits together; m.dp becomes the ranks of one instance. */
static dcpk_status fsdp_sizes_finish(const char *option, struct fsdp_sizes *sizes,
                                     struct dcpk_error *err)
{
    struct dcpk_layout *m = &sizes->m;

    if (m->dp % sizes->n_instances != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: %" PRId64 " ranks are not %" PRId64 " equal instances", option, m->dp,
                         sizes->n_instances);
    if (sizes->n_instances > 1 && m->ep > 1)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: hsdp with ep is not known to work in Megatron-FSDP",
                         option);
    if (sizes->bucket_elems < 0)
        sizes->bucket_elems = dcpk_max_i64(BUCKET_ELEMS, m->dp * ELEMS_PER_RANK);
    m->world = m->dp * m->tp;
    m->dp /= sizes->n_instances;
    return DCPK_OK;
}

/* "4" or "4,tp=2,hsdp=2": FSDP shards over the ranks of one instance of several. */
static dcpk_status parse_dp(const char *text, struct dcpk_target *target, struct dcpk_error *err)
{
    struct fsdp_sizes sizes = FSDP_SIZES_NONE;
    struct dim dims[] = {{"tp", &sizes.m.tp, 1, MAX_DIM, false},
                         {"ep", &sizes.m.ep, 1, MAX_DIM, false},
                         {"hsdp", &sizes.n_instances, 1, MAX_DIM, false},
                         {"bucket", &sizes.bucket_elems, 0, MAX_ELEMS, false}};
    const char *end = text;

    if (!parse_digits(text, &end, &sizes.m.dp) || sizes.m.dp < 1 || sizes.m.dp > MAX_DIM ||
        (*end != ',' && *end != '\0'))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--target-dp: '%s' does not start with a number of ranks, 1 to %" PRId64,
                         text, MAX_DIM);
    if (*end == ',' && parse_dims("--target-dp", end + 1, dims, DCPK_COUNT(dims), err) != DCPK_OK)
        return err->status;
    if (fsdp_sizes_finish("--target-dp", &sizes, err))
        return err->status;
    target->bucket_elems = sizes.bucket_elems;
    target->mesh = sizes.m;
    return DCPK_OK;
}

static dcpk_status parse_fsdp_ranks(const char *option, const char *text,
                                    struct dcpk_rank_layout *layout, struct dcpk_error *err)
{
    struct fsdp_sizes sizes = FSDP_SIZES_NONE;
    struct dim dims[] = {{"fsdp", &sizes.m.dp, 1, MAX_DIM, false},
                         {"tp", &sizes.m.tp, 1, MAX_DIM, false},
                         {"ep", &sizes.m.ep, 1, MAX_DIM, false},
                         {"hsdp", &sizes.n_instances, 1, MAX_DIM, false},
                         {"bucket", &sizes.bucket_elems, 0, MAX_ELEMS, false}};

    if (parse_dims(option, text, dims, DCPK_COUNT(dims), err) ||
        fsdp_sizes_finish(option, &sizes, err))
        return err->status;
    sizes.m.cp = 1;
    sizes.m.etp = sizes.m.tp;
    *layout = (struct dcpk_rank_layout){.mesh = sizes.m,
                                        .is_fsdp = true,
                                        .n_instances = sizes.n_instances,
                                        .bucket_elems = sizes.bucket_elems};
    return DCPK_OK;
}

dcpk_status dcpk_rank_layout_parse(const char *option, const char *text, int n_ranks,
                                   struct dcpk_rank_layout *layout, struct dcpk_error *err)
{
    struct dcpk_layout m;
    int64_t n;

    if (strstr(text, "fsdp=") == text || strstr(text, ",fsdp=") != NULL)
        return parse_fsdp_ranks(option, text, layout, err);
    if (dcpk_mesh_parse(option, text, &m, err) != DCPK_OK)
        return err->status;
    n = m.tp * m.pp;
    if (n > MAX_DIM || n * m.cp > MAX_DIM)
        return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' has more ranks than %" PRId64, option, text,
                         MAX_DIM);
    if (m.dp == 0)
        m.dp = dcpk_max_i64(n_ranks / (n * m.cp), 1);
    if (m.etp == 0)
        m.etp = m.tp;
    if (m.tp * m.cp * m.dp % (m.etp * m.ep) != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: etp=%" PRId64 " times ep=%" PRId64 " does not divide the %" PRId64
                         " ranks of a stage",
                         option, m.etp, m.ep, m.tp * m.cp * m.dp);
    m.world = n * m.cp * m.dp;
    *layout = (struct dcpk_rank_layout){.mesh = m, .n_instances = 1};
    return DCPK_OK;
}

/* text NULL: *n stays as it is. */
static dcpk_status parse_option_count(const char *option, const char *text, int64_t *n,
                                      struct dcpk_error *err)
{
    const struct dim dim = {"the number", n, 1, MAX_ELEMS, false};
    const char *end;

    if (text == NULL)
        return DCPK_OK;
    if (!parse_digits(text, &end, n) || *end != '\0')
        return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' is not a number", option, text);
    return check_range(option, &dim, *n, err);
}

static bool format_takes(const struct for_format *of, const char *option)
{
    for (size_t i = 0; i < DCPK_COUNT(of->options) && of->options[i] != NULL; i++)
        if (strcmp(of->options[i], option) == 0)
            return true;
    return false;
}

/* Can the option be given with --to `to`? */
static dcpk_status check_format(const char *option, const struct dcpk_format *to,
                                struct dcpk_error *err)
{
    const char *before = " ";

    for (size_t i = 0; i < DCPK_COUNT(for_formats); i++)
        if (strcmp(to->name, for_formats[i].format) == 0 && format_takes(&for_formats[i], option))
            return DCPK_OK;
    dcpk_fail(err, DCPK_EUSAGE, "%s is for --to", option);
    for (size_t i = 0; i < DCPK_COUNT(for_formats); i++)
        if (format_takes(&for_formats[i], option)) {
            dcpk_append(err, "%s%s", before, for_formats[i].format);
            before = " or ";
        }
    dcpk_append(err, ", not for %s", to->name);
    return err->status;
}

dcpk_status dcpk_target_args_apply(const struct dcpk_target_args *a, const struct dcpk_format *to,
                                   struct dcpk_target *target, struct dcpk_rule_options *rules,
                                   struct dcpk_error *err)
{
    if (a->mesh != NULL && (check_format("--target-mesh", to, err) ||
                            dcpk_mesh_parse("--target-mesh", a->mesh, &target->mesh, err)))
        return err->status;
    rules->mesh = target->mesh;
    if (a->dp != NULL && (check_format("--target-dp", to, err) || parse_dp(a->dp, target, err)))
        return err->status;
    if (parse_option_count("--vocab-size", a->vocab_size, &rules->vocab.size, err) ||
        parse_option_count("--make-vocab-size-divisible-by", a->divisible_by,
                           &rules->vocab.divisible_by, err))
        return err->status;
    if (a->vocab_size != NULL && a->divisible_by == NULL && !to->is_model)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "--vocab-size needs --make-vocab-size-divisible-by (Megatron's default is "
                         "128): together they say how many rows there are");
    rules->vocab.tp = target->mesh.tp;
    return DCPK_OK;
}

void dcpk_target_args_advise(const struct dcpk_format *to, struct dcpk_error *err)
{
    const char *before = "; ";

    for (size_t i = 0; i < DCPK_COUNT(for_formats); i++) {
        const struct for_format *of = &for_formats[i];

        if (strcmp(to->name, of->format) != 0)
            continue;
        for (size_t o = 0; o < DCPK_COUNT(of->options) && of->options[o] != NULL; o++) {
            dcpk_append(err, "%s%s", before, of->options[o]);
            before = ", ";
        }
        dcpk_append(err, " or --make-vocab-size-divisible-by write it anew");
    }
}
