//! Looking for bytes, a block at a time.
//!
//! What is looked for in a line of JSON is mostly near: the end of a key, the next escape of a tool's
//! output. A search that is made for long distances costs more to begin than such a walk takes. Here
//! nothing is begun: a block becomes a mask with a bit for each byte, and the mask is walked over.

/// As many bytes as make a mask.
const BLOCK: usize = 64;
/// As many as the processor compares at once.
pub(crate) const LANE: usize = 16;
/// Within so many bytes most strings are over.
const NEAR: usize = 2 * LANE;

/// Where the next of `wanted` is, from `from` on.
#[inline]
pub(crate) fn find<const N: usize>(bytes: &[u8], from: usize, wanted: [u8; N]) -> Option<usize> {
    let (lanes, rest) = bytes.get(from..)?.as_chunks::<LANE>();
    for (nth, lane) in lanes.iter().enumerate() {
        let found = lane_mask(lane, wanted);
        if found != 0 {
            return Some(from + nth * LANE + found.trailing_zeros() as usize);
        }
    }
    let at = rest.iter().position(|byte| wanted.contains(byte))?;
    Some(from + lanes.len() * LANE + at)
}

/// Where the first quote is that no backslash takes for its own, from `from` on.
#[inline]
pub(crate) fn find_closing_quote(bytes: &[u8], from: usize) -> Option<usize> {
    // Most strings are keys, ids and words, without an escape.
    if let Some((near, _)) = bytes.get(from..)?.split_first_chunk::<NEAR>() {
        let (lanes, _) = near.as_chunks::<LANE>();
        let near = |wanted| match lanes {
            [first, second] => lane_mask(first, wanted) | lane_mask(second, wanted) << LANE,
            _ => 0,
        };
        let quotes = near([b'"']);
        let before_first = quotes.wrapping_sub(1) & !quotes;
        if quotes != 0 && near([b'\\']) & before_first == 0 {
            return Some(from + quotes.trailing_zeros() as usize);
        }
    }
    find_far_closing_quote(bytes, from)
}

/// The same for any string.
///
/// Quotes and backslashes come too irregularly for a processor to guess its way through them, so
/// there is no branch in this but the one that ends it: which bytes are escaped is found by
/// arithmetic on the masks.
fn find_far_closing_quote(bytes: &[u8], from: usize) -> Option<usize> {
    let (blocks, rest) = bytes.get(from..)?.as_chunks::<BLOCK>();
    let mut escapes = Escapes::default();
    for (nth, block) in blocks.iter().enumerate() {
        let quotes = escapes.closing_quotes(block);
        if quotes != 0 {
            return Some(from + nth * BLOCK + quotes.trailing_zeros() as usize);
        }
    }
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    let quotes = escapes.closing_quotes(&block);
    (quotes != 0).then(|| from + blocks.len() * BLOCK + quotes.trailing_zeros() as usize)
}

/// Which bytes are escaped, block after block.
#[derive(Default)]
struct Escapes {
    /// 1 if the first byte of the next block is.
    first: u64,
}

impl Escapes {
    #[inline]
    fn closing_quotes(&mut self, block: &[u8; BLOCK]) -> u64 {
        let backslashes = mask(block, [b'\\']);
        mask(block, [b'"']) & !self.escaped(backslashes)
    }

    /// In a row of backslashes every second one is escaped, and so is what follows a row of an odd
    /// length. To tell odd from even, rows that begin at an odd place are carried by an addition to
    /// the place after their end; there the parity of the place is the opposite of what it is after
    /// the other rows.
    #[inline]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        const EVEN_PLACES: u64 = 0x5555_5555_5555_5555;
        let backslashes = backslashes & !self.first;
        let after = (backslashes << 1) | self.first;
        let odd_begins = backslashes & !EVEN_PLACES & !after;
        let (ends, beyond) = odd_begins.overflowing_add(backslashes);
        self.first = u64::from(beyond);
        (EVEN_PLACES ^ (ends << 1)) & after
    }
}

