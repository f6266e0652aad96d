#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_archive.sh - archives that lie, climb, hide, swell, or hold no checkpoint or too many.
if "$DCPKIT" --version | grep -q 'not built in.*libarchive'; then
    echo "built without libarchive"
    exit 77
fi
tiny=tiny_generations/torch_dist_main_torch2.11
refused() {
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    refuses "$1" "$2" "$3" $BOUNDED "$DCPKIT" inspect "$4"
}

sample $tiny iter_0000001
sample $tiny iter_0000002
tar -cf one.tar iter_0000001
tar -cf two.tar iter_0000001 iter_0000002
refused "two checkpoints" 3 "2 checkpoints.*'iter_0000001', 'iter_0000002'" two.tar
printf 2 >latest_checkpointed_iteration.txt
tar -cf tracked.tar iter_0000001 iter_0000002 latest_checkpointed_iteration.txt
"$DCPKIT" inspect tracked.tar | head -n 1
printf 7 >latest_checkpointed_iteration.txt
tar -cf lost.tar iter_0000001 latest_checkpointed_iteration.txt
refused "a tracker without its folder" 3 "names 'iter_0000007'" lost.tar
printf seven >latest_checkpointed_iteration.txt
tar -cf word.tar iter_0000001 latest_checkpointed_iteration.txt
refused "a tracker that is no number" 3 "seven" word.tar
echo text >note.txt
tar -cf none.tar note.txt
refused "no checkpoint" 3 'no checkpoint among the 1 files' none.tar
refused "no archive" 3 'neither a tar' note.txt

tar -cf up.tar --transform='s,iter_0000001/.metadata,../.metadata,' -P iter_0000001
refused "a name that climbs" 3 "'\.\./.metadata' leaves" up.tar
tar -cf absolute.tar --transform='s,^iter_0000001/,/iter_0000001/,' -P iter_0000001
refused "an absolute name" 3 "absolute name" absolute.tar
deep=$(head -c 1000 /dev/zero | sed 's,\x00,a/,g')
tar -cf deep.tar --transform="s,iter_0000001/__0_0,$deep&," iter_0000001
refused "1000 folders around a file" 3 "'a/a/.*in more than 64 folders" deep.tar
gzip -c one.tar >whole.tar.gz
size=$(stat -c %s whole.tar.gz)
cp whole.tar.gz crc.tar.gz && printf '\377\377\377\377' | dd of=crc.tar.gz bs=1 seek=$((size - 8)) conv=notrunc status=none
refused "another CRC-32 behind gzip" 3 'gzip is damaged before byte .*incorrect data check' crc.tar.gz
cp whole.tar.gz length.tar.gz && printf '\377\377\377\377' | dd of=length.tar.gz bs=1 seek=$((size - 4)) conv=notrunc status=none
refused "another length behind gzip" 3 'gzip is damaged before byte .*incorrect length check' length.tar.gz
head -c $((size - 3)) whole.tar.gz >tail.tar.gz
refused "gzip cut in its trailer" 3 'malformed|gzip is damaged' tail.tar.gz
half=$(($(stat -c %s one.tar) / 2))
{ head -c $half one.tar | gzip && tail -c +$((half + 1)) one.tar | gzip && head -c 512 /dev/zero; } >members.tar.gz # as pigz and others write
"$DCPKIT" inspect members.tar.gz 2>/dev/null | head -n 1
cp one.tar twice.tar && tar -rf twice.tar iter_0000001/.metadata
refused "a name twice" 3 "'iter_0000001/.metadata' twice" twice.tar
sample $tiny linked/iter_0000001 2>/dev/null || { mkdir linked && sample $tiny linked/iter_0000001; }
ln -sf /etc/passwd linked/iter_0000001/passwd
tar -cf link.tar -C linked iter_0000001
refused "a link in the checkpoint" 3 "'iter_0000001/passwd' is a link" link.tar
rm linked/iter_0000001/passwd && mkfifo linked/iter_0000001/pipe
tar -cf pipe.tar -C linked iter_0000001
refused "a pipe in the checkpoint" 3 "'iter_0000001/pipe' is a device" pipe.tar
mv linked/iter_0000001/pipe linked/pipe
tar -cf beside.tar -C linked iter_0000001 pipe
"$DCPKIT" inspect beside.tar >/dev/null && echo "a pipe beside it: no matter"

gzip -k one.tar
head -c 2000 one.tar >cut.tar
refused "a tar cut short" 3 'cut short|[Tt]runcated' cut.tar
head -c 2000 one.tar.gz >cut.tar.gz
refused "a gzip cut short" 3 '[Tt]runcated|cut' cut.tar.gz
cp one.tar sum.tar && printf X | dd of=sum.tar bs=1 seek=520 conv=notrunc 2>/dev/null
refused "a damaged header" 3 'archive' sum.tar
TMPDIR=$TMP/nowhere refused "no place to unpack" 4 'temporary file.*nowhere.*TMPDIR' one.tar.gz
if [ -w /dev/full ]; then
    (
        ulimit -f 8 # KiB that a file may have; the signal is ignored, so that writing fails
        trap '' XFSZ
        refused "no space to unpack" 4 'unpacking to a temporary file' one.tar.gz
    )
fi
mkdir bomb && sample $tiny bomb/iter_0000001
head -c 20000000 /dev/zero | tr '\0' ']' >bomb/iter_0000001/.metadata
tar -czf bomb.tar.gz -C bomb iter_0000001 && rm -r bomb
refused "20 MB of lists as .metadata" 3 "'\.metadata': 20000000 bytes; the limit for an archive of this size is [0-9]+" bomb.tar.gz
head -c 150M /dev/zero | gzip -9 >zeros.gz
head -c 150M /dev/zero >zeros && tar -cf - zeros | gzip -9 | gzip -9 >swells.tar.gz.gz && rm zeros zeros.gz
# Names of 3856 bytes: 64 MB of memory for what is 200 KB when it is packed, and 37 MB when it is not.
mkdir names && (cd names && touch {1..8000} && tar -cf ../names.tar --transform="s,^,$(printf '%0240d/' {1..16})," -- *) && rm -r names
refused "8000 long names" 3 'no checkpoint among the 8000 files' names.tar
gzip -9 names.tar
refused "8000 long names, packed" 3 'names pass the limit of [0-9]+ bytes for an archive of [0-9]+' names.tar.gz
refused "what swells" 3 'unpacks to more than [0-9]+ bytes, 1000 times' swells.tar.gz.gz
exit 0
