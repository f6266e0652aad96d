/* SPDX-License-Identifier: Apache-2.0 */
/* migrate_flags.c - flags in a shell script or a list, where they stand, and edits of them. */
/*
 * A flag is a word that begins with two dashes, also in an array or a quoted text of flags. Its
 * value is the next word. Everything that is not edited keeps its bytes: comments, variables,
 * conditions.
 */
#include <ctype.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/knobs/migrate.h"

#define BLANKS       " \t\r\n"
#define ENDS         BLANKS ";|&()`"
#define QUOTES       "\"'`" /* that flags may be in */
#define MAX_DEPTH    4      /* of variables in variables */
#define MAX_NESTED   4096   /* bytes of a command in a word */
#define MAX_BRACKETS 64     /* open ones in it */
/* Switches whose default is not that of their knob: Megatron has biases on, the others off. */
#define OTHER_DEFAULT "swiglu add_bias_linear tp_comm_overlap_rs_dgrad attention_softmax_in_fp32"
/* Knobs whose default a release of Megatron does not have, or computes of other args. */
#define NO_DEFAULT                                                                                 \
    "data_parallel_sharding_strategy dataloader_type expert_tensor_parallel_size ffn_hidden_size " \
    "global_batch_size kv_channels lr lr_decay_iters max_position_embeddings "                     \
    "megatron_fsdp_main_grads_dtype moe_ffn_hidden_size num_query_groups rope_type vocab_size"

/* ---- words ---- */

struct scan {
    const char *text;
    size_t n_bytes, at;
    char quote; /* of the text of flags that `at` is in; 0: none */
    struct dcpk_settings *list, variables;
};

static bool scan_is_flag(const struct scan *s, size_t at)
{
    return at + 2 < s->n_bytes && memcmp(s->text + at, "--", 2) == 0 &&
           isalpha((unsigned char)s->text[at + 2]);
}

/* The quote or bracket that closes the one at the begin of n bytes, with those inside counted, and
 * the quoted texts of a command left out. NULL: there is none near. */
static const char *scan_closing(const char *text, size_t n_bytes)
{
    static const char pairs[] = "(){}``";
    const char open = *text, close = strchr(pairs, open)[1];
    const char *const end = text + dcpk_min_size(n_bytes, MAX_NESTED), *quote;
    size_t depth = 1;

    for (const char *c = text + 1; c < end; c++)
        if (*c == '\\')
            c++;
        else if (*c == close && --depth == 0)
            return c;
        else if (*c == open && ++depth > MAX_BRACKETS)
            return NULL;
        else if ((*c == '"' || *c == '\'') && open != '{' &&
                 (quote = memchr(c + 1, *c, (size_t)(end - c) - 1)) != NULL)
            c = quote;
    return NULL;
}

/* The byte after what text[at] opens: a quoted text, `...`, ${...} or $(...); at + 1 for other
 * bytes. */
static size_t scan_skip(const struct scan *s, size_t at)
{
    const char c = s->text[at], next = at + 1 < s->n_bytes ? s->text[at + 1] : '\0';
    const char *end = NULL;

    if (c == '\\' && next != '\0')
        return at + 2;
    if (c == '"' || c == '\'')
        end = memchr(s->text + at + 1, c, s->n_bytes - at - 1);
    else if (c == '`')
        end = scan_closing(s->text + at, s->n_bytes - at);
    else if (c == '$' && (next == '{' || next == '('))
        end = scan_closing(s->text + at + 1, s->n_bytes - at - 1);
    if (end == NULL)
        return at + 1;
    return (size_t)(end - s->text) + 1;
}

/* True if the quoted text that begins at `at` has flags. */
static bool scan_opens_flags(const struct scan *s, size_t at)
{
    const size_t end = scan_skip(s, at);

    while (++at < end)
        if (scan_is_flag(s, at) && strchr(BLANKS QUOTES, s->text[at - 1]) != NULL)
            return true;
    return false;
}

/* True if `...` begins at `at`, and has no flags. */
static bool scan_is_command(const struct scan *s, size_t at)
{
    return s->text[at] == '`' && scan_skip(s, at) > at + 1 && !scan_opens_flags(s, at);
}

