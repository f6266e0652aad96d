/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_args.c - every arg of the table, off its default: config.json differs, or the export is
 * refused. */
#include "lib/model/arg_table.h"
#include "tests/unit/hf_config_case.h"

#define SIZES                                                                                      \
    "\"vocab_size\": 99, \"hidden_size\": 32, \"num_hidden_layers\": 4, \"num_attention_heads\": " \
    "4, \"num_key_value_heads\": 2, \"intermediate_size\": 40, \"max_position_embeddings\": 256, " \
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0"

static const struct {
    const char *family, *config;
} models[] = {
    {"llama", "{" SIZES "}"},
    {"mixtral",
     "{" SIZES ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": null}"},
};

/* What makes an arg of the part mean something. */
static const struct {
    enum dcpk_arg_part part;
    const char *name, *value;
} switches[] = {
    {DCPK_PART_GELU, "swiglu", "false"},
    {DCPK_PART_SCALING, "use_rope_scaling", "true"},
    {DCPK_PART_YARN, "position_embedding_type", "\"yarn\""},
    {DCPK_PART_GPT_YARN, "position_embedding_type", "\"yarn\""},
    {DCPK_PART_MLA, "multi_latent_attention", "true"},
    {DCPK_PART_VARIANT, "experimental_attention_variant", "\"gdn\""},
    {DCPK_PART_WINDOW, "window_size", "[7, 0]"},
    {DCPK_PART_HYBRID, "hybrid_layer_pattern", "\"M*M*\""},
    {DCPK_PART_MOE, "num_experts", "4"},
    {DCPK_PART_CAPACITY, "moe_expert_capacity_factor", "1.5"},
    {DCPK_PART_MTP, "mtp_num_layers", "1"},
    {DCPK_PART_MUP, "use_mup", "true"},
    {DCPK_PART_MHC, "enable_mhc_connections", "true"},
};

/* Values off the default that are no number of their own. */
static const struct {
    const char *name, *value;
} given[] = {
    {"window_size", "[3, 0]"},
    {"window_attn_skip_freq", "3"},
    {"spec", "[\"a.module\", \"a_function\"]"},
    {"moe_router_load_balancing_type", "\"sinkhorn\""},
    {"position_embedding_type", "\"none\""},
    {"rotary_percent", "0.5"},
    {"kv_channels", "16"},
    {"num_attention_heads", "8"},
};

static const struct dcpk_value *value_of(const char *text)
{
    struct dcpk_json *doc = (struct dcpk_json *)(uintptr_t)parse(text, text);
    const struct dcpk_value *value = dcpk_hf_value(arena, doc, &err);

    dcpk_json_free(doc);
    CHECK(value != NULL, text);
    return value;
}

/* Off the default, or at it where the model is off it. */
static const struct dcpk_value *other_value(const struct dcpk_arg *arg,
                                            const struct dcpk_value *attrs)
{
    for (size_t i = 0; i < DCPK_COUNT(given); i++)
        if (strcmp(given[i].name, arg->name) == 0)
            return value_of(given[i].value);
    if (arg->kind == DCPK_ARG_BOOL)
        return dcpk_value_bool(!dcpk_arg_value(attrs, arg->name)->as.b);
    if (arg->kind == DCPK_ARG_TEXT)
        return value_of("\"another\"");
    return value_of(arg->kind == DCPK_ARG_FLOAT ? "3.5" : "5");
}

/* The args with one more, or one replaced. */
static const struct dcpk_value *with(const struct dcpk_value *attrs, const char *name,
                                     const struct dcpk_value *value)
{
    struct dcpk_value_pair *pairs = dcpk_arena_array(arena, attrs->n + 1, sizeof *pairs, &err);
    size_t n = 0;

    for (size_t i = 0; i < attrs->n; i++)
        if (strcmp(dcpk_value_as_str(attrs->as.pairs[i].key), name) != 0)
            pairs[n++] = attrs->as.pairs[i];
    pairs[n].key = dcpk_value_str(arena, name, &err);
    pairs[n++].value = value;
    return dcpk_value_dict(arena, pairs, n, &err);
}

static const struct dcpk_value *model_args(size_t model, const struct dcpk_arg *arg)
{
    const struct dcpk_hf_map *map;
    const struct dcpk_value *attrs;
    struct dcpk_hf_maps maps;

    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "maps");
    map = dcpk_hf_maps_find(&maps, models[model].family);
    CHECK_OK(import(map, models[model].config, models[model].family, &attrs), "import");
    for (size_t i = 0; i < DCPK_COUNT(switches); i++)
        if (switches[i].part == arg->part)
            attrs = with(attrs, switches[i].name, value_of(switches[i].value));
    return attrs;
}

/* The config.json of the args, or why there is none. */
static const char *exported(size_t model, const struct dcpk_value *attrs)
{
    struct dcpk_bytes text = {0};
    struct dcpk_hf_maps maps;
    const char *made;

    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "maps");
    if (export(dcpk_hf_maps_find(&maps, models[model].family), attrs, NULL, &text))
        made = dcpk_arena_strdup(arena, err.text, &(struct dcpk_error)DCPK_ERROR_INIT);
    else
        made = dcpk_arena_printf(arena, &err, "%.*s", (int)text.n_bytes, (const char *)text.data);
    dcpk_error_clear(&err);
    dcpk_bytes_release(&text);
    return made;
}

static void each_arg_is_refused_or_written(void **state)
{
    (void)state;
    for (size_t model = 0; model < DCPK_COUNT(models); model++)
        for (size_t i = 0; i < dcpk_n_args; i++) {
            const struct dcpk_arg *arg = &dcpk_args[i];
            const struct dcpk_value *before, *after;
            char label[200];

            if (arg->flags & (DCPK_ARG_TRAINS | DCPK_ARG_SHOWN))
                continue; /* what weights show, the rules of tensors ask for */
            fresh();
            (void)snprintf(label, sizeof label, "%s: %s", models[model].family, arg->name);
            before = model_args(model, arg);
            after = with(before, arg->name, other_value(arg, before));
            if (arg->twin != NULL)
                after = with(after, arg->twin, other_value(arg, before));
            if (exported(model, before)[0] != '{') /* the family does not have the part */
                CHECK(dcpk_arg_is_off(arg, after), label);
            else
                CHECK(strcmp(exported(model, before), exported(model, after)) != 0, label);
        }
}

/* Kinds of balancing that add a loss are the model that a family has. */
static void losses_are_no_model(void **state)
{
    static const struct {
        const char *type;
        bool is_written;
    } cases[] = {
        {"\"aux_loss\"", true},
        {"\"none\"", true},
        {"[\"seq_aux_loss\", \"global_aux_loss\"]", true},
        {"\"sinkhorn\"", false},
        {"[\"aux_loss\", \"quantile_balancing\"]", false},
        {"[]", false},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_arg *arg = dcpk_arg_find("moe_router_load_balancing_type");
        const struct dcpk_value *before, *after;

        fresh();
        before = model_args(1, arg);
        after = with(before, arg->name, value_of(cases[i].type));
        CHECK((strcmp(exported(1, before), exported(1, after)) == 0) == cases[i].is_written,
              cases[i].type);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_arg_is_refused_or_written),
        cmocka_unit_test(losses_are_no_model),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}
