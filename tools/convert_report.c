/* SPDX-License-Identifier: Apache-2.0 */
/* convert_report.c - prints what a conversion does or did. */
#include "tools/convert_report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/path.h"
#include "lib/ckpt/generation.h"
#include "lib/io/file.h"
#include "tools/check_report.h"
#include "tools/cmd.h"
#include "tools/run_args.h"

#define MAX_REASONS 64

/* What was left out for one reason. */
struct reason {
    struct dcpk_report_loss first;
    uint64_t n;
};

struct reasons {
    struct reason list[MAX_REASONS];
    size_t n;
    uint64_t n_more; /* keys left out for reasons past MAX_REASONS */
};

static bool collect(void *context, const struct dcpk_report_loss *loss)
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

/* "    16 x <key>, ...: <reason>" */
static dcpk_status print_reason(const struct reason *reason, struct dcpk_error *err)
{
    const struct dcpk_report_loss *loss = &reason->first;
    struct dcpk_bytes line = {0};
    dcpk_status st;

    dcpk_bytes_printf(&line, "%" PRIu64 " x ", reason->n);
    dcpk_bytes_put(&line, loss->key, loss->key_bytes);
    dcpk_bytes_printf(&line, "%s: %s", reason->n > 1 ? ", ..." : "", loss->reason);
    st = dcpk_bytes_status(&line, err);
    if (st == DCPK_OK) {
        dcpk_cli_printf(stdout, "    ");
        dcpk_cli_put_wrapped(stdout, (const char *)line.data, line.n_bytes, 4, 8);
        dcpk_cli_printf(stdout, "\n");
    }
    dcpk_bytes_release(&line);
    return st;
}

/* What a person should look at stands last, nearest to the prompt. */
static dcpk_status print_losses(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    static const char *const titles[] = {"left out, and not missed:",
                                         "left out, have a look at it:"};
    struct reasons r = {.n = 0};

    dcpk_report_each_loss(c, collect, &r);
    for (size_t group = 0; group < 2; group++) {
        bool has_title = false;

        for (size_t i = 0; i < r.n; i++) {
            if (r.list[i].first.is_harmless != (group == 0))
                continue;
            if (!has_title)
                dcpk_cli_printf(stdout, "  %s\n", titles[group]);
            has_title = true;
            if (print_reason(&r.list[i], err) != DCPK_OK)
                return err->status;
        }
    }
    if (r.n_more > 0)
        dcpk_cli_printf(stdout,
                        "  left out   %" PRIu64
                        " more keys for other reasons (the JSON report has all)\n",
                        r.n_more);
    return DCPK_OK;
}

static void print_note(const char *text)
{
    dcpk_cli_printf(stdout, "  note       ");
    dcpk_cli_put_wrapped(stdout, text, strlen(text), 13, 13);
    dcpk_cli_printf(stdout, "\n");
}

static void print_notes(const struct dcpk_conversion *c)
{
    for (const struct dcpk_out_event *event = c->out->events; event != NULL; event = event->next)
        if (event->kind == DCPK_EVENT_NOTE)
            print_note(event->text);
    for (const struct dcpk_note *note = c->ckpt->notes; note != NULL; note = note->next)
        print_note(note->text);
}

/*
 * Last: what a run has to be given to load it (formats/fsdp_dtensor/FORMAT.md 9,
 * formats/torch_dist/FORMAT.md 7).
 */
static void print_load(const struct dcpk_conversion *c)
{
    const unsigned needs = c->out->load_needs;

    if ((needs & (DCPK_LOAD_WITHOUT_OPTIM | DCPK_LOAD_WITHOUT_RNG)) != 0)
        dcpk_cli_printf(stdout, "  to load    add%s%s\n",
                        (needs & DCPK_LOAD_WITHOUT_OPTIM) != 0 ? " --no-load-optim" : "",
                        (needs & DCPK_LOAD_WITHOUT_RNG) != 0 ? " --no-load-rng" : "");
    if ((needs & DCPK_LOAD_WITH_EP) != 0)
        dcpk_cli_printf(
            stdout,
            "  to load    with --expert-model-parallel-size above 1; for a run without, convert\n"
            "             with --target-mesh ep=1\n");
    if ((needs & DCPK_LOAD_WITHOUT_EP) != 0)
        dcpk_cli_printf(
            stdout,
            "  to load    with --expert-model-parallel-size 1; for a run with more, convert with\n"
            "             --target-mesh ep=N\n");
}

