/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.c - prints which releases load a checkpoint, and what is missing. */
#include "tools/check_report.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/json.h"
#include "tools/cmd.h"

#define MOST_LISTED 8 /* missing things of one purpose */

static bool is_told(const struct dcpk_check_report *r, const struct dcpk_check_finding *f,
                    enum dcpk_purpose purpose)
{
    return f->purpose == purpose && (f->loaders & r->check->loader) != 0;
}

static const struct dcpk_check_finding *first_of(const struct dcpk_check_report *r,
                                                 enum dcpk_purpose purpose)
{
    const struct dcpk_check_finding *f = r->check->findings;

    while (f != NULL && !is_told(r, f, purpose))
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
    dcpk_checks_add(r->checks, "model", st, &err, "args tell every module");
    for (unsigned p = 0; p < DCPK_N_PURPOSES; p++)
        fill_purpose(r, (enum dcpk_purpose)p);
}

/* --- text --- */

static const char *run_of(const struct dcpk_verdict *check, char text[128])
{
    const struct dcpk_layout *m = &check->mesh;

    snprintf(text, 128, "tp %" PRId64 " pp %" PRId64 " ep %" PRId64 " dp %" PRId64,
             m->tp > 0 ? m->tp : 1, m->pp > 0 ? m->pp : 1, m->ep > 0 ? m->ep : 1, m->dp);
    return text;
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

static void print_head(const struct dcpk_check_report *r)
{
    const struct dcpk_verdict *c = r->check;
    char text[128];

    dcpk_cli_printf(stdout, "checkpoint  ");
    dcpk_cli_put_text(stdout, r->folder);
    dcpk_cli_printf(stdout, "\nloader      %s of %s (%s), %s\n", r->ckpt->format->name,
                    dcpk_release_title(c->release), found_by(c->release_by), run_of(c, text));
    dcpk_cli_printf(
        stdout, "            %s layers (%s), %s Adam (%s)\n",
        strcmp(c->impl, "te") == 0 ? "Transformer Engine's" : "local", found_by(c->impl_by),
        strcmp(c->adam, "te") == 0 ? "Transformer Engine's" : "torch's", found_by(c->adam_by));
    for (const struct dcpk_note *n = c->assumed; n != NULL; n = n->next)
        dcpk_cli_printf(stdout, "assumed     %s\n", n->text);
    for (const struct dcpk_note *n = c->warnings; n != NULL; n = n->next)
        dcpk_cli_printf(stdout, "warning     %s\n", n->text);
}

/* By name: the first ones of each purpose, or all. */
static void print_findings(const struct dcpk_check_report *r)
{
    for (unsigned p = 0; p < DCPK_N_PURPOSES; p++) {
        uint64_t n = 0;

        for (const struct dcpk_check_finding *f = r->check->findings; f != NULL; f = f->next) {
            if (!is_told(r, f, (enum dcpk_purpose)p) || (n++ >= MOST_LISTED && !r->lists_all))
                continue;
            dcpk_cli_printf(stdout, "  %-10s  ", dcpk_purpose_name(f->purpose));
            dcpk_cli_put_text(stdout, f->key);
            dcpk_cli_printf(stdout, " %s\n", f->text);
        }
        if (n > MOST_LISTED && !r->lists_all)
            dcpk_cli_printf(stdout, "  %-10s  %" PRIu64 " more (--all lists them)\n",
                            dcpk_purpose_name((enum dcpk_purpose)p), n - MOST_LISTED);
    }
}

/* A line for each outcome. */
static dcpk_status print_releases(const struct dcpk_verdict *check, struct dcpk_error *err)
{
    struct dcpk_bytes text = {.data = NULL};

    for (unsigned way = DCPK_LOADS; way <= DCPK_LOADS_NOT; way++) {
        text.n_bytes = 0;
        if (!dcpk_verdict_way(check, (enum dcpk_loads)way, true, &text) || text.status != DCPK_OK)
            continue;
        if (way == DCPK_LOADS || way == DCPK_LOADS_NOT)
            dcpk_cli_put_text(stdout, way == DCPK_LOADS ? "loads in    " : "not in      ");
        else
            dcpk_cli_printf(stdout, "loads with  %s in ", dcpk_loads_text((enum dcpk_loads)way));
        dcpk_cli_printf(stdout, "%.*s\n", (int)text.n_bytes, (const char *)text.data);
    }
    dcpk_bytes_status(&text, err);
    dcpk_bytes_release(&text);
    return err->status;
}

dcpk_status dcpk_check_report_print(const struct dcpk_check_report *r, struct dcpk_error *err)
{
    print_head(r);
    dcpk_checks_print_rows(r->checks);
    print_findings(r);
    return print_releases(r->check, err) == DCPK_OK ? dcpk_checks_print_verdict(r->checks, err)
                                                    : err->status;
}

/* --- JSON --- */

static void put_loader(const struct dcpk_verdict *c, struct dcpk_json_out *j)
{
    dcpk_json_put_key(j, "loader");
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "impl", c->impl);
    dcpk_json_add_string(j, "impl_by", c->impl_by);
    dcpk_json_put_key(j, "layout");
    dcpk_json_begin_object(j);
    dcpk_json_add_int(j, "dp", c->mesh.dp);
    dcpk_json_add_int(j, "ep", c->mesh.ep);
    dcpk_json_add_int(j, "pp", c->mesh.pp);
    dcpk_json_add_int(j, "tp", c->mesh.tp);
    dcpk_json_end_object(j);
    dcpk_json_add_string(j, "optimizer", c->adam);
    dcpk_json_add_string(j, "optimizer_by", c->adam_by);
    dcpk_json_add_string(j, "release", dcpk_release_name(c->release));
    dcpk_json_add_string(j, "release_by", c->release_by);
    dcpk_json_end_object(j);
}

dcpk_status dcpk_check_report_json(const struct dcpk_check_report *r, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "checks");
    dcpk_checks_put_rows(r->checks, &j);
    dcpk_json_add_string(&j, "folder", r->folder);
    dcpk_json_add_string(&j, "format", r->ckpt->format->name);
    put_loader(r->check, &j);
    dcpk_json_put_key(&j, "loads");
    dcpk_verdict_json(r->check, r->check->loader, &j);
    dcpk_json_add_bool(&j, "ok", dcpk_checks_exit_code(r->checks) == DCPK_EXIT_OK);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

/* --- what is about to be written --- */

dcpk_status dcpk_print_verdict(const char *head, const struct dcpk_verdict *verdict,
                               struct dcpk_error *err)
{
    struct dcpk_bytes text = {.data = NULL};
    dcpk_status st;

    if (verdict->arena == NULL)
        return DCPK_OK;
    dcpk_verdict_sentence(verdict, &text);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK) {
        dcpk_cli_put_text(stdout, head);
        dcpk_cli_put_part(stdout, (const char *)text.data, text.n_bytes);
        dcpk_cli_printf(stdout, "\n");
    }
    dcpk_bytes_release(&text);
    return st;
}

void dcpk_warn_verdict(const struct dcpk_voice *voice, const struct dcpk_verdict *verdict)
{
    const struct dcpk_check_finding *f;

    if (!dcpk_verdict_is_no(verdict))
        return;
    f = dcpk_verdict_reason(verdict, DCPK_LOADS_NOT, verdict->loader);
    if (f == NULL)
        f = dcpk_verdict_reason(verdict, DCPK_LOADS_NOT, verdict->variants);
    if (f != NULL)
        dcpk_cli_note(voice, "no release of Megatron loads the result: %s %s", f->key, f->text);
}
