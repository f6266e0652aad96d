/* SPDX-License-Identifier: Apache-2.0 */
/* test_doc.c - one document as text, JSON and HTML, with names that try to be something else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/report/doc.h"
#include "tests/check.h"

/* A name and how each rendering has to show it: JSON as Python's json.dumps, HTML by the entities
 * of the HTML standard, 13.1.4; both terminals and pages show controls as \xNN. */
static const struct {
    const char *label, *name, *text, *json, *html;
} names[] = {
    {"plain", "a.weight", "a.weight", "\"a.weight\"", "a.weight"},
    {"a tag", "<script>alert(1)</script>", "<script>alert(1)</script>",
     "\"<script>alert(1)</script>\"", "&lt;script&gt;alert(1)&lt;/script&gt;"},
    {"the end of an attribute", "\" onload='x' &amp;", "\" onload='x' &amp;",
     "\"\\\" onload='x' &amp;\"", "&quot; onload=&#39;x&#39; &amp;amp;"},
    {"control characters", "a\x1b[31m\n\x7f", "a\\x1b[31m\\x0a\\x7f", "\"a\\u001b[31m\\n\\u007f\"",
     "a\\x1b[31m\\x0a\\x7f"},
    {"not UTF-8", "\xff\xc0\xaf", "\\xff\\xc0\\xaf", "\"\\ufffd\\ufffd\\ufffd\"",
     "\\xff\\xc0\\xaf"},
    {"text that turns", "\xe2\x80\xae", "\\xe2\\x80\\xae", "\"\\u202e\"", "\\xe2\\x80\\xae"},
    {"two bytes", "\xc3\xa4", "\xc3\xa4", "\"\\u00e4\"", "\xc3\xa4"},
};

static dcpk_status keep(void *to, const char *text, size_t n_bytes, struct dcpk_error *err)
{
    dcpk_bytes_put(to, text, n_bytes);
    return dcpk_bytes_status(to, err);
}

static void fill_names(const void *context, struct dcpk_doc_rows *rows)
{
    DCPK_DOC_PUT(
        rows, {.key = "name", .title = "name", .fact = dcpk_fact_text(context), .width = 4},
        {.key = "at.b", .title = "b", .fact = dcpk_fact_count(2)},
        DCPK_MEMBER("at.a", dcpk_fact_null()), dcpk_doc_member(false, "never", dcpk_fact_null()));
}

/* A fact, a record and a table of one name. */
static void build(struct dcpk_doc *doc, const char *name)
{
    dcpk_doc_init(doc, "test", &(struct dcpk_doc_style){.label_columns = 6});
    doc->title = name;
    dcpk_doc_set(doc, "z.y", dcpk_fact_absent());
    dcpk_doc_set_count(doc, "size", 3);
    dcpk_doc_fact(doc, "name", "folder", dcpk_fact_text(name));
    dcpk_doc_table(doc, "rows", &(struct dcpk_doc_table){.fill = fill_names, .context = name});
}

static char *render(const struct dcpk_doc *doc, const char *how)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes bytes = {0};
    const struct dcpk_doc_out out = {.write = keep, .to = &bytes};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 0);
    if (strcmp(how, "json") == 0)
        CHECK_OK(dcpk_doc_json(doc, &j, &err), how);
    else if (strcmp(how, "html") == 0)
        CHECK_OK(dcpk_doc_html(doc, &out, &err), how);
    else
        CHECK_OK(dcpk_doc_text(doc, &out, &err), how);
    dcpk_bytes_u8(&bytes, 0);
    CHECK_OK(dcpk_bytes_status(&bytes, &err), how);
    return (char *)bytes.data;
}

static void shows_names_as_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dcpk_doc doc;
        char wanted[512], *got;

        build(&doc, names[i].name);
        got = render(&doc, "json");
        snprintf(wanted, sizeof wanted,
                 "{\"folder\": %s, \"rows\": [{\"at\": {\"a\": null, \"b\": 2}, \"name\": %s}], "
                 "\"size\": 3, \"z\": {}}",
                 names[i].json, names[i].json);
        CHECK_EQ_STR(got, wanted, names[i].label);
        free(got);
        got = render(&doc, "text");
        snprintf(wanted, sizeof wanted, "name  %s\n%s%s  2\n", names[i].text, names[i].text,
                 strlen(names[i].name) < 3 ? "   " : "");
        CHECK_EQ_STR(got, wanted, names[i].label);
        free(got);
        got = render(&doc, "html");
        snprintf(wanted, sizeof wanted, "<dd>%s</dd>", names[i].html);
        CHECK(strstr(got, wanted) != NULL, names[i].label);
        snprintf(wanted, sizeof wanted, "<td>%s</td>", names[i].html);
        CHECK(strstr(got, wanted) != NULL, names[i].label);
        snprintf(wanted, sizeof wanted, "<title>%s</title>", names[i].html);
        CHECK(strstr(got, wanted) != NULL, names[i].label);
        CHECK(strstr(got, "<script") == strstr(got, "<script>(()"), names[i].label);
        free(got);
        dcpk_doc_release(&doc);
    }
}

/* ---- trees and bounds ---- */

static void fill_paths(const void *context, struct dcpk_doc_rows *rows)
{
    static const char *const paths[] = {"a.{0..3}.x.weight", "a.{0..3}.y", "b", "c.<d>.e"};

    (void)context;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        DCPK_DOC_PUT(rows, {.title = "key", .fact = dcpk_fact_text(paths[i])},
                     {.title = "size", .fact = dcpk_fact_bytes(100)});
}

