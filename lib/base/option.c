/* SPDX-License-Identifier: Apache-2.0 */
/* option.c - texts into fields, by the kind and the range of a row. */
#include "lib/base/option.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

/* ---- names ---- */

bool dcpk_option_has_word(const char *list, const char *word, size_t n_bytes)
{
    const char *at = dcpk_text_or(list, ""), *other;
    size_t n;

    while ((other = dcpk_take_word(&at, &n)) != NULL)
        if (n == n_bytes && memcmp(other, word, n) == 0)
            return true;
    return false;
}

int dcpk_option_number(const char *list, const char *word)
{
    const char *at = list, *other;
    size_t n;

    for (int i = 1; word != NULL && (other = dcpk_take_word(&at, &n)) != NULL; i++)
        if (n == strlen(word) && memcmp(other, word, n) == 0)
            return i;
    return 0;
}

bool dcpk_option_is_near(const char *word, const char *name)
{
    const size_t n_word = strlen(word), n_name = strlen(name);
    const size_t least = dcpk_min_size(n_word, n_name), most = n_word + n_name - least;
    size_t before = 0, after = 0;

    while (before < least && word[before] == name[before])
        before++;
    while (after < least - before && word[n_word - 1 - after] == name[n_name - 1 - after])
        after++;
    return most - before - after <= 3 && 2 * (most - before - after) <= least;
}

static bool option_is_spelled(const char *name, size_t name_bytes, const char *text, size_t n_bytes)
{
    if (name_bytes != n_bytes)
        return false;
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] != name[i] && (text[i] != '-' || name[i] != '_'))
            return false;
    return true;
}

enum dcpk_option_sense dcpk_option_is_named(const struct dcpk_option *option, const char *name,
                                            size_t n_bytes)
{
    const char *at = dcpk_text_or(option->others, ""), *other;
    size_t n;

    if (option_is_spelled(option->name, strlen(option->name), name, n_bytes))
        return DCPK_OPTION_SAME;
    while ((other = dcpk_take_word(&at, &n)) != NULL) {
        const size_t mark = *other == '!';

        if (option_is_spelled(other + mark, n - mark, name, n_bytes))
            return mark > 0 ? DCPK_OPTION_OPPOSITE : DCPK_OPTION_SAME;
    }
    return DCPK_OPTION_OTHER;
}

/* ---- values ---- */

static bool option_read_flag(const char *text, bool *flag)
{
    const bool is_true = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;

    if (!is_true && strcmp(text, "false") != 0 && strcmp(text, "False") != 0)
        return false;
    *flag = is_true;
    return true;
}

static bool option_read_whole(const struct dcpk_option *option, const char *text, int64_t *number)
{
    char *end;
    int64_t n;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0 || n < option->least || n > option->most)
        return false;
    *number = n;
    return true;
}

static bool option_read_number(const char *text, double *number)
{
    char *end;
    double n;

    if (text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '\0')
        return false;
    n = strtod(text, &end);
    if (*end != '\0' || !isfinite(n) || n < 0)
        return false;
    *number = n;
    return true;
}

/* "64M", "1.5GiB", "4096" -> bytes. */
static bool option_read_size(const char *text, uint64_t *n_bytes)
{
    static const char units[] = "KMGT";
    const char *unit = NULL;
    double size;
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    size = strtod(text, &end);
    if (*end != '\0')
        unit = strchr(units, toupper((unsigned char)*end));
    if (unit != NULL) {
        size = ldexp(size, 10 * (int)(unit - units + 1));
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B')
        end++;
    if (*end != '\0' || !isfinite(size) || size > 1e18)
        return false;
    *n_bytes = (uint64_t)size;
    return true;
}

static bool option_list_append(struct dcpk_option_list *list, const char *text)
{
    if (list->n == DCPK_OPTION_MAX_LIST)
        return false;
    list->texts[list->n++] = text;
    return true;
}

bool dcpk_option_is_text(const struct dcpk_option *option)
{
    return option->kind >= DCPK_OPTION_TEXT && option->kind <= DCPK_OPTION_OUT_RUN;
}

size_t dcpk_option_bytes(const struct dcpk_option *option)
{
    static const size_t bytes[] = {
        [DCPK_OPTION_FLAG] = sizeof(bool),     [DCPK_OPTION_LIST] = sizeof(struct dcpk_option_list),
        [DCPK_OPTION_COUNT] = sizeof(int),     [DCPK_OPTION_LENGTH] = sizeof(int64_t),
        [DCPK_OPTION_NUMBER] = sizeof(double), [DCPK_OPTION_SIZE] = sizeof(uint64_t),
    };

    if (dcpk_option_is_text(option))
        return sizeof(const char *);
    return bytes[option->kind];
}

bool dcpk_option_read(const struct dcpk_option *option, const char *text, void *values)
{
    void *const field = dcpk_option_field(option, values);
    int64_t count;

    if (option->kind == DCPK_OPTION_FLAG)
        return option_read_flag(text, field);
    if (option->kind == DCPK_OPTION_LIST)
        return option_list_append(field, text);
    if (option->kind == DCPK_OPTION_LENGTH)
        return option_read_whole(option, text, field);
    if (option->kind == DCPK_OPTION_NUMBER)
        return option_read_number(text, field);
    if (option->kind == DCPK_OPTION_SIZE)
        return option_read_size(text, field);
    if (option->kind == DCPK_OPTION_COUNT) {
        if (!option_read_whole(option, text, &count))
            return false;
        *(int *)field = (int)count;
        return true;
    }
    if (option->kind == DCPK_OPTION_WORD &&
        !dcpk_option_has_word(option->words, text, strlen(text)))
        return false;
    *(const char **)field = text;
    return true;
}

void dcpk_option_reset(const struct dcpk_option *option, void *values)
{
    memset(dcpk_option_field(option, values), 0, dcpk_option_bytes(option));
    if (option->initial != NULL)
        (void)dcpk_option_read(option, option->initial, values);
}

/* "2147483647", "2^40". */
static void option_put_bound(int64_t most, char text[24])
{
    const int power = ilogb((double)most);

    if (power > 31 && most == INT64_C(1) << power)
        snprintf(text, 24, "2^%d", power);
    else
        snprintf(text, 24, "%" PRId64, most);
}

const char *dcpk_option_takes(const struct dcpk_option *option, char text[DCPK_OPTION_TAKES_BYTES])
{
    char most[24];

    if (option->kind == DCPK_OPTION_FLAG)
        return "true or false";
    if (option->kind == DCPK_OPTION_WORD)
        return option->words;
    if (option->kind == DCPK_OPTION_NUMBER)
        return "a number, 0 or more";
    if (option->kind == DCPK_OPTION_SIZE)
        return "a size like 256M or 1G";
    if (option->kind != DCPK_OPTION_COUNT && option->kind != DCPK_OPTION_LENGTH)
        return "a text";
    option_put_bound(option->most, most);
    snprintf(text, DCPK_OPTION_TAKES_BYTES, "a whole number from %" PRId64 " to %s", option->least,
             most);
    return text;
}
