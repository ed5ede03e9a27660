//! Media types of sources.

use super::Container;

/// Returns the container of a media type.
pub(super) fn hinted(content_type: &str) -> Option<Container> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Some(match media_type.as_str() {
        "audio/mpeg" | "audio/mp3" | "audio/x-mpeg" | "audio/mpeg3" => Container::Mp3,
        "audio/aac" | "audio/aacp" | "audio/x-aac" | "audio/x-hx-aac-adts" => Container::Adts,
        "audio/ogg" | "video/ogg" | "application/ogg" | "audio/opus" | "audio/vorbis" => Container::Ogg,
        "video/mp2t" => Container::MpegTs,
        "video/webm" | "audio/webm" | "video/x-matroska" | "audio/x-matroska" => Container::Matroska,
        "video/mp4" | "audio/mp4" | "video/iso.segment" => Container::FragmentedMp4,
        "video/x-flv" | "video/flv" => Container::Flv,
        _ => return None,
    })
}
