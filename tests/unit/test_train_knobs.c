/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_knobs.c - knobs from arguments and configurations, defaults, sizes that follow. */
#include <stdio.h>

#include "formats/formats.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/knobs/knobs.h"
#include "tests/every_alloc.h"
#include "tests/unit/megatron_flags.h"

#define MAX_ARGS 64

static struct dcpk_error err;
static struct dcpk_arena *arena;
static struct dcpk_train_knobs knobs;
static struct dcpk_train_notices notices;

static int set_up(void **state)
{
    (void)state;
    dcpk_error_clear(&err);
    notices.n = 0;
    arena = dcpk_arena_new();
    if (arena == NULL)
        return 1;
    dcpk_train_knobs_init(&knobs, arena);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

/* Takes a command line, cut at blanks; left[] is what no knob takes. */
static dcpk_status take(const char *line, char **left, int *n_left)
{
    char *text = dcpk_arena_strdup(arena, line, &err);

    *n_left = 0;
    left[(*n_left)++] = text;
    for (char *word = strchr(text, ' '); word != NULL; word = strchr(word, ' ')) {
        *word++ = '\0';
        left[(*n_left)++] = word;
    }
    left[*n_left] = NULL;
    return dcpk_train_knobs_take_args(&knobs, n_left, left, &err);
}

static const struct dcpk_value *config(const char *text)
{
    const struct dcpk_value *value;
    struct dcpk_json *doc;

    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), text);
    value = dcpk_value_from_json(arena, doc, &err);
    CHECK(value != NULL, text);
    dcpk_json_free(doc);
    return value;
}

static dcpk_status check(int64_t n_ranks)
{
    const struct dcpk_train_environment environment = {.n_ranks = n_ranks};

    return dcpk_train_knobs_check(&knobs, &environment, &notices, &err);
}

#define TOY                                                                                        \
    "train --num-layers 4 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 "          \
    "--seq-length 32 --micro-batch-size 1 --train-iters 20 --vocab-size 256"

static void take_toy(void)
{
    char *left[MAX_ARGS];
    int n;

    CHECK_OK(take(TOY, left, &n), "toy");
    CHECK_EQ_INT(n, 1, "toy: arguments left");
}

/* ---- the table ---- */

static void table_is_sound(void **state)
{
    struct dcpk_knob_walk walk = {0}, found;
    const struct dcpk_option *knob;
    size_t n_parts = 0;

    (void)state;
    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        CHECK(walk.number > 0 || walk.begins_part, "the first row begins a part");
        CHECK(knob->help != NULL && knob->help[0] != '\0', knob->name);
        CHECK(knob->source != NULL && knob->sections != NULL, knob->name);
        CHECK((knob->words != NULL) == (knob->kind == DCPK_OPTION_WORD), knob->name);
        CHECK(strchr(knob->name, '-') == NULL, knob->name);
        CHECK_EQ_STR(dcpk_knob_find(knob->name, &found)->name, knob->name, knob->name);
        if (knob->initial != NULL)
            CHECK_OK(dcpk_train_knobs_set(&knobs, knob->name, knob->initial, &err), knob->name);
        n_parts += walk.begins_part;
    }
    CHECK(walk.n <= DCPK_MAX_KNOBS, "rows");
    CHECK_EQ_INT(n_parts, 7, "parts");
}

static const struct {
    const char *spelling, *name; /* NULL: none */
} spellings[] = {
    {"--num-layers", "num_layers"},
    {"--num_layers", "num_layers"},
    {"num_layers", "num_layers"},
    {"model.num_layers", "num_layers"},
    {"--use-nccl-ub", "nccl_ub"},
    {"ddp.nccl_ub", "nccl_ub"},
    {"--no-gradient-accumulation-fusion", "gradient_accumulation_fusion"},
    {"--no-load-optim", "no_load_optim"},
    {"checkpoint.load_optim", "no_load_optim"},
    {"model.share_embeddings_and_output_weights", "untie_embeddings_and_output_weights"},
    {"--load-rng", "no_load_rng"},
    {"logger.wandb_project", "wandb_project"},
    {"--disable-tp-comm-split-rs", "tp_comm_split_rs"},
    {"model.wandb_project", NULL},
    {"--wandb", NULL},
    {"ddp.num_layers", NULL},
    {"--no-num-layers", NULL},
    {"--num-layer", NULL},
    {"--", NULL},
    {"", NULL},
};

