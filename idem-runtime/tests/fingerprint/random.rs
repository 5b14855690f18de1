//! A small generator of numbers that are the same on every machine and in every version.

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in one of `n` cases.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Changes, inserts, removes or repeats a few bytes.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const TELLING: &[u8] = b"\"\\{}[]:,0123456789eE+-. \tutrfnals\x00\x1f\x7f\xff\xc3\xa9";
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 => bytes.insert(at, self.pick(TELLING)),
                1 if at < bytes.len() => bytes[at] = self.pick(TELLING),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ => {
                    let end = (at + self.below(8)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
    }
}
