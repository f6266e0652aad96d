/* SPDX-License-Identifier: Apache-2.0 */
/* step_log.c - steps to lines and back. */
#include "lib/job/step_log.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define HEX_BYTES 32

static void put_number(struct dcpk_json_out *j, const char *key, const char *hex_key,
                       const struct dcpk_logged *number)
{
    char hex[HEX_BYTES];

    if (!number->is_there) {
        dcpk_json_add_null(j, key);
        return;
    }
    snprintf(hex, sizeof hex, "%a", number->value);
    dcpk_json_put_key(j, key);
    dcpk_json_put_double(j, number->value);
    dcpk_json_add_string(j, hex_key, hex);
}

void dcpk_step_put(const struct dcpk_step *step, struct dcpk_bytes *out)
{
    char hash[HEX_BYTES];
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, out, 0);
    dcpk_json_begin_object(&j);
    dcpk_json_add_int(&j, "iteration", step->iteration);
    dcpk_json_add_int(&j, "consumed_samples", step->consumed_samples);
    put_number(&j, "loss", "loss_hex", &step->loss);
    if (step->loss_noise.is_there)
        put_number(&j, "loss_noise", "loss_noise_hex", &step->loss_noise);
    put_number(&j, "grad_norm", "grad_norm_hex", &step->grad_norm);
    dcpk_json_put_key(&j, "lr");
    dcpk_json_put_double(&j, step->lr.value);
    dcpk_json_put_key(&j, "loss_scale");
    dcpk_json_put_double(&j, step->loss_scale.value);
    dcpk_json_add_bool(&j, "skipped", step->is_skipped);
    if (step->has_hash) {
        snprintf(hash, sizeof hash, "%016" PRIx64, step->state_hash);
        dcpk_json_add_string(&j, "state_hash", hash);
    }
    dcpk_json_end_object(&j);
    dcpk_bytes_text(out, "\n");
}

/* ---- our lines ---- */

