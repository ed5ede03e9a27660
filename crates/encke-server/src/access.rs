//! (bridge to the access log, being written)
use crate::request::Request;
use encke_io::{Now, Peer};
pub(crate) struct Entry;
#[derive(Clone, Default)]
pub(crate) struct Access;
impl Access {
    pub(crate) fn begin(&mut self, _: &Request<'_>) -> Option<Box<Entry>> { None }
    pub(crate) fn begin_refused(&mut self, _: Peer, _: Now) -> Option<Box<Entry>> { None }
    pub(crate) fn set_status(&self, _: &mut Entry, _: u16) {}
    pub(crate) fn finish(&mut self, _: Box<Entry>, _: u64, _: u64) {}
    pub(crate) fn flush(&mut self) {}
}
#[derive(Clone, Default)]
pub(crate) struct AccessLog;
impl AccessLog {
    pub(crate) fn off() -> Self { Self }
    pub(crate) fn start(_: &crate::settings::LogSettings) -> std::io::Result<Self> { Ok(Self) }
    pub(crate) fn access(&self) -> Access { Access }
    pub(crate) fn reload(&self, _: &crate::settings::LogSettings) -> std::io::Result<()> { Ok(()) }
    pub(crate) fn reopen(&self) -> std::io::Result<()> { Ok(()) }
    pub(crate) fn finish(self) {}
}
