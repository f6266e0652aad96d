/* SPDX-License-Identifier: Apache-2.0 */
/* hash_report.c - hashes as text and JSON, and the answer of hash --check. */
#include "tools/hash_report.h"

#include <string.h>

#include "lib/base/hex.h"
#include "tools/cmd.h"

#define WHOLE_TEXT_BYTES (2 * DCPK_SHA256_BYTES + 1)

dcpk_status dcpk_hash_print(const struct dcpk_hash_list *list, const struct dcpk_checkpoint *ckpt,
                            bool as_json, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st = DCPK_OK;

    if (as_json) {
        st = dcpk_hash_list_print(list, ckpt, &bytes, err);
        if (st == DCPK_OK)
            return dcpk_cli_print_bytes(&bytes, err);
    } else {
        dcpk_hash_list_put_text(list, &bytes);
        st = dcpk_bytes_status(&bytes, err);
        if (st == DCPK_OK)
            dcpk_cli_put_lines(stdout, (const char *)bytes.data, bytes.n_bytes);
        if (st == DCPK_OK)
            st = dcpk_cli_flush(err);
    }
    dcpk_bytes_release(&bytes);
    return st;
}

static const char *name_of(const struct dcpk_hashed *item)
{
    return item->kind == DCPK_HASHED_COMMON ? "common state" : item->key;
}

/* "  FILE has bfloat16 [4, 64] 662ef41f3aed3142ce8c66ff7dc8ae38" */
static void print_side(const char *side, const struct dcpk_hashed *item)
{
    char shape[256], digits[DCPK_HASH_TEXT_BYTES];

    if (item == NULL) {
        dcpk_cli_printf(stdout, "  %s has none\n", side);
        return;
    }
    dcpk_cli_printf(stdout, "  %s has ", side);
    if (item->kind == DCPK_HASHED_OBJECT)
        dcpk_cli_printf(stdout, "an object ");
    else if (item->kind == DCPK_HASHED_TENSOR && item->dtype != DCPK_DTYPE_NONE)
        dcpk_cli_printf(stdout, "%s %s ", dcpk_dtype_name(item->dtype),
                        dcpk_shape_format(item->shape, item->rank, shape, sizeof shape));
    dcpk_cli_printf(stdout, "%s\n",
                    item->not_covered != NULL ? "without a hash"
                                              : dcpk_hash_text(&item->hash, digits));
}

static void print_difference(void *context, const struct dcpk_hashed *recorded,
                             const struct dcpk_hashed *found)
{
    (void)context;
    dcpk_cli_printf(stdout, "differs     ");
    dcpk_cli_put_text(stdout, name_of(recorded == NULL ? found : recorded));
    dcpk_cli_printf(stdout, "\n");
    print_side("FILE", recorded);
    print_side("DIR", found);
}

static void put_side(struct dcpk_json_out *j, const char *side, const struct dcpk_hashed *item)
{
    dcpk_json_put_key(j, side);
    if (item == NULL)
        dcpk_json_put_null(j);
    else
        dcpk_hashed_put(item, j);
}

static void put_difference(void *context, const struct dcpk_hashed *recorded,
                           const struct dcpk_hashed *found)
{
    struct dcpk_json_out *j = context;

    dcpk_json_put_key(j, name_of(recorded == NULL ? found : recorded));
    dcpk_json_begin_object(j);
    put_side(j, "found", found);
    put_side(j, "recorded", recorded);
    dcpk_json_end_object(j);
}

/* Of the items of DIR: those that FILE says nothing of, or that have no hash. */
static size_t count_not_covered(const struct dcpk_hash_check *check)
{
    const struct dcpk_hash_list *found = check->found;

    if ((check->recorded->unsaid & DCPK_UNSAID_OBJECTS) != 0)
        return found->n_of[DCPK_HASHED_OBJECT] + found->n_of[DCPK_HASHED_COMMON];
    return found->n_not_covered;
}

/* Text does not record dtypes and shapes; the hash of the whole knows them. */
static bool is_whole_same(const struct dcpk_hash_check *check)
{
    return (check->recorded->unsaid & DCPK_UNSAID_WHOLE) != 0 ||
           memcmp(check->recorded->whole, check->found->whole, DCPK_SHA256_BYTES) == 0;
}