static void finds_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(spellings); i++) {
        struct dcpk_knob_walk walk;
        const struct dcpk_option *knob = dcpk_knob_find(spellings[i].spelling, &walk);

        CHECK((knob == NULL) == (spellings[i].name == NULL), spellings[i].spelling);
        if (knob != NULL)
            CHECK_EQ_STR(knob->name, spellings[i].name, spellings[i].spelling);
    }
}

/* ---- arguments ---- */

/* What a flag that is off by default is after these words. */
static const struct {
    const char *words;
    bool is_on;
    int n_left;
} flags[] = {
    {"train --use-megatron-fsdp", true, 1},
    {"train --use_megatron_fsdp", true, 1},
    {"train --use_megatron_fsdp true", true, 1},
    {"train --use_megatron_fsdp false", false, 1},
    {"train --use-megatron-fsdp=True", true, 1},
    {"train --use-megatron-fsdp OUT", true, 2},
    {"train --use-megatron-fsdp --no-use-megatron-fsdp", false, 1},
    {"train dist.use_megatron_fsdp=true", true, 1},
    {"train -- --use-megatron-fsdp", false, 3},
    {"train other.use_megatron_fsdp=true", false, 2},
    {"train --config run.json --json", false, 4},
};

/* Each flag of Megatron's is a knob, or is refused by its name; an unknown one is neither. */
static void knows_megatron_flags(void **state)
{
    struct dcpk_knob_walk walk;
    char flag[96];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(megatron_flags); i++)
        for (const char *at = megatron_flags[i]; *at != '\0';) {
            const size_t n = strcspn(at, " ");

            snprintf(flag, sizeof flag, "--%.*s", (int)n, at);
            CHECK((dcpk_knob_find(flag, &walk) != NULL) != (dcpk_knob_absence(flag) != NULL), flag);
            at += n + strspn(at + n, " ");
        }
    CHECK(dcpk_knob_absence("--flag-of-nothing") == NULL, "no flag");
    CHECK(dcpk_knob_absence("--qk-clipping") == NULL, "more than a name");
    CHECK(dcpk_knob_absence("--qk") == NULL, "less than a name");
    CHECK(strstr(dcpk_knob_absence("model.multi_latent_attention"), "query groups") != NULL,
          "a section's");
}

static void takes_flags(void **state)
{
    char *left[MAX_ARGS];
    int n;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(flags); i++) {
        dcpk_train_knobs_init(&knobs, arena);
        CHECK_OK(take(flags[i].words, left, &n), flags[i].words);
        CHECK_EQ_INT(knobs.use_fsdp_in_dist, flags[i].is_on, flags[i].words);
        CHECK_EQ_INT(n, flags[i].n_left, flags[i].words);
        CHECK(left[n] == NULL, flags[i].words);
    }
}

static const struct {
    const char *words, *text;
} refused[] = {
    {"train --num-layers", "--num-layers has no value"},
    {"train --num-layers --hidden-size 64", "--num-layers has no value"},
    {"train --num-layers 0", "num_layers is '0': it takes a whole number from 1 to 2147483647"},
    {"train --num-layers 2147483648", "num_layers is '2147483648'"},
    {"train --num-layers 4x", "num_layers is '4x'"},
    {"train --num-layers -4", "num_layers is '-4'"},
    {"train --lr fast", "lr is 'fast': it takes a number, 0 or more"},
    {"train --lr 1e999", "lr is '1e999'"},
    {"train --use-megatron-fsdp=maybe", "use_megatron_fsdp is 'maybe': it takes true or false"},
    {"train --ckpt-format tar", "ckpt_format is 'tar': it takes torch_dist zarr"},
    {"train --data-path corpus", "--data-path is not in this loop: data are mock data or a file"},
    {"train --moe-z-loss-coeff=0.1", "--moe-z-loss-coeff is not in this loop: experts"},
    {"train model.window_size=8", "model.window_size is not in this loop: attention is full"},
    {"train --rotary-percent 0.5", "rotary_percent is '0.5': it takes 1.0 1"},
    {"train ddp.bucket_size=many", "ddp_bucket_size is 'many'"},
};

