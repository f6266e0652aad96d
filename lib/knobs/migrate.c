/* SPDX-License-Identifier: Apache-2.0 */
/* migrate.c - goals of a migration, then the rules of knobs, until nothing changes. */
/*
 * A knob that no rule names stays. The rules are those of `train` (knobs_rules.c) that have a
 * source: a migration sets what the run would adjust, and what the remedy of a refusal asks for.
 */
#include "lib/knobs/migrate.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/knobs_priv.h"

#define MAX_ROUNDS  4
#define HOPPER      9 /* no GPU is known: that of the stricter rules */
#define OF_GUIDE    "Megatron FSDP guide of Megatron-Bridge, Migration from DDP"
#define STRATEGY    "data_parallel_sharding_strategy"
#define CONNECTIONS "CUDA_DEVICE_MAX_CONNECTIONS"
#define OF_SWIGLU   "megatron/core/transformer/fsdp_dtensor_checkpoint.py @core_v0.19.0"

/* ---- goals ---- */

static const struct dcpk_knob_rule fsdp_goals[] = {
    {.id = "switch",
     .when = "!dist.use_megatron_fsdp | !ddp.use_megatron_fsdp",
     .set = "use_megatron_fsdp=true",
     .text = "turns Megatron-FSDP on; Megatron-Bridge has the switch in dist and in ddp",
     .source = DCPK_OF_ARGUMENTS},
    {.id = "strategy",
     .when = "!?" STRATEGY " | " STRATEGY "=no_shard",
     .set = STRATEGY "=optim_grads_params",
     .text = "without it Megatron-Bridge, and core up to 0.17, shard nothing",
     .source = DCPK_OF_DDP},
    {.id = "format",
     .when = "!ckpt_format=fsdp_dtensor",
     .set = "ckpt_format=fsdp_dtensor",
     .text = "Megatron-FSDP saves and loads no other format",
     .source = DCPK_OF_ARGUMENTS},
    {.id = "pipeline",
     .when = "pipeline_model_parallel_size>1",
     .set = "pipeline_model_parallel_size=1",
     .text =
         "no release of Megatron-FSDP has pipeline stages: its mesh is that of data, expert and "
         "tensor parallelism",
     .source = DCPK_OF_ADAPTER_019},
    {.id = "fp32",
     .when = "?swiglu swiglu !bf16 !fp16",
     .text = "Megatron-FSDP stops when it saves or loads a SwiGLU model in fp32: train in bf16 or "
             "fp16",
     .source = OF_SWIGLU},
    {.id = NULL},
};
static const struct dcpk_knob_rule ddp_goals[] = {
    {.id = "switch",
     .when = "use_megatron_fsdp | use_custom_fsdp",
     .set = "use_megatron_fsdp=false use_custom_fsdp=false",
     .text = "turns Megatron-FSDP off",
     .source = DCPK_OF_ARGUMENTS},
    {.id = "format",
     .when = "ckpt_format=fsdp_dtensor",
     .set = "ckpt_format=torch_dist",
     .text = "fsdp_dtensor is for Megatron-FSDP alone",
     .source = DCPK_OF_ARGUMENTS},
    {.id = "strategy",
     .when = "?" STRATEGY " !" STRATEGY "=no_shard",
     .set = STRATEGY "=no_shard",
     .text = "only Megatron-FSDP shards by it",
     .source = DCPK_OF_DDP},
    {.id = NULL},
};