static void folds_paths(void **state)
{
    struct dcpk_doc doc;
    char *got;

    (void)state;
    build(&doc, "tree");
    dcpk_doc_show(&doc, &(struct dcpk_doc_table){.flags = DCPK_DOC_TREE, .fill = fill_paths});
    got = render(&doc, "html");
    CHECK(strstr(
              got,
              "<summary><span class=\"name\">a.<wbr>{0..3}</span><span class=\"size\">200 bytes") !=
              NULL,
          "one node for a run of names, with the sum of its sizes");
    CHECK(strstr(got, "<span class=\"name\">x.<wbr>weight</span>") != NULL, "the rest in its leaf");
    CHECK(strstr(got, "<span class=\"name\">c.<wbr>&lt;d&gt;.<wbr>e</span>") != NULL,
          "a leaf of one row");
    free(got);
    dcpk_doc_release(&doc);
}

static void fill_many(const void *context, struct dcpk_doc_rows *rows)
{
    (void)context;
    for (uint64_t i = 0; i < DCPK_DOC_PAGE_ROWS + 7; i++)
        DCPK_DOC_PUT(rows, {.title = "key", .fact = dcpk_fact_text("key")},
                     {.title = "n", .fact = dcpk_fact_count(i)});
}

static void says_what_a_page_leaves_out(void **state)
{
    static const unsigned forms[] = {0, DCPK_DOC_TREE, DCPK_DOC_PARAGRAPHS};
    struct dcpk_doc doc;
    char *got;

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        dcpk_doc_init(&doc, "test", &(struct dcpk_doc_style){.indent = 0});
        dcpk_doc_show(&doc, &(struct dcpk_doc_table){.flags = forms[i], .fill = fill_many});
        got = render(&doc, "html");
        CHECK(strstr(got, "7 more rows are not on this page") != NULL, "bounded");
        free(got);
        dcpk_doc_release(&doc);
    }
}

/* ---- figures ---- */

/* Area of the tiles of a page, in parts of the picture; each lies inside it. */
static double tile_area(const char *html, size_t *n)
{
    double area = 0, top, right, bottom, left;

    *n = 0;
    while ((html = strstr(html, "<i class=\"c")) != NULL) {
        html = strstr(html, "inset:");
        CHECK(sscanf(html, "inset:%lf%% %lf%% %lf%% %lf%%", &top, &right, &bottom, &left) == 4,
              "a tile has a place");
        CHECK(top > -0.1 && right > -0.1 && bottom > -0.1 && left > -0.1, "a tile is inside");
        area += (100 - left - right) * (100 - top - bottom) / 1e4;
        ++*n;
    }
    return area;
}

static void draws_sizes_as_areas(void **state)
{
    struct dcpk_doc_leaf leaves[500];
    const struct dcpk_doc_treemap map = {"bytes", leaves, 500};
    struct dcpk_doc doc;
    double area;
    size_t n;
    char *got;

    (void)state;
    for (size_t i = 0; i < 500; i++)
        leaves[i] = (struct dcpk_doc_leaf){
            {i < 400 ? "<a>" : "b", i % 400 < 50 ? "\"x" : "y", i % 2 == 0 ? "k" : "l"},
            1 + i * i % 97,
            i >= 400};
    dcpk_doc_init(&doc, "test", &(struct dcpk_doc_style){.indent = 0});
    dcpk_doc_treemap(&doc, &map);
    got = render(&doc, "html");
    area = tile_area(strstr(got, "class=\"treemap\""), &n);
    CHECK(area > 0.95 && area < 1.001, "tiles fill the picture");
    CHECK(n < 410, "small ones are one");
    CHECK(strstr(got, "title=\"&lt;a&gt;, &quot;x, ") != NULL, "names are escaped");
    CHECK(strstr(got, " smaller ones: ") != NULL, "their number is said");
    free(got);
    dcpk_doc_release(&doc);
}

static void draws_numbers_as_shades(void **state)
{
    static const char *const rows[] = {"<r>", "s"}, *const columns[] = {"0", "1", "2"};
    static const struct dcpk_doc_grid_cell cells[] = {
        {0, 0, "0 \"low\""}, {0, 0, NULL},   {0, 0, NULL},
        {0.5, 0, "mid"},     {7, 0, "most"}, {0, DCPK_DOC_BAD, "nan"}};
    struct dcpk_doc doc;
    char *got;

    (void)state;
    dcpk_doc_init(&doc, "test", &(struct dcpk_doc_style){.indent = 0});
    dcpk_doc_grid(&doc, &(struct dcpk_doc_grid){"t", "c", rows, columns, 2, 3, cells, "0", "9"});
    got = render(&doc, "html");
    CHECK(strstr(got, "<tr><th>&lt;r&gt;<td class=\"s0\" title=\"0 &quot;low&quot;\"><td "
                      "colspan=\"2\"></tr>") != NULL,
          "empty cells are one");
    CHECK(strstr(got, "<tr><th>s<td class=\"s5\" title=\"mid\"><td class=\"s9\" title=\"most\"><td "
                      "class=\"bad\" title=\"nan\"></tr>") != NULL,
          "shades and tones");
    free(got);
    dcpk_doc_release(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_names_as_names),        cmocka_unit_test(folds_paths),
        cmocka_unit_test(says_what_a_page_leaves_out), cmocka_unit_test(draws_sizes_as_areas),
        cmocka_unit_test(draws_numbers_as_shades),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