static void refuses_arguments(void **state)
{
    char *left[MAX_ARGS];
    int n;

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(refused); i++) {
        dcpk_error_clear(&err);
        CHECK_FAILS(take(refused[i].words, left, &n), DCPK_EUSAGE, refused[i].text,
                    refused[i].words);
    }
    dcpk_error_clear(&err);
    CHECK_FAILS(dcpk_train_knobs_set(&knobs, "speed", "1", &err), DCPK_EUSAGE,
                "speed: unknown knob", "set");
}

/* ---- configurations ---- */

/* The five overrides of the skill, and its fixup: save without load. */
static void takes_sections(void **state)
{
    (void)state;
    take_toy();
    CHECK_OK(dcpk_train_knobs_set(&knobs, "load", "elsewhere", &err), "load");
    CHECK_OK(dcpk_train_knobs_take_config(
                 &knobs,
                 config("{\"dist\": {\"use_megatron_fsdp\": true}, \"ddp\": "
                        "{\"use_megatron_fsdp\": true, \"data_parallel_sharding_strategy\": "
                        "\"optim_grads_params\", \"average_in_collective\": false}, "
                        "\"checkpoint\": {\"ckpt_format\": \"fsdp_dtensor\", \"save\": \"/tmp/x\", "
                        "\"load\": null}}"),
                 &err),
             "overrides");
    CHECK_OK(check(2), "overrides");
    CHECK_EQ_INT(knobs.config.fsdp.mode, DCPK_MODE_MEGATRON_FSDP, "mode");
    CHECK_EQ_INT(knobs.config.fsdp.strategy, DCPK_OPTIM_GRADS_PARAMS, "strategy");
    CHECK_EQ_STR(knobs.config.files.save, "/tmp/x", "save");
    CHECK(knobs.config.files.load == NULL, "load");
}

/* The complete example of the guide of Megatron-Bridge, section by section. */
static void takes_the_example(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    CHECK_OK(
        dcpk_train_knobs_take_config(
            &knobs,
            config("{\"model\": {\"num_layers\": 32, \"hidden_size\": 4096, "
                   "\"num_attention_heads\": 32, \"seq_length\": 2048, "
                   "\"tensor_model_parallel_size\": 2, \"vocab_size\": 32000}, \"dist\": "
                   "{\"use_megatron_fsdp\": true}, \"ddp\": {\"use_megatron_fsdp\": true}, "
                   "\"optimizer\": {\"optimizer\": \"adam\", \"lr\": 3e-4, \"weight_decay\": 0.1, "
                   "\"adam_beta1\": 0.9, \"adam_beta2\": 0.95, \"clip_grad\": 1.0}, "
                   "\"scheduler\": {\"lr_decay_style\": \"cosine\", \"lr_warmup_iters\": 1000}, "
                   "\"train\": {\"micro_batch_size\": 2, \"global_batch_size\": 32, "
                   "\"train_iters\": 10000}, \"checkpoint\": {\"save\": \"/path/to/checkpoints\", "
                   "\"save_interval\": 1000, \"ckpt_format\": \"fsdp_dtensor\"}}"),
            &err),
        "example");
    CHECK_OK(check(8), "example");
    CHECK_EQ_INT(c->layout.dp, 4, "dp");
    CHECK_EQ_INT(c->model.ffn, 10880, "ffn"); /* int(4 * 4096 * 2 / 3 / 64) * 64, by Python */
    CHECK_EQ_INT(c->model.head_dim, 128, "head_dim");
    CHECK_EQ_INT(c->model.padded_vocab, 32000, "padded_vocab");
    CHECK_EQ_INT(c->model.max_positions, 2048, "max_positions");
    CHECK(c->optim.beta2 == 0.95 && c->optim.lr == 3e-4, "adam");
    CHECK_EQ_STR(c->optim.lr_style, "cosine", "lr_style");
    CHECK_EQ_INT(c->files.save_interval, 1000, "save_interval");
}