/* Skips what is between words: blanks, ends of lines, comments, brackets; with `in_line` the blanks
 * of a line and of those that continue it. */
static void scan_gap(struct scan *s, bool in_line)
{
    for (; s->at < s->n_bytes; s->at++) {
        const char c = s->text[s->at];

        if (c == '\\' && s->at + 1 < s->n_bytes && strchr("\r\n", s->text[s->at + 1]) != NULL)
            s->at++;
        else if (in_line && strchr(" \t", c) == NULL)
            return;
        else if (c == '#')
            s->at += strcspn(s->text + s->at, "\n") - 1;
        else if (c == s->quote)
            s->quote = '\0';
        else if (strchr(QUOTES, c) != NULL && s->quote == '\0' && scan_opens_flags(s, s->at))
            s->quote = c;
        else if (strchr(ENDS, c) == NULL || scan_is_command(s, s->at))
            return;
    }
}

/* The byte after the word at `at`; *at where there is none. */
static size_t scan_word(const struct scan *s, size_t at)
{
    while (at < s->n_bytes && (strchr(ENDS, s->text[at]) == NULL || scan_is_command(s, at)) &&
           s->text[at] != s->quote &&
           !(strchr(QUOTES, s->text[at]) != NULL && scan_opens_flags(s, at)))
        at = scan_skip(s, at);
    return dcpk_min_size(at, s->n_bytes);
}

/* ---- variables ---- */

/* The value of a variable that does not name itself. NULL: the text does not set it. */
static const char *variable_find(const struct scan *s, const char *name, size_t n_bytes)
{
    for (size_t i = s->variables.n; i-- > 0;) {
        const struct dcpk_setting *v = &s->variables.all[i];

        if (strlen(v->name) == n_bytes && memcmp(v->name, name, n_bytes) == 0 &&
            strstr(v->text, v->name) == NULL)
            return v->text;
    }
    return NULL;
}

static bool scan_expand(const struct scan *s, const char *text, size_t n_bytes, int depth,
                        struct dcpk_bytes *out);

/* Appends the value of "$A", "${A}" or "${A:-b}", which text[0 .. n_bytes) begins with; *n: its
 * bytes. */
static bool variable_expand(const struct scan *s, const char *text, size_t n_bytes, int depth,
                            size_t *n, struct dcpk_bytes *out)
{
    const bool has_brace = n_bytes > 1 && text[1] == '{';
    const char *name = text + 1 + has_brace, *const end = text + n_bytes, *after = name, *value;

    while (after < end && (isalnum((unsigned char)*after) || *after == '_'))
        after++;
    value = variable_find(s, name, (size_t)(after - name));
    *n = (size_t)(after - text);
    if (has_brace) {
        const char *brace = scan_closing(text + 1, n_bytes - 1);

        *n = n_bytes;
        if (brace == NULL) /* "${A:-" */
            return false;
        *n = (size_t)(brace - text) + 1;
    }
    if (depth == MAX_DEPTH)
        return false;
    if (value != NULL)
        return scan_expand(s, value, strlen(value), depth + 1, out);
    if (!has_brace || end - after < 2 || memcmp(after, ":-", 2) != 0)
        return false;
    return scan_expand(s, after + 2, (size_t)(text + *n - 1 - (after + 2)), depth + 1, out);
}

/* Appends a word without quotes, with the variables that are known. Returns false if one is not. */
static bool scan_expand(const struct scan *s, const char *text, size_t n_bytes, int depth,
                        struct dcpk_bytes *out)
{
    bool is_known = true;

    for (size_t i = 0, n = 1; i < n_bytes; i += n, n = 1)
        if (text[i] == '$')
            is_known &= variable_expand(s, text + i, n_bytes - i, depth, &n, out);
        else if (text[i] == '`')
            is_known = false;
        else if (text[i] == '\\' && i + 1 < n_bytes && text[i + 1] == '"')
            n = 2;
        else if (text[i] != '"' && text[i] != '\'')
            dcpk_bytes_put(out, text + i, 1);
    return is_known;
}

