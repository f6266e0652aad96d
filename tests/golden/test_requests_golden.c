/* SPDX-License-Identifier: Apache-2.0 */
/* test_requests_golden.c - what we say that loaders ask for is what Megatron's loaders asked for
 * (tests/golden/requests), item by item, both ways. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/io/store.h"
#include "lib/model/request.h"
#include "lib/model/sizes.h"
#include "lib/rules/expect.h"
#include "tests/check.h"

#define FOLDER    DCPK_SOURCE_DIR "/tests/golden/requests"
#define MAX_TOLD  10
#define MAX_ITEMS 100000

/* An item that is asked for; shape "": of any. */
struct item {
    const char *name; /* "tensor\tkey" or "object\tkey" */
    const char *shape;
};
struct items {
    struct item *list;
    size_t n;
};

/* One file. */
struct fixture {
    const char *name;
    struct dcpk_arena *arena;
    struct items want, got;
    const struct dcpk_value *args, *content;
    char releases[256], format[64], impl[16], optimizer[16], stops[256];
    struct dcpk_grid mesh;
    uint32_t loader;     /* the one that is asked for `got` */
    const char *unknown; /* what no table knows */
    unsigned n_faults;   /* what would stop it, as we say */
};

static int compare_items(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

static void add_item(struct fixture *f, struct items *items, const char *name, const char *shape)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK(items->n < MAX_ITEMS, f->name);
    items->list[items->n].name = dcpk_arena_strdup(f->arena, name, &err);
    items->list[items->n++].shape = dcpk_arena_strdup(f->arena, shape, &err);
    CHECK(err.status == DCPK_OK, f->name);
}

/* --- JSON -> a value --- */

static const struct dcpk_value *value_of(struct fixture *f, const struct dcpk_json *node);

static const struct dcpk_value *members_of(struct fixture *f, const struct dcpk_json *node)
{
    struct dcpk_value_pair pairs[1000];
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n = 0;

    for (const struct dcpk_json *c = dcpk_json_first(node); c != NULL; c = dcpk_json_next(c)) {
        CHECK(n < sizeof pairs / sizeof *pairs, f->name);
        pairs[n].key = dcpk_value_str(f->arena, dcpk_json_key(c), &err);
        pairs[n++].value = value_of(f, c);
    }
    return dcpk_value_dict(f->arena, pairs, n, &err);
}

static const struct dcpk_value *list_of(struct fixture *f, const struct dcpk_json *node)
{
    const struct dcpk_value *items[1000];
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n = 0;

    for (const struct dcpk_json *c = dcpk_json_first(node); c != NULL; c = dcpk_json_next(c)) {
        CHECK(n < sizeof items / sizeof *items, f->name);
        items[n++] = value_of(f, c);
    }
    return dcpk_value_seq(f->arena, DCPK_V_LIST, items, n, &err);
}

static const struct dcpk_value *value_of(struct fixture *f, const struct dcpk_json *node)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool on = false;
    int64_t n = 0;

    switch (dcpk_json_kind(node)) {
    case DCPK_JSON_BOOL:
        dcpk_json_bool(node, &on);
        return dcpk_value_bool(on);
    case DCPK_JSON_NUMBER:
        if (!dcpk_json_int(node, &n))
            return dcpk_value_float(f->arena, 0.5, &err); /* no size is a fraction */
        return dcpk_value_int(f->arena, n, &err);
    case DCPK_JSON_STRING:
        return dcpk_value_str(f->arena, dcpk_json_string(node), &err);
    case DCPK_JSON_ARRAY:
        return list_of(f, node);
    case DCPK_JSON_OBJECT:
        return members_of(f, node);
    case DCPK_JSON_NULL:
        break;
    }
    return dcpk_value_none();
}

static const struct dcpk_value *parse_value(struct fixture *f, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_json *doc = NULL;
    const struct dcpk_value *v;

    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), f->name);
    v = value_of(f, doc);
    dcpk_json_free(doc);
    return v;
}

/* --- the file --- */

static void read_mesh(struct fixture *f, const char *text)
{
    struct {
        const char *name;
        int64_t *size;
    } dims[] = {{"tp=", &f->mesh.tp},
                {"pp=", &f->mesh.pp},
                {" ep=", &f->mesh.ep},
                {"dp=", &f->mesh.dp},
                {"cp=", &f->mesh.cp}};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const char *at = strstr(text, dims[i].name);

        *dims[i].size = at == NULL ? 1 : strtoll(at + strlen(dims[i].name), NULL, 10);
    }
    f->mesh.world = f->mesh.tp * f->mesh.pp * f->mesh.dp * f->mesh.cp;
}