static const struct {
    const char *text, *unread; /* unread NULL: refused with `error` */
    const char *error;
} configs[] = {
    {"{\"logger\": {\"log_interval\": 1, \"log_dir\": null}}", "logger.log_dir", NULL},
    {"{\"profiling\": {\"use\": true}, \"model\": {\"activation_func\": {\"_target_\": \"f\"}, "
     "\"fp8\": null, \"cross_fp8\": false, \"_kind\": 3}}",
     "profiling, model.activation_func, model.fp8, model.cross_fp8", NULL},
    {"{\"ddp.bucket_size\": 16000, \"hidden_size\": 64}", "", NULL},
    {"{\"model\": {\"num_layer\": 4}}", NULL,
     "unknown key model.num_layer; did you mean model.num_layers?"},
    {"{\"model\": {\"lr\": 1}}", NULL, "unknown key model.lr; lr belongs to the section optimizer"},
    {"{\"num_layer\": 4}", NULL, "unknown key num_layer"},
    {"{\"model\": 3}", NULL, "model is a section: a mapping of names to values"},
    {"{\"model\": {\"multi_latent_attention\": false}}", "model.multi_latent_attention", NULL},
    {"{\"model\": {\"multi_latent_attention\": true}}", NULL,
     "model.multi_latent_attention is not in this loop: attention is by query groups"},
    {"{\"model\": {\"num_layers\": [1, \"a\"]}}", NULL,
     "model.num_layers is neither a number, a text nor a list"},
    {"{\"model\": {\"num_layers\": 4.5}}", NULL, "num_layers is '4.5'"},
};

static void sorts_configs(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(configs); i++) {
        const struct dcpk_value *value = config(configs[i].text);

        dcpk_error_clear(&err);
        dcpk_train_knobs_init(&knobs, arena);
        if (configs[i].unread == NULL) {
            CHECK_FAILS(dcpk_train_knobs_take_config(&knobs, value, &err), DCPK_EUSAGE,
                        configs[i].error, configs[i].text);
            continue;
        }
        CHECK_OK(dcpk_train_knobs_take_config(&knobs, value, &err), configs[i].text);
        CHECK_EQ_STR(knobs.unread == NULL ? "" : knobs.unread, configs[i].unread, configs[i].text);
    }
    dcpk_error_clear(&err);
    CHECK_FAILS(dcpk_train_knobs_take_config(&knobs, config("[1]"), &err), DCPK_EUNSUPPORTED,
                "not a mapping", "a list");
}

/* use_checkpoint_args: values of args, NULL where they are refused. */
static void takes_saved_args(void **state)
{
    static const char args[] =
        "{\"num_layers\": 4, \"hidden_size\": 64, \"swiglu\": true, \"rotary_base\": 5000, "
        "\"num_experts\": null, \"squared_relu\": false, \"vocab_size\": null, "
        "\"padded_vocab_size\": 256, \"layernorm_epsilon\": 1e-6, \"lr\": 7.0, "
        "\"hidden_dropout\": 0.1, \"attention_dropout\": 0.1}";
    const struct dcpk_value *attrs = config(args), *other = config("{\"squared_relu\": true}");
    const struct dcpk_train_model *m = &knobs.config.model;

    (void)state;
    CHECK_OK(dcpk_train_knobs_set(&knobs, "num_layers", "2", &err), "given");
    CHECK_OK(dcpk_train_knobs_set(&knobs, "rotary_base", "100", &err), "given");
    CHECK_OK(dcpk_train_knobs_set(&knobs, "hidden_dropout", "0", &err), "given");
    CHECK_OK(dcpk_train_knobs_take_saved(
                 &knobs, dcpk_value_namespace(arena, attrs->as.pairs, attrs->n, &err), &err),
             "saved");
    CHECK_EQ_INT(m->layers, 2, "what was given stays");
    CHECK_EQ_INT(m->hidden, 64, "what was not given is taken");
    CHECK_EQ_INT((int64_t)m->rotary_base, 5000, "what Megatron takes in any case");
    CHECK(knobs.hidden_dropout == 0, "dropout that was given stays");
    CHECK(knobs.attention_dropout == 0.1, "dropout that was not given is taken");
    CHECK_EQ_INT(m->vocab_size, 256, "rows of padding are rows");
    CHECK(m->norm_epsilon == 1e-6, "another name");
    CHECK(knobs.config.optim.lr != 7.0, "not of the model");
    CHECK(knobs.unread == NULL, "nothing is left");
    CHECK_FAILS(dcpk_train_knobs_take_saved(
                    &knobs, dcpk_value_namespace(arena, other->as.pairs, other->n, &err), &err),
                DCPK_EUSAGE, "squared_relu is not in this loop", "another model");
}

