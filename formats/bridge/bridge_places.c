/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_places.c - where the settings of a configuration stand, for edits of its text. */
#include <string.h>

#include "formats/bridge/bridge_priv.h"

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

    if (dcpk_bridge_load(text, n_bytes, &p.document, err) != DCPK_OK)
        return err->status;
    root = yaml_document_get_root_node(&p.document);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        dcpk_fail(err, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    else
        (void)take_mapping(&p, NULL, root, err);
    yaml_document_delete(&p.document);
    return err->status;
}
