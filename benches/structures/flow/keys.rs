//! The keys that are looked up.

/// A key as that of an IPv4 flow: 16 bytes.
pub type Key = [u64; 2];

/// Keys in a stream: more than fit any cache along with what they point to, in large tables.
const STREAM_MAX: u64 = 1 << 20;

/// All are multiples of this, so that every burst is full.
pub const BURST: usize = 64;

/// The key of a number: no two are equal.
pub fn key(number: u64) -> Key {
    [mix(number), number]
}

/// Keys in random order, as the headers of packets would bring them, to be read over and over.
pub struct Stream {
    keys: Vec<Key>,
    at: usize,
}

impl Stream {
    /// Of the keys of numbers from `first` on, `number_count` of them.
    pub fn new(first: u64, number_count: u64) -> Self {
        let key_count = Self::pass(number_count) as usize;
        let random = |index: u64| (u128::from(mix(index * 2 + 1)) * u128::from(number_count)) >> 64;
        let keys = (0..key_count as u64).map(|index| key(first + random(index) as u64)).collect();
        Self { keys, at: 0 }
    }

    /// How many keys a stream of `number_count` numbers has, before it begins again.
    pub fn pass(number_count: u64) -> u64 {
        // In a small table every key comes about as often as every other one.
        STREAM_MAX.min(number_count.next_power_of_two() * 2)
    }

    /// Hands out the next `count` keys, in a few slices of whole bursts.
    pub fn next(&mut self, count: usize, mut each: impl FnMut(&[Key])) {
        let mut left = count;
        while left > 0 {
            let end = (self.at + left).min(self.keys.len());
            each(&self.keys[self.at..end]);
            left -= end - self.at;
            self.at = end % self.keys.len();
        }
    }
}

/// A number's bits, mixed: one-to-one is not needed, the number itself stands beside it.
fn mix(number: u64) -> u64 {
    let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
    let folded = product as u64 ^ (product >> 64) as u64;
    let product = u128::from(folded ^ 0x2545_f491_4f6c_dd1d) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}
