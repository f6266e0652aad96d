/* SPDX-License-Identifier: Apache-2.0 */
/* hex.h - bytes as lowercase hexadecimal digits, as checksums are written. */
#ifndef DCPK_LIB_BASE_HEX_H
#define DCPK_LIB_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* text: room for 2 * n digits and a NUL. Returns text. */
static inline const char *dcpk_hex_put(const uint8_t *data, size_t n, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    text[2 * n] = '\0';
    return text;
}

/* The value of one digit, 0-9 or a-f. */
static inline int dcpk_hex_digit(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

/* False, and data is not touched, unless text is exactly 2 * n lowercase digits. */
static inline bool dcpk_hex_get(const char *text, uint8_t *data, size_t n)
{
    if (strlen(text) != 2 * n || strspn(text, "0123456789abcdef") != 2 * n)
        return false;
    for (size_t i = 0; i < 2 * n; i += 2) {
        data[i / 2] = (uint8_t)(dcpk_hex_digit(text[i]) << 4 | dcpk_hex_digit(text[i + 1]));
    }
    return true;
}

#endif
