//! The splitters of MPEG-TS, Matroska, fragmented MP4 and FLV, with files of ffmpeg (`tests/media/make.sh`).

mod demuxers;
mod faults;
mod joins;
mod pieces;
mod record;
mod streams;