static void read_head(struct fixture *f, const char *line)
{
    const struct {
        const char *name;
        char *to;
        size_t n;
    } texts[] = {{"# releases: ", f->releases, sizeof f->releases},
                 {"# format: ", f->format, sizeof f->format},
                 {"# impl: ", f->impl, sizeof f->impl},
                 {"# optimizer: ", f->optimizer, sizeof f->optimizer},
                 {"# stops: ", f->stops, sizeof f->stops}};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (dcpk_starts_with(line, texts[i].name))
            snprintf(texts[i].to, texts[i].n, "%s", line + strlen(texts[i].name));
    if (dcpk_starts_with(line, "# mesh: "))
        read_mesh(f, line + strlen("# mesh: "));
    if (dcpk_starts_with(line, "# args: "))
        f->args = parse_value(f, line + strlen("# args: "));
    if (dcpk_starts_with(line, "# content_metadata: "))
        f->content = parse_value(f, line + strlen("# content_metadata: "));
}

/* "a{b,c}d{e,f}" is four names. */
static void add_expanded(struct fixture *f, const char *name, const char *shape)
{
    const char *open = strchr(name, '{'), *close = open == NULL ? NULL : strchr(open, '}');
    char expanded[2048];

    if (close == NULL) {
        add_item(f, &f->want, name, shape);
        return;
    }
    for (const char *at = open + 1; at <= close;) {
        const size_t n = strcspn(at, ",}");

        snprintf(expanded, sizeof expanded, "%.*s%.*s%s", (int)(open - name), name, (int)n, at,
                 close + 1);
        add_expanded(f, expanded, shape);
        at += n + 1;
    }
}

/* "tensor\tKEY\tDTYPE\tSHAPE", "object\tKEY" */
static void read_item(struct fixture *f, char *line)
{
    char *key = strchr(line, '\t'), *end, *shape = NULL;

    CHECK(key != NULL, f->name);
    end = strchr(key + 1, '\t');
    if (end != NULL) {
        *end = '\0';
        shape = strchr(end + 1, '\t');
    }
    if (strstr(line, ".gbuf_idx_") ==
        NULL) /* whose buckets are read off an object of the checkpoint */
        add_expanded(f, line, shape == NULL ? "" : shape + 1);
}

static void read_fixture(struct fixture *f)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL;
    char *text = NULL, *rest = NULL;
    size_t n;

    f->arena = dcpk_arena_new();
    f->want.list = dcpk_arena_array(f->arena, MAX_ITEMS, sizeof(struct item), &err);
    f->got.list = dcpk_arena_array(f->arena, MAX_ITEMS, sizeof(struct item), &err);
    CHECK_OK(dcpk_store_open(FOLDER, &store, &err), f->name);
    CHECK_OK(dcpk_store_find(store, f->name, &source, &err), f->name);
    CHECK_OK(dcpk_source_slurp(source, 64 << 20, &text, &n, &err), f->name);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (*line == '#')
            read_head(f, line);
        else
            read_item(f, line);
    dcpk_free(text);
    dcpk_store_close(store);
    qsort(f->want.list, f->want.n, sizeof(struct item), compare_items);
}

/* --- what we say --- */

static dcpk_status take(void *context, const struct dcpk_request *r, struct dcpk_error *err)
{
    struct fixture *f = context;
    char name[2048], shape[256] = "";
    size_t at = 0;

    (void)err;
    if ((r->loaders & f->loader) == 0)
        return DCPK_OK;
    snprintf(name, sizeof name, "%s\t%.*s%s%s", r->is_tensor ? "tensor" : "object",
             (int)r->key_bytes, r->key, r->field == NULL ? "" : ".",
             r->field == NULL ? "" : r->field);
    for (int a = 0; a < r->rank; a++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%" PRId64, a == 0 ? "" : ",",
                               r->shape[a]);
    if (r->rank == 0)
        snprintf(shape, sizeof shape, "-");
    add_item(f, &f->got, name, shape);
    return DCPK_OK;
}