/* The value of a setting, expanded, in the arena. */
static dcpk_status scan_value(const struct scan *s, struct dcpk_setting *setting,
                              struct dcpk_error *err)
{
    const char *raw = s->text + setting->value;
    const size_t n_raw = setting->end - setting->value;
    struct dcpk_bytes text = {0};

    setting->is_open = !scan_expand(s, raw, n_raw, 0, &text);
    if (setting->is_open) {
        text.n_bytes = 0;
        dcpk_bytes_put(&text, raw, n_raw);
    }
    setting->text = dcpk_bytes_to_arena(&text, s->list->arena, err);
    return err->status;
}

/* ---- the list ---- */

/* The name with underscores. */
static const char *scan_name(const struct scan *s, size_t at, size_t n_bytes,
                             struct dcpk_error *err)
{
    char *name = dcpk_arena_strndup(s->list->arena, s->text + at, n_bytes, err);

    for (char *c = name; c != NULL && *c != '\0'; c++)
        if (*c == '-')
            *c = '_';
    return name;
}

/* True if no value ends at `end`: there is no word, or a flag, a comment, a redirection. */
static bool scan_ends_values(const struct scan *s, size_t end)
{
    return end == s->at || strchr("#<>", s->text[s->at]) != NULL || s->text[end - 1] == '>' ||
           (s->text[s->at] == '-' && end - s->at > 1 &&
            !isdigit((unsigned char)s->text[s->at + 1]));
}

/* Finds the value of the flag before `at`: of a knob with values, the next word; of another
 * name the next one in its line, unless it looks like a flag. Another command has none. */
static void scan_find_value(struct scan *s, struct dcpk_setting *setting)
{
    const struct scan before = *s;
    struct dcpk_knob_walk walk;
    const struct dcpk_option *row = dcpk_knob_find(setting->name, &walk);
    size_t end;

    scan_gap(s, row == NULL || row->kind == DCPK_OPTION_FLAG);
    end = scan_word(s, s->at);
    setting->value = s->at;
    if (scan_ends_values(s, end) || (before.quote != '\0' && s->quote != before.quote) ||
        strcspn(s->text + before.at, ";|&()") < s->at - before.at ||
        (row != NULL && row->kind == DCPK_OPTION_FLAG &&
         !dcpk_option_has_word("true false True False", s->text + s->at, end - s->at))) {
        *s = before;
        setting->value = s->at;
        return;
    }
    setting->end = s->at = end;
}

/* The value of a setting with the words after it in its line: it may be a list, unless its knob
 * has one value. */
static dcpk_status scan_values(struct scan s, struct dcpk_setting *setting, struct dcpk_error *err)
{
    struct dcpk_bytes texts = {0};
    struct dcpk_knob_walk walk;
    const struct dcpk_option *row = dcpk_knob_find(setting->name, &walk);

    if (row != NULL && (row->kind == DCPK_OPTION_FLAG || row->effect != DCPK_KNOB_NO_EFFECT))
        return DCPK_OK;
    dcpk_bytes_text(&texts, setting->text);
    for (;;) {
        size_t end, n_before;

        scan_gap(&s, true);
        end = scan_word(&s, s.at);
        if (scan_ends_values(&s, end))
            break;
        dcpk_bytes_u8(&texts, ' ');
        n_before = texts.n_bytes;
        if (!scan_expand(&s, s.text + s.at, end - s.at, 0, &texts)) {
            texts.n_bytes = n_before;
            dcpk_bytes_put(&texts, s.text + s.at, end - s.at);
        }
        s.at = end;
    }
    setting->texts = dcpk_bytes_to_arena(&texts, s.list->arena, err);
    return err->status;
}

