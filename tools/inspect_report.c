/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_report.c - what dcpkit inspect reports: facts of the whole, then every key. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/ckpt/generation.h"
#include "tools/cmd.h"
#include "tools/inspect.h"
#include "tools/print_doc.h"

#define MAX_NAMES 16 /* of values that print-tensor knows */

const struct dcpk_doc_style dcpk_inspect_style = {.label_columns = 13};

/* A fact that a person reads in one line with others. */
struct named_fact {
    const char *name; /* in the document that has it, and in JSON */
    const char *before, *after;
    const char *only_if; /* shown only if this other attribute is set; NULL: always */
};
/* A line of such facts, all attributes of one dictionary. */
struct fact_line {
    const char *label, *key;
    const struct named_fact *facts;
    size_t n;
};
static const struct named_fact model_facts[] = {
    {"num_layers", "", " layers", NULL},
    {"mtp_num_layers", "", " MTP layers", NULL},
    {"hidden_size", "hidden ", "", NULL},
    {"ffn_hidden_size", "ffn ", "", NULL},
    {"num_attention_heads", "", " heads", NULL},
    {"num_query_groups", "", " query groups", NULL},
    {"num_experts", "", " experts", NULL},
    {"moe_router_topk", "top ", "", "num_experts"},
    {"moe_ffn_hidden_size", "expert ffn ", "", "num_experts"},
    {"padded_vocab_size", "vocabulary ", "", NULL},
    {"seq_length", "sequence ", "", NULL},
    {"normalization", "", "", NULL},
    {"position_embedding_type", "", "", NULL},
    {"swiglu", "SwiGLU", "", NULL},
    {"params_dtype", "", "", NULL},
};
static const struct named_fact training_facts[] = {
    {"consumed_train_samples", "", " samples consumed", NULL},
    {"train_iters", "", " iterations planned", NULL},
    {"global_batch_size", "global batch ", "", NULL},
    {"optimizer", "", "", NULL},
    {"lr", "lr ", "", NULL},
    {"min_lr", "min lr ", "", NULL},
    {"lr_decay_style", "decay ", "", NULL},
    {"use_megatron_fsdp", "Megatron-FSDP", "", NULL},
    {"data_parallel_sharding_strategy", "", " by args", "use_megatron_fsdp"},
    {"use_torch_fsdp2", "torch FSDP2", "", NULL},
};
/* Keys of config.json; a family has some of them. */
static const struct named_fact config_facts[] = {
    {"model_type", "", "", NULL},
    {"num_hidden_layers", "", " layers", NULL},
    {"n_layer", "", " layers", NULL},
    {"hybrid_override_pattern", "layers ", "", NULL},
    {"layers_block_type", "", " blocks", NULL},
    {"hidden_size", "hidden ", "", NULL},
    {"n_embd", "hidden ", "", NULL},
    {"intermediate_size", "ffn ", "", NULL},
    {"num_attention_heads", "", " heads", NULL},
    {"n_head", "", " heads", NULL},
    {"num_key_value_heads", "", " key-value heads", NULL},
    {"num_experts", "", " experts", NULL},
    {"num_local_experts", "", " experts", NULL},
    {"n_routed_experts", "", " experts", NULL},
    {"num_experts_per_tok", "top ", "", NULL},
    {"vocab_size", "vocabulary ", "", NULL},
    {"max_position_embeddings", "positions ", "", NULL},
    {"tie_word_embeddings", "tied embeddings", "", NULL},
    {"torch_dtype", "", "", NULL},
    {"dtype", "", "", NULL},
};
static const struct fact_line model_line = {"model", "model", model_facts, DCPK_COUNT(model_facts)};
static const struct fact_line config_line = {"model", "model", config_facts,
                                             DCPK_COUNT(config_facts)};
static const struct fact_line training_line = {"training", "training", training_facts,
                                               DCPK_COUNT(training_facts)};

/* ---- layouts ---- */

struct size {
    const char *name;
    int64_t n;
    int64_t least; /* that a person wants to see; 0: any that is known */
};

static struct dcpk_fact size_fact(int64_t n)
{
    return dcpk_fact_if(n > 0, dcpk_fact_int(n));
}