/* Names that go where they are set. A name without them ends a list. */
struct drop {
    const char *names, *reason, *source;
};
static const struct drop fsdp_drops[] = {
    {"virtual_pipeline_model_parallel_size num_layers_per_virtual_pipeline_stage "
     "num_virtual_stages_per_pipeline_rank pipeline_model_parallel_layout "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
     "num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage "
     "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split "
     "microbatch_group_size_per_virtual_pipeline_stage microbatch_group_size_per_vp_stage "
     "overlap_p2p_communication_warmup_flush defer_embedding_wgrad_compute wgrad_deferral_limit "
     "overlap_param_gather_with_optimizer_step",
     "it is for pipeline stages, which Megatron-FSDP does not have", DCPK_OF_ARGUMENTS},
    {.names = NULL},
};
static const struct drop ddp_drops[] = {
    {"outer_dp_sharding_strategy fsdp_double_buffer megatron_fsdp_version "
     "megatron_fsdp_max_pool_double_buffer fsdp_db_use_persist_buf_on_alloc_fail "
     "fsdp_manual_registration init_model_with_meta_device megatron_fsdp_main_params_dtype "
     "megatron_fsdp_main_grads_dtype megatron_fsdp_grad_comm_dtype "
     "megatron_fsdp_enable_fine_grained_param_gather suggested_communication_unit_size "
     "keep_fp8_transpose_cache fsdp_all_gather_in_start_param_sync enable_full_sharding_in_hsdp "
     "preserve_fp32_weights",
     "it is for Megatron-FSDP alone", DCPK_OF_DDP},
    {.names = NULL},
};

/* ---- changes ---- */

/* The number of a setting's knob. */
static size_t number_of(const struct dcpk_migration *m, const char *section, const char *name)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_knob_walk walk;

    if (section != NULL)
        name = dcpk_arena_printf(m->from->arena, &ignored, "%s.%s", section, name);
    if (name == NULL || dcpk_knob_find(name, &walk) == NULL)
        return DCPK_NO_NUMBER;
    return walk.number;
}

bool dcpk_change_is_of(const struct dcpk_change *change, const struct dcpk_setting *setting)
{
    if (change->number != DCPK_NO_NUMBER)
        return setting->number == change->number;
    return strcmp(setting->name, change->name) == 0;
}

/* The last setting that a change changes. NULL: none. */
static const struct dcpk_setting *setting_of(const struct dcpk_migration *m,
                                             const struct dcpk_change *change)
{
    for (size_t i = m->from->n; i-- > 0;)
        if (dcpk_change_is_of(change, &m->from->all[i]))
            return &m->from->all[i];
    return NULL;
}

static const struct dcpk_setting *setting_named(const struct dcpk_migration *m, const char *name)
{
    return setting_of(m, &(struct dcpk_change){.name = name, .number = DCPK_NO_NUMBER});
}

/* Records a change, or a second one of the same setting. */
static dcpk_status change_add(struct dcpk_migration *m, const struct dcpk_change *change,
                              struct dcpk_error *err)
{
    const struct dcpk_setting *old = setting_of(m, change);

    for (size_t i = 0; i < m->n_changes; i++) {
        struct dcpk_change *c = &m->changes[i];

        if (c->number == change->number && strcmp(c->name, change->name) == 0) {
            c->to = change->to;
            return DCPK_OK;
        }
    }
    if (m->n_changes == DCPK_MAX_CHANGES)
        return dcpk_fail(err, DCPK_ERANGE, "it needs more than %d changes", DCPK_MAX_CHANGES);
    m->changes[m->n_changes] = *change;
    if (old != NULL)
        m->changes[m->n_changes].from = old->text;
    m->n_changes++;
    return DCPK_OK;
}

static bool knob_has(const struct dcpk_train_knobs *k, const struct dcpk_option *row,
                     const struct dcpk_train_knobs *other)
{
    const void *a = (const char *)k + row->at_bytes, *b = (const char *)other + row->at_bytes;
    const char *text, *word;

    if (!dcpk_option_is_text(row))
        return memcmp(a, b, dcpk_option_bytes(row)) == 0;
    memcpy(&text, a, sizeof text);
    memcpy(&word, b, sizeof word);
    return text != NULL && word != NULL && strcmp(text, word) == 0;
}

