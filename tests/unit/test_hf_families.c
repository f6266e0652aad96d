/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_families.c - each built-in map moves every element of its models to where it belongs,
 * both ways, and gives the args that compute the same; a map with one mistake in it does not. */
#include "formats/safetensors/hf_ops.h"
#include "tests/unit/hf_config_case.h"
#include "tests/unit/hf_models.h"

#define MAX_TENSORS  512
#define MAX_NAME     96
#define MAX_ELEMENTS 1024
#define MAX_MAP      16384

/* A tensor of Megatron's, as the laws have it. */
struct expected {
    const struct tensor_law *law;
    char mg[MAX_NAME], hf[4][MAX_NAME];
    int64_t expert; /* its slice of the tensor of Hugging Face's; -1: all of it */
    size_t n_hf, n_taken;
};

/* What is checked of a map, and the first fault that was found; "": none. */
struct trial {
    const struct model_case *c;
    const struct dcpk_hf_map *map;
    struct dcpk_hf_sizes sizes;
    struct dcpk_hf_bindings bindings;
    struct expected list[MAX_TENSORS];
    size_t n;
    char fault[600];
};

#define FAULT(trial, ...) ((void)snprintf((trial)->fault, sizeof(trial)->fault, __VA_ARGS__))

/* --- what is expected --- */

static void name_fill(char *name, const char *before, const char *pattern, int64_t expert)
{
    const char *at = strstr(pattern, "{e}");

    if (at == NULL)
        (void)snprintf(name, MAX_NAME, "%s%s", before, pattern);
    else
        (void)snprintf(name, MAX_NAME, "%s%.*s%d%s", before, (int)(at - pattern), pattern,
                       (int)expert, at + strlen("{e}"));
}

/* A law where it stands, for each expert where it is of one. */
static void expect_law(struct trial *t, const struct tensor_law *law, const char *mg_before,
                       const char *hf_before)
{
    const bool is_expert = strstr(law->mg, "{e}") != NULL;

    for (int64_t e = 0; e < (is_expert ? N_EXPERTS : 1); e++) {
        struct expected *x = &t->list[t->n++];

        CHECK(t->n < MAX_TENSORS, "room for all tensors");
        *x = (struct expected){.law = law, .expert = -1};
        name_fill(x->mg, mg_before, law->mg, e);
        for (; x->n_hf < 4 && law->hf[x->n_hf] != NULL; x->n_hf++)
            name_fill(x->hf[x->n_hf], hf_before, law->hf[x->n_hf], e);
        if (is_expert && strstr(law->hf[0], "{e}") == NULL)
            x->expert = e;
    }
}

/* The laws of a layer, or of the one behind the last, whose block has experts. */
static void expect_layer(struct trial *t, int l)
{
    const bool is_mtp = l == N_LAYERS;
    const bool is_shared = l == 2 && strstr(t->c->config, "index_topk_freq") != NULL;
    const char *before = "model.layers";
    char mg[MAX_NAME], hf[MAX_NAME];

    (void)snprintf(mg, sizeof mg, "decoder.layers.%d.", l);
    if (is_mtp)
        (void)snprintf(mg, sizeof mg, "mtp.layers.0.transformer_layer.");
    if ((t->c->traits & GPT2) != 0)
        before = "transformer.h";
    if ((t->c->traits & HYBRID) != 0)
        before = "backbone.layers";
    (void)snprintf(hf, sizeof hf, "%s.%d.", before, l);
    for (size_t i = 0; i < DCPK_COUNT(tensor_laws); i++) {
        const struct tensor_law *law = &tensor_laws[i];
        const bool is_whole = strncmp(law->mg, "embed", 5) == 0 || strncmp(law->mg, "out", 3) == 0;

        if ((law->traits & ~t->c->traits) != 0)
            continue;
        if (law->where == IN_EACH || (law->where == IN_DENSE && l < t->c->n_dense) ||
            (law->where == IN_MOE && l >= t->c->n_dense) ||
            (law->where == IN_INDEXED && !is_shared) || (law->where == IN_LINEAR && l % 2 == 0) ||
            (law->where == IN_FULL && l % 2 == 1))
            expect_law(t, law, mg, hf);
        if (law->where == AT_MTP && is_mtp)
            expect_law(t, law, is_whole ? "" : "mtp.layers.0.", hf);
    }
}