/* True if strtod takes the whole text and a double holds the value; NUL-terminated. */
static bool read_float(const char *text, double *value)
{
    char *end;

    if (text == NULL || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && !(errno == ERANGE && isinf(*value));
}

static bool json_float(const struct dcpk_json *line, const char *key, double *value)
{
    const struct dcpk_json *node = dcpk_json_member(line, key);

    return dcpk_json_double(node, value) || read_float(dcpk_json_string(node), value);
}

/* The hex float, else the decimal, which has all digits of a double. False: malformed. */
static bool json_number(const struct dcpk_json *line, const char *key, const char *hex_key,
                        struct dcpk_logged *number)
{
    const struct dcpk_json *node = dcpk_json_member(line, key);

    *number = (struct dcpk_logged){0};
    if (node == NULL || dcpk_json_kind(node) == DCPK_JSON_NULL)
        return true;
    number->is_there = true;
    if (dcpk_json_member(line, hex_key) != NULL)
        return json_float(line, hex_key, &number->value);
    return json_float(line, key, &number->value);
}

static bool json_hash(const struct dcpk_json *line, struct dcpk_step *step)
{
    const struct dcpk_json *node = dcpk_json_member(line, "state_hash");
    const char *text = dcpk_json_string(node);
    char *end;

    if (node == NULL)
        return true;
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    step->state_hash = strtoull(text, &end, 16);
    step->has_hash = true;
    return true;
}

/* Its values, which may be missing but not malformed. */
static bool json_step(const struct dcpk_json *line, struct dcpk_step *step)
{
    const struct dcpk_json *skipped = dcpk_json_member(line, "skipped");
    const struct dcpk_json *consumed = dcpk_json_member(line, "consumed_samples");

    return dcpk_json_int(dcpk_json_member(line, "iteration"), &step->iteration) &&
           json_number(line, "loss", "loss_hex", &step->loss) &&
           json_number(line, "grad_norm", "grad_norm_hex", &step->grad_norm) &&
           json_number(line, "loss_noise", "loss_noise_hex", &step->loss_noise) &&
           (consumed == NULL || dcpk_json_int(consumed, &step->consumed_samples)) &&
           json_number(line, "lr", "lr_hex", &step->lr) &&
           json_number(line, "loss_scale", "loss_scale_hex", &step->loss_scale) &&
           (skipped == NULL || dcpk_json_bool(skipped, &step->is_skipped)) && json_hash(line, step);
}

/* Bytes of the word at `at` that Python's json writes for a number that is not finite; 0: none. */
static size_t literal_bytes(const char *at, size_t n)
{
    static const char *const literals[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < DCPK_COUNT(literals); i++) {
        const size_t n_literal = strlen(literals[i]);

        if (n >= n_literal && memcmp(at, literals[i], n_literal) == 0)
            return n_literal;
    }
    return 0;
}

/* Copies a line of JSON and quotes the literals, which JSON does not have: our own lines have them
 * as strings. */
static dcpk_status quote_literals(const char *line, size_t n, struct dcpk_bytes *out,
                                  struct dcpk_error *err)
{
    bool is_string = false;

    for (size_t at = 0, used; at < n; at += used) {
        const size_t n_literal = is_string ? 0 : literal_bytes(line + at, n - at);

        used = n_literal > 0 ? n_literal : 1;
        if (is_string && line[at] == '\\' && at + 1 < n)
            used = 2;
        else if (line[at] == '"')
            is_string = !is_string;
        if (n_literal > 0)
            dcpk_bytes_u8(out, '"');
        dcpk_bytes_put(out, line + at, used);
        if (n_literal > 0)
            dcpk_bytes_u8(out, '"');
    }
    return dcpk_bytes_status(out, err);
}

static dcpk_status read_json_line(const char *line, size_t n, struct dcpk_step *step, bool *is_step,
                                  struct dcpk_error *err)
{
    struct dcpk_bytes quoted = {0};
    struct dcpk_json *doc = NULL;
    dcpk_status st = quote_literals(line, n, &quoted, err);

    if (st == DCPK_OK)
        st = dcpk_json_parse((const char *)quoted.data, quoted.n_bytes, &doc, err);
    if (st != DCPK_OK)
        goto out;
    *is_step = dcpk_json_member(doc, "iteration") != NULL;
    if (*is_step && !json_step(doc, step))
        st = dcpk_fail(err, DCPK_EFORMAT, "a value of the step is malformed");
out:
    dcpk_json_free(doc);
    dcpk_bytes_release(&quoted);
    return st;
}

/* ---- Megatron's lines ---- */

#define NUMBER_BYTES 64

/* The word after `label` in a line of n bytes, cut to the array; false: no such label. */
static bool find_word(const char *line, size_t n, const char *label, char word[NUMBER_BYTES])
{
    const char *at = memmem(line, n, label, strlen(label));
    size_t n_word = 0;

    if (at == NULL)
        return false;
    at += strlen(label);
    while (at < line + n && *at == ' ')
        at++;
    while (at + n_word < line + n && n_word + 1 < NUMBER_BYTES && at[n_word] != ' ' &&
           at[n_word] != '/' && at[n_word] != '|')
        n_word++;
    memcpy(word, at, n_word);
    word[n_word] = '\0';
    return true;
}

/* Half a unit of the last digit of "5.128260E+00". */
static double rounding_of(const char *text)
{
    const char *point = strchr(text, '.');
    const char *exponent = strpbrk(text, "eE");
    double unit = 1;

    if (point != NULL)
        unit = pow(10, -(double)strspn(point + 1, "0123456789"));
    if (exponent != NULL)
        unit *= pow(10, strtod(exponent + 1, NULL));
    return unit / 2;
}

/* A label that is not there leaves the number unchanged. */
static bool megatron_number(const char *line, size_t n, const char *label,
                            struct dcpk_logged *number)
{
    char word[NUMBER_BYTES];

    if (!find_word(line, n, label, word))
        return true;
    number->is_there = true;
    number->rounded = rounding_of(word);
    if (strlen(word) + 1 == sizeof word || !read_float(word, &number->value))
        return false;
    /* Digits that are all zero leave nothing open that a large exponent would. */
    return isnan(number->value) || number->rounded <= fmax(fabs(number->value), 0.5);
}

static dcpk_status read_megatron_line(const char *line, size_t n, struct dcpk_step *step,
                                      bool *is_step, struct dcpk_error *err)
{
    struct dcpk_logged skipped = {0}, consumed = {0}, number = {0};
    struct dcpk_logged *const lr = &step->next_lr;

    *is_step = memmem(line, n, "] iteration ", strlen("] iteration ")) != NULL &&
               memmem(line, n, " | ", 3) != NULL;
    if (!*is_step)
        return DCPK_OK;
    if (!megatron_number(line, n, "] iteration ", &number) ||
        !megatron_number(line, n, "consumed samples:", &consumed) ||
        !megatron_number(line, n, "learning rate:", lr) ||
        !megatron_number(line, n, "lm loss:", &step->loss) ||
        !megatron_number(line, n, "loss scale:", &step->next_loss_scale) ||
        !megatron_number(line, n, "grad norm:", &step->grad_norm) ||
        !megatron_number(line, n, "number of skipped iterations:", &skipped) ||
        !(number.value >= 0 && number.value < 0x1p53 && fabs(consumed.value) < 0x1p53))
        return dcpk_fail(err, DCPK_EFORMAT, "a number of the step is malformed");
    step->iteration = (int64_t)number.value;
    step->consumed_samples = (int64_t)consumed.value;
    lr->rounded = fmax(lr->rounded, fabs(lr->value) * FLT_EPSILON / 2); /* was a float32 */
    step->is_skipped = skipped.value > 0;
    return DCPK_OK;
}

/* ---- logs ---- */

/* Takes what Megatron printed with the step before. */
static void step_continue(struct dcpk_step *step, const struct dcpk_step *before)
{
    if (before->iteration + 1 != step->iteration)
        return;
    if (!step->lr.is_there)
        step->lr = before->next_lr;
    if (!step->loss_scale.is_there)
        step->loss_scale = before->next_loss_scale;
}

/* A run that was resumed replaces the steps after the one that it continues from. */
static dcpk_status log_add(struct dcpk_step_log *log, size_t *capacity, struct dcpk_step *step,
                           struct dcpk_error *err)
{
    while (log->n > 0 && log->steps[log->n - 1].iteration >= step->iteration) {
        log->n--;
        log->n_replaced++;
    }
    if (dcpk_grow(&log->steps, capacity, log->n, sizeof *log->steps, err) != DCPK_OK)
        return err->status;
    if (log->n > 0)
        step_continue(step, &log->steps[log->n - 1]);
    log->steps[log->n++] = *step;
    return DCPK_OK;
}

static dcpk_status read_lines(const char *text, size_t n_bytes, struct dcpk_step_log *log,
                              struct dcpk_error *err)
{
    size_t at = 0, n, capacity = 0;
    const char *line;

    while ((line = dcpk_take_line(text, n_bytes, &at, &n)) != NULL) {
        struct dcpk_step step = {0};
        bool is_step;
        dcpk_status st;

        if (line[0] == '{')
            st = read_json_line(line, n, &step, &is_step, err);
        else
            st = read_megatron_line(line, n, &step, &is_step, err);
        if (st == DCPK_OK && is_step)
            st = log_add(log, &capacity, &step, err);
        if (st != DCPK_OK)
            return dcpk_context(err, "the line at byte %zu", (size_t)(line - text));
    }
    return DCPK_OK;
}

dcpk_status dcpk_step_log_read(const char *text, size_t n_bytes, struct dcpk_step_log *log,
                               struct dcpk_error *err)
{
    struct dcpk_step_log read = {0};
    dcpk_status st = read_lines(text, n_bytes, &read, err);

    if (st == DCPK_OK && read.n == 0)
        st = dcpk_fail(err, DCPK_EFORMAT, "it holds no step of a training run");
    if (st != DCPK_OK) {
        dcpk_step_log_release(&read);
        return st;
    }
    *log = read;
    return DCPK_OK;
}

void dcpk_step_log_release(struct dcpk_step_log *log)
{
    dcpk_free(log->steps);
    *log = (struct dcpk_step_log){0};
}