/* Sets the row of a walk. value NULL: back to the default. */
static dcpk_status change_row(struct dcpk_migration *m, const struct dcpk_option *row,
                              size_t number, const char *value, const struct dcpk_knob_rule *why,
                              struct dcpk_error *err)
{
    const bool is_goal = why->id != NULL && dcpk_starts_with(why->when, "!?");
    struct dcpk_train_knobs *before = dcpk_arena_alloc(m->from->arena, sizeof *before, err);
    struct dcpk_change change = {.row = row, .name = row->name, .number = number, .to = value};

    if (before == NULL)
        return err->status;
    *before = m->knobs;
    if (value == NULL)
        dcpk_option_reset(row, &m->knobs);
    else
        (void)dcpk_option_read(row, value, &m->knobs);
    if (knob_has(&m->knobs, row, before) && (m->knobs.given[number] || !is_goal))
        return DCPK_OK;
    m->knobs.given[number] = value != NULL;
    if (m->has_sections)
        change.section =
            dcpk_arena_strndup(m->from->arena, row->sections, strcspn(row->sections, " "), err);
    change.reason = dcpk_knob_rule_sentence(why, &m->knobs, &m->environment, err);
    change.source = why->source;
    if (change.reason == NULL || err->status != DCPK_OK)
        return err->status;
    return change_add(m, &change, err);
}

/* The variable that a migration sets; a text cannot be added to. */
static dcpk_status change_environment(struct dcpk_migration *m, const char *value,
                                      const struct dcpk_knob_rule *why, struct dcpk_error *err)
{
    struct dcpk_change change = {.name = CONNECTIONS,
                                 .number = DCPK_NO_NUMBER,
                                 .to = value,
                                 .reason = why->text,
                                 .source = why->source,
                                 .is_environment = true};

    m->environment.max_connections = value;
    return change_add(m, &change, err);
}

/* Sets the rows of name[0 .. n_bytes). Flags have no sections: the first row stands for all of a
 * name. */
static dcpk_status change_rows(struct dcpk_migration *m, const char *name, size_t n_bytes,
                               const char *value, const struct dcpk_knob_rule *why,
                               struct dcpk_error *err)
{
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *row;