/* Refuses a flag that is an item of a list, as in Python, or in a text that is quoted twice. */
static dcpk_status scan_check(const struct scan *s, const struct dcpk_setting *setting,
                              size_t name_end, struct dcpk_error *err)
{
    const char *const begin = s->text + setting->begin, *const after = s->text + name_end;
    bool is_item = false;
    size_t n_escaped = 0, line = 1;

    if (*after == '"' || *after == '\'')
        is_item =
            after[1] == ']' ||
            (after[1] == ',' && strchr("\"'])", after[2 + strspn(after + 2, BLANKS)]) != NULL);
    for (const char *c = begin; c + 1 < s->text + setting->end; c++)
        n_escaped += *c == '\\' && strchr("\"'", c[1]) != NULL;
    if (!is_item && n_escaped % 2 == 0)
        return DCPK_OK;
    for (const char *c = s->text; c < begin; c++)
        line += *c == '\n';
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "line %zu: '%.*s' is in a list of another language, or in quotes within "
                     "quotes; write the flags as in a command line",
                     line, (int)(name_end - setting->begin), begin);
}

static dcpk_status scan_flag(struct scan *s, size_t end, struct dcpk_error *err)
{
    const char *equals = memchr(s->text + s->at, '=', end - s->at);
    const size_t at = s->at, name_end = equals == NULL ? end : (size_t)(equals - s->text);
    struct dcpk_setting setting = {.begin = at, .value = name_end + 1, .end = end, .text = "true"};

    setting.name = scan_name(s, at + 2, name_end - at - 2, err);
    if (setting.name == NULL)
        return err->status;
    s->at = end;
    if (equals == NULL)
        scan_find_value(s, &setting);
    if (scan_check(s, &setting, end, err) != DCPK_OK)
        return err->status;
    if (setting.value < setting.end &&
        (scan_value(s, &setting, err) || scan_values(*s, &setting, err)))
        return err->status;
    return dcpk_settings_add(s->list, &setting, err);
}

/* "A=1": for the values after it; a variable of the environment that rules know is a setting. */
static dcpk_status scan_variable(struct scan *s, size_t end, struct dcpk_error *err)
{
    const char *equals = memchr(s->text + s->at, '=', end - s->at);
    struct dcpk_setting setting = {.begin = s->at, .end = end};
    size_t n = 0;

    while (isalnum((unsigned char)s->text[s->at + n]) || s->text[s->at + n] == '_')
        n++;
    if (equals == NULL || n == 0 || s->text + s->at + n != equals)
        return DCPK_OK;
    setting.value = s->at + n + 1;
    setting.name = scan_name(s, s->at, n, err);
    if (setting.name == NULL || scan_value(s, &setting, err) != DCPK_OK)
        return err->status;
    if (strcmp(setting.name, "CUDA_DEVICE_MAX_CONNECTIONS") == 0)
        return dcpk_settings_add(s->list, &setting, err);
    return dcpk_settings_add(&s->variables, &setting, err);
}

dcpk_status dcpk_flags_list(const char *text, size_t n_bytes, struct dcpk_settings *list,
                            struct dcpk_error *err)
{
    struct scan s = {
        .text = text, .n_bytes = n_bytes, .list = list, .variables.arena = list->arena};

    for (scan_gap(&s, false); s.at < n_bytes; scan_gap(&s, false)) {
        const size_t end = dcpk_max_size(scan_word(&s, s.at), s.at + 1);

        if (scan_is_flag(&s, s.at)) {
            if (scan_flag(&s, end, err) != DCPK_OK)
                return err->status;
            continue;
        }
        if (scan_variable(&s, end, err) != DCPK_OK)
            return err->status;
        s.at = end;
    }
    return DCPK_OK;
}

/* ---- flags as Megatron spells them ---- */

static const char *const spellings[][2] = {
    {"nccl_ub", "use_nccl_ub"},
    {"perform_initialization", "initialization"},
    {"average_in_collective", "ddp_average_in_collective"},
    {"check_for_nan_in_grad", "check_for_nan_in_loss_and_grad"},
    {"fine_grained_param_gather", "megatron_fsdp_enable_fine_grained_param_gather"},
};

static void flag_put_name(const char *before, const char *name, size_t n_bytes,
                          struct dcpk_bytes *out)
{
    dcpk_bytes_text(out, before);
    for (size_t i = 0; i < n_bytes; i++)
        dcpk_bytes_u8(out, name[i] == '_' ? '-' : (uint8_t)name[i]);
}

