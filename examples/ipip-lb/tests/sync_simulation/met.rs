//! The events of a simulation.

macro_rules! met {
    ($($name:ident),* $(,)?) => {
        /// Counts of the events.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Met {
            $(pub $name: u64,)*
        }

        impl Met {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

met! {
    packets,
    late_packets,
    moved_exceptions,
    moved_udp,
    errors,
    errors_elsewhere,
    moved_to_workers,
    kills,
    restarts,
    cuts,
    configurations,
    closings,
    resets,
    taken_over_by_end,
    ends_heard,
    reused,
    reused_elsewhere,
    reused_unaware,
    strays,
    ended_away,
    answers_by_others,
    unpromised,
    repeated,
    without_room,
    left,
    killed_between,
    losses,
    overflows,
    wrong_clocks,
    takeovers,
    takeovers_in_moves,
    handed_over,
    moves,
    sleeps,
    timed_out,
}