/* " tp 2 pp 4": those that are known. */
static const char *sizes_text(struct dcpk_doc *doc, const struct size *sizes, size_t n)
{
    const char *text = "";

    for (size_t i = 0; i < n; i++)
        if (sizes[i].n > 0 && sizes[i].n >= sizes[i].least)
            text = dcpk_doc_format(doc, "%s %s %" PRId64, text, sizes[i].name, sizes[i].n);
    return text;
}

static void set_sizes(struct dcpk_doc *doc, const char *key, const struct size *sizes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dcpk_doc_set(doc, dcpk_doc_format(doc, "%s.%s", key, sizes[i].name), size_fact(sizes[i].n));
}

static void report_args_layout(const struct dcpk_grid *l, struct dcpk_doc *doc)
{
    const struct size sizes[] = {{"tp", l->tp, 0}, {"pp", l->pp, 0}, {"ep", l->ep, 0},
                                 {"cp", l->cp, 0}, {"dp", l->dp, 0}, {"world", l->world, 0}};
    const bool is_known = l->tp != 0 || l->pp != 0 || l->dp != 0 || l->world != 0;

    set_sizes(doc, "layout", sizes, DCPK_COUNT(sizes));
    dcpk_doc_row(doc, "parallel", "by args   %s%s", is_known ? "" : " not known",
                 sizes_text(doc, sizes, DCPK_COUNT(sizes)));
}

static void report_saved_layout(const struct dcpk_saved_layout *l, struct dcpk_doc *doc)
{
    static const char *const by_rows[] = {"optim", "optim_grads", "optim_grads_params"};
    static const char *const whole[] = {"no_shard"};
    static const struct {
        const char *text;
        const char *const *strategies; /* that leave such chunks */
        size_t n;
    } shardings[] = {
        [DCPK_SHARDING_UNKNOWN] = {"", NULL, 0},
        [DCPK_SHARDING_ROWS] = {"; optim, optim_grads or optim_grads_params", by_rows, 3},
        [DCPK_SHARDING_NONE] = {"; no_shard", whole, 1},
    };
    const struct size sizes[] = {{"tp", l->tp, 0},
                                 {"etp", l->etp, 0},
                                 {"ep", l->ep, 0},
                                 {"dp", l->dp, 0},
                                 {"hsdp", l->hsdp, 2}};
    const bool is_known = l->tp != 0 || l->etp != 0 || l->ep != 0 || l->dp != 0;
    const char *text = sizes_text(doc, sizes, DCPK_COUNT(sizes));
    char count[DCPK_COUNT_TEXT_BYTES];

    set_sizes(doc, "layout_by_chunks", sizes, DCPK_COUNT(sizes));
    dcpk_doc_set(doc, "layout_by_chunks.n_ranks", size_fact(l->n_ranks));
    dcpk_doc_set(doc, "layout_by_chunks.pp", size_fact(l->pp));
    dcpk_doc_set(doc, "layout_by_chunks.strategies",
                 dcpk_fact_texts(shardings[l->sharding].strategies, shardings[l->sharding].n));
    text = dcpk_doc_format(doc, "by chunks %s%s%s", is_known ? "" : " not known", text,
                           shardings[l->sharding].text);
    if (l->pp > 0)
        text = dcpk_doc_format(doc, "%s; pp %" PRId64 " by RNG states", text, l->pp);
    if (l->n_ranks > 0)
        text = dcpk_doc_format(doc, "%s; %s by files", text,
                               dcpk_cli_count((uint64_t)l->n_ranks, "rank", count));
    dcpk_doc_row(doc, "", "%s", text);
}

/* ---- the model ---- */

