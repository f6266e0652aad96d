/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - sizes that several attributes of args give together. */
#include "lib/model/sizes.h"

#include <inttypes.h>

/* True if the value is there, and Python takes it for false. A number that is not 0 is on. */
static bool is_off(const struct dcpk_value *value)
{
    int64_t number;

    if (dcpk_value_is_none(value))
        return value != NULL;
    return dcpk_value_as_int(value, &number) && number == 0;
}

const struct dcpk_value *dcpk_query_groups(const struct dcpk_value *attrs)
{
    const struct dcpk_value *groups = dcpk_value_get(attrs, "num_query_groups");

    if (is_off(dcpk_value_get(attrs, "group_query_attention")) || dcpk_value_is_none(groups))
        return dcpk_value_get(attrs, "num_attention_heads");
    return groups;
}

dcpk_status dcpk_tokens_fit(const struct dcpk_value *attrs, int64_t n_rows, struct dcpk_error *err)
{
    int64_t n_tokens;

    if (!dcpk_value_as_int(dcpk_value_get(attrs, "vocab_size"), &n_tokens) || n_rows >= n_tokens)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "a vocabulary of %" PRId64 " would cut into the %" PRId64
                     " tokens that args.vocab_size gives",
                     n_rows, n_tokens);
}
