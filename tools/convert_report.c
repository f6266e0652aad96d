/* SPDX-License-Identifier: Apache-2.0 */
/* convert_report.c - what a conversion does or did. */
#include "tools/convert_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/ckpt/generation.h"
#include "lib/model/named_state.h"
#include "tools/check_report.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

#define MAX_REASONS 64

/* The keys left out for one reason. */
struct reason {
    struct dcpk_report_loss first;
    uint64_t n;
};

struct reasons {
    struct reason list[MAX_REASONS];
    size_t n;
    uint64_t n_more; /* keys left out for reasons past MAX_REASONS */
};

static bool collect_reason(void *context, const struct dcpk_report_loss *loss)
{
    struct reasons *r = context;

    for (size_t i = 0; i < r->n; i++)
        if (r->list[i].first.is_harmless == loss->is_harmless &&
            strcmp(r->list[i].first.reason, loss->reason) == 0) {
            r->list[i].n++;
            return true;
        }
    if (r->n == MAX_REASONS)
        r->n_more++;
    else
        r->list[r->n++] = (struct reason){*loss, 1};
    return true;
}

/* "16 x <key>, ...: <reason>" */
static void put_reason(struct dcpk_doc_rows *rows, const struct reason *reason,
                       struct dcpk_bytes *line)
{
    const struct dcpk_report_loss *loss = &reason->first;

    line->n_bytes = 0;
    dcpk_bytes_printf(line, "%" PRIu64 " x ", reason->n);
    dcpk_bytes_put(line, loss->key, loss->key_bytes);
    dcpk_bytes_printf(line, "%s: %s", reason->n > 1 ? ", ..." : "", loss->reason);
    if (line->status == DCPK_OK)
        DCPK_DOC_PUT(rows, {.title = "reason",
                            .fact = dcpk_fact_part((const char *)line->data, line->n_bytes)});
}

/* Reasons of one kind: those that no run misses, or the others. */
struct reasons_of {
    const struct reasons *all;
    bool is_harmless;
};

static void fill_reasons(const void *context, struct dcpk_doc_rows *rows)
{
    const struct reasons_of *of = context;
    struct dcpk_bytes line = {0};

    for (size_t i = 0; i < of->all->n; i++)
        if (of->all->list[i].first.is_harmless == of->is_harmless)
            put_reason(rows, &of->all->list[i], &line);
    dcpk_bytes_status(&line, rows->err);
    dcpk_bytes_release(&line);
}

static void report_reasons(struct dcpk_doc *doc, const char *title, const struct reasons *all,
                           bool is_harmless)
{
    const struct reasons_of of = {all, is_harmless};
    bool has = false;

    for (size_t i = 0; i < all->n; i++)
        has |= all->list[i].first.is_harmless == is_harmless;
    if (!has)
        return;
    dcpk_doc_line(doc, "  %s", title);
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.flags = DCPK_DOC_PARAGRAPHS,
                                                .indent = 4,
                                                .fill = fill_reasons,
                                                .context = dcpk_doc_keep(doc, &of, sizeof of)});
}

/* One after the other, for a program. */
static bool put_loss(void *context, const struct dcpk_report_loss *loss)
{
    DCPK_DOC_PUT((struct dcpk_doc_rows *)context,
                 DCPK_MEMBER("harmless", dcpk_fact_flag(loss->is_harmless)),
                 {"key", "key", .fact = dcpk_fact_part(loss->key, loss->key_bytes),
                  .flags = DCPK_DOC_BREAKS},
                 {"reason", "reason", .fact = dcpk_fact_text(loss->reason)});
    return true;
}

static void fill_losses(const void *context, struct dcpk_doc_rows *rows)
{
    dcpk_report_each_loss(context, put_loss, rows);
}

/* The number of keys left out that the output does not need. */
static uint64_t count_harmless(const struct reasons *all)
{
    uint64_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        if (all->list[i].first.is_harmless)
            n += all->list[i].n;
    return n;
}

/* Keys that the output does not need: their number, or all of them. */
static void report_harmless(const struct reasons *all, unsigned details, struct dcpk_doc *doc)
{
    char count[DCPK_COUNT_TEXT_BYTES];

    if (details == DCPK_DOC_PAGE && count_harmless(all) > 0) {
        doc->media = DCPK_DOC_TEXT;
        dcpk_doc_row(doc, "left out", "%s that this output does not need (-v lists them)",
                     dcpk_cli_count(count_harmless(all), "key", count));
    }
    doc->media = details;
    report_reasons(doc, "left out (not needed):", all, true);
    doc->media = 0;
}

