//! Where does this token end? The one question that parsing HTTP asks of most bytes, answered 32, 16 or 8
//! bytes at a time.
//!
//! This is not a parser: it knows sets of bytes ([`Class`]) and nothing of what they mean. Each [`Scanner`]
//! answers for one instruction set, [`run`] chooses the best that this machine has, and all of them agree
//! with [`Scalar`], the slow twin (the tests at the end compare them on everything).
//!
//! ```text
//!   run(job) ─┬─ AVX2 ──► job.run(Avx2)     whole job compiled for AVX2, scanner inlined into it
//!             ├─ SSSE3 ─► job.run(Ssse3)
//!             ├─ NEON ──► job.run(Neon)
//!             └─ else ──► job.run(Scalar)   8 bytes at a time where that is possible
//! ```
//!
//! The choice is made once a job (one atomic load), not once a token: a job is generic over its scanner, so a
//! token costs no call. A class is tested as simdjson does it: one shuffle by the low half of a byte gives the
//! set of high halves that are members with it, a second one gives the bit of its own high half.
//!
//! The last bytes of a buffer are read as one block that *ends* there (it overlaps what was seen before), so
//! nothing is ever read outside of the buffer and short tails cost no loop.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

pub(crate) use scalar::Scalar;

/// Finds the end of tokens with one instruction set.
pub(crate) trait Scanner: Copy {
    /// Skips the bytes of `class`: the position of the first byte at or after `from` that is not a member, or
    /// `bytes.len()` if all are. `from` is at most `bytes.len()`.
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize;

    /// How many bytes from `from` on are a field's name, and how many are text: those that [`Self::skip`] skips of
    /// [`FIELD_NAME`] and of [`Class::Text`]. Most lines fit in one block, which is then looked at once; and the
    /// end of the line need not wait until the end of the name is known.
    #[inline(always)]
    fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        (self.skip(FIELD_NAME, bytes, from) - from, self.skip(Class::Text, bytes, from) - from)
    }
}

/// Work that is compiled once for each instruction set.
pub(crate) trait Job {
    /// What the work yields.
    type Output;

    /// Does the work. Mark it `#[inline(always)]`, and what it calls with the scanner as well: only what is
    /// inlined into the entry for an instruction set is compiled for it.
    fn run<S: Scanner>(self, scanner: S) -> Self::Output;
}

/// Runs `job` with the best scanner of this machine.
#[inline]
pub(crate) fn run<J: Job>(job: J) -> J::Output {
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

/// Runs a job with every scanner of this machine, by name, and with the one that [`run`] chooses.
#[cfg(test)]
pub(crate) fn by_each<J: Job>(job: impl Fn() -> J) -> Vec<(&'static str, J::Output)> {
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

/// Out of line, so that on a machine with vectors the caller stays small.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn run_scalar<J: Job>(job: J) -> J::Output {
    job.run(Scalar)
}

/// A scanner that looks at `LANES` bytes at a time.
trait Blocks<const LANES: usize>: Copy {
    /// Bits in a mask for each byte.
    const BITS: usize;

    /// A mask, the first byte's bits lowest, that has a bit set for each byte of `block` that is no member.
    fn strangers(self, class: Class, block: &[u8; LANES]) -> u64;

    /// [`Self::strangers`] of [`FIELD_NAME`] and of [`Class::Text`].
    #[inline(always)]
    fn line_strangers(self, block: &[u8; LANES]) -> (u64, u64) {
        (self.strangers(FIELD_NAME, block), self.strangers(Class::Text, block))
    }

    /// The work of [`Scanner::line`].
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
            // What ends a text ends a name as well.
            return (count(nameless), count(textless));
        }
        let seen = bytes.len().min(from + LANES);
        let name_bytes =
            if nameless == 0 { self.skip_blocks(FIELD_NAME, bytes, seen) - from } else { count(nameless) };
        (name_bytes, self.skip_blocks(Class::Text, bytes, seen) - from)
    }

    /// The work of [`Scanner::skip`].
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
        // Fewer bytes than a block are left: look at the last block of the buffer, forget those before `at`.
        let Some(block) = bytes.last_chunk() else { return skip_short(class, bytes, from) };
        let seen = LANES - (bytes.len() - at);
        match self.strangers(class, block) >> (Self::BITS * seen) {
            0 => bytes.len(),
            strangers => at + strangers.trailing_zeros() as usize / Self::BITS,
        }
    }
}