static void expect_all(struct trial *t)
{
    t->n = 0;
    for (size_t i = 0; i < DCPK_COUNT(tensor_laws); i++)
        if (tensor_laws[i].where == AT_TOP && (tensor_laws[i].traits & ~t->c->traits) == 0)
            expect_law(t, &tensor_laws[i], "", "");
    for (int l = 0; l < N_LAYERS + ((t->c->traits & MTP) != 0); l++)
        expect_layer(t, l);
}

/* --- where elements are --- */

/* An element of the parts: the part, its row and its column. */
struct element {
    size_t part;
    int64_t row, column;
};

/* Row r of linear_qkv: formats/safetensors/MAPS.md, "Tensors", qkv. */
static struct element group_row(const struct model_case *c, int64_t r, bool of_one)
{
    const int64_t d = c->head_size, per_group = N_HEADS / c->n_groups, i = r % d;
    const int64_t j = r / d % (per_group + 2), g = r / d / (per_group + 2);
    const int64_t n_q = N_HEADS * d, n_k = c->n_groups * d;
    struct element at = {0, (g * per_group + j) * d + i, 0};

    if (j >= per_group)
        at = (struct element){1 + (size_t)(j - per_group), g * d + i, 0};
    if (of_one && at.part > 0)
        at = (struct element){0, n_q + (int64_t)(at.part - 1) * n_k + at.row, 0};
    return at;
}

/* Row r of linear_qkv where heads have gates: formats/safetensors/MAPS.md, "Tensors", qkv. */
static struct element gated_row(const struct model_case *c, int64_t r)
{
    const int64_t d = c->head_size, per_group = N_HEADS / c->n_groups, i = r % d;
    const int64_t j = r / d % (2 * per_group + 2), g = r / d / (2 * per_group + 2);

    if (j >= 2 * per_group)
        return (struct element){1 + (size_t)(j - 2 * per_group), g * d + i, 0};
    return (struct element){0, ((g * per_group + j % per_group) * 2 + j / per_group) * d + i, 0};
}

/* Row r of in_proj: q, k, v, z, beta, alpha of a key head, each of all heads in Megatron's. */
static struct element key_head_row(const struct model_case *c, int64_t r)
{
    const int64_t v = N_HEADS / KEY_HEADS * c->head_size, b = N_HEADS / KEY_HEADS;
    const int64_t n_rows[] = {KEY_HEAD, KEY_HEAD, v, v, b, b};
    const int64_t before[] = {0, KEY_HEAD, 2 * KEY_HEAD, 2 * KEY_HEAD + v, 0, b};
    size_t s = 0;

    for (; r >= n_rows[s] * KEY_HEADS; s++)
        r -= n_rows[s] * KEY_HEADS;
    return (struct element){
        s >= 4, r / n_rows[s] * (s < 4 ? 2 * KEY_HEAD + 2 * v : 2 * b) + before[s] + r % n_rows[s],
        0};
}

/* The same where the parts are all q, k, v, then all z, beta and alpha. */
static struct element apart_row(const struct model_case *c, int64_t r)
{
    const int64_t n_rows[] = {case_extent(c, 'N'), case_extent(c, 'q'), N_HEADS, N_HEADS};
    size_t part = 0;

    for (; part < 3 && r >= n_rows[part]; part++)
        r -= n_rows[part];
    return (struct element){part, r, 0};
}

/* Of which element is row r, column c of Megatron's tensor? n_rows: of it. */
static struct element law_element(const struct model_case *c, const struct tensor_law *law,
                                  int64_t n_rows, int64_t r, int64_t column)
{
    const int64_t half = n_rows / 2, taken = r < half ? 2 * r : 2 * (r - half) + 1;
    struct element at = {0, r, column};

    switch (law->law) {
    case AS_IS:
        return at;
    case BEHIND:
        return (struct element){(size_t)(r / half), r % half, column};
    case APART:
        at = apart_row(c, r);
        at.column = column;
        return at;
    case BY_GROUP:
    case BY_GROUP_OF_ONE:
        at = group_row(c, r, law->law == BY_GROUP_OF_ONE);
        at.column = column;
        return at;
    case BY_GROUP_GATED:
        at = gated_row(c, r);
        at.column = column;
        return at;
    case BY_KEY_HEAD:
        at = key_head_row(c, r);
        at.column = column;
        return at;
    case ALTERNATE:
        return (struct element){0, taken, column};
    case TURNED:
        return (struct element){0, column, r};
    case TURNED_BY_GROUP:
        return (struct element){0, column, group_row(c, r, true).row};
    case TURNED_ALTERNATE:
        break;
    }
    return (struct element){0, column, taken};
}

