//! Finds the end of a token: the main work of parsing HTTP, done 32, 16 or 8 bytes at a time.
//!
//! This is not a parser. A [`Class`] is a set of bytes without a meaning. Each [`Scanner`] implements one instruction set, and
//! [`run`] selects the best that this machine supports. All of them agree with [`Scalar`], the reference, as the tests below
//! verify.
//!
//! ```text
//!   run(job) ─┬─ AVX2 ──► job.run(Avx2)     whole job compiled for AVX2, scanner inlined into it
//!             ├─ SSSE3 ─► job.run(Ssse3)
//!             ├─ NEON ──► job.run(Neon)
//!             └─ else ──► job.run(Scalar)   8 bytes at a time where that is possible
//! ```
//!
//! The selection happens once per job (one atomic load), not once per token: a job is generic over its scanner, so a token
//! costs no call. Membership in a class is tested as in simdjson. One shuffle by the low half of a byte gives the set of high
//! halves that are members with it. A second shuffle gives the bit of its own high half.
//!
//! The last bytes of a buffer are read as one block that *ends* there and overlaps the bytes before. So a read is never outside
//! of the buffer, and short tails need no loop.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

pub(crate) use scalar::Scalar;

/// A scanner for the ends of tokens, for one instruction set.
pub(crate) trait Scanner: Copy {
    /// Skips the bytes of `class`. Returns the position of the first byte at or after `from` that is not a member, or
    /// `bytes.len()` if all are members. `from` is at most `bytes.len()`.
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize;

    /// The number of bytes from `from` that form a field name, and the number that are text: those skipped by [`Self::skip`]
    /// with [`FIELD_NAME`] and with [`Class::Text`]. Most lines fit in one block, which is then tested only once. The search
    /// for the end of the line does not have to wait for the end of the name.
    #[inline(always)]
    fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        (self.skip(FIELD_NAME, bytes, from) - from, self.skip(Class::Text, bytes, from) - from)
    }
}

/// A job that is compiled once per instruction set.
pub(crate) trait ScanJob {
    /// The result of the job.
    type Output;

    /// Runs the job. Mark it and its callees that use the scanner `#[inline(always)]`. Only code inlined into the entry of an
    /// instruction set is compiled for it.
    fn run<S: Scanner>(self, scanner: S) -> Self::Output;
}

