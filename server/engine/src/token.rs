//! Tokens as peers see them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use damper_core::TokenId;

/// Seals token numbers, so that nobody can return a token that they were not given. The seal is a keyed hash
/// with a key of this process's own: tokens are not secrets, they live for seconds, and a guess costs 2^63 tries.
#[derive(Debug, Default)]
pub(crate) struct Seal(RandomState);

impl Seal {
    pub(crate) fn write(&self, place: usize, token: TokenId) -> String {
        let number = token.number();
        format!("{place:x}-{number:x}-{:016x}", self.0.hash_one((place, number)))
    }

    /// The dependency's place and the token's number, if this process wrote `text`.
    pub(crate) fn read(&self, text: &str) -> Option<(usize, TokenId)> {
        // Longer than any token; a peer's megabyte is not parsed.
        if text.len() > 64 {
            return None;
        }
        let mut parts = text.split('-');
        let place = usize::from_str_radix(parts.next()?, 16).ok()?;
        let token = TokenId::from_number(u64::from_str_radix(parts.next()?, 16).ok()?);
        (self.write(place, token) == text).then_some((place, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_here_is_read() {
        let seal = Seal::default();
        let token = TokenId::from_number(300);
        let text = seal.write(2, token);
        assert_eq!(seal.read(&text), Some((2, token)));
        assert_eq!(Seal::default().read(&text), None, "another process's token");
        let forged = text.replacen("12c", "12d", 1);
        for other in ["", "-", "--", "2-12c", "+2-12c-0", &forged, &format!("0{text}"), &"f".repeat(1 << 20)]
        {
            assert_eq!(seal.read(other), None, "{other:.80}");
        }
    }
}