/* The value of a fact as text, of a list its length; NULL when it is not set. */
static const char *value_text(const struct dcpk_value *v, struct dcpk_doc *doc)
{
    bool is_set = false;
    int64_t i;
    double f;

    if (v == NULL)
        return NULL;
    if (v->kind == DCPK_V_BOOL && dcpk_value_as_bool(v, &is_set) && is_set)
        return "";
    if (v->kind == DCPK_V_BOOL)
        return NULL;
    if (dcpk_value_as_int(v, &i))
        return dcpk_doc_format(doc, "%" PRId64, i);
    if (dcpk_value_as_float(v, &f))
        return dcpk_doc_format(doc, "%g", f);
    if (v->kind == DCPK_V_GLOBAL)
        return v->as.global.name;
    if (v->kind == DCPK_V_LIST)
        return dcpk_doc_format(doc, "%zu", v->n);
    return dcpk_value_as_str(v);
}

static void put_fact_value(const void *context, struct dcpk_json_out *j)
{
    dcpk_value_to_json(context, j);
}

static struct dcpk_fact value_fact(const struct dcpk_value *v)
{
    if (v == NULL)
        return dcpk_fact_absent();
    if (v->kind == DCPK_V_GLOBAL)
        return dcpk_fact_text(v->as.global.name);
    return dcpk_fact_json(put_fact_value, v);
}

static void report_facts(const struct fact_line *l, const struct dcpk_value *values,
                         struct dcpk_doc *doc)
{
    const char *line = "";

    for (size_t i = 0; i < l->n; i++) {
        const struct named_fact *fact = &l->facts[i];
        const struct dcpk_value *v = dcpk_value_get(values, fact->name);
        const char *text = value_text(v, doc), *before = "";

        dcpk_doc_set(doc, dcpk_doc_format(doc, "%s.%s", l->key, fact->name), value_fact(v));
        if (text == NULL || (fact->only_if != NULL &&
                             value_text(dcpk_value_get(values, fact->only_if), doc) == NULL))
            continue;
        if (*line != '\0')
            before = ", ";
        line = dcpk_doc_format(doc, "%s%s%s%s%s", line, before, fact->before, text, fact->after);
    }
    if (*line != '\0')
        dcpk_doc_row(doc, l->label, "%s", line);
}

/* Reports the names that print-tensor knows in every format. */
static void report_names(const char *const *names, struct dcpk_doc *doc)
{
    const char *line = *names;
    size_t n_names = 0;

    while (names[n_names] != NULL)
        n_names++;
    dcpk_doc_set(doc, "state", dcpk_fact_texts(names, n_names));
    if (*names == NULL)
        return;
    for (size_t n = 1; names[n] != NULL && n <= MAX_NAMES; n++)
        line = dcpk_doc_format(doc, "%s, %s", line, n < MAX_NAMES ? names[n] : "...");
    dcpk_doc_row(doc, "state", "%s", line);
}

/* ---- totals ---- */

const char *dcpk_short_count(uint64_t n, struct dcpk_doc *doc)
{
    static const char unit[] = " KMBT";
    double v = (double)n;
    size_t u = 0;

    for (; v >= 999.95 && u + 2 < sizeof unit; u++)
        v /= 1000;
    if (u == 0)
        return dcpk_doc_format(doc, "%" PRIu64, n);
    return dcpk_doc_format(doc, "%.3g %c", v, unit[u]);
}

/* "70.6 B" next to the number itself. */
static const char *short_count_text(uint64_t n, struct dcpk_doc *doc)
{
    const char *text = dcpk_short_count(n, doc);

    if (n < 1000)
        return text;
    return dcpk_doc_format(doc, "%s (%" PRIu64 ")", text, n);
}

/* Reports the kinds of tensors, aliases once. */
static void report_contents(const struct dcpk_totals *t, struct dcpk_doc *doc)
{
    char size[DCPK_SIZE_TEXT_BYTES];

    for (int i = 0; i < DCPK_N_CONTENTS; i++) {
        const struct dcpk_content_totals *c = &t->by_content[i];
        const char *name = dcpk_content_name((enum dcpk_content)i);
        const char *key = dcpk_doc_format(doc, "totals.by_content.%s", name);

        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.n_elems", key), c->n_elems);
        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.n_tensors", key), c->n_tensors);
        dcpk_doc_set_count(doc, dcpk_doc_format(doc, "%s.tensor_bytes", key), c->tensor_bytes);
        if (c->n_tensors > 0)
            dcpk_doc_row(doc, "", "%-8s %7" PRIu64 " tensors, %12" PRIu64 " elements, %s", name,
                         c->n_tensors, c->n_elems, dcpk_cli_short_size(c->tensor_bytes, size));
    }
}