/* The keys to check stand last, nearest to the prompt. */
static void report_losses(const struct dcpk_conversion *c, unsigned details, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table losses = {.fill = fill_losses, .context = c};
    struct reasons *found = dcpk_doc_take(doc, 1, sizeof *found);

    dcpk_doc_set_table(doc, "dropped", &losses);
    if (found == NULL)
        return;
    dcpk_report_each_loss(c, collect_reason, found);
    if (found->n > 0)
        dcpk_doc_page_heading(doc, "left out, by reason");
    report_harmless(found, details, doc);
    report_reasons(doc, "left out (please check):", found, false);
    if (found->n_more > 0)
        dcpk_doc_row(doc, "left out",
                     "%" PRIu64 " more keys for other reasons (the JSON report has all)",
                     found->n_more);
    doc->media = DCPK_DOC_PAGE;
    if (found->n > 0)
        dcpk_doc_heading(doc, "left out, by key");
    dcpk_doc_show(doc, &losses);
    doc->media = 0;
}

static void put_convert_note(struct dcpk_doc_rows *rows, const char *text)
{
    DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_text(text)));
}

static void fill_convert_notes(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_conversion *c = context;

    for (const struct dcpk_note *note = c->ckpt->notes; note != NULL; note = note->next)
        put_convert_note(rows, note->text);
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE)
            put_convert_note(rows, event->text);
}

/* The text of a note, with the option that changes what it is about. */
static const char *note_text(const struct dcpk_out_event *event, struct dcpk_doc *doc)
{
    if (strcmp(event->key, "tokenizer") != 0)
        return event->text;
    return dcpk_doc_format(doc, "%s (--hf-assets DIR copies one)", event->text);
}

static void report_convert_notes(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE)
            dcpk_doc_note(doc, "note", note_text(event, doc));
    for (const struct dcpk_note *note = c->ckpt->notes; note != NULL; note = note->next)
        dcpk_doc_note(doc, "note", note->text);
    dcpk_doc_set_table(
        doc, "notes",
        &(struct dcpk_doc_table){.flags = DCPK_DOC_LIST, .fill = fill_convert_notes, .context = c});
}

/*
 * Last: what a run has to be given to load it (formats/fsdp_dtensor/FORMAT.md 9,
 * formats/torch_dist/FORMAT.md 7).
 */
static void report_load(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const unsigned needs = c->out->load_needs;
    const bool no_optim = (needs & DCPK_LOAD_WITHOUT_OPTIM) != 0;
    const bool no_rng = (needs & DCPK_LOAD_WITHOUT_RNG) != 0;
    struct dcpk_fact expert_parallel = dcpk_fact_null();

    if (needs != 0)
        dcpk_doc_page_heading(doc, "loading it");
    if (no_optim || no_rng)
        dcpk_doc_row(doc, "to load", "add%s%s", no_optim ? " --no-load-optim" : "",
                     no_rng ? " --no-load-rng" : "");
    if ((needs & DCPK_LOAD_WITH_EP) != 0) {
        dcpk_doc_row(doc, "to load",
                     "with --expert-model-parallel-size above 1; for a run without, convert with "
                     "--target-mesh ep=1");
        expert_parallel = dcpk_fact_text("above_1");
    }
    if ((needs & DCPK_LOAD_WITHOUT_EP) != 0) {
        dcpk_doc_row(doc, "to load",
                     "with --expert-model-parallel-size 1; for a run with more, convert with "
                     "--target-mesh ep=N");
        if (expert_parallel.kind == DCPK_FACT_NULL)
            expert_parallel = dcpk_fact_text("1");
    }
    dcpk_doc_set(doc, "load.expert_parallel", expert_parallel);
    dcpk_doc_set_flag(doc, "load.no_load_optim", no_optim);
    dcpk_doc_set_flag(doc, "load.no_load_rng", no_rng);
}

/* ", 400 rows of the vocabulary, the source 256 (added rows are zero)", or "" when it has as many.
 */
static const char *vocab_text(const struct dcpk_compare_report *report, char text[128])
{
    const int64_t ours = report->vocab_rows[0], theirs = report->vocab_rows[1];

    text[0] = '\0';
    if (ours != theirs)
        snprintf(text, 128, ", %" PRId64 " rows of the vocabulary, the source %" PRId64 " (%s)",
                 ours, theirs, ours > theirs ? "added rows are zero" : "cut rows are no tokens");
    return text;
}

