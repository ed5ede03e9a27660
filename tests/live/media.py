"""Media: files of other tests, files that ffmpeg makes, and checks of received bytes."""
import atexit
import functools
import json
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from rig import REPOSITORY

COMMITTED = REPOSITORY / "crates/encke-wire/tests/media"
SECONDS, FRAMES = 4, 15
PICTURE = ["-f", "lavfi", "-i", f"testsrc=size=192x108:rate={FRAMES}:duration={SECONDS}"]
SOUND = ["-f", "lavfi", "-i", f"sine=frequency=440:sample_rate=48000:duration={SECONDS}"]
# ffmpeg repeats a time when it begins a file of Vorbis again.
LONG_SOUND = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=120"]
# A key frame each second.
H264 = ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "ultrafast", "-g", FRAMES, "-threads", 1]
AAC = ["-c:a", "aac", "-b:a", "64k"]
VP8 = ["-pix_fmt", "yuv420p", "-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", 8, "-b:v", "200k", "-g", FRAMES, "-threads", 1]
FRAGMENTS = ["-movflags", "frag_keyframe+empty_moov+default_base_moof"]
# How ffmpeg makes a file: its suffix, its arguments, and the arguments with which it is sent.
FILES = {
    "webm": ("webm", [*PICTURE, *SOUND, *VP8, "-c:a", "libopus"], ["-f", "webm"]),
    "matroska": ("mkv", [*PICTURE, *SOUND, *H264, *AAC], ["-f", "matroska"]),
    "mp4": ("mp4", [*PICTURE, *SOUND, *H264, *AAC], [*FRAGMENTS, "-f", "mp4"]),
    "mpegts": ("ts", [*PICTURE, *SOUND, *H264, *AAC], ["-f", "mpegts"]),
    "flv": ("flv", [*PICTURE, *SOUND, *H264, "-bf", 0, *AAC, "-ar", 44100], ["-f", "flv"]),
    "mp3": ("mp3", [*LONG_SOUND, "-c:a", "libmp3lame", "-b:a", "64k"], ["-f", "mp3"]),
    "adts": ("aac", [*LONG_SOUND, *AAC], ["-f", "adts"]),
    "ogg-opus": ("ogg", [*LONG_SOUND, "-c:a", "libopus"], ["-f", "ogg"]),
    "ogg-vorbis": ("ogg", [*LONG_SOUND, "-c:a", "libvorbis"], ["-f", "ogg"]),
}

_lock = threading.Lock()


def committed(name: str) -> bytes:
    """A file of crates/encke-wire."""
    return (COMMITTED / name).read_bytes()


@functools.cache
def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="encke-live-media-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def made(name: str) -> Path:
    """The file of a container, which ffmpeg makes when it is first needed."""
    suffix, words, _ = FILES[name]
    with _lock:
        path = _folder() / f"{name}.{suffix}"
        if not path.exists():
            subprocess.run(["ffmpeg", "-nostdin", "-v", "error", *map(str, words), path], check=True, stdin=subprocess.DEVNULL)
    return path


def sending(name: str) -> list:
    """Arguments of ffmpeg to send a container without end."""
    return ["-stream_loop", -1, "-i", made(name), "-c", "copy", *FILES[name][2]]


def decoded(path: Path) -> str:
    """What ffmpeg complains about when it decodes a file; "" if nothing."""
    done = subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-i", path, "-f", "null", "-"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    return done.stderr.strip() or (f"exit status {done.returncode}" if done.returncode else "")


def packets(path: Path) -> list[dict]:
    """The packets of a file: codec_type, pts_time, flags."""
    done = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "packet=codec_type,pts_time,flags", "-of", "json", path],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120)
    return json.loads(done.stdout or "{}").get("packets", [])