/* ", 400 rows of vocabulary where it has 256, those added are zero", or "" when it has as many. */
static const char *vocab_text(const struct dcpk_compare_report *report, char text[128])
{
    const int64_t ours = report->vocab_rows[0], theirs = report->vocab_rows[1];

    text[0] = '\0';
    if (ours != theirs)
        snprintf(text, 128, ", %" PRId64 " rows of vocabulary where it has %" PRId64 ", those %s",
                 ours, theirs, ours > theirs ? "added are zero" : "cut are of no token");
    return text;
}

/* "all its 124 tensors and 57 objects are accounted for, 2 and 5 of them left out". */
static const char *left_text(const struct dcpk_left *left, char text[192])
{
    int n =
        snprintf(text, 192, "all its %" PRIu64 " tensors and %" PRIu64 " objects are accounted for",
                 left->n_tensors, left->n_objects);

    if (left->n_tensors_left > 0 || left->n_objects_left > 0)
        snprintf(text + n, 192 - (size_t)n, ", %" PRIu64 " and %" PRIu64 " of them left out",
                 left->n_tensors_left, left->n_objects_left);
    return text;
}

const char *dcpk_proof_text(const struct dcpk_compare_report *report,
                            char text[DCPK_PROOF_TEXT_BYTES])
{
    char size[DCPK_SIZE_TEXT_BYTES], vocab[128], left[192];

    snprintf(text, DCPK_PROOF_TEXT_BYTES,
             "%" PRIu64 " parameters, %" PRIu64 " tensors, %s, %" PRIu64
             " weights against their rounded masters, %" PRIu64 " values%s; %s",
             report->n_params, report->n_tensors, dcpk_cli_size(report->tensor_bytes, size),
             report->n_masters, report->n_values, vocab_text(report, vocab),
             left_text(&report->left, left));
    return text;
}

static void print_time(const struct dcpk_conversion *c)
{
    const uint64_t n_bytes = c->stats.written_bytes + c->compared_bytes; /* one of them is 0 */
    char a[DCPK_SIZE_TEXT_BYTES], b[DCPK_SIZE_TEXT_BYTES];

    dcpk_cli_printf(stdout, "  time       %.3f s, %.2f GB/s (read %s, %s %s)\n", c->stats.seconds,
                    (double)n_bytes / 1e9 / (c->stats.seconds > 0 ? c->stats.seconds : 1e-9),
                    dcpk_cli_short_size(c->stats.read_bytes, a),
                    c->is_complete ? "equal to what is there:" : "wrote",
                    dcpk_cli_short_size(n_bytes, b));
}

/* What was written beside the data files. */
static void print_files(const struct dcpk_conversion *c, const struct dcpk_convert_files *files,
                        bool dry_run)
{
    if (!dry_run && c->target.fate == DCPK_TRACKER_WRITTEN)
        dcpk_cli_printf(stdout, "  tracker    %s: %s\n", c->target.tracker, c->target.tracker_text);
    if (!dry_run && files->hashes != NULL)
        dcpk_cli_printf(stdout, "  hashes     %s\n", files->hashes);
    if (files->report != NULL)
        dcpk_cli_printf(stdout, "  report     %s\n", files->report);
}

dcpk_status dcpk_print_conversion(const struct dcpk_conversion *c,
                                  const struct dcpk_convert_files *files, bool dry_run,
                                  struct dcpk_error *err)
{
    const struct dcpk_plan_totals *t = &c->totals;
    struct dcpk_report_counts n;
    char a[DCPK_SIZE_TEXT_BYTES], proof[DCPK_PROOF_TEXT_BYTES];
    char words[DCPK_TRACKER_WORDS_BYTES];
    char generation[DCPK_GENERATION_TEXT_BYTES];

