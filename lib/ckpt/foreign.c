/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c - recognises what people mistake for a checkpoint, by names of files and keys. */
#include "lib/ckpt/foreign.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/run.h"
#include "lib/ckpt/run_names.h"

/* ---- marks ---- */

static bool mark_fits(const struct dcpk_mark *mark, const char *name)
{
    if (mark->end == NULL)
        return strcmp(name, mark->start) == 0;
    return dcpk_starts_with(name, mark->start) && dcpk_ends_with(name, mark->end);
}

const struct dcpk_mark *dcpk_mark_of(const struct dcpk_format *format, const char *name)
{
    for (const struct dcpk_mark *m = format->marks; m != NULL && m->start != NULL; m++)
        if (mark_fits(m, name))
            return m;
    return NULL;
}

size_t dcpk_marks_list(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                       const struct dcpk_mark *list[DCPK_MAX_MARKS])
{
    size_t n = 0;

    for (; *formats != NULL; formats++)
        for (const struct dcpk_mark *m = (*formats)->marks; m != NULL && m->start != NULL; m++) {
            size_t i = 0;

            while (i < n && strcmp(list[i]->start, m->start) != 0)
                i++;
            if (m->kind > most || i < n)
                continue;
            assert(n < DCPK_MAX_MARKS);
            list[n++] = m;
        }
    return n;
}

const char *dcpk_marks_words(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                             char text[DCPK_MARKS_BYTES])
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n_marks = dcpk_marks_list(formats, most, marks);
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n_marks && n < DCPK_MARKS_BYTES; i++) {
        const char *joint = i + 1 == n_marks ? " or " : ", ";

        n += (size_t)snprintf(text + n, DCPK_MARKS_BYTES - n, "%s%s", i == 0 ? "" : joint,
                              marks[i]->start);
    }
    return text;
}

/* ---- folders of other programs ---- */

#define MAX_FOLDERS    256 /* that are looked into */
#define MAX_PATTERNS   2
#define MAX_LEVELS     3
#define MAX_PATH_BYTES 200 /* that a hint names */
#define MAX_NAMED      4   /* folders that a hint lists */

/* A name begins, holds and ends with these; NULL: anything. */
struct pattern {
    const char *start, *part, *end;
};

/*
 * A layout of another program: for each of its patterns there is a name. The first row that fits
 * counts. A layout that becomes a format of ours leaves the table.
 */
struct layout {
    struct pattern all[MAX_PATTERNS];
    const char *text; /* description, and the way to a folder that is read */
};

#define DEEPSPEED                                                                                  \
    "a checkpoint of DeepSpeed (ZeRO), which is not read: 'python zero_to_fp32.py . OUT "          \
    "--safe_serialization' in the folder above it makes safetensors; copy config.json to them"

/*
 * By names of files in a folder that no format knows. Sources: the writers, at deepspeed 0.17
 * (runtime/engine.py, utils/zero_to_fp32.py), verl 0.5 (utils/checkpoint, model_merger), peft
 * 0.21.2 (PeftModel.save_pretrained).
 */
static const struct layout by_files[] = {
    {{{NULL, "zero_pp_rank_", ".pt"}}, DEEPSPEED},
    {{{"mp_rank_", NULL, "_model_states.pt"}}, DEEPSPEED},
    {{{"adapter_model.bin", NULL, NULL}},
     "an adapter of PEFT in a pickle (its older file), which is not read: save it again: python -c "
     "\"import torch, safetensors.torch as s; s.save_file(torch.load('adapter_model.bin', "
     "weights_only=True), 'adapter_model.safetensors')\""},
    {{{"adapter_config.json", NULL, NULL}},
     "an adapter of PEFT without its adapter_model.safetensors"},
};

/* By keys of tensors in a folder of PyTorch's that no Megatron wrote, where there are no weights.
 * Source: measured on what accelerate 1.15 saves. */
static const struct layout by_keys[] = {
    {{{NULL, ".state.", ".exp_avg"}},
     "optimizer state of FSDP2 without its weights, which lie in a folder next to it"},
};

/* In addition to what formats know: names that give a folder away. */
static const struct dcpk_mark others[] = {
    {DCPK_MARK_OTHER, "iter_", ".dcpkit-partial",
     "a conversion to it was cut short and can be resumed"},
    {0},
};
static const struct dcpk_format no_format = {.marks = others};

static bool pattern_fits(const struct pattern *p, const char *name)
{
    if (p->start != NULL && p->part == NULL && p->end == NULL)
        return strcmp(name, p->start) == 0;
    return (p->start == NULL || dcpk_starts_with(name, p->start)) &&
           (p->part == NULL || strstr(name, p->part) != NULL) &&
           (p->end == NULL || dcpk_ends_with(name, p->end));
}

/* Names one after another; `at` of them: NULL after the last. */
struct names {
    const char *(*at)(const void *of, size_t i);
    const void *of;
};

static bool any_fits(const struct names *names, const struct pattern *p)
{
    const char *name;

    if (p->start == NULL && p->part == NULL && p->end == NULL)
        return true;
    for (size_t i = 0; (name = names->at(names->of, i)) != NULL; i++)
        if (pattern_fits(p, name))
            return true;
    return false;
}