/* "all elements finite", "3 elements NaN or infinite, 2 of them finite in the source"; and how many
 * tensors are rounded to fp8. */
#define FINITE_TEXT_BYTES 256
static const char *finite_text(const struct dcpk_compare_report *report,
                               char text[FINITE_TEXT_BYTES])
{
    const size_t size = FINITE_TEXT_BYTES;
    int n = snprintf(text, size, "all elements finite");

    if (report->n_not_finite > 0)
        n = snprintf(text, size, "%" PRIu64 " elements NaN or infinite", report->n_not_finite);
    if (report->n_overflowed > 0)
        n += snprintf(text + n, size - (size_t)n, ", %" PRIu64 " of them finite in the source",
                      report->n_overflowed);
    if (report->n_rounded > 0)
        snprintf(text + n, size - (size_t)n,
                 ", %" PRIu64 " of the tensors rounded to fp8 blocks, within half a step",
                 report->n_rounded);
    return text;
}

/* "all 124 tensors and 57 objects of the source are accounted for (2 and 5 left out)". */
static const char *left_text(const struct dcpk_left *left, char text[192])
{
    int n =
        snprintf(text, 192,
                 "all %" PRIu64 " tensors and %" PRIu64 " objects of the source are accounted for",
                 left->n_tensors, left->n_objects);

    if (left->n_tensors_left > 0 || left->n_objects_left > 0)
        snprintf(text + n, 192 - (size_t)n, " (%" PRIu64 " and %" PRIu64 " left out)",
                 left->n_tensors_left, left->n_objects_left);
    return text;
}

const char *dcpk_proof_text(const struct dcpk_compare_report *report,
                            char text[DCPK_PROOF_TEXT_BYTES])
{
    char size[DCPK_SIZE_TEXT_BYTES], vocab[128], left[192], finite[FINITE_TEXT_BYTES];

    snprintf(text, DCPK_PROOF_TEXT_BYTES,
             "%" PRIu64 " parameters, %" PRIu64 " tensors, %s, %" PRIu64
             " weights against their rounded masters, %" PRIu64 " values%s, %s; %s",
             report->n_params, report->n_tensors, dcpk_cli_size(report->tensor_bytes, size),
             report->n_masters, report->n_values, vocab_text(report, vocab),
             finite_text(report, finite), left_text(&report->left, left));
    return text;
}

/* Reports the comparison of --verify; null without it. */
static void report_convert_proof(const struct dcpk_conversion *c,
                                 const struct dcpk_convert_files *files, struct dcpk_doc *doc)
{
    const struct dcpk_compare_report *proof = &c->proof;
    const struct dcpk_left *left = &proof->left;
    char text[DCPK_PROOF_TEXT_BYTES];

    if (proof->n_params == 0) {
        if (!files->dry_run && !c->is_complete)
            dcpk_doc_row(doc, "verified", "no (--verify proves the output against the input)");
        dcpk_doc_set(doc, "verified", dcpk_fact_null());
        return;
    }
    if (files->is_verbose)
        dcpk_doc_row(doc, "verified", "equal to the input: %s", dcpk_proof_text(proof, text));
    else
        dcpk_doc_row(doc, "verified",
                     "equal to the input: %" PRIu64 " parameters, %" PRIu64 " tensors, %s",
                     proof->n_params, proof->n_tensors, finite_text(proof, text));
    dcpk_doc_set_count(doc, "verified.n_masters", proof->n_masters);
    dcpk_doc_set_count(doc, "verified.n_not_finite", proof->n_not_finite);
    dcpk_doc_set_count(doc, "verified.n_overflowed", proof->n_overflowed);
    dcpk_doc_set_count(doc, "verified.n_parameters", proof->n_params);
    dcpk_doc_set_count(doc, "verified.n_rounded", proof->n_rounded);
    dcpk_doc_set_count(doc, "verified.n_source_objects", left->n_objects);
    dcpk_doc_set_count(doc, "verified.n_source_objects_left_out", left->n_objects_left);
    dcpk_doc_set_count(doc, "verified.n_source_tensors", left->n_tensors);
    dcpk_doc_set_count(doc, "verified.n_source_tensors_left_out", left->n_tensors_left);
    dcpk_doc_set_count(doc, "verified.n_tensors", proof->n_tensors);
    dcpk_doc_set_count(doc, "verified.n_values", proof->n_values);
    dcpk_doc_set_count(doc, "verified.tensor_bytes", proof->tensor_bytes);
}

