/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_card.c - dcpkit card: what is supported, each claim with its proof. */
/*
 * The claims are the cells of the tables of formats/COMPATIBILITY.md that tests/compatibility.sh
 * computes. The build embeds the page, without its backquotes.
 */
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "tools/cmd.h"
#include "tools/help.h"
#include "tools/print_doc.h"

#define NAME      "card"
#define MAX_CELLS 8
#define COMPUTED  "<!-- computed -->"
#define HEADING   "## "
#define RULE      "|-"
#define LEVELS    "| level |"

struct part {
    const char *text;
    size_t n_bytes;
};

static bool part_is(const struct part *part, const char *word)
{
    return strlen(word) == part->n_bytes && memcmp(part->text, word, part->n_bytes) == 0;
}

static struct dcpk_fact part_fact(const struct part *part)
{
    return dcpk_fact_part(part->text, part->n_bytes);
}

/* The cells of a row of a table. Returns their number, 0: it is none. */
static size_t row_split(const char *line, struct part cells[MAX_CELLS])
{
    size_t n = 0;

    while (n < MAX_CELLS && *line == '|' && line[1] != '\0') {
        struct part *cell = &cells[n++];

        line += 1 + strspn(line + 1, " ");
        cell->text = line;
        cell->n_bytes = strcspn(line, "|");
        line += cell->n_bytes;
        while (cell->n_bytes > 0 && cell->text[cell->n_bytes - 1] == ' ')
            cell->n_bytes--;
    }
    return n;
}

/* ---- levels of proof: the first table of the page ---- */

/* Walks over the levels: *line is NULL before the first. Returns false after the last. */
static bool level_next(const char *const **line, struct part cells[MAX_CELLS])
{
    if (*line == NULL) {
        for (*line = dcpk_compatibility; !dcpk_starts_with(**line, LEVELS); (*line)++)
            continue;
        ++*line; /* the rule below the titles */
    }
    ++*line;
    return row_split(**line, cells) == 3;
}

static void fill_levels(const void *context, struct dcpk_doc_rows *rows)
{
    const char *const *line = NULL;
    struct part cells[MAX_CELLS];

    (void)context;
    while (level_next(&line, cells))
        DCPK_DOC_PUT(rows,
                     {"level", "level", .fact = part_fact(&cells[0]), .flags = DCPK_DOC_MEASURED},
                     {"means", "means", .fact = part_fact(&cells[1])},
                     DCPK_MEMBER("where", part_fact(&cells[2])));
}

/* ---- claims ---- */

struct claim {
    struct part name, what, proof; /* of a row, its column, the cell */
    struct part level, releases;   /* of the proof; releases: empty: none is named */
};

/* Splits "GPU run (0.16.1, main)". Returns false where it is not a proof. */
static bool claim_split(struct claim *claim)
{
    const char *open = memchr(claim->proof.text, '(', claim->proof.n_bytes);
    const char *const *line = NULL;
    struct part cells[MAX_CELLS];

    claim->level = claim->proof;
    claim->releases = (struct part){"", 0};
    if (open != NULL && open > claim->proof.text) {
        claim->level.n_bytes = (size_t)(open - claim->proof.text) - 1;
        claim->releases = (struct part){open + 1, claim->proof.n_bytes - claim->level.n_bytes - 3};
    }
    while (level_next(&line, cells))
        if (cells[0].n_bytes == claim->level.n_bytes &&
            memcmp(cells[0].text, claim->level.text, claim->level.n_bytes) == 0)
            return true;
    return part_is(&claim->level, "no") || part_is(&claim->level, "not tried");
}

static void claim_releases_put(const void *context, struct dcpk_json_out *j)
{
    const struct part *list = context;

    dcpk_json_begin_array(j);
    for (size_t at = 0, n; at < list->n_bytes; at += n + 2) {
        for (n = 0; at + n < list->n_bytes && list->text[at + n] != ',';)
            n++;
        dcpk_json_put_text(j, list->text + at, n);
    }
    dcpk_json_end_array(j);
}