static dcpk_status count_fault(void *context, const struct dcpk_request *about, const char *text,
                               struct dcpk_error *err)
{
    struct fixture *f = context;

    (void)text;
    (void)err;
    f->n_faults += (about->loaders & f->loader) != 0 && about->purpose != DCPK_FOR_GROUPS;
    return DCPK_OK;
}

static dcpk_status no_value(void *context, const char *key, const struct dcpk_value **value,
                            struct dcpk_error *err)
{
    (void)context;
    (void)key;
    (void)err;
    *value = NULL;
    return DCPK_OK;
}

static void ask(struct fixture *f, enum dcpk_release release)
{
    const struct dcpk_format *format = dcpk_format_find(f->format);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_value_pair content = {dcpk_value_str(f->arena, "content_metadata", &err),
                                      f->content != NULL ? f->content : dcpk_value_none()};
    struct dcpk_output *out = dcpk_arena_alloc(f->arena, sizeof *out, &err);
    struct dcpk_expected expected;
    const bool of_torch_dist = strcmp(f->format, "torch_dist") == 0;
    struct dcpk_loading loading = {
        .model = &expected,
        .attrs = f->args,
        .common = of_torch_dist ? dcpk_value_dict(f->arena, &content, 1, &err) : NULL,
        .mesh = f->mesh,
        .flags = (dcpk_value_is_true(f->args, "no_load_optim") ? (unsigned)DCPK_LOADING_NO_OPTIMIZER
                                                               : 0U) |
                 (dcpk_value_is_true(f->args, "no_load_rng") ? (unsigned)DCPK_LOADING_NO_RNG : 0U),
        .arena = f->arena,
        .context = f,
        .take = take,
        .fault = count_fault,
        .value = no_value,
        .out = out,
    };
    struct dcpk_small_file common = {.name = "common.pt"}; /* of a planned output */

    out->small_files = &common;
    out->n_small_files = 1;
    f->loader = loading.loaders =
        dcpk_loaders_of(release, release) &
        dcpk_loaders_with_impl(strcmp(f->impl, "te") == 0 ? DCPK_LOADER_TE : DCPK_LOADER_LOCAL) &
        dcpk_loaders_with_adam(strcmp(f->optimizer, "torch") == 0 ? DCPK_LOADER_TORCH_ADAM
                                                                  : DCPK_LOADER_TE_ADAM);
    dcpk_layout_read(f->args, &loading.saved);
    f->got.n = f->n_faults = 0;
    CHECK_OK(dcpk_rules_expect(f->args, &f->mesh, f->arena, &expected, &err), f->name);
    f->unknown = expected.unknown;
    if (f->unknown != NULL)
        return;
    CHECK_OK(format->mapping->request(&loading, &err), f->name);
    qsort(f->got.list, f->got.n, sizeof(struct item), compare_items);
}

/* --- both ways --- */

/* Walk both sorted lists; told: what differs, as text. */
static unsigned differ(const struct fixture *f, char *told, size_t n_told)
{
    size_t w = 0, g = 0, at = 0;
    unsigned n = 0;

    told[0] = '\0';
    while (w < f->want.n || g < f->got.n) {
        const struct item *want = w < f->want.n ? &f->want.list[w] : NULL;
        const struct item *got = g < f->got.n ? &f->got.list[g] : NULL;
        const int order = want == NULL ? 1 : got == NULL ? -1 : strcmp(want->name, got->name);
        const bool same_shape =
            order != 0 || *got->shape == '\0' || strcmp(want->shape, got->shape) == 0;

        if ((order != 0 || !same_shape) && n++ < MAX_TOLD)
            at += (size_t)snprintf(told + at, n_told - at, "\n  %s %s %s %s",
                                   order < 0   ? "not asked by us:"
                                   : order > 0 ? "asked by us alone:"
                                               : "other shape:",
                                   order > 0 ? got->name : want->name,
                                   want == NULL ? "" : want->shape, got == NULL ? "" : got->shape);
        w += order <= 0;
        g += order >= 0;
    }
    return n;
}

/* The releases that a file is for: main there is that of 2026-08-22. */
static enum dcpk_release release_of(const struct fixture *f, const char *name)
{
    enum dcpk_release release = DCPK_CORE_0_15;

    if (strcmp(name, "main") == 0)
        return DCPK_MAIN_2026_08_22;
    if (!dcpk_release_find(name, &release))
        fail_msg("%s: no release '%s'", f->name, name);
    return release;
}

