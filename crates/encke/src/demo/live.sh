#!/bin/sh
# Writes live.webm, the clip that `encke demo --live` repeats, next to this script: 8 s of ffmpeg's test picture with a clock, and a
# quiet tone. ffmpeg with libvpx and libopus is needed.
#
# The clip can be repeated without a seam: 200 pictures of 40 ms and 400 packets of 20 ms take 8 s each, and the tone has whole
# periods. Each Cluster begins with a key frame, every 2 s. `-live 1` omits the duration and the index, which a stream has not.
set -eu
cd "$(dirname "$0")"
ffmpeg -hide_banner -loglevel error -y \
    -f lavfi -i "testsrc2=size=320x180:rate=25,hue=s=0.6" \
    -f lavfi -i "sine=frequency=440:sample_rate=48000:samples_per_frame=960,volume=0.15" \
    -t 8 -map 0:v -map 1:a -map_metadata -1 -fflags +bitexact -flags +bitexact \
    -c:v libvpx-vp9 -b:v 45k -pix_fmt yuv420p -g 50 -keyint_min 50 -auto-alt-ref 0 -lag-in-frames 0 -deadline good -cpu-used 1 \
    -c:a libopus -b:a 16k -ac 1 -frame_duration 20 -frames:a 400 \
    -cluster_time_limit 2000 -live 1 -f webm live.webm
