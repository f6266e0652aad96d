/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.c - reports which releases load a checkpoint, and what is missing. */
#include "tools/check_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "tools/print_doc.h"

#define MAX_LISTED 8 /* missing things of one purpose */

static bool is_shown(const struct dcpk_check_report *r, const struct dcpk_check_finding *f,
                     enum dcpk_purpose purpose)
{
    return f->purpose == purpose && (f->loaders & r->check->loader) != 0;
}

static const struct dcpk_check_finding *first_of(const struct dcpk_check_report *r,
                                                 enum dcpk_purpose purpose)
{
    const struct dcpk_check_finding *f = r->check->findings;

    while (f != NULL && !is_shown(r, f, purpose))
        f = f->next;
    return f;
}

static const char *remedy(enum dcpk_purpose purpose)
{
    switch (purpose) {
    case DCPK_FOR_RNG:
        return " (loads with --no-load-rng)";
    case DCPK_FOR_MASTERS:
    case DCPK_FOR_MOMENTS:
    case DCPK_FOR_GROUPS:
    case DCPK_FOR_SCHEDULER:
        return " (loads with --no-load-optim)";
    case DCPK_FOR_EXTRA:
        return " (loads with --dist-ckpt-strictness log_unexpected)";
    case DCPK_FOR_WEIGHTS:
    case DCPK_FOR_COMMON:
    case DCPK_N_PURPOSES:
        break;
    }
    return "";
}

static void fill_purpose(struct dcpk_check_report *r, enum dcpk_purpose purpose)
{
    const uint64_t n_asked = r->check->n_asked[purpose], n = r->check->n_lacking[purpose];
    const struct dcpk_check_finding *first = first_of(r, purpose);
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st = DCPK_OK;

    if (n > 0 && first != NULL)
        st = dcpk_fail(&err, DCPK_EMISMATCH, "%" PRIu64 " of %" PRIu64 " lacking: %s %s%s%s", n,
                       n_asked, first->key, first->text, n > 1 ? ", ..." : "", remedy(purpose));
    if (n_asked > 0)
        dcpk_checks_add(r->checks, dcpk_purpose_name(purpose), st, &err,
                        "%" PRIu64 " asked for, none missing", n_asked);
}

void dcpk_check_report_fill(struct dcpk_check_report *r)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st = DCPK_OK;

    if (r->check->unknown != NULL)
        st = dcpk_fail(&err, DCPK_EMISMATCH, "%s", r->check->unknown);
    dcpk_checks_add(r->checks, "model", st, &err, "args name every module");
    for (unsigned p = 0; p < DCPK_N_PURPOSES; p++)
        fill_purpose(r, (enum dcpk_purpose)p);
}

/* How the loader was found, for people. */
static const char *found_by(const char *by)
{
    static const struct {
        const char *by, *text;
    } texts[] = {{"given", "as given"},
                 {"args", "by its args"},
                 {"format", "by its format"},
                 {"groups", "by the fields of its groups"},
                 {"assumed", "assumed"}};
    size_t i = 0;

    while (strcmp(texts[i].by, by) != 0)
        i++;
    return texts[i].text;
}

/* "torch_dist of core 0.16 (by its args), tp 2 pp 2 ep 1 dp 1", and the layers it has. */
static void report_loader(const struct dcpk_check_report *r, struct dcpk_doc *doc)
{
    const struct dcpk_verdict *c = r->check;
    const struct dcpk_grid *m = &c->mesh;
    const char *layers = "local", *adam = "torch's";

    if (strcmp(c->impl, "te") == 0)
        layers = "Transformer Engine's";
    if (strcmp(c->adam, "te") == 0)
        adam = "Transformer Engine's";
    dcpk_doc_row(doc, "loader",
                 "%s of %s (%s), tp %" PRId64 " pp %" PRId64 " ep %" PRId64 " dp %" PRId64,
                 r->ckpt->format->name, dcpk_release_title(c->release), found_by(c->release_by),
                 dcpk_max_i64(m->tp, 1), dcpk_max_i64(m->pp, 1), dcpk_max_i64(m->ep, 1), m->dp);
    dcpk_doc_row(doc, "", "%s layers (%s), %s Adam (%s)", layers, found_by(c->impl_by), adam,
                 found_by(c->adam_by));
    dcpk_doc_set_text(doc, "loader.impl", c->impl);
    dcpk_doc_set_text(doc, "loader.impl_by", c->impl_by);
    dcpk_doc_set(doc, "loader.layout.dp", dcpk_fact_int(m->dp));
    dcpk_doc_set(doc, "loader.layout.ep", dcpk_fact_int(m->ep));
    dcpk_doc_set(doc, "loader.layout.pp", dcpk_fact_int(m->pp));
    dcpk_doc_set(doc, "loader.layout.tp", dcpk_fact_int(m->tp));
    dcpk_doc_set_text(doc, "loader.optimizer", c->adam);
    dcpk_doc_set_text(doc, "loader.optimizer_by", c->adam_by);
    dcpk_doc_set_text(doc, "loader.release", dcpk_release_name(c->release));
    dcpk_doc_set_text(doc, "loader.release_by", c->release_by);
}