/// For buffers shorter than a block, which a request hardly ever is.
#[cold]
#[inline(never)]
fn skip_short(class: Class, bytes: &[u8], from: usize) -> usize {
    Scalar.skip(class, bytes, from)
}

/// As [`skip_short`] for lines.
#[cold]
#[inline(never)]
fn short_line(bytes: &[u8], from: usize) -> (usize, usize) {
    Scalar.line(bytes, from)
}

/// A set of bytes. Callers name one of the constants below, so that after inlining nothing is left to choose.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    /// Some ASCII bytes.
    Ascii(&'static Members),
    /// What a field value may hold ([`is_text`]).
    Text,
}

/// A set of ASCII bytes in the shapes that scalar and vector code test fastest.
pub(crate) struct Members {
    /// Indexed by the byte.
    is_member: [bool; 256],
    /// Indexed by a byte's low half: bit h is set if the byte with high half h (0–7) is a member.
    high_halves: [u8; 16],
}

impl Members {
    /// The bytes of `text`.
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

/// As [`Members::high_halves`], of what no text holds ([`is_text`]).
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

/// `bit[h]` is the bit of high half `h` in [`Members::high_halves`]; bytes above 0x7f have none.
const HIGH_HALF_BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];

/// What names and methods are made of (RFC 9110 §5.6.2).
pub(crate) const FIELD_NAME: Class = Class::Ascii(&FIELD_NAME_MEMBERS);
static FIELD_NAME_MEMBERS: Members =
    Members::of(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// A request target up to its query: RFC 3986's characters, and the few that it leaves out but clients send
/// (`"<>^{|}` and the back quote). Not `#` (fragments stay with the client), not `\` (some file systems take
/// it for a slash), nothing below 0x21 or above 0x7e. `?` ends it.
pub(crate) const TARGET_PATH: Class = Class::Ascii(&TARGET_PATH_MEMBERS);
static TARGET_PATH_MEMBERS: Members = Members::of(
    b"!\"$%&'()*+,-./0123456789:;<=>@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~",
);

/// The query of a request target: as [`TARGET_PATH`], and `?` is data.
pub(crate) const TARGET_QUERY: Class = Class::Ascii(&TARGET_QUERY_MEMBERS);
static TARGET_QUERY_MEMBERS: Members = Members::of(
    b"!\"$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~",
);

/// A host that is a name or an IPv4 address: unreserved and sub-delims (RFC 3986 §3.2.2), without `%`, which
/// is looked at by hand.
pub(crate) const HOST_NAME: Class = Class::Ascii(&HOST_NAME_MEMBERS);
static HOST_NAME_MEMBERS: Members =
    Members::of(b"-._~!$&'()*+,;=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

/// Whether `byte` may stand in a field value: anything but control characters, tab excepted.
#[inline]
pub(crate) const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scanner's answer.
    fn answers(class: Class, bytes: &[u8], from: usize) -> Vec<(&'static str, usize)> {
        struct Ask<'a>(Class, &'a [u8], usize);
        impl Job for Ask<'_> {
            type Output = usize;
            fn run<S: Scanner>(self, scanner: S) -> usize {
                scanner.skip(self.0, self.1, self.2)
            }
        }
        by_each(|| Ask(class, bytes, from))
    }

    /// Every scanner's answer for a whole line.
    fn line_answers(bytes: &[u8], from: usize) -> Vec<(&'static str, (usize, usize))> {
        struct Ask<'a>(&'a [u8], usize);
        impl Job for Ask<'_> {
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
                    // All 256 bytes at the places where blocks begin and end, a few everywhere else.
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
