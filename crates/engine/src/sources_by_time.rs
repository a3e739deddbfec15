//! Several sources merged by the times of their packets.

use hotloop_stage::{BURST_CAPACITY, Burst, Carries, Device, Error, Instant, Limits, Source};
use std::fmt;
use std::sync::Arc;

/// Several sources merged by the times of their packets. [`sources_by_time`] makes it.
pub struct SourcesByTime<S: Source> {
    inputs: Vec<Input<S>>,
}

/// A source, and the packets that it is ahead of the others.
struct Input<S: Source> {
    source: S,
    burst: Burst<S::Item>,
    /// Whether the source is polled: until the run is stopped, and then while it has items left.
    is_polling: bool,
}

/// Merges sources by the [times](Carries::arrival) at which their packets arrived: two captures of
/// one conversation, say, one of each direction. [`sources`](crate::sources) would poll each as fast
/// as it goes, so that answers pass before their questions.
///
/// - The packet with the earliest time comes next; of equal times, that of the earlier source.
/// - Each source keeps its own order, even if its times go back. A packet without a time comes
///   before all others, so sources without times are emptied one after the other.
/// - No packet comes while a source has none and has not [finished](Source::finished), because its
///   next one may be earlier. So a live device that is silent holds the others back. A source that
///   has finished holds back none.
/// - If the run ends before the sources do, the packets that were read ahead, at most a burst of
///   each source, still pass.
///
/// With [`Clock::Capture`](crate::Clock::Capture), the packets' times are also the time of the
/// stages.
///
/// ```
/// use hotloop_engine::sources_by_time;
/// use hotloop_stage::{Burst, Carries, Instant, Source};
///
/// /// A packet that arrived at this time.
/// struct Arrived(u64);
///
/// impl Carries for Arrived {
///     fn bytes(&self) -> &[u8] {
///         &[]
///     }
///
///     fn arrival(&self) -> Option<Instant> {
///         Some(Instant::from_ns(self.0))
///     }
/// }
///
/// /// The times of a capture.
/// struct Recorded(Vec<u64>);
///
/// impl Source for Recorded {
///     type Item = Arrived;
///
///     fn poll(&mut self, burst: &mut Burst<Arrived>) -> usize {
///         let count = self.0.len().min(burst.room());
///         burst.extend(self.0.drain(..count).map(Arrived));
///         count
///     }
///
///     fn finished(&self) -> bool {
///         self.0.is_empty()
///     }
/// }
///
/// let mut merged = sources_by_time([Recorded(vec![10, 40]), Recorded(vec![20, 30])]);
/// let mut burst = Burst::new();
/// merged.poll(&mut burst);
/// assert!(burst.as_slice().iter().map(|packet| packet.0).eq([10, 20, 30, 40]));
/// assert!(merged.finished());
/// ```
pub fn sources_by_time<S: Source<Item: Carries>>(
    sources: impl IntoIterator<Item = S>,
) -> SourcesByTime<S> {
    let input = |source| Input { source, burst: Burst::new(), is_polling: true };
    SourcesByTime { inputs: sources.into_iter().map(input).collect() }
}

impl<S: Source<Item: Carries>> SourcesByTime<S> {
    /// Returns the source with the next packet. `None` if there is none, or an earlier one may still
    /// come.
    fn next(&mut self) -> Option<usize> {
        let mut next: Option<(Option<Instant>, usize)> = None;
        for (index, input) in self.inputs.iter_mut().enumerate() {
            if input.burst.is_empty() && input.is_polling {
                input.source.poll(&mut input.burst);
            }
            match input.burst.as_slice().first() {
                // A packet without a time is earlier than all others.
                Some(packet) => {
                    let candidate = (packet.arrival(), index);
                    next = Some(next.map_or(candidate, |next| next.min(candidate)));
                }
                None if !input.is_polling || input.source.finished() => {}
                None => return None,
            }
        }
        next.map(|(_, index)| index)
    }

    fn held_count(&self) -> usize {
        self.inputs.iter().map(|input| input.burst.len()).sum()
    }
}

impl<S: Source<Item: Carries>> Source for SourcesByTime<S> {
    type Item = S::Item;

    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let before = burst.len();
        while burst.room() > 0 {
            let Some(next) = self.next() else { break };
            burst.extend(self.inputs[next].burst.pop());
        }
        burst.len() - before
    }

    /// The pools also hold the packets that were read ahead.
    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        let in_flight_max = limits.in_flight_max + self.inputs.len() * BURST_CAPACITY;
        let limits = Limits { in_flight_max, ..*limits };
        self.inputs.iter_mut().try_for_each(|input| input.source.start(&limits))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.inputs.iter().flat_map(|input| input.source.devices()).collect()
    }

    /// True only if every source can wait.
    fn lossless(&self) -> bool {
        self.inputs.iter().all(|input| input.source.lossless())
    }

    /// True only if every source creates its packets.
    fn creates(&self) -> bool {
        self.inputs.iter().all(|input| input.source.creates())
    }

    /// Unknown if any source's count is unknown.
    fn waiting_count(&mut self) -> Option<usize> {
        let held_count = self.held_count();
        let waiting = self.inputs.iter_mut().map(|input| input.source.waiting_count());
        waiting.sum::<Option<usize>>().map(|waiting| waiting + held_count)
    }

    fn stop(&mut self) -> bool {
        let mut has_items = self.held_count() > 0;
        for input in &mut self.inputs {
            input.is_polling = input.source.stop();
            has_items |= input.is_polling;
        }
        has_items
    }

    fn finished(&self) -> bool {
        let is_dry = |input: &Input<S>| !input.is_polling || input.source.finished();
        self.inputs.iter().all(|input| input.burst.is_empty() && is_dry(input))
    }
}