const char *dcpk_flag_default(const struct dcpk_option *row)
{
    const size_t n = strlen(row->name);

    if (dcpk_option_has_word(OTHER_DEFAULT, row->name, n))
        return strcmp(row->name, "add_bias_linear") == 0 ? "true" : "false";
    if (dcpk_option_has_word(NO_DEFAULT, row->name, n))
        return NULL;
    return row->kind == DCPK_OPTION_FLAG ? dcpk_text_or(row->initial, "false") : row->initial;
}

/* A switch is given where it is off Megatron's default. */
static void flag_put_switch(const struct dcpk_option *row, const char *name, bool is_on,
                            struct dcpk_bytes *out)
{
    const char *others = dcpk_text_or(row->others, ""), *other;
    size_t n;

    if (is_on == (*dcpk_flag_default(row) == 't'))
        return;
    while (!is_on && (other = dcpk_take_word(&others, &n)) != NULL)
        if (*other == '!') {
            flag_put_name("--", other + 1, n - 1, out);
            return;
        }
    dcpk_bytes_text(out, "--");
    flag_put_name(is_on ? "" : "no-", name, strlen(name), out);
}

void dcpk_flag_put(const struct dcpk_option *row, const char *value, struct dcpk_bytes *out)
{
    const char *name = row->name;

    for (size_t i = 0; i < DCPK_COUNT(spellings); i++)
        if (strcmp(name, spellings[i][0]) == 0)
            name = spellings[i][1];
    if (value == NULL)
        return;
    if (row->kind == DCPK_OPTION_FLAG) {
        flag_put_switch(row, name, *value == 't' || *value == 'T', out);
        return;
    }
    flag_put_name("--", name, strlen(name), out);
    dcpk_bytes_printf(out, " %s", value);
}

/* ---- edits ---- */

struct editing {
    const struct dcpk_migration *m;
    const char *text;
    struct dcpk_text_edit *edits;
    size_t n;
};

/* Removes a flag, with its line where nothing else is in it and no other line needs it. */
static struct dcpk_text_edit edit_remove(const char *text, size_t begin, size_t end)
{
    size_t from = begin, to = end + strspn(text + end, " \t");
    const bool continues = text[to] == '\\';

    while (from > 0 && strchr(" \t", text[from - 1]) != NULL)
        from--;
    to += continues;
    to += text[to] == '\r';
    if ((from == 0 || text[from - 1] == '\n') && text[to] == '\n' &&
        (continues || from < 2 || text[from - 2] != '\\'))
        return (struct dcpk_text_edit){from, to + 1, ""};
    return (struct dcpk_text_edit){from, end, ""};
}

/* A folder that stays a word of the shell: what follows a variable does not extend its name. */
static const char *edit_folder(const struct editing *e, const struct dcpk_setting *s,
                               const char *suffix, struct dcpk_error *err)
{
    size_t n = s->end - s->value;
    const char *raw = e->text + s->value;
    size_t n_quote = n > 1 && strchr("\"'", raw[n - 1]) != NULL;

    n_quote += n_quote > 0 && n > 2 && raw[n - 2] == '\\';
    n -= n_quote;
    while (n > 1 && raw[n - 1] == '/')
        n--;
    return dcpk_arena_printf(e->m->from->arena, err, "%.*s%s%.*s", (int)n, raw, suffix,
                             (int)n_quote, e->text + s->end - n_quote);
}

static dcpk_status edit_add(struct editing *e, const struct dcpk_change *c,
                            const struct dcpk_setting *s, struct dcpk_error *err)
{
    struct dcpk_text_edit edit = {s->value, s->end, c->to};
    struct dcpk_bytes flag = {0};

    if (c->suffix != NULL) {
        edit.text = edit_folder(e, s, c->suffix, err);
    } else if (c->row != NULL && c->row->kind == DCPK_OPTION_FLAG) {
        edit.begin = s->begin;
        dcpk_flag_put(c->row, c->to, &flag);
        edit.text = dcpk_bytes_to_arena(&flag, e->m->from->arena, err);
    }
    if (err->status != DCPK_OK)
        return err->status;
    if (edit.text == NULL || *edit.text == '\0')
        edit = edit_remove(e->text, s->begin, s->end);
    e->edits[e->n++] = edit;
    return DCPK_OK;
}

