//! The keys to look up.

/// A key in the form of an IPv4 flow's: 16 bytes.
pub type Key = [u64; 2];

/// Number of keys in a stream: in large tables, they and their entries exceed any cache.
const STREAM_MAX: u64 = 1 << 20;

/// All numbers of keys are multiples of this, so that every burst is full.
pub const BURST: usize = 64;

/// The key of a number; all are different.
pub fn key(number: u64) -> Key {
    [mix(number), number]
}

/// Keys in random order, like those in packets' headers, to be read over and over.
pub struct Stream {
    keys: Vec<Key>,
    at: usize,
}

impl Stream {
    /// A stream of the keys of `number_count` numbers from `first` on.
    pub fn new(first: u64, number_count: u64) -> Self {
        let key_count = Self::pass(number_count) as usize;
        let random = |index: u64| (u128::from(mix(index * 2 + 1)) * u128::from(number_count)) >> 64;
        let keys = (0..key_count as u64).map(|index| key(first + random(index) as u64)).collect();
        Self { keys, at: 0 }
    }

    /// Number of keys in a stream of `number_count` numbers, before it repeats.
    pub fn pass(number_count: u64) -> u64 {
        // In a small table every key occurs about equally often.
        STREAM_MAX.min(number_count.next_power_of_two() * 2)
    }

    /// Passes the next `count` keys to `each`, in a few slices of whole bursts.
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

/// A number's bits, mixed. This need not be one-to-one, because the key also has the number itself.
fn mix(number: u64) -> u64 {
    let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xbf58_476d_1ce4_e5b9;
    let folded = product as u64 ^ (product >> 64) as u64;
    let product = u128::from(folded ^ 0x2545_f491_4f6c_dd1d) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}
