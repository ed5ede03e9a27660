#!/bin/sh
# Generates the audio files of this directory with ffmpeg (5.1 was used). The tests read the files, so that they need no ffmpeg.
#
# Usage: make_audio.sh [directory]
set -eu
cd "${1:-"$(dirname "$0")"}"

# Two seconds of a tone that changes, so that frames differ in size.
tone() {
    frequency=$1 seconds=$2
    shift 2
    ffmpeg -nostdin -v error -y -f lavfi -i "aevalsrc=exprs='0.4*sin($frequency*2*PI*t*(1+t/9))+0.02*random(0)':d=$seconds:s=44100" \
        -flags +bitexact -fflags +bitexact -map_metadata -1 "$@"
}

tone 440 2 -c:a libmp3lame -b:a 64k -id3v2_version 0 cbr.mp3
# An ID3v1 tag. ffmpeg writes one only together with ID3v2.
printf 'TAG%-125s' 'A tone' >> cbr.mp3
tone 'gt(mod(t,0.5),0.25)*330' 2 -c:a libmp3lame -q:a 4 -ac 2 -id3v2_version 3 -metadata title="A tone" vbr.mp3
tone 220 1 -c:a mp2 -b:a 96k -ar 24000 -f mp2 layer2.mp2
tone 440 2 -c:a aac -b:a 48k -f adts tone.aac
tone 440 2 -c:a libvorbis -q:a 1 -page_duration 100000 vorbis.ogg
tone 440 2 -c:a libopus -b:a 32k -page_duration 60000 opus.ogg
tone 440 1 -c:a flac -ar 16000 -sample_fmt s16 -page_duration 100000 -f ogg flac.ogg
tone 550 1 -c:a libvorbis -q:a 1 -page_duration 100000 -serial_offset 7 second.ogg
tone 660 1 -c:a libopus -b:a 24k -page_duration 60000 -serial_offset 9 third.ogg
cat vorbis.ogg second.ogg third.ogg > chained.ogg
rm second.ogg third.ogg
ffmpeg -nostdin -v error -y -f lavfi -i "testsrc2=size=96x64:rate=10:duration=2" -f lavfi -i "sine=frequency=440:duration=2" \
    -flags +bitexact -fflags +bitexact -c:v libtheora -g 5 -b:v 60k -c:a libvorbis -q:a 0 -page_duration 100000 theora.ogg
