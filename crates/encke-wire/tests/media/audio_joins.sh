#!/bin/sh
# Decodes the streams of listeners that join an audio file of this directory, at each of its starts. ffmpeg must report no error.
#
# Usage: audio_joins.sh [audio_joins]   The argument is the example's binary; without it, cargo builds and runs it.
#
# Without the last starts of MPEG audio: ffmpeg recognises it only by several frames. To see that the check fails, FAULT=headless
# leaves the heads out, and FAULT=torn begins in the middle of a unit.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
joins=$(mktemp -d)
trap 'rm -rf "$joins"' EXIT
failed=0
for file in cbr.mp3 vbr.mp3 layer2.mp2 tone.aac vorbis.ogg opus.ogg flac.ogg theora.ogg chained.ogg; do
    rm -f "$joins"/*
    if [ $# -gt 0 ]; then
        "$1" "$here/$file" "$joins" ${FAULT-} > /dev/null
    else
        (cd "$here" && cargo run -q -p encke-wire --example audio_joins -- "$here/$file" "$joins" ${FAULT-}) > /dev/null
    fi
    count=0
    for join in "$joins"/*; do
        case $file in
            *.mp3 | *.mp2) [ "$(stat -c %s "$join")" -gt 1000 ] || continue ;;
        esac
        # The format is known to a listener by the response's Content-Type.
        case $file in *.mp3 | *.mp2) format=mp3 ;; *.aac) format=aac ;; *) format=ogg ;; esac
        errors=$(ffmpeg -nostdin -v error -f $format -i "$join" -f null - 2>&1) || errors="$errors (failed)"
        if [ -n "$errors" ]; then
            echo "$file, $(basename "$join"): $errors"
            failed=1
        fi
        count=$((count + 1))
    done
    echo "$file: $count joins"
done
exit $failed
