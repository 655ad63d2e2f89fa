//! A small random generator whose numbers will never change.
//!
//! SplitMix64 (Steele, Lea, Flood 2014). A library's generator may change its stream between versions, and then every
//! seed in a test, a scenario or a report would give other results.

/// A deterministic stream of numbers. Each kind of thing draws from its own stream, independent of all others.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The separate stream of the thing numbered `salt` under `seed`.
    #[inline]
    pub fn for_thing(seed: u64, salt: u64) -> Self {
        let mut mixer = Self::new(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
        Self::new(mixer.next_u64())
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`. `bound` must be above 0. The bias is below bound / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `min..=max`.
    #[inline]
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        assert!(min <= max, "an empty range holds no number");
        min + self.below((max - min).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(1);
        for bound in 1..200 {
            assert!(rng.below(bound) < bound);
            let x = rng.between(bound, bound + 3);
            assert!((bound..=bound + 3).contains(&x));
        }
    }
}
