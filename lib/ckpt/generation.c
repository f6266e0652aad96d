/* SPDX-License-Identifier: Apache-2.0 */
/* generation.c - generation and releases in words and as JSON. */
#include "lib/ckpt/generation.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"

/* "core-0.13" is "core 0.13" for people; after another core release its number alone. */
static const char *release_number(const char *release)
{
    if (dcpk_starts_with(release, "core-"))
        release += strlen("core-");
    return release;
}

static void format_releases(const struct dcpk_releases *r, char *text, size_t n)
{
    const char *core = dcpk_starts_with(r->from, "core-") ? "core " : "";
    const char *from = release_number(r->from);

    if (r->to == NULL)
        snprintf(text, n, "%s%s and later", core, from);
    else if (strcmp(r->from, r->to) == 0)
        snprintf(text, n, "%s%s", core, from);
    else
        snprintf(text, n, "%s%s to %s", core, from, release_number(r->to));
}

const char *dcpk_generation_text(const struct dcpk_checkpoint *ckpt,
                                 char text[DCPK_GENERATION_TEXT_BYTES])
{
    char releases[DCPK_GENERATION_TEXT_BYTES / 2];

    text[0] = '\0';
    if (*ckpt->generation == '\0')
        return text;
    if (ckpt->releases.from == NULL) {
        snprintf(text, DCPK_GENERATION_TEXT_BYTES, "generation %s", ckpt->generation);
        return text;
    }
    format_releases(&ckpt->releases, releases, sizeof releases);
    snprintf(text, DCPK_GENERATION_TEXT_BYTES, "generation %s (%s)", ckpt->generation, releases);
    return text;
}

static void add_text(struct dcpk_json_out *j, const char *key, const char *text)
{
    if (text == NULL || *text == '\0')
        dcpk_json_add_null(j, key);
    else
        dcpk_json_add_string(j, key, text);
}

void dcpk_generation_add_json(const struct dcpk_checkpoint *ckpt, struct dcpk_json_out *j)
{
    add_text(j, "generation", ckpt->generation);
}

void dcpk_releases_add_json(const struct dcpk_checkpoint *ckpt, struct dcpk_json_out *j)
{
    if (ckpt->releases.from == NULL) {
        dcpk_json_add_null(j, "releases");
        return;
    }
    dcpk_json_put_key(j, "releases");
    dcpk_json_begin_object(j);
    add_text(j, "from", ckpt->releases.from);
    add_text(j, "to", ckpt->releases.to);
    dcpk_json_end_object(j);
}