/* The flag that new ones follow: one that no condition surrounds in a common script. NULL: none. */
static const struct dcpk_setting *edit_anchor(const struct editing *e)
{
    static const char *const names[] = {"tensor_model_parallel_size", "micro_batch_size",
                                        "num_layers", "hidden_size"};
    const struct dcpk_settings *list = e->m->from;

    for (size_t n = 0; n < DCPK_COUNT(names); n++)
        for (size_t i = 0; i < list->n; i++)
            if (strcmp(list->all[i].name, names[n]) == 0)
                return &list->all[i];
    for (size_t i = 0; i < list->n; i++) {
        bool is_edited = list->all[i].number == DCPK_NO_NUMBER;

        for (size_t c = 0; c < e->m->n_changes; c++)
            is_edited |= dcpk_change_is_of(&e->m->changes[c], &list->all[i]);
        if (!is_edited)
            return &list->all[i];
    }
    return NULL;
}

/* The blanks and ends of lines before a flag, or after it where it is the first; else a blank. */
static const char *edit_gap(const char *text, const struct dcpk_setting *anchor, size_t *n)
{
    const char *begin = text + anchor->begin, *const after = text + anchor->end;

    while (begin > text && strchr(BLANKS "\\", begin[-1]) != NULL)
        begin--;
    *n = (size_t)(text + anchor->begin - begin);
    if (begin > text && strchr("(\"'", begin[-1]) == NULL)
        return begin;
    *n = strspn(after, BLANKS "\\");
    if (*n > 0 && after[*n] == '-')
        return after;
    *n = 1;
    return " ";
}

/* Adds the flags of changes that no setting has, after one that stays. */
static dcpk_status edit_insert(struct editing *e, const bool *is_there, struct dcpk_error *err)
{
    const struct dcpk_setting *anchor = edit_anchor(e);
    struct dcpk_bytes flags = {0};
    const char *gap;
    size_t n_gap;

    if (anchor == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "it has no flag of Megatron that stays unchanged");
    gap = edit_gap(e->text, anchor, &n_gap);
    for (size_t i = 0; i < e->m->n_changes; i++) {
        const struct dcpk_change *c = &e->m->changes[i];
        const size_t n_before = flags.n_bytes;

        if (is_there[i] || c->row == NULL)
            continue;
        dcpk_bytes_put(&flags, gap, n_gap);
        dcpk_flag_put(c->row, c->to, &flags);
        if (flags.n_bytes == n_before + n_gap) /* it needs none */
            flags.n_bytes = n_before;
    }
    e->edits[e->n++] = (struct dcpk_text_edit){anchor->end, anchor->end,
                                               dcpk_bytes_to_arena(&flags, e->m->from->arena, err)};
    return err->status;
}

dcpk_status dcpk_flags_edit(const struct dcpk_migration *m, const char *text,
                            struct dcpk_text_edit **edits, size_t *n, struct dcpk_error *err)
{
    struct editing e = {.m = m, .text = text};
    bool is_there[DCPK_MAX_CHANGES] = {false};

    e.edits = dcpk_arena_array(m->from->arena, m->from->n + 1, sizeof *e.edits, err);
    if (e.edits == NULL)
        return err->status;
    for (size_t k = 0; k < m->from->n; k++) {
        size_t i = m->n_changes;

        while (i-- > 0 && !dcpk_change_is_of(&m->changes[i], &m->from->all[k]))
            continue;
        if (i == SIZE_MAX)
            continue;
        is_there[i] = true;
        if (edit_add(&e, &m->changes[i], &m->from->all[k], err) != DCPK_OK)
            return err->status;
    }
    *edits = e.edits;
    if (edit_insert(&e, is_there, err) != DCPK_OK)
        return err->status;
    *n = e.n;
    return DCPK_OK;
}
