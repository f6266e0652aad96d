/* SPDX-License-Identifier: Apache-2.0 */
/* grid_parse.c - "tp=2,pp=2" and "4,tp=2" as numbers. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/place/grid.h"

/* Ranks of a dimension, and of the tensor- and pipeline- or data-parallel ones together. */
#define MAX_DIM (INT64_C(1) << 20)

/* Lists in which a dimension may be given. */
enum lists { MESH = 1, TARGET_DP = 2, FSDP = 4 };

/* A dimension. Those of a list are in the order in which its message names the first two. */
static const struct dim {
    const char *name;
    size_t at; /* of the int64_t in struct dcpk_placing */
    int64_t least, most;
    unsigned lists;
} dims[] = {
    {"fsdp", offsetof(struct dcpk_placing, grid.dp), 1, MAX_DIM, FSDP},
    {"tp", offsetof(struct dcpk_placing, grid.tp), 1, MAX_DIM, MESH | TARGET_DP | FSDP},
    {"pp", offsetof(struct dcpk_placing, grid.pp), 1, MAX_DIM, MESH},
    {"ep", offsetof(struct dcpk_placing, grid.ep), 1, MAX_DIM, MESH | TARGET_DP | FSDP},
    {"dp", offsetof(struct dcpk_placing, grid.dp), 1, MAX_DIM, MESH},
    {"cp", offsetof(struct dcpk_placing, grid.cp), 1, MAX_DIM, MESH},
    {"etp", offsetof(struct dcpk_placing, grid.etp), 1, MAX_DIM, MESH},
    {"vpp", offsetof(struct dcpk_placing, grid.vpp), 1, MAX_DIM, MESH},
    {"first", offsetof(struct dcpk_placing, grid.first), 1, MAX_DIM, MESH},
    {"last", offsetof(struct dcpk_placing, grid.last), 1, MAX_DIM, MESH},
    {"hsdp", offsetof(struct dcpk_placing, grid.instances), 1, MAX_DIM, TARGET_DP | FSDP},
    {"bucket", offsetof(struct dcpk_placing, bucket_elems), 0, DCPK_MAX_SIZE, TARGET_DP | FSDP},
};

/* A list that is being read. */
struct list {
    const char *option;
    enum lists kind;
    struct dcpk_placing read;
    bool is_given[DCPK_COUNT(dims)];
};

/* The dimension of the list with this name, or DCPK_COUNT(dims). */
static size_t list_find(const struct list *list, const char *name, size_t n_name)
{
    size_t d = 0;

    while (d < DCPK_COUNT(dims) &&
           ((dims[d].lists & list->kind) == 0 || strncmp(name, dims[d].name, n_name) != 0 ||
            dims[d].name[n_name] != '\0'))
        d++;
    return d;
}

static dcpk_status list_refuse(const struct list *list, const char *text, struct dcpk_error *err)
{
    const char *names[2];
    size_t n = 0;

    for (size_t d = 0; n < 2; d++)
        if ((dims[d].lists & list->kind) != 0)
            names[n++] = dims[d].name;
    return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' is not a list like %s=2,%s=2, each of them once",
                     list->option, text, names[0], names[1]);
}

/* Reads "tp=2", which ends at the next comma. */
static dcpk_status list_take(struct list *list, const char *text, const char **end,
                             struct dcpk_error *err)
{
    const size_t n_name = strcspn(text, "="), d = list_find(list, text, n_name);
    int64_t n;

    *end = text + n_name + 1;
    if (d == DCPK_COUNT(dims) || list->is_given[d] || text[n_name] != '=' ||
        !dcpk_take_size(end, &n) || (**end != ',' && **end != '\0'))
        return list_refuse(list, text, err);
    if (n < dims[d].least || n > dims[d].most)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64, list->option,
                         dims[d].name, n, dims[d].least, dims[d].most);
    list->is_given[d] = true;
    memcpy((char *)&list->read + dims[d].at, &n, sizeof n);
    return DCPK_OK;
}