static void report_totals(const struct dcpk_totals *t, struct dcpk_doc *doc)
{
    char size[DCPK_SIZE_TEXT_BYTES], count[DCPK_COUNT_TEXT_BYTES];

    dcpk_doc_row(doc, "parameters", "%s", short_count_text(t->n_params, doc));
    dcpk_doc_row(doc, "tensors",
                 "%" PRIu64 " (%" PRIu64 " of them aliases) in %s; %" PRIu64 " elements, %s",
                 t->n_tensors, t->n_alias_tensors, dcpk_cli_count(t->n_chunks, "chunk", count),
                 t->n_elems, dcpk_cli_size(t->tensor_bytes, size));
    report_contents(t, doc);
    dcpk_doc_row(doc, "objects", "%" PRIu64 " (%" PRIu64 " of them aliases); %s", t->n_objects,
                 t->n_alias_objects, dcpk_cli_size(t->object_bytes, size));
    dcpk_doc_row(doc, "stored", "%s, %s", dcpk_cli_count(t->n_files, "file", count),
                 dcpk_cli_size(t->file_bytes, size));
    dcpk_doc_set_count(doc, "totals.file_bytes", t->file_bytes);
    dcpk_doc_set_count(doc, "totals.n_alias_chunks", t->n_alias_chunks);
    dcpk_doc_set_count(doc, "totals.n_alias_objects", t->n_alias_objects);
    dcpk_doc_set_count(doc, "totals.n_alias_tensors", t->n_alias_tensors);
    dcpk_doc_set_count(doc, "totals.n_chunks", t->n_chunks);
    dcpk_doc_set_count(doc, "totals.n_elems", t->n_elems);
    dcpk_doc_set_count(doc, "totals.n_files", t->n_files);
    dcpk_doc_set_count(doc, "totals.n_objects", t->n_objects);
    dcpk_doc_set_count(doc, "totals.n_params", t->n_params);
    dcpk_doc_set_count(doc, "totals.n_tensors", t->n_tensors);
    dcpk_doc_set_count(doc, "totals.object_bytes", t->object_bytes);
    dcpk_doc_set_count(doc, "totals.stored_bytes", t->stored_bytes);
    dcpk_doc_set_count(doc, "totals.tensor_bytes", t->tensor_bytes);
}

/* ---- the whole ---- */

static void report_iteration(int64_t iteration, struct dcpk_doc *doc)
{
    struct dcpk_fact fact = dcpk_fact_null();

    if (iteration >= 0)
        fact = dcpk_fact_int(iteration);
    else if (iteration == DCPK_ITERATION_RELEASE)
        fact = dcpk_fact_text("release");
    if (fact.kind == DCPK_FACT_NULL)
        dcpk_doc_row(doc, "iteration", "not known");
    else
        dcpk_doc_fact(doc, "iteration", NULL, fact);
    dcpk_doc_set(doc, "iteration", fact);
}

static void fill_notes(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_checkpoint *ckpt = context;

    for (const struct dcpk_note *note = ckpt->notes; note != NULL; note = note->next)
        DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_text(note->text)));
}

static void report_model(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    if (in->config != NULL)
        report_facts(&config_line, in->config, doc);
    else
        report_facts(&model_line, in->state->args, doc);
}