/* The shape of a part, or of the whole that Megatron has: rank, rows, columns. */
struct flat_shape {
    int rank;
    int64_t rows, columns;
};

static struct flat_shape part_shape(const struct model_case *c, const struct tensor_law *law,
                                    size_t part)
{
    const char *letters = law->shape[part];
    struct flat_shape s = {(int)strlen(letters), case_extent(c, letters[0]), 1};

    if (s.rank == 2)
        s.columns = case_extent(c, letters[1]);
    return s;
}

static struct flat_shape whole_shape(const struct model_case *c, const struct tensor_law *law)
{
    struct flat_shape s = part_shape(c, law, 0);

    if (law->law >= TURNED)
        return (struct flat_shape){s.rank, s.columns, s.rows};
    for (size_t p = 1; p < 4 && law->hf[p] != NULL; p++)
        s.rows += part_shape(c, law, p).rows;
    return s;
}

/* --- what a map does --- */

/* A tensor that is all of source `src`; its pair_axis, if it has one, as pairs and 2. */
static struct dcpk_model_tensor source_tensor(uint32_t src, struct flat_shape s, int pair_axis)
{
    struct dcpk_piece *piece = dcpk_arena_alloc(arena, sizeof *piece, &err);
    int64_t *shape = dcpk_arena_array(arena, 3, sizeof *shape, &err);
    struct dcpk_model_tensor tensor = {.dtype = DCPK_F32, .n_pieces = 1};
    const int64_t extents[] = {s.rows, s.columns};
    struct dcpk_box box;

    CHECK(piece != NULL && shape != NULL, err.text);
    for (int a = 0; a < s.rank; a++) {
        shape[tensor.rank++] = a == pair_axis ? extents[a] / 2 : extents[a];
        if (a == pair_axis)
            shape[tensor.rank++] = 2;
    }
    dcpk_box_whole(shape, tensor.rank, &box);
    CHECK_OK(dcpk_piece_make(arena, src, &box, &box, piece, &err), "a source");
    tensor.shape = shape;
    tensor.pieces = piece;
    return tensor;
}

/* The number of the only element of a box, counted in a tensor of that shape. */
static int64_t element_number(const struct dcpk_box *box, const int64_t *shape)
{
    int64_t number = 0;

    for (int a = 0; a < box->rank; a++)
        number = number * shape[a] + box->offset[a];
    return number;
}

/* Which element of `sources` lies at each place of a tensor: 10000 * source + number. */
static void tensor_show(const struct dcpk_model_tensor *t, const struct dcpk_model_tensor *sources,
                        int64_t *got)
{
    int64_t n = 1;

    for (int a = 0; a < t->rank; a++)
        n *= t->shape[a];
    CHECK(n <= MAX_ELEMENTS, "room for all elements");
    for (int64_t i = 0; i < n; i++) {
        struct dcpk_box one = {.rank = t->rank}, from, to;

        got[i] = -1;
        for (int64_t a = t->rank - 1, rest = i; a >= 0; rest /= t->shape[a--]) {
            one.offset[a] = rest % t->shape[a];
            one.extent[a] = 1;
        }
        for (size_t p = 0; p < t->n_pieces; p++)
            if (dcpk_piece_clip(&t->pieces[p], &one, &from, &to))
                got[i] = 10000 * (int64_t)t->pieces[p].src +
                         element_number(&from, sources[t->pieces[p].src].shape);
    }
}

static bool tensor_is_of(const struct dcpk_model_tensor *t, struct flat_shape s, int pair_axis)
{
    const struct dcpk_model_tensor want = source_tensor(0, s, pair_axis);

    return t->rank == want.rank &&
           memcmp(t->shape, want.shape, (size_t)want.rank * sizeof *want.shape) == 0;
}

