#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_pickle.sh - a .metadata that calls, bombs, nests or lies about lengths. Opcodes: CPython's pickletools.
tiny=tiny_generations/torch_dist_main_torch2.11

# pickle LABEL REGEX: the .metadata on stdin is refused with a message that holds REGEX.
pickle() {
    sample $tiny evil
    cat >evil/.metadata
    attack "$1" 3 "reading '\.metadata'.*$2" evil
}

# times N TEXT: TEXT N times.
times() {
    head -c "$1" /dev/zero | sed "s/\x00/$2/g"
}
printf '\x80\x02cposix\nsystem\nX\x0b\0\0\0touch owned\x85R.' | pickle "GLOBAL, REDUCE" 'posix\.system'
printf '\x80\x04\x8c\x02os\x8c\x06system\x93X\x0b\0\0\0touch owned\x85R.' | pickle "STACK_GLOBAL" 'os\.system'
printf '(X\x0b\0\0\0touch ownediposix\nsystem\n.' | pickle "INST" 'byte [0-9]+'
printf '(cposix\nsystem\nX\x0b\0\0\0touch ownedo.' | pickle "OBJ" 'OBJ is not read'
printf '\x80\x02csubprocess\nPopen\nX\x0b\0\0\0touch owned\x85\x81.' | pickle "NEWOBJ" 'subprocess\.Popen'
printf '\x80\x04\x8c\x0asubprocess\x8c\x05Popen\x93)}\x92.' | pickle "NEWOBJ_EX" 'subprocess\.Popen'
printf '\x80\x02c__main__\nEvil\n)\x81}X\x01\0\0\0aK\x01sb.' | pickle "BUILD calls __setstate__" '__main__\.Evil'
printf '\x80\x02\x82\x01.' | pickle "EXT1" 'byte 2'
printf '\x80\x02\x83\x01\0.' | pickle "EXT2" 'byte 2'
printf '\x80\x02\x84\x01\0\0\0.' | pickle "EXT4" 'byte 2'
printf 'Phttp://example.com\n.' | pickle "PERSID" 'byte [0-9]+'
printf '\x80\x02cbuiltins\ngetattr\ncposix\nsystem\nX\x04\0\0\0call\x86R.' | pickle "getattr" 'posix\.system\.call'
printf '\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93X\x0b\0\0\0touch owned\x85R.' |
    pickle "a dotted name in an allowed module" 'torch\.serialization\.os\.system'
printf '\x80\x02ctorch\nload\nX\x0b\0\0\0touch owned\x85R.' | pickle "a function of an allowed module" 'torch\.load'

{
    printf '\x80\x02]q\x00'
    for i in {0..99}; do
        # shellcheck disable=SC2059 # the opcodes are made here
        printf "$(printf 'h\\x%02xh\\x%02x\\x86q\\x%02x' "$i" "$i" $((i + 1)))"
    done
    printf '.'
} | pickle "billion laughs" ''
{ printf '\x80\x02]' && times 100 '2\x86' && printf '.'; } | pickle "billion laughs in one value" 'shares its parts so often that it unfolds'
{
    printf '\x80\x02cbuiltins\nset\nr\0\0\0\0](' && times 20000 N && printf 'er\x01\0\0\0](' &&
        times 20000 'j\x00\x00\x00\x00j\x01\x00\x00\x00\x85R' && printf 'e.'
} | pickle "20000 sets of one list" ''
printf '\x80\x02]q\x00h\x00a.' | pickle "a list in itself" ''
{ printf '\x80\x02' && times 500000 '\x5d' && times 499999 'a' && printf '.'; } | pickle "lists half a million deep" 'byte [0-9]+'
{ printf '\x80\x02' && times 1000000 '('; } | pickle "a million marks" ''
{ printf '\x80\x02]' && times 1000000 '2' && printf '.'; } | pickle "a million copies" ''
{ printf '\x80\x02K\x01' && times 1000000 '\x85' && printf '.'; } | pickle "tuples a million deep" 'byte [0-9]+'
printf '\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.' | pickle "a string of 2^63 - 1 bytes" 'byte 2'
printf '\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.' | pickle "bytes of 2^64 - 1 bytes" 'byte 2'
printf '\x80\x02X\xff\xff\xff\xff.' | pickle "a string of 4 GiB" 'byte 2'
printf '\x80\x02\x8b\xff\xff\xff\x7f.' | pickle "a number of 2 GiB" 'byte 2'
printf '\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.' | pickle "a frame of 2^63 - 1 bytes" 'byte 2'
printf '\x80\x02]r\xff\xff\xff\x7f.' | pickle "memo number 2^31 - 1" ''
printf '\x80\x02j\xff\xff\xff\x7f.' | pickle "a memo number never set" 'byte 2'
printf '\x80\xff.' | pickle "protocol 255" 'byte 0'
printf '\x80\x020000.' | pickle "POP of nothing" 'byte 2'
printf '\x80\x02cposix\nsystem\nX\x0b\0\0\0touch owned\x85R0N.' | pickle "POP of a call" 'takes a object off the stack'

# An attribute that nothing reads: torch unpickles it all the same, so verify names it, and others note it.
sample $tiny evil
head -c -2 evil/.metadata >"cut"
printf 'X\x04\0\0\0evilcposix\nsystem\nX\x0b\0\0\0touch owned\x85Rsb.' | cat cut - >evil/.metadata
"$DCPKIT" verify evil >found 2>notes && echo "verify takes a call in an attribute of .metadata"
grep -q "^pickles  *FAILED.*'posix\.system'" found || cat found
"$DCPKIT" inspect evil 2>&1 >/dev/null | grep -q "note: \.metadata names 'posix\.system'" || echo "inspect does not note it"
[ ! -e owned ] || echo "it was called"
echo "a call in an attribute of .metadata: named"
exit 0
