/* SPDX-License-Identifier: Apache-2.0 */
/* checks.c - a list of named checks and their outcomes, and how it is printed. */
#include "tools/checks.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "tools/cmd.h"

void dcpk_checks_add(struct dcpk_checks *checks, const char *name, dcpk_status st,
                     const struct dcpk_error *err, const char *fmt, ...)
{
    struct dcpk_check *check = &checks->list[checks->n];
    va_list ap;

    assert(checks->n < DCPK_MAX_CHECKS);
    checks->n++;
    check->name = name;
    check->status = st;
    va_start(ap, fmt);
    if (st == DCPK_OK)
        vsnprintf(check->text, sizeof check->text, fmt, ap);
    else
        dcpk_cli_error_text(err, check->text);
    va_end(ap);
}

int dcpk_checks_exit_code(const struct dcpk_checks *checks)
{
    int code = DCPK_EXIT_OK;

    for (size_t i = 0; i < checks->n; i++) {
        const dcpk_status st = checks->list[i].status;
        const int mine = dcpk_cli_exit_code(st);

        if (st == DCPK_EFORMAT || st == DCPK_EMISMATCH)
            return DCPK_EXIT_NO;
        code = mine > code ? mine : code;
    }
    return code;
}

static const char *verdict(const struct dcpk_checks *checks)
{
    const int code = dcpk_checks_exit_code(checks);

    if (code == DCPK_EXIT_OK)
        return "ok";
    return code == DCPK_EXIT_NO ? "NOT ok" : "not known, a check could not be made";
}

void dcpk_checks_print_rows(const struct dcpk_checks *checks)
{
    for (size_t i = 0; i < checks->n; i++) {
        const bool is_ok = checks->list[i].status == DCPK_OK;

        dcpk_cli_printf(stdout, "%-10s  %-6s  ", checks->list[i].name, is_ok ? "ok" : "FAILED");
        dcpk_cli_put_text(stdout, checks->list[i].text);
        dcpk_cli_printf(stdout, "\n");
    }
}

dcpk_status dcpk_checks_print_verdict(const struct dcpk_checks *checks, struct dcpk_error *err)
{
    dcpk_cli_printf(stdout, "verdict     %s\n", verdict(checks));
    return dcpk_cli_flush(err);
}

dcpk_status dcpk_checks_print(const struct dcpk_checks *checks, struct dcpk_error *err)
{
    dcpk_checks_print_rows(checks);
    return dcpk_checks_print_verdict(checks, err);
}

void dcpk_checks_put_rows(const struct dcpk_checks *checks, struct dcpk_json_out *j)
{
    dcpk_json_begin_array(j);
    for (size_t i = 0; i < checks->n; i++) {
        dcpk_json_begin_object(j);
        dcpk_json_add_string(j, "name", checks->list[i].name);
        dcpk_json_add_bool(j, "ok", checks->list[i].status == DCPK_OK);
        dcpk_json_add_string(j, "text", checks->list[i].text);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_array(j);
}

static void put_differences(struct dcpk_json_out *j, const struct dcpk_compare_report *proof)
{
    dcpk_json_put_key(j, "differences");
    dcpk_json_begin_array(j);
    for (const struct dcpk_difference *d = proof->differences.first; d != NULL; d = d->next)
        dcpk_json_put_string(j, d->sentence);
    dcpk_json_end_array(j);
}

/* What the source has stored, and how much of it is left out. */
static void put_left(struct dcpk_json_out *j, const struct dcpk_left *left)
{
    dcpk_json_add_uint(j, "n_source_objects", left->n_objects);
    dcpk_json_add_uint(j, "n_source_objects_left_out", left->n_objects_left);
    dcpk_json_add_uint(j, "n_source_tensors", left->n_tensors);
    dcpk_json_add_uint(j, "n_source_tensors_left_out", left->n_tensors_left);
}

dcpk_status dcpk_checks_print_json(const struct dcpk_checks *checks, const char *format,
                                   const struct dcpk_compare_report *proof, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_put_key(&j, "checks");
    dcpk_checks_put_rows(checks, &j);
    if (proof != NULL)
        put_differences(&j, proof);
    dcpk_json_add_string(&j, "format", format);
    if (proof != NULL)
        dcpk_json_add_uint(&j, "n_differences", proof->differences.n);
    if (proof != NULL)
        put_left(&j, &proof->left);
    dcpk_json_add_bool(&j, "ok", dcpk_checks_exit_code(checks) == DCPK_EXIT_OK);
    dcpk_json_add_int(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}
