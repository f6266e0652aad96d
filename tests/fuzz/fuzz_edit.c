/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_edit.c - any keys under operations of a user: names that differ, or an error. */
/*
 * Regular expressions are the user's and the C library's, so they are from a table. The input: a
 * line of letters, each an operation of it; a line, what the operations rename to; keys, a line
 * each.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/rules/edit.h"
#include "tests/fuzz/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Few and short: what a user renames to may grow a key at each of its letters, operation by
 * operation. */
#define MAX_OPERATIONS 2
#define MAX_KEYS       32
#define MAX_TEXT_BYTES 40

static const struct {
    const char *text;
    bool takes_name;
} forms[] = {
    {"rename ^ ", true},
    {"rename e* ", true},
    {"rename $ ", true},
    {"rename ([a-z]+)\\.([0-9]*) ", true},
    {"rename (a|ab)(c|bcd)? ", true},
    {"remove ^optimizer\\.", false},
    {"keep [.]", false},
    {"cast weight$ bfloat16", false},
};
#define N_FORMS (sizeof forms / sizeof *forms)

/* Names of what stays are there, and differ. */
static void check(const struct dcpk_edit_item *items, size_t n)
{
    size_t n_left = 0;

    for (size_t i = 0; i < n; i++) {
        if (items[i].removed_by != NULL)
            continue;
        n_left++;
        if (items[i].name[0] == '\0')
            abort();
        for (size_t j = 0; j < i; j++)
            if (items[j].removed_by == NULL && strcmp(items[i].name, items[j].name) == 0)
                abort();
    }
    if (n_left == 0)
        abort();
}

static void apply(const struct dcpk_edits *edits, char *keys)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_edit_item items[MAX_KEYS];
    size_t n = 0;

    if (arena == NULL)
        abort();
    for (char *key; (key = strsep(&keys, "\n")) != NULL && n < MAX_KEYS;) {
        items[n] =
            (struct dcpk_edit_item){.key = key, .dtype = n % 4 == 3 ? DCPK_DTYPE_NONE : DCPK_F32};
        n += key[0] != '\0';
    }
    if (dcpk_edits_apply(edits, arena, items, n, &err) == DCPK_OK)
        check(items, n);
    else if (err.text[0] == '\0')
        abort();
    dcpk_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char operations[MAX_OPERATIONS][MAX_TEXT_BYTES];
    const char *texts[MAX_OPERATIONS];
    char *copy = fuzz_text(data, n_bytes), *rest = copy;
    const char *letters = strsep(&rest, "\n"), *name = strsep(&rest, "\n");
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_edits *edits = NULL;
    size_t n = 0;

    for (; rest != NULL && n < MAX_OPERATIONS && letters[n] != '\0'; n++) {
        const size_t form = (unsigned char)letters[n] % N_FORMS;
        const int n_text = snprintf(operations[n], MAX_TEXT_BYTES, "%s%s", forms[form].text,
                                    forms[form].takes_name ? name : "");

        texts[n] = operations[n];
        if (n_text < 0 || n_text >= MAX_TEXT_BYTES)
            rest = NULL; /* too long to be tried */
    }
    if (rest != NULL && dcpk_edits_parse(texts, n, &edits, &err) == DCPK_OK)
        apply(edits, rest);
    dcpk_edits_free(edits);
    free(copy);
    return 0;
}