/* From the parts to the whole, and from the whole to the parts. */
static void check_elements(struct trial *t, const struct expected *x,
                           const struct dcpk_hf_rule *rule)
{
    const int pair_axis = dcpk_hf_ops_pair_axis(rule, 0);
    const struct flat_shape s = whole_shape(t->c, x->law);
    struct dcpk_model_tensor in[DCPK_HF_MAX_PARTS], out[DCPK_HF_MAX_PARTS], whole;
    int64_t joined[MAX_ELEMENTS], split[4][MAX_ELEMENTS];

    for (size_t p = 0; p < x->n_hf; p++)
        in[p] = source_tensor((uint32_t)p, part_shape(t->c, x->law, p), pair_axis);
    if (dcpk_hf_ops_join(rule, &t->sizes, in, arena, &whole, &err)) {
        FAULT(t, "%s: %.400s", x->mg, err.text);
        return;
    }
    if (!tensor_is_of(&whole, s, -1)) {
        FAULT(t, "%s: another shape", x->mg);
        return;
    }
    tensor_show(&whole, in, joined);
    whole = source_tensor(0, s, -1);
    CHECK_OK(dcpk_hf_ops_split(rule, &t->sizes, &whole, arena, out, &err), x->mg);
    for (size_t p = 0; p < x->n_hf; p++) {
        CHECK(tensor_is_of(&out[p], part_shape(t->c, x->law, p), pair_axis), x->mg);
        tensor_show(&out[p], &whole, split[p]);
    }
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        const struct element at = law_element(t->c, x->law, s.rows, i / s.columns, i % s.columns);
        const int64_t number = at.row * part_shape(t->c, x->law, at.part).columns + at.column;

        if (joined[i] != 10000 * (int64_t)at.part + number || split[at.part][number] != i)
            FAULT(t, "%s: another element at %" PRId64, x->mg, i);
    }
}

/* Ops that move elements, and change none, except where the law has a sum. */
static bool sums_as(const struct dcpk_hf_rule *rule, const struct tensor_law *law)
{
    bool sums = false;

    for (size_t i = 0; i < rule->n_ops; i++)
        sums |= rule->ops[i] == DCPK_HF_ADD_ONE;
    return sums == ((law->flags & LAW_SUM) != 0);
}

static void check_binding(struct trial *t, const struct dcpk_hf_binding *b)
{
    struct expected *x = NULL;

    for (size_t i = 0; i < t->n && x == NULL; i++)
        if (strcmp(t->list[i].mg, b->mg) == 0 && strcmp(t->list[i].hf[0], b->hf[0]) == 0 &&
            t->list[i].expert == b->expert)
            x = &t->list[i];
    if (x == NULL || ++x->n_taken > 1) {
        FAULT(t, "'%s' of '%s'", b->mg, b->hf[0]);
        return;
    }
    if (x->n_hf != b->rule->n_hf || (x->law->flags & ~(unsigned)LAW_SUM) != b->rule->flags ||
        x->law->dtype != b->rule->dtype || !sums_as(b->rule, x->law)) {
        FAULT(t, "'%s' is another rule", b->mg);
        return;
    }
    for (size_t p = 1; p < x->n_hf; p++)
        if (strcmp(x->hf[p], b->hf[p]) != 0)
            FAULT(t, "'%s' of '%s' as well", b->mg, b->hf[p]);
    if (x->expert <= 0 && *t->fault == '\0')
        check_elements(t, x, b->rule);
}

static void check_tensors(struct trial *t)
{
    expect_all(t);
    for (size_t i = 0; i < t->bindings.n && *t->fault == '\0'; i++)
        if (t->bindings.list[i].applies)
            check_binding(t, &t->bindings.list[i]);
    for (size_t i = 0; i < t->n && *t->fault == '\0'; i++)
        if (t->list[i].n_taken == 0)
            FAULT(t, "nothing gives '%s' of '%s'", t->list[i].mg, t->list[i].hf[0]);
}

static void check_args(struct trial *t, const struct dcpk_value *attrs)
{
    char text[2048], got[4096];
    const struct dcpk_json *doc;

    (void)snprintf(text, sizeof text, "{%s}", t->c->args);
    doc = parse(text, t->c->family);
    for (const struct dcpk_json *arg = dcpk_json_first(doc); arg != NULL;
         arg = dcpk_json_next(arg)) {
        const char *want;

        (void)snprintf(got, sizeof got, "%s", show(dcpk_value_get(attrs, dcpk_json_key(arg))));
        want = show(dcpk_hf_value(arena, arg, &err));
        if (strcmp(got, want) != 0)
            FAULT(t, "%.100s is %.100s, wanted %.100s", dcpk_json_key(arg), got, want);
    }
    dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
}

