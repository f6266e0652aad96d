/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_mp_rank.c - any bytes as the files of Megatron's tensor-parallel ranks: chunks inside the
 * files, objects that can be read, or an error. */
#include <stdio.h>

#include "formats/formats.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"
#include "lib/model/model.h"
#include "tests/fuzz/fuzz_ranks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Objects and the common state are values or an error; then the whole becomes a view. */
static void check_values(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;
    const struct dcpk_value *value;

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        if (dcpk_checkpoint_load_item(ckpt, &ckpt->objects[i], ckpt->arena, &value, &err) ==
                DCPK_OK &&
            value->kind != DCPK_V_LIST)
            abort();
        dcpk_error_clear(&err);
    }
    if (dcpk_model_new(ckpt, &model, &err) == DCPK_OK)
        (void)ckpt->format->mapping->to_model(ckpt, model, &err);
    dcpk_model_free(model);
}

static void add_file(struct dcpk_store *store, int rank, const char *file, const uint8_t *data,
                     size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char name[80];

    snprintf(name, sizeof name, "mp_rank_%02d/%s", rank, file);
    if (n_bytes > 0 && dcpk_store_add_memory(store, name, data, n_bytes, &err) != DCPK_OK)
        abort();
}

/* The number of ranks less one (a bit), the bytes of the model's file (four), that file, that of
 * the optimizer; the same for each rank. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_torch, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    size_t n_model;

    if (n_bytes < 5 || dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        return 0;
    n_model = dcpk_min_size(dcpk_load_u32le(data + 1), n_bytes - 5);
    for (int rank = 0; rank <= data[0] % 2; rank++) {
        add_file(store, rank, "model_optim_rng.pt", data + 5, n_model);
        add_file(store, rank, "distrib_optim.pt", data + 5 + n_model, n_bytes - 5 - n_model);
    }
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) == DCPK_OK) {
        fuzz_check_pieces(ckpt);
        check_values(ckpt);
    }
    dcpk_checkpoint_close(ckpt);
    return 0;
}