static void claim_put(struct dcpk_doc_rows *rows, const char *area, const struct claim *claim)
{
    char text[512];

    snprintf(text, sizeof text, "%.*s, %.*s: %.*s", (int)claim->name.n_bytes, claim->name.text,
             (int)claim->what.n_bytes, claim->what.text, (int)claim->proof.n_bytes,
             claim->proof.text);
    DCPK_DOC_PUT(rows, {.title = "claim", .fact = dcpk_fact_text(text)},
                 DCPK_MEMBER("area", dcpk_fact_text(area)),
                 DCPK_MEMBER("level", part_fact(&claim->level)),
                 DCPK_MEMBER("name", part_fact(&claim->name)),
                 DCPK_MEMBER("releases", dcpk_fact_json(claim_releases_put, &claim->releases)),
                 DCPK_MEMBER("what", part_fact(&claim->what)));
}

/* The name of a row: its first cell before ':' or " (". */
static struct part row_name(struct part cell)
{
    for (size_t i = 0; i < cell.n_bytes; i++)
        if (cell.text[i] == ':' || (i > 0 && cell.text[i] == '(')) {
            cell.n_bytes = cell.text[i] == ':' ? i : i - 1;
            break;
        }
    return cell;
}

/* Puts the claims of an area, the text of a heading; NULL: all. */
static void fill_claims(const void *context, struct dcpk_doc_rows *rows)
{
    const char *wanted = context, *area = "";
    struct part heads[MAX_CELLS], cells[MAX_CELLS];
    size_t n_heads = 0;
    bool is_computed = false;

    for (const char *const *line = dcpk_compatibility; *line != NULL; line++) {
        size_t n = row_split(*line, cells);

        if (dcpk_starts_with(*line, HEADING))
            area = *line + strlen(HEADING);
        if (strcmp(*line, COMPUTED) == 0) {
            n_heads = row_split(*++line, heads);
            is_computed = true;
            continue;
        }
        is_computed = is_computed && n > 0;
        if (!is_computed || dcpk_starts_with(*line, RULE) ||
            (wanted != NULL && strcmp(wanted, area) != 0))
            continue;
        for (size_t i = 1; i < n && i < n_heads; i++) {
            struct claim claim = {.name = row_name(cells[0]), .what = heads[i], .proof = cells[i]};

            if (claim_split(&claim))
                claim_put(rows, area, &claim);
        }
    }
}

/* ---- the command ---- */

static const struct dcpk_doc_style style = {.label_columns = 12};

static dcpk_status card_print(const struct dcpk_print_options *way, struct dcpk_error *err)
{
    const struct dcpk_doc_table levels = {.indent = 2, .fill = fill_levels};
    struct dcpk_doc_table claims = {.flags = DCPK_DOC_PARAGRAPHS, .indent = 2, .fill = fill_claims};
    struct dcpk_doc doc;
    const char *area = NULL;

    dcpk_doc_init(&doc, NAME, &style);
    dcpk_doc_heading(&doc, "levels of proof");
    dcpk_doc_table(&doc, "levels", &levels);
    dcpk_doc_set_table(&doc, "claims", &claims);
    for (const char *const *line = dcpk_compatibility; *line != NULL; line++) {
        if (dcpk_starts_with(*line, HEADING))
            area = *line + strlen(HEADING);
        if (strcmp(*line, COMPUTED) != 0)
            continue;
        dcpk_doc_heading(&doc, area);
        claims.context = area;
        dcpk_doc_show(&doc, &claims);
    }
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, way, err);
}

#define DCPK_OPT_STRUCT struct dcpk_print_options
static const struct dcpk_option option_rows[] = {DCPK_OPT_JSON(as_json), DCPK_OPT_END};

static int card_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    (void)args;
    (void)card_print(values, err);
    return DCPK_EXIT_OK;
}

static struct dcpk_print_options values;
const struct dcpk_cli dcpk_cmd_card = {
    .name = NAME,
    .usage = "[options]",
    .summary = "Print what is supported: each format, optimizer layout and model family, with "
               "the best proof of it and the releases of Megatron that it was shown with.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit card",
    .paths = DCPK_CLI_NO_PATHS,
    .run = card_main,
};
