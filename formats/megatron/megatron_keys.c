/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_keys.c - takes keys of optimizer state apart. */
#include <ctype.h>
#include <string.h>

#include "formats/megatron/megatron_state.h"
#include "lib/base/text.h"

const char *dcpk_megatron_skip_chained(const char *key)
{
    const char *p = key;

    if (!dcpk_starts_with(key, "chained_"))
        return key;
    p += strlen("chained_");
    while (isdigit((unsigned char)*p))
        p++;
    return *p == '.' ? p + 1 : key;
}

bool dcpk_megatron_split_key(const char *key, struct dcpk_megatron_key *parts)
{
    static const char prefix[] = "optimizer.state.";
    const char *rest = dcpk_megatron_skip_chained(key), *dot;

    if (!dcpk_starts_with(rest, prefix))
        return false;
    rest += strlen(prefix);
    dot = strchr(rest, '.');
    if (dot == NULL || dot == rest || dot[1] == '\0')
        return false;
    *parts = (struct dcpk_megatron_key){rest, (size_t)(dot - rest), dot + 1};
    return true;
}

bool dcpk_megatron_state_is(const struct dcpk_megatron_key *key, const char *name)
{
    return strlen(name) == key->state_bytes && memcmp(key->state, name, key->state_bytes) == 0;
}

bool dcpk_megatron_is_flattened(const struct dcpk_checkpoint *ckpt,
                                const struct dcpk_tensor *tensor)
{
    const struct dcpk_tensor *weight;
    struct dcpk_megatron_key key;

    if (tensor->model_shape != NULL)
        return true;
    if (!dcpk_megatron_split_key(tensor->key, &key))
        return false;
    /*
     * Releases 0.13 and 0.14 lost mcore_data under torch 2.9 (formats/torch_dist/FORMAT.md 2): one
     * axis more shows it too.
     */
    weight = dcpk_checkpoint_tensor(ckpt, key.param);
    return weight != NULL && tensor->rank == weight->rank + 1;
}

/* The role of the tensor, by the state's name; `fp32_param` is the name that core up to 0.15, and
 * optimizers that are not distributed, give to `param`. */
enum dcpk_role dcpk_megatron_role(const struct dcpk_megatron_key *key)
{
    if (dcpk_megatron_state_is(key, "param") || dcpk_megatron_state_is(key, "fp32_param"))
        return DCPK_MASTER;
    if (dcpk_megatron_state_is(key, "exp_avg"))
        return DCPK_EXP_AVG;
    if (dcpk_megatron_state_is(key, "exp_avg_sq"))
        return DCPK_EXP_AVG_SQ;
    return dcpk_megatron_state_is(key, "step") ? DCPK_STEP : DCPK_STATE;
}
