/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_yaml.c - libyaml's document as inert values, bounded in depth and number. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "formats/formats.h"
#include "lib/base/map.h"

#define MAX_DEPTH   64
#define MAX_VALUES  100000 /* of a configuration; an alias counts as often as it stands there */
#define MAX_ANCHORS 1000   /* libyaml looks at all of them for each */

struct reading {
    yaml_document_t document;
    struct dcpk_arena *arena;
    size_t n_values;
};

/* Counts over a text. */
struct counts {
    int depth;
    size_t n_events, n_anchors;
};

static dcpk_status bad_syntax(const yaml_parser_t *parser, struct dcpk_error *err)
{
    const char *problem = parser->problem;

    if (parser->error == YAML_MEMORY_ERROR)
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for YAML");
    if (problem == NULL)
        problem = "no YAML";
    return dcpk_fail(err, DCPK_EFORMAT, "YAML, line %zu, column %zu: %s",
                     parser->problem_mark.line + 1, parser->problem_mark.column + 1, problem);
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* "12", "-3", and not "0x1f", "1_000" or "007", which stay text. */
static bool parse_int(const char *text, int64_t *number)
{
    const char *digits = text + (*text == '-' || *text == '+');
    char *end;

    if (*digits < '0' || *digits > '9' || (*digits == '0' && digits[1] != '\0'))
        return false;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* "1.0e-05", "1e-5", ".5", ".inf", "-.inf", ".nan". */
static bool parse_float(const char *text, double *number)
{
    static const char *const infinite[] = {".inf", "+.inf", ".Inf", ".INF", NULL};
    static const char *const negative[] = {"-.inf", "-.Inf", "-.INF", NULL};
    static const char *const nan[] = {".nan", ".NaN", ".NAN", NULL};
    char *end;

    if (is_one_of(text, infinite)) {
        *number = (double)INFINITY;
        return true;
    }
    if (is_one_of(text, negative)) {
        *number = -(double)INFINITY;
        return true;
    }
    if (is_one_of(text, nan)) {
        *number = (double)NAN;
        return true;
    }
    if (text[strspn(text, "0123456789+-.eE")] != '\0' || strpbrk(text, "0123456789") == NULL)
        return false;
    *number = strtod(text, &end);
    return *end == '\0' && isfinite(*number);
}

static const struct dcpk_value *plain_value(const struct reading *r, const char *text,
                                            struct dcpk_error *err)
{
    static const char *const none[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    int64_t i;
    double f;

    if (is_one_of(text, none))
        return dcpk_value_none();
    if (is_one_of(text, yes) || is_one_of(text, no))
        return dcpk_value_bool(is_one_of(text, yes));
    if (parse_int(text, &i))
        return dcpk_value_int(r->arena, i, err);
    if (parse_float(text, &f))
        return dcpk_value_float(r->arena, f, err);
    return dcpk_value_str(r->arena, text, err);
}

static dcpk_status read_scalar(const struct reading *r, const yaml_node_t *node,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    const char *text = (const char *)node->data.scalar.value;

    if (strlen(text) != node->data.scalar.length)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "YAML, line %zu: a text holds a NUL",
                         node->start_mark.line + 1);
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        *value = plain_value(r, text, err);
    else
        *value = dcpk_value_str(r->arena, text, err);
    return dcpk_made(*value, err);
}

static dcpk_status read_node(struct reading *r, int index, int depth,
                             const struct dcpk_value **value, struct dcpk_error *err);

static dcpk_status read_sequence(struct reading *r, const yaml_node_t *node, int depth,
                                 const struct dcpk_value **value, struct dcpk_error *err)
{
    const size_t n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    const struct dcpk_value **items = dcpk_arena_array(r->arena, n, sizeof *items, err);

    if (items == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (read_node(r, node->data.sequence.items.start[i], depth + 1, &items[i], err) != DCPK_OK)
            return err->status;
    *value = dcpk_value_seq(r->arena, DCPK_V_LIST, items, n, err);
    return dcpk_made(*value, err);
}

/* As of JSON: which of two values counts is not for a reader to choose. */
static dcpk_status check_keys_differ(const struct dcpk_value_pair *pairs, size_t n, size_t line,
                                     struct dcpk_error *err)
{
    struct dcpk_map seen = {0};

    for (size_t i = 0; err->status == DCPK_OK && i < n; i++) {
        const char *key = dcpk_value_as_str(pairs[i].key);
        uint64_t found;
        bool existed = false;

        if (key != NULL)
            (void)dcpk_map_put(&seen, key, strlen(key), 0, &existed, &found, err);
        if (existed)
            (void)dcpk_fail(err, DCPK_EFORMAT, "YAML, line %zu: a mapping has key '%s' twice", line,
                            key);
    }
    dcpk_map_release(&seen);
    return err->status;
}

static dcpk_status read_mapping(struct reading *r, const yaml_node_t *node, int depth,
                                const struct dcpk_value **value, struct dcpk_error *err)
{
    const yaml_node_pair_t *from = node->data.mapping.pairs.start;
    const size_t n = (size_t)(node->data.mapping.pairs.top - from);
    struct dcpk_value_pair *pairs = dcpk_arena_array(r->arena, n, sizeof *pairs, err);

    if (pairs == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (read_node(r, from[i].key, depth + 1, &pairs[i].key, err) ||
            read_node(r, from[i].value, depth + 1, &pairs[i].value, err))
            return err->status;
    if (check_keys_differ(pairs, n, node->start_mark.line + 1, err) != DCPK_OK)
        return err->status;
    *value = dcpk_value_dict(r->arena, pairs, n, err);
    return dcpk_made(*value, err);
}

/* Bounded by MAX_DEPTH, also where an alias leads back. */
static dcpk_status read_node(struct reading *r, int index, int depth,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);

    if (node == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "YAML: there is no document");
    if (depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_ERANGE, "YAML, line %zu: nested deeper than %d",
                         node->start_mark.line + 1, MAX_DEPTH);
    if (r->n_values++ == MAX_VALUES)
        return dcpk_fail(err, DCPK_ERANGE, "YAML: it has more than %d values, aliases followed",
                         MAX_VALUES);
    switch (node->type) {
    case YAML_SCALAR_NODE:
        return read_scalar(r, node, value, err);
    case YAML_SEQUENCE_NODE:
        return read_sequence(r, node, depth, value, err);
    case YAML_MAPPING_NODE:
        return read_mapping(r, node, depth, value, err);
    case YAML_NO_NODE:
        break;
    }
    return dcpk_fail(err, DCPK_EFORMAT, "YAML: a node of no kind");
}

/* Count one event of the text. */
static dcpk_status count_event(const yaml_event_t *event, struct counts *c, struct dcpk_error *err)
{
    const size_t line = event->start_mark.line + 1;
    const yaml_char_t *anchor = NULL;

    if (event->type == YAML_SEQUENCE_START_EVENT)
        anchor = event->data.sequence_start.anchor;
    else if (event->type == YAML_MAPPING_START_EVENT)
        anchor = event->data.mapping_start.anchor;
    else if (event->type == YAML_SCALAR_EVENT)
        anchor = event->data.scalar.anchor;
    c->depth += event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT;
    c->depth -= event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT;
    c->n_anchors += anchor != NULL;
    c->n_events++;
    if (c->depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_ERANGE, "YAML, line %zu: nested deeper than %d", line,
                         MAX_DEPTH);
    if (c->n_anchors > MAX_ANCHORS)
        return dcpk_fail(err, DCPK_ERANGE, "YAML, line %zu: more than %d anchors", line,
                         MAX_ANCHORS);
    if (c->n_events > 2 * MAX_VALUES)
        return dcpk_fail(err, DCPK_ERANGE, "YAML, line %zu: it has more than %d values", line,
                         MAX_VALUES);
    return DCPK_OK;
}

/* The events up to the end of the first document: no other is read. */
static dcpk_status count_events(yaml_parser_t *parser, struct dcpk_error *err)
{
    struct counts counts = {0};
    yaml_event_t event;
    bool is_last = false;

    while (!is_last && err->status == DCPK_OK) {
        if (!yaml_parser_parse(parser, &event))
            return bad_syntax(parser, err);
        is_last = event.type == YAML_STREAM_END_EVENT || event.type == YAML_DOCUMENT_END_EVENT;
        (void)count_event(&event, &counts, err);
        yaml_event_delete(&event);
    }
    return err->status;
}

/*
 * The text's depth and numbers are bounded before a document is made of it: libyaml has no limits
 * of its own, takes hundreds of bytes for one of the text, and quadratic time for anchors.
 */
static dcpk_status check_events(const char *text, size_t n_bytes, struct dcpk_error *err)
{
    yaml_parser_t parser;

    if (!yaml_parser_initialize(&parser))
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for YAML");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
    (void)count_events(&parser, err);
    yaml_parser_delete(&parser);
    return err->status;
}

/* Load the first document within the limits of dcpk_bridge_parse; the caller deletes it. Errors: as
 * there. */
static dcpk_status load_document(const char *text, size_t n_bytes, yaml_document_t *document,
                                 struct dcpk_error *err)
{
    yaml_parser_t parser;

    if (check_events(text, n_bytes, err))
        return err->status;
    if (!yaml_parser_initialize(&parser))
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory for YAML");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
    if (!yaml_parser_load(&parser, document))
        (void)bad_syntax(&parser, err);
    yaml_parser_delete(&parser);
    return err->status;
}

dcpk_status dcpk_bridge_parse(const char *text, size_t n_bytes, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    struct reading r = {.arena = arena};

    if (load_document(text, n_bytes, &r.document, err) != DCPK_OK)
        return err->status;
    (void)read_node(&r, 1, 0, value, err);
    yaml_document_delete(&r.document);
    return err->status;
}

/* ---- settings with their places ---- */

struct places {
    yaml_document_t document;
    const char *text;
    size_t n_bytes;
    size_t index, at; /* a character's number, and its first byte */
    struct dcpk_settings *list;
};

/* The byte after a byte order mark. */
static size_t begin_of(const struct places *p)
{
    return p->n_bytes >= 3 && memcmp(p->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* The byte of a mark. libyaml counts characters, without a byte order mark. */
static size_t byte_of(struct places *p, const yaml_mark_t *mark)
{
    if (mark->index < p->index) {
        p->index = 0;
        p->at = begin_of(p);
    }
    for (; p->index < mark->index && p->at < p->n_bytes; p->index++)
        do
            p->at++;
        while (p->at < p->n_bytes && ((unsigned char)p->text[p->at] & 0xC0) == 0x80);
    return p->at;
}

/* The end of a value. That of a block is where the next token begins: blanks and comments before it
 * are no part of it. */
static size_t end_of(struct places *p, const yaml_node_t *node)
{
    const size_t begin = byte_of(p, &node->start_mark);
    size_t end = byte_of(p, &node->end_mark), line;

    if (node->type == YAML_SCALAR_NODE)
        return end;
    for (;;) {
        while (end > begin && strchr(" \t\r\n", p->text[end - 1]) != NULL)
            end--;
        for (line = end; line > begin && p->text[line - 1] != '\n';)
            line--;
        if (p->text[line + strspn(p->text + line, " \t")] != '#')
            return end;
        end = line;
    }
}

static const char *scalar_of(const yaml_node_t *node)
{
    if (node == NULL || node->type != YAML_SCALAR_NODE)
        return NULL;
    return (const char *)node->data.scalar.value;
}

/* The text of a scalar as a flag has it. NULL: None. */
static const char *text_of(const yaml_node_t *node)
{
    static const char *const words[][2] = {
        {"True", "true"}, {"yes", "true"}, {"on", "true"}, {"False", "false"}, {"no", "false"},
        {"off", "false"}, {"null", NULL},  {"None", NULL}, {"~", NULL},        {"", NULL}};
    const char *text = scalar_of(node);

    if (text == NULL || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return text;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i][0]) == 0)
            return words[i][1];
    return text;
}

static dcpk_status take_setting(struct places *p, const char *section, const yaml_node_t *key,
                                const yaml_node_t *value, struct dcpk_error *err)
{
    struct dcpk_arena *arena = p->list->arena;
    struct dcpk_setting setting = {.section = section};

    if (value->start_mark.index < key->end_mark.index)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "YAML, line %zu: the value of '%s' is an alias; write it out",
                         key->start_mark.line + 1, scalar_of(key));
    setting.name = dcpk_arena_strdup(arena, scalar_of(key), err);
    setting.begin = setting.value = byte_of(p, &value->start_mark);
    setting.end = end_of(p, value);
    if (value->type != YAML_SCALAR_NODE)
        setting.text =
            dcpk_arena_strndup(arena, p->text + setting.begin, setting.end - setting.begin, err);
    else if (text_of(value) != NULL)
        setting.text = dcpk_arena_strdup(arena, text_of(value), err);
    if (err->status != DCPK_OK)
        return err->status;
    return dcpk_settings_add(p->list, &setting, err);
}

/* A mapping, or nothing after a key. */
static bool is_section(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE ||
           (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
            node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
}

/* Lists a mapping: the whole text, with its sections, or a section. */
static dcpk_status take_mapping(struct places *p, const char *section, const yaml_node_t *node,
                                struct dcpk_error *err)
{
    const bool is_mapping = node->type == YAML_MAPPING_NODE;
    const yaml_node_pair_t *pair = is_mapping ? node->data.mapping.pairs.start : NULL;
    const yaml_node_pair_t *const end = is_mapping ? node->data.mapping.pairs.top : NULL;
    struct dcpk_setting_room room = {.section = section,
                                     .is_flow = is_mapping &&
                                                node->data.mapping.style == YAML_FLOW_MAPPING_STYLE,
                                     .is_empty = pair == end,
                                     .at = byte_of(p, &node->start_mark)};

    room.end = end_of(p, node);
    if (!room.is_empty) {
        const yaml_node_t *first = yaml_document_get_node(&p->document, pair->key);

        room.at = byte_of(p, &first->start_mark);
        while (room.indent < room.at && strchr(" \t", p->text[room.at - room.indent - 1]) != NULL)
            room.indent++;
        room.has_line =
            room.at - room.indent == begin_of(p) || p->text[room.at - room.indent - 1] == '\n';
    }
    if (dcpk_settings_add_room(p->list, &room, err) != DCPK_OK)
        return err->status;
    for (; pair < end; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&p->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&p->document, pair->value);
        const char *name = scalar_of(key);

        if (name == NULL || *name == '_')
            continue;
        if (section == NULL && is_section(value)) {
            name = dcpk_arena_strdup(p->list->arena, name, err);
            if (name == NULL || take_mapping(p, name, value, err) != DCPK_OK)
                return err->status;
        } else if (take_setting(p, section, key, value, err) != DCPK_OK) {
            return err->status;
        }
    }
    return DCPK_OK;
}

dcpk_status dcpk_bridge_settings(const char *text, size_t n_bytes, struct dcpk_settings *list,
                                 struct dcpk_error *err)
{
    struct places p = {.text = text, .n_bytes = n_bytes, .list = list, .index = SIZE_MAX};
    const yaml_node_t *root;

    if (load_document(text, n_bytes, &p.document, err) != DCPK_OK)
        return err->status;
    root = yaml_document_get_root_node(&p.document);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    else
        (void)take_mapping(&p, NULL, root, err);
    yaml_document_delete(&p.document);
    return err->status;
}