static void put_missing(struct dcpk_doc_rows *rows, enum dcpk_purpose purpose, const char *key,
                        const char *text)
{
    DCPK_DOC_PUT(rows,
                 {.title = "of", .fact = dcpk_fact_text(dcpk_purpose_name(purpose)), .width = 10},
                 {.title = "key", .fact = dcpk_fact_text(key)},
                 {.title = "why", .fact = dcpk_fact_text(text), .gap = 1});
}

/* By name: the first ones of each purpose, or all. */
static void fill_missing(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_check_report *r = context;

    for (unsigned p = 0; p < DCPK_N_PURPOSES; p++) {
        const enum dcpk_purpose purpose = (enum dcpk_purpose)p;
        char n_more[32];
        uint64_t n = 0;

        for (const struct dcpk_check_finding *f = r->check->findings; f != NULL; f = f->next)
            if (is_shown(r, f, purpose) && (n++ < MAX_LISTED || r->lists_all))
                put_missing(rows, purpose, f->key, f->text);
        snprintf(n_more, sizeof n_more, "%" PRIu64, n - MAX_LISTED);
        if (n > MAX_LISTED && !r->lists_all)
            put_missing(rows, purpose, n_more, "more (--all lists them)");
    }
}

/* A row for each outcome. */
static void report_releases(const struct dcpk_verdict *check, struct dcpk_doc *doc)
{
    struct dcpk_bytes text = {.data = NULL};

    for (unsigned way = DCPK_LOADS; way <= DCPK_LOADS_NOT; way++) {
        const enum dcpk_loads loads = (enum dcpk_loads)way;
        const char *label = loads == DCPK_LOADS ? "loads in" : "not in";

        text.n_bytes = 0;
        if (!dcpk_verdict_way(check, loads, true, &text) || text.status != DCPK_OK)
            continue;
        if (loads == DCPK_LOADS || loads == DCPK_LOADS_NOT)
            dcpk_doc_row(doc, label, "%.*s", (int)text.n_bytes, (const char *)text.data);
        else
            dcpk_doc_row(doc, "loads with", "%s in %.*s", dcpk_loads_text(loads), (int)text.n_bytes,
                         (const char *)text.data);
    }
    dcpk_bytes_status(&text, &doc->err);
    dcpk_bytes_release(&text);
}

/* One chip a release, with the flags that its run needs. Returns how many load it. */
static size_t make_chips(const struct dcpk_verdict *check, struct dcpk_doc *doc,
                         struct dcpk_doc_chip chips[DCPK_N_RELEASES], size_t *n_chips)
{
    size_t n = 0, n_load = 0;

    for (unsigned r = 0; r < DCPK_N_RELEASES; r++) {
        const enum dcpk_release release = (enum dcpk_release)r;
        const uint32_t of = dcpk_loaders_of(release, release) & check->variants;
        const enum dcpk_loads loads = dcpk_verdict_loads(check, of);
        const struct dcpk_check_finding *f = dcpk_verdict_reason(check, loads, of);
        struct dcpk_doc_chip *chip = &chips[n];

        if (of == 0)
            continue;
        *chip = (struct dcpk_doc_chip){dcpk_release_title(release), "loads", NULL, DCPK_DOC_GOOD};
        if (loads == DCPK_LOADS_NOT && check->unknown != NULL)
            *chip = (struct dcpk_doc_chip){chip->label, "not known", check->unknown, DCPK_DOC_WARN};
        else if (loads == DCPK_LOADS_NOT)
            *chip = (struct dcpk_doc_chip){chip->label, "does not load", NULL, DCPK_DOC_BAD};
        else if (loads != DCPK_LOADS)
            *chip = (struct dcpk_doc_chip){chip->label,
                                           dcpk_doc_format(doc, "with %s", dcpk_loads_text(loads)),
                                           NULL, DCPK_DOC_WARN};
        if (loads != DCPK_LOADS && f != NULL)
            chip->why = dcpk_doc_format(doc, "%s %s", f->key, f->text);
        n_load += loads != DCPK_LOADS_NOT;
        n++;
    }
    *n_chips = n;
    return n_load;
}