static void check_scales(struct trial *t)
{
    const struct dcpk_hf_map *map = t->map;
    char text[200] = "";

    if (map->scales_suffix != NULL)
        (void)snprintf(text, sizeof text, "%s|%s|%s", map->scales_suffix, map->scales_values,
                       map->scales_block == NULL ? "" : map->scales_block);
    if (strcmp(text, t->c->scales) != 0)
        FAULT(t, "the scales are '%s'", text);
}

/* All that a map is for, with one model of its family. */
static void check_map(struct trial *t)
{
    const struct dcpk_value *attrs;
    char config[2048];

    (void)snprintf(config, sizeof config, "{%s}", t->c->config);
    if (import(t->map, config, t->c->family, &attrs) != DCPK_OK ||
        dcpk_hf_sizes_read(attrs, arena, &t->sizes, &err) ||
        dcpk_hf_bind(t->map, &t->sizes, NULL, arena, &t->bindings, &err)) {
        FAULT(t, "%.500s", err.text);
        return;
    }
    check_args(t, attrs);
    check_scales(t);
    if (*t->fault == '\0')
        check_tensors(t);
}

static void each_map_keeps_the_laws(void **state)
{
    static struct trial t;
    struct dcpk_hf_maps maps;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(model_cases); i++) {
        fresh();
        CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "built in");
        t = (struct trial){.c = &model_cases[i]};
        t.map = dcpk_hf_maps_find(&maps, t.c->family);
        CHECK(t.map != NULL, t.c->family);
        check_map(&t);
        CHECK_EQ_STR(t.fault, "", t.c->family);
    }
    for (size_t m = 0; m < maps.n; m++) { /* of each family there is one */
        size_t i = 0;

        while (i < DCPK_COUNT(model_cases) &&
               strcmp(model_cases[i].family, maps.list[m]->family) != 0)
            i++;
        CHECK(i < DCPK_COUNT(model_cases), maps.list[m]->family);
    }
}

/* --- mistakes --- */

#define ATTN "self_attn."
#define SHARED_RULE                                                                                \
    ",\n  {\"mg\": \"mlp.shared_experts.gate_weight\", \"hf\": \"mlp.shared_expert_gate.weight\"}"
#define ROUTED_BIAS_RULE                                                                           \
    "{\"mg\": \"mlp.router.expert_bias\", \"hf\": \"mlp.gate.e_score_correction_bias\", "          \
    "\"dtype\": \"float32\"},"