    dcpk_report_count(c, &n);
    dcpk_generation_text(c->ckpt, generation);
    dcpk_cli_printf(
        stdout, "%s %s%s%s -> %s\n", dcpk_deed(&c->target, dry_run, "would convert", "converted"),
        c->ckpt->format->name, *generation == '\0' ? "" : " ", generation, c->options->to->name);
    dcpk_cli_printf(stdout, "  from       %s\n  to         %s%s\n", c->source.folder,
                    c->target.folder, dcpk_tracker_words(&c->target, words));
    dcpk_cli_printf(stdout,
                    "  tensors    %" PRIu64 " (%s) in %" PRIu64 " chunks of %" PRIu64
                    " pieces, under %" PRIu64 " keys\n",
                    t->n_tensors, dcpk_cli_short_size(t->tensor_bytes, a), t->n_chunks, t->n_pieces,
                    t->n_keys);
    dcpk_cli_printf(stdout, "  objects    %" PRIu64 " keys for %" PRIu64 " items\n", t->n_objects,
                    t->n_payloads);
    dcpk_cli_printf(stdout, "  files      %" PRIu64 " of %s together\n", t->n_files,
                    dcpk_cli_short_size(t->file_bytes, a));
    if (dry_run)
        dcpk_cli_printf(stdout, "  memory     %s for the plan; --memory bounds the rest\n",
                        dcpk_cli_short_size(t->metadata_bytes, a));
    else
        print_time(c);
    if (c->resumed_bytes > 0)
        dcpk_cli_printf(stdout, "  resumed    %s were written by an earlier run\n",
                        dcpk_cli_short_size(c->resumed_bytes, a));
    dcpk_cli_printf(stdout,
                    "  keys       %" PRIu64 " kept, %" PRIu64 " renamed, %" PRIu64 " made, %" PRIu64
                    " cast, %" PRIu64 " aliased, %" PRIu64 " left out\n",
                    n.kept, n.renamed, n.made, n.cast, n.aliased, n.dropped);
    if (c->proof.n_params > 0)
        dcpk_cli_printf(stdout, "  verified   equal to the input: %s\n",
                        dcpk_proof_text(&c->proof, proof));
    if (dcpk_print_verdict("  loads in   ", &c->verdict, err) != DCPK_OK)
        return err->status;
    print_files(c, files, dry_run);
    print_notes(c);
    if (print_losses(c, err) != DCPK_OK)
        return err->status;
    print_load(c);
    return dcpk_cli_flush(err);
}

dcpk_status dcpk_write_conversion(const struct dcpk_conversion *c, const char *path,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    dcpk_status st;

    dcpk_json_out_init(&j, &bytes, 2);
    st = dcpk_report_json(c, &j, err);
    if (st == DCPK_OK && path == NULL)
        return dcpk_cli_print_bytes(&bytes, err);
    if (st == DCPK_OK) {
        dcpk_bytes_text(&bytes, "\n");
        st = dcpk_bytes_status(&bytes, err);
    }
    if (st == DCPK_OK)
        st = dcpk_file_write(path, DCPK_FILE_INTO, bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}

dcpk_status dcpk_check_file_path(const char *what, const char *path, bool may_replace,
                                 struct dcpk_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct dcpk_path there;

    if (strlen(path) >= sizeof folder)
        return dcpk_fail(err, DCPK_EUSAGE, "the path of the %s is too long", what);
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1,
             slash == NULL ? "." : path);
    if (access(folder, W_OK | X_OK) != 0)
        return dcpk_fail_errno(err, errno, "the %s '%s' cannot be written", what, path);
    if (dcpk_path_look(AT_FDCWD, path, 0, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind == DCPK_PATH_FILE && !may_replace)
        return dcpk_fail(err, DCPK_EUSAGE, "the %s '%s' exists (--force replaces it)", what, path);
    return DCPK_OK;
}