static void report_check_headline(const struct dcpk_check_report *r, struct dcpk_doc *doc)
{
    const struct dcpk_verdict *check = r->check;
    struct dcpk_doc_chip chips[DCPK_N_RELEASES];
    size_t n_chips;
    const size_t n_load = make_chips(check, doc, chips, &n_chips);
    struct dcpk_doc_bar bars[] = {{"found", 0, DCPK_DOC_GOOD}, {"missing", 0, DCPK_DOC_BAD}};
    uint64_t n_asked = 0;

    for (unsigned p = 0; p < DCPK_N_PURPOSES; p++) {
        n_asked += check->n_asked[p];
        bars[1].count += dcpk_min_u64(check->n_lacking[p], check->n_asked[p]);
    }
    bars[0].count = n_asked - bars[1].count;
    dcpk_doc_headline(
        doc, &(struct dcpk_doc_headline){
                 .figures = {{dcpk_doc_format(doc, "%zu", n_load), "releases load it"},
                             {dcpk_doc_format(doc, "%" PRIu64, n_asked), "items asked for"},
                             {dcpk_doc_format(doc, "%" PRIu64, bars[1].count), "missing"}},
                 .bar_title = "items that the loader asks for",
                 .bars = bars,
                 .n_bars = DCPK_COUNT(bars)});
    dcpk_doc_chips(doc, chips, n_chips);
}

static void put_check_loads(const void *context, struct dcpk_json_out *j)
{
    const struct dcpk_verdict *check = context;

    dcpk_verdict_json(check, check->loader, j);
}

void dcpk_check_report_put(const struct dcpk_check_report *r, struct dcpk_doc *doc)
{
    doc->title = dcpk_page_title(r->folder);
    report_check_headline(r, doc);
    dcpk_doc_fact(doc, "checkpoint", "folder", dcpk_fact_text(r->folder));
    report_loader(r, doc);
    for (const struct dcpk_note *n = r->check->assumed; n != NULL; n = n->next)
        dcpk_doc_row(doc, "assumed", "%s", n->text);
    for (const struct dcpk_note *n = r->check->warnings; n != NULL; n = n->next)
        dcpk_doc_row(doc, "warning", "%s", n->text);
    dcpk_doc_page_heading(doc, "checks");
    dcpk_checks_report_rows(r->checks, doc);
    if (r->check->findings != NULL)
        dcpk_doc_page_heading(doc, "missing");
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.indent = 2, .fill = fill_missing, .context = r});
    dcpk_doc_page_heading(doc, "releases");
    report_releases(r->check, doc);
    if (r->remedy != NULL)
        dcpk_doc_row(doc, "to load it", "%s", r->remedy);
    dcpk_checks_report_verdict(r->checks, doc);
    dcpk_doc_set_text(doc, "format", r->ckpt->format->name);
    dcpk_doc_set(doc, "loads", dcpk_fact_json(put_check_loads, r->check));
    dcpk_doc_set_count(doc, "version", 1);
}

/* --- what is about to be written --- */

static void put_all_loads(const void *context, struct dcpk_json_out *j)
{
    const struct dcpk_verdict *verdict = context;

    dcpk_verdict_json(verdict, verdict->variants, j);
}

void dcpk_report_loads(const struct dcpk_verdict *verdict, struct dcpk_doc *doc)
{
    const char *text;

    dcpk_doc_set(doc, "loads", dcpk_fact_json(put_all_loads, verdict));
    if (verdict->arena == NULL)
        return;
    text = dcpk_verdict_sentence(verdict, &doc->err);
    if (text != NULL)
        dcpk_doc_row(doc, "loads in", "%s", text);
}

void dcpk_warn_verdict(const struct dcpk_verbosity *verbosity, const struct dcpk_verdict *verdict)
{
    const struct dcpk_check_finding *f;

    if (!dcpk_verdict_is_no(verdict))
        return;
    f = dcpk_verdict_reason(verdict, DCPK_LOADS_NOT, verdict->loader);
    if (f == NULL)
        f = dcpk_verdict_reason(verdict, DCPK_LOADS_NOT, verdict->variants);
    if (f != NULL)
        dcpk_cli_note(verbosity, "no release of Megatron loads the result: %s %s", f->key, f->text);
}