/* Cases whose items are not ours. */
enum answer {
    NO_TABLE, /* 'check' says that it cannot say */
    FAULT,    /* it says that they do not load */
    NOT_SEEN, /* of what the file has not */
};
static const struct {
    const char *name, *why;
    enum answer answer;
} others[] = {
    {".heterogeneous.", "layers of several kinds and sizes", NO_TABLE},
    {".te_heterogeneous.", "layers of several kinds and sizes", NO_TABLE},
    {".fsdp_dtensor.v2_dense.", "Megatron-FSDP v2 and SwiGLU", FAULT},
    {".fsdp_dtensor.v2_gelu_with_optim.", "Megatron-FSDP v2 and an optimizer", FAULT},
    {".fsdp_dtensor.te_moe_grouped_bias.", "clashing names of experts' biases", FAULT},
    {".fsdp_dtensor.te_mla_fused.", "the fused down-projection of MLA", FAULT},
    {".torch_dist.te_mla_fused", "the fused down-projection of MLA", FAULT},
    {".dense_rerun.", "a pending fault is in the common state", NOT_SEEN},
    /* Stops. */
    {".fsdp_dtensor.dense_fp32.", "", FAULT},
    {"core-0.15.fsdp_dtensor.dense_no_optim.", "", FAULT},
    {"core-0.15.fsdp_dtensor.golden_moe_ep2dp4.", "", FAULT},
    {"core-0.15.fsdp_dtensor.mamba.", "", FAULT},
    {"core-0.15.fsdp_dtensor.moe_ep2.", "", FAULT},
    {"core-0.15.fsdp_dtensor.te_mamba.", "", FAULT},
    {"core-0.15.fsdp_dtensor.te_mla_moe_grouped.", "", FAULT},
    {"core-0.15.fsdp_dtensor.te_moe_grouped_ep2.", "", FAULT},
    {".torch_dist.dense_sgd.", "a distributed optimizer of another kind than Adam", FAULT},
    {".torch_dist.dense_torch_adam.", "stops before its state is made; a real run was resumed",
     NOT_SEEN},
    {"core-0.16.fsdp_dtensor.dense_tp2.", "the stand-in for Transformer Engine is no class",
     NOT_SEEN},
    {"core-0.16.fsdp_dtensor.moe_tp2ep2.", "the same", NOT_SEEN},
};

/* -1: it is none of them. */
static int find_other(const char *name)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i].name) != NULL)
            return (int)i;
    return -1;
}

static void check_other(const struct fixture *f, enum answer answer)
{
    CHECK_EQ_INT(f->unknown != NULL, answer == NO_TABLE, f->name);
    if (answer == FAULT)
        CHECK(f->n_faults > 0, f->name);
}

static void check_fixture(const char *name)
{
    const int other = find_other(name);
    struct fixture f = {.name = name};
    char told[16384], *rest = NULL;

    read_fixture(&f);
    CHECK(f.args != NULL, name);
    if (dcpk_format_find(f.format) == NULL) /* Megatron-FSDP's second version: no format here */
        f.releases[0] = '\0';
    CHECK(f.stops[0] == '\0' || f.want.n == 0, name);
    for (char *r = strtok_r(f.releases, ", ", &rest); r != NULL; r = strtok_r(NULL, ", ", &rest)) {
        unsigned n;

        ask(&f, release_of(&f, r));
        if (other >= 0) {
            check_other(&f, others[other].answer);
            continue;
        }
        CHECK_EQ_STR(f.unknown == NULL ? "all is known" : f.unknown, "all is known", name);
        n = differ(&f, told, sizeof told);
        if (n > 0)
            fail_msg("%s (%s): %u items differ:%s", name, r, n, told);
    }
    dcpk_arena_free(f.arena);
}

static void requests_are_those_of_megatron(void **state)
{
    DIR *folder = opendir(FOLDER);
    unsigned n = 0;

    (void)state;
    CHECK(folder != NULL, FOLDER);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (dcpk_ends_with(entry->d_name, ".txt") &&
            strstr(entry->d_name, ".common_state.") == NULL) {
            check_fixture(entry->d_name);
            n++;
        }
    closedir(folder);
    CHECK(n > 0, FOLDER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests_are_those_of_megatron)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