/* The text of the first row of which all patterns fit; NULL: none. */
static const char *find_layout(const struct layout *rows, size_t n, const struct names *names)
{
    for (size_t i = 0; i < n; i++) {
        bool fits = true;

        for (size_t p = 0; p < MAX_PATTERNS && fits; p++)
            fits = any_fits(names, &rows[i].all[p]);
        if (fits)
            return rows[i].text;
    }
    return NULL;
}

struct file_names {
    char *const *list;
    size_t n;
};

static const char *file_at(const void *of, size_t i)
{
    const struct file_names *names = of;

    return i < names->n ? names->list[i] : NULL;
}

static const char *tensor_at(const void *of, size_t i)
{
    const struct dcpk_checkpoint *ckpt = of;

    return i < ckpt->n_tensors ? ckpt->tensors[i].key : NULL;
}

static const char *find_by_files(char *const *names, size_t n)
{
    const struct file_names files = {names, n};

    return find_layout(by_files, DCPK_COUNT(by_files), &(struct names){file_at, &files});
}

/* True if a tensor is there under the name that a state is of. */
static bool has_weights(const struct dcpk_checkpoint *ckpt)
{
    static const char end[] = ".exp_avg";
    uint64_t unused;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *name = strstr(ckpt->tensors[t].key, ".state.");

        if (name == NULL || !dcpk_ends_with(name, end))
            continue;
        name += strlen(".state.");
        if (strlen(name) > strlen(end) &&
            dcpk_map_get(&ckpt->tensor_by_key, name, strlen(name) - strlen(end), &unused))
            return true;
    }
    return false;
}

/* True if it is opened as a container, by name, and has a format with a model. */
static bool is_read_plain(const struct dcpk_checkpoint *ckpt)
{
    return ckpt->format->mapping == NULL && ckpt->likely != NULL && ckpt->likely->mapping != NULL;
}

const char *dcpk_foreign_of_keys(const struct dcpk_checkpoint *ckpt)
{
    if (is_read_plain(ckpt) || has_weights(ckpt))
        return NULL;
    return find_layout(by_keys, DCPK_COUNT(by_keys), &(struct names){tensor_at, ckpt});
}

dcpk_status dcpk_foreign_check_keys(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const char *text = dcpk_foreign_of_keys(ckpt);

    if (text != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "this is %s", text);
    if (is_read_plain(ckpt))
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DETECT,
                             "its format is %s; read as %s it has only keys, no model",
                             ckpt->likely->name, ckpt->format->name);
    return DCPK_OK;
}

dcpk_status dcpk_foreign_check_address(const char *path, struct dcpk_error *err)
{
    static const struct {
        const char *scheme, *way;
    } ways[] = {{"s3://", " ('aws s3 sync')"},
                {"gs://", " ('gcloud storage rsync')"},
                {"hdfs://", " ('hdfs dfs -get')"},
                {"hf://", " ('hf download')"},
                {"", ""}};
    size_t n = 0, i = 0;

    while (isalnum((unsigned char)path[n]))
        n++;
    if (n == 0 || !dcpk_starts_with(path + n, "://"))
        return DCPK_OK;
    while (!dcpk_starts_with(path, ways[i].scheme))
        i++;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "'%s' is an address, and folders of a file system are read and written: copy "
                     "it%s, or mount it",
                     path, ways[i].way);
}

/* The text of the format's first mark that a name fits. */
static const char *find_sign(const struct dcpk_format *format, char *const *names, size_t n)
{
    const struct dcpk_mark *best = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct dcpk_mark *mark = dcpk_mark_of(format, names[i]);

        if (mark != NULL && mark->kind > DCPK_MARK_INNER && mark->text != NULL &&
            (best == NULL || mark < best))
            best = mark;
    }
    if (best == NULL)
        return NULL;
    return best->text;
}

const char *dcpk_marks_sign(const struct dcpk_format *const *formats, char *const *names, size_t n)
{
    const char *text = NULL;

    for (; *formats != NULL && text == NULL; formats++)
        text = find_sign(*formats, names, n);
    return text;
}

/* True if the folder `folder` of the store has a file `name`. */
static bool has(struct dcpk_store *store, const char *folder, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    char *path = dcpk_run_text(&err, "%s/%s", folder, name);

    if (path != NULL && dcpk_store_look(store, path, &kind, &err) != DCPK_OK)
        kind = DCPK_PATH_NOTHING;
    dcpk_free(path);
    return kind == DCPK_PATH_FILE;
}

/* Names the contents of the folder `folder` of the store; NULL: nothing that is recognised. */
static const char *find_layout_in(struct dcpk_store *store, const char *folder)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *text = NULL;
    char **names;
    size_t n;

    if (dcpk_store_list_in(store, folder, &names, &n, &err) != DCPK_OK)
        return NULL;
    text = find_by_files(names, n);
    dcpk_free(names);
    return text;
}

