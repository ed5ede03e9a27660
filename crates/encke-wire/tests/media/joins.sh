#!/bin/sh
# Decodes every join of the test files with ffmpeg. With the head and from a start it must report nothing; without the head, or
# one unit late, it must report something for each file.
# Usage: joins.sh PROGRAM, which is the example media_joins.
set -eu
program=$(realpath "$1")
files=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Prints what ffmpeg reports of the joins of $1 with the fault $2. For audio it decodes every 20th join.
reports() {
    rm -rf "$work/joins"
    mkdir "$work/joins"
    "$program" "$1" "$work/joins" $2 >&2
    at=0
    for joined in "$work"/joins/*; do
        at=$((at + 1))
        case $1 in *h26*|*vp*|*chunks*|*unknown*) ;; *) [ $((at % 20)) = 1 ] || continue ;; esac
        if ! ffmpeg -nostdin -v error -i "$joined" -f null - 2>&1; then
            echo "not decoded: $joined"
        fi
        # The decoder of H.264 skips frames before the first key frame without an error.
        flags=$(ffprobe -v quiet -select_streams v:0 -show_entries packet=flags -of csv=p=0 "$joined" | head -n 1)
        case $flags in ""|K*) ;; *) echo "no key frame at the begin of $joined" ;; esac
    done
}

for file in "$files"/*.webm "$files"/*.mkv "$files"/*.mp4 "$files"/*.ts "$files"/*.flv; do
    name=$(basename "$file")
    [ "$name" = plain.mp4 ] && continue
    report=$(reports "$file" "")
    if [ -n "$report" ]; then
        printf '%s: a join has errors:\n%s\n' "$name" "$report"
        failed=1
    fi
    # A TS repeats its tables by itself. Each audio unit is a start, and so is each fragment or Cluster of these files.
    case $name in
        aac.ts) faults="" ;;
        *.ts) faults="late" ;;
        aac.*|*.webm|h264-aac.mp4) faults="no-head" ;;
        *) faults="no-head late" ;;
    esac
    for fault in $faults; do
        if [ -z "$(reports "$file" "$fault")" ]; then
            echo "$name: the fault $fault was not found"
            failed=1
        fi
    done
done
exit $failed
