#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# losscmp.sh - equal and unequal losses of two logs, ours and Megatron's; what proves nothing is not equal; exit codes,
# tolerances, JSON, page.

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
losscmp resumed a | grep repeated
losscmp --tol 1e-6 a loss | tail -n 2
answers_no "a small tolerance" DIFFERENT losscmp --tol 1e-9 --norm-tol 1 a loss
losscmp --tol 1e-6 a state | tail -n 1
sed 's/"loss_hex"/"loss_noise": 1e-7, &/' a >noisy
losscmp --noise noisy loss | tail -n 2
sed s/433c0fcp/433c3fcp/ a >far
answers_no "more than ten times the noise" DIFFERENT losscmp --noise noisy far
refuses "noise to the bit" 2 'exclude each other' losscmp --noise --exact a a

# two diverged runs, as a log of ours and as Python's json writes them
sed 's/"loss": 0.0, "loss_hex": "[^"]*"/"loss": NaN/; s/"grad_norm": 0.0, "grad_norm_hex": "[^"]*"/"grad_norm": Infinity/' a >diverged
for how in "" --tol=1e-5 --noise; do
    answers_no "diverged${how:+, $how}" 'not finite  loss or norm of both logs in 2 iterations: they count as different' losscmp $how diverged diverged
done
losscmp --exact diverged diverged | grep -E 'finite|verdict'

# iterations that one of them lacks: in between, at the end
{ cat a; step 11 0x1.3p+2 0x1p+1 00000000000000cc; } >three
sed '/"iteration": 10,/d' three >gap
answers_no "a gap" 'INCOMPLETE \(1 iteration missing\)' losscmp three gap
answers_no "a gap in A" '^A lacks .* 1 between, 0 after the last; from 10 on' losscmp gap three
answers_no "a run that ended" 'INCOMPLETE \(1 iteration missing\)' losscmp --all three a
losscmp three a | tail -n 3
losscmp --all three ten | tail -n 1 || echo "exit $?"

# what a step used, as tolerances do not hide it; of another step's lr Megatron's line tells
for what in '"lr": 0.5' '"consumed_samples": 99' '"loss_scale": 2.0'; do
    key=${what%:*}
    sed "s/\"loss\"/$key: 1, &/" a >used
    sed "s/\"loss\"/$what, &/" a >other
    answers_no "${key//\"/}" "^iteration 9: ${key//\"/};" losscmp --tol 1e-5 used other
done
sed 's/"loss"/"lr": 0.001, &/' a >rates
losscmp --json rates log.txt | jq -c '[.equal, .parts.lr.n_compared]'
sed 's/1.000000047E-03/1.000100000E-03/' log.txt >late.txt
answers_no "a late schedule" '^iteration 10: lr;' losscmp rates late.txt

# too few digits, too much noise
sed 's/lm loss: [^ ]*/lm loss: 5/' log.txt >short.txt
refuses "one digit" 2 'no iteration has a loss of at least 4 digits in both logs' losscmp --tol 1e-5 a short.txt
losscmp --tol 1e-5 a log.txt | grep ^compared
sed 's/"loss_hex"/"loss_noise": 1e9, &/' a >loud
answers_no "any noise" 'noise *above 1e-2 of the loss in 2 iterations: it allows nothing' losscmp --noise loud far

losscmp --json a loss | jq -c '[.equal, .first_different, .n_compared, .n_different, .parts.loss.n_different]'
losscmp --html page.html a log.txt >/dev/null
grep -c '<polyline class="c[01]" points="[0-9., ]*"/>' page.html
# the marks of an axis are few, also where numbers are large
for i in 0 1 2 400; do step "$((9000000000000000 + i))" 0x1.4835696p+2 0x1.624dd2f1a9fbep+1 00000000000000aa; done >huge
losscmp --html huge.html huge huge >/dev/null || echo "exit $?"
[ "$(grep -c '<text' huge.html)" -lt 30 ] || echo "marks: $(grep -c '<text' huge.html)"
refuses "no common iteration" 2 'share no iteration: A has 9 to 9, B 10 to 10' losscmp nine ten
refuses "not a log" 3 'holds no step of a training run' losscmp a page.html
refuses "missing" 4 "reading 'none' as a log .*'none' in '.': No such file or directory" losscmp a none
refuses "missing, first" 4 "reading 'none' as a log .*'none' in '.': No such file or directory" losscmp none a
refuses "missing folder" 4 "opening folder 'none/': No such file or directory" losscmp none/a a
refuses "both" 2 'exclude each other' losscmp --exact --tol 1 a a
