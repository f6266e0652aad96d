#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_permission.sh - files and folders that we may not read or write; run as nobody where we are root.
as_user=()
if [ "$(id -u)" -eq 0 ]; then
    as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
sample torch_dist_c_dense_tp2pp2 in
sample tiny_generations/torch_dist_main_torch2.11 secret
sample tiny_generations/torch_dist_main_torch2.11 secret_data
mkdir closed
chmod 755 "$TMP" "$TMP/.."
chmod 000 secret/.metadata secret_data/__0_0.distcp
chmod 555 closed
"${as_user[@]}" test -x "$DCPKIT" -a -r in/iter_0000004/.metadata || exit 77

refuses ".metadata is secret" 4 'metadata.*Permission denied' "${as_user[@]}" "$DCPKIT" inspect secret
refuses "data is secret" 4 '__0_0\.distcp.*Permission denied' \
    "${as_user[@]}" "$DCPKIT" hash secret_data
refuses "no room for output" 4 'closed.*Permission denied' \
    "${as_user[@]}" "$DCPKIT" convert --to fsdp_dtensor in closed/out