    while ((row = dcpk_knob_next_row(&walk)) != NULL) {
        if (!dcpk_knob_rule_names(row, name, n_bytes))
            continue;
        if (!m->has_sections && number_of(m, NULL, row->name) != walk.number) {
            if (value != NULL)
                (void)dcpk_option_read(row, value, &m->knobs);
        } else if (change_row(m, row, walk.number, value, why, err) != DCPK_OK) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* Sets "a=true b=None A=1": knobs, and the variable of the environment. */
static dcpk_status change_settings(struct dcpk_migration *m, const char *settings,
                                   const struct dcpk_knob_rule *why, struct dcpk_error *err)
{
    const char *name;
    dcpk_status st = DCPK_OK;
    size_t n;

    while (st == DCPK_OK && (name = dcpk_take_word(&settings, &n)) != NULL) {
        const size_t n_name = strcspn(name, "=");
        const char *value =
            dcpk_arena_strndup(m->from->arena, name + n_name + 1, n - n_name - 1, err);

        if (value == NULL)
            return err->status;
        if (isupper((unsigned char)*name))
            st = change_environment(m, value, why, err);
        else
            st = change_rows(m, name, n_name, strcmp(value, "None") == 0 ? NULL : value, why, err);
    }
    return st;
}

/* ---- rules ---- */

/* Follows a rule that holds. */
static dcpk_status rule_follow(struct dcpk_migration *m, const struct dcpk_knob_rule *rule,
                               struct dcpk_error *err)
{
    const char *settings = dcpk_text_or(rule->mend, rule->set), *text;

    if (settings != NULL)
        return change_settings(m, settings, rule, err);
    text = dcpk_knob_rule_sentence(rule, &m->knobs, &m->environment, err);
    if (text == NULL)
        return err->status;
    if (rule->remedy != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s; %s", text, rule->remedy);
    for (size_t i = 0; i < m->notes.n; i++)
        if (strcmp(m->notes.texts[i], text) == 0)
            return DCPK_OK;
    return dcpk_train_notices_add(&m->notes, text, err);
}

static dcpk_status rules_follow(struct dcpk_migration *m, const struct dcpk_knob_rule *rules,
                                struct dcpk_error *err)
{
    for (; rules->id != NULL; rules++)
        if (rules->source != NULL && dcpk_knob_rule_holds(rules, &m->knobs, &m->environment) &&
            rule_follow(m, rules, err) != DCPK_OK)
            return err->status;
    return DCPK_OK;
}

static bool drop_is_set(const struct dcpk_setting *s)
{
    return s != NULL && s->text != NULL &&
           !dcpk_option_has_word("false False None null", s->text, strlen(s->text));
}

static dcpk_status drops_follow(struct dcpk_migration *m, const struct drop *drops,
                                struct dcpk_error *err)
{
    const char *names, *word;
    size_t n;

    for (; drops->names != NULL; drops++)
        for (names = drops->names; (word = dcpk_take_word(&names, &n)) != NULL;) {
            struct dcpk_change change = {
                .number = DCPK_NO_NUMBER, .reason = drops->reason, .source = drops->source};
            struct dcpk_error ignored = DCPK_ERROR_INIT;
            const struct dcpk_setting *s;

            change.name = dcpk_arena_strndup(m->from->arena, word, n, err);
            if (change.name == NULL)
                return err->status;
            s = setting_named(m, change.name);
            if (!drop_is_set(s))
                continue;
            (void)dcpk_train_knobs_set(&m->knobs, change.name, NULL, &ignored);
            if (change_add(m, &change, err) != DCPK_OK)
                return err->status;
        }
    return DCPK_OK;
}

/* ---- sizes and folders ---- */

static const struct {
    const char *name;
    size_t at;
} mesh_sizes[] = {
    {"tensor_model_parallel_size", offsetof(struct dcpk_grid, tp)},
    {"pipeline_model_parallel_size", offsetof(struct dcpk_grid, pp)},
    {"context_parallel_size", offsetof(struct dcpk_grid, cp)},
    {"expert_model_parallel_size", offsetof(struct dcpk_grid, ep)},
    {"expert_tensor_parallel_size", offsetof(struct dcpk_grid, etp)},
};

static dcpk_status mesh_follow(struct dcpk_migration *m, struct dcpk_error *err)
{
    const struct dcpk_knob_rule why = {.text = "it was asked for", .source = "the mesh"};

    if (m->mesh == NULL)
        return DCPK_OK;
    if (m->to_fsdp && m->mesh->pp > 1)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the mesh has pp=%" PRId64
                         ": Megatron-FSDP has no pipeline stages in any release",
                         m->mesh->pp);
    for (size_t i = 0; i < DCPK_COUNT(mesh_sizes); i++) {
        const int64_t size = *(const int64_t *)((const char *)m->mesh + mesh_sizes[i].at);
        const char *text;

        if (size == 0)
            continue;
        text = dcpk_arena_printf(m->from->arena, err, "%" PRId64, size);
        if (text == NULL || change_rows(m, mesh_sizes[i].name, strlen(mesh_sizes[i].name), text,
                                        &why, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* True if a folder is written out. */
static bool folder_is_set(const struct dcpk_setting *s)
{
    return drop_is_set(s) && s->value < s->end && *s->text != '\0';
}

/* A folder without quotes and slashes at its end; "${A}" and "${A:?why}" as "$A". */
static const char *folder_plain(const struct dcpk_migration *m, const char *text,
                                struct dcpk_error *err)
{
    char *const plain = dcpk_arena_strdup(m->from->arena, text, err), *to = plain;

    if (plain == NULL)
        return NULL;
    for (const char *c = text; *c != '\0'; c++) {
        if (dcpk_starts_with(c, ":?"))
            c += strcspn(c + 1, "}");
        else if (strchr("\\\"'{}", *c) == NULL || (*c == '}' && isalnum((unsigned char)c[1])))
            *to++ = *c;
    }
    while (to > plain + 1 && to[-1] == '/')
        to--;
    *to = '\0';
    return plain;
}

/* True if a run saves into the folder that it loads from. */
static bool folder_is_shared(const struct dcpk_migration *m, const struct dcpk_setting *load,
                             const struct dcpk_setting *save, struct dcpk_error *err)
{
    const char *texts[2];

    if (!folder_is_set(load))
        return false;
    texts[0] = folder_plain(m, load->text, err);
    texts[1] = folder_plain(m, save->text, err);
    return texts[0] != NULL && texts[1] != NULL && strcmp(texts[0], texts[1]) == 0;
}

/* A checkpoint of the other format does not load, and what is saved into its folder would mix the
 * two. */
static dcpk_status folders_follow(struct dcpk_migration *m, struct dcpk_error *err)
{
    static const char *const names[] = {"load", "pretrained_checkpoint", "save"};
    const struct dcpk_setting *load = setting_named(m, "load");
    const char *suffix = DCPK_MIGRATE_SUFFIX(m->to_fsdp);

    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        const struct dcpk_setting *s = setting_named(m, names[i]);
        struct dcpk_change change = {
            .name = names[i], .number = DCPK_NO_NUMBER, .suffix = suffix, .source = OF_GUIDE};
        size_t n;

        if (!folder_is_set(s) || (i == 2 && !folder_is_shared(m, load, s, err)))
            continue;
        change.reason = "a checkpoint of the other format is converted first: step 1";
        if (i == 2)
            change.reason = "one folder holds one format";
        n = strlen(s->text);
        while (n > 1 && s->text[n - 1] == '/')
            n--;
        change.to = dcpk_arena_printf(m->from->arena, err, "%.*s%s", (int)n, s->text, suffix);
        if (change.to == NULL || change_add(m, &change, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* Checks that stages get layers in equal parts, unless settings cut them; `layers` is 0 then. */
static dcpk_status stages_check(const struct dcpk_migration *m, int64_t *layers,
                                struct dcpk_error *err)
{
    static const char *const names[] = {
        "decoder_first_pipeline_num_layers",  "decoder_last_pipeline_num_layers",
        "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage",
        "pipeline_model_parallel_layout",     "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (drop_is_set(setting_named(m, names[i])))
            *layers = 0;
    if (m->grid.pp <= 1 || *layers % m->grid.pp == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "pp=%" PRId64 " does not divide the %" PRId64
                     " layers; choose another size, or set %s and %s",
                     m->grid.pp, *layers, names[0], names[1]);
}

/* Checks that the new mesh takes the model and the batch. */
static dcpk_status sizes_check(struct dcpk_migration *m, struct dcpk_error *err)
{
    const struct dcpk_train_config *c = &m->knobs.config;
    struct dcpk_grid_model model = {c->model.heads, c->model.groups, c->model.layers,
                                    c->model.experts};
    int64_t dp;

    m->grid = (struct dcpk_grid){.tp = c->layout.tp,
                                 .pp = c->layout.pp,
                                 .cp = c->layout.cp,
                                 .ep = c->layout.ep,
                                 .etp = c->model.experts > 0 ? m->knobs.expert_tp : 0};
    if (stages_check(m, &model.layers, err) || dcpk_grid_check_model(&m->grid, &model, err))
        return err->status;
    if (m->n_ranks == 0)
        return DCPK_OK;
    dp = m->n_ranks / (m->grid.tp * m->grid.pp * m->grid.cp);
    m->grid.dp = dp;
    if (dcpk_grid_check_ranks(&m->grid, m->n_ranks, err) != DCPK_OK)
        return err->status;
    if (c->data.micro_batch > 0 && c->data.global_batch % (c->data.micro_batch * dp) != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "global_batch_size %" PRId64
                         " is not a multiple of micro_batch_size %" PRId64 " times %" PRId64
                         " data-parallel ranks; change one of them, or the mesh",
                         c->data.global_batch, c->data.micro_batch, dp);
    return DCPK_OK;
}

/* ---- the settings that there are ---- */

/* Values that this loop does not take stay unset here, and as they are in the text. */
static void settings_take(struct dcpk_migration *m)
{
    dcpk_train_knobs_init(&m->knobs, m->from->arena);
    for (size_t i = 0; i < m->from->n; i++) {
        struct dcpk_setting *s = &m->from->all[i];
        struct dcpk_error ignored = DCPK_ERROR_INIT;
        const char *name = s->name;

        if (strcmp(name, CONNECTIONS) == 0)
            m->environment.max_connections = s->text;
        s->number = number_of(m, s->section, name);
        if (s->number == DCPK_NO_NUMBER || s->is_open)
            continue;
        if (s->section != NULL)
            name = dcpk_arena_printf(m->from->arena, &ignored, "%s.%s", s->section, name);
        if (name != NULL)
            (void)dcpk_train_knobs_set(&m->knobs, name, s->text, &ignored);
    }
}

static bool setting_is_open(const struct dcpk_setting *s)
{
    return s->is_open && s->number != DCPK_NO_NUMBER;
}

static bool setting_is_unknown(const struct dcpk_setting *s)
{
    return s->number == DCPK_NO_NUMBER && dcpk_knob_absence(s->name) == NULL &&
           !dcpk_option_has_word(DCPK_LAUNCHER_FLAGS, s->name, strlen(s->name)) &&
           !dcpk_starts_with(s->name, "rdzv_") && !isupper((unsigned char)*s->name);
}

/* Notes the settings for which `is` is true, after `text`. */
static dcpk_status settings_note(struct dcpk_migration *m, const char *text,
                                 bool (*is)(const struct dcpk_setting *s), struct dcpk_error *err)
{
    struct dcpk_bytes note = {0};
    const char *comma = "", *kept;

    dcpk_bytes_text(&note, text);
    for (size_t i = 0; i < m->from->n; i++)
        if (is(&m->from->all[i])) {
            dcpk_bytes_printf(&note, "%s%s", comma, m->from->all[i].name);
            comma = ", ";
        }
    kept = dcpk_bytes_to_arena(&note, m->from->arena, err);
    if (*comma != '\0' && kept != NULL)
        (void)dcpk_train_notices_add(&m->notes, kept, err);
    return err->status;
}

dcpk_status dcpk_migrate(struct dcpk_migration *m, struct dcpk_error *err)
{
    const struct dcpk_knob_rule *goals = m->to_fsdp ? fsdp_goals : ddp_goals;
    size_t n_before = SIZE_MAX;

    m->environment = (struct dcpk_train_environment){.gpu_major = HOPPER};
    m->n_changes = m->notes.n = 0;
    settings_take(m);
    if (mesh_follow(m, err) || rules_follow(m, goals, err) ||
        drops_follow(m, m->to_fsdp ? fsdp_drops : ddp_drops, err))
        return err->status;
    for (int round = 0; round < MAX_ROUNDS && n_before != m->n_changes; round++) {
        n_before = m->n_changes;
        if (rules_follow(m, dcpk_knob_rules_of_modes, err) || rules_follow(m, dcpk_knob_rules, err))
            return err->status;
    }
    for (size_t i = m->n_changes; i-- > 0 && !m->keeps_folders;)
        if (strcmp(m->changes[i].name, "ckpt_format") == 0 && folders_follow(m, err) != DCPK_OK)
            return err->status;
    if (sizes_check(m, err) ||
        settings_note(m, "set by variables that are not set here, so no rule checked them: ",
                      setting_is_open, err))
        return err->status;
    return settings_note(m, "not known, and left unchanged: ", setting_is_unknown, err);
}