/* How the input was checked before it was converted. */
static void report_input_check(const struct dcpk_input_check *check, struct dcpk_doc *doc)
{
    char size[DCPK_SIZE_TEXT_BYTES], list[64] = "";

    if (!check->is_made) {
        dcpk_doc_set(doc, "input_check", dcpk_fact_null());
        return;
    }
    if (check->n_listed > 0)
        snprintf(list, sizeof list, "; %zu files have their listed SHA-256", check->n_listed);
    if (check->checked_bytes > 0)
        dcpk_doc_row(doc, "checked", "every checksum of the input is right, of %s of tensors%s",
                     dcpk_cli_short_size(check->checked_bytes, size), list);
    else
        dcpk_doc_row(doc, "checked", "the input stores no checksums of tensor bytes%s", list);
    dcpk_doc_set_count(doc, "input_check.checked_bytes", check->checked_bytes);
    dcpk_doc_set_count(doc, "input_check.n_listed_files", check->n_listed);
}

static void fill_lost(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_repaired *repaired = context;

    for (size_t i = 0; i < repaired->n; i++) {
        const struct dcpk_lost *lost = &repaired->lost[i];

        DCPK_DOC_PUT(rows,
                     {"n_lost", "lost", .fact = dcpk_fact_count((uint64_t)lost->n_lost),
                      .flags = DCPK_DOC_RIGHT, .width = 8},
                     {"n_elements", "elements", .fact = dcpk_fact_count((uint64_t)lost->n_elems),
                      .flags = DCPK_DOC_RIGHT, .width = 10},
                     {"parameter", "parameter", .fact = dcpk_fact_text(lost->name),
                      .flags = DCPK_DOC_BREAKS});
    }
}

/* Reports the effect of --repair on each state, and the elements that it could not bring back; null
 * without it. */
static void report_repaired(const struct dcpk_repaired *repaired, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table lost = {.indent = 4, .fill = fill_lost, .context = repaired};

    if (repaired == NULL) {
        dcpk_doc_set(doc, "repaired", dcpk_fact_null());
        return;
    }
    dcpk_doc_row(doc, "repaired",
                 "%" PRIu64 " elements of each optimizer state put back; of these %" PRIu64
                 " are lost: masters become weights, exp_avg 0, exp_avg_sq the mean",
                 repaired->n_moved, repaired->n_lost);
    dcpk_doc_set_count(doc, "repaired.n_lost", repaired->n_lost);
    dcpk_doc_set_count(doc, "repaired.n_moved", repaired->n_moved);
    dcpk_doc_set_table(doc, "repaired.lost", &lost);
    if (repaired->n > 0)
        dcpk_doc_line(doc, "    %8s  %10s  %s", "lost", "elements", "parameter");
    dcpk_doc_show(doc, &lost);
}

static void report_time(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    const uint64_t n_bytes = c->stats.written_bytes + c->compared_bytes; /* one of them is 0 */
    const char *what = c->is_complete ? "equal to the existing output:" : "wrote";
    const double seconds = fmax(c->stats.seconds, 1e-9);
    char a[DCPK_SIZE_TEXT_BYTES], b[DCPK_SIZE_TEXT_BYTES];

    dcpk_doc_row(doc, "time", "%.3f s, %.2f GB/s (read %s, %s %s)", c->stats.seconds,
                 (double)n_bytes / 1e9 / seconds, dcpk_cli_short_size(c->stats.read_bytes, a), what,
                 dcpk_cli_short_size(n_bytes, b));
}

/* Reports the numbers of keys by their fate. */
static void report_counts(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    struct dcpk_report_counts n;

    dcpk_report_count(c, &n);
    dcpk_doc_row(doc, "keys",
                 "%" PRIu64 " kept, %" PRIu64 " renamed, %" PRIu64 " made, %" PRIu64
                 " cast, %" PRIu64 " aliased, %" PRIu64 " left out",
                 n.kept, n.renamed, n.made, n.cast, n.aliased, n.dropped);
    dcpk_doc_set_count(doc, "counts.n_aliased", n.aliased);
    dcpk_doc_set_count(doc, "counts.n_cast", n.cast);
    dcpk_doc_set_count(doc, "counts.n_dropped", n.dropped);
    dcpk_doc_set_count(doc, "counts.n_kept", n.kept);
    dcpk_doc_set_count(doc, "counts.n_made", n.made);
    dcpk_doc_set_count(doc, "counts.n_renamed", n.renamed);
}