static void report_inspection(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table iterations = dcpk_inspect_iterations(in->list);
    char generation[DCPK_GENERATION_TEXT_BYTES];

    dcpk_generation_text(in->ckpt, generation);
    dcpk_doc_fact(doc, "checkpoint", "folder", dcpk_fact_text(in->run->folder));
    dcpk_doc_row(doc, "format", "%s%s%s", in->ckpt->format->name, *generation == '\0' ? "" : ", ",
                 generation);
    dcpk_doc_set_text(doc, "format", in->ckpt->format->name);
    dcpk_doc_set_origin(doc, in->ckpt);
    report_iteration(in->iteration, doc);
    dcpk_doc_set_table(doc, "iterations", &iterations);
    if (in->ckpt->format->is_model) /* weights alone: nothing is known of a run */
        doc->media = DCPK_DOC_PAGE;
    report_args_layout(&in->state->layout, doc);
    report_saved_layout(in->saved, doc);
    dcpk_doc_fact(doc, "optimizer", "optimizer_layout",
                  dcpk_fact_text(in->state->optimizer_layout));
    doc->media = 0;
    report_model(in, doc);
    report_facts(&training_line, in->state->args, doc);
    report_names(in->state->names, doc);
    report_totals(&in->summary->totals, doc);
    dcpk_doc_set_text(doc, "keys", in->keys);
    if (in->keys != NULL)
        dcpk_doc_row(doc, "keys", "listed are those that match '%s'", in->keys);
    dcpk_doc_set_table(
        doc, "notes",
        &(struct dcpk_doc_table){.flags = DCPK_DOC_LIST, .fill = fill_notes, .context = in->ckpt});
    dcpk_doc_set(doc, "version", dcpk_fact_int(1));
    if (!in->has_page || in->list->n < 2)
        return;
    doc->media = DCPK_DOC_PAGE; /* text has them before all else */
    dcpk_doc_heading(doc, "iterations");
    dcpk_doc_show(doc, &iterations);
    doc->media = 0;
}

void dcpk_inspect_report(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    doc->title = dcpk_page_title(in->run->folder);
    dcpk_inspect_report_headline(in, doc);
    report_inspection(in, doc);
    if (in->has_page)
        dcpk_inspect_report_bytes(in, doc);
    dcpk_inspect_report_keys(in, doc);
    if (in->has_page)
        dcpk_inspect_report_maps(in, doc);
    if (in->stats == NULL)
        dcpk_doc_set(doc, "stats_totals", dcpk_fact_null());
    else
        dcpk_inspect_report_stats(in, doc);
}

/* ---- dcpkit inspect of a run folder: which iterations it has ---- */

static void put_entry(struct dcpk_doc_rows *rows, const struct dcpk_run_entry *entry)
{
    const char *named = entry->is_named ? ", named by the tracker" : "", *why = NULL;
    struct dcpk_fact iteration = dcpk_fact_text("release");
    char files[64], how[DCPK_RUN_WHY_BYTES + 64];

    if (entry->iteration >= 0)
        iteration = dcpk_fact_int(entry->iteration);
    if (!entry->is_complete)
        why = entry->why;
    snprintf(files, sizeof files, "%6" PRIu64 " file%s", entry->n_files,
             entry->n_files == 1 ? " " : "s");
    if (entry->is_complete)
        snprintf(how, sizeof how, "complete%s", named);
    else
        snprintf(how, sizeof how, "incomplete%s: %s", named, why);
    DCPK_DOC_PUT(
        rows, {"folder", "folder", .fact = dcpk_fact_text(entry->name), .flags = DCPK_DOC_MEASURED},
        {"format", "format", .fact = dcpk_fact_text(entry->format), .width = 12},
        {"file_bytes", "size", .fact = dcpk_fact_bytes(entry->n_bytes), .flags = DCPK_DOC_RIGHT,
         .width = 12},
        {.title = "files", .fact = dcpk_fact_text(files), .flags = DCPK_DOC_RIGHT},
        {.title = "state", .fact = dcpk_fact_text(how)},
        DCPK_MEMBER("complete", dcpk_fact_flag(entry->is_complete)),
        DCPK_MEMBER("iteration", iteration),
        DCPK_MEMBER("n_files", dcpk_fact_count(entry->n_files)),
        DCPK_MEMBER("named_by_tracker", dcpk_fact_flag(entry->is_named)),
        DCPK_MEMBER("why", dcpk_fact_text(why)));
}

static void fill_entries(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_run_list *list = context;

    for (size_t i = 0; i < list->n; i++)
        put_entry(rows, &list->entries[i]);
}

struct dcpk_doc_table dcpk_inspect_iterations(const struct dcpk_run_list *list)
{
    return (struct dcpk_doc_table){.indent = 2, .fill = fill_entries, .context = list};
}