static void turns_opposites(void **state)
{
    (void)state;
    CHECK_OK(dcpk_train_knobs_take_config(
                 &knobs,
                 config("{\"model\": {\"share_embeddings_and_output_weights\": false}, "
                        "\"checkpoint\": {\"load_optim\": false, \"save_rng\": true}, \"ddp\": "
                        "{\"grad_reduce_in_fp32\": true}}"),
                 &err),
             "opposites");
    CHECK(knobs.is_untied, "untied");
    CHECK(knobs.config.files.no_load_optim, "no_load_optim");
    CHECK(!knobs.config.files.no_save_rng, "no_save_rng");
    CHECK(!knobs.reduces_in_bf16, "reduces_in_bf16");
}

/* As Megatron-Bridge writes it: PyYAML's block style, dtypes as objects. */
static void takes_yaml(void **state)
{
    static const char text[] = "model:\n"
                               "  num_layers: 4\n"
                               "  moe_layer_freq: [0, 1, 0, 1]\n"
                               "  params_dtype: {_target_: torch.bfloat16, _call_: false}\n"
                               "optimizer:\n"
                               "  lr: 3.0e-04\n"
                               "  use_distributed_optimizer: true\n"
                               "ddp:\n"
                               "  bucket_size: null\n"
                               "  megatron_fsdp_main_grads_dtype: "
                               "{_target_: torch.bfloat16, _call_: false}\n";
    static const char twice[] = "model: {num_layers: 4}\nmodel: {hidden_size: 64}\n";
    const struct dcpk_value *value;

    (void)state;
    if (dcpk_yaml_reader == NULL)
        skip();
    CHECK_FAILS(dcpk_yaml_reader(twice, sizeof twice - 1, arena, &value, &err), DCPK_EFORMAT,
                "YAML, line 1: a mapping has key 'model' twice", "a section twice");
    dcpk_error_clear(&err);
    CHECK_OK(dcpk_yaml_reader(text, sizeof text - 1, arena, &value, &err), "YAML");
    CHECK_OK(dcpk_train_knobs_take_config(&knobs, value, &err), "YAML");
    CHECK_EQ_INT(knobs.config.model.layers, 4, "num_layers");
    CHECK_EQ_STR(knobs.moe_layer_freq, "[0,1,0,1]", "moe_layer_freq");
    CHECK(knobs.config.optim.lr == 3e-4, "lr");
    CHECK(knobs.config.fsdp.has_distributed_optimizer, "use_distributed_optimizer");
    CHECK_EQ_STR(knobs.main_grads, "bf16", "main_grads");
    CHECK_EQ_STR(knobs.unread, "model.params_dtype", "unread");
}

/* ---- what follows from sizes ---- */

static void fills_defaults(void **state)
{
    const struct dcpk_train_config *c = &knobs.config;

    (void)state;
    take_toy();
    CHECK_OK(check(4), "toy");
    CHECK_EQ_INT(c->fsdp.mode, DCPK_MODE_DDP, "mode");
    CHECK_EQ_INT(c->fsdp.strategy, DCPK_NO_SHARD, "strategy without the distributed optimizer");
    CHECK(!c->fsdp.has_double_buffer && !c->fsdp.has_user_buffers, "buffers are off by default");
    CHECK_EQ_INT(c->fsdp.bucket_elems, -1, "bucket_elems");
    CHECK_EQ_INT(c->layout.dp, 4, "dp");
    CHECK_EQ_INT(c->data.global_batch, 4, "global_batch");
    CHECK_EQ_INT(c->model.groups, 4, "groups");
    CHECK_EQ_INT(c->model.head_dim, 16, "head_dim");
    CHECK_EQ_INT(c->precision.compute, DCPK_F32, "compute");
    CHECK_EQ_INT(c->precision.exact_lsb, 44, "exact_lsb");
    CHECK(c->precision.is_exact && c->model.is_tied, "flags");
    CHECK(c->optim.start_wd == 0.01 && c->optim.end_wd == 0.01, "weight decay");
    CHECK_EQ_INT(c->data.seed, 1234, "seed");
}

