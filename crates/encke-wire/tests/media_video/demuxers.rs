//! The frames of the leading track of a stream, as independent demultiplexers read them.

use std::error::Error;
use std::io::Cursor;

use mp4_atom::{Any, DecodeMaybe};
use mpeg2ts_reader::{StreamType, demultiplex, packet_filter_switch, pes, psi};

use super::record::Kind;

/// The first bytes and the time of a frame. The first bytes of a TS are those in the first packet.
pub(crate) type Frames = Vec<(u64, Vec<u8>)>;

/// Returns the frames, or the error of the demultiplexer.
pub(crate) fn frames(kind: Kind, bytes: &[u8]) -> Result<Frames, Box<dyn Error>> {
    match kind {
        Kind::Matroska => Ok(matroska(bytes)?),
        Kind::Mp4 => mp4(bytes),
        Kind::Ts => Ok(transport_stream(bytes)),
        Kind::Flv => flv(bytes).ok_or_else(|| "no header, or a size behind a tag that is not its own".into()),
    }
}

fn matroska(bytes: &[u8]) -> Result<Frames, matroska_demuxer::DemuxError> {
    let mut file = matroska_demuxer::MatroskaFile::open(Cursor::new(bytes))?;
    let leading = file.tracks().iter().find(|track| track.video().is_some()).or(file.tracks().first());
    let leading = leading.map(|track| track.track_number().get());
    let mut frames = Frames::new();
    let mut frame = matroska_demuxer::Frame::default();
    while file.next_frame(&mut frame)? {
        if Some(frame.track) == leading {
            frames.push((frame.timestamp, frame.data.clone()));
        }
    }
    Ok(frames)
}

/// Fragments count as frames: their time, and the sizes of their samples.
fn mp4(bytes: &[u8]) -> Result<Frames, Box<dyn Error>> {
    let mut rest = Cursor::new(bytes);
    let (mut leading, mut frames) = (None, Frames::new());
    while let Some(atom) = Any::decode_maybe(&mut rest)? {
        match atom {
            Any::Moov(moov) => {
                let video = moov.trak.iter().find(|trak| trak.mdia.minf.vmhd.is_some()).or(moov.trak.first());
                leading = video.map(|trak| trak.tkhd.track_id);
            }
            Any::Moof(moof) => {
                let Some(leading) = leading else { return Err("moof without moov".into()) };
                for traf in moof.traf.iter().filter(|traf| traf.tfhd.track_id == leading) {
                    let time = traf.tfdt.as_ref().ok_or("no time")?.base_media_decode_time;
                    let sizes = traf.trun.iter().flat_map(|run| run.samples.iter());
                    frames.push((
                        time,
                        sizes.flat_map(|sample| sample.size.unwrap_or(0).to_be_bytes()).collect(),
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(frames)
}

packet_filter_switch! {
    TsFilter<TsContext> {
        Pes: pes::PesPacketFilter<TsContext, TsFrames>,
        Pat: demultiplex::PatPacketFilter<TsContext>,
        Pmt: demultiplex::PmtPacketFilter<TsContext>,
        Null: demultiplex::NullPacketFilter<TsContext>,
    }
}

/// The state of the demultiplexer.
#[expect(unreachable_pub, reason = "the macro puts it into a public interface")]
pub struct TsContext {
    changeset: demultiplex::FilterChangeset<TsFilter>,
    leading: Option<u16>,
    frames: Frames,
}

impl demultiplex::DemuxContext for TsContext {
    type F = TsFilter;

    fn filter_changeset(&mut self) -> &mut demultiplex::FilterChangeset<TsFilter> {
        &mut self.changeset
    }

    fn construct(&mut self, request: demultiplex::FilterRequest<'_, '_>) -> TsFilter {
        match request {
            demultiplex::FilterRequest::ByPid(psi::pat::PAT_PID) => {
                TsFilter::Pat(demultiplex::PatPacketFilter::default())
            }
            demultiplex::FilterRequest::Pmt { pid, program_number } => {
                TsFilter::Pmt(demultiplex::PmtPacketFilter::new(pid, program_number))
            }
            demultiplex::FilterRequest::ByStream { stream_type, stream_info, pmt, .. } => {
                let videos = [StreamType::H264, StreamType::H265];
                let has_video = pmt.streams().any(|stream| videos.contains(&stream.stream_type()));
                if has_video && !videos.contains(&stream_type) {
                    return TsFilter::Null(demultiplex::NullPacketFilter::default());
                }
                self.leading = Some(u16::from(stream_info.elementary_pid()));
                TsFilter::Pes(pes::PesPacketFilter::new(TsFrames))
            }
            _ => TsFilter::Null(demultiplex::NullPacketFilter::default()),
        }
    }
}

/// Collects frames.
#[expect(unreachable_pub, reason = "the macro puts it into a public interface")]
pub struct TsFrames;

impl pes::ElementaryStreamConsumer<TsContext> for TsFrames {
    fn start_stream(&mut self, _: &mut TsContext) {}

    fn begin_packet(&mut self, context: &mut TsContext, header: pes::PesHeader<'_>) {
        if let pes::PesContents::Parsed(Some(parsed)) = header.contents() {
            let time = match parsed.pts_dts() {
                Ok(pes::PtsDts::PtsOnly(Ok(time)) | pes::PtsDts::Both { pts: Ok(time), .. }) => time.value(),
                _ => 0,
            };
            context.frames.push((time, parsed.payload().to_vec()));
        }
    }

    fn continue_packet(&mut self, _: &mut TsContext, _: &[u8]) {}
    fn end_packet(&mut self, _: &mut TsContext) {}
    fn continuity_error(&mut self, _: &mut TsContext) {}
}

fn transport_stream(bytes: &[u8]) -> Frames {
    let mut context = TsContext { changeset: Default::default(), leading: None, frames: Frames::new() };
    let mut demultiplex = demultiplex::Demultiplex::new(&mut context);
    demultiplex.push(&mut context, bytes);
    context.frames
}

/// A reader of our own, for want of a small crate. Unlike the splitter, it checks the trailing size of each tag.
fn flv(bytes: &[u8]) -> Option<Frames> {
    let video = bytes.get(4)? & 1 != 0;
    let mut rest = bytes.strip_prefix(b"FLV\x01")?.get(9..)?;
    let mut frames = Frames::new();
    while let Some((&[kind, s2, s1, s0, t2, t1, t0, t3], _)) = rest.split_first_chunk() {
        let size = u32::from_be_bytes([0, s2, s1, s0]) as usize;
        let behind = rest.get(11 + size..15 + size)?;
        if behind != (11 + size as u32).to_be_bytes() {
            return None;
        }
        let content = &rest[11..11 + size];
        if kind == if video { 9 } else { 8 } && content.get(1) != Some(&0) {
            frames.push((u32::from_be_bytes([t3, t2, t1, t0]).into(), content.to_vec()));
        }
        rest = &rest[15 + size..];
    }
    Some(frames)
}