/* Reports the files written next to the data files. */
static void report_files(const struct dcpk_conversion *c, const struct dcpk_convert_files *files,
                         struct dcpk_doc *doc)
{
    if (files->is_verbose && !files->dry_run && c->target.fate == DCPK_TRACKER_WRITTEN)
        dcpk_doc_row(doc, "tracker", "%s: %s", c->target.tracker, c->target.tracker_text);
    if (!files->dry_run && files->hashes != NULL)
        dcpk_doc_row(doc, "hashes", "%s", files->hashes);
    if (files->report != NULL)
        dcpk_doc_row(doc, "report", "%s", files->report);
    doc->media = DCPK_DOC_TEXT;
    if (files->html != NULL)
        dcpk_doc_row(doc, "page", "%s", files->html);
    doc->media = 0;
    dcpk_doc_set_tracker(doc, &c->target, files->dry_run);
}

/* A format as people call it: a folder of safetensors files that is a model is Hugging Face's. */
static const char *name_of(const struct dcpk_format *format)
{
    return format->is_model && format->container == NULL ? "huggingface" : format->name;
}

/* From what to what: a line of text, the subtitle of a page. */
static void report_deed(const struct dcpk_conversion *c, const struct dcpk_convert_files *files,
                        struct dcpk_doc *doc)
{
    const bool is_merge = c->options->opened != NULL;
    const char *would = is_merge ? "would merge" : "would convert";
    const char *done = is_merge ? "merged" : "converted";
    char generation[DCPK_GENERATION_TEXT_BYTES], size[DCPK_SIZE_TEXT_BYTES], seconds[32] = "";

    if (!files->dry_run)
        snprintf(seconds, sizeof seconds, " in %.3g s", c->stats.seconds);
    dcpk_generation_text(c->ckpt, generation);
    doc->subtitle = dcpk_doc_format(
        doc, "%s %s%s%s%s -> %s", dcpk_deed(&c->target, files->dry_run, would, done),
        is_merge ? "checkpoints" : name_of(c->ckpt->format), *generation == '\0' ? "" : " ",
        generation, c->options->given.lora.merges ? " with LoRA" : "", name_of(c->options->to));
    doc->media = DCPK_DOC_TEXT;
    dcpk_doc_line(doc, "%s, %s%s", doc->subtitle, dcpk_cli_short_size(c->totals.file_bytes, size),
                  seconds);
    doc->media = 0;
}

/* Appends "tp 2 pp 1": the sizes that differ from the other grid's. */
static void put_changed(struct dcpk_bytes *text, const struct dcpk_grid *of,
                        const struct dcpk_grid *other)
{
    const struct {
        const char *name;
        int64_t size, other;
    } sizes[] = {{"tp", of->tp, other->tp}, {"pp", of->pp, other->pp}, {"ep", of->ep, other->ep}};

    for (size_t i = 0; i < DCPK_COUNT(sizes); i++)
        if (sizes[i].size > 0 && sizes[i].other > 0 && sizes[i].size != sizes[i].other)
            dcpk_bytes_printf(text, "%s%s %" PRId64, text->n_bytes == 0 ? "" : " ", sizes[i].name,
                              sizes[i].size);
}

/* Reports a layout that differs from the source's: those that are not given become 1. */
static void report_changed(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    struct dcpk_run_state state = {0};
    struct dcpk_bytes was = {0}, is = {0};

    dcpk_run_state_load(c->ckpt, doc->arena, &state);
    put_changed(&was, &state.layout, &c->out->layout);
    put_changed(&is, &c->out->layout, &state.layout);
    if (was.n_bytes > 0 && is.status == DCPK_OK)
        dcpk_doc_row(doc, "layout", "%.*s -> %.*s", (int)was.n_bytes, (const char *)was.data,
                     (int)is.n_bytes, (const char *)is.data);
    dcpk_bytes_release(&was);
    dcpk_bytes_release(&is);
}