/* How optimizer state is saved, by what the run is. */
static void picks_the_optimizer_layout(void **state)
{
    static const struct {
        const char *flags;
        enum dcpk_optimizer_layout layout;
    } cases[] = {
        {" --use-distributed-optimizer", DCPK_DP_RESHARDABLE},
        {" --use-distributed-optimizer --dist-ckpt-optim-fully-reshardable",
         DCPK_FULLY_RESHARDABLE},
        {" --use-distributed-optimizer --ckpt-format zarr", DCPK_FULLY_RESHARDABLE},
        {" --use-megatron-fsdp --ckpt-format fsdp_dtensor", DCPK_FULLY_RESHARDABLE},
        {" --use-distributed-optimizer --generation A", DCPK_FLATTENED},
        {" --optimizer-layout flattened", DCPK_FLATTENED},
        {"", DCPK_FULLY_RESHARDABLE},
    };
    char line[512], *left[MAX_ARGS];
    int n;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcpk_train_knobs_init(&knobs, arena);
        snprintf(line, sizeof line, TOY "%s", cases[i].flags);
        CHECK_OK(take(line, left, &n), line);
        CHECK_OK(check(2), line);
        CHECK_EQ_INT(knobs.config.files.optimizer_layout, cases[i].layout, line);
    }
}

/* Vocabularies of TP 1, 2, 4, by Megatron's rule. */
static void pads_the_vocabulary(void **state)
{
    static const char *const sizes[] = {"1", "2", "4"};
    static const int64_t padded[] = {256, 256, 512};
    const struct dcpk_train_environment environment = {.n_ranks = 4, .max_connections = "1"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        dcpk_train_knobs_init(&knobs, arena);
        take_toy();
        CHECK_OK(dcpk_train_knobs_set(&knobs, "vocab_size", "255", &err), sizes[i]);
        CHECK_OK(dcpk_train_knobs_set(&knobs, "tensor_model_parallel_size", sizes[i], &err),
                 sizes[i]);
        CHECK_OK(dcpk_train_knobs_check(&knobs, &environment, &notices, &err), sizes[i]);
        CHECK_EQ_INT(knobs.config.model.padded_vocab, padded[i], sizes[i]);
    }
}

/* The largest power of two up to 8 that divides queries, keys and values, both MLPs and the
 * vocabulary, with multi-token prediction the hidden size, too; one that is given stays. */
static void slices_follow_the_sizes(void **state)
{
    static const struct {
        const char *name, *text, *more, *value;
        int64_t want;
    } rows[] = {
        {"num_layers", "4", NULL, NULL, 8},
        {"ffn_hidden_size", "100", NULL, NULL, 4},
        {"ffn_hidden_size", "97", NULL, NULL, 1},
        {"vocab_size", "102", "make_vocab_size_divisible_by", "2", 2},
        {"kv_channels", "2", "num_attention_heads", "6", 4},
        {"moe_shared_expert_intermediate_size", "20", "num_experts", "4", 4},
        {"hidden_size", "68", "kv_channels", "16", 8},
        {"hidden_size", "68", "mtp_num_layers", "1", 4},
        {"virtual_slices", "16", NULL, NULL, 16},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        dcpk_train_knobs_init(&knobs, arena);
        take_toy();
        CHECK_OK(dcpk_train_knobs_set(&knobs, "kv_channels", "16", &err), rows[i].name);
        CHECK_OK(dcpk_train_knobs_set(&knobs, rows[i].name, rows[i].text, &err), rows[i].name);
        if (rows[i].more != NULL)
            CHECK_OK(dcpk_train_knobs_set(&knobs, rows[i].more, rows[i].value, &err), rows[i].more);
        CHECK_OK(check(1), rows[i].text);
        CHECK_EQ_INT(knobs.config.precision.virtual_slices, rows[i].want, rows[i].text);
    }
}