/// Runs `job` with the best scanner that this machine supports.
#[inline]
pub(crate) fn run<J: ScanJob>(job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    match x86::best() {
        x86::Best::Avx2(avx2) => avx2.run(job),
        x86::Best::Ssse3(ssse3) => ssse3.run(job),
        x86::Best::Neither => run_scalar(job),
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    {
        job.run(neon::Neon)
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
    {
        job.run(Scalar)
    }
}

/// Runs a job with every scanner that this machine supports, and with the one selected by [`run`]. Returns the results by name.
#[cfg(test)]
pub(crate) fn by_each<J: ScanJob>(job: impl Fn() -> J) -> Vec<(&'static str, J::Output)> {
    let mut all = vec![("scalar", job().run(Scalar)), ("chosen", run(job()))];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(x86::Avx2::detected().map(|avx2| ("avx2", avx2.run(job()))));
        all.extend(x86::Ssse3::detected().map(|ssse3| ("ssse3", ssse3.run(job()))));
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    all.push(("neon", job().run(neon::Neon)));
    all
}

/// Out of line, so that the caller stays small on machines with vector instructions.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn run_scalar<J: ScanJob>(job: J) -> J::Output {
    job.run(Scalar)
}

/// A scanner that tests `LANES` bytes at a time.
trait Blocks<const LANES: usize>: Copy {
    /// Number of mask bits per byte.
    const BITS: usize;

    /// Returns a mask, lowest bits first, with a bit set for each byte of `block` that is not a member.
    fn strangers(self, class: Class, block: &[u8; LANES]) -> u64;

    /// [`Self::strangers`] with [`FIELD_NAME`] and with [`Class::Text`].
    #[inline(always)]
    fn line_strangers(self, block: &[u8; LANES]) -> (u64, u64) {
        (self.strangers(FIELD_NAME, block), self.strangers(Class::Text, block))
    }

    /// Implements [`Scanner::line`].
    #[inline(always)]
    fn line_in_blocks(self, bytes: &[u8], from: usize) -> (usize, usize) {
        let rest = &bytes[from..];
        let (nameless, textless) = if let Some(block) = rest.first_chunk() {
            self.line_strangers(block)
        } else if rest.is_empty() {
            return (0, 0);
        } else {
            let Some(block) = bytes.last_chunk() else { return short_line(bytes, from) };
            let seen = Self::BITS * (LANES - rest.len());
            let (nameless, textless) = self.line_strangers(block);
            (nameless >> seen, textless >> seen)
        };
        let count = |strangers: u64| strangers.trailing_zeros() as usize / Self::BITS;
        if textless != 0 {
            // Every byte that ends a text also ends a name.
            return (count(nameless), count(textless));
        }
        let seen = bytes.len().min(from + LANES);
        let name_bytes =
            if nameless == 0 { self.skip_blocks(FIELD_NAME, bytes, seen) - from } else { count(nameless) };
        (name_bytes, self.skip_blocks(Class::Text, bytes, seen) - from)
    }

    /// Implements [`Scanner::skip`].
    #[inline(always)]
    fn skip_blocks(self, class: Class, bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(block) = bytes[at..].first_chunk() {
            let strangers = self.strangers(class, block);
            if strangers != 0 {
                return at + strangers.trailing_zeros() as usize / Self::BITS;
            }
            at += LANES;
        }
        if at == bytes.len() {
            return at;
        }
        // Less than a block is left: test the last block of the buffer, and ignore its bytes before `at`.
        let Some(block) = bytes.last_chunk() else { return skip_short(class, bytes, from) };
        let seen = LANES - (bytes.len() - at);
        match self.strangers(class, block) >> (Self::BITS * seen) {
            0 => bytes.len(),
            strangers => at + strangers.trailing_zeros() as usize / Self::BITS,
        }
    }
}

/// Handles buffers shorter than a block, which are rare in requests.
#[cold]
#[inline(never)]
fn skip_short(class: Class, bytes: &[u8], from: usize) -> usize {
    Scalar.skip(class, bytes, from)
}

/// As [`skip_short`], for lines.
#[cold]
#[inline(never)]
fn short_line(bytes: &[u8], from: usize) -> (usize, usize) {
    Scalar.line(bytes, from)
}

/// A set of bytes. Callers use the constants below, so that inlining removes the selection.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    /// A set of ASCII bytes.
    Ascii(&'static Members),
    /// The bytes allowed in a field value ([`is_text`]).
    Text,
}

/// A set of ASCII bytes in the forms that scalar and vector code test fastest.
pub(crate) struct Members {
    /// Indexed by byte.
    is_member: [bool; 256],
    /// Indexed by the low half of a byte: bit h is set if the byte with high half h (0–7) is a member.
    high_halves: [u8; 16],
}

impl Members {
    /// The set of the bytes in `text`.
    const fn of(text: &[u8]) -> Self {
        let mut members = Self { is_member: [false; 256], high_halves: [0; 16] };
        let mut index = 0;
        while index < text.len() {
            let byte = text[index];
            assert!(byte.is_ascii(), "vector code takes every byte above 0x7f for a stranger");
            members.is_member[byte as usize] = true;
            members.high_halves[(byte & 0x0f) as usize] |= 1 << (byte >> 4);
            index += 1;
        }
        members
    }
}

impl Class {
    /// Whether `byte` is a member.
    #[inline]
    pub(crate) const fn has(self, byte: u8) -> bool {
        match self {
            Self::Ascii(members) => members.is_member[byte as usize],
            Self::Text => is_text(byte),
        }
    }
}

/// As [`Members::high_halves`], for the ASCII bytes that are not text ([`is_text`]).
#[cfg(target_arch = "x86_64")]
static CONTROL_HIGH_HALVES: [u8; 16] = {
    let mut high_halves = [0; 16];
    let mut byte = 0;
    while byte < 0x80 {
        if !is_text(byte) {
            high_halves[(byte & 0x0f) as usize] |= 1 << (byte >> 4);
        }
        byte += 1;
    }
    high_halves
};

/// `bit[h]` is the bit of high half `h` in [`Members::high_halves`]. Bytes above 0x7f have none.
const HIGH_HALF_BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];