/* Reports the amounts of a conversion. */
static void report_conversion(const struct dcpk_conversion *c,
                              const struct dcpk_convert_files *files, struct dcpk_doc *doc)
{
    const struct dcpk_plan_totals *t = &c->totals;
    char size[DCPK_SIZE_TEXT_BYTES], words[DCPK_TRACKER_WORDS_BYTES];
    char keys[DCPK_COUNT_TEXT_BYTES], items[DCPK_COUNT_TEXT_BYTES];

    doc->media = DCPK_DOC_TEXT;                          /* a page has them side by side */
    if (files->is_verbose || c->options->opened != NULL) /* of a sum: its weights and inputs */
        dcpk_doc_row(doc, "from", "%s", c->source.folder);
    dcpk_doc_set_text(doc, "input", c->source.folder);
    dcpk_doc_row(doc, "to", "%s%s", c->target.folder, dcpk_tracker_words(&c->target, words));
    report_changed(c, doc);
    doc->media = files->is_verbose ? 0 : DCPK_DOC_PAGE;
    dcpk_doc_row(doc, "tensors",
                 "%" PRIu64 " (%s) in %" PRIu64 " chunks of %" PRIu64 " pieces, under %" PRIu64
                 " keys",
                 t->n_tensors, dcpk_cli_short_size(t->tensor_bytes, size), t->n_chunks, t->n_pieces,
                 t->n_keys);
    dcpk_doc_row(doc, "objects", "%s for %s", dcpk_cli_count(t->n_objects, "key", keys),
                 dcpk_cli_count(t->n_payloads, "item", items));
    dcpk_doc_row(doc, "files", "%" PRIu64 " of %s together", t->n_files,
                 dcpk_cli_short_size(t->file_bytes, size));
    if (files->dry_run)
        dcpk_doc_row(doc, "memory", "%s for the plan; --memory bounds the rest",
                     dcpk_cli_short_size(t->metadata_bytes, size));
    else
        report_time(c, doc);
    doc->media = 0;
    if (c->resumed_bytes > 0)
        dcpk_doc_row(doc, "resumed", "%s were written by an earlier run",
                     dcpk_cli_short_size(c->resumed_bytes, size));
    dcpk_doc_set_origin(doc, c->ckpt);
}

/* Sets members that only programs see. */
static void set_totals(const struct dcpk_conversion *c, struct dcpk_doc *doc)
{
    dcpk_doc_set_flag(doc, "already_complete", c->is_complete);
    dcpk_doc_set_count(doc, "compared_bytes", c->compared_bytes);
    dcpk_doc_set_text(doc, "from", c->ckpt->format->name);
    dcpk_doc_set_count(doc, "n_object_keys", c->out->n_objects);
    dcpk_doc_set_text(doc, "output", c->target.folder);
    dcpk_doc_set_count(doc, "overflow.n_elements", c->overflow.n_elems);
    dcpk_doc_set_count(doc, "overflow.n_tensors", c->overflow.n_tensors);
    dcpk_doc_set_count(doc, "output_file_bytes", c->totals.file_bytes);
    dcpk_doc_set_count(doc, "read_bytes", c->stats.read_bytes);
    dcpk_doc_set_count(doc, "resumed_bytes", c->resumed_bytes);
    dcpk_doc_set(doc, "seconds", dcpk_fact_number(c->stats.seconds));
    dcpk_doc_set_count(doc, "tensor_bytes", c->totals.tensor_bytes);
    dcpk_doc_set_text(doc, "to", c->options->to->name);
    dcpk_doc_set_count(doc, "version", 1);
    dcpk_doc_set_count(doc, "written_bytes", c->stats.written_bytes);
}

const struct dcpk_doc_style dcpk_convert_style = {.indent = 2, .label_columns = 11};

void dcpk_convert_report(const struct dcpk_conversion *c, const struct dcpk_convert_files *files,
                         struct dcpk_doc *doc)
{
    const unsigned details = files->is_verbose ? 0 : DCPK_DOC_PAGE;

    doc->title = dcpk_page_title(c->target.folder);
    report_deed(c, files, doc);
    if (files->html != NULL)
        dcpk_convert_report_page(c, files, doc);
    report_conversion(c, files, doc);
    doc->media = details;
    report_counts(c, doc);
    report_input_check(&c->checked, doc);
    doc->media = 0;
    report_convert_proof(c, files, doc);
    report_repaired(c->model == NULL ? NULL : c->model->repaired, doc);
    if (c->verdict.arena == NULL && !c->out->format->is_model)
        dcpk_doc_row(doc, "loads in", "not known for %s: there is no list of what its loader needs",
                     c->out->format->name);
    dcpk_report_loads(&c->verdict, doc);
    report_files(c, files, doc);
    report_convert_notes(c, doc);
    report_losses(c, details, doc);
    report_load(c, doc);
    dcpk_convert_report_keys(c, doc);
    set_totals(c, doc);
}
