/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - sizes that several attributes of args give together. */
#include "lib/model/sizes.h"

/* Is it there, and what Python takes for false? A number that is not 0 is on. */
static bool is_off(const struct dcpk_value *value)
{
    int64_t number;

    if (value == NULL || value->kind == DCPK_V_NONE)
        return value != NULL;
    return dcpk_value_as_int(value, &number) && number == 0;
}

const struct dcpk_value *dcpk_query_groups(const struct dcpk_value *attrs)
{
    const struct dcpk_value *groups = dcpk_value_get(attrs, "num_query_groups");

    if (is_off(dcpk_value_get(attrs, "group_query_attention")) || groups == NULL ||
        groups->kind == DCPK_V_NONE)
        return dcpk_value_get(attrs, "num_attention_heads");
    return groups;
}