impl<S: Source> fmt::Debug for SourcesByTime<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourcesByTime").field("count", &self.inputs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with its number and time.
    #[derive(Clone, Copy)]
    struct Numbered(u8, Option<u64>);

    impl Carries for Numbered {
        fn bytes(&self) -> &[u8] {
            &[]
        }

        fn arrival(&self) -> Option<Instant> {
            self.1.map(Instant::from_ns)
        }
    }

    /// Packets; `None` once for each poll without a packet.
    struct Recorded {
        packets: std::vec::IntoIter<Option<Numbered>>,
        is_endless: bool,
    }

    fn recorded(packets: &[Option<Numbered>]) -> Recorded {
        Recorded { packets: Vec::from(packets).into_iter(), is_endless: false }
    }

    impl Source for Recorded {
        type Item = Numbered;

        fn poll(&mut self, burst: &mut Burst<Numbered>) -> usize {
            let (before, room) = (burst.len(), burst.room());
            burst.extend(self.packets.by_ref().take(room).map_while(|packet| packet));
            burst.len() - before
        }

        fn finished(&self) -> bool {
            self.packets.len() == 0 && !self.is_endless
        }
    }

    /// The numbers of the packets of a poll.
    fn polled(sources: &mut SourcesByTime<Recorded>, room: usize) -> Vec<u8> {
        let mut burst = Burst::new();
        burst.set_limit(room);
        assert_eq!(sources.poll(&mut burst), burst.len());
        burst.as_slice().iter().map(|packet| packet.0).collect()
    }

    fn at(number: u8, ns: u64) -> Option<Numbered> {
        Some(Numbered(number, Some(ns)))
    }

    fn untimed(number: u8) -> Option<Numbered> {
        Some(Numbered(number, None))
    }

    #[test]
    fn equal_times_and_times_that_go_back_keep_the_order_of_each_source() {
        let first = recorded(&[at(1, 10), at(2, 50), at(3, 20)]);
        let second = recorded(&[at(11, 10), at(12, 30), at(13, 60)]);
        let mut merged = sources_by_time([first, second]);
        assert_eq!(polled(&mut merged, 2), [1, 11]);
        assert!(!merged.finished());
        assert_eq!(polled(&mut merged, 64), [12, 2, 3, 13]);
        assert!(merged.finished());
    }

    #[test]
    fn packets_without_a_time_come_at_once() {
        let first = recorded(&[at(1, 10), untimed(2), at(3, 30)]);
        let second = recorded(&[untimed(11), untimed(12), at(13, 20)]);
        let mut merged = sources_by_time([first, second]);
        assert_eq!(polled(&mut merged, 64), [11, 12, 1, 2, 13, 3]);
    }

    #[test]
    fn a_silent_source_holds_the_others_back_until_it_ends() {
        let silent = recorded(&[None, None, at(11, 5)]);
        let mut merged = sources_by_time([recorded(&[at(1, 10), at(2, 20)]), silent]);
        assert_eq!(polled(&mut merged, 64), [0; 0]);
        assert_eq!(polled(&mut merged, 64), [0; 0]);
        assert_eq!(polled(&mut merged, 64), [11, 1, 2]);
        assert!(merged.finished());
    }

    #[test]
    fn a_stop_leaves_what_was_read_ahead() {
        let mut endless = recorded(&[at(11, 5)]);
        endless.is_endless = true;
        let mut merged = sources_by_time([recorded(&[at(1, 10), at(2, 20)]), endless]);
        assert_eq!(polled(&mut merged, 64), [11]);
        assert_eq!(polled(&mut merged, 64), [0; 0], "an earlier one may come");
        assert!(merged.stop() && merged.stop() && !merged.finished());
        assert_eq!(polled(&mut merged, 64), [1, 2]);
        assert!(merged.finished() && !merged.stop());
    }

    #[test]
    fn a_stop_leaves_what_a_merged_source_has_read_ahead() {
        let mut endless = recorded(&[at(11, 5)]);
        endless.is_endless = true;
        let inner = sources_by_time([recorded(&[at(1, 10)]), endless]);
        let mut outer = sources_by_time([inner]);
        let mut burst = Burst::new();
        assert_eq!((outer.poll(&mut burst), outer.stop(), outer.finished()), (1, true, false));
        assert_eq!((outer.poll(&mut burst), outer.finished()), (1, true));
        assert!(burst.as_slice().iter().map(|packet| packet.0).eq([11, 1]));
    }
}