static dcpk_status list_read(struct list *list, const char *text, struct dcpk_error *err)
{
    const char *end = text;

    if (list_take(list, text, &end, err))
        return err->status;
    while (*end == ',')
        if (list_take(list, end + 1, &end, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status refuse_ranks(const char *option, const char *text, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUSAGE, "%s: '%s' has more ranks than %" PRId64, option, text,
                     MAX_DIM);
}

bool dcpk_grid_has_size(const char *name)
{
    return list_find(&(struct list){.kind = MESH}, name, strlen(name)) < DCPK_COUNT(dims);
}

dcpk_status dcpk_grid_parse(const char *option, const char *text, struct dcpk_grid *grid,
                            struct dcpk_error *err)
{
    struct list list = {.option = option, .kind = MESH};
    struct dcpk_grid *g = &list.read.grid;

    *g = (struct dcpk_grid){.tp = 1, .pp = 1, .ep = 1, .cp = 1};
    if (list_read(&list, text, err))
        return err->status;
    if (g->dp > 0 && (g->tp * g->pp > MAX_DIM || g->dp * g->cp > MAX_DIM))
        return refuse_ranks(option, text, err);
    g->world = g->tp * g->pp * g->dp * g->cp;
    *grid = *g;
    return DCPK_OK;
}

/* Checks that the given sizes fit together, and derives the rest. */
static dcpk_status list_finish_fsdp(struct list *list, struct dcpk_placing *placing,
                                    struct dcpk_error *err)
{
    struct dcpk_grid *g = &list->read.grid;

    if (g->dp % g->instances != 0)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: %" PRId64 " ranks are not %" PRId64 " equal instances", list->option,
                         g->dp, g->instances);
    if (list->read.bucket_elems < 0)
        list->read.bucket_elems = dcpk_grid_bucket_elems(g->dp);
    g->world = g->dp * g->tp;
    *placing = list->read;
    return DCPK_OK;
}

static struct list list_of_fsdp(const char *option, enum lists kind)
{
    return (struct list){.option = option,
                         .kind = kind,
                         .read = {.grid = {.tp = 1, .pp = 1, .ep = 1, .instances = 1},
                                  .is_fsdp = true,
                                  .bucket_elems = -1}};
}

dcpk_status dcpk_placing_parse_fsdp(const char *option, const char *text,
                                    struct dcpk_placing *placing, struct dcpk_error *err)
{
    struct list list = list_of_fsdp(option, TARGET_DP);
    const char *end = text;

    if (!dcpk_take_size(&end, &list.read.grid.dp) || list.read.grid.dp < 1 ||
        list.read.grid.dp > MAX_DIM || (*end != ',' && *end != '\0'))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "%s: '%s' does not start with a number of ranks, 1 to %" PRId64, option,
                         text, MAX_DIM);
    if (*end == ',' && list_read(&list, end + 1, err))
        return err->status;
    return list_finish_fsdp(&list, placing, err);
}

dcpk_status dcpk_placing_parse(const char *option, const char *text, int n_ranks,
                               struct dcpk_placing *placing, struct dcpk_error *err)
{
    struct list fsdp = list_of_fsdp(option, FSDP);
    struct dcpk_grid g;

    if (strstr(text, "fsdp=") == text || strstr(text, ",fsdp=") != NULL) {
        if (list_read(&fsdp, text, err))
            return err->status;
        return list_finish_fsdp(&fsdp, placing, err);
    }
    if (dcpk_grid_parse(option, text, &g, err))
        return err->status;
    if (g.tp * g.pp > MAX_DIM || g.tp * g.pp * g.cp > MAX_DIM)
        return refuse_ranks(option, text, err);
    if (g.dp == 0)
        g.dp = dcpk_max_i64(n_ranks / (g.tp * g.pp * g.cp), 1);
    g.world = g.tp * g.pp * g.cp * g.dp;
    *placing = (struct dcpk_placing){.grid = g};
    return DCPK_OK;
}