/// The characters of names and methods (RFC 9110 §5.6.2).
pub(crate) const FIELD_NAME: Class = Class::Ascii(&FIELD_NAME_MEMBERS);
static FIELD_NAME_MEMBERS: Members =
    Members::of(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// The characters of a request target up to its query: the characters of RFC 3986, and some others that clients send (`"<>^{|}`
/// and the back quote). Not `#` (fragments are never sent), not `\` (some file systems treat it as a slash), nothing below 0x21
/// or above 0x7e. `?` ends the path.
pub(crate) const TARGET_PATH: Class = Class::Ascii(&TARGET_PATH_MEMBERS);
static TARGET_PATH_MEMBERS: Members = Members::of(
    b"!\"$%&'()*+,-./0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~",
);

/// The characters of a target's query: as [`TARGET_PATH`], with `?`.
pub(crate) const TARGET_QUERY: Class = Class::Ascii(&TARGET_QUERY_MEMBERS);
static TARGET_QUERY_MEMBERS: Members = Members::of(
    b"!\"$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~",
);

/// The characters of a host name or an IPv4 address: unreserved and sub-delims (RFC 3986 §3.2.2), without `%`, which is handled
/// separately.
pub(crate) const HOST_NAME: Class = Class::Ascii(&HOST_NAME_MEMBERS);
static HOST_NAME_MEMBERS: Members =
    Members::of(b"-._~!$&'()*+,;=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// Whether `byte` is allowed in a field value: any byte except control characters other than tab.
#[inline]
pub(crate) const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of every scanner.
    fn answers(class: Class, bytes: &[u8], from: usize) -> Vec<(&'static str, usize)> {
        struct Ask<'a>(Class, &'a [u8], usize);
        impl ScanJob for Ask<'_> {
            type Output = usize;
            fn run<S: Scanner>(self, scanner: S) -> usize {
                scanner.skip(self.0, self.1, self.2)
            }
        }
        by_each(|| Ask(class, bytes, from))
    }

    /// The result of every scanner for a whole line.
    fn line_answers(bytes: &[u8], from: usize) -> Vec<(&'static str, (usize, usize))> {
        struct Ask<'a>(&'a [u8], usize);
        impl ScanJob for Ask<'_> {
            type Output = (usize, usize);
            fn run<S: Scanner>(self, scanner: S) -> (usize, usize) {
                scanner.line(self.0, self.1)
            }
        }
        by_each(|| Ask(bytes, from))
    }

    /// The definition, byte by byte.
    fn expected(class: Class, bytes: &[u8], from: usize) -> usize {
        from + bytes[from..].iter().take_while(|&&byte| class.has(byte)).count()
    }

    fn check(class: Class, bytes: &[u8], from: usize) {
        for (name, answer) in answers(class, bytes, from) {
            assert_eq!(answer, expected(class, bytes, from), "{name} from {from} in {bytes:02x?}");
        }
        let line = (expected(FIELD_NAME, bytes, from) - from, expected(Class::Text, bytes, from) - from);
        for (name, answer) in line_answers(bytes, from) {
            assert_eq!(answer, line, "{name} from {from} in {bytes:02x?}");
        }
    }

    const CLASSES: [Class; 5] = [FIELD_NAME, TARGET_PATH, TARGET_QUERY, HOST_NAME, Class::Text];

    #[test]
    fn this_machine_is_tested_with_the_vectors_it_has() {
        #[cfg(target_arch = "x86_64")]
        assert_eq!(answers(Class::Text, b"", 0).len() > 2, x86::Ssse3::detected().is_some());
    }

    #[test]
    fn every_byte_at_every_place_of_every_length_ends_the_same_tokens() {
        for class in CLASSES {
            for length in 0..=70 {
                let mut bytes = vec![b'a'; length];
                check(class, &bytes, 0);
                for at in 0..length {
                    // All 256 bytes at positions where blocks begin and end, a few bytes everywhere else.
                    let few = [0, b'\t', b'\n', b'\r', b' ', b':', b'?', b'#', 0x7f, 0x80, 0xff];
                    let near_edge = length < 40 && matches!(at % 16, 0 | 1 | 15);
                    let tried: Vec<u8> = if near_edge { (0..=255).collect() } else { few.to_vec() };
                    for byte in tried {
                        bytes[at] = byte;
                        check(class, &bytes, 0);
                    }
                    bytes[at] = b'a';
                }
            }
        }
    }

    #[test]
    fn every_start_in_random_bytes_ends_the_same_tokens() {
        let seed = 0x5eed_0001_u64;
        println!("seed {seed:#x}");
        let mut random = crate::http1::testing::Random::new(seed);
        for class in CLASSES {
            for _ in 0..2_000 {
                let length = random.below(90);
                let bytes: Vec<u8> = (0..length)
                    .map(|_| if random.below(12) == 0 { random.byte() } else { b'!' + random.byte() % 94 })
                    .collect();
                for from in 0..=bytes.len() {
                    check(class, &bytes, from);
                }
            }
        }
    }

    #[test]
    fn bytes_before_the_start_do_not_matter() {
        for class in CLASSES {
            let mut bytes = vec![0; 64];
            bytes.extend_from_slice(&[b'x'; 7]);
            check(class, &bytes, 64);
            bytes.push(0);
            check(class, &bytes, 64);
        }
    }

    #[test]
    fn classes_hold_what_their_grammars_say() {
        for byte in 0..=255u8 {
            let visible = (0x21..=0x7e).contains(&byte);
            assert_eq!(TARGET_QUERY.has(byte), visible && !b"#\\".contains(&byte), "{byte:#x}");
            assert_eq!(TARGET_PATH.has(byte), visible && !b"#\\?".contains(&byte), "{byte:#x}");
            let in_host = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte);
            assert_eq!(HOST_NAME.has(byte), in_host, "{byte:#x}");
        }
    }
}