static bool is_ok(const struct dcpk_hash_check *check, size_t n_different)
{
    return n_different == 0 && is_whole_same(check) && check->lost->status == DCPK_OK;
}

static size_t n_values(const struct dcpk_hash_list *list)
{
    return list->n_of[DCPK_HASHED_OBJECT] + list->n_of[DCPK_HASHED_COMMON];
}

static void print_verdict(const struct dcpk_hash_check *check, size_t n_different)
{
    const struct dcpk_hash_list *recorded = check->recorded, *found = check->found;

    dcpk_cli_printf(stdout, "verdict     %s: ", is_ok(check, n_different) ? "ok" : "NOT ok");
    if ((recorded->unsaid & DCPK_UNSAID_OBJECTS) != 0)
        dcpk_cli_printf(stdout, "%zu tensors recorded, %zu found, %zu differ\n",
                        recorded->n_of[DCPK_HASHED_TENSOR], found->n_of[DCPK_HASHED_TENSOR],
                        n_different);
    else
        dcpk_cli_printf(stdout,
                        "%zu tensors and %zu objects recorded, %zu and %zu found, %zu differ\n",
                        recorded->n_of[DCPK_HASHED_TENSOR], n_values(recorded),
                        found->n_of[DCPK_HASHED_TENSOR], n_values(found), n_different);
}

static dcpk_status print_check(const struct dcpk_hash_check *check, bool *ok,
                               struct dcpk_error *err)
{
    const size_t n_different =
        dcpk_hash_list_compare(check->recorded, check->found, print_difference, NULL);
    const size_t n_not_covered = count_not_covered(check);

    if (n_different == 0 && !is_whole_same(check))
        dcpk_cli_printf(
            stdout,
            "differs     the whole: a dtype, or a shape, of which FILE has the hash alone\n");
    if (check->lost->status != DCPK_OK) {
        dcpk_cli_printf(stdout, "lost        ");
        dcpk_cli_put_text(stdout, check->lost->text);
        dcpk_cli_printf(stdout, "\n");
    }
    if (n_not_covered > 0)
        dcpk_cli_printf(
            stdout, "not covered %zu objects%s: %s\n", n_not_covered,
            check->found->n_of[DCPK_HASHED_COMMON] > 0 ? ", common state among them" : "",
            (check->recorded->unsaid & DCPK_UNSAID_OBJECTS) != 0 ? "FILE records tensors alone"
                                                                 : "their values have no hash");
    print_verdict(check, n_different);
    *ok = is_ok(check, n_different);
    return dcpk_cli_flush(err);
}

static void put_whole(struct dcpk_json_out *j, const struct dcpk_hash_check *check)
{
    const bool is_said = (check->recorded->unsaid & DCPK_UNSAID_WHOLE) == 0;
    char digits[WHOLE_TEXT_BYTES];

    dcpk_json_put_key(j, "whole");
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "found", dcpk_hex_put(check->found->whole, DCPK_SHA256_BYTES, digits));
    dcpk_hex_put(check->recorded->whole, DCPK_SHA256_BYTES, digits);
    dcpk_json_add_string(j, "recorded", is_said ? digits : NULL);
    dcpk_json_end_object(j);
}

static dcpk_status print_check_json(const struct dcpk_hash_check *check, bool *ok,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    size_t n_different;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "differences");
    dcpk_json_begin_object(&j);
    n_different = dcpk_hash_list_compare(check->recorded, check->found, put_difference, &j);
    dcpk_json_end_object(&j);
    *ok = is_ok(check, n_different);
    dcpk_json_add_string(&j, "lost", check->lost->status == DCPK_OK ? NULL : check->lost->text);
    dcpk_json_add_uint(&j, "n_not_covered", count_not_covered(check));
    dcpk_json_add_bool(&j, "ok", *ok);
    dcpk_json_add_uint(&j, "version", 1);
    put_whole(&j, check);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

dcpk_status dcpk_hash_print_check(const struct dcpk_hash_check *check, bool as_json, bool *ok,
                                  struct dcpk_error *err)
{
    return as_json ? print_check_json(check, ok, err) : print_check(check, ok, err);
}
