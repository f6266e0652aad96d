#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# losscmp.sh - equal and unequal losses of two logs, ours and Megatron's; exit codes, tolerances, JSON, page.

# step ITERATION LOSS_HEX NORM_HEX HASH: a line as 'train' writes it
step() {
    printf '{"iteration": %d, "loss": 0.0, "loss_hex": "%s", "grad_norm": 0.0, "grad_norm_hex": "%s", "state_hash": "%s"}\n' "$@"
}
# megatron ITERATION LOSS NORM: a line of core 0.19.0
megatron() {
    printf ' [2026-11-22 12:35:09.791032] iteration %8d/      24 | consumed samples:           18 | learning rate: 1.000000047E-03 | lm loss: %s | loss scale: 1.0 | grad norm: %s | number of skipped iterations:   0 |\n' "$@"
}

{
    echo '{"log": "dcpkit train"}'
    step 9 0x1.4835696p+2 0x1.624dd2f1a9fbep+1 00000000000000aa
    step 10 0x1.433c0fcp+2 0x1.2be76c8b43958p+1 00000000000000bb
} >a
sed s/433c0fcp/433c0fdp/ a >loss
sed 's/00bb"/00bc"/' a >state
{
    megatron 9 5.128260E+00 2.768
    megatron 10 5.050541E+00 2.343
    megatron 11 4.900654E+00 4.213
} >log.txt
sed -n 2p a >nine
sed -n 3p a >ten
{ sed -n 2p a; sed s/433c0fcp/433c0fdp/ a; } >resumed # 9 was made twice

losscmp() { "$DCPKIT" losscmp "$@"; }
for b in a log.txt; do
    losscmp a $b >said || cat said
    tail -n 1 said
done
losscmp a log.txt
answers_no "one bit of a loss" '^iteration 10: loss; loss 5.05054' losscmp a loss
answers_no "one bit of a state" '^iteration 10: state_hash;' losscmp a state
answers_no "exactly" 'DIFFERENT \(1\)' losscmp --exact resumed a
losscmp resumed a | grep made
losscmp --tol 1e-6 a loss | tail -n 2
answers_no "a small tolerance" DIFFERENT losscmp --tol 1e-9 --norm-tol 1 a loss
losscmp --tol 1e-6 a state | tail -n 1
sed 's/"loss_hex"/"loss_noise": 1e-7, &/' a >noisy
losscmp --noise noisy loss | tail -n 2
sed s/433c0fcp/433c3fcp/ a >far
answers_no "more than ten times the noise" DIFFERENT losscmp --noise noisy far
refuses "noise to the bit" 2 'exclude each other' losscmp --noise --exact a a
losscmp --json a loss | jq -c '[.equal, .first_different, .n_compared, .n_different, .parts.loss.n_different]'
losscmp --html page.html a log.txt >/dev/null
grep -c '<polyline class="c[01]" points="[0-9., ]*"/>' page.html
refuses "no common iteration" 2 'share no iteration: A has 9 to 9, B 10 to 10' losscmp nine ten
refuses "not a log" 3 'holds no step of a training run' losscmp a page.html
refuses "missing" 4 "reading 'none' as a log .*'none' in '.': No such file or directory" losscmp a none
refuses "missing, first" 4 "reading 'none' as a log .*'none' in '.': No such file or directory" losscmp none a
refuses "missing folder" 4 "opening folder 'none/': No such file or directory" losscmp none/a a
refuses "both" 2 'exclude each other' losscmp --exact --tol 1 a a
