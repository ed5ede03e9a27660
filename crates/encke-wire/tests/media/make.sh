#!/bin/sh
# Makes the media files of the tests with ffmpeg (5.1 or later; libx264, libx265, libvpx, libopus, libvorbis).
# Usage: ./make.sh [directory]. The files are committed, so tests need no ffmpeg.
set -eu
cd "${1:-$(dirname "$0")}"
picture="testsrc=size=160x90:rate=10:duration=4"
sound="sine=frequency=440:sample_rate=48000:duration=4"
same="-bitexact -flags +bitexact -fflags +bitexact -map_metadata -1"

# Writes into a pipe, as a live source does: a Matroska Segment has no size then, and no index.
make() {
    out=$1
    shift
    case $out in
        *.webm) format=webm ;;
        *.mkv) format=matroska ;;
        *.mp4) format=mp4 ;;
        *.ts) format=mpegts ;;
        *.flv) format=flv ;;
    esac
    # shellcheck disable=SC2086
    ffmpeg -v error -y -f lavfi -i "$picture" -f lavfi -i "$sound" -pix_fmt yuv420p "$@" $same -f "$format" - | cat >"$out"
}
x264="-c:v libx264 -preset veryfast -crf 36 -g 10 -keyint_min 10 -threads 1"
aac="-c:a aac -b:a 24k -ac 1"

# shellcheck disable=SC2086
{
    make vp8-vorbis.webm -c:v libvpx -b:v 40k -g 10 -threads 1 -c:a libvorbis -ac 1 -q:a 0
    make vp9-opus.webm -c:v libvpx-vp9 -b:v 40k -g 10 -threads 1 -c:a libopus -b:a 16k -ac 1
    make opus.webm -vn -c:a libopus -b:a 16k -ac 1 -cluster_time_limit 500
    make h264-aac.mkv $x264 -crf 27 $aac -cluster_time_limit 400
    make h264-aac.mp4 $x264 -bf 2 $aac -movflags frag_keyframe+empty_moov+default_base_moof
    make chunks.mp4 -t 2 $x264 $aac -movflags cmaf+frag_every_frame+empty_moov+default_base_moof+dash
    make aac.mp4 -vn $aac -movflags empty_moov+default_base_moof -frag_duration 500000
    make h264-aac.ts -t 3 $x264 $aac
    make h265-aac.ts -t 2.5 -c:v libx265 -preset ultrafast -crf 40 -x265-params log-level=error:keyint=10:min-keyint=10:pools=1 $aac
    make aac.ts -vn $aac
    make h264-aac.flv $x264 $aac
    make aac.flv -vn $aac
}
# The index of a file that is not fragmented is written last, into its begin.
# shellcheck disable=SC2086
ffmpeg -v error -y -f lavfi -i "$picture" $x264 -pix_fmt yuv420p -t 1 $same plain.mp4
# Gives each Cluster an unknown size, as sources do that send each block at once.
python3 - vp8-vorbis.webm unknown-size.webm <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.find(b"\x1f\x43\xb6\x75")
while at >= 0:
    length = 9 - data[at + 4].bit_length()
    data[at + 4:at + 4 + length] = bytes([0xFF >> (length - 1)]) + b"\xff" * (length - 1)
    at = data.find(b"\x1f\x43\xb6\x75", at + 4)
open(sys.argv[2], "wb").write(data)
END