/* One change of a map each, at the first place where the text stands. */
static const struct {
    const char *label, *family, *was, *is;
} mistakes[] = {
    {"gate and up swapped", "llama", "\"mlp.gate_proj.weight\", \"mlp.up_proj.weight\"",
     "\"mlp.up_proj.weight\", \"mlp.gate_proj.weight\""},
    {"gate and up swapped", "mixtral", ".w1.weight", ".w3.weight"},
    {"gate and up interleaved", "llama", "\"cat\"", "[\"cat\", \"deinterleave\"]"},
    {"gate and up interleaved", "phi3", "\"mlp.gate_up_proj.weight\"",
     "\"mlp.gate_up_proj.weight\", \"op\": \"deinterleave\""},
    {"q, k, v contiguous", "llama", "\"qkv\"", "\"cat\""},
    {"q, k, v contiguous", "phi3", ", \"op\": \"qkv\"", ""},
    {"q, k, v contiguous", "gpt2", "[\"transpose\", \"qkv\"]", "\"transpose\""},
    {"their biases contiguous", "gpt2", "\"attn.c_attn.bias\", \"op\": \"qkv\"",
     "\"attn.c_attn.bias\""},
    {"k and v swapped", "llama", "\"" ATTN "k_proj.weight\", \"" ATTN "v_proj.weight\"",
     "\"" ATTN "v_proj.weight\", \"" ATTN "k_proj.weight\""},
    {"Gated DeltaNet contiguous", "qwen3_next", "\"delta_net\"", "\"cat\""},
    {"z and its neighbour swapped", "qwen3_5_text", "in_proj_z.weight\", \"linear_attn.in_proj_b",
     "in_proj_b.weight\", \"linear_attn.in_proj_z"},
    {"beta and alpha swapped", "qwen3_5_moe_text",
     "in_proj_b.weight\", \"linear_attn.in_proj_a.weight",
     "in_proj_a.weight\", \"linear_attn.in_proj_b.weight"},
    {"its norm less one", "qwen3_next", "\"linear_attn.norm.weight\", \"op\": \"add_one\"",
     "\"linear_attn.norm.weight\""},
    {"gates left out", "qwen3_next", "\"attention_output_gate\": true, ", ""},
    {"kinds of layers swapped", "qwen3_next", "linear_attention\"}", "full_attention\"}"},
    {"their biases swapped", "qwen2", "\"" ATTN "k_proj.bias\", \"" ATTN "v_proj.bias\"",
     "\"" ATTN "v_proj.bias\", \"" ATTN "k_proj.bias\""},
    {"biases left out", "qwen2", "\"add_qkv_bias\": true", "\"add_qkv_bias\": false"},
    {"norms of q and k swapped", "qwen3", "q_norm", "k_norm"},
    {"norms of q and k left out", "qwen3", "\"qk_layernorm\": true", "\"qk_layernorm\": false"},
    {"norms + 1", "llama", "\"input_layernorm.weight\"",
     "\"input_layernorm.weight\", \"op\": \"add_one\""},
    {"norms + 1", "deepseek_v3", "\"input_layernorm.weight\"}",
     "\"input_layernorm.weight\", \"op\": \"add_one\"}"},
    {"norms + 1", "nemotron", "\"input_layernorm.weight\"",
     "\"input_layernorm.weight\", \"op\": \"add_one\""},
    {"1p forgotten", "nemotron", "\"apply_layernorm_1p\": true", "\"apply_layernorm_1p\": false"},
    {"norms of another kind", "llama", "RMSNorm", "LayerNorm"},
    {"norms swapped", "llama", "\"input_layernorm.weight\"", "\"post_attention_layernorm.weight\""},
    {"rotary base left out", "llama", "\"rotary_base\"", "\"rotary_bases\""},
    {"part of a head rotated: left out", "nemotron", "\"rotary_percent\"", "\"rotary_part\""},
    {"pairs of neighbours taken for halves", "ernie4_5", ", \"rotary_interleaved\": true", ""},
    {"llama3 left out", "llama", "\"use_rope_scaling\": true", "\"use_rope_scaling\": false"},
    {"llama3 of no factor", "llama", "\"rope_scaling_factor\"", "\"rope_scaling\""},
    {"linear left out", "llama", "\"rotary_seq_len_interpolation_factor\"", "\"rotary_seq\""},
    {"MLA's scaling left out", "deepseek_v3", "\"rope_type\": \"yarn\"", "\"rope_type\": \"rope\""},
    {"MLA's factor left out", "deepseek_v3", "[\"factor\", \"rotary_scaling_factor\"]",
     "[\"factor\", \"factor\"]"},
    {"MLA's mscale for all of it", "deepseek_v3", "[\"mscale\", \"mscale\", 1.0]",
     "[\"mscale\", \"mscale_all\", 1.0]"},
    {"MLA without scaling is YaRN", "deepseek_v2", "\"rope_type\": \"rope\"",
     "\"rope_type\": \"yarn\""},
    {"YaRN left out", "gpt_oss", "\"position_embedding_type\": \"yarn\"",
     "\"position_embedding_type\": \"rope\""},
    {"YaRN's range rounded", "gpt_oss", "yarn_correction_range_round_to_int", "yarn_correction"},
    {"MLA's rope rows de-interleaved", "deepseek_v3", "kv_a_proj_with_mqa.weight\"",
     "kv_a_proj_with_mqa.weight\", \"op\": \"deinterleave\""},
    {"those of q", "deepseek_v3", "q_b_proj.weight\"",
     "q_b_proj.weight\", \"op\": \"deinterleave\""},
    {"epsilon x 100", "llama", "\"or\", 1e-06", "\"or\", 0.0001"},
    {"layers of the MTP layer", "deepseek_v3", "\"hf\": \"model.layers.{l}.\"",
     "\"hf\": \"model.layers.{m+num_layers}.\""},
    {"weights in bfloat16", "llama", "\"op\": \"qkv\"", "\"op\": \"qkv\", \"dtype\": \"bfloat16\""},
    {"a router's bias in less than float32", "deepseek_v3", ", \"dtype\": \"float32\"", ""},
    {"a tied model untied", "gpt2", "\"not\", true", "\"not\", false"},
    {"a tied model untied", "llama", "\"not\", false", "\"or\", true"},
    {"an output layer of a tied model", "gpt2", ", \"if\": \"untie_embeddings_and_output_weights\"",
     ""},
    {"window left out", "mistral", "\"window_size\"", "\"window\""},
    {"window left out", "phi3", "\"window_size\"", "\"window\""},
    {"window left out", "gpt_oss", "\"window_size\"", "\"window\""},
    {"window of every layer", "gpt_oss", "\"window_attn_skip_freq\": 2",
     "\"window_attn_skip_freq\": null"},
    {"softmax flipped", "qwen2_moe", "\"moe_router_pre_softmax\", \"not\", false",
     "\"moe_router_pre_softmax\", \"or\", true"},
    {"softmax flipped", "qwen3_moe", "\"moe_router_pre_softmax\", \"not\", false",
     "\"moe_router_pre_softmax\", \"or\", true"},
    {"softmax flipped", "mixtral", "\"moe_router_pre_softmax\": false",
     "\"moe_router_pre_softmax\": true"},
    {"softmax flipped", "deepseek_v2", "\"moe_router_pre_softmax\": true",
     "\"moe_router_pre_softmax\": false"},
    {"softmax for sigmoid", "deepseek_v3", "\"moe_router_score_function\": \"sigmoid\"",
     "\"moe_router_score_function\": \"softmax\""},
    {"rows of fc2 in another order", "qwen3_moe", "\"mlp.experts.{e}.down_proj.weight\"",
     "\"mlp.experts.{e}.down_proj.weight\", \"op\": \"deinterleave\""},
    {"fc2 transposed", "qwen3_moe", "\"mlp.experts.down_proj\"",
     "\"mlp.experts.down_proj\", \"op\": \"transpose\""},
    {"shared gate left out", "qwen2_moe", SHARED_RULE, ""},
    {"shared gate not said", "qwen2_moe", "\"moe_shared_expert_gate\": true",
     "\"moe_shared_expert_gate\": false"},
    {"router's bias left out", "deepseek_v3", ROUTED_BIAS_RULE, ""},
    {"router's bias not said", "deepseek_v3", "\"moe_router_enable_expert_bias\": true",
     "\"moe_router_enable_expert_bias\": false"},
    {"groups left out", "deepseek_v3", "\"moe_router_num_groups\"", "\"moe_groups\""},
    {"groups of a token left out", "deepseek_v3", "\"moe_router_group_topk\"", "\"moe_topk\""},
    {"scaling of experts left out", "deepseek_v3", "\"moe_router_topk_scaling_factor\"",
     "\"moe_scaling\""},
    {"first dense layers left out", "deepseek_v3", "\"moe_layer_freq\"", "\"moe_freq\""},
    {"eh_proj transposed", "deepseek_v3", "eh_proj.weight\"}",
     "eh_proj.weight\", \"op\": \"transpose\"}"},
    {"norms in front of eh_proj swapped", "deepseek_v3", "num_layers}.enorm", "num_layers}.hnorm"},
    {"rope of an indexer in another order", "glm_moe_dsa", "\"dsa_indexer_rope_interleaved\": true",
     "\"dsa_indexer_rope_interleaved\": false"},
    {"rope of an indexer in another order", "deepseek_v32",
     "\"dsa_indexer_rope_interleaved\": false", "\"dsa_indexer_rope_interleaved\": true"},
    {"layers that share an indexer: left out", "glm_moe_dsa", "\"dsa_indexer_topk_freq\"",
     "\"dsa_indexer_freq\""},
    {"an indexer's keys and weights swapped", "deepseek_v32", "indexer.wk.weight",
     "indexer.weights_proj.weight"},
    {"an indexer's bias left out", "deepseek_v32", "indexer.k_norm.bias\"", "indexer.k_bias\""},
    {"copies are parameters", "deepseek_v3", ", \"copy\": true", ""},
    {"scales left out", "deepseek_v3", "\"scales\"", "\"set\""},
    {"scales of another name", "deepseek_v3", "_scale_inv", "_scale"},
    {"columns not de-interleaved", "gpt_oss", "[\"transpose\", \"deinterleave\"]", "\"transpose\""},
    {"experts not transposed", "gpt_oss", "[\"transpose\", \"deinterleave\"]", "\"deinterleave\""},
    {"rows of 4 bits not de-interleaved", "gpt_oss", "_blocks\", \"op\": \"deinterleave\"",
     "_blocks\""},
    {"rows of 4 bits transposed", "gpt_oss", "down_proj_blocks\"",
     "down_proj_blocks\", \"op\": \"transpose\""},
    {"biases not de-interleaved", "gpt_oss", "gate_up_proj_bias\", \"op\": \"deinterleave\"",
     "gate_up_proj_bias\""},
    {"sinks left out", "gpt_oss", "\"learnable\"", "\"vanilla\""},
    {"clamp left out", "gpt_oss", "activation_func_clamp_value", "clamp_value"},
    {"offset left out", "gpt_oss", "\"glu_linear_offset\": 1.0", "\"glu_linear_offset\": 0.0"},
    {"GELU exact for tanh", "gpt2", "\"gelu_new\": true", "\"gelu_new\": false"},
    {"ReLU for its square", "nemotron", "\"squared_relu\": true", "\"squared_relu\": false"},
    {"SwiGLU left out", "llama", "\"swiglu\": true", "\"swiglu\": false"},
    {"not transposed", "gpt2", "\"mlp.c_fc.weight\", \"op\": \"transpose\"", "\"mlp.c_fc.weight\""},
    {"q, k, v not transposed", "gpt2", "[\"transpose\", \"qkv\"]", "\"qkv\""},
    {"a tensor left out", "llama",
     "{\"mg\": \"decoder.final_layernorm.weight\", \"hf\": \"model.norm.weight\"}",
     "{\"mg\": \"decoder.final_layernorm.weights\", \"hf\": \"model.norm.weight\"}"},
    {"a tensor twice", "llama", "\"layer\": [",
     "\"layer\": [{\"mg\": \"mlp.linear_fc2.weight\", \"hf\": \"mlp.down_proj.weight\"},"},
    {"the fused form is not read", "qwen3_moe",
     "{\"mg\": \"mlp.experts.linear_fc2.weight{e}\", \"hf\": \"mlp.experts.down_proj\", \"read\": "
     "\"memory\"}",
     "{\"mg\": \"x\", \"hf\": \"x\"}"},
    {"the fused form is written too", "qwen3_moe", ", \"read\": \"memory\"", ""},
};

