/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shards.c - any bytes as the files of each rank of FSDP: chunks inside the files, or an
 * error.
 */
#include <stdio.h>

#include "formats/fsdp_shards/fsdp_shards.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"
#include "tests/fuzz/fuzz_ranks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Each object is a plain value. */
static void check_objects(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *value;

    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_checkpoint_load_item(ckpt, &ckpt->objects[i], ckpt->arena, &value, &err) !=
                DCPK_OK ||
            value->kind > DCPK_V_LIST)
            abort();
}

/* A pickle of {'version': '2.0', 'world_size': n}, whose last byte but two is n. */
#define METADATA                                                                                   \
    "\x80\x02}(X\x07\0\0\0version"                                                                 \
    "X\x03\0\0\0"                                                                                  \
    "2.0X\x0a\0\0\0world_sizeK"

static void add_rank(struct dcpk_store *store, const char *name, const uint8_t *data,
                     size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (n_bytes > 0 && dcpk_store_add_memory(store, name, data, n_bytes, &err) != DCPK_OK)
        abort();
}

static void add_shards(struct dcpk_store *store, int n_ranks, const uint8_t *data, size_t n_model,
                       size_t n_optimizer)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char name[80];
    const int n = snprintf(name, sizeof name, "{\"FSDP_version\": 2, \"world_size\": %d}", n_ranks);

    if (dcpk_store_add_memory(store, "fsdp_config.json", name, (size_t)n, &err) != DCPK_OK)
        abort();
    for (int rank = 0; rank < n_ranks; rank++) {
        snprintf(name, sizeof name, "model_world_size_%d_rank_%d.pt", n_ranks, rank);
        add_rank(store, name, data, n_model);
        snprintf(name, sizeof name, "optim_world_size_%d_rank_%d.pt", n_ranks, rank);
        add_rank(store, name, data + n_model, n_optimizer);
    }
}

static void add_items(struct dcpk_store *store, int n_ranks, const uint8_t *data, size_t n_model,
                      size_t n_optimizer)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char metadata[] = METADATA "\1u.", name[80];

    metadata[sizeof METADATA - 1] = (char)n_ranks;
    if (dcpk_store_add_memory(store, "metadata.pkl", metadata, sizeof metadata - 1, &err) !=
        DCPK_OK)
        abort();
    for (int rank = 0; rank < n_ranks; rank++) {
        snprintf(name, sizeof name, "model_%d.pt", rank);
        add_rank(store, name, data, n_model);
        snprintf(name, sizeof name, "optimizer_%d.pt", rank);
        add_rank(store, name, data + n_model, n_optimizer);
    }
}

/* The number of ranks less one (two bits), the names of the files (a bit), the bytes of the model's
 * file (four), that file, that of the optimizer; the same for each rank. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct dcpk_format *const formats[] = {&dcpk_format_fsdp_shards,
                                                        &dcpk_format_checkpointing, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_store *store = NULL;
    size_t n_model;

    if (n_bytes < 5 || dcpk_store_new_memory("fuzz", &store, &err) != DCPK_OK)
        return 0;
    n_model = dcpk_min_size(dcpk_load_u32le(data + 1), n_bytes - 5);
    if ((data[0] & 4) == 0)
        add_shards(store, 1 + data[0] % 4, data + 5, n_model, n_bytes - 5 - n_model);
    else
        add_items(store, 1 + data[0] % 4, data + 5, n_model, n_bytes - 5 - n_model);
    if (dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err) == DCPK_OK) {
        fuzz_check_pieces(ckpt);
        check_objects(ckpt);
    }
    dcpk_checkpoint_close(ckpt);
    return 0;
}
