/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_lora.c - any bytes as adapter_config.json give a scale for each module or an error; any text
 * as a key of an adapter is taken apart within itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_name(const char *key)
{
    const size_t n = strlen(key);
    struct dcpk_lora_name name;

    dcpk_lora_name_parse(key, &name);
    if (name.n_module > n ||
        (name.adapter != NULL && (name.adapter < key || name.adapter + name.n_adapter > key + n)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const modules[] = {"model.layers.11.self_attn.q_proj", "lm_head", ""};
    const struct dcpk_checkpoint ckpt = {.n_tensors = 0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_lora_config config = {0};
    struct dcpk_store *store = NULL;
    char *key = calloc(n_bytes + 1, 1);

    if (key == NULL || dcpk_store_new_memory("adapter", &store, &err) ||
        dcpk_store_add_borrowed(store, DCPK_PEFT_CONFIG, data, n_bytes, &err))
        abort();
    if (n_bytes > 0)
        memcpy(key, data, n_bytes);
    check_name(key);
    if (dcpk_lora_config_read(&ckpt, store, "lora_A", &config, &err) == DCPK_OK)
        for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
            float scale = NAN;

            dcpk_error_clear(&err);
            if (dcpk_lora_scale(&config, modules[i], 8, &scale, &err) == DCPK_OK &&
                !isfinite(scale))
                abort();
        }
    dcpk_lora_config_release(&config);
    dcpk_store_close(store);
    free(key);
    return 0;
}