/* The map of a family with that change, or why it is none. */
static void read_changed(struct trial *t, const char *was, const char *is)
{
    char path[1024], text[MAX_MAP];
    struct dcpk_bytes changed = {0};
    const char *at;
    size_t n;
    FILE *file;

    (void)snprintf(path, sizeof path, DCPK_SOURCE_DIR "/formats/safetensors/maps/%s.json",
                   t->c->family);
    file = fopen(path, "r");
    CHECK(file != NULL, path);
    n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    CHECK(n < sizeof text - 1, path);
    text[n] = '\0';
    at = strstr(text, was);
    CHECK(at != NULL, was);
    dcpk_bytes_printf(&changed, "%.*s%s%s", (int)(at - text), text, is, at + strlen(was));
    CHECK_OK(dcpk_bytes_status(&changed, &err), path);
    if (dcpk_hf_map_read("changed.json", (const char *)changed.data, changed.n_bytes, arena,
                         &t->map, &err))
        FAULT(t, "%.500s", err.text);
    dcpk_bytes_release(&changed);
}

static void each_mistake_is_seen(void **state)
{
    static struct trial t;
    char label[200];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(mistakes); i++) {
        size_t n_seen = 0;

        (void)snprintf(label, sizeof label, "%s: %s", mistakes[i].family, mistakes[i].label);
        for (size_t c = 0; c < DCPK_COUNT(model_cases); c++) {
            if (strcmp(model_cases[c].family, mistakes[i].family) != 0)
                continue;
            fresh();
            t = (struct trial){.c = &model_cases[c]};
            read_changed(&t, mistakes[i].was, mistakes[i].is);
            if (*t.fault == '\0')
                check_map(&t);
            n_seen += *t.fault != '\0';
        }
        CHECK(n_seen > 0, label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_map_keeps_the_laws),
        cmocka_unit_test(each_mistake_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}
