/* SPDX-License-Identifier: Apache-2.0 */
/* json_priv.h - what the reader and the writer of JSON share: UTF-8. */
#ifndef DCPK_LIB_BASE_JSON_PRIV_H
#define DCPK_LIB_BASE_JSON_PRIV_H

#include <stddef.h>
#include <stdint.h>

#define DCPK_BAD_UTF8 UINT32_MAX

/*
 * Decodes the character at text (n >= 1 bytes left); *n_used: the bytes that it takes. Returns
 * DCPK_BAD_UTF8 for bytes that are not a character (overlong, surrogate, past U+10FFFF, cut short):
 * *n_used is then the longest part that could have begun one, at least 1, as Python's
 * errors="replace" counts.
 */
uint32_t dcpk_utf8_decode(const uint8_t *text, size_t n, size_t *n_used);

#endif
