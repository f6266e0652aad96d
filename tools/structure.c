/* SPDX-License-Identifier: Apache-2.0 */
/* structure.c - the checks of a checkpoint that need its metadata alone. */
#include "lib/ckpt/format.h"
#include "lib/ckpt/places.h"
#include "tools/checks.h"

static void check_structure(struct dcpk_checks *checks, struct dcpk_checkpoint *ckpt)
{
    const struct dcpk_error none = DCPK_ERROR_INIT;

    dcpk_checks_add(
        checks, "structure", DCPK_OK, &none,
        "%s: %zu tensors, %zu chunks, %zu objects in %zu files; every box inside its tensor, "
        "every place inside its file, every file inside the folder",
        ckpt->format->name, ckpt->n_tensors, ckpt->n_chunks, ckpt->n_objects, ckpt->n_files);
}

/* What is lost with a file shows in none of its neighbours. */
static void check_whole(struct dcpk_checks *checks, struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const dcpk_status st =
        ckpt->format->check_whole == NULL ? DCPK_OK : ckpt->format->check_whole(ckpt, &err);

    dcpk_checks_add(checks, "whole", st, &err,
                    "nothing that belongs to tensors and objects of %s is missing",
                    ckpt->format->name);
}

static void check_cover(struct dcpk_checks *checks, struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const dcpk_status st = dcpk_checkpoint_check_cover(ckpt, &err);

    dcpk_checks_add(checks, "cover", st, &err, "the chunks of every tensor cover it exactly");
}

static void check_places(struct dcpk_checks *checks, struct dcpk_checkpoint *ckpt)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const dcpk_status st = dcpk_check_places(ckpt, &err);

    dcpk_checks_add(checks, "places", st, &err, "no two items share bytes, but for exact aliases");
}

void dcpk_checks_structure(struct dcpk_checks *checks, struct dcpk_checkpoint *ckpt)
{
    check_structure(checks, ckpt);
    check_whole(checks, ckpt);
    check_cover(checks, ckpt);
    check_places(checks, ckpt);
}
