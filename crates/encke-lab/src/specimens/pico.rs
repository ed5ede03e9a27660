//! picohttpparser, the parser of h2o: the fastest one known to us, and the target for ours. Its vector code uses SSE4.2.

#[cfg(target_arch = "x86_64")]
pub(crate) use here::Pico;

#[cfg(target_arch = "x86_64")]
mod here {
    use std::ffi::{c_char, c_int};
    use std::ptr;

    use picohttpparser_sys::{phr_header, phr_parse_request};

    #[cfg(test)]
    use crate::parsed::Parsed;

    const FIELDS_MAX: usize = 64;

    /// The parser's output. Its existence proves that this processor has the instructions it was compiled for.
    pub(crate) struct Pico {
        method: *const c_char,
        method_bytes: usize,
        target: *const c_char,
        target_bytes: usize,
        minor: c_int,
        fields: [phr_header; FIELDS_MAX],
        count: usize,
    }

    impl Pico {
        pub(crate) fn new() -> Option<Self> {
            std::arch::is_x86_feature_detected!("sse4.2").then(|| Self {
                method: ptr::null(),
                method_bytes: 0,
                target: ptr::null(),
                target_bytes: 0,
                minor: 0,
                fields: [phr_header::default(); FIELDS_MAX],
                count: 0,
            })
        }

        /// Parses the head at the start of `text`. Returns its length in bytes if it is complete and valid.
        #[inline]
        pub(crate) fn parse(&mut self, text: &[u8]) -> Option<usize> {
            self.count = FIELDS_MAX;
            // SAFETY: `text` is that many bytes, the other pointers are to room of their own kind that nobody else
            // uses meanwhile, and `count` says how many fields there is room for (picohttpparser.h).
            let bytes = unsafe {
                phr_parse_request(
                    text.as_ptr().cast(),
                    text.len(),
                    &raw mut self.method,
                    &raw mut self.method_bytes,
                    &raw mut self.target,
                    &raw mut self.target_bytes,
                    &raw mut self.minor,
                    self.fields.as_mut_ptr(),
                    &raw mut self.count,
                    0,
                )
            };
            usize::try_from(bytes).ok()
        }

        /// The head that the parser finds in `text`.
        #[cfg(test)]
        pub(crate) fn parsed(&mut self, text: &[u8]) -> Option<Parsed> {
            let bytes = self.parse(text)?;
            // A name is null where a line continues the previous one; it is empty here.
            let piece = |start: *const c_char, bytes: usize| {
                if start.is_null() {
                    return Vec::new();
                }
                // SAFETY: after a success the spans are pieces of `text`, which is still borrowed; an empty value's
                // pointer is one into it, too.
                unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec()
            };
            let fields = self.fields[..self.count].iter();
            Some(Parsed {
                bytes,
                method: piece(self.method, self.method_bytes),
                target: piece(self.target, self.target_bytes),
                minor: self.minor as u8,
                fields: fields
                    .map(|field| (piece(field.name, field.name_len), piece(field.value, field.value_len)))
                    .collect(),
            })
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use absent::Pico;

#[cfg(not(target_arch = "x86_64"))]
mod absent {
    #[cfg(test)]
    use crate::parsed::Parsed;

    /// The parser is compiled for x86-64 only.
    pub(crate) enum Pico {}

    impl Pico {
        pub(crate) const fn new() -> Option<Self> {
            None
        }

        pub(crate) fn parse(&mut self, _text: &[u8]) -> Option<usize> {
            match *self {}
        }

        #[cfg(test)]
        pub(crate) fn parsed(&mut self, _text: &[u8]) -> Option<Parsed> {
            match *self {}
        }
    }
}