/* The same of folders in it, down to `levels`. path: of the one that is recognised. budget: folders
 * that may still be looked into. */
static const char *find_layout_below(struct dcpk_store *store, const char *folder, int levels,
                                     size_t *budget, char path[MAX_PATH_BYTES])
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *text = NULL;
    char **names = NULL;
    size_t n = 0;

    if (levels == 0 || dcpk_store_list_in(store, folder, &names, &n, &err) != DCPK_OK)
        return NULL;
    for (size_t i = 0; i < n && text == NULL && *budget > 0; i++, *budget -= 1) {
        char below[MAX_PATH_BYTES];

        if (snprintf(below, sizeof below, "%s/%s", folder, names[i]) >= (int)sizeof below)
            continue;
        text = find_layout_in(store, below);
        if (text != NULL)
            memcpy(path, below, sizeof below);
        else
            text = find_layout_below(store, below, levels - 1, budget, path);
    }
    dcpk_free(names);
    return text;
}

/* Contents of the folders of a folder. */
struct inside {
    const char *checkpoints[MAX_NAMED]; /* and runs */
    size_t n;
    const char *other, *text; /* the first that is something else, and what it is */
};

static void look_inside(struct dcpk_store *store, const struct dcpk_format *const *formats,
                        const char *name, struct inside *inside)
{
    const struct dcpk_mark *marks[DCPK_MAX_MARKS];
    const size_t n_marks = dcpk_marks_list(formats, DCPK_MARK_INNER, marks);
    const char *text = NULL;
    bool is_checkpoint = has(store, name, DCPK_TRACKER_NAME);

    for (size_t m = 0; m < n_marks && !is_checkpoint && text == NULL; m++)
        if (has(store, name, marks[m]->start)) {
            text = marks[m]->text;
            is_checkpoint = text == NULL;
        }
    if (is_checkpoint && inside->n < MAX_NAMED)
        inside->checkpoints[inside->n++] = name;
    if (!is_checkpoint && text == NULL)
        text = find_layout_in(store, name);
    if (text == NULL || inside->text != NULL)
        return;
    inside->other = name;
    inside->text = text;
}

/* "; give a folder in it, such as 'a', 'b'", or what one of them is. */
static void hint_inside(struct dcpk_store *store, const struct dcpk_format *const *formats,
                        const struct file_names *names, char text[DCPK_FOREIGN_BYTES])
{
    struct inside inside = {.n = 0};
    size_t n = 0, budget = MAX_FOLDERS;
    char path[MAX_PATH_BYTES];

    for (size_t i = 0; i < names->n && i < MAX_FOLDERS; i++)
        look_inside(store, formats, names->list[i], &inside);
    for (size_t i = 0; i < names->n && inside.n == 0 && inside.text == NULL; i++) {
        inside.text = find_layout_below(store, names->list[i], MAX_LEVELS - 1, &budget, path);
        inside.other = path;
    }
    if (inside.n == 0 && inside.text != NULL) {
        snprintf(text, DCPK_FOREIGN_BYTES, "; its folder '%.200s' is %s", inside.other,
                 inside.text);
        return;
    }
    for (size_t i = 0; i < inside.n && n < DCPK_FOREIGN_BYTES; i++)
        n += (size_t)snprintf(text + n, DCPK_FOREIGN_BYTES - n, "%s'%s'",
                              i == 0 ? "; give a folder in it, such as " : ", ",
                              inside.checkpoints[i]);
}

/* Names a file that is a checkpoint by itself; nothing where there is none. */
static void hint_file(const struct dcpk_format *const *formats, const struct file_names *names,
                      char text[DCPK_FOREIGN_BYTES])
{
    for (; *formats != NULL; formats++)
        for (size_t i = 0; (*formats)->file_ending != NULL && i < names->n; i++)
            if (dcpk_ends_with(names->list[i], (*formats)->file_ending)) {
                snprintf(text, DCPK_FOREIGN_BYTES, "; give one of its files, such as '%.200s'",
                         names->list[i]);
                return;
            }
}

const char *dcpk_foreign_hint(struct dcpk_store *store, const struct dcpk_format *const *formats,
                              char text[DCPK_FOREIGN_BYTES])
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const char *sign, *layout;
    char **names;
    size_t n;

    text[0] = '\0';
    if (dcpk_store_list(store, &names, &n, &err) != DCPK_OK)
        return text;
    layout = find_by_files(names, n);
    sign = dcpk_marks_sign(formats, names, n);
    if (sign == NULL)
        sign = find_sign(&no_format, names, n);
    if (n == 0)
        snprintf(text, DCPK_FOREIGN_BYTES, "; it is empty");
    else if (layout != NULL)
        snprintf(text, DCPK_FOREIGN_BYTES, "; it is %s", layout);
    else if (sign != NULL)
        snprintf(text, DCPK_FOREIGN_BYTES, "; %s", sign);
    else
        hint_inside(store, formats, &(struct file_names){names, n}, text);
    if (text[0] == '\0')
        hint_file(formats, &(struct file_names){names, n}, text);
    dcpk_free(names);
    return text;
}