/// A bit for each byte of the block that is one of `wanted`, the lowest for the first.
#[inline]
fn mask<const N: usize>(block: &[u8; BLOCK], wanted: [u8; N]) -> u64 {
    let (lanes, _) = block.as_chunks::<LANE>();
    let lanes = lanes.iter().enumerate();
    lanes.fold(0, |mask, (nth, lane)| mask | u64::from(lane_mask(lane, wanted)) << (nth * LANE))
}

/// A bit for each byte of the lane that JSON writes as an escape: a quote, a backslash, a control
/// character.
#[inline]
pub(crate) fn needs_escape(lane: &[u8; LANE]) -> u32 {
    lane_mask(lane, [b'"', b'\\']) | lane_mask_up_to(lane, 0x1F)
}

/// The same for a lane.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the processor's own instruction for it has no safe name")]
#[inline]
fn lane_mask<const N: usize>(lane: &[u8; LANE], wanted: [u8; N]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
        _mm_setzero_si128,
    };
    // SAFETY: every processor of this architecture has SSE2, and what is loaded are the sixteen
    // bytes of `lane`, wherever they stand.
    unsafe {
        let lane = _mm_loadu_si128(lane.as_ptr().cast());
        let found = wanted.into_iter().fold(_mm_setzero_si128(), |found, byte| {
            _mm_or_si128(found, _mm_cmpeq_epi8(lane, _mm_set1_epi8(byte.cast_signed())))
        });
        _mm_movemask_epi8(found).cast_unsigned()
    }
}

/// A bit for each byte of the lane that is at most `most`.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the processor's own instruction for it has no safe name")]
#[inline]
fn lane_mask_up_to(lane: &[u8; LANE], most: u8) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_set1_epi8,
    };
    // SAFETY: as above.
    unsafe {
        let lane = _mm_loadu_si128(lane.as_ptr().cast());
        let least = _mm_min_epu8(lane, _mm_set1_epi8(most.cast_signed()));
        _mm_movemask_epi8(_mm_cmpeq_epi8(least, lane)).cast_unsigned()
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn lane_mask_up_to(lane: &[u8; LANE], most: u8) -> u32 {
    let bits = lane.iter().enumerate();
    bits.fold(0, |mask, (nth, byte)| mask | u32::from(*byte <= most) << nth)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn lane_mask<const N: usize>(lane: &[u8; LANE], wanted: [u8; N]) -> u32 {
    let bits = lane.iter().enumerate();
    bits.fold(0, |mask, (nth, byte)| mask | u32::from(wanted.contains(byte)) << nth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_found_is_the_first_one(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(b'a'), 1 => any::<u8>()], 0..80),
            from in 0usize..90,
            wanted in any::<[u8; 3]>(),
        ) {
            let plain = bytes.iter().skip(from).position(|byte| wanted.contains(byte));
            prop_assert_eq!(find(&bytes, from, wanted), plain.map(|at| from + at));
        }

        #[test]
        fn an_escape_is_for_quotes_backslashes_and_control_characters(lane in any::<[u8; LANE]>()) {
            let needs = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
            let found = needs_escape(&lane);
            for (nth, byte) in lane.iter().enumerate() {
                prop_assert_eq!(found >> nth & 1 == 1, needs(byte));
            }
        }

        #[test]
        fn an_escaped_quote_closes_nothing(
            bytes in proptest::collection::vec(
                prop_oneof![8 => Just(b'\\'), 2 => Just(b'"'), 8 => Just(b'x')], 0..300),
            from in 0usize..20,
        ) {
            let mut at = from;
            let step_by_step = loop {
                match bytes.get(at) {
                    None => break None,
                    Some(b'"') => break Some(at),
                    Some(b'\\') => at += 2,
                    Some(_) => at += 1,
                }
            };
            prop_assert_eq!(find_closing_quote(&bytes, from), step_by_step);
        }
    }
}