/* Whole samples lie on one rank, or sums are of floats; else leaf_tokens has to be there. */
static void context_parallelism_asks_for_leaves(void **state)
{
    struct dcpk_train_config *c = &knobs.config;

    (void)state;
    take_toy();
    CHECK_OK(check(2), "one rank");
    CHECK_OK(dcpk_train_check_leaves(c, &err), "one rank");
    c->layout.cp = 2;
    CHECK_FAILS(dcpk_train_check_leaves(c, &err), DCPK_EUSAGE, "set leaf_tokens to 8,", "leaves");
    c->precision.leaf_tokens = 4;
    CHECK_OK(dcpk_train_check_leaves(c, &err), "given");
    c->precision.leaf_tokens = 0;
    c->precision.is_exact = false;
    CHECK_OK(dcpk_train_check_leaves(c, &err), "sums of floats promise nothing");
}

/* Python evaluates the lists; layers NULL: refused. */
static const struct {
    const char *text, *layers;
} patterns[] = {
    {"2", "1010"},
    {"3", "1001"},
    {"[0,1,1,0]", "0110"},
    {"[0]*1+[1]*3", "0111"},
    {"([0,1])*2", "0101"},
    {"([0]+[1]*1)*2", "0101"},
    {"[1, 0] * 2", "1010"},
    {"[1]*0+[0]*4", "0000"},
    {"0", NULL},
    {"[1]*3", NULL},
    {"[1]*5", NULL},
    {"[2]*4", NULL},
    {"[1]*4+", NULL},
    {"([1]*4", NULL},
    {"every", NULL},
    {"[1]*99999999999", NULL},
};

static void reads_moe_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(patterns); i++) {
        const char *layers = patterns[i].layers, *text = patterns[i].text;

        dcpk_error_clear(&err);
        dcpk_train_knobs_init(&knobs, arena);
        take_toy();
        CHECK_OK(dcpk_train_knobs_set(&knobs, "num_experts", "4", &err), text);
        CHECK_OK(dcpk_train_knobs_set(&knobs, "moe_layer_freq", text, &err), text);
        if (layers == NULL) {
            CHECK_FAILS(check(1), DCPK_EUSAGE, "Invalid pattern: moe_layer_freq is", text);
            continue;
        }
        CHECK_OK(check(1), text);
        CHECK(knobs.config.model.is_moe_list, text);
        for (int l = 0; l < 4; l++)
            CHECK_EQ_INT(knobs.config.model.moe_layers[l], layers[l] - '0', text);
    }
}

/* The toy from a configuration, its layers from a list. */
static dcpk_status take_and_check(struct dcpk_error *e)
{
    const struct dcpk_train_environment environment = {.n_ranks = 2};
    struct dcpk_train_knobs taken;
    struct dcpk_train_notices given = {.n = 0};
    struct dcpk_arena *own = dcpk_arena_new();
    struct dcpk_json *doc = NULL;
    const struct dcpk_value *value = NULL;
    static const char text[] =
        "{\"num_layers\": 4, \"hidden_size\": 64, \"num_attention_heads\": 4, \"seq_length\": 32, "
        "\"micro_batch_size\": 1, \"train_iters\": 1, \"num_experts\": 4, \"moe_layer_freq\": [0, "
        "1, "
        "0, 1], \"mock_data\": true, \"speed\": null}";

    if (own != NULL && dcpk_json_parse(text, sizeof text - 1, &doc, e) == DCPK_OK)
        value = dcpk_value_from_json(own, doc, e);
    dcpk_json_free(doc);
    if (value != NULL) {
        dcpk_train_knobs_init(&taken, own);
        if (dcpk_train_knobs_take_config(&taken, value, e) == DCPK_OK)
            (void)dcpk_train_knobs_check(&taken, &environment, &given, e);
    }
    dcpk_arena_free(own);
    return e->status;
}

static void without_memory(void **state)
{
    (void)state;
    every_alloc_fails(take_and_check, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(table_is_sound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finds_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(knows_megatron_flags, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_flags, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_sections, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_the_example, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sorts_configs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_saved_args, set_up, tear_down),
        cmocka_unit_test_setup_teardown(turns_opposites, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_yaml, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fills_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(picks_the_optimizer_layout, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pads_the_vocabulary, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slices_follow_the_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(context_parallelism_asks_for_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_moe_layers, set_up, tear_down),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
